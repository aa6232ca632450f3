"""Two-bit games and other matrices whose rank is known exactly (MATH 9.1)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch")

from float_bridge import bracket
from float_bridge.search.cell import Cell, weakened
from float_bridge.search.columns import lifted, restricted
from float_bridge.search.types import Proposal
from softrank_exact import Target
from softrank_exact.witness import FloatBernstein, FloatFactor, FloatFantope, FloatHS

pytestmark = pytest.mark.bridge

Rows = list[list[Fraction]]


def bit(t: Fraction) -> Rows:
    return [[(1 + t) / 2, (1 - t) / 2], [(1 - t) / 2, (1 + t) / 2]]


def kronecker(left: Rows, right: Rows) -> Rows:
    return [[x * y for x in a for y in b] for a in left for b in right]


TWO_BIT = [
    ("3/4", "1/2", "1/4", 4),
    ("3/4", "1/2", "3/8", 3),
    ("3/4", "1/2", "1/2", 2),
    ("3/4", "1/2", "3/4", 1),
    ("3/4", "3/4", "5/8", 3),
    ("3/4", "3/4", "3/4", 1),
    ("3/4", "3/4", "9/16", 3),
    ("2/3", "1/3", "2/9", 3),
    ("2/3", "1/3", "1", 0),
]


@pytest.mark.parametrize(("t", "s", "eps", "rank"), TWO_BIT)
def test_two_bit_cells_close_on_their_thresholds(t, s, eps, rank):
    rows = kronecker(bit(Fraction(t)), bit(Fraction(s)))
    found = bracket(Target.fractions(rows), eps)
    assert (found.lower, found.upper) == (rank, rank)
    assert all(v.verdict == "verified" for v in found.certificate.verdicts)


@pytest.fixture
def cell() -> Cell:
    return Cell(Target.matrix(np.diag([1.0, 0.9, 0.8, 0.1]), "1/4"), Fraction(1, 4))


def test_nothing_unproven_enters_a_cell(cell):
    wrong = Proposal("upper", 1, FloatFactor(np.eye(4)[:, :1], np.eye(4)[:1]))
    bold = Proposal("lower", 4, FloatHS(4, np.full(4, 0.25), np.eye(4)))
    cell.offer(bold)
    cell.offer(wrong)
    assert cell.lower.rank <= 3 <= cell.upper.rank


def test_a_factor_that_misses_a_row_is_retried_with_that_row(cell):
    almost = FloatFactor(np.eye(4)[:, :2], np.diag([1.0, 0.9, 0.8, 0.1])[:2])
    assert cell.offer(Proposal("upper", 2, almost))
    assert cell.upper.rank == 3


def test_a_failing_bernstein_column_is_dropped():
    A = np.diag([1.0, 0.9, 0.8, 0.1])
    witness = FloatBernstein(
        np.arange(4), np.diag(1 / np.diag(A)), np.zeros((4, 0)), np.zeros((0, 4))
    )
    weaker = weakened(Proposal("lower", 4, witness), A, 0.25, 0.25)
    assert weaker is not None
    assert weaker.rank == 3
    assert weaker.witness.columns.tolist() == [0, 1, 2]


def test_spectral_claims_fall_by_one_down_to_none():
    witness = FloatHS(2, np.ones(2) / 2, np.eye(2))
    weaker = weakened(Proposal("lower", 2, witness), np.eye(2), 0.1, 0.1)
    assert weaker is not None
    assert weaker.rank == weaker.witness.rank == 1
    assert weakened(weaker, np.eye(2), 0.1, 0.1) is None


def test_accepted_claims_are_shared_only_where_they_hold():
    target = Target.matrix(np.diag([1.0, 0.9, 0.8, 0.1]), "1/10")
    tight, middle, loose = (Cell(target, Fraction(e)) for e in ("1/20", "1/4", "17/20"))
    witness = FloatFactor(np.eye(4)[:, :3], np.diag([1.0, 0.9, 0.8, 0.1])[:3])
    middle.offer(Proposal("upper", 3, witness))
    middle.share([tight, loose])
    assert loose.upper.rank == 3
    assert tight.upper.rank == 4


@pytest.mark.parametrize("shape", [(3, 200), (200, 3)])
def test_lower_witnesses_on_some_columns_are_about_the_whole_matrix(shape):
    """A wide matrix is searched on 64 columns; the lifted claims must still verify."""
    A = np.random.default_rng(0).dirichlet(np.full(shape[1], 0.05), shape[0])
    found = bracket(A, "1/2")
    assert 1 <= found.lower <= found.upper <= 3
    assert all(v.verdict == "verified" for v in found.certificate.verdicts)


def test_restricting_and_lifting_a_fantope_witness_keeps_its_columns():
    T = np.zeros((6, 2))
    T[[1, 2, 4]] = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    w, v = np.arange(9.0).reshape(3, 3), np.arange(18.0).reshape(3, 6)
    columns = np.array([1, 4, 5])
    narrow = restricted(Proposal("lower", 1, FloatFantope(1, T, w, v)), columns)
    assert narrow is not None
    assert narrow.witness.w.tolist() == w[[0, 2]].tolist()
    wide = lifted(narrow, columns, 6).witness
    assert wide.T[columns].tolist() == T[columns].tolist()
    assert not wide.T[[0, 2, 3]].any()
    assert wide.v.shape == (2, 6)
