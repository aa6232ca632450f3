"""Small exact formulas that several lemmas share, written from the theory and nothing else.

Matrices are numpy object arrays of ``Fraction`` or of balls; nothing here is fast, all of it is
meant for a handful of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import combinations, permutations, product
from math import comb
from typing import Any

import numpy as np
from flint import arb

from oracles.balls import ball, endpoints
from oracles.rational import (
    Matrix,
    flint_matrix,
    full_rank_factors,
    inverse,
    matrix,
    norm,
    rank,
    square_norm,
    zeros,
)

CHARACTERS = matrix([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
"""Orthonormal rows; the first is constant, the others are centred."""

# Norms and softmax


def l1(x: Matrix) -> Any:
    """The sum of absolute values: a fraction, or a ball where x holds balls."""
    return abs(x).sum()


def sup(x: Matrix) -> Fraction:
    """The largest absolute value."""
    return max(abs(x), default=Fraction(0))


def pattern_signs(size: int) -> Matrix:
    """size x 2^(size - 1): the sign of row i in pattern k, -1 iff bit i - 1 of k is set (5.8)."""
    patterns = range(1 << (size - 1))
    return matrix([[1 - 2 * (k >> i - 1 & 1 if i else 0) for k in patterns] for i in range(size)])


Edge = tuple[int, int, int]


def divided(blocks: list[int], edges: list[Edge], parts: int = 2) -> list[Matrix]:
    """For each block its facets of 5.8, a row each: the sign of every vertex, 0 for the others.

    An edge (i, j, s) has the vertices i and j with the signs 1 and s. Of a facet that has it only
    the last of so many ``parts`` are kept.
    """
    size = sum(blocks) + len(edges)
    facets, row = [], 0
    for block in blocks:
        wide = np.full((1 << (block - 1), size), Fraction(0), dtype=object)
        wide[:, row : row + block] = pattern_signs(block).T
        facets.append(wide)
        row += block
    for w, (i, j, s) in enumerate(edges, row):
        facets = [_without(block, i, j, s, w, parts) for block in facets]
    return facets


def _without(block: Matrix, i: int, j: int, s: int, w: int, parts: int) -> Matrix:
    rows = []
    for facet in block:
        if facet[i] * facet[j] != s:
            rows.append(facet)
            continue
        for end in (i, j)[2 - parts :]:
            rows.append(facet.copy())
            rows[-1][[end, w]] = 0, facet[i]
    return np.array(rows, dtype=object)


def column_norm(E: Matrix) -> Fraction:
    """The largest l1 norm of a column: the wrong norm."""
    return norm(E.T)


def oscillation(x: Matrix) -> Fraction:
    """max - min."""
    return max(x) - min(x)


def entrywise(function: Callable[[Any], Any], x: Matrix) -> Matrix:
    """The function of every entry."""
    return np.frompyfunc(function, 1, 1)(x)


def balls(x: Matrix) -> Matrix:
    """An array of balls, from one of rational numbers or of balls."""
    return entrywise(lambda e: e if isinstance(e, arb) else ball(e), x)


def softmax(H: Matrix) -> Matrix:
    """Rows of balls: exp of the last axis over its sum."""
    weights = entrywise(arb.exp, balls(H - H.max(axis=-1, keepdims=True)))
    return weights / weights.sum(axis=-1, keepdims=True)


def ball_norm(E: Matrix) -> arb:
    """||E|| of a matrix of balls."""
    return largest([l1(row) for row in E])


def largest(values: list[arb]) -> arb:
    """The largest of some balls."""
    return reduce(arb.max, values)


def least(values: list[arb]) -> arb:
    """The least of some balls."""
    return reduce(arb.min, values)


def two_tanh(x: Fraction) -> arb:
    """2 tanh x."""
    return 2 * ball(x).tanh()


def tau(q: Fraction) -> arb:
    """2 tanh(q/4) (MATH 3.4)."""
    return two_tanh(q / 4)


# Linear algebra


def null_space(F: Matrix) -> Matrix:
    """Columns (n x (n - r)) that span the kernel of F (m x n)."""
    n = F.shape[1]
    if not F.any():
        return matrix(np.eye(n, dtype=int))
    _, Y = full_rank_factors(F)
    pivots = [int(np.flatnonzero(row)[0]) for row in Y]
    free = [j for j in range(n) if j not in pivots]
    Z = zeros(n, len(free))
    for column, j in enumerate(free):
        Z[j, column] = Fraction(1)
        Z[pivots, column] = -Y[:, j]
    return Z


def singular_distance(M: Matrix) -> Fraction:
    """1/||M^-1||, zero for a singular M: the distance of a square matrix to the singular ones."""
    return 1 / norm(inverse(M)) if rank(M) == len(M) else Fraction(0)


def singular_change(M: Matrix) -> Matrix:
    """E of norm ``singular_distance(M)`` and rank one with M - E singular, M invertible (MATH 5.5).

    With i the heaviest row of R = M^-1 and s its signs, (M - s e_i^T / ||R||) R s = 0.
    """
    R = inverse(M)
    sums = [l1(row) for row in R]
    i = sums.index(max(sums))
    E = zeros(*M.shape)
    E[:, i] = np.sign(R[i]) / sums[i]
    return E


def factors(B: Matrix) -> tuple[Matrix, Matrix]:
    """X (m x r), Y (r x n) with B = X Y and r = rank B, zero included."""
    return full_rank_factors(B) if B.any() else (zeros(len(B), 0), zeros(0, B.shape[1]))


def eigenvalues(S: Matrix) -> list[arb]:
    """Enclosures of the eigenvalues of a rational matrix with real ones only, ascending.

    Roots of the characteristic polynomial, isolated with their multiplicities.
    """
    roots: Any = flint_matrix(S).charpoly().numer().complex_roots()
    values = [root.real for root, multiplicity in roots for _ in range(multiplicity)]
    return sorted(values, key=lambda value: endpoints(value)[0])


def tail(M: Matrix, k: int) -> arb:
    """The sum of the squares of the singular values of M beyond the k largest."""
    values = eigenvalues(M.T @ M)
    return sum(values[: max(len(values) - k, 0)], arb(0))


def fantope_constant(epsilon: Fraction, w: Matrix, v: Matrix) -> Fraction:
    """eps^2 sum w + sum v (MATH 5.4)."""
    return epsilon**2 * w.sum() + v.sum()


def fantope_form(A: Matrix, T: Matrix, w: Matrix, v: Matrix, j: int, constant: Fraction) -> Matrix:
    """H_j = T^T [A^T diag(w) A + diag(v) - constant e_j e_j^T] T (MATH 5.4)."""
    inside = A.T @ (w[:, None] * A) + np.diag(v)
    inside[j, j] -= constant
    return T.T @ inside @ T


# Distances in l1


def _bases(Y: Matrix) -> Iterator[tuple[list[int], Matrix]]:
    """Sets J of k columns on which Y (k x n) is invertible, with the inverses."""
    k, n = Y.shape
    for J in combinations(range(n), k):
        block = Y[:, J]
        if rank(block) == k:
            yield list(J), inverse(block)


def nearest_point(a: Matrix, Y: Matrix) -> Matrix:
    """A point of the row space of Y (k x n, rank k) nearest to a in l1.

    Some best point agrees with a on k coordinates that determine it.
    """
    points = (a[J] @ inv @ Y for J, inv in _bases(Y))
    return min(points, key=lambda point: l1(a - point))


def cube_vertices(Y: Matrix) -> Iterator[Matrix]:
    """Vertices of {x : Y x = 0, |x_j| <= 1}, for Y of rank k: all but k coordinates are +-1."""
    n = Y.shape[1]
    for J, inv in _bases(Y):
        rest = [j for j in range(n) if j not in J]
        for values in product((1, -1), repeat=len(rest)):
            x = zeros(n)
            x[rest] = matrix(values)
            x[J] = -inv @ (Y[:, rest] @ x[rest])
            if sup(x) <= 1:
                yield x


# The residual q


def row_weights(F: Matrix) -> Matrix:
    """W_ii' = max_j (F_i'j - F_ij), the complete digraph on the rows (MATH 3.4)."""
    return np.array([[max(target - source) for target in F] for source in F], dtype=object)


def cycle_mean(W: Matrix, longest: int | None = None) -> Fraction:
    """The largest mean weight of a simple cycle (of at most that length), by trying them all."""
    nodes = range(len(W))
    cycles = (
        cycle
        for length in range(1, (longest or len(W)) + 1)
        for chosen in combinations(nodes, length)
        for order in permutations(chosen[1:])
        for cycle in [(chosen[0], *order)]
    )
    return max(_mean_weight(W, cycle) for cycle in cycles)


def _mean_weight(W: Matrix, cycle: tuple[int, ...]) -> Fraction:
    following = (*cycle[1:], cycle[0])
    return Fraction(sum(W[i, j] for i, j in zip(cycle, following, strict=True))) / len(cycle)


def residual(F: Matrix) -> Fraction:
    """q(F) (MATH 3.4)."""
    return cycle_mean(row_weights(F))


def potentials(F: Matrix, q: Fraction) -> tuple[Matrix, Matrix]:
    """(a, b) with 2 |F_ij - a_i - b_j| <= q for all i, j, if q is at least q(F).

    a are longest paths under the weights W - q, which has no cycle of positive weight.
    """
    W, a = row_weights(F) - q, zeros(len(F))
    for _ in range(len(F)):
        a = np.max(np.column_stack([a, (a[:, None] + W).T]), axis=1)
    rest = F - a[:, None]
    return a, (rest.max(axis=0) + rest.min(axis=0)) / 2


def contrast(F: Matrix) -> Fraction:
    """The largest |F_ij - F_ij' - F_i'j + F_i'j'|."""
    return max(oscillation(x - y) for x in F for y in F)


# Size


def radius_square(X: Matrix, centre: Matrix | None = None) -> Fraction:
    """The squared radius of a ball around the rows of X; the smallest ball without a centre.

    Up to dim + 1 rows determine the smallest ball: it is the largest of the balls that are
    smallest around such a subset.
    """
    if centre is not None:
        return max(square_norm(x - centre) for x in X)
    sizes = range(1, min(len(X), X.shape[1] + 1) + 1)
    supports = (list(S) for size in sizes for S in combinations(range(len(X)), size))
    centres = (circumcentre(X[S]) for S in supports)
    return min(radius_square(X, c) for c in centres if c is not None)


def circumcentre(points: Matrix) -> Matrix | None:
    """The point of their affine hull at equal distance to all; None if they are dependent."""
    base, edges = points[0], points[1:] - points[0]
    gram = edges @ edges.T
    if rank(gram) < len(edges):
        return None
    if not len(edges):
        return base
    return base + (inverse(gram) @ np.diag(gram) / 2) @ edges


def monomials(dimension: int, degree: int) -> int:
    """binom(r + D, D), the number of monomials of degree at most D in r variables."""
    return comb(dimension + degree, degree)
