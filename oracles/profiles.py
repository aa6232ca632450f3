"""What the interaction profile does not say (MATH 9.5, 9.6, 3.5).

* 9.5: pairing the residual tau of one retained T with the size kappa of another is unsound.
* 9.6: C alone does not determine the rank: base weights matter.
* 3.5: rectangular contrasts bound the residual q from below, and can miss it.

Logits are multiples of log 7, so C / log 7 is rational and exp(C) is a cross ratio.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

from .claims import DISTANCE, Claim, arithmetic
from .exact_rank import corank_one
from .kernel_steps import closed, nonzero_rank, rank_at_least, rank_at_most, rank_at_most_full
from .rational import Matrix, centred, identity, inverse, matrix, norm, ones, zeros
from .size import residual_steps, size_steps
from .two_bit import channel

T = Fraction(3, 4)
HALF = Fraction(1, 2)
SIGNS = matrix([[1, -1], [-1, 1]])
"""C / (log(7)/2) for K_{3/4}: logits (log 7) I, doubly centred."""


def claims() -> Iterator[Claim]:
    """All claims of MATH 9.5, 9.6 and 3.5."""
    yield from shortcut()
    yield from same_interaction()
    yield from base_weight_threshold()
    yield three_cycle()


def shortcut() -> Iterator[Claim]:
    """A = K_{3/4} at eps = 1/2: rank 2, though tau(C) = 0 and kappa(0) = 0."""
    A = channel(T)
    inputs = {"epsilon": HALF, "matrix": A}
    yield closed(
        "profiles/shortcut-rank",
        "MATH 9.5, 5.5",
        "approximation rank of K_{3/4}; pairing tau(C) = 0 with kappa(0) = 0 would claim 1",
        inputs,
        rank_at_least(A, HALF, inverse(A)),
        rank_at_most_full(A, HALF),
    )
    C = centred(identity(2))
    half = ones(2) / 2
    yield Claim(
        "profiles/size-of-C",
        "MATH 9.5, 3.6",
        "kappa(C) / log 7: not zero, so the point (tau, kappa) = (0, 0) belongs to no single T",
        inputs,
        HALF,
        (
            arithmetic("exp C: the cross ratio of A is 7^2", cross_ratio(A) == 7**2),
            *size_steps(
                C, HALF, (SIGNS[:, :1], SIGNS[:, :1] / 2), (half, half), (half, half, SIGNS / 4)
            ),
        ),
    )
    yield Claim(
        "profiles/residual-of-zero",
        "MATH 9.5, 3.4",
        "q(C - 0) / log 7; tau(0) = 2 tanh(q/4) = 2 (sqrt(7) - 1)/(sqrt(7) + 1) exceeds epsilon",
        inputs,
        Fraction(1),
        (
            *residual_steps(C, Fraction(1), (zeros(2), zeros(2)), SIGNS / 2),
            arithmetic(
                "2 (x - 1)/(x + 1) > 1/2 iff x > 5/3, and 7 > (5/3)^2", Fraction(5, 3) ** 2 < 7
            ),
        ),
    )


def weighted(w: Fraction) -> Matrix:
    """Rows proportional to (7w, 1) and (w, 7): base weights (w, 1), the interaction of K_{3/4}."""
    rows = matrix([[7 * w, 1], [w, 7]])
    return rows / rows.sum(axis=1, keepdims=True)


def cross_ratio(A: Matrix) -> Fraction:
    """A_00 A_11 / (A_01 A_10) of a positive 2 x 2 matrix: it determines C."""
    return A[0, 0] * A[1, 1] / (A[0, 1] * A[1, 0])


def same_interaction() -> Iterator[Claim]:
    """Equal C, ranks 2 and 1 at eps = 1/2."""
    w = Fraction(7)
    A, B = channel(T), weighted(w)
    inputs = {"w": w, "epsilon": HALF, "matrix": B}
    distance = 1 / norm(inverse(B))
    yield closed(
        "profiles/base-weights-rank",
        "MATH 9.6",
        "approximation rank of the rows (7w, 1), (w, 7); their C is that of K_{3/4} (rank 2)",
        inputs,
        nonzero_rank(B, HALF),
        rank_at_most(B, HALF, *corank_one(B).factors(B)),
        arithmetic("same cross ratio, hence same C", cross_ratio(B) == cross_ratio(A)),
    )
    X, Y = corank_one(B).factors(B)
    yield Claim(
        "profiles/base-weights-distance",
        "MATH 9.6, 5.5",
        "d_1 = 1/||A^-1|| of the weighted rows",
        inputs,
        distance,
        (
            arithmetic("1/||A^-1|| = 12/37", distance == Fraction(12, 37), inverse=inverse(B)),
            arithmetic("a rank-one matrix attains it", norm(B - X @ Y) == distance, X=X, Y=Y),
        ),
        DISTANCE,
    )


def base_weight_threshold() -> Iterator[Claim]:
    """At eps = 1/2 the rank is one exactly for w >= 23/7 (and w <= 7/23)."""
    for name, w in [("on", Fraction(23, 7)), ("below", Fraction(23, 7) - Fraction(1, 1000))]:
        A = weighted(w)
        inputs = {"w": w, "epsilon": HALF, "matrix": A}
        if 1 / norm(inverse(A)) <= HALF:
            lower, upper = nonzero_rank(A, HALF), rank_at_most(A, HALF, *corank_one(A).factors(A))
        else:
            lower, upper = rank_at_least(A, HALF, inverse(A)), rank_at_most_full(A, HALF)
        yield closed(
            f"profiles/base-weight-{name}-threshold",
            "MATH 9.6",
            "approximation rank of the weighted rows around w = 23/7, where d_1 = 1/2",
            inputs,
            lower,
            upper,
            arithmetic(
                "d_1 = 1/2 iff w = 23/7", (1 / norm(inverse(A)) == HALF) == (w == Fraction(23, 7))
            ),
        )


def three_cycle() -> Claim:
    """Contrasts give 3/2 where q = 2."""
    F = matrix([[1, -1, 0], [0, 1, -1], [-1, 0, 1]])
    pairs = list(combinations(range(3), 2))
    contrast = max(abs(F[i, j] - F[i, l] - F[k, j] + F[k, l]) for i, k in pairs for j, l in pairs)
    q = Fraction(2)
    D = matrix([[1, -1, 0], [0, 1, -1], [-1, 0, 1]]) / 3
    return Claim(
        "profiles/three-cycle",
        "MATH 3.5, 3.4",
        "largest rectangular contrast / 2, and the residual q",
        {"matrix": F},
        {"contrast": Fraction(contrast, 2), "q": q},
        residual_steps(F, q, (zeros(3), zeros(3)), D),
    )
