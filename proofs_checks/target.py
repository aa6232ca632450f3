"""MATH 1: the norm, the rank, and its equivalent forms."""

from __future__ import annotations

import operator
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import strategies as st

from oracles.class_gap import stochastic_bound, stochastic_rank_one
from oracles.exact_rank import rank_one
from oracles.kernel_steps import rank_at_least, rank_at_most
from oracles.rational import identity, inverse, matrix, norm, rank

from .clauses import at_most, equal, that
from .formulas import (
    column_norm,
    cube_vertices,
    factors,
    l1,
    nearest_point,
    null_space,
    singular_change,
    singular_distance,
    softmax,
    sup,
)
from .lemma import lemma
from .strategies import (
    degenerate_matrices,
    either,
    invertible_matrices,
    logits,
    low_rank_plus_error,
    matrices,
    probability_vectors,
    rationals,
    shapes,
    stochastic_matrices,
    tolerances_near,
    vectors,
)


@lemma(
    "1-induced-norm",
    r"\lVert E\rVert = \max_{\lVert x\rVert_\infty \le 1} \lVert Ex\rVert_\infty",
    given=st.tuples(matrices(shapes(3), rationals())),
    mutants={
        "columns instead of rows": {"size": column_norm},
        "the largest entry": {"size": lambda E: abs(E).max()},
    },
)
def induced_norm(E, *, size=norm):
    """The largest l1 norm of a row is the operator norm from l-inf to l-inf."""
    cube = product((1, -1), repeat=E.shape[1])
    yield equal("the largest image of a vertex", size(E), max(sup(E @ matrix(x)) for x in cube))


@lemma(
    "1-closed",
    r"r_\varepsilon(A) \le k \iff \varepsilon \ge d_k(A)",
    assumes="A invertible and k = n - 1, where d_k is known (MATH 5.5)",
    given=invertible_matrices().flatmap(
        lambda M: st.tuples(st.just(M), tolerances_near(singular_distance(M)))
    ),
    mutants={
        "an open inequality": {"reached": operator.gt},
        "the tolerance against the largest entry of the inverse": {
            "distance": lambda M: 1 / abs(inverse(M)).max()
        },
    },
)
def closed_inequality(A, epsilon, *, reached=operator.ge, distance=singular_distance):
    """The rank drops below n at eps = d_{n-1} itself; on either side the kernel proves its part."""
    low = reached(epsilon, distance(A))
    upper = rank_at_most(A, epsilon, *factors(A - singular_change(A)))
    lower = rank_at_least(A, epsilon, inverse(A))
    yield that("r <= n - 1 is proven iff eps >= d", upper.holds == low)
    yield that("r >= n is proven iff not", lower.holds != low)


@st.composite
def _values(draw):
    E = draw(matrices(shapes(3), rationals()))
    size = draw(st.sampled_from([l1, sup]))
    V = draw(matrices((E.shape[1], 2)))
    V = np.array([v / max(size(v), 1) for v in V], dtype=object)
    return E, V, size, draw(vectors(2).filter(np.any).map(lambda u: u / size(u)))


@lemma(
    "1.1-value-output",
    r"\sup_{\lVert v_j\rVert \le 1} \max_i \bigl\lVert\textstyle\sum_j E_{ij} v_j\bigr\rVert"
    r" = \lVert E\rVert",
    assumes="the value space is R^2 with the l1 or the l-inf norm",
    given=_values(),
    mutants={
        "columns instead of rows": {"size": column_norm},
        "attained without the signs": {"attaining": lambda row: abs(np.sign(row))},
    },
)
def value_output_identity(E, V, norm_of, u, *, size=norm, attaining=np.sign):
    """||E|| is the largest output error over values of norm at most one, in any normed space."""
    yield at_most("outputs stay below", max(norm_of(row @ V) for row in E), size(E))
    worst = max(E, key=l1)
    output = worst @ np.outer(attaining(worst), u)
    yield equal("the signs of the worst row attain it", norm_of(output), size(E))


@st.composite
def _subspaces(draw):
    m, n = draw(shapes(3))
    k = draw(st.one_of(st.just(1), st.integers(1, n)))
    Y = draw(matrices((k, n)).filter(lambda Y: rank(Y) == k))
    return draw(matrices((m, n))), Y, draw(matrices((m, k), rationals()))


@lemma(
    "1.2-row-space",
    r"\min_X \lVert A - XY\rVert = \max_i \operatorname{dist}_1(A_i, \operatorname{row}(Y))",
    assumes="k <= n, the rows of Y are independent",
    given=_subspaces(),
    mutants={
        "the mean distance of the rows": {"worst": lambda d: sum(d) / len(d)},
        "the least distance of the rows": {"worst": min},
        "the total distance of the rows": {"worst": sum},
    },
)
def row_space_form(A, Y, X, *, worst=max):
    """The best approximant with rows in a subspace takes the nearest point for every row."""
    B = np.array([nearest_point(a, Y) for a in A], dtype=object)
    distance = worst([l1(row) for row in A - B])
    yield equal("the nearest points attain the largest distance", norm(A - B), distance)
    yield at_most("other points of the subspace are no nearer", distance, norm(A - X @ Y))
    yield at_most("the rank is at most the dimension", rank(B), len(Y))


