"""kappa (MATH 3.6): exact on the oracles, both proofs sound, second engines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact.interaction import ExactMatrix, TripleProof, gauged, residual, size
from softrank_exact.interaction.exact import sqrt_enclosure
from softrank_exact.interaction.size import is_psd

ROUNDING = Fraction(1, 10**9)


def gaussian(m: int, n: int, seed: int, rank: int | None = None) -> ExactMatrix:
    rng = np.random.default_rng(seed)
    r = min(m, n) if rank is None else rank
    X, Y = rng.integers(-99, 100, (m, r)), rng.integers(-99, 100, (n, r))
    return ExactMatrix((X @ Y.T).astype(object), 1000)


@st.composite
def integers(draw: st.DrawFn) -> ExactMatrix:
    m, n = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    row = st.lists(st.integers(-6, 6), min_size=n, max_size=n)
    return ExactMatrix.of(draw(st.lists(row, min_size=m, max_size=m)))


@pytest.mark.parametrize(("side", "r"), [(2, 1), (2, 3), (3, 2), (4, 1), (4, 2)])
def test_exact_on_the_grid(side: int, r: int) -> None:
    """kappa of the doubly centred x.y on {0..l-1}^r is r (l-1)^2 / 4 (MATH 9.3 with 2 s = 1)."""
    points = ExactMatrix.of(np.array(list(product(range(side), repeat=r))))
    T = points @ points.T
    expected = Fraction(r * (side - 1) ** 2, 4)
    found = size(T, (points, points)).enclosure
    assert found.lower == found.upper == expected
    blind = size(T)
    assert blind.enclosure.lower == expected
    assert blind.relative_gap < ROUNDING


@pytest.mark.parametrize("g", [1, 2, 4, Fraction(1, 8)])
def test_exact_on_the_gauge_oracle(g: Fraction | int) -> None:
    """Queries and keys (+-1, +-1): kappa = 2 in every gauge (MATH 8.1)."""
    box = np.array(list(product((-1, 1), repeat=2)))
    gauge = [[Fraction(g), 0], [0, 1 / Fraction(g)]]
    Q, K = gauged(box, box, gauge)
    found = size(Q @ K.T, (Q, K)).enclosure
    assert found.lower == found.upper == 2


def test_exact_where_no_gauge_attains_it_natively() -> None:
    """Queries (+-1, +-1), keys +-e1: kappa = 1, the end of sqrt(1 + d^2) (MATH 3.10)."""
    box = np.array(list(product((-1, 1), repeat=2)))
    T = ExactMatrix.of(box @ np.array([[1, -1], [0, 0]]))
    found = size(T).enclosure
    assert found.lower == 1
    assert found.upper - 1 < ROUNDING


@settings(deadline=None, max_examples=40)
@given(integers())
def test_the_enclosure_lies_where_the_theorem_says(T: ExactMatrix) -> None:
    """q/2 <= kappa <= sqrt(rank + 2) q / 2 (MATH 3.6)."""
    found = size(T)
    q = residual(T).value
    rank = min(T.shape) - 1
    assert q / 2 <= found.enclosure.lower <= found.enclosure.upper
    ceiling = sqrt_enclosure(Fraction(max(rank, 0) + 2)).upper * q / 2
    assert found.enclosure.lower <= ceiling
    assert found.relative_gap < 0.02


@settings(deadline=None, max_examples=20)
@given(integers(), integers())
def test_kappa_is_a_norm_on_what_softmax_sees(S: ExactMatrix, T: ExactMatrix) -> None:
    kappa = size(T).enclosure
    assert _meet(size(T.scaled(Fraction(-3, 2))).enclosure, kappa, Fraction(3, 2))
    assert _meet(size(T.T).enclosure, kappa, Fraction(1))
    moved = T + ExactMatrix.of([[k] for k in range(T.shape[0])])
    assert _meet(size(moved).enclosure, kappa, Fraction(1))
    if S.shape == T.shape:
        assert size(S + T).enclosure.lower <= size(S).enclosure.upper + kappa.upper


def _meet(found: object, kappa: object, factor: Fraction) -> bool:
    """Whether two enclosures can be of the same number, up to a factor."""
    low, high = found.lower / factor, found.upper / factor  # type: ignore[attr-defined]
    return bool(low <= kappa.upper and kappa.lower <= high)  # type: ignore[attr-defined]


def test_rank_one_is_half_q() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-50, 51, (9, 1)), rng.integers(-50, 51, (12, 1))
    found = size(ExactMatrix.of(x @ y.T))
    assert found.enclosure.lower == Fraction(int(np.ptp(x) * np.ptp(y)), 4) == found.q / 2
    assert found.relative_gap < 1e-4


@pytest.mark.parametrize(("n", "rank", "gap"), [(64, 2, 0.001), (64, 8, 0.001), (128, None, 0.01)])
def test_the_gap_is_small_at_the_size_of_heads(n: int, rank: int | None, gap: float) -> None:
    assert size(gaussian(n, n, 7, rank)).relative_gap < gap


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_the_dual_proof_is_a_triple_that_elimination_accepts(shape: tuple[int, int]) -> None:
    T = gaussian(*shape, seed=1)
    found = size(T)
    assert found.dual is not None
    triple = found.dual.triple()
    assert 0 < triple.bound(T) <= found.enclosure.upper
    assert triple.bound(T) > found.dual.bound(T) * Fraction(99, 100)


def test_a_forged_triple_is_worth_nothing() -> None:
    T = gaussian(5, 5, seed=2)
    found = size(T)
    assert found.dual is not None
    triple = found.dual.triple()
    assert triple.bound(T) > 0
    lopsided = triple.D.numerators.copy()
    lopsided[0, 0] += 1
    forged = [
        replace(triple, D=triple.D.scaled(Fraction(101, 100))),
        replace(triple, mu=triple.mu.scaled(Fraction(2))),
        replace(triple, D=ExactMatrix(lopsided, triple.D.den)),
        TripleProof(triple.mu - triple.mu.scaled(Fraction(2)), triple.nu, triple.D),
    ]
    assert [proof.bound(T) for proof in forged] == [0, 0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(integers(), st.integers(0, 10**6))
def test_no_dual_proof_whatever_exceeds_kappa(T: ExactMatrix, seed: int) -> None:
    """Soundness does not rest on the search: random weights and factors stay below."""
    found = size(T)
    if found.dual is None:
        return
    rng = np.random.default_rng(seed)
    noisy = replace(
        found.dual,
        U=ExactMatrix.of(rng.integers(-9, 10, found.dual.U.shape)),
        mu=ExactMatrix.of(rng.integers(0, 5, found.dual.mu.shape)),
    )
    assert noisy.bound(T) <= found.enclosure.upper


@settings(deadline=None, max_examples=30)
@given(integers(), st.integers(0, 10**6))
def test_no_factors_whatever_fall_below_kappa(T: ExactMatrix, seed: int) -> None:
    found = size(T)
    if found.primal is None:
        return
    rng = np.random.default_rng(seed)
    noise = ExactMatrix.of(rng.integers(-3, 4, found.primal.X.shape) / 8)
    assert replace(found.primal, X=found.primal.X + noise).bound(T) >= found.enclosure.lower


@pytest.mark.parametrize("T", [np.zeros((3, 4)), np.ones((1, 5)), np.arange(6).reshape(6, 1)])
def test_additive_matrices_have_size_zero(T: np.ndarray) -> None:
    found = size(ExactMatrix.of(T))
    assert (found.enclosure.lower, found.enclosure.upper) == (0, 0)
    assert found.relative_gap == 0


def test_dependent_coordinates_are_not_used() -> None:
    X = np.array([[1, 1], [2, 2], [4, 4]])
    Y = np.array([[0, 1], [1, 0], [1, 2], [5, 1]])
    factors = (ExactMatrix.of(X), ExactMatrix.of(Y))
    found = size(ExactMatrix.of(X @ Y.T), factors)
    assert found.enclosure.lower == found.q / 2
    assert found.relative_gap < 1e-4


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(0, 4), st.integers(0, 10**6))
def test_elimination_decides_semidefiniteness(n: int, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.integers(-3, 4, (n, rank))
    S = (factor @ factor.T).astype(object)
    assert is_psd(S)
    if rank < n:
        assert not is_psd(S - np.eye(n, dtype=object))
