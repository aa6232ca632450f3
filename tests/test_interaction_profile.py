"""The profile (MATH 3.7-3.9): one T per point, no number from an unknown constant, and explicit
bounds that the kernel accepts."""

from __future__ import annotations

import inspect
from fractions import Fraction
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact import Target
from softrank_exact.interaction import (
    ExactMatrix,
    ProfilePoint,
    ShapeScore,
    explicit_bound,
    explicit_witness,
    of_logits,
    of_matrix,
    profile,
    visible,
)
from softrank_exact.interaction import profile as profile_function
from softrank_exact.interaction.explicit import (
    _minimax,
    half_oscillation,
    polynomial_witness,
    relative_error,
)
from softrank_exact.kernel.check import check
from softrank_exact.rounding import question, round_and_check

QUARTER = Fraction(1, 4)


def low_rank_logits(r: int, size: float, n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(r)
    X, Y = rng.uniform(-1, 1, (n, r)), rng.uniform(-1, 1, (n, r))
    noise = 1e-3 * rng.standard_normal((n, n))
    return size / r * X @ Y.T + rng.standard_normal(n) + noise


def test_the_ends_of_the_profile() -> None:
    rng = np.random.default_rng(0)
    found = profile(of_logits(rng.integers(-9, 10, (6, 8)) / 4))
    points = list(found.points())
    assert [point.rank for point in points] == list(range(6))
    assert points[0].kappa.upper == 0
    assert points[0].q.lower > 0
    assert (points[-1].q.upper, points[-1].tau.upper) == (0, 0)
    assert points[-1].retained.matrix.doubly_centred().equals(found.interaction.centred())
    for point in points:
        assert point.q.lower <= point.q.upper
        assert point.residual.proves(found.interaction.logits - point.retained.matrix)
        assert np.linalg.matrix_rank(point.retained.matrix.doubly_centred().floats()) <= point.rank
    with pytest.raises(ValueError, match=r"outside 0\.\.5"):
        found.point(6)


def test_a_matrix_profile_agrees_with_that_of_its_logits() -> None:
    rng = np.random.default_rng(1)
    H = rng.integers(-9, 10, (6, 7)) / 8
    A = np.exp(H) / np.exp(H).sum(axis=1, keepdims=True)
    ours, theirs = profile(of_matrix(A)), profile(of_logits(H))
    for r in range(6):
        assert float(ours.point(r).q.upper) == pytest.approx(
            float(theirs.point(r).q.upper), abs=1e-6
        )
        assert float(ours.point(r).kappa.upper) == pytest.approx(
            float(theirs.point(r).kappa.upper), rel=2e-3, abs=1e-6
        )


def test_kappa_and_tau_of_different_interactions_cannot_meet() -> None:
    """MATH 9.5: K_{3/4} at eps = 1/2 has rank 2. T = C has tau 0, T = 0 has kappa 0; a point has
    one T, so that neither of the two claims rank 1."""
    A = [[Fraction(7, 8), Fraction(1, 8)], [Fraction(1, 8), Fraction(7, 8)]]
    found, eps = profile(of_matrix(A)), Fraction(1, 2)
    nothing, all_of_it = found.point(0), found.point(1)
    assert all_of_it.tau.upper == 0
    assert nothing.kappa.upper == 0
    assert nothing.shape_score(eps) is None
    assert explicit_bound(nothing, eps) is None
    assert explicit_bound(all_of_it, eps) is None
    assert list(inspect.signature(ProfilePoint).parameters) == ["interaction", "retained"]
    assert list(inspect.signature(ProfilePoint.shape_score).parameters) == ["self", "eps"]


def test_the_shape_score_is_no_number() -> None:
    score = profile(of_logits(low_rank_logits(2, 1.0))).point(2).shape_score(QUARTER)
    assert isinstance(score, ShapeScore)
    assert "not a bound" in str(score)
    with pytest.raises(TypeError):
        int(score)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        _ = score < 3  # type: ignore[operator]


def test_the_shape_score_has_its_formula() -> None:
    point = profile(of_logits(low_rank_logits(2, 1.0))).point(2)
    score = point.shape_score(QUARTER)
    assert score is not None
    kappa, tau = float(point.kappa.upper), float(point.tau.upper)
    assert score.upper == pytest.approx(np.log(1 + kappa / (0.25 - tau) ** 2), rel=1e-9)
    assert score.lower <= score.upper


@pytest.mark.parametrize(("sigma", "degree"), [(2, 3), (4, 5), (8, 9)])
def test_the_degrees_of_the_theory(sigma: int, degree: int) -> None:
    """MATH 3.8 at eps = 1/4: the best polynomial has degree about 3, 5, 9; Taylor 6, 13, 27."""
    assert relative_error(_minimax(sigma, degree), Fraction(sigma)) <= QUARTER
    assert relative_error(_minimax(sigma, degree - 2), Fraction(sigma)) > QUARTER


@settings(deadline=None, max_examples=40)
@given(
    st.fractions(Fraction(1, 8), 12, max_denominator=64),
    st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1, max_size=7),
)
def test_the_relative_error_is_an_upper_bound(sigma: Fraction, coefficients: list[int]) -> None:
    bound = relative_error(tuple(coefficients), sigma)
    t = np.linspace(-1, 1, 4001)
    values = np.polynomial.polynomial.polyval(t, [c / 2.0**60 for c in coefficients])
    seen = np.abs(1 - values * np.exp(-float(sigma) * t)).max()
    assert float(bound) >= seen * (1 - 1e-9) - 1e-9
    assert float(bound) <= seen * 1.01 + 1e-3


