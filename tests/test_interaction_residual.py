"""q and tau (MATH 3.1, 3.4, 3.5): exact values, both proofs, second engines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact.interaction import Enclosure, ExactMatrix, of_matrix, residual, tau
from softrank_exact.interaction.exact import sqrt_enclosure

scipy_optimize = pytest.importorskip("scipy.optimize")

THREE_CYCLE = [[1, -1, 0], [0, 1, -1], [-1, 0, 1]]


@st.composite
def matrices(draw: st.DrawFn, most: int = 6, size: int = 9) -> ExactMatrix:
    m, n = draw(st.integers(1, most)), draw(st.integers(1, most))
    entries = st.fractions(-size, size, max_denominator=8)
    return ExactMatrix.of(
        draw(st.lists(st.lists(entries, min_size=n, max_size=n), min_size=m, max_size=m))
    )


def by_linear_program(F: np.ndarray) -> float:
    """min 2t subject to |F_ij - a_i - b_j| <= t, by HiGHS."""
    m, n = F.shape
    rows = np.hstack([np.kron(np.eye(m), np.ones((n, 1))), np.kron(np.ones((m, 1)), np.eye(n))])
    ones = np.ones((m * n, 1))
    A = np.vstack([np.hstack([rows, -ones]), np.hstack([-rows, -ones])])
    b = np.concatenate([F.ravel(), -F.ravel()])
    cost = np.append(np.zeros(m + n), 2.0)
    return float(scipy_optimize.linprog(cost, A, b, bounds=(None, None), method="highs").fun)


def by_enumeration(F: np.ndarray) -> Fraction:
    """The maximum over all alternating cycles, in fractions."""
    m, n = F.shape
    best = Fraction(0)
    for length in range(2, min(m, n) + 1):
        for rows in permutations(range(m), length):
            for columns in permutations(range(n), length):
                steps = zip(rows, rows[1:] + rows[:1], columns, strict=True)
                total = sum(F[after, j] - F[before, j] for before, after, j in steps)
                best = max(best, Fraction(total) / length)
    return best


def fractions_of(F: ExactMatrix) -> np.ndarray:
    return np.array([Fraction(x, F.den) for x in F.numerators.ravel()]).reshape(F.shape)


def additive(F: ExactMatrix) -> ExactMatrix:
    m, n = F.shape
    a = ExactMatrix.of([[Fraction(k * k, 3)] for k in range(m)])
    b = ExactMatrix.of([[Fraction(k, 7) - 2 for k in range(n)]])
    return a + b


def test_the_three_cycle_exceeds_all_contrasts() -> None:
    found = residual(ExactMatrix.of(THREE_CYCLE))
    assert found.value == 2
    assert len(found.cycle) == 3
    F = np.array(THREE_CYCLE)
    contrasts = F[:, None, :, None] - F[:, None, None, :] - F[None, :, :, None] + F[None, :, None]
    assert np.abs(contrasts).max() / 2 == 1.5


@settings(deadline=None, max_examples=60)
@given(matrices())
def test_both_proofs_hold_and_the_linear_program_agrees(F: ExactMatrix) -> None:
    found = residual(F)
    assert found.proves(F)
    assert float(found.value) == pytest.approx(by_linear_program(F.floats()), abs=1e-7)


@settings(deadline=None, max_examples=25)
@given(matrices(most=3))
def test_the_value_is_the_largest_cycle_mean(F: ExactMatrix) -> None:
    assert residual(F).value == by_enumeration(fractions_of(F))


@settings(deadline=None, max_examples=30)
@given(matrices())
def test_q_is_a_seminorm_that_vanishes_on_additive_matrices(F: ExactMatrix) -> None:
    q = residual(F).value
    assert residual(additive(F)).value == 0
    assert residual(F + additive(F)).value == q
    assert residual(F.scaled(Fraction(-5, 3))).value == q * Fraction(5, 3)
    assert residual(F.T).value == q
    assert residual(F.doubly_centred()).value == q
    square = ExactMatrix(F.numerators**2, F.den)
    assert residual(F + square).value <= q + residual(square).value


@settings(deadline=None, max_examples=30)
@given(matrices(most=5), st.data())
def test_a_changed_certificate_proves_nothing(F: ExactMatrix, data: st.DataObject) -> None:
    found = residual(F)
    tiny = Fraction(1, 10**9)
    assert not replace(found, value=found.value + tiny).proves(F)
    assert not replace(found, value=found.value - tiny).proves(F)
    if found.value == 0:
        return
    i, j = data.draw(st.sampled_from(found.cycle))
    moved = F.numerators.copy()
    moved[i, j] += 1
    assert not found.proves(ExactMatrix(moved, F.den))
    assert not replace(found, cycle=((i, j),)).proves(F)


def test_integers_beyond_64_bits() -> None:
    rng = np.random.default_rng(3)
    small = rng.integers(-9, 10, (12, 15)).astype(object)
    large = ExactMatrix(small * (1 << 200) + rng.integers(-9, 10, (12, 15)).astype(object), 7)
    found = residual(large)
    assert found.proves(large)
    assert abs(found.value / (1 << 200) - residual(ExactMatrix(small, 7)).value) < Fraction(1, 10)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_small_and_constant_matrices(shape: tuple[int, int]) -> None:
    assert residual(ExactMatrix.of(np.full(shape, 0.1))).value == 0


def test_duplicate_rows_and_columns_do_not_matter() -> None:
    F = np.array(THREE_CYCLE)
    doubled = F[[0, 0, 1, 2, 2, 2]][:, [0, 1, 1, 2]]
    assert residual(ExactMatrix.of(doubled)).value == 2


@pytest.mark.parametrize("value", [0, Fraction(1, 3), 2, 40, 4000])
def test_tau_encloses_the_function(value: Fraction | int) -> None:
    found = tau(Enclosure.exactly(value))
    with mpmath.workdps(60):
        near = 2 * mpmath.tanh(
            mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator / 4
        )
        assert found.lower <= Fraction(str(near)) + Fraction(1, 10**50)
        assert found.upper >= Fraction(str(near)) - Fraction(1, 10**50)
    assert 0 <= found.upper - found.lower < Fraction(1, 10**40)
    assert found.upper <= 2


def test_the_projective_inequality_is_sharp() -> None:
    """Two opposite rows in two keys: their distance is 2 tanh(osc / 4), exactly."""
    oscillation = of_matrix(
        [[Fraction(4, 5), Fraction(1, 5)], [Fraction(1, 5), Fraction(4, 5)]]
    ).unit
    found = tau(oscillation)
    assert found.lower <= Fraction(6, 5) <= found.upper
    assert found.upper - found.lower < Fraction(1, 10**30)


@given(st.fractions(0, 10**6, max_denominator=10**9))
def test_square_roots_are_enclosed(x: Fraction) -> None:
    found = sqrt_enclosure(x)
    assert found.lower**2 <= x <= found.upper**2
    assert found.upper - found.lower <= Fraction(1, 1 << 90) * max(1, x)
    assert sqrt_enclosure(x * x) == Enclosure.exactly(x)
