"""Upper searches (MATH 4.1): the polish of single rows, and restarts one rank lower."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from float_bridge.search.descent import Factors  # noqa: E402
from float_bridge.search.factors import as_proposal, polished  # noqa: E402
from float_bridge.search.restarts import (  # noqa: E402
    representative_rows,
    restarts,
    weighted_svd,
)
from float_bridge.search.types import Proposal  # noqa: E402
from softrank_exact import Target  # noqa: E402
from softrank_exact.rounding import question, round_and_check  # noqa: E402
from softrank_exact.witness import FloatHS  # noqa: E402

pytestmark = pytest.mark.bridge

EPS = Fraction(1, 4)


def proven(A: np.ndarray, proposal: Proposal) -> bool:
    target = Target.matrix(A, EPS)
    asked = question(target, EPS)
    return round_and_check(asked, target.float_matrix, proposal.witness, proposal.rank).verified


def low_rank(m: int = 12, n: int = 10, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, k)), rng.dirichlet(np.ones(n), k)


def spoiled(rows: list[int]) -> tuple[np.ndarray, Factors]:
    """A with an entry of some rows moved by 0.9 eps, and factors that are wrong on those rows."""
    X, Y = low_rank()
    A = X @ Y
    A[rows, 4] += 0.9 * float(EPS)
    wrong = torch.from_numpy(X / float(EPS))
    wrong[rows] = torch.from_numpy(A[rows] @ np.linalg.pinv(Y) / float(EPS)) + 1.0
    failing = torch.zeros(len(A), dtype=torch.bool)
    failing[rows] = True
    none = torch.zeros(len(A), dtype=torch.bool)
    return A, Factors(wrong.new_zeros(len(A), 0), wrong, torch.from_numpy(Y), none, failing)


def test_a_few_failing_rows_are_solved_as_linear_programs() -> None:
    A, best = spoiled([2, 7])
    assert best.price == 5
    assert polished(best, torch.from_numpy(A / float(EPS))).price == 3
    proposal = as_proposal(best, torch.from_numpy(A), float(EPS))
    assert proposal.rank == proposal.witness.rank == 3
    assert proven(A, proposal)


def test_a_row_out_of_reach_stays_exact() -> None:
    A, best = spoiled([2])
    A[2] += np.linspace(-1, 1, A.shape[1])
    proposal = as_proposal(best, torch.from_numpy(A), float(EPS))
    assert proposal.rank == 4
    assert proven(A, proposal)


def test_many_failing_rows_are_left_alone() -> None:
    A, best = spoiled(list(range(10)))
    assert polished(best, torch.from_numpy(A / float(EPS))) is best


def aim(A: np.ndarray, rank: int) -> Proposal:
    m, n = A.shape
    return Proposal("lower", rank, FloatHS(rank, np.full(m, 1 / m), np.eye(n)))


def run(A: np.ndarray, start: list[Proposal | None], steps: int) -> list[Proposal | None]:
    eps = torch.full((len(A),), float(EPS), dtype=torch.float64)
    return restarts(torch.from_numpy(A), eps, start, steps, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_a_restart_reaches_a_rank_that_is_there(size: float) -> None:
    X, Y = low_rank()
    A = X @ Y + 0.02 * np.random.default_rng(1).standard_normal((12, 10))
    (found, none) = run(np.stack([A, A]), [aim(A, 3), None], 200)
    assert none is None
    assert found is not None
    assert (found.side, found.rank) == ("upper", 3)
    assert proven(A, found)
    extreme = restarts(
        torch.from_numpy(size * A[None]),
        torch.tensor([size * float(EPS)], dtype=torch.float64),
        [aim(A, 3)],
        200,
        torch.Generator().manual_seed(0),
    )
    assert extreme[0] is not None
    assert extreme[0].rank == 3


def test_a_restart_that_fails_keeps_what_fails_exactly() -> None:
    A = np.eye(6)
    (found,) = run(A[None], [aim(A, 2)], 50)
    assert found is not None
    assert found.rank == found.witness.rank > 2
    assert proven(A, found)


def test_representatives_of_rows_that_repeat_are_exact() -> None:
    A = np.random.default_rng(0).dirichlet(np.ones(8), 3)[[0, 1, 2, 0, 1, 2]]
    witness = representative_rows(A, 3, torch.Generator().manual_seed(0))
    assert np.allclose(witness.X @ witness.Y, A)


def test_the_weighted_start_is_best_in_its_metric() -> None:
    rng = np.random.default_rng(0)
    A, w, T = rng.standard_normal((7, 5)), rng.dirichlet(np.ones(7)), rng.standard_normal((5, 5))
    found = weighted_svd(A, 2, FloatHS(2, w, T))
    root = np.sqrt(w + 0.05 / 7)[:, None]
    tail = np.linalg.svd(root * (A @ T))[1][2:]
    left = np.linalg.norm(root * ((A - found.X @ found.Y) @ T))
    assert found.rank == 2
    assert left == pytest.approx(np.linalg.norm(tail))
