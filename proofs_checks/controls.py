"""MATH 9: the known-answer controls, as statements over their whole families."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb, arb_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.balls import ball
from oracles.class_gap import stochastic_bound
from oracles.exact_rank import corank_one
from oracles.kernel_steps import (
    bernstein_witness,
    factor_witness,
    near_identity_witness,
    question,
)
from oracles.rational import (
    Matrix,
    centred,
    identity,
    inner,
    is_positive_semidefinite,
    matrix,
    norm,
    ones,
    rank,
    square_norm,
    zeros,
)
from oracles.support import RADII, full_ball, log10_tokens
from oracles.two_bit import (
    PUBLISHED_CELLS,
    approximant,
    attention,
    channel,
    character,
    distances,
    many_bit_reconstruction,
    reconstruction,
)
from softrank_exact.kernel.check import check

from .clauses import at_most, equal, less, that
from .formulas import balls, entrywise, l1, radius_square, singular_distance, sup, tail
from .lemma import lemma
from .strategies import (
    positive_rationals,
    proper_fractions,
    rationals,
    tolerances_near,
    two_bit_correlations,
    vectors,
)

CHI = {bits: character(bits) for bits in [(), (0,), (1,), (0, 1)]}


def _ok(finding) -> bool:
    return finding.code == "ok"


# 9.1 The two-bit oracle


@lemma(
    "9.1-distances",
    r"d_0, d_1, d_2, d_3 = 1, t, s, ts",
    assumes="A(t, s) = K_t (x) K_s, 0 < s <= t < 1",
    given=st.tuples(two_bit_correlations(), st.integers(0, 3)).map(lambda c: (*c[0], c[1])),
    mutants={
        "d_2 = (t + s) / 2": {"values": lambda t, s: [Fraction(1), t, (t + s) / 2, t * s]},
        "d_1 and d_2 exchanged": {"values": lambda t, s: [Fraction(1), s, t, t * s]},
        "d_3 = s^2": {"values": lambda t, s: [Fraction(1), t, s, s * s]},
    },
)
def two_bit_distances(t, s, k, *, values=distances):
    """The distances to rank k: an approximant attains each, a reconstruction proves it."""
    A, d = attention(t, s), values(t, s)[k]
    X, Y = approximant(t, s, k)
    G = reconstruction(t, s, k + 1)
    yield equal("an approximant at that distance", norm(A - X @ Y), d)
    yield at_most("of rank k", rank(X @ Y), k)
    yield equal("||G|| = 1/d", norm(G), 1 / d)
    yield equal("rank(I - G A)", rank(identity(4) - G @ A), 3 - k)


@lemma(
    "9.1-rank-one-family",
    r"\lVert A - cJ\rVert = t \text{ for } c \in [(1-t)(1+s)/4,\ (1+t)(1-s)/4]",
    assumes="0 < s <= t < 1",
    given=st.tuples(
        two_bit_correlations(), st.sampled_from([Fraction(i, 4) for i in range(5)])
    ).map(lambda case: (*case[0], case[1])),
    mutants={
        "up to (1+t)(1+s)/4": {"high": lambda t, s: (1 + t) * (1 + s) / 4},
        "down to (1-t)(1-s)/4": {"low": lambda t, s: (1 - t) * (1 - s) / 4},
    },
)
def two_bit_rank_one(
    t,
    s,
    place,
    *,
    low=lambda t, s: (1 - t) * (1 + s) / 4,
    high=lambda t, s: (1 + t) * (1 - s) / 4,
):
    """A whole interval of constant matrices is at distance t."""
    c = low(t, s) + place * (high(t, s) - low(t, s))
    yield equal("the error", norm(attention(t, s) - c), t)


@lemma(
    "9.1-rank-two-family",
    r"\lVert A - K_t \otimes cJ\rVert = s \text{ for } c \in [(1-s)/2,\ (1+s)/2]",
    assumes="0 < s <= t < 1",
    given=st.tuples(
        two_bit_correlations(), st.sampled_from([Fraction(i, 4) for i in range(5)])
    ).map(lambda case: (*case[0], case[1])),
    mutants={
        "the interval of t": {"half_width": lambda t, s: t / 2},
        "K_s for K_t": {"kept": lambda t, s: s},
    },
)
def two_bit_rank_two(t, s, place, *, half_width=lambda t, s: s / 2, kept=lambda t, s: t):
    """A whole interval of rank-two matrices is at distance s; c = 1/2 is row-stochastic."""
    c = Fraction(1, 2) + (2 * place - 1) * half_width(t, s)
    B = np.kron(channel(kept(t, s)), c * ones(2, 2))
    yield equal("the error", norm(attention(t, s) - B), s)
    yield at_most("the rank", rank(B), 2)
    yield that("row-stochastic iff c = 1/2", (B.sum(axis=1) == 1).all() == (c == Fraction(1, 2)))


@lemma(
    "9.1-invariant-subspace",
    r"\lVert c_0 + c_1\chi_1 + c_2\chi_2\rVert_\infty = |c_0|+|c_1|+|c_2|, \quad"
    r" \lVert Ax\rVert_\infty \ge s\lVert x\rVert_\infty",
    assumes="A multiplies the three characters by 1, t, s",
    given=st.tuples(two_bit_correlations(), vectors(3, rationals())).map(
        lambda case: (*case[0], case[1])
    ),
    mutants={
        "with chi_12 for chi_2": {"third": (0, 1)},
        "at least t": {"factor": lambda t, s: t},
        "the largest coefficient as the norm": {"size": sup},
    },
)
def two_bit_subspace(t, s, c, *, third=(1,), factor=lambda t, s: s, size=l1):
    """On the span of 1, chi_1, chi_2 the matrix shrinks no vector by more than s."""
    x = c @ np.stack([CHI[()], CHI[(0,)], CHI[third]])
    image = attention(t, s) @ x
    yield equal("||x||", sup(x), size(c))
    yield at_most("||Ax|| >= s ||x||", factor(t, s) * sup(x), sup(image))


@lemma(
    "9.1-explicit-reconstruction",
    r"\lVert G\rVert = 1/s, \quad I - GA = \tfrac14\bigl(1 - ts(1 + \tfrac1t - \tfrac1s)\bigr)"
    r"\chi_{12}\chi_{12}^{\mathsf T}",
    assumes="G[x, y] = lam(x xor y), lam = ((1+1/t)/2, 0, (1/s-1/t)/2, (1-1/s)/2)",
    given=st.tuples(two_bit_correlations()).map(lambda case: case[0]),
    mutants={
        "the masses of 10 and 11 exchanged": {"order": [0, 1, 3, 2]},
        "bits read in the other order": {"order": [0, 2, 1, 3]},
        "1 + 1/t - 1/s without its sign": {"sign": -1},
    },
)
def two_bit_reconstruction(t, s, *, order=(0, 1, 2, 3), sign=1):
    """The explicit reconstruction of rank three, its norm and what it leaves."""
    masses = [(1 + 1 / t) / 2, Fraction(0), (1 / s - 1 / t) / 2, (1 - 1 / s) / 2]
    lam = [masses[i] for i in order]
    G = matrix([[lam[x ^ y] for y in range(4)] for x in range(4)])
    weight = (1 - sign * t * s * (1 + 1 / t - 1 / s)) / 4
    yield equal("||G||", norm(G), 1 / s)
    rest = weight * np.outer(CHI[(0, 1)], CHI[(0, 1)])
    yield equal("I - G A", identity(4) - G @ attention(t, s), rest)


@lemma(
    "9.1-cells",
    r"r_\varepsilon(A(t, s)) = 4, 3, 2, 1, 3, 1 \text{ (published)}",
    assumes="the six published cells; most sit on a threshold",
    given=st.tuples(
        st.sampled_from(list(zip(PUBLISHED_CELLS, (4, 3, 2, 1, 3, 1), strict=True)))
    ).map(lambda case: (*case[0][0], case[0][1])),
    mutants={
        "an open inequality above": {"upper": lambda finding: finding.margin > 0},
        "a closed inequality below": {"lower": lambda finding: finding.margin >= 0},
    },
)
def published_cells(t, s, epsilon, r, *, upper=_ok, lower=_ok):
    """The kernel closes all six cells, and the next reconstruction proves no more."""
    A, asked = attention(t, s), question(attention(t, s), epsilon)
    yield that("r at most", upper(check(asked, r, factor_witness(*approximant(t, s, r)))))
    for p in range(1, 5):
        witness = bernstein_witness(A, range(4), reconstruction(t, s, p))
        proven = lower(check(asked, p, witness))
        yield that(f"r >= {p} is proven iff p <= {r}", proven == (p <= r))


@lemma(
    "9.1-pseudoinverse-norm",
    r"\lVert A_3^+\rVert = \tfrac14\sum_{\pm,\pm}|1 \pm \tfrac1t \pm \tfrac1s|,"
    r" \quad = \tfrac{11}{6} \text{ at } t = s = \tfrac34",
    assumes="0 < s <= t < 1, so that chi_12 is what the truncation drops",
    given=st.tuples(
        st.one_of(two_bit_correlations(), st.just((Fraction(3, 4), Fraction(3, 4))))
    ).map(lambda case: case[0]),
    mutants={
        "the largest of the four": {"combine": max},
        "the norm of the explicit reconstruction": {"combine": lambda x: 4 * max(x) - sum(x)},
    },
)
def pseudoinverse_norm(t, s, *, combine=sum):
    """The truncated pseudoinverse of rank three is longer than the explicit reconstruction."""
    terms = [abs(1 + a / t + b / s) for a, b in product((1, -1), repeat=2)]
    weights = {(): Fraction(1), (0,): 1 / t, (1,): 1 / s}
    G = sum(np.outer(CHI[bits], CHI[bits]) * w for bits, w in weights.items()) / 4
    yield equal("G A G = G", G @ attention(t, s) @ G, G)
    yield equal("the norm", norm(G), Fraction(combine(terms)) / 4)
    yield at_most("the explicit one is no longer", 1 / s, norm(G))


@lemma(
    "9.1-failures",
    r"F_2 = \tfrac{15}{16} < \tfrac54,\ \tfrac{11}{6}\cdot\tfrac58 > 1,\ \tfrac{75}{128}"
    r" < \tfrac58",
    assumes="t = s = 3/4, eps = 5/8; the rank is 3",
    given=st.tuples(st.integers(0, 3)),
    mutants={
        "sqrt(m) dropped from the Frobenius threshold": {"rows": 1},
        "at eps = 9/16": {"epsilon": Fraction(9, 16)},
        "the best selection at 3/5": {"selected": Fraction(3, 5)},
    },
)
def published_failures(dropped, *, rows=4, epsilon=Fraction(5, 8), selected=Fraction(75, 128)):
    """What does not reach rank three: Frobenius, the pseudoinverse, any three rows."""
    A = attention(Fraction(3, 4), Fraction(3, 4))
    tail_square = tail(A, 2)
    yield equal("F_2^2", tail_square, Fraction(15, 16) ** 2)
    yield less("Frobenius fails", tail_square, rows * epsilon**2)
    yield less("the pseudoinverse fails", 1, Fraction(11, 6) * epsilon)
    chosen = [i for i in range(4) if i != dropped]
    yield equal("three rows are this far from rank two", corank_one(A[chosen]).distance, selected)
    yield less("which is too near", selected, epsilon)
    yield less("the explicit witness succeeds", Fraction(4, 3) * epsilon, 1)


@lemma(
    "9.1-many-bits",
    r"d_k \ge t_k,\ k \le b, \quad \lVert Ax\rVert_\infty \ge t_k\lVert x\rVert_\infty \text{ on }"
    r" \operatorname{span}(1, \chi_1, \dots, \chi_k)",
    assumes="b bits, t_1 >= ... >= t_b",
    given=st.sampled_from([1, 2, 2, 3]).flatmap(
        lambda b: st.tuples(
            st.lists(proper_fractions(), min_size=b, max_size=b).map(
                lambda t: sorted(t, reverse=True)
            ),
            vectors(b + 1, st.sampled_from([0, 1, -1])),
        )
    ),
    mutants={
        "d_k at least t_1": {"bound": lambda t, k: t[0]},
        "one character more": {
            "characters": lambda k: [*((i,) for i in range(k)), tuple(range(k))]
        },
    },
)
def many_bits(t, c, *, bound=lambda t, k: t[k - 1], characters=lambda k: [(i,) for i in range(k)]):
    """On b bits the first k characters give rank k + 1 below t_k."""
    b, A = len(t), attention(*t)
    for k in range(1, b + 1):
        chosen = [(), *characters(k)]
        x = sum(a * character(S, b) for a, S in zip((*c, -c[1]), chosen, strict=False))
        yield at_most("||Ax|| >= t_k ||x||", bound(t, k) * sup(x), sup(A @ x))
        G = many_bit_reconstruction(t, k)
        yield equal("||G||", norm(G), 1 / bound(t, k))
        yield at_most("rank(I - G A)", rank(identity(2**b) - G @ A), 2**b - k - 1)


# 9.2 The class gap


@lemma(
    "9.2-class-gap",
    r"d_1(A(t,t)) = t < t + t^2/2 = d_1^{\mathrm{st}}(A(t,t)), \quad \tfrac34 < \tfrac{33}{32}",
    assumes="0 < t < 1",
    given=st.tuples(st.one_of(proper_fractions(), st.just(Fraction(3, 4)))),
    mutants={
        "row-stochastic competitors do as well": {"stochastic": lambda t: t},
        "signs of the own row everywhere": {"signs": lambda: ones(4, 4)},
        "without the second half": {"stochastic": lambda t: (1 + t) ** 2 / 2 - 1},
    },
)
def class_gap(t, *, stochastic=lambda t: t + t**2 / 2, signs=lambda: 2 * identity(4) - 1):
    """Row-stochastic rank one costs more than rank one, which costs t; rank two costs t again."""
    A = attention(t, t)
    c = (1 - t) * (1 + t) / 4
    yield equal("c J is at distance t", norm(A - c), t)
    yield equal("the uniform row", norm(A - Fraction(1, 4)), stochastic(t))
    yield equal("its dual", stochastic_bound(A, ones(4) / 4, signs()), stochastic(t))
    B = np.kron(channel(t), ones(2, 2) / 2)
    yield that("rank two is row-stochastic", rank(B) == 2 and (B.sum(axis=1) == 1).all())
    yield equal("at distance t", norm(A - B), t)


# 9.3 The finite grid


@st.composite
def _grids(draw: DrawFn):
    """(side, r, theta) with at most nine points."""
    side, r = draw(st.sampled_from([(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (2, 3)]))
    return (
        side,
        r,
        draw(st.one_of(proper_fractions(), st.integers(4, 40).map(lambda n: Fraction(1, n)))),
    )


def _points(side: int, r: int) -> Matrix:
    return matrix(product(range(side), repeat=r))


def _grid(side: int, r: int, theta: Fraction) -> Matrix:
    """A_xy proportional to theta^{|x - y|^2}."""
    P = _points(side, r)
    weights = matrix([[theta ** int(square_norm(x - y)) for y in P] for x in P])
    return weights / weights.sum(axis=1, keepdims=True)


def _off_mass(A: Matrix) -> Fraction:
    """The largest off-diagonal row mass."""
    return max(1 - a for a in np.diag(A))


@lemma(
    "9.3-interaction",
    r"A = K^{\otimes r}, \quad C = 2s P(x \cdot y)P, \quad \operatorname{rank} C = r",
    assumes="A_xy proportional to theta^{|x-y|^2}, s = -log theta; checked divided by s",
    given=_grids(),
    mutants={
        "without the factor 2": {"factor": 1},
        "rank r + 1": {"dimension": lambda r: r + 1},
        "|x - y| for its square": {"power": lambda z: sum(abs(z))},
    },
)
def grid_interaction(side, r, theta, *, factor=2, dimension=lambda r: r, power=square_norm):
    """The grid's interaction is that of its coordinates, of rank r; A is a tensor power."""
    P = _points(side, r)
    exponents = matrix([[-power(x - y) for y in P] for x in P])
    C = centred(exponents)
    yield equal("C / s", C, factor * centred(P @ P.T))
    yield equal("rank C", rank(C), dimension(r))
    tensor = _grid(side, 1, theta)
    for _ in range(r - 1):
        tensor = np.kron(tensor, _grid(side, 1, theta))
    yield equal("a tensor power", _grid(side, r, theta), tensor)


