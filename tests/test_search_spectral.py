"""Hilbert-Schmidt and Fantope searches: what they propose is proven by the kernel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from float_bridge.search import fantope as fantope_module  # noqa: E402
from float_bridge.search.fantope import fantope  # noqa: E402
from float_bridge.search.hilbert_schmidt import hilbert_schmidt  # noqa: E402
from float_bridge.search.types import Proposal  # noqa: E402
from softrank_exact import Target  # noqa: E402
from softrank_exact.rounding import question, round_and_check  # noqa: E402
from softrank_exact.witness import FloatFantope, FloatHS, frobenius_tail  # noqa: E402

pytestmark = pytest.mark.bridge


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def heads(count: int, m: int, n: int, scale: float = 2.5, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    logits = scale * draw.standard_normal((count, m, 3)) @ draw.standard_normal((count, 3, n))
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True)


def spectral(A: np.ndarray, eps: list[float], steps: int = 60, start=None, seed: int = 0):
    """Both searches, one behind the other, over a batch."""
    generator = torch.Generator().manual_seed(seed)
    cells, tolerances = torch.from_numpy(A), torch.tensor(eps, dtype=torch.float64)
    hs = hilbert_schmidt(cells, tolerances, start or [None] * len(A), steps, generator)
    return hs, fantope(cells, tolerances, hs, steps, generator)


def proven(A: np.ndarray, eps: Fraction, proposal: Proposal) -> bool:
    target = Target.matrix(A, eps)
    asked = question(target, eps)
    return round_and_check(asked, target.float_matrix, proposal.witness, proposal.rank).verified


def two_bit(t: Fraction, s: Fraction) -> np.ndarray:
    def one(x: Fraction) -> np.ndarray:
        return np.array([[1 + x, 1 - x], [1 - x, 1 + x]], dtype=float) / 2

    return np.kron(one(t), one(s))


@pytest.mark.parametrize(("m", "n"), [(24, 24), (17, 30), (30, 17)])
def test_kernel_proves_what_is_proposed(m: int, n: int) -> None:
    A = heads(3, m, n)
    eps = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 2)]
    hs, better = spectral(A, [float(e) for e in eps])
    assert all(isinstance(p.witness, FloatHS) for p in hs)
    assert any(p is not None and isinstance(p.witness, FloatFantope) for p in better)
    for cell, tolerance, proposal in zip([*A, *A], [*eps, *eps], [*hs, *better], strict=True):
        if proposal is not None:
            assert proposal.side == "lower"
            assert proposal.rank == proposal.witness.rank
            assert proven(cell, tolerance, proposal)


def test_hilbert_schmidt_beats_the_frobenius_tail_and_fantope_beats_it() -> None:
    A = heads(3, 32, 32, scale=4.0)
    hs, better = spectral(A, [0.25] * 3, steps=100)
    for cell, proposal in zip(A, hs, strict=True):
        tail = Proposal("lower", proposal.rank, frobenius_tail(cell, proposal.rank))
        assert not proven(cell, Fraction(1, 4), tail)
    gains = [b.rank - a.rank for a, b in zip(hs, better, strict=True) if b is not None]
    assert min(gains) > 0
    assert len(gains) >= 2


def test_fantope_satisfies_the_theorem_in_plain_float64() -> None:
    A = heads(1, 20, 26)
    _, (found,) = spectral(A, [0.25])
    T, w, v, k = found.witness.T, found.witness.w, found.witness.v, found.rank - 1
    columns = np.flatnonzero(np.any(T != 0, axis=1))
    for j, wj, vj in zip(columns, w, v, strict=True):
        e = np.eye(26)[j]
        middle = A[0].T @ np.diag(wj) @ A[0] + np.diag(vj)
        middle -= (0.25**2 * wj.sum() + vj.sum()) * np.outer(e, e)
        lowest = np.linalg.eigvalsh(T.T @ middle @ T)[: T.shape[1] - k]
        assert lowest.sum() > 0


@pytest.mark.parametrize(
    ("t", "s", "eps", "rank"),
    [("3/4", "1/2", "3/8", 3), ("3/4", "1/2", "1/2", 2), ("3/4", "3/4", "5/8", 3)],
)
def test_never_above_a_known_rank(t: str, s: str, eps: str, rank: int) -> None:
    A = two_bit(Fraction(t), Fraction(s))
    for proposals in spectral(A[None], [float(Fraction(eps))], steps=200):
        for proposal in proposals:
            if proposal is not None and proven(A, Fraction(eps), proposal):
                assert proposal.rank <= rank


def test_identity_has_full_rank() -> None:
    (found,), _ = spectral(np.eye(9)[None], [0.25])
    assert found.rank == 9
    assert proven(np.eye(9), Fraction(1, 4), found)


def test_warm_start_is_kept_and_improved() -> None:
    A, eps = heads(2, 32, 32, scale=4.0)[:1], torch.full((1,), 0.25, dtype=torch.float64)
    hs, first = spectral(A, [0.25], steps=20)
    generator = torch.Generator().manual_seed(1)
    again = hilbert_schmidt(torch.from_numpy(A), eps, hs, 1, generator)
    assert again[0].rank >= hs[0].rank
    longer = fantope(torch.from_numpy(A), eps, first, 100, generator)
    assert longer[0].rank >= first[0].rank
    assert proven(A[0], Fraction(1, 4), longer[0])
    assert fantope(torch.from_numpy(A), eps, longer, 0, generator)[0] is longer[0]


def test_same_seed_same_witness() -> None:
    A = heads(2, 16, 16)
    one, two = spectral(A, [0.25] * 2), spectral(A, [0.25] * 2)
    for a, b in zip([*one[0], *one[1]], [*two[0], *two[1]], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            mine, other = vars(a.witness).values(), vars(b.witness).values()
            assert all(np.array_equal(x, y) for x, y in zip(mine, other, strict=True))


def test_fantope_without_a_spectral_start_proposes_nothing() -> None:
    A = torch.from_numpy(heads(2, 8, 8))
    assert fantope(A, torch.full((2,), 0.25), [None, None], 5, torch.Generator()) == [None, None]


@pytest.mark.parametrize(
    "A",
    [
        np.zeros((4, 5)),
        np.ones((1, 1)),
        np.ones((6, 1)),
        np.full((1, 6), 1 / 6),
        np.full((5, 5), 0.2),
        np.tile(np.eye(3), (4, 1)),
        np.eye(6)[:, [0] * 6],
        np.diag([1.0, 1e-300, 1e-300, 0.0]),
        1e6 * np.eye(4),
        1e-200 * np.eye(4),
    ],
    ids=["zero", "one", "column", "row", "uniform", "repeats", "hot", "tiny", "large", "small"],
)
@pytest.mark.parametrize("eps", [Fraction(0), Fraction(1, 4), Fraction(3, 2)])
def test_degenerate_matrices_are_survived(A: np.ndarray, eps: Fraction) -> None:
    for proposals in spectral(A[None], [float(eps)], steps=25):
        for proposal in proposals:
            if proposal is not None:
                assert 1 <= proposal.rank <= min(A.shape)
                if proven(A, eps, proposal):
                    assert proposal.rank <= np.linalg.matrix_rank(A)


def test_fantope_gradients_are_those_of_the_soft_minimum(monkeypatch) -> None:
    monkeypatch.setattr(fantope_module, "working_dtype", lambda eps: torch.float64)
    A = torch.from_numpy(heads(1, 12, 10))
    eps = torch.tensor([0.3], dtype=torch.float64)
    start = FloatHS(2, np.full(12, 1 / 12), np.eye(10))
    generator = torch.Generator().manual_seed(0)
    point = fantope_module._point(0, A[0], 2, start)
    search = fantope_module._Ascent(A, eps, [point], generator)
    search.T += 0.1 * torch.randn(search.T.shape, generator=generator, dtype=search.T.dtype)

    def objective() -> float:
        for _ in range(40):  # Dinkelbach steps at a fixed point
            search._set_gradients()
        soft = -(-fantope_module.SHARPNESS * search.s.log()).logsumexp(dim=1)
        q, k = search.q[0], search.k[0]
        lowest = torch.linalg.eigvalsh(search.T[0].mT @ search.T[0])[: q - k]
        return float(soft / fantope_module.SHARPNESS + fantope_module.BARRIER * lowest.log().mean())

    objective()
    slope = -search.T.grad.clone()
    direction = torch.randn(search.T.shape, generator=generator, dtype=search.T.dtype)
    step = 1e-5
    search.T += step * direction
    above = objective()
    search.T -= 2 * step * direction
    below = objective()
    assert (above - below) / (2 * step) == pytest.approx(float((slope * direction).sum()), rel=1e-3)
