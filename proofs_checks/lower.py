"""MATH 5: lower certificates, in exact formulas and as the kernel checks them.

Most examples are matrices whose approximation rank is known to be at most k: no witness of any kind
may prove more. Witnesses are proposed in floating point or in closed form, as good as can be, so
that a check with a clause missing is caught.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from flint import arb
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.balls import ball
from oracles.exact_rank import corank_one
from oracles.kernel_steps import near_identity_witness, question
from oracles.rational import (
    Matrix,
    identity,
    inverse,
    is_positive_semidefinite,
    matrix,
    norm,
    ones,
    rank,
    square_norm,
    zeros,
)
from softrank_exact.kernel.check import (
    bottom_sum,
    check,
)
from softrank_exact.kernel.limbs import Limbs

from .clauses import at_most, equal, less, that
from .formulas import (
    CHARACTERS,
    column_norm,
    divided,
    eigenvalues,
    fantope_constant,
    fantope_form,
    l1,
    largest,
    least,
    null_space,
    singular_change,
    singular_distance,
    tail,
)
from .lemma import lemma
from .proposals import BASIS, eigenbasis, fantope_weights, reconstruction, shatterings
from .strategies import (
    either,
    gauges,
    invertible_matrices,
    known_ranks,
    low_rank_plus_error,
    matrices,
    orthogonal_gauges,
    positive_rationals,
    probability_vectors,
    proper_fractions,
    rationals,
    shapes,
    stochastic_matrices,
    vectors,
)

# 5.1 Contractive decoding


@st.composite
def _decoders(draw: DrawFn):
    B, E, epsilon, k = draw(low_rank_plus_error())
    m, n = B.shape
    p, s = draw(shapes(3))
    D = draw(st.one_of(st.just(identity(m)), matrices((p, m)).filter(np.any)))
    F = draw(matrices((n, s)).filter(np.any))
    return B, E, epsilon, k, D, F


@lemma(
    "5.1-contraction",
    r"\lVert D\rVert, \lVert F\rVert \le 1 \implies r_\varepsilon(DAF) \le r_\varepsilon(A)",
    assumes="A = B + E, rank B <= k, ||E|| = eps",
    given=_decoders(),
    mutants={
        "D of column norm one": {"query_size": column_norm},
        "F of column norm one": {"key_size": column_norm},
        "F of entries at most one": {"key_size": lambda F: abs(F).max()},
    },
)
def contraction(B, E, epsilon, k, D, F, *, query_size=norm, key_size=norm):
    """Decoding by contractions on both sides never raises the approximation rank."""
    D, F = D / query_size(D), F / key_size(F)
    yield at_most("the decoded error", norm(D @ E @ F), epsilon)
    yield at_most("the decoded rank", rank(D @ B @ F), k)


def _selection(rows: Sequence[int], m: int) -> Matrix:
    return identity(m)[list(rows)]


def _average(rows: Sequence[int], m: int) -> Matrix:
    return _selection(rows, m).sum(axis=0)[None, :] / len(rows)


def _groups(labels: Sequence[int]) -> Matrix:
    """Column j is added to group labels[j]."""
    return matrix([[int(label == group) for group in range(3)] for label in labels])


@lemma(
    "5.1-instances",
    r"\text{selections, averages of rows, sums of disjoint groups of columns}: \lVert\cdot\rVert"
    r" \le 1",
    given=st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.integers(0, n - 1), min_size=1, max_size=4),
            st.lists(st.integers(0, 3), min_size=n, max_size=n),
        )
    ),
    mutants={
        "sums of rows": {"average": lambda rows, m: _selection(rows, m).sum(axis=0)[None, :]},
        "overlapping groups": {
            "groups": lambda labels: np.minimum(_groups(labels) + _groups(labels[::-1]), 1)
        },
        "a column selected twice": {"columns": lambda chosen, n: _selection(chosen, n).T},
    },
)
def contraction_instances(
    n,
    chosen,
    labels,
    *,
    average=_average,
    groups=_groups,
    columns=lambda chosen, n: _selection(sorted(set(chosen)), n).T,
):
    """Choosing rows or distinct columns, averaging rows and summing disjoint columns contract."""
    yield at_most("rows selected", norm(_selection(chosen, n)), 1)
    yield at_most("rows averaged", norm(average(chosen, n)), 1)
    yield at_most("columns selected", norm(columns(chosen, n)), 1)
    yield at_most("columns summed", norm(groups(labels)), 1)


# 5.2 Hilbert-Schmidt


@st.composite
def _weighted(draw: DrawFn):
    """(B, E, eps, k, w, T): weights of the rows, uniform at times; T identity at times."""
    B, E, epsilon, k = draw(low_rank_plus_error())
    m, n = B.shape
    w = draw(st.one_of(probability_vectors(m), st.just(ones(m) / m)))
    q = draw(st.integers(k + 1, n))
    T = draw(either(st.just(identity(n)), matrices((n, q)).filter(np.any)))
    return B, E, epsilon, k, w, T


def _longest(T: Matrix) -> Fraction:
    return max(square_norm(row) for row in T)


@lemma(
    "5.2-inequality",
    r"\textstyle\sum_i w_i \lVert e_i T\rVert_2^2 \le \varepsilon^2 \max_j \lVert T_j\rVert_2^2",
    assumes="w >= 0 of sum one, ||E|| = eps",
    given=_weighted(),
    mutants={
        "the shortest row of T": {"length": lambda T: min(square_norm(row) for row in T)},
        "eps for its square": {"power": 1},
        "weights of sum m": {"weights": lambda w: w * len(w)},
    },
)
def two_summing(B, E, epsilon, k, w, T, *, length=_longest, power=2, weights=lambda w: w):
    """The weighted Hilbert-Schmidt norm of an error is at most eps (two-summing)."""
    size = sum(weights(w) * np.array([square_norm(row) for row in E @ T], dtype=object))
    yield at_most("the weighted square", size, epsilon**power * length(T))


def _gram(A: Matrix, w: Matrix, T: Matrix) -> Matrix:
    """T^T A^T diag(w) A T."""
    return T.T @ A.T @ (w[:, None] * A) @ T


def _tail_beyond(S: Matrix, k: int):
    """The sum of all but the k largest eigenvalues of S."""
    return sum(eigenvalues(S)[: max(len(S) - k, 0)], arb(0))


@lemma(
    "5.2-tail",
    r"\textstyle\sum_{j>k}\sigma_j(\operatorname{diag}(\sqrt w)AT)^2 > \varepsilon^2 \implies"
    r" r_\varepsilon(A) \ge k+1",
    assumes="w >= 0 of sum one, rows of T of norm at most one; A = B + E, rank B <= k, ||E|| = eps",
    given=_weighted(),
    mutants={
        "the tail from the k-th singular value on": {"beyond": lambda k: max(k - 1, 0)},
        "the shortest row of T": {"length": lambda T: min(square_norm(row) for row in T)},
        "eps for its square": {"power": 1},
        "weights of sum m": {"weights": lambda w: w * len(w)},
    },
)
def singular_tail(
    B,
    E,
    epsilon,
    k,
    w,
    T,
    *,
    beyond=lambda k: k,
    length=_longest,
    power=2,
    weights=lambda w: w,
):
    """The squared singular tail of diag(sqrt w) A T beyond the rank never exceeds eps^2."""
    found = _tail_beyond(_gram(B + E, weights(w), T), beyond(k))
    yield at_most("the tail", found, epsilon**power * length(T))


@lemma(
    "5.2-concave",
    r"w \mapsto \textstyle\sum_{j>k}\sigma_j(\operatorname{diag}(\sqrt w)AT)^2 \text{ and }"
    r" TT^{\mathsf T} \mapsto \text{the same are concave}",
    given=st.tuples(matrices((3, 3)), st.integers(0, 2)).flatmap(
        lambda case: st.tuples(
            st.just(case[0]),
            st.just(case[1]),
            *[probability_vectors(3)] * 2,
            *[matrices((3, 2))] * 2,
        )
    ),
    mutants={"convex": {"sign": -1}},
)
def tail_is_concave(A, k, w, other_w, T, other_T, *, sign=1):
    """The tail is concave in the weights for a fixed T, and in T T^T for fixed weights."""
    share, rest = Fraction(9, 25), Fraction(16, 25)

    def value(weights, columns):
        return sign * _tail_beyond(_gram(A, weights, columns), k)

    in_w = value(w, T), value(other_w, T), value(share * w + rest * other_w, T)
    joined = np.hstack([Fraction(3, 5) * T, Fraction(4, 5) * other_T])
    in_T = value(w, T), value(w, other_T), value(w, joined)
    for says, (one, other, middle) in (("in w", in_w), ("in T T^T", in_T)):
        mixed = (9 * one + 16 * other) / 25
        yield at_most(f"concave {says}", mixed, middle)


@lemma(
    "5.2-correlation",
    r"\sigma(\operatorname{diag}(\sqrt w)A T R) = \sigma(\operatorname{diag}(\sqrt w)A T),"
    r" \quad RR^{\mathsf T} = I",
    given=st.tuples(
        matrices((3, 3)),
        st.integers(0, 2),
        probability_vectors(3),
        matrices((3, 2)),
        orthogonal_gauges(2),
        gauges(2),
    ),
    mutants={"any invertible change of the columns": {"change": lambda R, G: G}},
)
def only_the_correlation_matters(A, k, w, T, R, G, *, change=lambda R, G: R):
    """The tail depends on T through T T^T alone."""
    turned = T @ change(R, G)
    yield equal("the tail", _tail_beyond(_gram(A, w, turned), k), _tail_beyond(_gram(A, w, T), k))


@lemma(
    "5.2-frobenius",
    r"F_k(A)^2 = \textstyle\sum_{j>k}\sigma_j(A)^2 > m\varepsilon^2 \implies"
    r" r_\varepsilon(A) \ge k+1",
    assumes="A = B + E, rank B <= k, ||E|| = eps",
    given=low_rank_plus_error(),
    mutants={
        "sqrt(m) is dropped": {"count": lambda A: 1},
        "the number of columns for the number of rows": {"count": lambda A: A.shape[1]},
    },
)
def frobenius_tail(B, E, epsilon, k, *, count=len):
    """The Frobenius tail of the source: uniform weights, and T the identity."""
    A = B + E
    yield at_most("F_k^2", tail(A, k), count(A) * epsilon**2)


# 5.3 Bernstein


@st.composite
def _reconstructions(draw: DrawFn, targets, axis=1):
    """A target with columns (or rows; repeats included), a rank p to reconstruct, and a damping."""
    target = draw(targets)
    n = target[0].shape[axis]
    columns = draw(
        st.one_of(
            st.just(list(range(n))),
            st.lists(st.integers(0, n - 1), min_size=1, max_size=n + 1),
            st.tuples(st.integers(0, n - 1), st.integers(2, 4)).map(lambda c: [c[0]] * c[1]),
        )
    )
    k = target[-1]
    p = draw(st.sampled_from([max(k, 1), k + 1, draw(st.integers(1, 4))]))
    damping = draw(st.sampled_from([Fraction(1), Fraction(1), Fraction(3, 4), Fraction(0)]))
    return *target, columns, p, draw(st.booleans()), damping


def _distinct(columns):
    return sorted(set(columns))


def _reconstruct(A, columns, p, exact, damping):
    """G, X, Y and the residual H = I - G A_C - X Y."""
    G, X, Y = reconstruction(A[:, columns], min(p, len(columns)), exact)
    G = damping * G
    return G, X, Y, identity(len(columns)) - G @ A[:, columns] - X @ Y


@lemma(
    "5.3-bernstein",
    r"\varepsilon\lVert G_j\rVert_1 + \lVert (I - GA_C - XY)_j\rVert_1 < 1\ \forall j \implies"
    r" r_\varepsilon(A) \ge p",
    assumes="C strictly increasing, X has c - p columns; r_eps(A) <= k is known",
    given=_reconstructions(known_ranks()),
    mutants={
        "a closed inequality": {"proves": lambda rows: max(rows) <= 1},
        "the mean row": {"proves": lambda rows: sum(rows) < len(rows)},
        "the best row": {"proves": lambda rows: min(rows) < 1},
        "the residual is dropped": {"residual": lambda H: 0 * H},
        "repeated columns": {"distinct": list},
        "the largest entry of a row of G": {"size": lambda g: max(abs(g))},
    },
)
def bernstein(
    A,
    epsilon,
    k,
    columns,
    p,
    exact,
    damping,
    *,
    proves=lambda rows: max(rows) < 1,
    residual=lambda H: H,
    distinct=_distinct,
    size=l1,
):
    """If G A is the identity on c columns up to rank c - p and a small residual, r is >= p."""
    columns = distinct(columns)
    G, X, _, H = _reconstruct(A, columns, p, exact, damping)
    rows = [epsilon * size(g) + l1(h) for g, h in zip(G, residual(H), strict=True)]
    proven = len(columns) - X.shape[1] if proves(rows) else 0
    yield at_most("the proven rank", proven, k)


@lemma(
    "5.3-left-mirror",
    r"\varepsilon\lVert G\rVert + \lVert I - A_RG - XY\rVert < 1 \implies r_\varepsilon(A) \ge p",
    assumes="G is n x c; rows may repeat: selecting them is a contraction; r_eps(A) <= k is known",
    given=_reconstructions(known_ranks(), axis=0),
    mutants={
        "a closed inequality": {"proves": lambda value: value <= 1},
        "the residual is dropped": {"residual": lambda H: 0 * H},
        "the largest entry of G": {"size": lambda G: abs(G).max()},
        "row by row, as for columns": {"size": lambda G: min(l1(g) for g in G)},
    },
)
def bernstein_left_mirror(
    A,
    epsilon,
    k,
    rows,
    p,
    exact,
    damping,
    *,
    proves=lambda value: value < 1,
    residual=lambda H: H,
    size=norm,
):
    """If A G is the identity on c rows up to rank c - p and a small residual, the rank is >= p."""
    G, X, _, H = _reconstruct(A.T, rows, p, exact, damping)
    proven = len(rows) - X.shape[1] if proves(epsilon * size(G.T) + norm(residual(H.T))) else 0
    yield at_most("the proven rank", proven, k)


@lemma(
    "5.3-invertible",
    r"\lVert H + GE_C\rVert < 1 \implies \operatorname{rank}(XY + GB_C) = c",
    assumes="A = B + E, ||E|| = eps, H = I - G A_C - X Y",
    given=_reconstructions(low_rank_plus_error().map(lambda case: (8 * case[0], *case[1:]))),
    mutants={
        "the residual is dropped": {"proves": lambda G, H, e: norm(e * G) < 1},
        "the mean row": {"proves": lambda G, H, e: (e * abs(G).sum() + abs(H).sum()) < len(G)},
    },
)
def reconstruction_is_invertible(
    B,
    E,
    epsilon,
    k,
    columns,
    p,
    exact,
    damping,
    *,
    proves=lambda G, H, e: norm(np.hstack([e * G, H])) < 1,
):
    """The step behind 5.3: the reconstruction from B alone is invertible."""
    columns = _distinct(columns)
    G, X, Y, H = _reconstruct(B + E, columns, p, exact, damping)
    if proves(G, H, epsilon):
        yield equal("full rank", rank(X @ Y + G @ B[:, columns]), len(columns))


@lemma(
    "5.3-subspace",
    r"x \in \ker Y,\ x \ne 0 \implies \lVert Ax\rVert_\infty > \varepsilon\lVert x\rVert_\infty",
    assumes="eps ||G_j|| + ||H_j|| < 1 for every row, on all columns",
    given=st.tuples(
        matrices(shapes(3)),
        st.integers(1, 3),
        st.booleans(),
        st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(0)]),
        vectors(3),
        proper_fractions(),
    ),
    mutants={
        "for every x": {"within": lambda Y: identity(Y.shape[1])},
        "the residual is dropped": {"residual": lambda H: 0 * H},
    },
)
def bernstein_subspace(A, p, exact, damping, z, share, *, within=null_space, residual=lambda H: H):
    """A Bernstein witness says that A moves every vector of a subspace by more than eps."""
    columns = list(range(A.shape[1]))
    G, _, Y, H = _reconstruct(A, columns, p, exact, damping)
    epsilon = share / (norm(G) or 1)
    if norm(np.hstack([epsilon * G, residual(H)])) < 1:
        V = within(Y)
        x = V @ z[: V.shape[1]]
        if x.any():
            yield less("||Ax|| > eps ||x||", epsilon * max(abs(x)), max(abs(A @ x)))


@st.composite
def _programs(draw: DrawFn):
    """(A, lambda, x, eps): lambda any, or the first row of a reconstruction of A."""
    A = draw(matrices(shapes(3)).filter(np.any))
    G, _, _ = reconstruction(A, A.shape[1], exact=True)
    lam = draw(either(vectors(len(A), rationals(1)), st.just(G[0])))
    return A, lam, draw(vectors(A.shape[1]).filter(np.any)), draw(positive_rationals(2))


@lemma(
    "5.3-program",
    r"x_j \le \varepsilon\lVert\lambda\rVert_1 + \lVert\mu\rVert_1, \quad"
    r" \lambda^{\mathsf T}AV + \mu^{\mathsf T}V = V_j,\ x = Vz,\ \lVert Ax\rVert_\infty \le"
    r" \varepsilon,\ \lVert x\rVert_\infty \le 1",
    assumes="mu = e_j - A^T lambda, which is feasible for every V",
    given=_programs(),
    mutants={
        "mu is free": {"prices": (1, 0)},
        "eps is forgotten": {"prices": (0, 1)},
        "lambda = 0 has a value below one": {"relation": less},
    },
)
def bernstein_program(A, lam, x, epsilon, *, prices=(1, 1), relation=at_most):
    """Each row of 5.3 is a linear program whose value is never above one, that of mu = e_j."""
    x = x / max(max(abs(A @ x)) / epsilon, max(abs(x)))
    for multiplier in (lam, 0 * lam):
        mu = -A.T @ multiplier
        mu[0] += 1
        value = prices[0] * epsilon * l1(multiplier) + prices[1] * l1(mu)
        yield at_most("weak duality", x[0], value)
    yield relation("the value is at most one", value, 1)


# 5.3 Instances


@st.composite
def _spectra(draw: DrawFn):
    """Orthogonal U, V (4 x 4, integers over 2) and singular values, descending and positive."""
    a = sorted(draw(st.lists(st.integers(1, 6), min_size=4, max_size=4)), reverse=True)
    orders = draw(st.permutations(range(4))), draw(st.permutations(range(4)))
    p = draw(st.integers(1, 4))
    return *(CHARACTERS[list(order)] for order in orders), matrix(a), p, draw(rationals(1))


@lemma(
    "5.3-pseudoinverse",
    r"\lVert A_p^+\rVert < 1/\varepsilon \implies r_\varepsilon(A) \ge p, \quad"
    r" I - A_p^+A = I - V_pV_p^{\mathsf T}",
    assumes="sigma_p > 0",
    given=_spectra(),
    mutants={
        "a tolerance beyond the norm": {"reach": lambda share: 1 + abs(share)},
        "the singular values are not inverted": {"inverted": lambda a: a},
        "one rank more": {"claimed": lambda p: p + 1},
    },
)
def truncated_pseudoinverse(
    U,
    V,
    a,
    p,
    share,
    *,
    reach=lambda share: 1 - abs(share) / 2 - Fraction(1, 1000),
    inverted=lambda a: 1 / a,
    claimed=lambda p: p,
):
    """The truncated pseudoinverse is a Bernstein witness without residual: the kernel agrees."""
    A, G = (U.T * a) @ V, (V[:p].T * inverted(a[:p])) @ U[:p]
    yield equal("I - G A", identity(4) - G @ A, V[p:].T @ V[p:])
    yield equal("p", 4 - rank(identity(4) - G @ A), claimed(p))
    witness = near_identity_witness(range(4), G, V[p:].T, V[p:])
    finding = check(question(A, reach(share) / norm(G)), p, witness)
    yield that("the kernel agrees", finding.code == "ok")


@st.composite
def _decoded(draw: DrawFn):
    """A matrix of known rank with decoders D (p x m), F (n x p).

    At times D = A^-1 and F = I on the threshold, or all near to the identity (k = n, trivially).
    """
    style = draw(st.sampled_from(["inverse", "near", "any"]))
    if style == "inverse":
        A = draw(invertible_matrices()) / draw(st.integers(1, 4))
        return A, singular_distance(A), len(A) - 1, inverse(A), identity(len(A))
    if style == "near":
        n, share = draw(st.integers(1, 3)), draw(proper_fractions()) / 2
        A = (1 - share) * identity(n) + share * draw(stochastic_matrices((n, n)))
        return A, draw(proper_fractions()) / 2, n, identity(n), identity(n)
    A, epsilon, k = draw(known_ranks())
    m, n = A.shape
    p = draw(st.integers(1, min(m, n)))
    D = draw(st.one_of(st.just(identity(m)[:p]), matrices((p, m), rationals(1))))
    F = draw(st.one_of(st.just(identity(n)[:, :p]), matrices((n, p), rationals(1))))
    return A, epsilon, k, D, F


@lemma(
    "5.3-decoded-inverse",
    r"\lVert FRD\rVert < 1/\varepsilon,\ R = (DAF)^{-1} \in \mathbb R^{p\times p} \implies"
    r" r_\varepsilon(A) \ge p",
    assumes="r_eps(A) <= k is known",
    given=_decoded().filter(lambda case: rank(case[3] @ case[0] @ case[4]) == len(case[3])),
    mutants={
        "a closed inequality": {"proves": lambda value: value <= 1},
        "the norm of the inverse alone": {"size": lambda D, F, R: norm(R)},
    },
)
def decoded_inverse(
    A,
    epsilon,
    k,
    D,
    F,
    *,
    proves=lambda value: value < 1,
    size=lambda D, F, R: norm(F @ R @ D),
):
    """Inverting a decoded square block gives a Bernstein witness, implied by a product of norms."""
    R = inverse(D @ A @ F)
    yield equal("rank of I - G A", rank(identity(A.shape[1]) - F @ R @ D @ A), A.shape[1] - len(R))
    yield at_most("||F R D||", norm(F @ R @ D), norm(F) * norm(R) * norm(D))
    proven = len(R) if proves(epsilon * size(D, F, R)) else 0
    yield at_most("the proven rank", proven, k)


@lemma(
    "5.3-near-identity",
    r"\lVert D\rVert, \lVert F\rVert \le 1,\ \lVert DAF - I\rVert + \varepsilon < 1 \implies"
    r" r_\varepsilon(A) \ge p",
    assumes="r_eps(A) <= k is known",
    given=_decoded(),
    mutants={
        "a closed inequality": {"proves": lambda value: value <= 1},
        "D of any norm": {"contracts": lambda D, F: norm(F) <= 1},
    },
)
def near_identity(
    A,
    epsilon,
    k,
    D,
    F,
    *,
    proves=lambda value: value < 1,
    contracts=lambda D, F: max(norm(D), norm(F)) <= 1,
):
    """A contractive decoding near to the identity proves its size as rank."""
    distance = norm(D @ A @ F - identity(len(D)))
    if contracts(D, F) and proves(distance + epsilon):
        yield at_most("the proven rank", len(D), k)
        yield less("the decoded inverse agrees", epsilon * norm(inverse(D @ A @ F)), 1)


# 5.4 Fantope-Bernstein


@lemma(
    "5.4-inequality",
    r"BK = 0 \implies A_iKA_i^{\mathsf T} = E_iKE_i^{\mathsf T} \le \varepsilon^2\max_l K_{ll}",
    assumes="A = B + E, ||E|| = eps, K psd",
    given=low_rank_plus_error().flatmap(
        lambda case: st.tuples(*map(st.just, case), matrices((case[0].shape[1], 3)))
    ),
    mutants={
        "eps for its square": {"power": 1},
        "the mean of the diagonal": {"of": lambda diagonal: sum(diagonal) / len(diagonal)},
        "B K need not vanish": {"within": lambda B: identity(B.shape[1])},
    },
)
def fantope_inequality(B, E, epsilon, k, Z, *, power=2, of=max, within=null_space):
    """On the kernel of B a psd form sees the error only, and at most eps^2 of its diagonal."""
    M = within(B)
    half = M @ Z[: M.shape[1]]
    K = half @ half.T
    for a, e in zip(B + E, E, strict=True):
        yield equal("A_i K A_i = E_i K E_i", a @ K @ a, e @ K @ e)
        yield at_most("E_i K E_i", e @ K @ e, epsilon**power * of(list(np.diag(K))))


@st.composite
def _fantopes(draw: DrawFn):
    """A matrix of known rank with T and weights for its columns, negative ones at times."""
    A, epsilon, k = draw(known_ranks())
    return A, epsilon, k, *draw(fantope_weights(A, epsilon, k))


@lemma(
    "5.4-fantope",
    r"\min_{j \in J}\varphi_j > 0 \implies r_\varepsilon(A) \ge k + 1, \quad \varphi_j ="
    r" \textstyle\sum_{i\le q-k}\lambda_i(H_j)",
    assumes="w, v >= 0, J the nonzero rows of T; r_eps(A) <= k is known",
    given=_fantopes(),
    mutants={
        "one column is enough": {"combined": largest},
        "eps for its square": {"constant": lambda e, w, v: e * w.sum() + v.sum()},
        "the sum of v is dropped": {"constant": lambda e, w, v: e**2 * w.sum()},
        "one eigenvalue more": {"beyond": lambda k: max(k - 1, 0)},
        "negative weights": {"weights": lambda w: w},
    },
)
def fantope(
    A,
    epsilon,
    k,
    T,
    w,
    v,
    *,
    combined=least,
    constant=fantope_constant,
    beyond=lambda k: k,
    weights=abs,
):
    """The sums of the q - k smallest eigenvalues cannot all be positive where the rank is k."""
    w, v = weights(w), weights(v)
    phi = [
        _tail_beyond(fantope_form(A, T, w[j], v[j], j, constant(epsilon, w[j], v[j])), beyond(k))
        for j in range(len(T))
        if T[j].any()
    ]
    yield at_most("the least sum", combined(phi), 0)


@lemma(
    "5.4-contains-spectral",
    r"w^j = w,\ v = 0: \quad \varphi_j \ge \textstyle\sum_{i>k}\sigma_i^2"
    r" - \varepsilon^2\lVert T_j\rVert^2",
    assumes="w >= 0 of sum one",
    given=_weighted(),
    mutants={
        "nothing is taken off": {"cost": lambda e, row: 0},
        "eps for its square": {"cost": lambda e, row: e * square_norm(row)},
    },
)
def fantope_contains_spectral(
    B, E, epsilon, k, w, T, *, cost=lambda e, row: e**2 * square_norm(row)
):
    """With common weights the Fantope sums are at least the Hilbert-Schmidt margin."""
    tail_sum = _tail_beyond(_gram(B + E, w, T), k)
    for j, row in enumerate(T):
        phi = _tail_beyond(fantope_form(B + E, T, w, zeros(len(T)), j, epsilon**2), k)
        yield at_most("tail - eps^2 ||T_j||^2 <= phi_j", tail_sum - ball(cost(epsilon, row)), phi)


@lemma(
    "5.4-contains-bernstein",
    r"w = |\lambda|/\varepsilon + \delta,\ v = |\mu| + \delta,\ T = V: \quad H_j \succ 0",
    assumes="lambda^T A V + mu^T V = V_j, 0 < s = eps ||lambda|| + ||mu|| < 1",
    given=invertible_matrices().flatmap(
        lambda A: st.tuples(
            st.just(A),
            matrices((len(A), len(A))).filter(lambda V: rank(V) == len(V)),
            st.sampled_from([Fraction(1, 2), Fraction(3, 4)]),
            st.sampled_from([Fraction(1), Fraction(7, 8)]),
        )
    ),
    mutants={
        "|lambda| is not divided by eps": {"scale": lambda e: 1},
        "delta = 0": {"delta": lambda s, size: 0},
    },
)
def fantope_contains_bernstein(
    A,
    V,
    share,
    damping,
    *,
    scale=lambda e: e,
    delta=lambda s, size: (1 / s - s) / size,
):
    """A strict row of 5.3's subspace form makes the form of 5.4 positive definite (k = q - 1)."""
    m, n = A.shape
    R = inverse(A)
    epsilon = share / norm(R)
    for j in range(n):
        lam = damping * R[j]
        mu = identity(n)[j] - A.T @ lam
        s = epsilon * l1(lam) + l1(mu)
        if s < 1:
            extra = delta(s, epsilon**2 * m + n)
            w, v = abs(lam) / scale(epsilon) + extra, abs(mu) + extra
            H = fantope_form(A, V, w, v, j, fantope_constant(epsilon, w, v))
            definite = is_positive_semidefinite(H) and rank(H) == len(H)
            yield that("positive definite", definite)


