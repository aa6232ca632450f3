"""Native sharpness, and full algebraic dimension with effective dimension r (MATH 9.8, 9.7).

9.8: queries (x, 1), keys (y, -|y|^2/2) on a lattice of R^r, logits beta (x.y - |y|^2/2): rows are
discrete Gaussians around x, the last coordinate is a base weight, C = beta P (x.y) P has rank r,
and the attention is near to the identity, hence of full rank.

9.7: appending n-1-r tiny independent coordinates makes C of full rank n-1, moves A by at most
alpha, and leaves both the rank and the SVD-effective dimension (MATH 3.10) where they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from softrank_exact import Target

from .claims import Claim, Inputs, Step, arithmetic
from .kernel_steps import closed, full_rank_of_target, rank_at_least, rank_at_most
from .rational import (
    Matrix,
    centred,
    matrix,
    norm,
    null_space,
    ones,
    rank,
    square_norm,
)
from .two_bit import approximant, attention, character, reconstruction

EPSILON = Fraction(1, 4)
TINY = Fraction(1, 2**40)


@dataclass(frozen=True)
class Lattice:
    """Centred lattice with ``sides[i]`` points in dimension i, spacing 1/4, beta = 128."""

    sides: tuple[int, ...]
    beta: int = 128

    @property
    def points(self) -> Matrix:
        """n x r, dyadic; every column sums to zero, columns are orthogonal."""
        axes = [[Fraction(2 * k - (side - 1), 8) for k in range(side)] for side in self.sides]
        return matrix(product(*axes))

    @property
    def queries(self) -> Matrix:
        """(x, 1), n x (r+1)."""
        x = self.points
        return np.hstack([x, ones(len(x), 1)])

    @property
    def keys(self) -> Matrix:
        """(y, -|y|^2/2), n x (r+1)."""
        y = self.points
        return np.hstack([y, matrix([[-square_norm(row) / 2] for row in y])])

    @property
    def appended(self) -> Matrix:
        """Z, n x (n-1-r): integer columns, independent, orthogonal to 1 and to the coordinates."""
        x = self.points
        return null_space(np.hstack([ones(len(x), 1), x]).T)


LATTICES = [Lattice((9,)), Lattice((5, 4))]


def claims() -> Iterator[Claim]:
    """All claims of MATH 9.7 and 9.8."""
    for lattice in LATTICES:
        case = "x".join(map(str, lattice.sides))
        yield from native(case, lattice)
        yield from extended(case, lattice)
    yield two_bit_with_margin()


def _inputs(lattice: Lattice, Q: Matrix, K: Matrix) -> Inputs:
    return {"beta": lattice.beta, "epsilon": EPSILON, "queries": Q, "keys": K}


def native(case: str, lattice: Lattice) -> Iterator[Claim]:
    """9.8: rank C = r in R^{r+1}, and full approximation rank."""
    Q, K, x = lattice.queries, lattice.keys, lattice.points
    C = centred(Q @ K.T)
    yield Claim(
        f"effective/native-visible-dimension-{case}",
        "MATH 9.8, 3.3",
        "rank of the visible interaction",
        _inputs(lattice, Q, K),
        rank(C),
        (
            arithmetic(
                "C / beta = P (x.y) P: the last coordinate is a base weight",
                np.array_equal(C, centred(x @ x.T)),
            ),
            arithmetic("its exact rank is r", rank(C) == len(lattice.sides)),
        ),
    )
    yield _full_rank(f"effective/native-rank-{case}", "MATH 9.8", lattice, Q, K)


def extended(case: str, lattice: Lattice) -> Iterator[Claim]:
    """9.7: C of full rank, the same rank and effective dimension r."""
    Z, r = lattice.appended, len(lattice.sides)
    Q, K = np.hstack([lattice.queries, Z]), np.hstack([lattice.keys, TINY * Z])
    n, C = len(Q), centred(Q @ K.T)
    change = lattice.beta * TINY * (Z @ Z.T)
    alpha = max(max(row) - min(row) for row in change) / 2
    yield Claim(
        f"effective/full-algebraic-dimension-{case}",
        "MATH 9.7, 3.3",
        "rank of the visible interaction, full, after a perturbation of A of norm at most alpha",
        _inputs(lattice, Q, K),
        {"rank": rank(C), "alpha": alpha},
        (
            arithmetic("exact rank of C is n - 1", rank(C) == n - 1),
            arithmetic(
                "alpha = max_i osc_j(change of logits) / 2 >= 2 tanh(osc / 4)",
                np.array_equal(lattice.beta * (Q @ K.T - lattice.queries @ lattice.keys.T), change),
            ),
        ),
    )
    yield _full_rank(f"effective/full-algebraic-rank-{case}", "MATH 9.7", lattice, Q, K)
    visible = np.delete(K, r, axis=1)
    yield Claim(
        f"effective/svd-effective-dimension-{case}",
        "MATH 9.7, 3.10",
        "r_int^SVD(epsilon / 3)",
        _inputs(lattice, Q, K),
        r,
        tuple(_effective_steps(lattice, np.delete(Q, r, axis=1), visible, r)),
    )


def _full_rank(id: str, source: str, lattice: Lattice, Q: Matrix, K: Matrix) -> Claim:
    """r_eps = n for the exact softmax of beta Q K^T, by the near identity in the kernel."""
    q, k = Q.astype(np.float64), K.astype(np.float64)
    target = Target.qk(q, k, EPSILON, scale=lattice.beta)
    stored = np.array_equal(matrix(q), Q) and np.array_equal(matrix(k), K)
    return closed(
        id,
        source,
        "approximation rank",
        _inputs(lattice, Q, K),
        *full_rank_of_target(target, EPSILON),
        arithmetic("queries and keys are binary fractions that float64 stores exactly", stored),
    )


def _effective_steps(lattice: Lattice, Q: Matrix, K: Matrix, r: int) -> Iterator[Step]:
    """The top-r singular subspace is the coordinate one, it suffices, and no smaller one does.

    Q, K: without the constant query coordinate, which no query difference sees. Rows of Q are then
    centred and span everything, so U is the whole space and visible keys are K.
    """
    gram = K.T @ K
    top, rest = gram[:r, :r], gram[r:, r:]
    values = list(np.diag(top))
    yield arithmetic("query differences span all visible coordinates", rank(Q) == Q.shape[1])
    yield arithmetic(
        "coordinate columns are orthogonal, also to the appended ones, and their singular "
        "values are distinct and above all others (strict gap)",
        not K.sum(axis=0).any()
        and not gram[:r, r:].any()
        and np.array_equal(top, np.diag(values))
        and values == sorted(set(values), reverse=True)
        and min(values) > np.trace(rest),
        squared_singular_values=values,
        sum_of_squares_of_the_others=np.trace(rest),
    )
    eta = lattice.beta**2 * max(map(square_norm, Q)) * _square_width(K[:, r:])
    yield arithmetic(
        "tau_W <= eta / 2 <= epsilon / 3 for the top r, eta^2 bounded by the ball around 0",
        eta <= (2 * EPSILON / 3) ** 2,
        eta_squared_at_most=eta,
    )
    for s in range(r):
        eta = lattice.beta**2 * _square_width(Q) / 4 * _square_width(K[:, s:])
        yield arithmetic(
            f"tau_W > 3/2 for the top {s}: eta >= 4, and tanh 1 > 3/4 as e^2 > 7",
            eta >= 16,
            eta_squared_at_least=eta,
        )


def _square_width(points: Matrix) -> Fraction:
    """The largest squared distance between two rows."""
    squares = (points * points).sum(axis=1)
    return (squares[:, None] + squares[None, :] - 2 * points @ points.T).max()


def two_bit_with_margin() -> Claim:
    """9.7 at a rank that is not full: A(3/4, 1/2) at eps = 5/8 stays at 2 when C becomes full."""
    t, s, epsilon, alpha = Fraction(3, 4), Fraction(1, 2), Fraction(5, 8), Fraction(1, 100)
    A0, chi = attention(t, s), character((0, 1))
    A = A0 + alpha / 4 * np.outer(chi, chi)
    a, b, c, d = A[0]
    return closed(
        "effective/two-bit-with-margin",
        "MATH 9.7, 2.1",
        "approximation rank of A(t, s) + (alpha/4) chi chi^T: rank C rises from 2 to 3",
        {"matrix": A, "epsilon": epsilon, "alpha": alpha},
        rank_at_least(A0, epsilon, reconstruction(t, s, 2), alpha=alpha),
        rank_at_most(A0, epsilon, *approximant(t, s, 2), alpha=alpha),
        arithmetic("||A - A0|| = alpha", norm(A - A0) == alpha),
        arithmetic(
            "log A(x, y) depends on x xor y only; its three character sums are logs of ratios != 1",
            all(A[x, y] == A[0, x ^ y] for x, y in product(range(4), repeat=2))
            and a * b != c * d
            and a * c != b * d
            and a * d != b * c,
        ),
    )