def test_taylors_polynomial_has_taylors_error() -> None:
    sigma, degree = Fraction(1), 6
    taylor = tuple((1 << 60) // factorial(k) for k in range(degree + 1))
    assert float(relative_error(taylor, sigma)) <= np.e / factorial(degree + 1) + 1e-12


@pytest.mark.parametrize(("r", "size"), [(1, 2.0), (1, 5.0), (2, 1.0), (2, 2.0), (3, 1.0)])
@pytest.mark.parametrize("eps", [Fraction(1, 10), QUARTER])
def test_an_explicit_bound_is_a_factor_witness(r: int, size: float, eps: Fraction) -> None:
    target = Target.logits(low_rank_logits(r, size), eps)
    point = profile(visible(target)).point(r)
    bound = explicit_bound(point, eps)
    assert bound is not None
    assert bound.bound == comb(r + bound.degree, bound.degree) < 40
    assert bound.error + bound.tau <= eps
    assert half_oscillation(point) <= point.kappa.upper * Fraction(1001, 1000)
    witness = polynomial_witness(point, bound, 40)
    verdict = round_and_check(question(target, eps), target.float_matrix, witness, bound.bound)
    assert verdict.verified
    # MATH 3.8 promises this much; the kernel finds at most that.
    assert verdict.finding.found <= bound.error + bound.tau + Fraction(1, 10**6)


def test_the_fitted_witness_is_verified_and_sharper() -> None:
    eps = QUARTER
    target = Target.logits(low_rank_logits(2, 2.0), eps)
    found = profile(visible(target))
    bound = explicit_bound(found.point(2), eps)
    claim = explicit_witness([found.point(r) for r in range(4)], target, eps)
    assert bound is not None
    assert claim is not None
    assert claim.rank < bound.bound
    assert claim.witness is not None
    assert check(question(target, eps), claim.rank, claim.witness).code == "ok"


def test_the_fitted_witness_skips_masked_keys() -> None:
    H = low_rank_logits(1, 1.0)
    H[:, 3] = -np.inf
    target = Target.logits(H, QUARTER)
    claim = explicit_witness([profile(visible(target)).point(1)], target, QUARTER)
    assert claim is not None
    assert claim.rank <= 3


def test_nothing_is_claimed_where_the_rank_is_full() -> None:
    """MATH 9.3, r = 1: rank one interaction, no residual, yet r_eps = n."""
    x = np.arange(8)
    H = -4.0 * (x[:, None] - x[None, :]) ** 2
    target = Target.logits(H, QUARTER)
    found = profile(visible(target))
    assert found.rank.lower == found.rank.upper == 1
    assert explicit_bound(found.point(1), QUARTER) is None
    assert explicit_witness(found.points(), target, QUARTER) is None


def test_one_identical_row() -> None:
    H = np.tile(np.array([1.0, -2, 3]), (4, 1))
    target = Target.logits(H, QUARTER)
    point = profile_function(visible(target)).point(0)
    bound = explicit_bound(point, Fraction(0))
    assert bound is not None
    assert bound.bound == 1
    claim = explicit_witness([point], target, QUARTER)
    assert claim is not None
    assert claim.rank == 1


def test_points_take_exact_matrices_of_any_magnitude() -> None:
    rng = np.random.default_rng(3)
    small, large = (rng.standard_normal((5, 6)) * scale for scale in (1e-200, 1e200))
    for H in (small, large):
        point = profile(of_logits(H)).point(2)
        assert 0 < point.kappa.lower <= point.kappa.upper <= point.kappa.lower * Fraction(102, 100)
        assert isinstance(point.retained.matrix, ExactMatrix)


def test_a_nearly_constant_head_has_rank_one() -> None:
    rng = np.random.default_rng(4)
    target = Target.logits(1e-9 * rng.standard_normal((5, 6)), QUARTER)
    claim = explicit_witness(profile(visible(target)).points(), target, QUARTER)
    assert claim is not None
    assert claim.rank == 1
