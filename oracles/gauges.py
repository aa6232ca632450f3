"""Gauges: Q -> Q G, K -> K G^-T leaves A unchanged and moves every native quantity (MATH 8, 3.10).

All quantities are rational: radii appear squared, and a product of radii is checked by its square.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from .balls import at_precision, ball, enclosure
from .claims import Claim, Step, arithmetic
from .rational import Matrix, centred, inner, matrix, ones, zeros
from .size import enclosing_ball, residual_steps, size_steps

SQUARE = matrix([[1, 1], [1, -1], [-1, 1], [-1, -1]])
CROSS = matrix([[1, 0], [-1, 0], [0, 1], [0, -1]])
SEGMENT = matrix([[1, 0], [-1, 0]])
SQUEEZES = (Fraction(2), Fraction(4))
"""g of the gauges diag(g, 1/g): condition ratios 4 and 16."""


@dataclass(frozen=True)
class Head:
    """Queries Q (m x d) and keys K (n x d); scale 1. Their points are symmetric about 0."""

    Q: Matrix
    K: Matrix

    def gauged(self, *diagonal: Fraction | int) -> Head:
        """The same head in the gauge G = diag(...)."""
        g = matrix(diagonal)
        return Head(self.Q * g, self.K / g)

    @property
    def logits(self) -> Matrix:
        """Q K^T."""
        return self.Q @ self.K.T


def unchanged(before: Head, after: Head) -> Step:
    """The logits, and so A, are the same matrix."""
    return arithmetic(
        "Q' K'^T = Q K^T exactly", np.array_equal(before.logits, after.logits), Q=after.Q, K=after.K
    )


def claims() -> Iterator[Claim]:
    """All claims of MATH 8, and the unattained infimum of 3.10."""
    yield size_of_square()
    for g in SQUEEZES:
        yield unbounded_distortion(g)
    yield unattained_infimum()
    yield selection_flip()
    for g in (Fraction(1), Fraction(2), Fraction(4), Fraction(1, 2)):
        yield best_direction(g)


def size_of_square() -> Claim:
    """8.1: kappa(C) = 2 for Q = K = (+-1, +-1)."""
    head = Head(SQUARE, SQUARE)
    T, mean = centred(head.logits), ones(4) / 4
    steps = size_steps(T, Fraction(2), (head.Q, head.K), (mean, mean), (mean, mean, T / 16))
    return Claim(
        "gauges/square-size",
        "MATH 8.1, 3.6",
        "kappa(C) / scale, the same in every gauge",
        {"queries": head.Q, "keys": head.K},
        Fraction(2),
        steps,
    )


def native_size(
    head: Head, query_weights: Matrix, key_weights: Matrix
) -> tuple[Fraction, list[Step]]:
    """Gamma^2 = R(Q)^2 R(K)^2, with the two enclosing balls proven."""
    _, query_square, query_step = enclosing_ball(head.Q, query_weights)
    _, key_square, key_step = enclosing_ball(head.K, key_weights)
    return query_square * key_square, [query_step, key_step]


def unbounded_distortion(g: Fraction) -> Claim:
    """8.1: G = diag(g, 1/g) has condition ratio g^2 and Gamma = g^2 + g^-2."""
    head = Head(SQUARE, SQUARE)
    gauged = head.gauged(g, 1 / g)
    mean = ones(4) / 4
    square, steps = native_size(gauged, mean, mean)
    gamma = g**2 + g**-2
    return Claim(
        f"gauges/native-size-condition-{g**2}",
        "MATH 8.1",
        "Gamma / scale in the gauge diag(g, 1/g), g^2 the condition ratio; kappa(C) / scale is 2",
        {"queries": head.Q, "keys": head.K, "gauge": [g, 1 / g], "condition": g**2},
        gamma,
        (
            unchanged(head, gauged),
            *steps,
            arithmetic("the product of the squared radii is its square", square == gamma**2),
        ),
    )


def unattained_infimum() -> Claim:
    """3.10: queries (+-1, +-1), keys +-e1, G = diag(1, d): Gamma^2 = 1 + d^2 > 1 = kappa(C)^2."""
    head = Head(SQUARE, SEGMENT)
    four, two = ones(4) / 4, ones(2) / 2
    gauges = [Fraction(1, 10**k) for k in range(4)]
    squares, steps = [], []
    for d in gauges:
        gauged = head.gauged(1, d)
        square, balls = native_size(gauged, four, two)
        squares.append(square)
        steps += [unchanged(head, gauged), *balls]
    steps.append(
        arithmetic("Gamma^2 = 1 + d^2", squares == [1 + d**2 for d in gauges], squares=squares)
    )
    T = centred(head.logits)
    reduced = (head.Q[:, :1], head.K[:, :1])
    steps += size_steps(T, Fraction(1), reduced, (four, two), (four, two, T / 8))
    return Claim(
        "gauges/infimum-not-attained",
        "MATH 3.10, 3.6",
        "Gamma^2 in the gauges diag(1, d), and kappa(C)",
        {"queries": head.Q, "keys": head.K, "d": gauges},
        {"native_size_squared": squares, "kappa": Fraction(1)},
        tuple(steps),
    )


def selection_flip() -> Claim:
    """8.2: the top right-singular direction of the keys flips, with a strict gap on both sides."""
    head = Head(CROSS, matrix([[2, 0], [-2, 0], [0, 1], [0, -1]]))
    gauged = head.gauged(4, 1)
    before, after = (h.K.T @ h.K for h in (head, gauged))
    top = [int(np.argmax(np.diag(gram))) + 1 for gram in (before, after)]
    return Claim(
        "gauges/selection-flips",
        "MATH 8.2",
        "index of the top singular direction of the centred keys, before and after G = diag(4, 1)",
        {"queries": head.Q, "keys": head.K, "gauge": [4, 1]},
        top,
        (
            unchanged(head, gauged),
            arithmetic(
                "keys are centred and their Gram matrices diagonal with distinct entries",
                not any(h.K.sum(axis=0).any() for h in (head, gauged))
                and all(gram[0, 1] == 0 and gram[0, 0] != gram[1, 1] for gram in (before, after)),
                squared_singular_values=[np.diag(before), np.diag(after)],
            ),
        ),
    )


def discarded(head: Head, u: Matrix) -> Matrix:
    """The part of the logits along the direction u (any length), (Q u)(K u)^T / |u|^2."""
    return np.outer(head.Q @ u, head.K @ u) / inner(u, u)


def candidate_directions(head: Head) -> list[Matrix]:
    """Normals to the segments that join two queries or two keys (MATH 8.3).

    Between neighbouring normals both widths of u are linear in u, so their product over |u|^2 is,
    in the angle, a product of two positive sinusoids: log-concave, hence least at an end.
    """
    segments = [a - b for P in (head.Q, head.K) for a, b in combinations(list(P), 2)]
    return [matrix([-segment[1], segment[0]]) for segment in segments if segment.any()]


def oscillation(x: Matrix) -> Fraction:
    """max x - min x."""
    return max(x) - min(x)


def residual_along(head: Head, u: Matrix) -> Fraction:
    """q of the part discarded with u: width(Q u) width(K u) / (2 |u|^2)."""
    return oscillation(head.Q @ u) * oscillation(head.K @ u) / (2 * inner(u, u))


def rank_one_residual(head: Head, u: Matrix) -> tuple[Step, Step]:
    """q(x y^T) = osc(x) osc(y)/2, proven at u by potentials and a dual (MATH 3.4)."""
    x, y = head.Q @ u, head.K @ u / inner(u, u)
    p, s = (max(x) + min(x)) / 2, (max(y) + min(y)) / 2
    D = zeros(len(x), len(y))
    high, low = [int(np.argmax(x)), int(np.argmin(x))], [int(np.argmax(y)), int(np.argmin(y))]
    D[np.ix_(high, low)] = matrix([[1, -1], [-1, 1]]) / 2
    return residual_steps(np.outer(x, y), residual_along(head, u), (s * x - p * s, p * y), D)


@at_precision
def best_direction(g: Fraction) -> Claim:
    """8.3: the least residual over all one-dimensional native subspaces moves with the gauge."""
    head = Head(CROSS, CROSS)
    gauged = head.gauged(g, 1)
    u = min(candidate_directions(gauged), key=lambda v: residual_along(gauged, v))
    least = residual_along(gauged, u)
    big = max(g, 1 / g)
    return Claim(
        f"gauges/best-subspace-residual-{g.numerator}-over-{g.denominator}",
        "MATH 8.3",
        "least q over native subspaces of dimension one in the gauge diag(g, 1), and tau",
        {"queries": head.Q, "keys": head.K, "gauge": [g, 1]},
        {"q": least, "tau": enclosure(2 * (ball(least) / 4).tanh())},
        (
            unchanged(head, gauged),
            arithmetic(
                "least over the normals of all segments",
                all(least <= residual_along(gauged, v) for v in candidate_directions(gauged)),
                discarded_direction=u,
            ),
            *rank_one_residual(gauged, u),
            arithmetic("2 h^2/(1 + h^2), h = max(g, 1/g)", least == 2 * big**2 / (1 + big**2)),
        ),
    )
