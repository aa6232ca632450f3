"""MATH 8: gauges Q -> Q G, K -> K G^-T, and what they leave unchanged."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from oracles.balls import ball
from oracles.rational import (
    Matrix,
    identity,
    inner,
    inverse,
    is_positive_semidefinite,
    matrix,
    ones,
    square_norm,
)

from .clauses import at_most, equal, that
from .formulas import oscillation, radius_square, residual, tau
from .lemma import lemma
from .strategies import (
    diagonal_gauges,
    either,
    gauges,
    orthogonal_gauges,
    positive_rationals,
    queries_and_keys,
    vectors,
)

SQUARE = matrix([[1, 1], [1, -1], [-1, 1], [-1, -1]])
CROSS = matrix([[1, 0], [-1, 0], [0, 1], [0, -1]])


def _dual(G: Matrix) -> Matrix:
    """G^-T, the gauge of the keys."""
    return inverse(G).T


@st.composite
def _gauged(draw, choice):
    Q, K = draw(queries_and_keys(3, 2))
    return Q, K, draw(choice)


@lemma(
    "8-invariance",
    r"(QG)(KG^{-\mathsf T})^{\mathsf T} = QK^{\mathsf T}",
    assumes="G invertible; diagonal with condition ratio up to 16 at times",
    given=_gauged(st.one_of(gauges(2), diagonal_gauges(2))),
    mutants={
        "K G": {"of_keys": lambda G: G},
        "K G^-1": {"of_keys": inverse},
        "K G^T": {"of_keys": lambda G: G.T},
    },
)
def invariance(Q, K, G, *, of_keys=_dual):
    """A gauge leaves the logits, and so A, unchanged."""
    yield equal("the logits", (Q @ G) @ (K @ of_keys(G)).T, Q @ K.T)


@lemma(
    "8-orthogonal",
    r"GG^{\mathsf T} = c^2 I \implies R(QG)R(KG^{-\mathsf T}) = R(Q)R(K)",
    assumes="G a rotation, a reflection or a scaling of one",
    given=st.tuples(_gauged(orthogonal_gauges(2)), positive_rationals(), gauges(2)).map(
        lambda case: (*case[0], case[1], case[2])
    ),
    mutants={
        "any gauge": {"allowed": lambda G, other: other},
        "the scaling not undone on the keys": {"key_scale": lambda c: 1},
    },
)
def orthogonal_gauge(Q, K, G, c, other, *, allowed=lambda G, other: G, key_scale=lambda c: 1 / c):
    """Orthogonal gauges and scalings leave the native size unchanged; others do not."""
    G = allowed(G, other)
    gauged = radius_square(c * Q @ G) * radius_square(key_scale(c) * K @ _dual(G))
    yield equal("Gamma^2", gauged, radius_square(Q) * radius_square(K))


@lemma(
    "8.1-distortion",
    r"\Gamma = g^2 + g^{-2}, \quad \kappa(C) = 2",
    assumes="queries and keys (+-1, +-1), G = diag(g, 1/g), scale 1",
    given=st.tuples(positive_rationals(4)),
    mutants={
        "Gamma does not move": {"gamma": lambda g: 2},
        "g + 1/g": {"gamma": lambda g: g + 1 / g},
        "kappa moves with Gamma": {"kappa": lambda g: g**2 + g**-2},
    },
)
def unbounded_distortion(g, *, gamma=lambda g: g**2 + g**-2, kappa=lambda g: 2):
    """The native size is distorted without bound by a gauge that kappa does not feel."""
    Q, K = SQUARE * matrix([g, 1 / g]), SQUARE * matrix([1 / g, g])
    yield equal("the logits", Q @ K.T, SQUARE @ SQUARE.T)
    yield equal("Gamma^2", radius_square(Q) * radius_square(K), gamma(g) ** 2)
    T, uniform = SQUARE @ SQUARE.T, np.diag(ones(4)) / 4
    block = np.block([[uniform, T / 16], [T / 16, uniform]])
    yield that("the dual is feasible", is_positive_semidefinite(block))
    yield equal("kappa >=", inner(T, T / 16), kappa(g))
    yield equal("kappa <=", radius_square(SQUARE), kappa(g))


@lemma(
    "8.2-selection",
    r"\text{top right-singular direction of } KG^{-\mathsf T} = e_2 \iff g > 2",
    assumes="keys +-2 e_1, +-e_2, queries +-e_1, +-e_2, G = diag(g, 1), g positive, not 2",
    given=st.tuples(positive_rationals(5).filter(lambda g: g != 2)),
    mutants={
        "any stretching flips it": {"flips": lambda g: g > 1},
        "the direction is a property of A": {"flips": lambda g: False},
    },
)
def selection_flips(g, *, flips=lambda g: g > 2):
    """A gauge flips the leading singular direction of the keys, with a strict gap on both sides."""
    K, Q = CROSS * matrix([2, 1]), CROSS
    gauged = K / matrix([g, 1])
    yield equal("the logits", (Q * matrix([g, 1])) @ gauged.T, Q @ K.T)
    gram = gauged.T @ gauged
    yield that("centred, diagonal, with a gap", not gauged.sum(axis=0).any() and gram[0, 1] == 0)
    yield that("the top direction", (gram[1, 1] > gram[0, 0]) == flips(g))


@lemma(
    "8.3-rank-one",
    r"q(xy^{\mathsf T}) = \operatorname{osc}(x)\operatorname{osc}(y)/2",
    given=st.integers(1, 4).flatmap(lambda m: st.tuples(vectors(m), vectors(3))),
    mutants={
        "the half is dropped": {"share": 1},
        "the largest entries": {"size": lambda x: 2 * max(abs(x))},
    },
)
def residual_of_rank_one(x, y, *, share=Fraction(1, 2), size=oscillation):
    """The residual of a product is half the product of the oscillations."""
    yield equal("q", residual(np.outer(x, y)), share * size(x) * size(y))


def _along(Q: Matrix, K: Matrix, u: Matrix) -> Fraction:
    """q of the part discarded along u."""
    return oscillation(Q @ u) * oscillation(K @ u) / (2 * square_norm(u))


def _normals(*points: Matrix) -> list[Matrix]:
    """Normals to the segments that join two points of one set."""
    segments = [a - b for P in points for a, b in combinations(list(P), 2)]
    return [matrix([-s[1], s[0]]) for s in segments if s.any()]


@st.composite
def _planar_heads(draw):
    """Queries and keys of several points each, and a direction: any, or a normal of the keys."""
    heads = queries_and_keys(3, 2).filter(lambda QK: all(P.any() and _normals(P) for P in QK))
    Q, K = draw(heads)
    return Q, K, draw(either(vectors(2).filter(np.any), st.sampled_from(_normals(K))))


@lemma(
    "8.3-finite",
    r"\min_u \tfrac12\operatorname{width}_Q(u)\operatorname{width}_K(u)"
    r" \text{ is at a normal of a segment of } Q \text{ or } K",
    assumes="d = 2, u of norm one",
    given=_planar_heads(),
    mutants={
        "normals of segments of queries only": {"candidates": lambda Q, K: _normals(Q)},
        "normals of the points themselves": {
            "candidates": lambda Q, K: [matrix([-p[1], p[0]]) for p in (*Q, *K) if p.any()]
        },
    },
)
def finitely_many_directions(Q, K, u, *, candidates=_normals):
    """The best native direction is among finitely many, so its residual is rational."""
    best = min(_along(Q, K, v) for v in candidates(Q, K))
    yield at_most("no other direction is better", best, _along(Q, K, u))


@lemma(
    "8.3-moves",
    r"\min_w q = \frac{2g^2}{1+g^2}",
    assumes="Q = K = {+-e_1, +-e_2}, G = diag(g, 1), g >= 1, scale 1",
    given=st.tuples(positive_rationals(4).filter(lambda g: g >= 1)),
    mutants={
        "the gauge does not move it": {"least": lambda g: Fraction(1)},
        "the factor 2 is dropped": {"least": lambda g: g**2 / (1 + g**2)},
        "axes only": {"directions": lambda Q, K: [*identity(2)]},
    },
)
def best_direction_moves(g, *, least=lambda g: 2 * g**2 / (1 + g**2), directions=_normals):
    """Even the best orthogonal native subspace depends on the gauge."""
    Q, K = CROSS * matrix([g, 1]), CROSS / matrix([g, 1])
    yield equal("the least residual", min(_along(Q, K, u) for u in directions(Q, K)), least(g))


@lemma(
    "8.3-tau",
    r"\tau: 0.4898 \to 0.7599 \text{ for } g = 1 \to 2",
    assumes="Q = K = {+-e_1, +-e_2}, G = diag(g, 1)",
    given=st.tuples(st.sampled_from([(1, "0.4898"), (2, "0.7599")])).map(lambda case: case[0]),
    mutants={"the factor 2 of tau is dropped": {"distance": lambda q: tau(q) / 2}},
)
def tau_moves(g, published, *, distance=tau):
    """The two published values of tau, to their four digits."""
    q = Fraction(2 * g * g, 1 + g * g)
    gap = abs(distance(q) - ball(Fraction(published)))
    yield at_most("to four digits", gap, Fraction(1, 20_000))
