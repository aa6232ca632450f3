"""Clauses: what a lemma's check asserts of one example, and by how much it holds.

Numbers are rational (``Fraction``, ``int``) or balls of python-flint. Rational clauses are decided
exactly. A clause about balls fails only if it is false for every point of them; one that is neither
proven nor refuted is an equality, and then the balls must show it to within ``RESOLUTION``:
anything coarser raises ``Undecided``, which is a fault of the check and no verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from flint import arb

from oracles.balls import ball, endpoints
from oracles.rational import Matrix

Real: TypeAlias = Fraction | int | arb
RESOLUTION = Fraction(1, 1 << 100)


class Undecided(ArithmeticError):
    """Balls too wide to prove or to refute a clause."""


@dataclass(frozen=True)
class Clause:
    """One assertion about one example.

    margin: how far the assertion is from failing (negative: by how much it fails; for balls a
    proven lower bound of that); None where there is nothing to measure.
    """

    says: str
    holds: bool
    margin: Fraction | None = None


def that(says: str, condition: Any) -> Clause:
    """A statement that is true or false."""
    return Clause(says, bool(condition))


def at_most(says: str, a: Real, b: Real) -> Clause:
    """a <= b."""
    low, high = _difference(b, a)
    if low < 0 <= high and not (high - low <= RESOLUTION):
        raise Undecided(f"{says}: the margin is between {float(low)} and {float(high)}")
    return Clause(says, high >= 0, low)


def less(says: str, a: Real, b: Real) -> Clause:
    """a < b."""
    low, high = _difference(b, a)
    if low <= 0 < high:
        raise Undecided(f"{says}: the margin is between {float(low)} and {float(high)}")
    return Clause(says, low > 0, low)


def equal(says: str, a: Real | Matrix, b: Real | Matrix) -> Clause:
    """a = b, for numbers or for arrays of one shape; the margin is minus the largest difference."""
    left, right = np.asarray(a, dtype=object), np.asarray(b, dtype=object)
    if left.shape != right.shape:
        return Clause(says, False)
    gaps = [_difference(y, x) for x, y in zip(left.flat, right.flat, strict=True)]
    if not all(high < 0 or low > 0 or high - low <= RESOLUTION for low, high in gaps):
        raise Undecided(f"{says}: the balls are too wide")
    holds = all(low <= 0 <= high for low, high in gaps)
    return Clause(says, holds, -max((max(-low, high) for low, high in gaps), default=Fraction(0)))


def _difference(a: Real, b: Real) -> tuple[Fraction, Fraction]:
    """Bounds of a - b."""
    if isinstance(a, arb) or isinstance(b, arb):
        return endpoints(_ball(a) - _ball(b))
    exact = Fraction(a) - Fraction(b)
    return exact, exact


def _ball(x: Real) -> arb:
    return x if isinstance(x, arb) else ball(x)
