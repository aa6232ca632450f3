"""The search for shattering witnesses (theory 5.8): what it proposes is proven by the kernel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from float_bridge.search import shattering as module  # noqa: E402
from float_bridge.search.cell import Cell, weakened  # noqa: E402
from float_bridge.search.columns import lifted  # noqa: E402
from float_bridge.search.shattering import shattering  # noqa: E402
from float_bridge.search.types import Proposal  # noqa: E402
from float_bridge.search.warm import as_float, offer_certificate  # noqa: E402
from softrank_exact import Target  # noqa: E402
from softrank_exact.kernel.check import Shattering  # noqa: E402
from softrank_exact.rounding import question, round_and_check  # noqa: E402
from softrank_exact.witness import FloatShattering  # noqa: E402

pytestmark = pytest.mark.bridge


def aimed(rank: int) -> Proposal:
    """A start: the search looks at its rank alone."""
    witness = FloatShattering(np.ones((rank, 1)), np.ones(rank, dtype=int), np.zeros((rank, 1)))
    return Proposal("lower", rank, witness)


def search(A: np.ndarray, eps: list[float], start, steps: int = 150, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    tolerances = torch.tensor(eps, dtype=torch.float64)
    return shattering(torch.from_numpy(A), tolerances, start, steps, generator)


def proven(A: np.ndarray, eps: Fraction, proposal: Proposal) -> bool:
    target = Target.matrix(A, eps)
    asked = question(target, eps)
    return round_and_check(asked, target.float_matrix, proposal.witness, proposal.rank).verified


def heads(count: int, m: int, n: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(n, 0.1), (count, m))


@pytest.mark.parametrize(("m", "n"), [(12, 12), (9, 20), (20, 9)])
def test_kernel_proves_what_is_proposed(m: int, n: int) -> None:
    A = heads(3, m, n)
    eps = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2)]
    found = search(A, [float(e) for e in eps], [aimed(2), aimed(3), aimed(2)])
    for cell, tolerance, proposal, aim in zip(A, eps, found, (2, 3, 2), strict=True):
        assert proposal is not None
        assert proposal.rank == proposal.witness.rank >= aim
        assert proven(cell, tolerance, proposal)


def test_it_climbs_to_the_rank_of_the_identity_and_no_further() -> None:
    (found,) = search(np.eye(5)[None], [0.5], [aimed(2)])
    assert found.rank == 5
    assert proven(np.eye(5), Fraction(1, 2), found)


@pytest.mark.parametrize(("eps", "rank"), [(0.72, 2), (0.6, 2), (0.5, 3)])
def test_never_above_a_known_rank(eps: float, rank: int) -> None:
    """Ranks of the two-bit table with t = 3/4, s = 9/16 between its thresholds (MATH 9.1)."""
    one, two = (np.array([[1 + x, 1 - x], [1 - x, 1 + x]]) / 2 for x in (3 / 4, 9 / 16))
    (found,) = search(np.kron(one, two)[None], [eps], [aimed(1)])
    assert found is None or found.rank <= rank
    assert search(np.kron(one, two)[None], [eps], [aimed(rank + 1)]) == [None]


def test_cells_without_a_start_or_with_an_aim_out_of_reach_are_left_alone() -> None:
    A = heads(3, 6, 4)
    start = [None, aimed(5), aimed(2)]
    none, out_of_reach, found = search(A, [0.25] * 3, start)
    assert (none, out_of_reach) == (None, None)
    assert found is not None


def test_same_seed_same_witness() -> None:
    A = heads(1, 10, 10)
    (one,), (two,), (other,) = (search(A, [0.25], [aimed(3)], seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.witness.Y, two.witness.Y)
    assert not np.array_equal(one.witness.Y, other.witness.Y)


def test_gradients_are_those_of_the_soft_minimum() -> None:
    A = torch.from_numpy(heads(2, 7, 9))
    rows = torch.tensor([[[0, 3, 5]], [[1, 2, 6]]])
    target = torch.tensor([0.25, 0.4], dtype=A.dtype)
    ascent = module._Ascent(A, target, rows, torch.Generator().manual_seed(0))
    ascent.U += 0.01
    ascent._set_gradients(20.0)
    U, Y = (part.clone().requires_grad_() for part in (ascent.U, ascent.Y))
    D = U / U.abs().sum(dim=3, keepdim=True)
    margins = ascent.signs * (torch.einsum("bspm,bmn->bspn", D, A) @ Y.mT)
    sharpness = (20.0 / target)[:, None]
    loss = ((-sharpness[..., None] * margins.flatten(2)).logsumexp(dim=2) / sharpness).sum()
    loss.backward()
    assert torch.allclose(ascent.U.grad, U.grad, atol=1e-12)
    assert torch.allclose(ascent.Y.grad, Y.grad, atol=1e-12)


def test_signs_are_in_the_order_of_the_witness() -> None:
    signs = module._pattern_signs(3, torch.zeros(1))
    assert signs.T.tolist() == [[1, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]]


@pytest.mark.parametrize("p", [2, 3, 4])
def test_facets_are_divided_as_the_kernel_does(p: int) -> None:
    rng = np.random.default_rng(p)
    signs, edges = module._pattern_signs(p, torch.zeros(1, dtype=torch.float64)), []
    for _ in range(4):
        facet = signs[:, rng.integers(signs.shape[1])].numpy()
        a, b = rng.choice(np.flatnonzero(facet), 2, replace=False).tolist()
        sign = int(facet[a] * facet[b])
        before = signs
        signs, parents = module._divided(signs, a, b, sign)
        unchanged = ~(before[a] * before[b] == sign)[parents]
        assert torch.equal(signs[:-1, unchanged], before[:, parents][:, unchanged])
        edges.append((a + 1, sign * (b + 1)))
    none = np.zeros((0, 0), dtype=np.int64)
    (facets,) = Shattering(none, np.array([p]), np.array(edges), none).facets(10**6)
    columns = [np.flatnonzero(column).tolist() for column in signs.T.numpy()]
    found = [{int(signs[v, k]) * (v + 1) for v in vertices} for k, vertices in enumerate(columns)]
    assert found == [set(facet) for facet in facets]


def hexagon() -> np.ndarray:
    """Three rows of rank 2 in a plane where the l1 norm is nearly the Euclidean one."""
    rows, columns = (np.pi / 3 * np.arange(3))[:, None], (np.pi / 32 * np.arange(32))[None]
    return np.cos(rows - columns) / np.abs(np.cos(columns)).sum()


def test_a_divided_edge_proves_what_two_queries_alone_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hexagon stays 0.86 from zero, a parallelogram in it at most about 0.66."""
    A = hexagon()
    (found,) = search(A[None], [0.8], [aimed(2)], steps=200)
    assert found.rank == found.witness.rank == 2
    assert len(found.witness.edges) >= 1
    assert proven(A, Fraction(4, 5), found)
    assert weakened(found, A, 0.8, 0.8) is None
    monkeypatch.setattr(module, "ROUNDS", 0)
    assert search(A[None], [0.8], [aimed(2)], steps=200) == [None]


