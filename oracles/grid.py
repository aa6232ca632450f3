"""The finite grid (MATH 9.3): size forces rank, at interaction rank r and zero residual.

Index set {0..l-1}^r, A_xy proportional to theta^{|x-y|^2} with theta rational: A is exactly
rational and a Kronecker power. With s = -log theta, C = 2 s P (x . y) P has rank r and kappa(C) =
s r (l-1)^2/2; a small off-diagonal mass makes the approximation rank full, l^r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np

from .claims import Claim, Inputs, arithmetic
from .kernel_steps import closed, full_rank_by_near_identity, rank_at_most_full
from .rational import Matrix, centred, identity, matrix, norm, rank, zeros
from .size import size_steps


@dataclass(frozen=True)
class Grid:
    """l points a side, r dimensions, 0 < theta < 1; n = l^r queries and keys."""

    side: int
    dimension: int
    theta: Fraction

    @property
    def points(self) -> Matrix:
        """The index set, n x r."""
        return matrix(product(range(self.side), repeat=self.dimension))

    @property
    def channel(self) -> Matrix:
        """The one-dimensional factor K, l x l, row-stochastic."""
        weights = matrix(
            [[self.theta ** ((x - y) ** 2) for y in range(self.side)] for x in range(self.side)]
        )
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def attention(self) -> Matrix:
        """A = K (x) ... (x) K, n x n."""
        return reduce(np.kron, [self.channel] * self.dimension)

    @property
    def interaction(self) -> Matrix:
        """C / s = 2 P (x . y) P, n x n."""
        return centred(2 * self.points @ self.points.T)

    @property
    def size(self) -> Fraction:
        """kappa(C) / s."""
        return Fraction(self.dimension * (self.side - 1) ** 2, 2)


INSTANCES = [
    (Grid(2, 2, Fraction(1, 16)), Fraction(1, 2)),
    (Grid(3, 3, Fraction(1, 32)), Fraction(1, 2)),
    (Grid(4, 2, Fraction(1, 16)), Fraction(1, 2)),
    (Grid(12, 1, Fraction(1, 8)), Fraction(1, 4)),
]


def claims() -> Iterator[Claim]:
    """Interaction rank, size and approximation rank of each instance."""
    for grid, epsilon in INSTANCES:
        case = f"l={grid.side},r={grid.dimension}"
        inputs = {"l": grid.side, "r": grid.dimension, "theta": grid.theta}
        yield interaction_rank(f"grid/interaction-rank/{case}", grid, inputs)
        yield size(f"grid/size/{case}", grid, inputs)
        yield full_rank(f"grid/rank/{case}", grid, {**inputs, "epsilon": epsilon}, epsilon)


def interaction_rank(id: str, grid: Grid, inputs: Inputs) -> Claim:
    """rank C = r; the cross ratios of the entries of A prove C = 2 s P (x . y) P."""
    A, x = grid.attention, grid.points
    ratios = A * A[0, 0] / np.outer(A[:, 0], A[0, :])
    powers = np.vectorize(lambda e: grid.theta ** int(e), otypes=[object])(-2 * (x @ x.T))
    r = rank(grid.interaction)
    return Claim(
        id,
        "MATH 9.3",
        "rank of the visible interaction C",
        {**inputs, "channel": grid.channel},
        r,
        (
            arithmetic("A_xy A_00 / (A_x0 A_0y) = theta^(-2 x.y)", np.array_equal(ratios, powers)),
            arithmetic("the exact rank of P (x.y) P is r", r == grid.dimension),
        ),
    )


def size(id: str, grid: Grid, inputs: Inputs) -> Claim:
    """kappa(C)/s = r (l-1)^2/2: the ball of the cube, and two opposite vertices."""
    x, n = grid.points, grid.side**grid.dimension
    ends = zeros(n)
    ends[[0, -1]] = Fraction(1, 2)
    D = zeros(n, n)
    D[np.ix_([0, -1], [0, -1])] = matrix([[1, -1], [-1, 1]]) / 4
    steps = size_steps(grid.interaction, grid.size, (2 * x, x), (ends, ends), (ends, ends, D))
    return Claim(id, "MATH 9.3, 3.6", "kappa(C) / s, s = -log theta", inputs, grid.size, steps)


def full_rank(id: str, grid: Grid, inputs: Inputs, epsilon: Fraction) -> Claim:
    """r_eps(A) = n: ||A - I|| = 2 delta < 1 - eps, delta the largest off-diagonal row mass."""
    A = grid.attention
    delta = max(1 - a for a in np.diag(A))
    return closed(
        id,
        "MATH 9.3",
        "approximation rank",
        inputs,
        full_rank_by_near_identity(A, epsilon),
        rank_at_most_full(A, epsilon),
        arithmetic(
            "||A - I|| = 2 delta < 1 - epsilon",
            norm(A - identity(len(A))) == 2 * delta < 1 - epsilon,
            delta=delta,
        ),
    )
