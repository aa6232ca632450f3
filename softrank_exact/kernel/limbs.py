"""Exact integer matrices as limbs: digits held in float64, multiplied by BLAS.

An integer array ``x`` of any shape is stored as ``x = sum_t digits[t] * 2**(21 t)``, every digit
an integer in float64 with ``|digit| <= bound <= 2^53 - 2^34``. The form is redundant: digits are
carried only when an operation needs smaller ones. Nothing is ever rounded:

* integers up to 2^53 are exact in float64. Before a product the digits are made so small that
  (bound of one) (bound of the other) (inner dimension) <= 2^52: every partial sum of a digit
  product is then an integer of at most 2^52, exact whatever the order of summation, with or without
  fused multiply-add. This is always possible: carried digits are at most 2^20, and the inner
  dimension is at most 2^12;
* digit products of equal weight are added while the sum of their bounds allows it; else the sum so
  far is carried first, which leaves at most 2^20 of it. At most two carries, of 2^32 each, reach a
  weight before its own bound is looked at again, so that it stays below 2^53;
* carrying v, |v| <= 2^53, takes c = rint(v / 2^21), exact as 2^-21 is a power of two, and leaves
  v - 2^21 c, an integer of at most 2^20. c is at most 2^32, so that a digit within the bound and
  what is carried into it are at most 2^53 - 2^34 + 2^32 + 1 < 2^53 together.

Carried digits make signs cheap: below a non-zero digit of weight 2^(21 t) the rest is at most
2^20 (1 + 2^21 + ... + 2^(21 (t - 1))) < 2^(21 t), so the highest non-zero digit has the number's
sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
Digit: TypeAlias = NDArray[np.float64]

WIDTH = 21
BASE = 1 << WIDTH
HALF = BASE >> 1
LARGEST = (1 << 53) - (1 << 34)
MAX_PRODUCT = 1 << 52
MAX_CARRY = 1 << 32
MAX_INNER = 1 << 12
MAX_SUMMAND = 1 << 51
MAX_TOTAL = 1 << 62


class Limbs:
    """An exact integer array of any shape, immutable by convention.

    ``digits``: at least one float64 array, all of one shape; ``bound``: at least every |digit|.
    """

    def __init__(self, digits: list[Digit], bound: int) -> None:
        if not (bound <= LARGEST):
            raise OverflowError("a digit may exceed 2^53 - 2^34")
        self.digits = digits
        self.bound = bound

    @property
    def shape(self) -> tuple[int, ...]:
        return self.digits[0].shape

    @classmethod
    def of(cls, values: NDArray[Any]) -> Limbs:
        """From int64 values within +-2^62, or Python integers of any size in an object array.

        Raises ``TypeError`` for any other type and ``OverflowError`` for int64 values outside
        +-2^62 (|-2^63| is negative in int64).
        """
        if values.dtype not in (np.int64, np.object_):
            raise TypeError("exact integers come as int64 or as Python integers")
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if values.dtype == np.int64 and not (largest <= 1 << 62):
            raise OverflowError("an int64 entry is outside +-2^62")
        digits: list[Digit] = []
        while largest > LARGEST:
            carry = (values + HALF) >> WIDTH
            digits.append(np.asarray(values - (carry << WIDTH), dtype=np.float64))
            values, largest = carry, (largest + HALF) >> WIDTH
        digits.append(np.asarray(values, dtype=np.float64))
        return cls(digits, max(largest, 1 if len(digits) == 1 else HALF))

    def __matmul__(self, other: Limbs) -> Limbs:
        """The exact product; leading axes broadcast as in numpy.

        Raises ``OverflowError`` for an inner dimension above 2^12.
        """
        return self._product(other, np.matmul, self.shape[-1])

    def __mul__(self, other: Limbs) -> Limbs:
        """The exact entrywise product, with numpy broadcasting."""
        return self._product(other, np.multiply, 1)

    def times(self, factor: int) -> Limbs:
        """The exact product with one Python integer of any size."""
        if factor == 1:
            return self
        return self * Limbs.of(np.array(factor, dtype=object))

    def _product(self, other: Limbs, product: Callable[..., Any], inner: int) -> Limbs:
        if not (inner <= MAX_INNER):
            raise OverflowError("the inner dimension is above 2^12")
        room = MAX_PRODUCT // max(inner, 1)
        # room is at least HALF^2, so that what is left for b is never less than HALF.
        a = self.carried(room // min(self.bound, other.bound, HALF))
        b = other.carried(room // a.bound)
        return _sum_of_products(a.digits, b.digits, product, a.bound * b.bound * max(inner, 1))

    def __add__(self, other: Limbs) -> Limbs:
        """The exact sum, with numpy broadcasting."""
        return self._added(other, np.add)

    def __sub__(self, other: Limbs) -> Limbs:
        """The exact difference, with numpy broadcasting."""
        return self._added(other, np.subtract)

    def _added(self, other: Limbs, operation: Callable[..., Any]) -> Limbs:
        a, b = self, other
        if a.bound + b.bound > LARGEST:
            a, b = a.carried(MAX_SUMMAND), b.carried(MAX_SUMMAND)
        length = max(len(a.digits), len(b.digits))
        x, y = a._padded(length), b._padded(length)
        return Limbs([operation(*pair) for pair in zip(x, y, strict=True)], a.bound + b.bound)

    def _padded(self, length: int) -> list[Digit]:
        return self.digits + [np.zeros(self.shape)] * (length - len(self.digits))

    def carried(self, limit: int) -> Limbs:
        """The same integers with every digit at most ``limit`` (2^20 if limit is less)."""
        limit = max(limit, HALF)
        if self.bound <= limit:
            return self
        digits: list[Digit] = []
        carry: Any = None
        for digit in self.digits:
            rest, carry = _carry(digit if carry is None else digit + carry)
            digits.append(rest)
        top = _largest(carry)
        while top > limit:
            rest, carry = _carry(carry)
            digits.append(rest)
            top = _largest(carry)
        if top:
            digits.append(carry)
        while len(digits) > 1 and not np.any(digits[-1]):
            digits.pop()
        return Limbs(digits, max(top, HALF))

    @property
    def T(self) -> Limbs:
        """The transpose of the last two axes."""
        return Limbs([np.swapaxes(digit, -1, -2) for digit in self.digits], self.bound)

    def __getitem__(self, index: Any) -> Limbs:
        """Entries by any numpy index."""
        return Limbs([digit[index] for digit in self.digits], self.bound)

    def absolute(self) -> Limbs:
        """Entrywise absolute values, by the sign of the highest non-zero digit."""
        if len(self.digits) == 1:
            return Limbs([np.abs(self.digits[0])], self.bound)
        if len(self.digits) == 2:
            low, high = self.digits
            # Scaling is exact, and the one rounding of the sum keeps its sign.
            sign = np.sign(high * BASE + low)
            return Limbs([low * sign, high * sign], self.bound)
        digits = self.carried(HALF).digits
        sign = np.sign(digits[-1])
        for digit in reversed(digits[:-1]):
            sign = np.sign(sign * BASE + digit)
        return Limbs([digit * sign for digit in digits], HALF)

    def sums(self) -> list[Any]:
        """Exact sums along the last axis, as nested lists of Python integers.

        Raises ``OverflowError`` for an axis longer than 2^12.
        """
        if not (self.shape[-1] <= MAX_INNER):
            raise OverflowError("the summed axis is longer than 2^12")
        small = self.carried(MAX_TOTAL // max(self.shape[-1], 1))
        return _joined([digit.astype(np.int64).sum(axis=-1) for digit in small.digits])

    def integers(self) -> list[Any]:
        """The entries as nested lists of Python integers."""
        return _joined([digit.astype(np.int64) for digit in self.digits])


def identity(size: int) -> Limbs:
    """The identity matrix of the given size."""
    return Limbs([np.eye(size)], 1)


def _sum_of_products(
    a: list[Digit], b: list[Digit], product: Callable[..., Any], bound: int
) -> Limbs:
    """sum_st product(a[s], b[t]) 2^(21 (s + t)), each product at most ``bound`` <= 2^52."""
    sums: list[Any] = [0] * (len(a) + len(b) - 1)
    bounds = [0] * len(sums)
    for s, x in enumerate(a):
        for t, y in enumerate(b):
            weight = s + t
            if bounds[weight] + bound > LARGEST:
                sums[weight], carry = _carry(sums[weight])
                sums[weight + 1] = sums[weight + 1] + carry
                bounds[weight], bounds[weight + 1] = HALF, bounds[weight + 1] + MAX_CARRY
            part = product(x, y)
            sums[weight] = sums[weight] + part if bounds[weight] else part
            bounds[weight] += bound
    return Limbs(sums, max(bounds))


def _carry(values: Digit) -> tuple[Digit, Digit]:
    """(rest, carry) with values = rest + 2^21 carry and |rest| <= 2^20; |values| <= 2^53."""
    carry = np.rint(values * (1 / BASE))
    return values - carry * BASE, carry


def _largest(values: Digit) -> int:
    return int(np.abs(values).max(initial=0))


def _joined(digits: list[IntArray]) -> list[Any]:
    joined: Any = 0
    for digit in reversed(digits):
        joined = joined * BASE + np.asarray(digit).astype(object)
    result: list[Any] = joined.tolist() if isinstance(joined, np.ndarray) else [joined]
    return result
