"""The projective inequality (MATH 3.1) and where it is sharp.

||softmax(x) - softmax(y)||_1 <= 2 tanh(osc(x - y)/4), with equality for n = 2 and x = -y. In
rational terms: with R = exp(osc/2), 2 tanh(osc/4) = 2 (R - 1)/(R + 1), and R^2 is the largest
ratio of two likelihood ratios p_j/q_j.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from .claims import Claim, Step, arithmetic
from .rational import Matrix, matrix

RATIOS = [Fraction(r) for r in ("101/100", "3/2", "2", "7", "1000")]


def l1_distance(p: Matrix, q: Matrix) -> Fraction:
    """||p - q||_1."""
    return Fraction(abs(p - q).sum())


def ratio_spread(p: Matrix, q: Matrix) -> Fraction:
    """exp(osc(log p - log q)) for positive p, q: R^2."""
    ratios = [a / b for a, b in zip(p, q, strict=True)]
    return max(ratios) / min(ratios)


def bounded(p: Matrix, q: Matrix) -> bool:
    """||p - q||_1 = d <= 2 (R - 1)/(R + 1), decided by squares: R >= (2 + d)/(2 - d)."""
    d = l1_distance(p, q)
    return d < 2 and ratio_spread(p, q) >= ((2 + d) / (2 - d)) ** 2


def claims() -> Iterator[Claim]:
    """Sharpness for several R, and a strict instance in three states."""
    for number, R in enumerate(RATIOS, start=1):
        yield sharp(number, R)
    yield strict()


def sharp(number: int, R: Fraction) -> Claim:
    """p = (R, 1)/(R + 1) and its mirror: x = (log R)/2 (1, -1) = -y, osc(x - y) = 2 log R."""
    p = matrix([R, 1]) / (R + 1)
    q = p[::-1]
    value = 2 * (R - 1) / (R + 1)
    return Claim(
        f"projective/sharp-{number}",
        "MATH 3.1",
        "||softmax(x) - softmax(y)||_1 for x = -y, osc(x - y) = 2 log R",
        {"R": R, "p": p, "q": q},
        l1_distance(p, q),
        (
            arithmetic("osc(x - y) = 2 log R", ratio_spread(p, q) == R**2),
            arithmetic("it equals 2 tanh(osc / 4) = 2 (R - 1)/(R + 1)", l1_distance(p, q) == value),
        ),
    )


def strict() -> Claim:
    """Three states: the inequality holds with room."""
    p, q = matrix(["1/2", "1/3", "1/6"]), matrix(["1/6", "1/3", "1/2"])
    steps: tuple[Step, ...] = (
        arithmetic("exp(osc) = 9, so the bound is 2 (3 - 1)/(3 + 1) = 1", ratio_spread(p, q) == 9),
        arithmetic("the distance is below it", bounded(p, q) and l1_distance(p, q) < 1),
    )
    return Claim(
        "projective/strict",
        "MATH 3.1",
        "||p - q||_1 where the bound is 1",
        {"p": p, "q": q},
        l1_distance(p, q),
        steps,
    )
