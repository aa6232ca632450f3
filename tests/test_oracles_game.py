"""Exact matrix games against HiGHS, and the proof that comes with each."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.game import Equilibrium, solve
from oracles.rational import matrix

optimize = pytest.importorskip("scipy.optimize")

entries = st.fractions(min_value=-3, max_value=3, max_denominator=4)


@st.composite
def games(draw):
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    row = st.lists(entries, min_size=columns, max_size=columns)
    return matrix(draw(st.lists(row, min_size=rows, max_size=rows)))


def highs_value(M):
    """min w subject to M q <= w, q a probability vector."""
    rows, columns = M.shape
    found = optimize.linprog(
        np.r_[np.zeros(columns), 1],
        A_ub=np.hstack([M.astype(float), -np.ones((rows, 1))]),
        b_ub=np.zeros(rows),
        A_eq=[np.r_[np.ones(columns), 0]],
        b_eq=[1],
        bounds=[(0, None)] * columns + [(None, None)],
    )
    return found.fun


@settings(deadline=None, max_examples=60)
@given(games())
def test_value_agrees_with_highs(M):
    equilibrium = solve(M)
    assert equilibrium.proves_value_of(M)
    assert float(equilibrium.value) == pytest.approx(highs_value(M), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(games())
def test_minimax_symmetry(M):
    assert solve(-M.T).value == -solve(M).value


def test_degenerate_game():
    M = matrix([[0, 0, 0], [0, 0, 0], [0, 1, -1]])
    assert solve(M).value == 0


def test_wrong_strategies_prove_nothing():
    M = matrix([[1, -1], [-1, 1]])
    half = matrix(["1/2", "1/2"])
    assert Equilibrium(Fraction(0), half, half).proves_value_of(M)
    assert not Equilibrium(Fraction(1, 10), half, half).proves_value_of(M)
    assert not Equilibrium(Fraction(0), half, matrix(["1/3", "2/3"])).proves_value_of(M)
    assert not Equilibrium(Fraction(0), half, half * 2).proves_value_of(M)
    assert not Equilibrium(Fraction(0), matrix([2, -1]), half).proves_value_of(M)
