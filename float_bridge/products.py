"""Exact integer matrices on a device: limbs as torch float64, batched, the kernel's integers.

An integer array is stored as balanced 21-bit digits, x = sum_t digits[t] 2^(21 t), each digit an
integer in [-2^20, 2^20]. With an inner dimension of at most 2^12 every partial sum of a digit
product is an integer of absolute value at most 2^52, exact in float64 in any order of summation.
A carry maps v to c = round(v / 2^21) and the digit v - 2^21 c; both are exact for |v| < 2^53. What
is carried into a weight is at most 2^32 for each product added to the weight below, of which there
are at most 2^9, so that a product, a digit and a carry together stay below 2^53. What is assumed of
a device (docs/recheck.md):

1. float64 multiplication, addition (fused or not, in any order) and rounding to an integer are
   exact whenever the exact result is an integer of absolute value at most 2^53 or such an integer
   times 2^-21: IEEE binary64, with no emulated, reduced-precision or Strassen-like mode;
2. int64 addition, subtraction and shifts wrap nothing below 2^63 and shift arithmetically;
3. conversions between the two are exact for integers of absolute value at most 2^53.

``check_device`` tests all three with a product whose answer is known. ``Paranoia`` verifies every
product modulo random primes on the CPU, in int64 arithmetic that shares nothing with the device.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, reduce
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from flint import fmpz
from numpy.typing import NDArray

from softrank_exact.errors import UserError

WIDTH = 21
BASE = 1 << WIDTH
HALF = BASE >> 1
MAX_INNER = 1 << 12
MAX_DIGITS = 1 << 9
# Primes between 2^30 and 2^31 (the prime-counting function at both ends).
PRIMES = 105097565 - 54400028
ROUNDS = 2


class DeviceLimbs:
    """An exact integer array of any shape on a torch device, immutable by convention.

    ``digits``: at least one float64 tensor, all of one shape, entries integers in [-2^20, 2^20].
    """

    def __init__(self, digits: list[torch.Tensor], transposed: DeviceLimbs | None = None) -> None:
        self.digits = digits
        self.transposed = transposed  # where this came from by ``T``

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.digits[0].shape)

    @classmethod
    def of(cls, values: torch.Tensor) -> DeviceLimbs:
        """From int64 values within +-2^62. Raises ``OverflowError`` beyond, ``TypeError`` else."""
        if values.dtype != torch.int64:
            raise TypeError("exact integers come as int64")
        least, most = torch.aminmax(values) if values.numel() else (0, 0)
        largest = max(-int(least), int(most))
        if not largest <= 1 << 62:
            raise OverflowError("an int64 entry is outside +-2^62")
        digits = []
        while largest > HALF:
            carry = (values + HALF) >> WIDTH
            digits.append((values - (carry << WIDTH)).to(torch.float64))
            values, largest = carry, (largest + HALF) >> WIDTH
        return cls([*digits, values.to(torch.float64)])

    @classmethod
    def of_integers(cls, values: list[int], device: torch.device) -> DeviceLimbs:
        """From a list of Python integers of any size, shape [len(values)]."""
        digits: list[list[int]] = []
        while any(values) or not digits:
            carries = [(value + HALF) >> WIDTH for value in values]
            digits.append([v - (c << WIDTH) for v, c in zip(values, carries, strict=True)])
            values = carries
        return cls([torch.tensor(digit, dtype=torch.float64, device=device) for digit in digits])

    def __matmul__(self, other: DeviceLimbs) -> DeviceLimbs:
        """The exact product, batched as torch.matmul.

        Raises ``OverflowError`` for an inner dimension above 2^12.
        """
        inner = self.shape[-1]
        if inner > MAX_INNER:
            raise OverflowError("the inner dimension is above 2^12")
        # Digit products of one weight share a float64 sum while it stays within 2^52.
        together = MAX_INNER // max(inner, 1)
        if self.transposed is other and together > 1:
            return self._combined(other, torch.matmul, together // 2, symmetric=True)
        return self._combined(other, torch.matmul, together)

    def __mul__(self, other: DeviceLimbs) -> DeviceLimbs:
        """The exact entrywise product, with broadcasting."""
        return self._combined(other, torch.mul, MAX_INNER)

    def _combined(
        self, other: DeviceLimbs, product: Any, together: int, symmetric: bool = False
    ) -> DeviceLimbs:
        """``symmetric``: the product of digits s and t is the transpose of that of t and s."""
        if min(len(self.digits), len(other.digits)) > MAX_DIGITS:
            raise OverflowError("an operand has over 2^9 digits")
        sums = []
        for pairs in _pairs_by_weight(len(self.digits), len(other.digits)):
            parts = (
                _doubled(product(self.digits[s], other.digits[t]), symmetric and s < t)
                for s, t in pairs
                if s <= t or not symmetric
            )
            sums.append([reduce(torch.Tensor.add_, group) for group in _groups(parts, together)])
        return DeviceLimbs(_carried(sums))

    def __sub__(self, other: DeviceLimbs) -> DeviceLimbs:
        """The exact difference, with broadcasting."""
        length = max(len(self.digits), len(other.digits))
        a, b = self._padded(length), other._padded(length)
        return DeviceLimbs(_carried([[x - y] for x, y in zip(a, b, strict=True)]))

    def _padded(self, length: int) -> list[torch.Tensor]:
        zero = torch.zeros_like(self.digits[0])
        return self.digits + [zero] * (length - len(self.digits))

    @property
    def T(self) -> DeviceLimbs:
        """The transpose of the last two axes."""
        return DeviceLimbs([digit.mT for digit in self.digits], self)

    def diagonal(self) -> DeviceLimbs:
        """The diagonals of the last two axes."""
        return DeviceLimbs([digit.diagonal(dim1=-2, dim2=-1) for digit in self.digits])

    def times(self, factors: list[int]) -> DeviceLimbs:
        """Every matrix of a batch [b, m, n] times its own Python integer."""
        if all(factor == 1 for factor in factors):
            return self
        scalars = DeviceLimbs.of_integers(factors, self.digits[0].device)
        return self * DeviceLimbs([digit[:, None, None] for digit in scalars.digits])

    def absolute(self) -> DeviceLimbs:
        """Entrywise absolute values, by the sign of the highest non-zero digit.

        Below a non-zero digit of weight 2^(21 t) the rest is less than 2^(21 t) (2^-1 + 2^-21).
        """
        sign = torch.sign(self.digits[-1])
        for digit in self.digits[-2::-1]:
            sign = torch.where(sign == 0, torch.sign(digit), sign)
        return DeviceLimbs([digit * sign for digit in self.digits])

    def sums(self) -> NDArray[Any]:
        """Exact sums along the last axis, an array of Python integers."""
        if self.shape[-1] > MAX_INNER:
            raise OverflowError("the summed axis is longer than 2^12")
        return _joined([digit.sum(dim=-1) for digit in self.digits])

    def integers(self) -> NDArray[Any]:
        """The entries, an array of Python integers."""
        return _joined(self.digits)


def _doubled(part: torch.Tensor, doubled: bool) -> torch.Tensor:
    return part + part.mT if doubled else part


def _pairs_by_weight(rows: int, columns: int) -> Iterator[list[tuple[int, int]]]:
    for weight in range(rows + columns - 1):
        first = max(0, weight - columns + 1)
        yield [(s, weight - s) for s in range(first, min(rows, weight + 1))]


def _groups(parts: Iterator[torch.Tensor], size: int) -> Iterator[Iterator[torch.Tensor]]:
    """The parts in groups of at most ``size``, each to be used up before the next."""
    for first in parts:
        yield chain([first], islice(parts, size - 1))


def _carried(sums: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """Digits of sum_t (sum of sums[t]) 2^(21 t), top zero digits dropped (at least one stays).

    Every tensor holds integers of at most 2^52.
    """
    digits = []
    carry = torch.zeros((), dtype=torch.float64, device=sums[0][0].device)
    for parts in sums:
        digit, carries = carry, []
        for part in parts:
            digit, more = _split(part + digit)
            carries.append(more)
        digits.append(digit)
        carry = reduce(torch.add, carries)
    while _any(carry):
        digit, carry = _split(carry)
        digits.append(digit)
    while len(digits) > 1 and not _any(digits[-1]):
        digits.pop()
    return digits


def _any(values: torch.Tensor) -> bool:
    """Whether an entry is not zero; the extremes are found faster than by torch.any."""
    return bool(values.numel()) and any(map(bool, torch.aminmax(values)))


def _split(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    carry = torch.round(values * (1.0 / BASE))
    return torch.sub(values, carry, alpha=BASE), carry


def _joined(digits: list[torch.Tensor]) -> NDArray[Any]:
    parts = [digit.to("cpu").to(torch.int64).numpy() for digit in digits]
    joined = parts[-1].astype(object)
    for part in parts[-2::-1]:
        joined = joined * BASE + part
    return np.asarray(joined, dtype=object)


# --- is this device exact? ----------------------------------------------------------------------


@cache
def check_device(name: str) -> str:
    """The device's full name, once its arithmetic has given a known product exactly.

    Raises ``UserError`` for a device that is not there or not exact.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device {name!r} cannot be used ({str(error).splitlines()[0]}); accepted: cpu or cuda"
        ) from None
    _known_answer(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else name


def _known_answer(device: torch.device) -> None:
    """Digit products at the edge of what float64 holds, against int64 arithmetic of numpy."""
    rng = np.random.default_rng(20)
    for inner in (MAX_INNER, 129):
        left = rng.integers(-HALF, HALF, size=(2, 65, inner), endpoint=True)
        right = rng.integers(-HALF, HALF, size=(2, inner, 67), endpoint=True)
        # Digits extreme and of one sign, and an odd sum just below 2^52: every bit is needed.
        left[0, 0], right[0, :, 0] = HALF, -HALF
        left[0, 1], right[0, :, 1] = HALF - 1, HALF - 1
        left[0, 1, -1], right[0, -1, 1] = 1, 2
        expected = left @ right
        product = _on(left, device) @ _on(right, device)
        if not np.array_equal(product.integers(), expected.astype(object)):
            raise UserError(
                f"device {str(device)!r} does not multiply integers below 2^53 exactly in float64: "
                "use another device, or turn off its emulated or reduced-precision modes"
            )


def _on(values: NDArray[np.int64], device: torch.device) -> DeviceLimbs:
    return DeviceLimbs.of(torch.from_numpy(values).to(device))


# --- paranoia -----------------------------------------------------------------------------------


class Paranoia:
    """Verifies products modulo random primes (Freivalds) and keeps the chance of being fooled.

    If C = A B is false, some entry D of C - A B is not zero and |D| < 2^b. A prime drawn from the
    50,697,537 between 2^30 and 2^31 divides D with probability at most (b/30) / 50,697,537, and if
    it does not, C r = A B r holds modulo it with probability at most 2^-30 for a random vector r.
    Independent rounds multiply. ``false_accept``: an upper bound of the probability that any of
    the ``products`` verified so far is false.
    """

    def __init__(self) -> None:
        self.products = 0
        self.false_accept = Fraction(0)

    def multiply(self, a: DeviceLimbs, b: DeviceLimbs) -> DeviceLimbs:
        """The product a @ b, verified. Raises ``UserError`` if it is false."""
        product = a @ b
        left, right, found = _digits(a), _digits(b), _digits(product)
        for _ in range(ROUNDS):
            _verify(left, right, found, random_prime())
        bits = WIDTH * max(len(product.digits), len(a.digits) + len(b.digits)) + 14
        once = Fraction(bits, 30 * PRIMES) + Fraction(1, 1 << 30)
        count = int(np.prod(product.shape[:-2], dtype=np.int64))
        self.products += count
        self.false_accept += count * once**ROUNDS
        return product


def random_prime() -> int:
    """A prime between 2^30 and 2^31, uniform, from the system's random numbers."""
    while True:
        candidate = (1 << 30) + secrets.randbelow(1 << 30)
        if fmpz(candidate).is_prime():
            return candidate


def _digits(limbs: DeviceLimbs) -> NDArray[np.int64]:
    digits: NDArray[np.int64] = torch.stack(limbs.digits).to("cpu").to(torch.int64).numpy()
    return digits


def _verify(a: NDArray[np.int64], b: NDArray[np.int64], c: NDArray[np.int64], prime: int) -> None:
    seed = np.random.default_rng(secrets.randbits(128))
    r = seed.integers(0, prime, size=(c.shape[-1], 1))
    left = _apply(a, _apply(b, r, prime), prime)
    if not np.array_equal(left, _apply(c, r, prime)):
        raise UserError(
            f"a device product is false modulo {prime}: the device is not exact, use another one"
        )


def _apply(digits: NDArray[np.int64], r: NDArray[np.int64], prime: int) -> NDArray[np.int64]:
    """(matrix of these digits) r modulo prime, shape [..., m, 1]; every term stays below 2^62."""
    residues = np.zeros_like(digits[0])
    for digit in digits[::-1]:
        residues = (residues * ((1 << WIDTH) % prime) + digit) % prime
    products: NDArray[np.int64] = residues * np.swapaxes(r, -1, -2) % prime
    sums: NDArray[np.int64] = products.sum(axis=-1, keepdims=True) % prime
    return sums