@lemma(
    "9.3-size",
    r"\kappa(C) = s\,r(l-1)^2/2",
    assumes="checked divided by s = -log theta",
    given=_grids(),
    mutants={
        "the half is dropped": {"kappa": lambda side, r: Fraction(r * (side - 1) ** 2)},
        "l for l - 1": {"kappa": lambda side, r: Fraction(r * side**2, 2)},
        "without the dimension": {"kappa": lambda side, r: Fraction((side - 1) ** 2, 2)},
    },
)
def grid_size(side, r, theta, *, kappa=lambda side, r: Fraction(r * (side - 1) ** 2, 2)):
    """The ball of the cube gives the size from above, two opposite vertices from below."""
    P = _points(side, r)
    T, centre = 2 * centred(P @ P.T), ones(r) * Fraction(side - 1, 2)
    yield equal("2 R^2", 2 * radius_square(P, centre), kappa(side, r))
    D, weights = zeros(*T.shape), zeros(len(T))
    ends = [0, len(T) - 1]
    D[np.ix_(ends, ends)] = matrix([[1, -1], [-1, 1]]) / 4
    weights[ends] = Fraction(1, 2)
    block = np.block([[np.diag(weights), D], [D, np.diag(weights)]])
    yield that("the dual is feasible", is_positive_semidefinite(block))
    yield equal("<T, D>", inner(T, D), kappa(side, r))


