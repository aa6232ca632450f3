"""Small exact regimes: matrices without a closed form whose ranks ``exact_rank`` decides.

Every tolerance is one where nothing is left open. The thresholds themselves are included wherever
they are rational: d_0 = ||A|| and d_{p-1} (``corank_one``).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .claims import DISTANCE, RANK, Claim, arithmetic
from .exact_rank import Bracket, corank_one, exact_rank
from .rational import Matrix, matrix

MATRICES: dict[str, list[list[Any]]] = {
    "two": [[2, 1], [1, 3]],
    "column": [[1], [2], [-3]],
    "wide": [[1, 2, 3, 4], [4, 3, 2, 2], [0, 1, 0, 1]],
    "tall": [[1, 2, 0], [0, 1, 1], [3, 0, 1], [1, 1, 1]],
    "cyclic": [[0, 1, 2], [2, 0, 1], [1, 2, 0]],
    "signed": [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]],
    "repeated": [[3, 1, 0, 0], [3, 1, 0, 0], [0, 0, 1, 3], [0, 0, 2, 2]],
    "causal": [
        ["1", 0, 0, 0],
        ["1/2", "1/2", 0, 0],
        ["1/4", "1/4", "1/2", 0],
        ["1/8"] * 2 + ["1/4", "1/2"],
    ],
    "singular": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
}
"""Names and rows."""

SHARES = [
    Fraction(0),
    Fraction(1, 20),
    Fraction(1, 5),
    Fraction(2, 5),
    Fraction(3, 5),
    Fraction(1),
]


def claims() -> Iterator[Claim]:
    """The ranks of every matrix over its tolerances, and its distance to rank below min(m, n)."""
    for name, rows in MATRICES.items():
        A = matrix(rows)
        yield threshold(name, A)
        yield ranks(name, A)


def threshold(name: str, A: Matrix) -> Claim:
    """d_{p-1}(A), p = min(m, n)."""
    nearest = corank_one(A)
    p = min(A.shape)
    below = exact_rank(A, nearest.distance)
    steps = [
        arithmetic(
            f"a change of that norm leaves rank below {p}",
            below.upper < p,
            change=nearest.change,
        )
    ]
    if nearest.distance > 0:
        just_below = exact_rank(A, nearest.distance * Fraction(999999, 1000000))
        steps.append(arithmetic(f"a millionth below it the rank is {p}", just_below.rank == p))
    return Claim(
        f"small/{name}/corank-one-distance",
        "MATH 5.5",
        "distance to the matrices of rank below min(m, n)",
        {"matrix": A},
        nearest.distance,
        tuple(steps),
        DISTANCE,
    )


def ranks(name: str, A: Matrix) -> Claim:
    """r_eps(A) at SHARES of ||A|| and the corank-one distance."""
    largest = max(abs(row).sum() for row in A)
    tolerances = sorted({f * largest for f in SHARES} | {corank_one(A).distance})
    brackets: list[Bracket] = [exact_rank(A, epsilon) for epsilon in tolerances]
    steps = [s for b in brackets for s in (b.lower_step, b.upper_step) if s is not None]
    steps.append(arithmetic("every bracket is closed", all(b.rank is not None for b in brackets)))
    return Claim(
        f"small/{name}/ranks",
        "MATH 1, 1.2, 5.5",
        "approximation rank at each tolerance",
        {"matrix": A, "epsilons": tolerances},
        [b.rank for b in brackets],
        tuple(steps),
        RANK,
    )