@lemma(
    "5.4-dual-pair",
    r"H - sI + Z \succeq 0,\ Z \succeq 0 \implies \textstyle\sum_{i\le d}\lambda_i(H) \ge"
    r" ds - \operatorname{tr} Z",
    given=st.tuples(matrices((3, 2)), matrices((3, 2)), rationals(), st.integers(0, 3)),
    mutants={
        "the trace is dropped": {"cost": lambda Z: 0},
        "the largest diagonal entry for the trace": {"cost": lambda Z: max(np.diag(Z))},
    },
)
def fantope_dual_pair(root, other, s, d, *, cost=np.trace):
    """Any dual pair (s, Z) bounds the sum of the d smallest eigenvalues from below."""
    Z = root @ root.T
    H = s * identity(3) - Z + other @ other.T
    yield at_most("the bound", ball(d * s - cost(Z)), _tail_beyond(H, 3 - d))


# 5.5 to 5.7


@lemma(
    "5.5-singular-distance",
    r"d_{p-1}(M) = 1/\lVert M^{-1}\rVert",
    assumes="M square and invertible",
    given=st.tuples(invertible_matrices()),
    mutants={
        "the largest l1 norm of a column": {"distance": lambda M: 1 / column_norm(inverse(M))},
        "the largest entry": {"distance": lambda M: 1 / abs(inverse(M)).max()},
        "the norm of M": {"distance": lambda M: norm(M)},
    },
)
def distance_to_singularity(M, *, distance=singular_distance):
    """The distance to the singular matrices: a rank-one change attains it, games prove it."""
    E = singular_change(M)
    yield equal("the change has this norm", norm(E), distance(M))
    yield at_most("its rank", rank(E), 1)
    yield less("the changed matrix is singular", rank(M - E), len(M))
    yield equal("no smaller change is", corank_one(M).distance, distance(M))


