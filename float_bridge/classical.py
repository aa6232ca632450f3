"""Certified bounds in batched float64: errors, singular values and tails, with a-priori analysis.

The float arrays given are exact real matrices. Every function evaluates its inequality in float64
and adds a proven bound of the rounding errors, so that it never claims more than exact arithmetic
would. Assumed is IEEE float64 with rounding to nearest: +, -, x, / and sqrt err by at most
u = 2^-53 relative, sums and matrix products add in any order, fused or not (but not Strassen-like).
With g_k = k u / (1 - k u), the standard bounds used are, entry by entry:

* a sum of k terms errs by at most g_{k-1} times the sum of absolute values;
* fl(X Y), inner dimension k, errs by at most g_k |X| |Y|;
* evaluating an expression of non-negative terms, N < 2^16 operations deep, errs by at most 2^-37
  of it: ``_up`` and ``_down`` multiply by 1 + 2^-36 and 1 - 2^-36.

Everything below 2^-1022 is covered by ``TINY`` = 2^-900 per row, for arrays of at most 2^12 by 2^12
whose entries are at most 2^60 in absolute value (``covers``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from softrank_exact.errors import UserError

UNIT = 2.0**-53
TINY = 2.0**-900
LARGEST = 2.0**60
_SLACK = 2.0**-36


def factor_error(A: torch.Tensor, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """An upper bound of ||A - X Y|| (MATH 4.1). A: [..., m, n], X: [..., m, k], Y: [..., k, n].

    Float64; returns [...]. The computed residual R satisfies |R - (A - X Y)| <=
    u |R| (1 + 2u) + g_k |X| |Y| entry by entry, and a row of |X| |Y| sums to |X_i| . rowsum(|Y|).
    """
    _require(A, X, Y)
    residual = (A - X @ Y).abs().sum(dim=-1)
    size = _row_sizes(X, Y)
    n, k = A.shape[-1], Y.shape[-2]
    return _up(residual * (1 + _gamma(n + 4)) + _gamma(k + 2) * size + TINY).amax(dim=-1)


def reconstruction_error(
    A: torch.Tensor, hi: torch.Tensor, G: torch.Tensor, X: torch.Tensor, Y: torch.Tensor
) -> torch.Tensor:
    """An upper bound of max_j (hi ||G_j|| + ||(I - G A - X Y)_j||) (MATH 5.3).

    A: [..., m, c] the chosen columns, hi: [...], G: [..., c, m], X: [..., c, c - p],
    Y: [..., c - p, c]; float64; returns [...]. Below 1 it proves r >= p at the tolerance hi.
    """
    _require(A, G, X, Y)
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    residual = (identity - G @ A - X @ Y).abs().sum(dim=-1)
    m, c, k = A.shape[-2], A.shape[-1], Y.shape[-2]
    # Two subtractions: the first rounds at most (1 + |G A|), the second the result.
    size = _gamma(m + 4) * _row_sizes(G, A) + _gamma(k + 4) * _row_sizes(X, Y) + 2 * UNIT
    cost = hi[..., None] * G.abs().sum(dim=-1) * (1 + _gamma(m))
    return _up(cost + residual * (1 + _gamma(c + 4)) + size + TINY).amax(dim=-1)


@dataclass(frozen=True)
class GramBounds:
    """Enclosures of the eigenvalues of M^T M for M [..., m, q].

    With V near to eigenvectors, the i-th smallest eigenvalue of V^T M^T M V lies in
    [below_i, above_i], both sorted upwards, [..., q]; ``defect`` [...] bounds ||V^T V - I||, so by
    Ostrowski that of M^T M itself is one of them over a factor in [1 - defect, 1 + defect].
    """

    below: torch.Tensor
    above: torch.Tensor
    defect: torch.Tensor


def gram_bounds(M: torch.Tensor) -> GramBounds:
    """Enclosures of the squared singular values of M [..., m, q], float64 (MATH 5.6).

    B = fl(M V) errs by at most D with ||D||_F <= g_q ||M||_F ||V||_F, and S = fl(B^T B) by at most
    g_m ||B||_F^2; so S is within e = g_m ||B||^2 + 2 ||D|| ||B|| + ||D||^2 (Frobenius norms) of
    V^T M^T M V in the spectral norm. By Gershgorin (diagonal dominance) and Weyl the i-th smallest
    eigenvalue lies between the i-th smallest S_ii - s_i - e and the i-th smallest S_ii + s_i + e,
    s_i the sum of |S_ij|, j != i, taken over rows and columns so that S need not be symmetric.
    """
    _require(M)
    m, q = M.shape[-2:]
    V = eigenvectors(M)
    image = M @ V
    gram = image.mT @ image
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    outside = gram.abs() - torch.diag_embed(diagonal.abs())
    radius = torch.maximum(outside.sum(dim=-1), outside.sum(dim=-2))
    norm = _frobenius(image)
    moved = _up(_gamma(q + 2) * _frobenius(M) * _frobenius(V))
    error = _up(_gamma(m + 2) * norm**2 + 2 * moved * norm + moved**2 + TINY)
    spread = _up(radius + error[..., None] + 4 * UNIT * diagonal)
    below = torch.sort(diagonal - spread, dim=-1).values
    above = torch.sort(diagonal + spread, dim=-1).values
    return GramBounds(below, above, _defect(V))


def singular_values(M: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Certified (lower, upper) bounds of the min(m, n) largest singular values, descending.

    M: [..., m, n] float64; both results [..., min(m, n)].
    """
    tall = M if M.shape[-2] >= M.shape[-1] else M.mT
    gram = gram_bounds(tall)
    defect = gram.defect[..., None]
    lower = _down(_down(gram.below.clamp_min(0.0) / (1 + defect)).sqrt())
    upper = _up(_up(gram.above.clamp_min(0.0) / (1 - defect)).sqrt())
    upper = torch.where(defect < 0.5, upper, torch.inf)
    return lower.flip(-1), upper.flip(-1)