@lemma(
    "9.3-full-rank",
    r"\delta < (1 - \varepsilon)/2 \implies \lVert A - I\rVert = 2\delta < 1 - \varepsilon \implies"
    r" r_\varepsilon(A) = l^r",
    assumes="delta the largest off-diagonal row mass, eps near 1 - 2 delta and below 1",
    given=_grids()
    .flatmap(
        lambda case: st.tuples(st.just(case), tolerances_near(1 - 2 * _off_mass(_grid(*case))))
    )
    .filter(lambda case: 0 <= case[1] < 1),
    mutants={
        "delta < 1 - eps": {"condition": lambda delta, e: delta < 1 - e},
        "a closed inequality": {"condition": lambda delta, e: delta <= (1 - e) / 2},
    },
)
def grid_full_rank(case, epsilon, *, condition=lambda delta, e: delta < (1 - e) / 2):
    """A small off-diagonal mass forces full rank: the kernel proves it with G = I."""
    A = _grid(*case)
    n, delta = len(A), _off_mass(A)
    yield equal("||A - I||", norm(A - identity(n)), 2 * delta)
    if condition(delta, epsilon):
        witness = near_identity_witness(range(n), identity(n), zeros(n, 0), zeros(0, n))
        yield that("proven", _ok(check(question(A, epsilon), n, witness)))