@st.composite
def _spectral_bases(draw: DrawFn):
    """(S, Q, scale, k): S symmetric, Q near to (or far from) eigenvectors of norm scale."""
    if draw(st.sampled_from([False, False, True])):
        pairs = np.kron(identity(2), matrix([[2, 1], [1, 2]]))
        return pairs, 4 * identity(4), 4, draw(st.integers(1, 3))
    root = draw(st.integers(1, 3).flatmap(lambda n: matrices((n, n))))
    S, n = draw(st.sampled_from([root.T @ root, root + root.T])), len(root)
    Q, scale = draw(st.sampled_from([(matrix(eigenbasis(S)), BASIS), (4 * identity(n), 4)]))
    noise = draw(st.one_of(st.just(0 * S), matrices((n, n), st.integers(-1, 1))))
    return S, Q + noise, scale, draw(st.integers(0, n))


def _defect(Q, scale):
    return norm(Q.T @ Q / scale**2 - identity(len(Q)))


@lemma(
    "5.6-topsum",
    r"\textstyle\sum_{i\le k}\lambda_i^{\downarrow}(S) \le"
    r" \frac{\sum_{i\le k}\Lambda_i^{\downarrow} + k\lVert E\rVert}{1-\delta}",
    assumes="S psd, Q^T S Q = Lambda + E, ||Q^T Q - I|| <= delta < 1",
    given=_spectral_bases().filter(
        lambda case: is_positive_semidefinite(case[0]) and _defect(case[1], case[2]) < 1
    ),
    mutants={
        "the off-diagonal part is dropped": {"spread": lambda E, k: 0},
        "one ||E|| for all k": {"spread": lambda E, k: norm(E) if k else 0},
        "Q taken as orthogonal": {"stretch": lambda delta: 1},
        "divided by 1 + delta": {"stretch": lambda delta: 1 + delta},
    },
)
def topsum(S, Q, scale, k, *, spread=lambda E, k: k * norm(E), stretch=lambda delta: 1 - delta):
    """Approximate eigenvectors of any quality bound the sum of the k largest eigenvalues."""
    turned = Q.T @ S @ Q / scale**2
    top = sorted(np.diag(turned), reverse=True)[:k]
    E = turned - np.diag(np.diag(turned))
    bound = (sum(top) + spread(E, k)) / stretch(_defect(Q, scale))
    yield at_most("topsum", _tail_beyond(-S, len(S) - k) * -1, ball(bound))