@lemma(
    "1.3-kernel",
    r"\lVert A - B\rVert \le \varepsilon \implies \lVert Ax\rVert_\infty \le"
    r" \varepsilon\lVert x\rVert_\infty \text{ for } x \in \ker B, \quad"
    r" \operatorname{codim}\ker B \le k",
    assumes="A = B + E, rank B <= k < min(m, n), ||E|| = eps",
    given=st.tuples(low_rank_plus_error(), vectors(4)).map(lambda case: (*case[0], case[1])),
    mutants={
        "the l1 norm of the image": {"image": l1},
        "vectors outside the kernel too": {"within": lambda B: np.eye(B.shape[1], dtype=int)},
        "codimension at most k - 1": {"codimension": lambda k: k - 1},
    },
)
def kernel_form(B, E, epsilon, k, z, *, image=sup, within=null_space, codimension=lambda k: k):
    """An approximation of rank k gives a subspace of codimension k that A contracts by eps."""
    M = within(B)
    x = M @ z[: M.shape[1]]
    yield at_most("||Ax|| <= eps ||x||", image((B + E) @ x), epsilon * sup(x))
    yield at_most("codim M <= k", len(x) - null_space(B).shape[1], codimension(k))


@lemma(
    "1.3-converse",
    r"\operatorname{dist}_1(a, M^\perp) = \max\{\langle a, x\rangle : x \in M,"
    r" \lVert x\rVert_\infty \le 1\}",
    assumes="M = ker Y, so that its annihilator is the row space of Y",
    given=_subspaces(),
    mutants={
        "vertices with no negative entry only": {"allowed": lambda x: min(x) >= 0},
        "x of l1 norm at most one": {"allowed": lambda x: l1(x) <= 1},
    },
)
def kernel_form_converse(A, Y, X, *, allowed=lambda x: True):
    """Row by row, what A does to a subspace is its l1 distance from the annihilator (duality)."""
    distance = l1(A[0] - nearest_point(A[0], Y))
    heights = [A[0] @ x for x in cube_vertices(Y) if allowed(x)]
    yield equal("distance = height", distance, max(heights, default=Fraction(0)))


@st.composite
def _small_stochastic(draw):
    special = either(st.just(identity(3)), degenerate_matrices(3))
    A = draw(either(stochastic_matrices(shapes(3, 2)), special))
    return A, draw(probability_vectors(A.shape[1]))


@lemma(
    "1.4-stochastic-rank-one",
    r"d_1^{\mathrm{st}}(A) = \min_{p \ge 0,\ \langle p, 1\rangle = 1} \max_i"
    r" \lVert A_i - p\rVert_1",
    assumes="A row-stochastic",
    given=_small_stochastic(),
    mutants={
        "half the largest distance of two rows": {
            "claimed": lambda A, best: max(l1(a - b) for a in A for b in A) / 2
        },
        "the error of the mean row": {"claimed": lambda A, best: norm(A - A.mean(axis=0))},
    },
)
def stochastic_rank_one_program(A, p, *, claimed=lambda A, best: best):
    """Row-stochastic rank one is a linear program over one probability row, with dual proof."""
    best, row, mu, S = stochastic_rank_one(A)
    value = claimed(A, best)
    yield equal("attained by a row", norm(A - row), value)
    yield equal("proven by the dual", stochastic_bound(A, mu, S), value)
    yield at_most("no other row is better", value, norm(A - p))


@lemma(
    "1.4-inclusions",
    r"r_\varepsilon \le r_\varepsilon^+ \le r_\varepsilon^{\mathrm{st}}",
    assumes="A row-stochastic; tested at rank one",
    given=_small_stochastic().filter(lambda case: len(case[0]) > 1),
    mutants={
        "the restriction costs nothing: the same below the stochastic error": {
            "share": Fraction(99, 100)
        },
    },
)
def class_inclusions(A, p, *, share=1):
    """At the error of the best row-stochastic rank-one matrix the free rank is at most one."""
    best, row, _, _ = stochastic_rank_one(A)
    yield that("the competitor is nonnegative", min(row) >= 0)
    yield that("r <= 1 at that error", rank_one(A, share * best).factors is not None or best == 0)


@lemma(
    "1.5-rows",
    r"A_{ij} > 0, \quad \textstyle\sum_j A_{ij} = 1",
    assumes="finite logits",
    given=st.tuples(logits(shapes(3))),
    mutants={
        "normalised over the queries": {"attention": lambda H: softmax(H.T).T},
        "relative to the largest weight": {"attention": lambda H: _unnormalised(H)},
    },
)
def softmax_rows(H, *, attention=softmax):
    """The rows of a softmax are positive and sum to one."""
    for row in attention(H):
        yield that("positive", all(p > 0 for p in row))
        yield equal("of sum one", sum(row), 1)


def _unnormalised(H):
    A = softmax(H)
    return np.array([row / row[int(np.argmax(h))] for row, h in zip(A, H, strict=True)])
