"""Witnesses worth judging: what a search would propose, on a grid of 2^-12, or exactly.

Floating point only proposes here; what it proposes is a rational matrix like any other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.rational import (
    Matrix,
    identity,
    inverse,
    matrix,
    ones,
    over_common_denominator,
    rank,
    zeros,
)

from .formulas import Edge, divided, l1
from .strategies import matrices

GRID = 1 << 12
BASIS = 1 << 20


def reconstruction(A: Matrix, p: int, exact: bool) -> tuple[Matrix, Matrix, Matrix]:
    """G (c x m), X (c x (c-p)), Y ((c-p) x c) with I near to G A + X Y (MATH 5.3). A: m x c.

    ``exact``: the pseudoinverse itself and p = c, where the columns of A are independent.
    """
    c = A.shape[1]
    if exact and rank(A) == c:
        return inverse(A.T @ A) @ A.T, zeros(c, 0), zeros(0, c)
    U, sigma, Vt = np.linalg.svd(A.astype(float), full_matrices=True)
    kept = min(p, int(np.sum(sigma > 1e-6)))
    G = (Vt[:kept].T / sigma[:kept]) @ U[:, :kept].T
    left, weights, right = np.linalg.svd(np.eye(c) - G @ A.astype(float))
    return rationals(G), rationals(left[:, : c - p] * weights[: c - p]), rationals(right[: c - p])


def rationals(values: np.ndarray) -> Matrix:
    """The nearest multiples of 1 / GRID."""
    if not values.size:
        return zeros(*values.shape)
    return matrix(np.rint(values * GRID).astype(int)) / GRID


def eigenbasis(S: Matrix) -> np.ndarray:
    """Approximate eigenvectors of a symmetric S, as integers of norm ``BASIS``."""
    largest = abs(S).max() or Fraction(1)
    _, vectors = np.linalg.eigh((S / largest).astype(float))
    return np.rint(vectors * BASIS).astype(np.int64)


def integers(*arrays: Matrix) -> list[np.ndarray]:
    """The arrays as int64 over one common denominator, which is dropped."""
    flat, _ = over_common_denominator(np.concatenate([array.ravel() for array in arrays]))
    ends = np.cumsum([array.size for array in arrays])[:-1]
    return [
        part.astype(np.int64).reshape(array.shape)
        for part, array in zip(np.split(flat, ends), arrays, strict=True)
    ]


def worst_row(A: Matrix) -> int:
    """The index of the heaviest row."""
    sums = [l1(row) for row in A]
    return sums.index(max(sums))


def worst_signs(A: Matrix) -> Matrix:
    """The signs of the heaviest row, as a column: with them it attains ||A||."""
    return matrix([[1 if a >= 0 else -1] for a in A[worst_row(A)]])


Shattered = tuple[Matrix, list[int], list[Edge], Matrix]


@st.composite
def shatterings(draw: DrawFn, A: Matrix, p: int, edges: int = 2) -> Shattered:
    """(D, blocks, edges, Y) for theory 5.8 about A (m x n), at most so many edges; blocks sum to p.

    D selects rows or is drawn, and for an edge continues with the mean of its ends or with another
    row; Y holds, for each facet, the signs of the combined queries, the signs at keys of their own,
    the pseudoinverse's answer, or small integers.
    """
    m, n = A.shape
    rows = draw(st.permutations(range(m)))[:p]
    selected = st.just(identity(m)[rows]) if len(rows) == p else st.nothing()
    loose = matrices((p, m)).filter(lambda D: bool(np.all(np.any(D, axis=1))))
    D = draw(st.one_of(selected, selected.map(lambda D: 2 * D), loose))
    blocks: list[int] = []
    while sum(blocks) < p:
        blocks.append(draw(st.sampled_from([p - sum(blocks), 1])))
    keys = draw(st.lists(st.integers(0, n - 1), min_size=p, max_size=p, unique=p <= n))
    decoder = rationals(np.linalg.pinv((D @ A).astype(float)).T)
    style = draw(st.sampled_from(["signs", "keys", "decoder", "loose"]))
    frame = {"signs": D @ A, "keys": identity(n)[keys], "decoder": decoder}.get(style)
    divisions: list[Edge] = []
    for _ in range(draw(st.sampled_from(range(edges, -1, -1)))):
        facets = [facet for block in divided(blocks, divisions) for facet in block]
        ends = [
            (i, j, int(facet[i] * facet[j]))
            for facet in facets
            for j in range(len(facet))
            for i in range(j)
            if facet[i] * facet[j]
        ]
        if not ends:
            break
        i, j, s = draw(st.sampled_from(ends))
        mean = D[i] + s * D[j]
        D = np.vstack([D, mean if draw(st.booleans()) and np.any(mean) else D[i]])
        divisions.append((i, j, s))
        if frame is not None:
            frame = np.vstack([frame, D[-1] @ A if style == "signs" else frame[i] + s * frame[j]])
    facets = divided(blocks, divisions)
    if frame is None:
        return D, blocks, divisions, draw(matrices((sum(map(len, facets)), n)).filter(np.any))
    combined = np.concatenate(facets) @ frame
    Y = matrix(np.sign(combined)) if style == "signs" else combined
    return D, blocks, divisions, Y if np.any(Y) else Y + 1


SIGNED = st.sampled_from([0, 1, 2, -1])


@st.composite
def fantope_weights(
    draw: DrawFn, A: Matrix, epsilon: Fraction, k: int
) -> tuple[Matrix, Matrix, Matrix]:
    """(T, w, v) for MATH 5.4 about A (m x n): T is n x q, q > k, w is n x m, v is n x n.

    Weights may be negative: a check that lets them through is wrong. They are small integers, or
    those that make the form semidefinite or a little better: the heaviest row with its signs, the
    lightest one against it (k = 0), rows of A^-1.
    """
    m, n = A.shape
    none = zeros(n, n)
    loose = [
        (identity(n), ones(n, m), none),
        (draw(matrices((n, draw(st.integers(k + 1, n)))).filter(np.any)), ones(n, m), none),
        (identity(n), draw(matrices((n, m), SIGNED)), draw(matrices((n, n), SIGNED))),
    ]
    tight = []
    if k == 0:
        order = np.argsort([l1(row) for row in A])
        heaviest, lightest = identity(m)[order[-1]], identity(m)[order[0]]
        for row in (heaviest, 2 * heaviest - lightest):
            tight.append((worst_signs(A), np.repeat(row[None, :], n, axis=0), none))
    if m == n == rank(A):
        row_by_row, room = abs(inverse(A) / matrix([epsilon])), ones(n, n) / 64
        tight += [(identity(n), row_by_row, none), (identity(n), row_by_row + room, room)]
    if len(tight) > 0 and draw(st.booleans()):
        return draw(st.sampled_from(tight))
    return draw(st.sampled_from(loose))
