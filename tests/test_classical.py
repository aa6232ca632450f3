"""The float64 bounds never claim more than exact arithmetic does, and are not far from it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb_mat, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from float_bridge.classical import (  # noqa: E402
    LARGEST,
    factor_error,
    frobenius_tail_ratio,
    hilbert_schmidt_ratio,
    reconstruction_error,
    singular_values,
    tail_energy,
)
from softrank_exact.errors import UserError  # noqa: E402

pytestmark = pytest.mark.bridge


def exact(array: np.ndarray) -> np.ndarray:
    """The entries as fractions."""
    flat = [Fraction(float(value)) for value in array.ravel()]
    return np.array(flat, dtype=object).reshape(array.shape)


def norm(E: np.ndarray) -> Fraction:
    return max(sum(abs(e) for e in row) for row in E.tolist())


def squared_singular_values(M: np.ndarray) -> list[Any]:
    """Enclosures, descending, of the eigenvalues of M^T M by python-flint."""
    with ctx.workprec(600):
        m = arb_mat([[float(e) for e in row] for row in M.tolist()])
        gram = m.transpose() * m
        values = gram.eig(multiple=True, algorithm="approx")
        return sorted((v.real for v in values), key=float, reverse=True)


def batch(*arrays: np.ndarray) -> list[Any]:
    return [torch.from_numpy(np.ascontiguousarray(a))[None] for a in arrays]


shapes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4))
seeds = st.integers(0, 2**32 - 1)
SCALES = (1.0, 1e-9, 1e12, 1e-170)


def draw(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Entries of very different sizes, some of them equal or zero."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape) * rng.choice(SCALES, size=shape)
    return np.where(rng.random(shape) < 0.2, 0.0, values)


@settings(deadline=None, max_examples=100)
@given(seeds, shapes)
def test_factor_error_is_an_upper_bound(seed: int, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    A, X, Y = draw(seed, (m, n)), draw(seed + 1, (m, k)), draw(seed + 2, (k, n))
    bound = Fraction(float(factor_error(*batch(A, X, Y))[0]))
    assert bound >= norm(exact(A) - exact(X) @ exact(Y) if k else exact(A))


@settings(deadline=None, max_examples=100)
@given(seeds, shapes)
def test_reconstruction_error_is_an_upper_bound(seed: int, shape: tuple[int, int, int]) -> None:
    m, c, k = shape
    A, G = draw(seed, (m, c)), draw(seed + 1, (c, m))
    X, Y = draw(seed + 2, (c, k)), draw(seed + 3, (k, c))
    hi = torch.tensor([0.25], dtype=torch.float64)
    bound = Fraction(float(reconstruction_error(*batch(A), hi, *batch(G, X, Y))[0]))
    H = exact(np.eye(c)) - exact(G) @ exact(A)
    H = H - exact(X) @ exact(Y) if k else H
    rows = zip(exact(G).tolist(), H.tolist(), strict=True)
    truth = max(sum(map(abs, g)) / 4 + sum(map(abs, h)) for g, h in rows)
    assert bound >= truth


@settings(deadline=None, max_examples=60)
@given(seeds, st.integers(1, 6), st.integers(1, 6), st.integers(0, 6))
def test_spectral_bounds_hold(seed: int, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-8, 3, size=n)
    truth = squared_singular_values(A if m >= n else A.T)
    lower, upper = singular_values(*batch(A))
    with ctx.workprec(600):
        for true, low, high in zip(truth, lower[0].tolist(), upper[0].tolist(), strict=True):
            assert not true < _square(low)
            assert not true > _square(high)
        tail = sum(truth[k:], start=truth[0] * 0)
        assert not tail < float(frobenius_tail_ratio(*batch(A), k)[0]) * m
        d, T = rng.random(m), rng.normal(size=(n, 3))
        M = np.array(exact(d)[:, None] * (exact(A) @ exact(T)), dtype=object)
        ratio = Fraction(float(hilbert_schmidt_ratio(*batch(A, d, T), k)[0]))
        weight = sum(exact(d) ** 2) * max(sum(e * e for e in row) for row in exact(T).tolist())
        assert ratio * weight <= _tail_above(M, k)


def _square(value: float) -> Any:
    from flint import arb

    return arb(value) ** 2


def _tail_above(M: np.ndarray, k: int) -> Fraction:
    """An upper bound of the squared singular tail of a rational M: the error of a rank-k guess."""
    U, s, Vt = np.linalg.svd(M.astype(np.float64), full_matrices=False)
    guess = exact(U[:, :k]) @ exact(s[:k, None] * Vt[:k]) if k else 0 * M
    return sum(e * e for e in (M - guess).ravel())


def test_bounds_are_close_to_the_plain_values() -> None:
    rng = np.random.default_rng(0)
    A = rng.dirichlet(np.full(48, 0.1), size=(3, 64))
    tensor = torch.from_numpy(A)
    U, s, Vt = torch.linalg.svd(tensor, full_matrices=False)
    X, Y = U[..., :9] * s[..., None, :9], Vt[..., :9, :]
    plain = (tensor - X @ Y).abs().sum(dim=-1).amax(dim=-1)
    assert torch.all(factor_error(tensor, X, Y) <= plain * (1 + 1e-9))
    lower, upper = singular_values(tensor)
    assert torch.all(upper - lower <= 1e-7)
    assert torch.all(tail_energy(tensor, 9) >= (s[..., 9:] ** 2).sum(dim=-1) * (1 - 1e-9))


def test_repeated_values_and_zero_matrices_are_no_trouble() -> None:
    for matrix in (np.eye(5), np.zeros((4, 5)), np.ones((6, 2)), np.full((1, 1), 1e-300)):
        lower, upper = singular_values(*batch(matrix))
        truth = np.linalg.svd(matrix, compute_uv=False)
        assert np.all(lower[0].numpy() <= truth)
        assert np.all(truth <= upper[0].numpy())


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.full((2, 2), np.nan), "2\\^60"),
        (np.full((2, 2), 2 * LARGEST), "2\\^60"),
        (np.zeros((1, 4097)), "4096"),
        (np.zeros((2, 2), dtype=np.float32), "float64"),
    ],
)
def test_what_the_analysis_does_not_cover_is_refused(array: np.ndarray, said: str) -> None:
    with pytest.raises(UserError, match=said):
        frobenius_tail_ratio(*batch(array), 0)