def test_a_divided_witness_survives_lifting_and_a_warm_start() -> None:
    A = hexagon()
    wide = np.hstack([A, np.zeros((3, 1))])
    (found,) = search(A[None], [0.8], [aimed(2)], steps=200)
    assert proven(wide, Fraction(4, 5), lifted(found, np.arange(32), 33))
    cell = Cell(Target.matrix(A, "4/5"), Fraction(4, 5))
    assert cell.offer(found)
    witness = as_float(2, cell.lower.witness)
    assert np.array_equal(witness.edges, found.witness.edges)
    again = Cell(Target.matrix(A, "4/5"), Fraction(4, 5))
    offer_certificate(again, cell.certificate({}))
    assert again.lower.rank == 2


def test_the_heaviest_edges_are_those_that_failing_facets_lean_on() -> None:
    signs = module._pattern_signs(3, torch.zeros(1))
    weights = torch.zeros(3, 4)
    weights[:, 1] = torch.tensor([0.3, 0.3, 0.01])  # the facet (1, -2, 3)
    weights[:, 2] = torch.tensor([0.0, 0.2, 0.19])  # the facet (1, 2, -3)
    first, second, *_ = module._heaviest_edges(weights, signs)
    assert (first, second) == ((0, 1, -1), (1, 2, -1))


@pytest.mark.parametrize("blocks", [[4], [2, 2], [3, 1]])
def test_a_weakened_claim_loses_one_query_at_a_time_and_still_holds(blocks: list[int]) -> None:
    """On the identity every y is s itself, so that every block has margin one."""
    columns = np.split(np.arange(4), np.cumsum(blocks)[:-1])
    patterns = [
        module._pattern_signs(len(c), torch.zeros(1)).T.numpy() @ np.eye(4)[c] for c in columns
    ]
    proposal = Proposal(
        "lower", 4, FloatShattering(np.eye(4), np.array(blocks), np.vstack(patterns))
    )
    while proposal.rank > 1:
        assert proven(np.eye(4), Fraction(9, 10), proposal)
        rank = proposal.rank
        proposal = weakened(proposal, np.eye(4), 0.25, 0.25)
        assert proposal.rank == proposal.witness.rank == rank - 1
    assert weakened(proposal, np.eye(4), 0.25, 0.25) is None


def test_a_claim_about_some_columns_is_lifted_to_the_whole_matrix() -> None:
    A, columns = heads(1, 8, 12)[0], np.array([0, 2, 3, 5, 7, 8, 10, 11])
    (found,) = search(A[None][:, :, columns], [0.1], [aimed(2)])
    whole = lifted(found, columns, 12)
    assert whole.witness.Y.shape[1] == 12
    assert proven(A, Fraction(1, 10), whole)


@pytest.mark.parametrize(
    "A",
    [np.full((5, 5), 0.2), np.tile(np.eye(3), (4, 1)), 1e-200 * np.eye(4), np.ones((6, 1))],
    ids=["uniform", "repeats", "small", "column"],
)
def test_degenerate_matrices_are_survived(A: np.ndarray) -> None:
    norm = np.abs(A).sum(axis=1).max()
    (found,) = search(A[None], [0.25 * norm], [aimed(1)], steps=60)
    assert found is not None
    assert 1 <= found.rank <= np.linalg.matrix_rank(A / norm)


def test_nothing_is_proposed_for_zero() -> None:
    assert search(np.zeros((1, 4, 5)), [0.25], [aimed(2)], steps=20) == [None]


def test_a_cell_takes_it_as_its_lower_end() -> None:
    A = np.diag([1.0, 0.9, 0.8, 0.1])
    cell = Cell(Target.matrix(A, "1/4"), Fraction(1, 4))
    (found,) = search(A[None], [0.25], [aimed(2)])
    assert cell.offer(found)
    assert cell.lower.rank == 3
    assert cell.best(FloatShattering) is found
