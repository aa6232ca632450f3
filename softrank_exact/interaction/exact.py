"""Exact matrices and enclosures of real numbers: the arithmetic of this package.

A matrix is integers over one denominator; a real number that is not rational is a pair of
fractions around it. Ball arithmetic is used for logarithms and exponentials only, at a stated
precision, and its balls become fractions outward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import isqrt, lcm
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, ctx, fmpq, fmpz_mat

from ..errors import UserError
from ..scalars import float_above, float_below

Objects = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]

PRECISION = 160
"""Bits of ball arithmetic for logarithms and hyperbolic tangents."""


@dataclass(frozen=True)
class ExactMatrix:
    """The rational matrix numerators / den: numerators a 2-d object array of Python integers."""

    numerators: Objects
    den: int

    @staticmethod
    def of(entries: Any, name: str = "matrix") -> ExactMatrix:
        """From a float array (each float is the dyadic rational it stores), an integer array, or
        rows of numbers (``Fraction``, ``int``, ``float``).

        ``UserError`` unless it is a non-empty 2-d array of finite real numbers.
        """
        if isinstance(entries, ExactMatrix):
            return entries
        array = entries if isinstance(entries, np.ndarray) else _rows(entries, name)
        if array.ndim != 2 or array.size == 0:
            raise UserError(f"{name} has shape {array.shape}; expected two axes, none of length 0")
        if array.dtype.kind == "f":
            return _from_floats(array.astype(np.float64), name)
        if array.dtype.kind in "iu":
            return ExactMatrix(array.astype(object), 1)
        if array.dtype == object:
            return _from_numbers(array, name)
        raise UserError(f"{name} has dtype {array.dtype}; expected real numbers")

    @staticmethod
    def rounded(values: Floats, bits: int) -> ExactMatrix:
        """The multiples of 2^-bits nearest to the floats."""
        whole = integers(np.ldexp(values, bits))
        return ExactMatrix(whole << max(0, -bits), 1 << max(0, bits))

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.numerators.shape
        return int(m), int(n)

    @property
    def T(self) -> ExactMatrix:
        return ExactMatrix(self.numerators.T, self.den)

    def __add__(self, other: ExactMatrix) -> ExactMatrix:
        """The sum; axes of length one are repeated."""
        den = lcm(self.den, other.den)
        return ExactMatrix(
            self.numerators * (den // self.den) + other.numerators * (den // other.den), den
        )

    def __neg__(self) -> ExactMatrix:
        return ExactMatrix(-self.numerators, self.den)

    def __sub__(self, other: ExactMatrix) -> ExactMatrix:
        return self + (-other)

    def __matmul__(self, other: ExactMatrix) -> ExactMatrix:
        return ExactMatrix(product(self.numerators, other.numerators), self.den * other.den)

    def times(self, other: ExactMatrix) -> ExactMatrix:
        """The entrywise product; axes of length one are repeated."""
        return ExactMatrix(self.numerators * other.numerators, self.den * other.den)

    def scaled(self, factor: Fraction) -> ExactMatrix:
        return ExactMatrix(self.numerators * factor.numerator, self.den * factor.denominator)

    def columns(self, selection: slice | npt.NDArray[np.intp]) -> ExactMatrix:
        return ExactMatrix(self.numerators[:, selection], self.den)

    def centred_rows(self) -> ExactMatrix:
        """Each row minus the mean of the rows: P_m M (MATH 3.2)."""
        m = self.shape[0]
        return ExactMatrix(m * self.numerators - self.numerators.sum(axis=0), m * self.den)

    def doubly_centred(self) -> ExactMatrix:
        """P_m M P_n (MATH 3.2)."""
        return self.centred_rows().T.centred_rows().T

    def equals(self, other: ExactMatrix) -> bool:
        """Whether both are the same real matrix."""
        return self.shape == other.shape and not (self - other).numerators.any()

    def largest(self) -> Fraction:
        """The largest absolute value of an entry."""
        return Fraction(int(np.abs(self.numerators).max()), self.den)

    def floats(self) -> Floats:
        """The nearest float64 of each entry."""
        return np.asarray(self.numerators / self.den, dtype=np.float64)


def _rows(entries: Sequence[Sequence[Any]], name: str) -> Objects:
    rows = [list(row) for row in entries]
    if len({len(row) for row in rows}) > 1:
        raise UserError(f"{name} has rows of different lengths; expected a rectangular matrix")
    array = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for i, row in enumerate(rows):
        array[i] = row
    return array


def _from_floats(array: Floats, name: str) -> ExactMatrix:
    if not np.isfinite(array).all():
        raise UserError(f"{name} has an entry that is not finite; expected finite numbers")
    mantissa, exponent = np.frexp(array)
    shift = np.where(array == 0, 0, exponent - 53)
    low = min(int(shift.min()), 0)
    powers = np.array([1 << (int(s) - low) for s in shift.ravel()], dtype=object)
    whole = np.ldexp(mantissa, 53).astype(np.int64).astype(object) * powers.reshape(array.shape)
    return ExactMatrix(whole, 1 << -low)


def _from_numbers(array: Objects, name: str) -> ExactMatrix:
    try:
        fractions = [Fraction(x) for x in array.ravel()]
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name} has an entry that is not a finite number: {error}") from None
    den = reduce(lcm, (f.denominator for f in fractions), 1)
    whole = [f.numerator * (den // f.denominator) for f in fractions]
    return ExactMatrix(np.array(whole, dtype=object).reshape(array.shape), den)


def integers(values: Floats) -> Objects:
    """The nearest integers, as Python integers of any size."""
    return np.array([int(x) for x in np.rint(values).ravel()], dtype=object).reshape(values.shape)


def product(left: Objects, right: Objects) -> Objects:
    """The product of integer matrices."""
    return from_flint(to_flint(left) * to_flint(right))


def to_flint(matrix: Objects) -> Any:
    """An fmpz_mat of the same integers."""
    m, n = matrix.shape
    return fmpz_mat(m, n, matrix.ravel().tolist())


def from_flint(matrix: Any) -> Objects:
    """The Python integers of an fmpz_mat."""
    entries = np.array([int(x) for x in matrix.entries()], dtype=object)
    return entries.reshape(matrix.nrows(), matrix.ncols())


def from_rational(matrix: Any) -> ExactMatrix:
    """The exact matrix of an fmpq_mat."""
    numerators, den = matrix.numer_denom()
    return ExactMatrix(from_flint(numerators), int(den))


@dataclass(frozen=True)
class Enclosure:
    """A real number between two fractions, lower <= x <= upper."""

    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        if not (self.lower <= self.upper):
            raise ArithmeticError("two bounds of one number contradict each other")

    @staticmethod
    def exactly(value: Fraction | int) -> Enclosure:
        return Enclosure(Fraction(value), Fraction(value))

    @property
    def exact(self) -> bool:
        return self.lower == self.upper

    def __mul__(self, other: Enclosure) -> Enclosure:
        """The product of two numbers that are not negative."""
        return Enclosure(self.lower * other.lower, self.upper * other.upper)

    def floats(self) -> tuple[float, float]:
        """Two float64 around the number."""
        return float_below(self.lower) + 0.0, float_above(self.upper) + 0.0

    def __str__(self) -> str:
        low, high = self.floats()
        return f"{low:.6g}" if self.exact else f"[{low:.6g}, {high:.6g}]"


def sqrt_enclosure(value: Fraction) -> Enclosure:
    """The square root of a fraction >= 0: exact for the square of a fraction, else to 96 bits."""
    p, q = value.numerator, value.denominator
    if isqrt(p) ** 2 == p and isqrt(q) ** 2 == q:
        return Enclosure.exactly(Fraction(isqrt(p), isqrt(q)))
    shift = max(0, 96 + (q.bit_length() - p.bit_length()) // 2 + 1)
    root = isqrt((p << (2 * shift)) // q)
    return Enclosure(Fraction(root, 1 << shift), Fraction(root + 1, 1 << shift))


def ball(value: Fraction) -> Any:
    """A ball around a fraction, at the precision in force."""
    return arb(fmpq(value.numerator, value.denominator))


def ball_enclosure(x: Any) -> Enclosure:
    """The end points of a ball, outward."""
    return Enclosure(_fraction(x.lower()), _fraction(x.upper()))


def _fraction(x: Any) -> Fraction:
    mantissa, exponent = (int(part) for part in x.man_exp())
    return Fraction(mantissa) * Fraction(2) ** exponent


def tanh_quarter_twice(q: Enclosure) -> Enclosure:
    """2 tanh(q/4), the map from oscillation to l1 distance (MATH 3.1), for q >= 0."""
    with ctx.workprec(PRECISION):
        lower = ball_enclosure(2 * (ball(q.lower) / 4).tanh()).lower
        upper = ball_enclosure(2 * (ball(q.upper) / 4).tanh()).upper
    return Enclosure(max(lower, Fraction(0)), min(upper, Fraction(2)))
