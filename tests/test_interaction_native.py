"""Native quantities and gauges (MATH 3.10, 8)."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from softrank_exact import UserError
from softrank_exact.interaction import (
    Enclosure,
    ExactMatrix,
    gauge_audit,
    gauged,
    native_profile,
    of_qk,
    residual,
    tau,
)
from softrank_exact.interaction.native import squared_radius

BOX = np.array(list(product((-1, 1), repeat=2)))
CROSS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])


def around(value: Enclosure, expected: float, width: float = 1e-5) -> bool:
    low, high = float(value.lower), float(value.upper)
    return low <= expected * (1 + 1e-12) and high >= expected * (1 - 1e-12) and high - low <= width


def gaussian(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((9, 4)), rng.standard_normal((12, 4))


@pytest.mark.parametrize("g", [1, 2, 4, Fraction(3, 2)])
def test_gamma_is_unboundedly_distorted(g: Fraction | int) -> None:
    """MATH 8.1: Gamma = scale (g^2 + g^-2) exactly, in units where kappa = 2 scale."""
    Q, K = gauged(BOX, BOX, [[Fraction(g), 0], [0, 1 / Fraction(g)]])
    gamma = native_profile(Q, K, Fraction(3)).gamma
    assert gamma == Enclosure.exactly(3 * (Fraction(g) ** 2 + Fraction(g) ** -2))


def test_the_leading_direction_flips() -> None:
    """MATH 8.2: keys +-2 e1, +-e2; the gauge diag(4, 1) makes e2 the top direction."""
    keys = CROSS * np.array([[2], [2], [1], [1]])
    before = native_profile(CROSS, keys).points[1]
    Q, K = gauged(CROSS, keys, np.diag([4, 1]))
    after = native_profile(Q, K).points[1]
    # Dropped: e2 before, e1 after; q of what is dropped is osc osc / 2.
    assert before.direct == Enclosure.exactly(2)
    assert after.direct == Enclosure.exactly(4)
    assert around(before.width, 2.0)
    assert around(after.width, 4.0)


def test_the_best_native_subspace_still_moves() -> None:
    """MATH 8.3, w = (1, -1) and its best companion in the gauge diag(2, 1)."""
    for g, u, expected in ((1, (1, 1), Fraction(1)), (2, (1, 2), Fraction(8, 5))):
        Q, K = gauged(CROSS, CROSS, np.diag([g, 1]))
        direction = ExactMatrix.of(np.array([u]).T)
        dropped = (Q @ direction) @ (K @ direction).T
        value = residual(dropped.scaled(Fraction(1, sum(x * x for x in u)))).value
        assert value == expected
    assert float(tau(Enclosure.exactly(1)).upper) == pytest.approx(0.4898, abs=1e-4)
    assert float(tau(Enclosure.exactly(Fraction(8, 5))).upper) == pytest.approx(0.7599, abs=1e-4)


def test_the_enclosures_hold_the_floating_point_values() -> None:
    Q, K = gaussian()
    found = native_profile(Q, K, Fraction(1), 4)
    Z = K - K.mean(axis=0)
    _, s, Vt = np.linalg.svd(Z)
    radius = float(squared_radius(ExactMatrix.of(Q)).upper) ** 0.5 / 2
    for r, point in enumerate(found.points):
        rest = Z @ Vt[r:].T
        longest = np.linalg.norm(rest[:, None] - rest[None], axis=2).max()
        assert around(point.width, radius * longest, 1e-4)
        tail = s[r] if r < len(s) else 0.0
        assert around(point.spectral, radius * np.sqrt(2) * tail, 1e-4)
        assert point.width.lower <= point.spectral.upper
        assert point.direct.lower <= point.width.upper + Fraction(1, 10**6)
    assert found.points[-1].direct == Enclosure.exactly(0)


def test_the_dimension_is_the_first_rank_within_the_tolerance() -> None:
    Q, K = gaussian()
    found = native_profile(Q / 4, K)
    for tolerance in (Fraction(1, 12), Fraction(1, 2), Fraction(1), Fraction(2)):
        low, high = found.dimension(tolerance)
        assert low == high
        assert found.points[low].tau.upper <= tolerance
        assert low == 0 or found.points[low - 1].tau.lower > tolerance


def test_keys_are_projected_on_what_queries_see() -> None:
    """The third component of the keys is orthogonal to U and does not count in Gamma."""
    Q = np.column_stack([BOX, np.full(4, 7)])
    K = np.column_stack([BOX, [5, -3, 8, 100]])
    assert native_profile(Q, K).gamma == Enclosure.exactly(2)
    tilted = np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1]])
    found = native_profile(Q @ tilted, K @ tilted)
    assert around(found.gamma, 4.0)


def test_equal_queries_see_nothing() -> None:
    found = native_profile(np.ones((3, 2)), np.arange(8).reshape(4, 2))
    assert found.gamma.upper == 0
    assert found.dimension(Fraction(1, 12)) == (0, 0)


@pytest.mark.parametrize("m", [1, 2, 5, 20])
def test_the_squared_radius_is_enclosed(m: int) -> None:
    rng = np.random.default_rng(m)
    found = squared_radius(ExactMatrix.of(rng.integers(-50, 51, (m, 3))))
    assert 0 <= found.lower <= found.upper
    assert found.upper <= found.lower * Fraction(1000001, 1000000)


def test_the_squared_radius_of_symmetric_sets_is_exact() -> None:
    assert squared_radius(ExactMatrix.of(BOX)) == Enclosure.exactly(2)
    segment = ExactMatrix.of([[0, 0], [6, 8]])
    assert squared_radius(segment) == Enclosure.exactly(25)
    inner = ExactMatrix.of([[0, 0], [6, 8], [3, 4], [3, 3]])
    assert squared_radius(inner).lower <= 25 <= squared_radius(inner).upper


def test_the_audit_moves_what_is_native_only() -> None:
    Q, K = gaussian()
    found = gauge_audit(Q, K, condition=(4, 16), scale=Fraction(1), over_sqrt=4)
    assert [row.condition for row in found.rows] == [1, 4, 16]
    assert found.unchanged
    assert found.intrinsic_agree
    gammas = [row.native.gamma for row in found.rows]
    assert gammas[0].upper < gammas[1].lower < gammas[2].lower
    mild, strong = found.movements(Fraction(1, 12))
    assert 1 < mild.gamma.lower <= mild.gamma.upper < strong.gamma.lower
    assert min(mild.width.lower, mild.spectral.lower, mild.direct.lower) > 1
    assert mild.dimension[0] == found.rows[0].native.dimension(Fraction(1, 12))
    for row in found.rows:
        assert max(row.gauge) / min(row.gauge) == row.condition
        assert row.kappa.lower <= gammas[0].upper


def test_orthogonal_gauges_and_scalings_leave_native_quantities() -> None:
    Q, K = (np.round(side * 8) for side in gaussian())
    rotation = np.array([[3, 4, 0, 0], [-4, 3, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5]]) / Fraction(5)
    X, Y = gauged(Q, K, rotation)
    before, after = native_profile(Q, K), native_profile(X, Y)
    assert before.gamma.lower <= after.gamma.upper
    assert after.gamma.lower <= before.gamma.upper
    for one, other in zip(before.points, after.points, strict=True):
        assert one.width.lower <= other.width.upper
        assert other.width.lower <= one.width.upper


def test_the_wrong_gauge_changes_the_attention() -> None:
    """K G instead of K G^-T."""
    Q, K = gaussian()
    G = ExactMatrix.of(np.diag([1, 2, 3, 4]))
    X, Y = gauged(Q, K, np.diag([1, 2, 3, 4]))
    assert of_qk(X, Y).logits.equals(of_qk(Q, K).logits)
    assert not of_qk(X, ExactMatrix.of(K) @ G).logits.equals(of_qk(Q, K).logits)


def test_bad_gauges_are_refused() -> None:
    Q, K = gaussian()
    with pytest.raises(UserError, match="singular"):
        gauged(Q, K, np.zeros((4, 4)))
    with pytest.raises(UserError, match="shape"):
        gauged(Q, K, np.eye(3))
    with pytest.raises(UserError, match="condition is -4"):
        gauge_audit(Q, K, condition=(-4,))