# 9.4 Sphere and ball


@st.composite
def _duplicated(draw: DrawFn):
    """Messages on a line with integer logits base 2, each held by some tokens, and a tolerance."""
    points = sorted(draw(st.sets(st.integers(-3, 3), min_size=1, max_size=3)))
    copies = draw(st.lists(st.integers(1, 3), min_size=len(points), max_size=len(points)))
    return matrix(points), copies, draw(proper_fractions())


@lemma(
    "9.4-representatives",
    r"\mu < (1 - \varepsilon)/2 \implies r_\varepsilon(A) \ge N",
    assumes="N messages held by copies_y tokens, mu the off-diagonal mass of the decoded channel",
    given=_duplicated(),
    mutants={
        "columns of a message not summed": {"fold": lambda owner, N: _selected(owner, N).T},
        "tokens of every message the same": {"mass": lambda copies: [1] * len(copies)},
        "queries of a message summed": {"pick": lambda owner, N: _folded(owner, N).T},
    },
)
def representatives_decode(
    points,
    copies,
    epsilon,
    *,
    fold=lambda owner, N: _folded(owner, N),
    mass=lambda copies: copies,
    pick=lambda owner, N: _selected(owner, N),
):
    """One query for each message and the sum of its keys decode duplicated tokens contractively."""
    N = len(points)
    owner = np.repeat(np.arange(N), copies)
    A = _gaussian(points[owner], points[owner], [1] * len(owner))
    D, F = pick(owner, N), fold(owner, N)
    yield at_most("||D||", norm(D), 1)
    yield at_most("||F||", norm(F), 1)
    decoded = D @ A @ F
    yield equal("the decoded channel", decoded, _gaussian(points, points, mass(copies)))
    off = max(1 - a for a in np.diag(decoded))
    if off < (1 - epsilon) / 2:
        yield that("full rank", singular_distance(decoded) > epsilon)


