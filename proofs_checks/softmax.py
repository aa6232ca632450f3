"""MATH 3: what softmax sees, the residual, the size and the profile."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import factorial

import numpy as np
from flint import arb
from hypothesis import strategies as st

from oracles.balls import ball
from oracles.rational import (
    centred,
    identity,
    inner,
    inverse,
    is_positive_semidefinite,
    matrix,
    ones,
    rank,
    square_norm,
    zeros,
)
from oracles.two_bit import channel

from .clauses import at_most, equal, less, that
from .formulas import (
    CHARACTERS,
    ball_norm,
    balls,
    contrast,
    cycle_mean,
    eigenvalues,
    entrywise,
    factors,
    l1,
    monomials,
    oscillation,
    potentials,
    radius_square,
    residual,
    row_weights,
    singular_distance,
    softmax,
    tau,
    two_tanh,
)
from .lemma import lemma
from .strategies import (
    additive,
    doubly_centred,
    logit_pairs,
    logits,
    matrices,
    orthogonal_gauges,
    positive_rationals,
    probability_vectors,
    proper_fractions,
    queries_and_keys,
    rationals,
    shapes,
    single_entries,
    vectors,
)

# 3.1 The projective inequality


@lemma(
    "3.1-projective-inequality",
    r"\lVert\sigma(x) - \sigma(y)\rVert_1 \le 2\tanh(\operatorname{osc}(x - y)/4)",
    assumes="finite logits",
    given=logit_pairs(),
    mutants={
        "the factor 2 is dropped": {"bound": lambda osc: ball(osc / 4).tanh()},
        "osc / 8 for osc / 4": {"bound": lambda osc: two_tanh(osc / 8)},
        "the mean absolute difference for the oscillation": {
            "size": lambda z: 2 * abs(z).sum() / len(z)
        },
    },
)
def projective_inequality(x, y, *, bound=tau, size=oscillation):
    """Two softmax rows differ in l1 by at most 2 tanh(osc/4) of the difference of their logits."""
    yield at_most("the distance", l1(softmax(x) - softmax(y)), bound(size(x - y)))


@lemma(
    "3.1-sharp",
    r"n = 2,\ x = -y \implies \lVert\sigma(x) - \sigma(y)\rVert_1"
    r" = 2\tanh(\operatorname{osc}(x - y)/4)",
    assumes="two entries",
    given=st.tuples(vectors(2, rationals())),
    mutants={
        "against the uniform row": {"other": lambda x: 0 * x},
        "the same with three entries": {"row": lambda x: np.append(x, zeros(1))},
    },
)
def projective_inequality_is_sharp(x, *, other=lambda x: -x, row=lambda x: x):
    """Opposite logits of two entries attain the projective inequality."""
    x = row(x)
    y = other(x)
    yield equal("the distance", l1(softmax(x) - softmax(y)), tau(oscillation(x - y)))


def _ratio_bound(a, b):
    return 2 * (b - 1) * (1 - a) / (b - a) if b > a else Fraction(0)


@lemma(
    "3.1-ratio",
    r"a \le p_j/q_j \le b \implies \lVert p - q\rVert_1 \le \frac{2(b-1)(1-a)}{b-a}",
    assumes="positive probability vectors",
    given=st.integers(2, 4).flatmap(
        lambda n: st.tuples(probability_vectors(n, True), probability_vectors(n, True))
    ),
    mutants={
        "the factor 2 is dropped": {"bound": lambda a, b: _ratio_bound(a, b) / 2},
        "the smaller of the two one-sided bounds": {"bound": lambda a, b: min(b - 1, 1 - a)},
    },
)
def ratio_bound(p, q, *, bound=_ratio_bound):
    """The step behind 3.1: an l1 bound from the extreme ratios of two probability vectors."""
    ratios = p / q
    yield at_most("the distance", l1(p - q), bound(min(ratios), max(ratios)))


@lemma(
    "3.1-maximised",
    r"\frac{b}{a} = \rho^2,\ a \le 1 \le b \implies"
    r" \frac{2(b-1)(1-a)}{b-a} \le \frac{2(\rho-1)}{\rho+1}",
    assumes="rho > 1",
    given=st.tuples(positive_rationals(), proper_fractions()),
    mutants={"the root is forgotten": {"bound": lambda rho: _at_root(rho) ** 2 / 2}},
)
def ratio_bound_maximised(excess, place, *, bound=lambda rho: _at_root(rho)):
    """Over all positions of [a, b] with b/a = e^osc the bound of the ratios is 2 tanh(osc/4)."""
    rho = 1 + excess
    a = 1 / rho**2 + place * (1 - 1 / rho**2)
    yield at_most("inside the interval", _ratio_bound(a, a * rho**2), bound(rho))
    yield equal("attained at a = 1/rho", _ratio_bound(1 / rho, rho), bound(rho))


def _at_root(rho):
    return 2 * (rho - 1) / (rho + 1)


# 3.2, 3.3 The visible interaction


def _rows_centred(H):
    return H - H.mean(axis=1, keepdims=True)


@lemma(
    "3.2-visible",
    r"C(A) = P_m (\log A) P_n = P_m H P_n",
    assumes="finite logits",
    given=shapes(3).flatmap(lambda shape: st.tuples(matrices(shape, rationals()), additive(shape))),
    mutants={
        "rows centred only": {"visible": _rows_centred},
        "columns centred only": {"visible": lambda H: _rows_centred(H.T).T},
        "both means taken off, the grand mean not put back": {
            "visible": lambda H: centred(H) - H.mean()
        },
    },
)
def visible_interaction(H, additional, *, visible=centred):
    """The doubly centred logits are those of A, whatever row and column constants are added."""
    log_A = entrywise(arb.log, softmax(H))
    yield equal("from the logits or from A", balls(visible(H)), _centred_balls(log_A))
    yield equal("additive terms are invisible", visible(H + additional), visible(H))


def _centred_balls(F):
    m, n = F.shape
    rows, columns = F.sum(axis=1) / n, F.sum(axis=0) / m
    return F - rows[:, None] - columns[None, :] + F.sum() / (m * n)


@lemma(
    "3.2-row-constants",
    r"\sigma(H + a 1^{\mathsf T}) = \sigma(H)",
    assumes="finite logits",
    given=shapes(3).flatmap(lambda shape: st.tuples(logits(shape), matrices(shape, rationals()))),
    mutants={"column constants change nothing either": {"constants": lambda F: F[:1, :]}},
)
def row_constants(H, F, *, constants=lambda F: F[:, :1]):
    """Row constants of the logits do not change attention; column constants do (base weights)."""
    yield equal("the rows", softmax(H + constants(F)), softmax(H))


def _differences(X):
    return X - X[0]


def _projector(X):
    """The orthogonal projector on the row space of X (k x d)."""
    _, Y = factors(X)
    return Y.T @ inverse(Y @ Y.T) @ Y if len(Y) else zeros(X.shape[1], X.shape[1])


@lemma(
    "3.3-dimension",
    r"\operatorname{rank} C = \dim P_U\operatorname{span}\{k_j - k_1\},"
    r" \quad U = \operatorname{span}\{q_i - q_1\}",
    assumes="H = Q K^T",
    given=queries_and_keys(),
    mutants={
        "U spanned by the queries themselves": {"queries": lambda Q: Q},
        "V spanned by the keys themselves": {"keys": lambda K: K},
        "no projection": {"project": lambda Q: identity(Q.shape[1])},
        "the rank of the logits": {"interaction": lambda H: H},
    },
)
def visible_dimension(
    Q, K, *, queries=_differences, keys=_differences, project=_projector, interaction=centred
):
    """The rank of the visible interaction is the dimension of the keys as the queries see them."""
    V = keys(K) @ project(queries(Q))
    yield equal("rank", rank(interaction(Q @ K.T)), rank(V))


@st.composite
def _invisible(draw):
    Q, K = draw(queries_and_keys(dimension=3))
    return Q, K, draw(matrices((len(Q), 3))), draw(matrices((len(K), 3)))


@lemma(
    "3.3-invisible-keys",
    r"z_j \perp U \implies C(Q(K + Z)^{\mathsf T}) = C(QK^{\mathsf T})",
    assumes="H = Q K^T, U spanned by differences of queries",
    given=_invisible(),
    mutants={
        "any change of the keys": {"hidden": lambda Q: identity(3)},
        "a change that A does not see either": {"seen_by": lambda H: softmax(H)},
    },
)
def invisible_keys(
    Q, K, W, Z, *, hidden=lambda Q: identity(3) - _projector(_differences(Q)), seen_by=centred
):
    """A part of the keys orthogonal to U is a column constant: C does not see it (A may)."""
    yield equal("unchanged", seen_by(Q @ (K + Z @ hidden(Q)).T), seen_by(Q @ K.T))


def _beyond_visible(Q, K):
    """The projector on the part of U orthogonal to V = P_U span{k_j - k_1}."""
    U = _projector(_differences(Q))
    return U - _projector(_differences(K) @ U)


@lemma(
    "3.3-invisible-queries",
    r"z_i \in U,\ z_i \perp V \implies \sigma((Q + Z)K^{\mathsf T}) = \sigma(QK^{\mathsf T})",
    assumes="H = Q K^T; the change of the queries lies in U",
    given=_invisible(),
    mutants={
        "orthogonal to V, in U or not": {
            "hidden": lambda Q, K: (
                identity(3) - _projector(_differences(K) @ _projector(_differences(Q)))
            )
        },
        "in U, orthogonal to V or not": {"hidden": lambda Q, K: _projector(_differences(Q))},
    },
)
def invisible_queries(Q, K, W, Z, *, hidden=_beyond_visible):
    """A part of the queries in U and orthogonal to V changes nothing at all, not even A."""
    yield equal("A unchanged", softmax((Q + W @ hidden(Q, K)) @ K.T), softmax(Q @ K.T))


# 3.4, 3.5 The residual q

THREE_CYCLE = matrix([[1, -1, 0], [0, 1, -1], [-1, 0, 1]])


def interactions():
    three_cycles = st.permutations(range(3)).map(lambda order: THREE_CYCLE[list(order)])
    return st.one_of(matrices(shapes(3)), three_cycles)


@lemma(
    "3.4-two-forms",
    r"\min_b\max_i\operatorname{osc}(F_i - b) = 2\min_{a,b}\max_{ij}|F_{ij} - a_i - b_j|",
    given=interactions().flatmap(lambda F: st.tuples(st.just(F), vectors(F.shape[1]))),
    mutants={
        "the factor 2 is dropped": {"factor": 1},
        "the mean of a row as its constant": {"middle": lambda row: row.mean()},
    },
)
def residual_forms(F, b, *, factor=2, middle=lambda row: (max(row) + min(row)) / 2):
    """For any b the best row constants are the middles, so both forms of q agree."""
    rest = F - b
    a = np.array([middle(row) for row in rest], dtype=object)
    largest = abs(rest - a[:, None]).max()
    yield equal("osc", factor * largest, max(oscillation(row) for row in rest))


@lemma(
    "3.4-cycle-mean",
    r"q(F) = \max_{\text{cycles}} \frac1l\sum_t (F_{i_{t+1} j_t} - F_{i_t j_t})",
    given=st.tuples(interactions()),
    mutants={
        "cycles of length two only": {"q": lambda F: cycle_mean(row_weights(F), 2)},
        "the mean over 2l edges": {"q": lambda F: residual(F) / 2},
        "the least column for the largest": {"q": lambda F: cycle_mean(-row_weights(-F))},
    },
)
def residual_is_a_cycle_mean(F, *, q=residual):
    """q is the largest cycle mean of a digraph on rows or columns: potentials attain it."""
    value = q(F)
    a, b = potentials(F, residual(F))
    yield equal("potentials attain it", 2 * abs(F - a[:, None] - b[None, :]).max(), value)
    yield equal("columns give the same", residual(F.T), value)


@st.composite
def _duals(draw):
    F = draw(interactions())
    D = draw(matrices(F.shape).filter(lambda D: centred(D).any()))
    return F, D


@lemma(
    "3.4-dual",
    r"q(F) \ge \langle F, D\rangle, \quad D1 = 0,\ 1^{\mathsf T}D = 0,"
    r"\ \textstyle\sum|D_{ij}|\le 2",
    given=_duals(),
    mutants={
        "sum |D| up to 4": {"total": 4},
        "rows of D centred only": {"balanced": _rows_centred},
        "columns of D centred only": {"balanced": lambda D: _rows_centred(D.T).T},
    },
)
def residual_dual(F, D, *, total=2, balanced=centred):
    """Every doubly centred D of total size 2 is a lower bound of q."""
    D = balanced(D)
    yield at_most("<F, D> <= q", total * inner(F, D) / abs(D).sum(), residual(F))


@lemma(
    "3.4-seminorm",
    r"q(F + G) \le q(F) + q(G), \quad q(cF) = |c|\,q(F), \quad q(F) = 0 \iff F_{ij} = a_i + b_j",
    given=shapes(3).flatmap(
        lambda shape: st.tuples(
            matrices(shape),
            st.one_of(matrices(shape), additive(shape)),
            st.one_of(rationals(), st.just(Fraction(0))),
        )
    ),
    mutants={
        "no column constants: the largest oscillation of a row": {
            "q": lambda F: max(oscillation(row) for row in F)
        },
        "no sign: the scalar itself": {"scale": lambda c: c},
        "the square": {"q": lambda F: residual(F) ** 2},
    },
)
def residual_is_a_seminorm(F, G, c, *, q=residual, scale=abs):
    """q is a seminorm that vanishes exactly on the additive matrices."""
    yield at_most("triangle", q(F + G), q(F) + q(G))
    yield equal("homogeneous", q(c * F), scale(c) * q(F))
    yield that("zero iff additive", (q(G) == 0) == (not centred(G).any()))


@st.composite
def _truncations(draw):
    H = draw(matrices(shapes(3), rationals()))
    return H, draw(st.one_of(doubly_centred(H.shape), st.just(0 * H)))


@lemma(
    "3.4-tau",
    r"\lVert\sigma(H) - \sigma(T + a1^{\mathsf T} + 1b^{\mathsf T})\rVert \le"
    r" 2\tanh(q(C - T)/4) \text{ for the best } b",
    assumes="T doubly centred",
    given=_truncations(),
    mutants={
        "the factor 2 is dropped": {"bound": lambda q: ball(q / 4).tanh()},
        "q / 8 for q / 4": {"bound": lambda q: two_tanh(q / 8)},
        "without the column constants": {"base": lambda H, T: T},
        "q of another truncation": {"of": lambda C, T: 0 * C},
    },
)
def tau_bounds_the_distance(
    H, T, *, bound=tau, base=lambda H, T: T + _base(H - T), of=lambda C, T: C - T
):
    """Some softmax with visible interaction T is within tau(T) = 2 tanh(q(C - T)/4) of A."""
    nearby = base(H, T)
    distance = ball_norm(softmax(H) - softmax(nearby))
    yield equal("its visible interaction is T", centred(nearby), T)
    yield at_most("the distance", distance, bound(residual(of(centred(H), T))))


def _base(F):
    """The column constants that attain q(F)."""
    return potentials(F, residual(F))[1]


@lemma(
    "3.5-contrast",
    r"q(F) \ge \tfrac12\max|F_{ij} - F_{ij'} - F_{i'j} + F_{i'j'}|",
    given=st.tuples(interactions()),
    mutants={
        "the half is dropped": {"share": 1},
        "contrasts suffice (the 3-cycle)": {"relation": equal},
    },
)
def contrast_bound(F, *, share=Fraction(1, 2), relation=at_most):
    """Half the largest rectangular contrast is a lower bound of q, and not q in general."""
    yield relation("contrast / 2", share * contrast(F), residual(F))


# 3.6 The size kappa


BALANCED_SIGNS = matrix(s for s in product((1, -1), repeat=4) if sum(s) == 0)
"""6 x 4, doubly centred, with equal singular values: its size exceeds its entries."""


@st.composite
def _free_duals(draw):
    X, Y = draw(queries_and_keys(3).filter(lambda XY: len(XY[0]) > 1 and len(XY[1]) > 1))
    shape = len(X), len(Y)
    duals = st.one_of(matrices(shape, st.sampled_from([0, 1, -1, 2])), single_entries(shape))
    return X, Y, draw(duals.filter(_is_interaction))


def factors_and_duals():
    """Factors X, Y and a D of their shape; at times a simplex, where q/2 and means are far off."""
    special = [
        (identity(3), identity(3)),
        (identity(4), identity(4)),
        (BALANCED_SIGNS, identity(4)),
        (identity(3)[:, :1], identity(2)[:, :1]),
    ]
    aligned = st.sampled_from([(X, Y, X @ Y.T) for X, Y in special])
    return st.one_of(_free_duals(), aligned)


def _is_interaction(D):
    return centred(D).any()


def dual_triple(D):
    """(mu, nu, D) with [[diag mu, D], [D^T, diag nu]] psd and mu, nu of sum one.

    By diagonal dominance the absolute sums of rows and columns will do; uniform weights are better
    for a D of equal singular values, so the larger multiple of D is taken.
    """
    m, n = D.shape
    D = D / abs(D).sum()
    rows, columns = abs(D).sum(axis=1), abs(D).sum(axis=0)
    uniform = ones(m) / m, ones(n) / n
    for factor in (4, 3, 2, Fraction(3, 2), Fraction(4, 3)):
        if is_positive_semidefinite(_block(*uniform, factor * D)):
            return *uniform, factor * D
    return rows, columns, D


def _block(mu, nu, D):
    return np.block([[np.diag(mu), D], [D.T, np.diag(nu)]])


def _dual_value(T, D, balanced=centred):
    """A lower bound of kappa(T) from any D that is not additive (MATH 3.6)."""
    _, _, D = dual_triple(balanced(D))
    return max(inner(T, D), -inner(T, D))


@lemma(
    "3.6-weak-duality",
    r"\langle T, D\rangle \le R(X) R(Y), \quad XY^{\mathsf T} = T"
    r" \text{ up to additive terms}",
    assumes="D doubly centred, [[diag mu, D], [D^T, diag nu]] psd, mu and nu of sum one",
    given=factors_and_duals(),
    mutants={
        "D need not be doubly centred": {"balanced": lambda D: D},
        "twice the dual value": {"factor": 2},
        "half the diameter for the radius": {
            "radius": lambda X: max(square_norm(x - y) for x in X for y in X) / 4
        },
    },
)
def size_weak_duality(X, Y, D, *, balanced=centred, factor=1, radius=radius_square):
    """A dual triple (mu, nu, D) bounds the size of every factorisation from below."""
    value = factor * _dual_value(centred(X @ Y.T), D, balanced)
    yield at_most("<T, D>^2 <= R(X)^2 R(Y)^2", value**2, radius(X) * radius(Y))


@lemma(
    "3.6-block",
    r"\begin{pmatrix}\operatorname{diag}\mu & D\\ D^{\mathsf T} & \operatorname{diag}\nu"
    r"\end{pmatrix} \succeq 0 \iff"
    r" \lVert\operatorname{diag}(\mu)^{-1/2} D \operatorname{diag}(\nu)^{-1/2}\rVert \le 1",
    assumes="mu, nu > 0",
    given=shapes(3).flatmap(
        lambda shape: st.tuples(
            vectors(shape[0], st.integers(1, 4)),
            vectors(shape[1], st.integers(1, 4)),
            matrices(shape, st.integers(-2, 2)),
        )
    ),
    mutants={
        "the weights for their roots": {"power": 2},
        "no weights": {"power": 0},
    },
)
def size_block(mu, nu, D, *, power=1):
    """The dual constraint needs no square roots: it is that a block matrix is psd (exact LDL^T)."""
    # Similar to the Gram matrix of diag(mu)^-1/2 D diag(nu)^-1/2, and rational.
    gram = (D / mu[:, None] ** power) @ (D.T / nu[:, None] ** power)
    largest = eigenvalues(gram)[-1]
    contraction = at_most("op norm <= 1", largest, 1).holds
    yield that("psd iff contraction", is_positive_semidefinite(_block(mu, nu, D)) == contraction)


@lemma(
    "3.6-lower-bounds",
    r"\kappa(T) \ge q(T)/2 \ge \tfrac14\max|T_{ij} - T_{ij'} - T_{i'j} + T_{i'j'}|",
    given=factors_and_duals(),
    mutants={
        "q for q / 2": {"share": 1},
        "half the contrast": {"contrast_share": Fraction(1, 2)},
    },
)
def size_lower_bounds(X, Y, D, *, share=Fraction(1, 2), contrast_share=Fraction(1, 4)):
    """No factorisation has a radius product below q/2, nor below a quarter of a contrast."""
    T = X @ Y.T
    square = radius_square(X) * radius_square(Y)
    yield at_most("q / 2", (share * residual(T)) ** 2, square)
    yield at_most("contrast / 4", contrast_share * contrast(T), residual(T) / 2)


@lemma(
    "3.6-upper-bound",
    r"\kappa(T) \le \sqrt{\operatorname{rank} T + 2}\; q(T)/2",
    assumes="tested on dual lower bounds of kappa",
    given=factors_and_duals(),
    mutants={
        "the root factor is dropped": {"stretch": lambda rank: 1},
        "half the rank for the rank plus two": {"stretch": lambda rank: Fraction(rank, 2)},
    },
)
def size_upper_bound(X, Y, D, *, stretch=lambda rank: rank + 2):
    """The size exceeds q/2 by at most the square root of the rank plus two (John's theorem)."""
    T = centred(X @ Y.T)
    bound = stretch(rank(T)) * residual(T) ** 2 / 4
    yield at_most("<T, D>^2", _dual_value(T, D) ** 2, bound)


@lemma(
    "3.6-centring",
    r"(X - 1c^{\mathsf T})(Y - 1d^{\mathsf T})^{\mathsf T} = XY^{\mathsf T} + a1^{\mathsf T}"
    r" + 1b^{\mathsf T}",
    given=queries_and_keys(3, 2).flatmap(
        lambda XY: st.tuples(st.just(XY[0]), st.just(XY[1]), vectors(2), vectors(2))
    ),
    mutants={
        "nothing is added": {"up_to": lambda F: F},
        "only row constants are added": {"up_to": _rows_centred},
    },
)
def size_centring(X, Y, c, d, *, up_to=centred):
    """Moving both factors adds only additive terms, so factors may be put at their ball centres."""
    yield equal("up to additive terms", up_to((X - c) @ (Y - d).T), up_to(X @ Y.T))


@lemma(
    "3.6-projection",
    r"\exists X', Y' \text{ of } \operatorname{rank} T \text{ dimensions}:"
    r" R(X')R(Y') \le R(X)R(Y)",
    assumes="T = P X Y^T P",
    given=queries_and_keys(3, 2),
    mutants={
        "projected on the first difference alone": {"visible": lambda X: _projector(X[1:2] - X[0])},
        "projected on the points, not their differences": {"visible": _projector},
    },
)
def size_projection(X, Y, *, visible=lambda X: _projector(_differences(X))):
    """Projecting both factors to what the other one sees keeps T, and no radius grows."""
    X_ = X @ visible(Y)
    Y_ = Y @ visible(X_)
    T = centred(X @ Y.T)
    yield equal("T is kept", centred(X_ @ Y_.T), T)
    yield at_most("R(X)", radius_square(X_), radius_square(X))
    yield at_most("R(Y)", radius_square(Y_), radius_square(Y))
    yield at_most("the dimension", rank(_differences(Y_)), rank(T))


def _root(square):
    return ball(square).sqrt()


@lemma(
    "3.6-mismatch",
    r"\kappa(T) \le R(X)R(Y) + \max_i\lVert M_i\rVert_2, \quad M = T - XY^{\mathsf T}",
    assumes="tested on dual lower bounds of kappa",
    given=st.tuples(factors_and_duals(), st.integers(0, 2)).map(lambda case: (*case[0], case[1])),
    mutants={
        "the largest entry of the mismatch": {"cost": lambda M: ball(abs(M).max())},
        "the mismatch is free": {"cost": lambda M: ball(0)},
    },
)
def size_mismatch(X, Y, D, kept, *, cost=lambda M: _root(max(square_norm(row) for row in M))):
    """Factors that miss T by M bound its size up to the largest Euclidean row norm of M."""
    T, X = X @ Y.T, X[:, :kept]
    approximate = X @ Y[:, :kept].T
    bound = _root(radius_square(X) * radius_square(Y[:, :kept])) + cost(T - approximate)
    yield at_most("<T, D>", ball(_dual_value(centred(T), D)), bound)


# 3.7 to 3.9 The profile


@lemma(
    "3.7-zero-size",
    r"\kappa(T) = 0,\ \tau(T) < \varepsilon \implies r_\varepsilon(A) \le 1",
    assumes="finite logits",
    given=st.tuples(matrices(shapes(3), rationals())),
    mutants={
        "the factor 2 of tau is dropped": {"bound": lambda q: ball(q / 4).tanh()},
        "the mean logits as base weights": {"base": lambda H: H.mean(axis=0)},
    },
)
def profile_of_size_zero(H, *, bound=tau, base=lambda H: potentials(H, residual(H))[1]):
    """With no interaction kept, one row of base weights is within tau(0) of every row of A."""
    row = softmax(base(H))
    yield at_most("the distance", ball_norm(softmax(H) - row), bound(residual(centred(H))))


@lemma(
    "3.7-constant",
    r"r_\varepsilon(K_t) \le C_1\bigl(1 + \kappa(C)/\varepsilon^2\bigr)^{1/2}, \quad C_1 = 2",
    assumes="0 < eps < t < 1, T = C, where kappa = log((1+t)/(1-t))/2 (MATH 9.3) and tau = 0",
    given=st.tuples(proper_fractions(), proper_fractions()),
    mutants={"the shape printed as if it were a bound, C_1 = 1": {"constant": 1}},
)
def profile_constant(t, share, *, constant=2):
    """The profile is a shape: its constant matters, and no number without it is a bound."""
    epsilon = t * (1 - share / 8)
    kappa = (ball(1 + t) / ball(1 - t)).log() / 2
    r = 2 if singular_distance(channel(t)) > epsilon else 1
    yield at_most("r^2", r**2, constant**2 * (1 + kappa / ball(epsilon) ** 2))


@st.composite
def _polynomial_rows(draw):
    r = draw(st.sampled_from([1, 1, 2]))
    X, Y = draw(matrices((4, r), rationals(1))), draw(matrices((4, r), rationals(1)))
    if draw(st.booleans()):
        Y = np.repeat(Y[:1], 4, axis=0)
    return X, Y, draw(vectors(4, st.integers(1, 3))), draw(st.integers(0, 4))


def _taylor(Z, degree, centre=Fraction(0)):
    """sum_d (z - c)^d / d!, up to the factor e^c the Taylor polynomial of exp at c."""
    return sum((Z - centre) ** d / factorial(d) for d in range(degree + 1))


def _taylor_error(kappa, degree):
    return ball(kappa).exp() * ball(kappa ** (degree + 1) / factorial(degree + 1))


def _approximant(Z, w, polynomial):
    """Rows w_j P(z_ij) / sum_j w_j exp(z_ij): the exact normaliser."""
    exp = entrywise(arb.exp, balls(Z)) * balls(w)
    return exp / exp.sum(axis=1, keepdims=True), balls(w) * balls(polynomial) / exp.sum(
        axis=1, keepdims=True
    )


@lemma(
    "3.8-taylor",
    r"\lVert A - B\rVert \le \frac{e^\kappa \kappa^{D+1}}{(D+1)!}, \quad"
    r" \operatorname{rank} B \le \binom{r+D}{D}",
    assumes="A_ij proportional to w_j exp(x_i . y_j), |x_i . y_j| <= kappa, x_i in R^r",
    given=_polynomial_rows(),
    mutants={
        "the factor e^kappa is dropped": {
            "error": lambda k, D: ball(k ** (D + 1) / factorial(D + 1))
        },
        "the next order of the remainder": {"error": lambda k, D: _taylor_error(k, D + 1)},
        "monomials of degree exactly D": {"dimension": lambda r, D: monomials(r - 1, D)},
    },
)
def explicit_profile(X, Y, w, degree, *, error=_taylor_error, dimension=monomials):
    """Replacing exp by its Taylor polynomial gives an explicit approximant of known rank."""
    Z = X @ Y.T
    polynomial = _taylor(Z, degree)
    A, B = _approximant(Z, w, polynomial)
    yield at_most("the distance", ball_norm(A - B), error(abs(Z).max(), degree))
    yield at_most("the rank", rank(polynomial * w), dimension(X.shape[1], degree))


def _poisson_tail(mean, degree):
    """P(Poisson(mean) > degree)."""
    mean = ball(mean)
    return 1 - (-mean).exp() * sum((mean**d / factorial(d) for d in range(degree + 1)), arb(0))


@lemma(
    "3.8-poisson",
    r"\lVert A - B\rVert \le P(\mathrm{Poisson}(2\kappa) > D), \quad B \ge 0",
    assumes="A_ij proportional to w_j exp(x_i . y_j), |x_i . y_j| <= kappa",
    given=_polynomial_rows(),
    mutants={
        "kappa for 2 kappa": {"error": lambda kappa, D: _poisson_tail(kappa, D)},
        "P(Poisson > D + 1)": {"error": lambda kappa, D: _poisson_tail(2 * kappa, D + 1)},
        "the expansion at + kappa": {"side": 1},
    },
)
def poisson_profile(
    X, Y, w, degree, *, error=lambda kappa, D: _poisson_tail(2 * kappa, D), side=-1
):
    """Expanding exp at -kappa keeps the approximant nonnegative; its error is a Poisson tail."""
    Z = X @ Y.T
    kappa = abs(Z).max()
    A, B = _approximant(Z, w, _taylor(Z, degree, side * kappa))
    B = B * ball(side * kappa).exp()
    yield at_most("the distance", ball_norm(A - B), error(kappa, degree))
    yield that("nonnegative", all(b >= 0 for b in B.flat))


@lemma(
    "3.8-degrees",
    r"D(\kappa) = \min\{D : \rho_D \le 1/4\}: \quad 6, 13, 27 \text{ (Taylor)},\ 5, 10, 19"
    r" \text{ (Poisson)}",
    assumes="kappa = 2, 4, 8",
    given=st.tuples(st.sampled_from([(2, 6, 5), (4, 13, 10), (8, 27, 19)])).map(lambda c: c[0]),
    mutants={
        "at eps = 1/2": {"epsilon": Fraction(1, 2)},
        "without e^kappa": {"error": lambda k, D: ball(Fraction(k) ** (D + 1) / factorial(D + 1))},
    },
)
def profile_degrees(kappa, taylor, poisson, *, epsilon=Fraction(1, 4), error=_taylor_error):
    """The degrees that the two explicit profiles need at eps = 1/4."""
    for name, degree, rho in (
        ("Taylor", taylor, lambda D: error(Fraction(kappa), D)),
        ("Poisson", poisson, lambda D: _poisson_tail(2 * kappa, D)),
    ):
        yield at_most(f"{name}: the degree suffices", rho(degree), epsilon)
        yield less(f"{name}: one less does not", epsilon, rho(degree - 1))


@lemma(
    "3.8-oscillation",
    r"\kappa \to \max_i \operatorname{osc}_j (XY^{\mathsf T})_{ij}/2",
    assumes="one polynomial for each row, expanded at the middle of its logits",
    given=_polynomial_rows(),
    mutants={
        "osc / 4": {"radius": lambda Z: max(oscillation(z) for z in Z) / 4},
        "the same polynomial for all rows": {"middle": lambda Z: 0 * Z[:, :1]},
        "a rank of one less": {"dimension": lambda r, D: monomials(r, D) - 1},
    },
)
def profile_by_oscillation(
    X,
    Y,
    w,
    degree,
    *,
    radius=lambda Z: max(oscillation(z) for z in Z) / 2,
    middle=lambda Z: (Z.max(axis=1, keepdims=True) + Z.min(axis=1, keepdims=True)) / 2,
    dimension=monomials,
):
    """With a polynomial per row the rank bound stays and kappa becomes half an oscillation."""
    Z = X @ Y.T
    polynomial = _taylor(Z, degree, middle(Z))
    A, B = _approximant(Z, w, polynomial)
    B = B * entrywise(arb.exp, balls(middle(Z)))
    yield at_most("the distance", ball_norm(A - B), _taylor_error(radius(Z), degree))
    yield at_most("the rank", rank(polynomial * w), dimension(X.shape[1], degree))


@lemma(
    "3.9-truncation",
    r"T_r = \sum_{i\le r}\sigma_i u_i v_i^{\mathsf T} \text{ doubly centred}, \quad"
    r" \kappa(T_r) \le R(U\sqrt S) R(V\sqrt S)",
    assumes="C = sum of a_i^2 u_i v_i^T with centred orthonormal u_i, v_i",
    given=st.tuples(
        st.permutations([1, 2, 3]),
        vectors(3, st.integers(1, 3)).map(lambda a: matrix(sorted(a, reverse=True))),
        st.integers(1, 3),
        matrices((4, 4), st.integers(-1, 1)).filter(lambda D: centred(D).any()),
    ),
    mutants={
        "a singular vector of value zero is kept": {"first": 0},
        "the roots are forgotten on one side": {"left": lambda a: a**0},
        "one root on each side": {"kept": lambda r: r - 1},
    },
)
def truncation(order, a, r, D, *, first=1, left=lambda a: a, kept=lambda r: r):
    """The truncated interaction is doubly centred, and its balanced factors bound its size."""
    U, V = CHARACTERS[1:].T[:, :r], CHARACTERS[order].T[:, :r]
    T = (U * a[:r] ** 2) @ V.T + (1 - first) * np.outer(CHARACTERS[0], CHARACTERS[0])
    X, Y = U * left(a[:r]), V * a[:r]
    yield equal("doubly centred", centred(T), T)
    yield equal("the factors are those of T", X[:, : kept(r)] @ Y[:, : kept(r)].T, T)
    yield at_most("<T, D>^2", _dual_value(T, D) ** 2, radius_square(X) * radius_square(Y))


# 3.10 Native quantities


@st.composite
def _key_spectrum(draw):
    """Centred keys with known singular values a_1 > a_2 > a_3, and how many directions are kept."""
    n = draw(st.sampled_from([2, 4]))
    U = matrix([[1, -1]]) if n == 2 else CHARACTERS[1:]
    d = len(U)
    a = matrix(sorted(draw(st.sets(st.integers(1, 9), min_size=d, max_size=d)), reverse=True))
    return U.T, a, draw(orthogonal_gauges(d)), draw(st.integers(0, d - 1))


@lemma(
    "3.10-spectral",
    r"\max_{jj'}\lVert(I - P_W)(k_j - k_{j'})\rVert \le \sqrt2\,\sigma_{r+1}(Z)",
    assumes="W the top r right-singular directions of the centred keys Z",
    given=_key_spectrum(),
    mutants={
        "the root of 2 is dropped": {"factor": 1},
        "the next singular value": {"index": lambda r: r + 1},
    },
)
def native_spectral_bound(U, a, V, r, *, factor=2, index=lambda r: r):
    """What a truncation of the keys discards is bounded by the next singular value."""
    Z = (U * a) @ V
    P = V[:r].T @ V[:r]
    rest = Z - Z @ P
    sigma = a[index(r)] ** 2 * square_norm(U[:, 0]) if index(r) < len(a) else Fraction(0)
    widest = max(square_norm(x - y) for x in rest for y in rest)
    yield at_most("squared width", widest, factor * sigma)


@st.composite
def _projected(draw):
    Q, K = draw(queries_and_keys(3, 2))
    return Q, K, draw(st.one_of(st.just(zeros(1, 2)), matrices((1, 2))))


@lemma(
    "3.10-tau",
    r"q\bigl(Q(I - P_W)K^{\mathsf T}\bigr) \le R(Q)\max_{jj'}\lVert(I - P_W)(k_j - k_{j'})\rVert",
    assumes="P_W any orthogonal projector on the key space, scale 1",
    given=_projected(),
    mutants={
        "the radius of the keys for their width": {"width": radius_square},
        "the oblique complement": {"complement": lambda P: P},
    },
)
def native_residual_bound(
    Q,
    K,
    W,
    *,
    width=lambda X: max(square_norm(x - y) for x in X for y in X),
    complement=lambda P: identity(2) - P,
):
    """eta_W bounds the residual of what a native truncation keeps, hence tau_W the distance."""
    P = _projector(W)
    residual_square = residual(Q @ (identity(2) - P) @ K.T) ** 2
    bound = radius_square(Q) * width(K @ complement(P))
    yield at_most("q^2 <= eta^2", residual_square, bound)


@lemma(
    "3.10-infimum",
    r"\Gamma(QG, KG^{-\mathsf T}) = \sqrt{1 + d^2} > 1 = \kappa(C), \quad"
    r" G = \operatorname{diag}(1, d)",
    assumes="queries (+-1, +-1), keys +-e_1",
    given=st.tuples(positive_rationals()),
    mutants={
        "the infimum is attained": {"gamma_square": lambda d: Fraction(1)},
        "the gauge is not inverted on the keys": {"key_gauge": lambda d: matrix([2, d])},
    },
)
def native_infimum(d, *, gamma_square=lambda d: 1 + d**2, key_gauge=lambda d: matrix([1, 1 / d])):
    """Over gauges the native size comes as near to kappa as one likes, without reaching it."""
    Q = matrix([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    K = matrix([[1, 0], [-1, 0]])
    gauged, keys = Q * matrix([1, d]), K * key_gauge(d)
    yield equal("the logits", gauged @ keys.T, Q @ K.T)
    yield equal("Gamma^2", radius_square(gauged) * radius_square(keys), gamma_square(d))
    D = matrix([[1, -1], [1, -1], [-1, 1], [-1, 1]]) / 8
    mu, nu = ones(4) / 4, ones(2) / 2
    yield that("the dual is feasible", is_positive_semidefinite(_block(mu, nu, D)))
    yield equal("kappa >= 1", inner(Q @ K.T, D), 1)
    yield equal("kappa <= 1", radius_square(Q[:, :1]) * radius_square(K[:, :1]), 1)
