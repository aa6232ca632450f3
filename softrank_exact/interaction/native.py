"""Native quantities: what queries and keys show, and what a change of gauge does to it.

MATH 3.10 and 8.

They depend on the factors Q and K, not on the attention matrix alone: Q G and K G^-T give the same
A and other values. ``gauge_audit`` shows it, beside the intrinsic quantities, which do not move.
Lengths are those of the logits' space: a product of a query length, a key length and the scale is
dimensionless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq_mat

from ..errors import UserError
from .exact import (
    Enclosure,
    ExactMatrix,
    Floats,
    from_flint,
    from_rational,
    sqrt_enclosure,
    to_flint,
)
from .profile import Profile, profile
from .residual import enclosed_residual, residual, tau
from .visible import of_qk

_STEPS = 2000
_RADIUS_GAP = 1e-7
_WEIGHT_BITS = 40
_BASIS_BITS = 44


def squared_radius(points: ExactMatrix) -> Enclosure:
    """The squared radius of the smallest ball around the rows of a rational matrix (m x d).

    From above a centre, from below weights: R^2 >= sum_i w_i |x_i - c|^2, c = sum_i w_i x_i. In
    squared units of the entries; a point for symmetric sets such as the vertices of a box.
    """
    weights = ExactMatrix.rounded(_ball_weights(points.floats()), _WEIGHT_BITS).numerators
    total = int(weights.sum())
    moved = total * points.numerators - weights @ points.numerators
    squares = (moved * moved).sum(axis=1)
    unit = (total * points.den) ** 2
    return Enclosure(
        Fraction(int(weights @ squares), total * unit), Fraction(int(squares.max()), unit)
    )


def _ball_weights(X: Floats) -> Floats:
    """Weights (m,) whose mean is near the centre of the smallest ball, by Frank-Wolfe steps towards
    the farthest row or away from the nearest one that has weight."""
    scale = float(np.abs(X).max()) or 1.0
    X = X / scale
    w = np.full(len(X), 1 / len(X))
    for _ in range(_STEPS):
        centre = w @ X
        f = ((X - centre) ** 2).sum(axis=1)
        mean = w @ f
        if f.max() <= (1 + _RADIUS_GAP) * mean:
            break
        far, near = int(f.argmax()), int(np.where(w > 0, f, np.inf).argmin())
        if f[far] - mean >= mean - f[near]:
            step = min(1.0, (f[far] - mean) / (2 * f[far]))
            w = w * (1 - step)
            w[far] += step
        else:
            limit = w[near] / (1 - w[near])
            step = min(limit, (mean - f[near]) / (2 * f[near])) if f[near] else limit
            w = w * (1 + step)
            w[near] = max(0.0, w[near] - step)
    return w


@dataclass(frozen=True)
class NativePoint:
    """The native quantities of W, the span of the leading ``rank`` right singular vectors of the
    centred visible keys, in float64 (W is a fixed rational subspace; all else is certified for it).

    ``width``: eta_W = scale R(Q) max_jj' |(I - P_W)(k_j - k_j')|; ``spectral``: its bound
    scale R(Q) sqrt(2) sigma_{rank+1}(Z); ``direct``: q(C - T_W), T_W = scale Q P_W K^T.
    """

    rank: int
    width: Enclosure
    spectral: Enclosure
    direct: Enclosure

    @property
    def tau(self) -> Enclosure:
        """tau_W = 2 tanh(eta_W / 4) (MATH 3.10)."""
        return tau(self.width)

    @property
    def direct_tau(self) -> Enclosure:
        """2 tanh(q(C - T_W) / 4)."""
        return tau(self.direct)


@dataclass(frozen=True)
class NativeProfile:
    """Gamma = scale R(Q_U) R(K_U), and one point per retained rank 0 .. d (MATH 3.10)."""

    gamma: Enclosure
    points: tuple[NativePoint, ...]

    def dimension(self, tolerance: Fraction) -> tuple[int, int]:
        """r_int^SVD(tolerance) = min { r : tau_W <= tolerance } between two integers, nearly always
        equal; it is reported at tolerance eps/3."""
        first_possible = min(p.rank for p in self.points if p.tau.lower <= tolerance)
        first_certain = min(p.rank for p in self.points if p.tau.upper <= tolerance)
        return first_possible, first_certain


def native_profile(
    Q: Any, K: Any, scale: Fraction = Fraction(1), over_sqrt: int = 1
) -> NativeProfile:
    """The native quantities of queries Q (m x d) and keys K (n x d), floats or fractions, each
    taken exactly; logits are (scale / sqrt(over_sqrt)) Q K^T.

    ``UserError`` for arrays that are no finite matrices of equally many columns.
    """
    interaction = of_qk(Q, K, scale, over_sqrt)
    queries, keys = ExactMatrix.of(Q, "Q"), ExactMatrix.of(K, "K")
    factor = sqrt_enclosure(scale**2 / over_sqrt)
    seen = _seen(keys, queries)
    query_radius = squared_radius(queries)
    reach = factor * root(query_radius)
    space = _KeySpace(seen)
    points = [
        NativePoint(
            r,
            reach * space.diameter(r),
            reach * sqrt_enclosure(Fraction(2)) * space.singular_value(r),
            enclosed_residual(
                residual(interaction.logits - _retained(queries, keys, space.basis, r)),
                interaction,
            ),
        )
        for r in range(keys.shape[1] + 1)
    ]
    return NativeProfile(factor * root(query_radius * squared_radius(seen)), tuple(points))


class _KeySpace:
    """The centred visible keys Z (n x d) in a basis V of right singular vectors.

    V is rational and nearly orthonormal, ||V^T V - I|| <= delta < 1/4. W of rank r means the first
    r columns of the orthonormal O = V (V^T V)^-1/2; coordinates in O differ from those in V by at
    most delta times the length.
    """

    def __init__(self, keys: ExactMatrix) -> None:
        Z = keys.centred_rows()
        _, _, Vt = np.linalg.svd(Z.floats(), full_matrices=True)
        self.basis = ExactMatrix.rounded(Vt.T, _BASIS_BITS)
        self._delta = _row_norm(_minus_identity(self.basis.T @ self.basis))
        if not (4 * self._delta < 1):
            raise ArithmeticError("the singular vectors in float64 are not orthonormal")
        self._coordinates = Z @ self.basis
        gram = self._coordinates.T @ self._coordinates
        self._squares = sorted(np.diagonal(gram.numerators).tolist(), reverse=True)
        off = gram.numerators - np.diag(np.diagonal(gram.numerators))
        self._off, self._gram_den = int(np.abs(off).sum(axis=1).max()), gram.den
        self._scale, self._distances = self._tail_distances()

    def singular_value(self, r: int) -> Enclosure:
        """sigma_{r+1}(Z), 0 for r = d: Weyl for the off-diagonal part, Ostrowski for the basis."""
        if r == len(self._squares):
            return Enclosure.exactly(0)
        square, off = self._squares[r], self._off
        low = Fraction(max(square - off, 0), self._gram_den) / (1 + self._delta)
        return root(Enclosure(low, Fraction(square + off, self._gram_den) / (1 - self._delta)))

    def diameter(self, r: int) -> Enclosure:
        """max_jj' |(I - P_W)(z_j - z_j')|."""
        longest, d = self._distances[0], len(self._squares)
        whole = sqrt_enclosure(Fraction(longest)).upper + d
        slack = self._delta * whole + d
        middle = sqrt_enclosure(Fraction(self._distances[r]))
        low, high = max(middle.lower - slack, Fraction(0)), middle.upper + slack
        if r == d:
            return Enclosure.exactly(0)
        return Enclosure(low * self._scale, high * self._scale)

    def _tail_distances(self) -> tuple[Fraction, list[int]]:
        """A unit, and for each r the largest squared distance between rows of the coordinates from
        column r on, rounded to multiples of the unit (an error of at most d units in a length)."""
        Y = self._coordinates.floats()
        n, d = Y.shape
        # Differences of such integers have squares whose sum over d columns is below 2^62.
        bits = (60 - d.bit_length()) // 2
        exponent = int(np.frexp(np.abs(Y).max())[1]) - bits
        whole = np.rint(np.ldexp(Y, -exponent)).astype(np.int64)
        total = np.zeros((n, n), dtype=np.int64)
        longest = [0]
        for k in reversed(range(d)):
            total += (whole[:, None, k] - whole[None, :, k]) ** 2
            longest.append(int(total.max()))
        return Fraction(2) ** exponent, longest[::-1]


def _retained(queries: ExactMatrix, keys: ExactMatrix, V: ExactMatrix, r: int) -> ExactMatrix:
    """Q V_r V_r^T K^T, which is Q P_W K^T up to the rounding of V; Q K^T itself for r = d."""
    if r == V.shape[1]:
        return queries @ keys.T
    W = V.columns(slice(r))
    return (queries @ W) @ (keys @ W).T


def _seen(keys: ExactMatrix, queries: ExactMatrix) -> ExactMatrix:
    """The keys projected on U, the span of the differences of queries (MATH 3.3), exactly."""
    reduced, _, rank = to_flint(queries.centred_rows().numerators).rref()
    if rank == keys.shape[1]:
        return keys
    if rank == 0:
        return keys.scaled(Fraction(0))
    rows = to_flint(from_flint(reduced)[:rank])
    solved = (rows * rows.transpose()).solve(rows * to_flint(keys.numerators.T))
    seen = from_rational(solved.transpose() * fmpq_mat(rows))
    return seen.scaled(Fraction(1, keys.den))


def root(square: Enclosure) -> Enclosure:
    return Enclosure(sqrt_enclosure(square.lower).lower, sqrt_enclosure(square.upper).upper)


def _minus_identity(S: ExactMatrix) -> ExactMatrix:
    return ExactMatrix(S.numerators - S.den * np.eye(len(S.numerators), dtype=object), S.den)


def _row_norm(S: ExactMatrix) -> Fraction:
    return Fraction(int(np.abs(S.numerators).sum(axis=1).max()), S.den)


@dataclass(frozen=True)
class GaugeRow:
    """One representation of the same attention: Q G, K G^-T with G = diag(``gauge``).

    ``unchanged``: the products of queries and keys are those of the first row, exactly, and so is
    A. ``interaction`` and what follows are computed anew from the gauged factors.
    """

    condition: Fraction
    gauge: tuple[Fraction, ...]
    unchanged: bool
    native: NativeProfile
    intrinsic: Profile

    @property
    def q(self) -> Enclosure:
        """q(C), dimensionless."""
        return self.intrinsic.point(0).q

    @cached_property
    def kappa(self) -> Enclosure:
        """kappa(C), dimensionless."""
        return self.intrinsic.point(self.intrinsic.rank.upper).kappa


@dataclass(frozen=True)
class Movement:
    """How far native quantities of one gauge are from those of the identity gauge, as factors.

    Of ``width``, ``spectral`` and ``direct``: the largest factor over the ranks r where both are
    certainly positive. ``dimension``: r_int^SVD before and after, each between two integers.
    """

    condition: Fraction
    gamma: Enclosure
    width: Enclosure
    spectral: Enclosure
    direct: Enclosure
    dimension: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class GaugeAudit:
    """The identity gauge first, then one row per condition ratio (MATH 8)."""

    rows: tuple[GaugeRow, ...]

    @property
    def unchanged(self) -> bool:
        """Proven: no gauge has changed the attention."""
        return all(row.unchanged for row in self.rows)

    @property
    def intrinsic_agree(self) -> bool:
        """Rank and q equal in all rows (q up to its unit's enclosure), kappa's enclosures meet."""
        first = self.rows[0]
        return all(
            row.intrinsic.rank.lower == first.intrinsic.rank.lower
            and row.q == first.q
            and row.kappa.lower <= first.kappa.upper
            and first.kappa.lower <= row.kappa.upper
            for row in self.rows
        )

    def movements(self, tolerance: Fraction) -> tuple[Movement, ...]:
        """One row per condition ratio; the dimension is that at this tolerance (eps/3)."""
        first = self.rows[0].native
        return tuple(_movement(row, first, tolerance) for row in self.rows[1:])


def _movement(row: GaugeRow, first: NativeProfile, tolerance: Fraction) -> Movement:
    def factor(name: str) -> Enclosure:
        pairs = zip(first.points, row.native.points, strict=True)
        return _largest_factor([(getattr(a, name), getattr(b, name)) for a, b in pairs])

    return Movement(
        row.condition,
        _largest_factor([(first.gamma, row.native.gamma)]),
        factor("width"),
        factor("spectral"),
        factor("direct"),
        (first.dimension(tolerance), row.native.dimension(tolerance)),
    )


def _largest_factor(pairs: Iterable[tuple[Enclosure, Enclosure]]) -> Enclosure:
    """The largest after / before over pairs of certainly positive numbers; 1 if there is none."""
    factors = [
        (after.lower / before.upper, after.upper / before.lower)
        for before, after in pairs
        if before.lower > 0 and after.lower > 0
    ]
    lows, highs = zip(*(factors or [(Fraction(1), Fraction(1))]), strict=True)
    return Enclosure(max(lows), max(highs))


def gauge_audit(
    Q: Any,
    K: Any,
    condition: Iterable[Fraction | int] = (4, 16),
    scale: Fraction = Fraction(1),
    over_sqrt: int = 1,
) -> GaugeAudit:
    """Native and intrinsic quantities under diagonal gauges of the given condition ratios.

    Q: m x d, K: n x d, floats or fractions, taken exactly. The gauge of ratio c is diagonal with
    entries in arithmetic progression from 1 to c. ``UserError`` for a ratio that is not positive.
    """
    queries, keys = ExactMatrix.of(Q, "Q"), ExactMatrix.of(K, "K")
    ratios = [Fraction(1), *(Fraction(c) for c in condition)]
    rows = []
    for c in ratios:
        if not c > 0:
            raise UserError(f"condition is {c}; accepted: positive ratios such as 4 and 16")
        gauge = _progression(c, queries.shape[1])
        X, Y = gauged(queries, keys, np.diag(np.array(gauge, dtype=object)))
        interaction = of_qk(X, Y, scale, over_sqrt)
        rows.append(
            GaugeRow(
                c,
                gauge,
                interaction.logits.equals(queries @ keys.T),
                native_profile(X, Y, scale, over_sqrt),
                profile(interaction),
            )
        )
    return GaugeAudit(tuple(rows))


def gauged(Q: Any, K: Any, G: Any) -> tuple[ExactMatrix, ExactMatrix]:
    """Q G and K G^-T exactly, for a rational matrix G (d x d). ``UserError`` if G is singular."""
    queries, keys, matrix = ExactMatrix.of(Q, "Q"), ExactMatrix.of(K, "K"), ExactMatrix.of(G, "G")
    if matrix.shape != (queries.shape[1], keys.shape[1]):
        raise UserError(f"G has shape {matrix.shape}; accepted: {queries.shape[1]} x the same")
    try:
        inverse = from_rational(to_flint(matrix.numerators.T).inv())
    except ZeroDivisionError:
        raise UserError("G is singular; accepted: an invertible matrix") from None
    return queries @ matrix, keys @ inverse.scaled(Fraction(matrix.den))


def _progression(last: Fraction, length: int) -> tuple[Fraction, ...]:
    steps = max(length - 1, 1)
    return tuple(1 + (last - 1) * Fraction(k, steps) for k in range(length))
