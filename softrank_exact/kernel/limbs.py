"""Exact integer matrices as limbs: balanced 21-bit digits held in float64, multiplied by BLAS.

An integer array ``x`` of any shape is stored as digits ``x = sum_t digits[t] * 2**(21 t)`` with
every digit an integer in [-2^20, 2^20]. Nothing is ever rounded:

* a product of two digits is at most 2^40 in absolute value, and the inner dimension of a product
  is at most 2^12, so every partial sum of a digit product is an integer of absolute value at most
  2^52. Integers up to 2^53 are exact in float64, whatever the order of summation and with or
  without fused multiply-add: BLAS computes digit products exactly;
* digit products of equal weight are then added as int64. There are at most as many of them as the
  shorter operand has digits; with at most 2^10 of those every sum stays below 2^62;
* carrying maps such a sum s to a digit in [-2^20, 2^20) and a carry of absolute value at most
  2^41 + 1, so that the running value stays below 2^62 + 2^42 < 2^63.

The balanced form makes signs cheap: below a non-zero digit of weight 2^(21 t) the rest is at most
2^20 (1 + 2^21 + ... + 2^(21 (t - 1))) < 2^(21 t), so the highest non-zero digit has the number's
sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
Digits: TypeAlias = NDArray[np.float64]

WIDTH = 21
HALF = 1 << (WIDTH - 1)
MASK = (1 << WIDTH) - 1
MAX_INNER = 1 << 12
MAX_DIGITS = 1 << 10


class Limbs:
    """An exact integer array of any shape, immutable by convention.

    ``digits``: float64, shape (L, *shape), L >= 1, every entry an integer in [-2^20, 2^20].
    """

    def __init__(self, digits: Digits) -> None:
        self.digits = digits

    @property
    def shape(self) -> tuple[int, ...]:
        return self.digits.shape[1:]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Limbs:
        """From int64 values within +-2^62, or Python integers of any size in an object array.

        Raises ``TypeError`` for any other type and ``OverflowError`` for int64 values outside
        +-2^62, where the carry's offset could wrap around.
        """
        if values.dtype not in (np.int64, np.object_):
            raise TypeError("exact integers come as int64 or as Python integers")
        small = values.dtype == np.object_ or not values.size
        if not (small or (int(values.min()) >= -(1 << 62) and int(values.max()) <= 1 << 62)):
            raise OverflowError("an int64 entry is outside +-2^62")
        return cls(_carried([values]))

    def __matmul__(self, other: Limbs) -> Limbs:
        """The exact product; leading axes broadcast as in numpy.

        Raises ``OverflowError`` for an inner dimension above 2^12 or operands of over 2^10 digits.
        """
        if self.shape[-1] > MAX_INNER:
            raise OverflowError("the inner dimension is above 2^12")
        return self._combined(other, np.matmul)

    def __mul__(self, other: Limbs) -> Limbs:
        """The exact entrywise product, with numpy broadcasting."""
        return self._combined(other, np.multiply)

    def times(self, factor: int) -> Limbs:
        """The exact product with one Python integer of any size."""
        if factor == 1:
            return self
        return self * Limbs.of(np.array(factor, dtype=object))

    def _combined(self, other: Limbs, product: Any) -> Limbs:
        rows, columns = len(self.digits), len(other.digits)
        if min(rows, columns) > MAX_DIGITS:
            raise OverflowError("an operand has over 2^10 digits")
        sums: list[Any] = [0] * (rows + columns - 1)
        for s in range(rows):
            for t in range(columns):
                part = product(self.digits[s], other.digits[t]).astype(np.int64)
                sums[s + t] = sums[s + t] + part
        return Limbs(_carried(sums))

    def __add__(self, other: Limbs) -> Limbs:
        """The exact sum, with numpy broadcasting."""
        return self._added(other, np.add)

    def __sub__(self, other: Limbs) -> Limbs:
        """The exact difference, with numpy broadcasting."""
        return self._added(other, np.subtract)

    def _added(self, other: Limbs, operation: Any) -> Limbs:
        length = max(len(self.digits), len(other.digits))
        a, b = self._padded(length), other._padded(length)
        return Limbs(_carried([operation(a[t], b[t]).astype(np.int64) for t in range(length)]))

    def _padded(self, length: int) -> Digits:
        missing = length - len(self.digits)
        if missing == 0:
            return self.digits
        return np.concatenate([self.digits, np.zeros((missing, *self.shape))])

    @property
    def T(self) -> Limbs:
        """The transpose of the last two axes."""
        return Limbs(np.swapaxes(self.digits, -1, -2))

    def __getitem__(self, index: Any) -> Limbs:
        """Entries by any numpy index of the array axes."""
        index = index if isinstance(index, tuple) else (index,)
        return Limbs(self.digits[(slice(None), *index)])

    def absolute(self) -> Limbs:
        """Entrywise absolute values, by the sign of the highest non-zero digit."""
        sign = np.zeros(self.shape)
        for digit in self.digits:
            sign = np.where(digit != 0, np.sign(digit), sign)
        return Limbs(self.digits * sign)

    def sums(self) -> list[Any]:
        """Exact sums along the last axis, as nested lists of Python integers.

        The digit sums are exact in int64: at most 2^12 digits of 2^20 each.
        """
        if self.shape[-1] > MAX_INNER:
            raise OverflowError("the summed axis is longer than 2^12")
        return _joined(self.digits.sum(axis=-1).astype(np.int64))

    def integers(self) -> list[Any]:
        """The entries as nested lists of Python integers."""
        return _joined(self.digits.astype(np.int64))


def identity(size: int) -> Limbs:
    """The identity matrix of the given size."""
    return Limbs.of(np.eye(size, dtype=np.int64))


def _carried(sums: Sequence[NDArray[Any]]) -> Digits:
    """Digits of sum_t sums[t] 2^(21 t), top zero digits dropped (at least one digit stays)."""
    digits: list[Digits] = []
    carry: Any = 0
    for part in sums:
        digit, carry = _split(part + carry)
        digits.append(digit)
    while np.any(carry):
        digit, carry = _split(carry)
        digits.append(digit)
    while len(digits) > 1 and not np.any(digits[-1]):
        digits.pop()
    return np.stack(digits)


def _split(values: Any) -> tuple[Digits, Any]:
    """(digit, carry) with values = digit + 2^21 carry and digit in [-2^20, 2^20)."""
    carry = (values + HALF) >> WIDTH
    return np.asarray(values - (carry << WIDTH), dtype=np.float64), carry


def _joined(digits: IntArray) -> list[Any]:
    joined = digits[-1].astype(object)
    for digit in digits[-2::-1]:
        joined = joined * (1 << WIDTH) + digit
    result: list[Any] = joined.tolist() if isinstance(joined, np.ndarray) else [joined]
    return result