def _gaussian(X: Matrix, Y: Matrix, copies: Sequence[int]) -> Matrix:
    """Rows proportional to copies_y 2^{-(x - y)^2}."""
    weights = matrix(
        [
            [c * Fraction(1, 2 ** int((x - y) ** 2)) for y, c in zip(Y, copies, strict=True)]
            for x in X
        ]
    )
    return weights / weights.sum(axis=1, keepdims=True)


def _folded(owner, N):
    """n x N: token i belongs to message owner[i]."""
    return matrix(np.eye(N, dtype=int)[owner])


def _selected(owner, N):
    """N x n: the first token of every message."""
    first = [int(np.flatnonzero(owner == y)[0]) for y in range(N)]
    return matrix(np.eye(len(owner), dtype=int)[first])


@lemma(
    "9.4-multiplicity",
    r"\lceil K e^{\beta(1/4 - |y|^2)/2}\rceil e^{\beta x\cdot y} \in [1, 1 + \tfrac1K]\cdot"
    r" K e^{\beta/8 + \beta|x|^2/2} e^{-\beta|x-y|^2/2}",
    assumes="x, y in the ball of radius 1/2",
    given=st.tuples(
        vectors(2, st.integers(-3, 3)).map(lambda x: x / 10),
        vectors(2, st.integers(-3, 3)).map(lambda x: x / 10),
        positive_rationals(4),
        st.integers(1, 8),
    ),
    mutants={
        "a slack of 1/(8K)": {"slack": lambda K: Fraction(1, 8 * K)},
        "the wrong sign of |y|^2": {"radius": lambda y: -square_norm(y)},
        "without the half": {"half": 1},
    },
)
def ball_multiplicities(
    x, y, beta, K, *, slack=lambda K: Fraction(1, K), radius=square_norm, half=Fraction(1, 2)
):
    """Multiplicities turn the exponential kernel of the ball into a Gaussian, up to 1 + 1/K."""
    exact = ball(K) * ball(beta * (Fraction(1, 4) - radius(y)) * half).exp()
    copies = exact.ceil()
    inner_product = ball(beta * inner(x, y)).exp()
    gaussian = ball(K) * ball(beta * (Fraction(1, 8) + square_norm(x) / 2)).exp()
    gaussian *= ball(-beta * square_norm(x - y) / 2).exp()
    yield at_most("from below", gaussian, copies * inner_product)
    yield at_most("from above", copies * inner_product, ball(1 + slack(K)) * gaussian)


