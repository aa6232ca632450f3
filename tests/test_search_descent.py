"""The factor searchers: what they propose holds in float64, improves on its start, and repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from float_bridge.search.bernstein import bernstein  # noqa: E402
from float_bridge.search.descent import Descent, Recipe, begin, truncated  # noqa: E402
from float_bridge.search.factors import classical_upper, factors  # noqa: E402
from float_bridge.search.hilbert_schmidt import hilbert_schmidt  # noqa: E402

pytestmark = pytest.mark.bridge

EPS = 0.25


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def heads() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 3, 32, 6, generator=generator, dtype=torch.float64)
    return torch.softmax(1.5 * queries @ keys.mT, dim=2)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def tolerances(heads: torch.Tensor) -> torch.Tensor:
    return torch.full((len(heads),), EPS, dtype=heads.dtype)


def test_factors_come_within_eps_and_beat_the_classical_rank(heads):
    found = factors(heads, tolerances(heads), [None] * 3, 800, generator())
    for A, proposal in zip(heads.numpy(), found, strict=True):
        X, Y = proposal.witness.X, proposal.witness.Y
        assert X.shape[1] == proposal.rank == proposal.witness.rank
        assert np.abs(A - X @ Y).sum(axis=1).max() < EPS
        assert proposal.rank < classical_upper(A, EPS).rank


def test_factors_never_lose_their_start(heads):
    first = factors(heads, tolerances(heads), [None] * 3, 400, generator())
    second = factors(heads, tolerances(heads), first, 300, generator())
    assert all(after.rank <= before.rank for before, after in zip(first, second, strict=True))


def test_bernstein_rows_cost_less_than_one_and_beat_hilbert_schmidt(heads):
    spectral = hilbert_schmidt(heads, tolerances(heads), [None] * 3, 60, generator())
    aims = [replace(p, rank=round(1.25 * p.rank)) for p in spectral]
    found = bernstein(heads, tolerances(heads), aims, 800, generator())
    for A, proposal, start in zip(heads.numpy(), found, spectral, strict=True):
        w = proposal.witness
        H = np.eye(len(w.columns)) - w.G @ A[:, w.columns] - w.X @ w.Y
        assert w.X.shape[0] - w.X.shape[1] == proposal.rank
        assert np.all(np.diff(w.columns) > 0)
        assert np.all(EPS * np.abs(w.G).sum(axis=1) + np.abs(H).sum(axis=1) < 1)
        assert proposal.rank >= start.rank


def test_same_seed_same_proposal(heads):
    one, two = (factors(heads, tolerances(heads), [None] * 3, 500, generator()) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        assert np.array_equal(first.witness.X, second.witness.X)


def test_hand_written_gradient_is_the_gradient():
    """One Adam step of size rate moves every entry against the sign of autograd's gradient."""
    torch.manual_seed(2)
    base, dictionary = torch.randn(1, 5, 6).double(), torch.randn(1, 4, 6).double()
    G, X, Y = torch.randn(5, 4).double(), torch.randn(5, 3).double(), torch.randn(3, 6).double()
    leaves = [part.clone().requires_grad_() for part in (G, X, Y)]
    g, x, y = leaves
    costs = (base[0] - g @ dictionary[0] - x @ y).abs().sum(dim=1) + g.abs().sum(dim=1)
    (costs - 0.98).clamp_min(0).pow(1.5).sum().backward()
    recipe = Recipe(1e-3, (0.9, 0.99), 1000, 1000)
    start = begin(G, X, Y, solved=False)
    descent = Descent(base, dictionary, [start], [1], recipe, generator(), paired=False)
    descent._step()
    moved = [descent.left[0, :, :4] - G, descent.left[0, :, 4:] - X, descent.Y[0] - Y]
    for leaf, step in zip(leaves, moved, strict=True):
        assert torch.equal(step.sign(), -leaf.grad.sign())


def test_dropped_rows_pay_one_each():
    """One row of full norm among zeros costs rank one, kept as a factor or dropped."""
    base = torch.zeros(1, 4, 4)
    base[0, 2] = 5.0
    start = begin(torch.zeros(4, 0), torch.zeros(4, 0), torch.zeros(0, 4), solved=False)
    recipe = Recipe(0.1, (0.9, 0.99), 50, 50)
    descent = Descent(base, base[:, :0], [start], [1], recipe, generator(), paired=False)
    descent.run(100)
    assert descent.best[0].price == 1


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_truncation_is_the_best_of_its_rank(rank):
    torch.manual_seed(rank)
    X, Y = torch.randn(7, 4).double(), torch.randn(4, 6).double()
    cut = torch.matmul(*truncated(X, Y, rank))
    sigma = torch.linalg.svdvals(X @ Y)
    assert torch.isclose((X @ Y - cut).norm() ** 2, (sigma[rank:] ** 2).sum(), atol=1e-12)