def _bottom(S, Q, scale, count, *, radius=1, side=1):
    """The kernel's formula: Gershgorin ends of Q^T S Q, each at its unfavourable factor."""
    turned, delta = Q.T @ S @ Q / scale**2, _defect(Q, scale)
    others = abs(turned).sum(axis=1) - abs(np.diag(turned))
    ends = sorted(np.diag(turned) - radius * others)
    return sum(x / (1 + side * delta * (1 if x > 0 else -1)) for x in ends[:count])


@lemma(
    "5.6-kernel",
    r"\mathrm{bottom\_sum}(S, Q, c) \le \textstyle\sum_{i\le c}\lambda_i(S)",
    assumes="S symmetric, ||Q^T Q - I|| < 1",
    given=_spectral_bases().filter(lambda case: _defect(case[1], case[2]) < 1),
    mutants={
        "the off-diagonal part is dropped": {"formula": partial(_bottom, radius=0)},
        "the favourable factors": {"formula": partial(_bottom, side=-1)},
        "Q taken as orthogonal": {"formula": partial(_bottom, side=0)},
    },
)
def bottom_sums(S, Q, scale, count, *, formula=_bottom):
    """The kernel's sum of the smallest eigenvalues is a lower bound, whatever the basis."""
    bound = formula(S, Q, scale, count)
    yield at_most("the bound", ball(bound), _tail_beyond(S, len(S) - count))
    form, basis = (Limbs.of(F.astype(np.int64)) for F in (S, Q))
    yield equal("the kernel's own value", bottom_sum(form, basis, scale, count), bound)