def tail_energy(M: torch.Tensor, k: torch.Tensor | int) -> torch.Tensor:
    """A lower bound of the squared singular values of M beyond the k largest, summed.

    M: [..., m, q] float64, k: one for all or [...]; returns [...], at least 0 (no eigenvalue of
    M^T M is negative).
    """
    gram = gram_bounds(M)
    # Sorted upwards: the largest k come last.
    place = torch.arange(M.shape[-1], 0, -1, device=M.device)
    beyond = place > torch.as_tensor(k, device=M.device)[..., None]
    bottom = torch.where(beyond, gram.below.clamp_min(0.0), 0.0).sum(dim=-1)
    return torch.where(gram.defect < 0.5, _down(bottom / (1 + gram.defect)), 0.0)


def hilbert_schmidt_ratio(
    A: torch.Tensor, d: torch.Tensor, T: torch.Tensor, k: torch.Tensor | int
) -> torch.Tensor:
    """A lower bound of tail_k(diag(d) A T)^2 / (sum d^2 max_j ||T_j||^2) (MATH 5.2).

    A: [..., m, n], d: [..., m], T: [..., n, q]; float64; returns [...]. Above hi^2 it proves
    r >= k + 1 at the tolerance hi. fl(diag(d) A T) errs by at most g_{n+1} |d| |A| |T|, in
    Frobenius norm at most g_{n+2} sqrt(sum d^2 t) max_i ||A_i||, and the root of the tail moves by
    no more than that.
    """
    _require(A, d[..., None], T)
    n = A.shape[-1]
    weight = _up((d * d).sum(dim=-1) * (T * T).sum(dim=-1).amax(dim=-1) + TINY)
    moved = _up(_gamma(n + 2) * weight.sqrt() * A.abs().sum(dim=-1).amax(dim=-1))
    root = _down(tail_energy(d[..., None] * (A @ T), k).sqrt())
    kept = _down((root - moved).clamp_min(0.0))
    return _down(kept**2 / weight)


def frobenius_tail_ratio(A: torch.Tensor, k: torch.Tensor | int) -> torch.Tensor:
    """A lower bound of tail_k(A)^2 / m: above hi^2 it proves r >= k + 1 at hi (MATH 5.2).

    A: [..., m, n] float64; returns [...].
    """
    return _down(tail_energy(A if A.shape[-2] >= A.shape[-1] else A.mT, k) / A.shape[-2])


def covers(*arrays: torch.Tensor) -> bool:
    """Whether all entries are finite and at most 2^60, as the analysis asks."""
    return all(bool((array.abs() <= LARGEST).all()) for array in arrays)


def _require(*arrays: torch.Tensor) -> None:
    for array in arrays:
        if array.dtype != torch.float64:
            raise UserError(f"an array has dtype {array.dtype}; accepted: torch.float64")
        if not covers(array):
            raise UserError("an array has an entry beyond 2^60; accepted: finite and smaller")
        if max(array.shape[-2:]) > 1 << 12:
            raise UserError(f"an array has shape {tuple(array.shape)}; accepted: axes up to 4096")


def eigenvectors(M: torch.Tensor) -> torch.Tensor:
    """Approximate eigenvectors of M^T M, [..., q, q]."""
    gram = M.mT @ M
    try:
        vectors: torch.Tensor = torch.linalg.eigh(gram).eigenvectors
    except RuntimeError:
        # No convergence: the identity is a basis too, only a worse one.
        vectors = torch.eye(M.shape[-1], dtype=M.dtype, device=M.device).expand_as(gram)
    return vectors


def _frobenius(M: torch.Tensor) -> torch.Tensor:
    """An upper bound of the Frobenius norm: two sums, each of at most 2^12 terms."""
    return _up((M * M).sum(dim=-1).sum(dim=-1).sqrt())


def _defect(V: torch.Tensor) -> torch.Tensor:
    """An upper bound of ||V^T V - I||, V: [..., q, q]."""
    q = V.shape[-1]
    identity = torch.eye(q, dtype=V.dtype, device=V.device)
    computed = (V.mT @ V - identity).abs().sum(dim=-1)
    size = _row_sizes(V.mT, V)
    return _up(computed * (1 + _gamma(q + 4)) + _gamma(q + 2) * size + 2 * UNIT + TINY).amax(dim=-1)


def _row_sizes(X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """Row sums of |X| |Y|, [..., m], without forming the product."""
    return _up((X.abs() @ Y.abs().sum(dim=-1)[..., None])[..., 0])


def _gamma(k: int) -> float:
    return k * UNIT / (1 - k * UNIT) * (1 + 2.0**-40)


def _up(values: torch.Tensor) -> torch.Tensor:
    return values * (1 + _SLACK)


def _down(values: torch.Tensor) -> torch.Tensor:
    return values * (1 - _SLACK)