@lemma(
    "9.4-stereographic",
    r"|\sigma(u) - \sigma(v)|^2 = \frac{4|u-v|^2}{(1+|u|^2)(1+|v|^2)} \ge 4|u-v|^2/\rho^2, \quad"
    r" \rho = 1 + \tfrac{d-1}{4}",
    assumes="u, v in [-1/2, 1/2]^{d-1}, sigma the stereographic map to S^{d-1}",
    given=st.integers(1, 3).flatmap(
        lambda d: st.tuples(*[vectors(d, st.integers(-2, 2)).map(lambda u: u / 4)] * 2)
    ),
    mutants={
        "rho = 1": {"rho": lambda d: 1},
        "the square of rho is dropped": {"power": 1},
        "off the sphere": {"scale": lambda u: Fraction(1)},
    },
)
def stereographic_spacing(
    u,
    v,
    *,
    rho=lambda d: 1 + Fraction(d, 4),
    power=2,
    scale=lambda u: 1 / (1 + square_norm(u)),
):
    """A rational grid on the sphere keeps its spacing up to a factor, whatever the dimension."""
    x, y = (scale(w) * np.append(2 * w, matrix([square_norm(w) - 1])) for w in (u, v))
    yield equal("|x|", square_norm(x), 1)
    distance = square_norm(x - y)
    exact = 4 * square_norm(u - v) / ((1 + square_norm(u)) * (1 + square_norm(v)))
    yield equal("|x - y|^2", distance, exact)
    yield at_most("the spacing", 4 * square_norm(u - v) / rho(len(u)) ** power, distance)


@lemma(
    "9.4-published-instance",
    r"N = 65^4 = 17{,}850{,}625, \quad \log_{10}(\text{tokens}) = 88945.918\ldots",
    assumes="d = 4, side 65, beta = 1280^2, spacing 10/sqrt(beta) = 1/128, K = 256",
    given=st.tuples(st.just(4)),
    mutants={
        "side 64": {"side": 64},
        "beta = 1279^2": {"beta": Fraction(1279) ** 2},
    },
)
def published_instance(d, *, side=65, beta=Fraction(1280) ** 2):
    """The published ball instance: its messages, and its token count without making a token."""
    channel = full_ball(d, beta, side)
    yield equal("messages", channel.messages, 17_850_625)
    yield equal("spacing", 2 * RADII[d] / (side - 1), Fraction(1, 128))
    tokens = log10_tokens(d, beta, side)
    yield less("log10 tokens above", Fraction("88945.918"), tokens)
    yield less("log10 tokens below", tokens, Fraction("88945.919"))
    yield that("full rank is certified", channel.certifies(Fraction(1, 4)))


