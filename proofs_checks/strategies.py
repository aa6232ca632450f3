"""Hypothesis strategies for attention matrices and what surrounds them, in exact rationals.

A library for others: every matrix drawn is a numpy object array of ``Fraction`` (see
``oracles.rational``), so that a test can decide without tolerances. All strategies shrink towards
few rows and columns, small integers and zeros. docs/lemmas.md shows how to use them.

m queries, n keys, d coordinates; shapes are at most 4 by 4 unless said otherwise.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from oracles.rational import (
    Matrix,
    centred,
    identity,
    inverse,
    matrix,
    norm,
    ones,
    rank,
    zeros,
)
from oracles.two_bit import attention, distances

Shape: TypeAlias = tuple[int, int]
Shapes: TypeAlias = SearchStrategy[Shape]

T = TypeVar("T")

DENOMINATORS = (1, 2, 3, 4, 6)


def either(first: SearchStrategy[T], second: SearchStrategy[T]) -> SearchStrategy[T]:
    """One of two strategies with even odds (``one_of`` would flatten what they are made of)."""
    return st.booleans().flatmap(lambda chosen: first if chosen else second)


# Numbers


def rationals(bound: int = 3) -> SearchStrategy[Fraction]:
    """Fractions in [-bound, bound] over a small denominator."""
    return st.sampled_from(DENOMINATORS).flatmap(
        lambda q: st.integers(-bound * q, bound * q).map(lambda p: Fraction(p, q))
    )


def positive_rationals(bound: int = 3) -> SearchStrategy[Fraction]:
    """Fractions in (0, bound] over a small denominator."""
    return st.sampled_from(DENOMINATORS).flatmap(
        lambda q: st.integers(1, bound * q).map(lambda p: Fraction(p, q))
    )


def proper_fractions() -> SearchStrategy[Fraction]:
    """Fractions in (0, 1) over a denominator of at most 9."""
    return st.integers(2, 9).flatmap(lambda q: st.integers(1, q - 1).map(lambda p: Fraction(p, q)))


def dyadics(bound: int = 3, bits: int = 4) -> SearchStrategy[Fraction]:
    """Multiples of 2^-bits in [-bound, bound]: exact in every float format of enough bits."""
    return st.integers(-bound << bits, bound << bits).map(lambda p: Fraction(p, 1 << bits))


def tolerances_near(threshold: Fraction) -> SearchStrategy[Fraction]:
    """A tolerance >= 0 on the threshold, or beside it by a relative 1/2 down to 2^-60."""
    gaps = st.sampled_from([1, 2, 20, 60]).map(lambda bits: Fraction(1, 1 << bits))
    sides = st.sampled_from([0, -1, 1])
    return st.builds(lambda side, gap: threshold * (1 + side * gap), sides, gaps)


# Shapes and plain matrices


def shapes(most: int = 4, least: int = 1) -> Shapes:
    """(m, n), a single row or column included."""
    side = st.integers(least, most)
    return st.tuples(side, side)


def degenerate_shapes(most: int = 4) -> Shapes:
    """A single row, a single column, one entry."""
    return st.integers(1, most).flatmap(lambda side: st.sampled_from([(1, side), (side, 1)]))


def matrices(
    shape: Shapes | Shape, entries: SearchStrategy[Any] | None = None
) -> SearchStrategy[Matrix]:
    """Matrices of one shape, or of shapes drawn from a strategy."""
    entries = st.integers(-3, 3) if entries is None else entries
    if isinstance(shape, tuple):
        m, n = shape
        return st.lists(entries, min_size=m * n, max_size=m * n).map(
            lambda values: matrix(values).reshape(m, n)
        )
    return shape.flatmap(lambda drawn: matrices(drawn, entries))


def vectors(length: int, entries: SearchStrategy[Any] | None = None) -> SearchStrategy[Matrix]:
    """Vectors of one length."""
    return matrices((1, length), entries).map(lambda row: row[0])


def single_entries(shape: Shape) -> SearchStrategy[Matrix]:
    """Matrices with one entry +1 or -1 and zeros elsewhere."""
    m, n = shape
    place = st.tuples(st.integers(0, m - 1), st.integers(0, n - 1), st.sampled_from([1, -1]))
    return place.map(lambda p: _entry(shape, *p))


def _entry(shape: Shape, i: int, j: int, value: int) -> Matrix:
    E = zeros(*shape)
    E[i, j] = Fraction(value)
    return E


def invertible_matrices(most: int = 3, least: int = 1) -> SearchStrategy[Matrix]:
    """Square matrices of full rank."""
    square = st.integers(least, most).map(lambda n: (n, n))
    return matrices(square).filter(lambda M: rank(M) == len(M))


def degenerate_matrices(most: int = 4) -> SearchStrategy[Matrix]:
    """Row-stochastic matrices on which bounds tend to be attained.

    Identity, uniform, permutation, one hot column, repeated rows, one row, one column, block
    diagonal.
    """
    sides = st.integers(1, most)
    one_row = probability_vectors(most).map(lambda p: p[None, :])
    repeated = st.tuples(sides, one_row).map(lambda case: np.repeat(case[1], case[0], axis=0))
    return st.one_of(
        sides.map(identity),
        st.tuples(sides, sides).map(lambda s: ones(*s) / s[1]),
        st.permutations(range(most)).map(lambda order: identity(most)[list(order)]),
        st.tuples(sides, sides).map(lambda s: _one_hot_column(*s)),
        one_row,
        repeated,
        sides.map(lambda m: ones(m, 1)),
        st.just(np.kron(identity(2), ones(2, 2) / 2)),
    )


def _one_hot_column(m: int, n: int) -> Matrix:
    A = zeros(m, n)
    A[:, 0] = 1
    return A


# Probabilities


def probability_vectors(length: int, positive: bool = False) -> SearchStrategy[Matrix]:
    """Fractions >= 0 (> 0) of sum one: small integer weights over their sum."""
    least = 1 if positive else 0
    weights = st.lists(st.integers(least, 8), min_size=length, max_size=length)
    return weights.filter(any).map(lambda w: matrix(w) / sum(w))


def dyadic_probability_vectors(length: int, bits: int = 6) -> SearchStrategy[Matrix]:
    """Multiples of 2^-bits of sum one: gaps between sorted cuts of [0, 1]."""
    whole = 1 << bits
    cuts = st.lists(st.integers(0, whole), min_size=length - 1, max_size=length - 1)
    return cuts.map(lambda c: matrix(np.diff([0, *sorted(c), whole])) / whole)


def stochastic_matrices(
    shape: Shapes | Shape, positive: bool = False, dyadic: bool = False
) -> SearchStrategy[Matrix]:
    """Row-stochastic matrices; dyadic ones are stored by floats without error."""
    if not isinstance(shape, tuple):
        return shape.flatmap(lambda drawn: stochastic_matrices(drawn, positive, dyadic))
    m, n = shape
    row = dyadic_probability_vectors(n) if dyadic else probability_vectors(n, positive)
    return st.lists(row, min_size=m, max_size=m).map(np.stack)


# Logits, queries and keys, gauges


def logits(shape: Shapes | Shape) -> SearchStrategy[Matrix]:
    """Finite logits: small rationals, and now and then extreme entries or equal rows."""
    small = matrices(shape, rationals())
    extreme = matrices(shape, st.sampled_from([0, 1, -1, 700, -700]))
    return st.one_of(small, extreme, small.map(lambda H: np.repeat(H[:1], len(H), axis=0)))


def logit_pairs(most: int = 4) -> SearchStrategy[tuple[Matrix, Matrix]]:
    """Two rows of logits of one length; often opposite, and of two entries, where 3.1 is sharp."""
    general = st.integers(1, most).flatmap(
        lambda n: st.tuples(vectors(n, rationals()), vectors(n, rationals()))
    )
    opposite = positive_rationals().map(lambda h: (matrix([h, -h]), matrix([-h, h])))
    return st.one_of(general, opposite)


def queries_and_keys(
    most: int = 4, dimension: int | None = None
) -> SearchStrategy[tuple[Matrix, Matrix]]:
    """Q (m x d) and K (n x d) of small integers, d at most 3 if it is not given."""
    sides = st.integers(1, most)
    widths = st.integers(1, 3) if dimension is None else st.just(dimension)
    return st.tuples(sides, sides, widths).flatmap(
        lambda s: st.tuples(matrices((s[0], s[2])), matrices((s[1], s[2])))
    )


def gauges(dimension: int) -> SearchStrategy[Matrix]:
    """Invertible matrices G (d x d): Q -> Q G, K -> K G^-T leaves attention unchanged."""
    return matrices((dimension, dimension)).filter(lambda G: rank(G) == dimension)


def diagonal_gauges(dimension: int, condition: int = 16) -> SearchStrategy[Matrix]:
    """Positive diagonal gauges of at most this condition ratio, which the largest attain."""
    return vectors(dimension, st.integers(1, condition)).map(np.diag).map(matrix)


def orthogonal_gauges(dimension: int) -> SearchStrategy[Matrix]:
    """Rational rotations with permuted coordinates: products of Pythagorean plane rotations."""
    pairs = st.sampled_from([(Fraction(3, 5), Fraction(4, 5)), (Fraction(5, 13), Fraction(12, 13))])
    orders = st.permutations(range(dimension)).map(list)
    turns = st.lists(st.tuples(orders, pairs), max_size=2)
    return st.tuples(orders, turns).map(lambda case: _rotation(dimension, *case))


def _rotation(
    dimension: int, order: list[int], turns: list[tuple[list[int], tuple[Fraction, Fraction]]]
) -> Matrix:
    G = identity(dimension)[order]
    for axes, (c, s) in turns if dimension > 1 else []:
        plane = identity(dimension)
        plane[np.ix_(axes[:2], axes[:2])] = matrix([[c, -s], [s, c]])
        G = G @ plane
    return G


# Interactions


def doubly_centred(shape: Shapes | Shape) -> SearchStrategy[Matrix]:
    """Matrices whose rows and columns sum to zero."""
    return matrices(shape).map(centred)


def additive(shape: Shape) -> SearchStrategy[Matrix]:
    """Matrices a_i + b_j, which no softmax interaction sees."""
    m, n = shape
    return st.tuples(vectors(m), vectors(n)).map(lambda ab: ab[0][:, None] + ab[1][None, :])


# Matrices of known approximation rank


@st.composite
def low_rank_plus_error(
    draw: DrawFn, most: int = 4, least: int = 1
) -> tuple[Matrix, Matrix, Fraction, int]:
    """(B, E, eps, k): rank B <= k < min(m, n) and ||E|| = eps > 0, so that r_eps(B + E) <= k.

    Often every row of E is as long as allowed, and E a sign pattern or one entry a row.
    """
    m, n = draw(shapes(most, least))
    k = draw(st.integers(0, min(m, n) - 1))
    B = draw(matrices((m, k))) @ draw(matrices((k, n))) if k else zeros(m, n)
    E = draw(matrices((m, n), st.sampled_from([0, 1, -1, 2])).filter(np.any))
    if draw(st.booleans()):
        E = E / np.array([abs(row).sum() or Fraction(1) for row in E], dtype=object)[:, None]
    E = E * draw(positive_rationals(1))
    return B, E, norm(E), k


def on_a_threshold() -> SearchStrategy[tuple[Matrix, Fraction, int]]:
    """(A, eps, k) with d_k(A) = eps > 0 exactly: r_eps(A) <= k, and r_e(A) > k for e < eps.

    Invertible matrices, often diagonal, at k = n - 1 (MATH 5.5), any matrix, often a single row or
    column, at k = 0, and two-bit matrices at k = 1, 2, 3 (MATH 9.1).
    """
    diagonal = st.lists(st.integers(1, 4), min_size=2, max_size=3).map(np.diag).map(matrix)
    invertible = either(invertible_matrices(), diagonal)
    return st.one_of(
        invertible.map(lambda M: (M, 1 / norm(inverse(M)), len(M) - 1)),
        matrices(st.one_of(shapes(), degenerate_shapes()))
        .filter(np.any)
        .map(lambda A: (A, norm(A), 0)),
        two_bit_correlations().flatmap(_two_bit_threshold),
    )


def known_ranks() -> SearchStrategy[tuple[Matrix, Fraction, int]]:
    """(A, eps, k) with r_eps(A) <= k < min(m, n): on a threshold, or a low rank and an error."""
    spread = low_rank_plus_error().map(lambda case: (case[0] + case[1], *case[2:]))
    return either(on_a_threshold(), spread)


def _two_bit_threshold(case: tuple[Fraction, Fraction]) -> SearchStrategy[Any]:
    A, d = attention(*case), distances(*case)
    return st.integers(1, 3).map(lambda k: (A, d[k], k))


def two_bit_correlations() -> SearchStrategy[tuple[Fraction, Fraction]]:
    """(t, s) with 0 < s <= t < 1: correlations of the two-bit matrix (MATH 9.1)."""
    return st.tuples(proper_fractions(), proper_fractions()).map(
        lambda pair: (max(pair), min(pair))
    )
