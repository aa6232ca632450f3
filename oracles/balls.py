"""Real numbers that are not rational: balls of python-flint at a stated precision.

A comparison of balls is true only if it holds for every point of them, so "undecided" reads as
false. Published enclosures are rounded outward to a decimal grid, far coarser than the balls:
they do not depend on how a version of the library rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from math import ceil, floor
from typing import ParamSpec, TypeVar

from flint import arb, ctx, fmpq

from .claims import Enclosure

PRECISION = 256
GRID = 10**30

P = ParamSpec("P")
R = TypeVar("R")


def at_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function at PRECISION bits and give the library its own precision back."""

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with ctx.workprec(PRECISION):
            return function(*args, **kwargs)

    return inner


def ball(x: Fraction | int) -> arb:
    """The ball of a rational number."""
    x = Fraction(x)
    return arb(fmpq(x.numerator, x.denominator))


def endpoints(x: arb) -> tuple[Fraction, Fraction]:
    """Rational bounds of a finite ball. Raises ``ValueError`` for an infinite one."""
    if not x.is_finite():
        raise ValueError("the ball is not finite")
    return _exactly(x.lower()), _exactly(x.upper())


def enclosure(x: arb) -> Enclosure:
    """The ball, rounded outward to multiples of 1 / GRID."""
    lower, upper = endpoints(x)
    return Enclosure(Fraction(floor(lower * GRID), GRID), Fraction(ceil(upper * GRID), GRID))


def _exactly(x: arb) -> Fraction:
    mantissa, exponent = x.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