@lemma(
    "9.4-beta-zero",
    r"\beta = 0 \implies r_\varepsilon(A) \le 1",
    assumes="any weights of the keys",
    given=st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2)),
    mutants={"beta = 1": {"beta": 1}},
)
def zero_temperature(copies, spread, *, beta=0):
    """Without interaction all rows are equal."""
    n = len(copies)
    weights = matrix([[c * 2 ** (beta * i * j) for j, c in enumerate(copies)] for i in range(n)])
    yield at_most("the rank", rank(weights / weights.sum(axis=1, keepdims=True)), 1)


# 9.5 to 9.8


@lemma(
    "9.5-same-truncation",
    r"\kappa(T) = 0,\ \tau(T) < \varepsilon \implies r_\varepsilon(K_t) \le 1 \quad"
    r"\text{(the same } T\text{)}",
    assumes="T = 0 or T = C, of K_t",
    given=proper_fractions().flatmap(
        lambda t: st.tuples(
            st.just(t), st.one_of(tolerances_near(t), st.just(2 * t)), st.booleans()
        )
    ),
    mutants={
        "kappa of T = 0, tau of T = C": {"pair": lambda keep: (False, True)},
    },
)
def same_truncation(t, epsilon, keep, *, pair=lambda keep: (keep, keep)):
    """Size and residual must come from one truncation: paired otherwise they prove falsehoods."""
    size_of, residual_of = pair(keep)
    # C(K_t) = (q/2) [[1, -1], [-1, 1]], and q its residual.
    q = (ball(1 + t) / ball(1 - t)).log()
    distance = arb(0) if residual_of else 2 * (q / 4).tanh()
    if not size_of and distance < ball(epsilon):
        yield that("r <= 1", singular_distance(channel(t)) <= epsilon)


def _weighted(w: Fraction, odds: Fraction) -> Matrix:
    """Rows proportional to (odds w, 1) and (w, odds)."""
    rows = matrix([[odds * w, 1], [w, odds]])
    return rows / rows.sum(axis=1, keepdims=True)


@lemma(
    "9.6-base-weights",
    r"C \text{ the same}, \quad d_1 = \tfrac34 \text{ and } \tfrac{12}{37} (w = 7); \quad"
    r" r_{1/2} \le 1 \text{ for } w \ge 7/2",
    assumes="K_{3/4}, and rows proportional to (7w, 1), (w, 7)",
    given=st.tuples(positive_rationals(9).filter(lambda w: w >= Fraction(7, 2))),
    mutants={
        "the rank depends on C alone": {"rank_at": lambda d: 2},
        "w >= 1 will do": {"weight": lambda w: 1 + (w - Fraction(7, 2))},
        "d_1 does not move": {"distance": lambda w: Fraction(3, 4)},
    },
)
def base_weights(
    w,
    *,
    rank_at=lambda d: 1 if d <= Fraction(1, 2) else 2,
    weight=lambda w: w,
    distance=lambda w: 48 * w / ((7 * w + 1) * (w + 7)) / _larger_share(w),
):
    """Two matrices with one visible interaction and different ranks at eps = 1/2."""
    A = _weighted(weight(w), Fraction(7))
    ratio = A[0, 0] * A[1, 1] / (A[0, 1] * A[1, 0])
    yield equal("the same C: cross ratio", ratio, 49)
    yield equal("d_1", singular_distance(A), distance(weight(w)))
    yield equal("r at 1/2", rank_at(singular_distance(A)), 1)


def _larger_share(w: Fraction) -> Fraction:
    """The larger column sum of A (its entries are those of |det| A^-1, up to place)."""
    return max(7 * w / (7 * w + 1) + w / (w + 7), 1 / (7 * w + 1) + 7 / (w + 7))


@st.composite
def _appended(draw: DrawFn):
    """(t, s, k, delta, eps): two-bit, mass delta moved to a new key, eps with the margin."""
    t, s = draw(two_bit_correlations().filter(lambda ts: ts[0] > ts[1]))
    k = draw(st.integers(1, 3))
    d = distances(t, s)
    place = draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(7, 8)]))
    delta = (d[k - 1] - d[k]) / 16
    low, high = d[k] + 2 * delta, d[k - 1] - 2 * delta
    return t, s, k, delta, low + place * (high - low)


def _with_key(A: Matrix, delta: Fraction) -> Matrix:
    """A new key of masses delta, delta/2, ... taken from the rows in proportion."""
    masses = matrix([[delta / 2**i] for i in range(len(A))])
    return np.hstack([A * (1 - masses), masses])