def _domination(E, w):
    return (w * abs(E).sum(axis=1)) @ abs(E)


@lemma(
    "5.7-domination",
    r"c_l = \textstyle\sum_i w_i\lVert E_i\rVert_1|E_{il}|: \quad"
    r" E^{\mathsf T}\operatorname{diag}(w)E \preceq \operatorname{diag}(c),"
    r"\ \textstyle\sum_l c_l \le \varepsilon^2",
    assumes="w >= 0 of sum one, A = B + E, rank B <= k, ||E|| = eps",
    given=_weighted(),
    mutants={
        "the squares of the entries alone": {"dominating": lambda E, w: w @ E**2},
        "half of it": {"dominating": lambda E, w: _domination(E, w) / 2},
        "eps for its square": {"power": 1},
        "k - 1 positive eigenvalues": {"most": lambda k: k - 1},
    },
)
def domination(B, E, epsilon, k, w, T, *, dominating=_domination, power=2, most=lambda k: k):
    """A diagonal of sum at most eps^2 dominates the weighted error: at most k signs remain."""
    c = dominating(E, w)
    A = B + E
    yield at_most("sum c", c.sum(), epsilon**power)
    difference = np.diag(c) - _gram(E, w, identity(len(c)))
    yield that("dominated", is_positive_semidefinite(difference))
    rest = _gram(A, w, identity(len(c))) - np.diag(c)
    positive = sum(value > 0 for value in eigenvalues(rest))
    yield at_most("positive eigenvalues", positive, most(k))


