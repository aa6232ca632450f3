"""The slack shift is needed (MATH 2.1, 2.4): moving a matrix by exactly alpha can drop its rank.

K_t has rank 2 at eps iff eps < t. With t = eps + alpha, K_eps lies at distance exactly alpha from
K_t and has rank 1. So a lower certificate for K_t may not be used for matrices within alpha of
it; the kernel, which charges alpha, refuses it with margin exactly zero, and accepts any smaller
alpha.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from softrank_exact.kernel.check import check

from .claims import Claim, Step, arithmetic
from .kernel_steps import (
    bernstein_witness,
    closed,
    nonzero_rank,
    question,
    rank_at_least,
    rank_at_most,
    rank_at_most_full,
)
from .rational import inverse, norm, ones
from .two_bit import channel

EPSILON, ALPHA = Fraction(1, 2), Fraction(1, 10)


def claims() -> Iterator[Claim]:
    """Ranks before and after the move, and what the kernel says of the unshifted certificate."""
    before, after = channel(EPSILON + ALPHA), channel(EPSILON)
    yield closed(
        "slack/rank-before",
        "MATH 2.4, 5.5",
        "approximation rank of K_t, t = epsilon + alpha",
        {"epsilon": EPSILON, "matrix": before},
        rank_at_least(before, EPSILON, inverse(before)),
        rank_at_most_full(before, EPSILON),
    )
    yield closed(
        "slack/rank-after",
        "MATH 2.4, 5.5",
        "approximation rank of K_epsilon, at distance alpha from K_t",
        {"epsilon": EPSILON, "alpha": ALPHA, "matrix": after},
        nonzero_rank(after, EPSILON),
        rank_at_most(after, EPSILON, ones(2, 1), ones(1, 2) / 2),
        arithmetic("the distance is exactly alpha", norm(before - after) == ALPHA),
    )
    yield charged()


def charged() -> Claim:
    """The margin of K_t's certificate when alpha is charged: zero, hence refused."""
    A = channel(EPSILON + ALPHA)
    witness = bernstein_witness(A, range(2), inverse(A))
    finding = check(question(A, EPSILON, ALPHA), 2, witness)
    less = ALPHA * Fraction(999, 1000)
    accepted = check(question(A, EPSILON, less), 2, witness)
    return Claim(
        "slack/margin-when-charged",
        "MATH 2.1, 2.4",
        "margin of the certificate r >= 2 for all matrices within alpha of K_t",
        {"epsilon": EPSILON, "alpha": ALPHA, "matrix": A},
        finding.margin,
        (
            Step(witness.kind, "refused: the margin is not positive", finding.code == "margin"),
            Step(witness.kind, f"accepted at slack {less}", accepted.code == "ok"),
        ),
    )