@lemma(
    "9.7-effective-dimension",
    r"d_k(A_0) \le \varepsilon - \alpha,\ d_{k-1}(A_0) > \varepsilon + \alpha \implies"
    r" r_\varepsilon(A) = k",
    assumes="A is A_0 with a key of tiny mass appended, ||A - (A_0, 0)|| = alpha",
    given=_appended(),
    mutants={
        "no margin below": {"tolerance": lambda e, low, high: low},
        "no margin above": {"tolerance": lambda e, low, high: high},
    },
)
def effective_dimension(t, s, k, delta, epsilon, *, tolerance=lambda e, low, high: e):
    """Appending a tiny independent key leaves the rank, if the tolerance has a margin of alpha."""
    d, A = distances(t, s), _with_key(attention(t, s), delta)
    epsilon = tolerance(epsilon, d[k], d[k - 1])
    X, Y = approximant(t, s, k)
    yield at_most("alpha", norm(A - np.hstack([attention(t, s), zeros(4, 1)])), 2 * delta)
    upper = factor_witness(X, np.hstack([Y, zeros(k, 1)]))
    yield that("r <= k", _ok(check(question(A, epsilon), k, upper)))
    G = reconstruction(t, s, k)
    kept = bernstein_witness(attention(t, s), range(4), G)
    yield that("r >= k", _ok(check(question(A, epsilon), 4 - kept.X.shape[1], kept)))


@lemma(
    "9.7-full-dimension",
    r"\operatorname{rank} C(A) = m - 1 > \operatorname{rank} C(A_0)",
    assumes="the appended key is not a combination of the others' logits",
    given=_appended(),
    mutants={"the visible dimension stays": {"full": False}},
)
def full_dimension(t, s, k, delta, epsilon, *, full=True):
    """The appended key makes the visible dimension full: a minor of C is proven not to be zero."""
    logs = entrywise(arb.log, balls(_with_key(attention(t, s), delta)))
    seen = logs[1:, 1:] - logs[:1, 1:] - logs[1:, :1] + logs[0, 0]
    minors = [arb_mat(np.delete(seen, out, axis=1).tolist()).det() for out in range(4)]
    yield that("a minor is not zero", any(abs(minor) > 0 for minor in minors) == full)


@lemma(
    "9.7-margin",
    r"d_1(K_t) > \varepsilon + \alpha \implies r_\varepsilon(A) = 2"
    r" \text{ for } \lVert A - K_t\rVert \le \alpha",
    assumes="A = K_{t - alpha}, the worst move",
    given=proper_fractions()
    .flatmap(lambda t: st.tuples(st.just(t), proper_fractions().map(lambda share: share * t)))
    .flatmap(lambda case: st.tuples(*map(st.just, case), tolerances_near(case[0] - case[1]))),
    mutants={"without the margin (2.4)": {"margin": lambda alpha: 0}},
)
def margin_is_needed(t, alpha, epsilon, *, margin=lambda alpha: alpha):
    """Without the margin alpha a perturbation of norm alpha can lower the rank."""
    if t > epsilon + margin(alpha):
        yield less("d_1 of the moved matrix", epsilon, singular_distance(channel(t - alpha)))


@lemma(
    "9.8-native-sharpness",
    r"\beta(x\cdot y - |y|^2/2) = -\beta|x-y|^2/2 + \beta|x|^2/2, \quad \operatorname{rank} C = r"
    r" \text{ in } \mathbb R^{r+1}",
    assumes="queries (x, 1), keys (y, -|y|^2/2) over a grid of r dimensions",
    given=st.tuples(_grids(), positive_rationals()).map(lambda case: (*case[0][:2], case[1])),
    mutants={
        "keys (y, -|y|^2)": {"last": lambda y: -square_norm(y)},
        "rank r + 1": {"dimension": lambda r: r + 1},
        "keys (y, 0)": {"last": lambda y: Fraction(0)},
    },
)
def native_sharpness(side, r, beta, *, last=lambda y: -square_norm(y) / 2, dimension=lambda r: r):
    """A base weight in a last coordinate makes rows discrete Gaussians, of visible dimension r."""
    P = _points(side, r)
    Q = np.hstack([P, ones(len(P), 1)])
    K = np.hstack([P, matrix([[last(y)] for y in P])])
    logits = beta * Q @ K.T
    gaussian = -beta / 2 * matrix([[square_norm(x - y) for y in P] for x in P])
    rows = logits - gaussian
    yield equal("up to row constants", rows - rows[:, :1], 0 * rows)
    yield equal("rank C", rank(centred(logits)), dimension(r))