@lemma(
    "5.7-sup",
    r"A_iKA_i^{\mathsf T} \le \varepsilon\max_l|(A_iK)_l|, \quad"
    r" (A_iK)_l^2 \le K_{ll}\,A_iKA_i^{\mathsf T}",
    assumes="B K = 0, K psd, A = B + E, ||E|| = eps",
    given=low_rank_plus_error().flatmap(
        lambda case: st.tuples(*map(st.just, case), matrices((case[0].shape[1], 3)))
    ),
    mutants={
        "the mean for the maximum": {"of": lambda x: sum(x) / len(x)},
        "eps squared": {"power": 2},
        "off the kernel too": {"within": lambda B: identity(B.shape[1])},
    },
)
def sup_inequality(B, E, epsilon, k, Z, *, of=max, power=1, within=null_space):
    """The valid and unused inequality that sees how spread a residual is."""
    M = within(B)
    half = M @ Z[: M.shape[1]]
    K = half @ half.T
    for a in B + E:
        image, value = a @ K, a @ K @ a
        yield at_most("A_i K A_i", value, epsilon**power * of(list(abs(image))))
        for x, d in zip(image, np.diag(K), strict=True):
            yield at_most("(A_i K)_l^2", x**2, d * value)


# 5.8 Shattering


def _beyond(targets):
    """A matrix of known rank k, or one where mutually orthogonal values matter, and p = k + 1."""
    signs = matrix([[1, 1], [1, -1]])
    sized = either(targets, positive_rationals().map(lambda e: (e * signs, e, 1)))
    return sized.flatmap(
        lambda case: st.tuples(*map(st.just, case), shatterings(case[0], case[2] + 1))
    )


def _gains(A, D, facets, Y, *, worst=min, others=lambda most: most):
    """g_i of 5.8 for every row i of D."""
    Z, gains, done = D @ A @ Y.T, [Fraction(0)] * len(D), 0
    for block in facets:
        part = slice(done, done + len(block))
        for i in range(len(D)):
            own = [sign * z for sign, z in zip(block[:, i], Z[i, part], strict=True) if sign]
            gains[i] += worst(own) if own else -others(max(abs(Z[i, part])))
        done = part.stop
    return gains


def _reach(facets, Y, combined=sum):
    """u of 5.8: the largest entry of a value, a facet taken from every block."""
    ends = np.cumsum([len(block) for block in facets])[:-1]
    return max(combined([abs(part).max(axis=0) for part in np.split(Y, ends)]))


def _kept(whole, facets):
    """Which of the facets are among those of a mutant."""
    pairs = zip(whole, facets, strict=True)
    return [facet.tolist() in kept.tolist() for block, kept in pairs for facet in block]


@lemma(
    "5.8-shattering",
    r"g_i > \varepsilon\,u\,\lVert D_i\rVert_1\ \forall i \implies r_\varepsilon(A) \ge p",
    assumes="blocks of cross-polytopes, edges divided; r_eps(A) <= k is known",
    given=_beyond(known_ranks()),
    mutants={
        "a closed inequality": {"proves": lambda margins: min(margins) >= 0},
        "the mean query": {"proves": lambda margins: sum(margins) > 0},
        "the best query": {"proves": lambda margins: max(margins) > 0},
        "the pattern that suits": {"worst": max},
        "the first pattern alone": {"worst": lambda values: values[0]},
        "other blocks for nothing": {"others": lambda most: 0},
        "values of one block": {"combined": lambda parts: np.max(parts, axis=0)},
        "queries of any length": {"length": lambda d: 1},
        "one part of a divided facet": {"parts": 1},
    },
)
def shattering(
    A,
    epsilon,
    k,
    witness,
    *,
    proves=lambda margins: min(margins) > 0,
    worst=min,
    others=lambda most: most,
    combined=sum,
    length=l1,
    parts=2,
):
    """Where the rank is k, no k + 1 queries are driven beyond eps with any signs asked for."""
    D, blocks, edges, Y = witness
    facets = divided(blocks, edges, parts)
    Y = Y[_kept(divided(blocks, edges), facets)]
    gains = _gains(A, D, facets, Y, worst=worst, others=others)
    cost = epsilon * _reach(facets, Y, combined)
    margins = [g - cost * length(d) for g, d in zip(gains, D, strict=True)]
    yield at_most("the proven rank", sum(blocks) if proves(margins) else 0, k)


@lemma(
    "5.8-driven",
    r"\lambda^{\mathsf T}DB = 0 \implies \textstyle\sum_i |\lambda_i| g_i"
    r" \le \varepsilon\,u \sum_i |\lambda_i|\,\lVert D_i\rVert_1",
    assumes="A = B + E, rank B <= k, ||E|| = eps, D of k + 1 rows",
    given=low_rank_plus_error().flatmap(
        lambda case: st.tuples(
            *map(st.just, case), shatterings(case[0] + case[1], case[-1] + 1, edges=0)
        )
    ),
    mutants={
        "lambda for its size": {"size": lambda lam: lam},
        "eps for nothing": {"price": 0},
    },
)
def driven_outputs(B, E, epsilon, k, witness, *, size=abs, price=1):
    """The step behind 5.8: a combination of queries that B does not see."""
    D, blocks, _, Y = witness
    facets = divided(blocks, [])
    gains, cost = _gains(B + E, D, facets, Y), price * epsilon * _reach(facets, Y)
    for lam in null_space((D @ B).T).T:
        paid = sum(abs(lam) * np.array([cost * l1(d) for d in D], dtype=object))
        yield at_most("the driven output", sum(size(lam) * np.array(gains, dtype=object)), paid)
