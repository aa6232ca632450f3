"""Upper witnesses (MATH 4.1): factors X, Y with every row of A - X Y below eps in l1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from softrank_exact.witness import FloatFactor, FloatHS, representative_rows, truncated_svd

from .descent import Descent, Factors, unsolved
from .types import Proposal, working_dtype

SHARE = 0.65  # of the classical rank: where a cold descent starts
CUT = 0.08  # first reduction of the rank
ATTEMPT = 400  # steps


def factors(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best factor proposal of each cell (interface: `types.Searcher`).

    A `FloatFactor` start is improved; from a `FloatHS` the descent begins at the optimum of its
    weighted Frobenius norm, D^-1 [D A T]_k T^+; otherwise at a truncated SVD.
    """
    dtype = working_dtype(A, eps)
    begin = [_start(A[cell], float(eps[cell]), start[cell]) for cell in range(len(A))]
    base = (A.double() / eps.double()[:, None, None]).to(dtype)
    first = [
        unsolved(base.new_zeros(len(w.X), 0), *_balanced(w, float(eps[cell]), base))
        for cell, w in enumerate(begin)
    ]
    cuts = [max(1, round(CUT * solution.rank)) for solution in first]
    descent = Descent(base, base[:, :0], first, cuts, ATTEMPT, generator, paired=False)
    descent.run(steps)
    return [
        Proposal("upper", best.price, _witness(best, A[cell], float(eps[cell])))
        for cell, best in enumerate(descent.best)
    ]


def classical_upper(A: np.ndarray, eps: float) -> FloatFactor:
    """The smallest truncated SVD that a bisection finds within eps (rank min(m, n) at most)."""
    U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
    low, high = 0, len(sigma)
    while low < high:
        k = (low + high) // 2
        error = np.abs(A - (U[:, :k] * sigma[:k]) @ Vt[:k]).sum(axis=1).max()
        low, high = (low, k) if error < eps else (k + 1, high)
    return truncated_svd(A, high)


def clustered_rows(A: np.ndarray, k: int) -> FloatFactor:
    """k representative rows, each the farthest in l1 from those before (MATH 4.2)."""
    chosen = [int(np.abs(A).sum(axis=1).argmax())]
    distance = np.abs(A - A[chosen[0]]).sum(axis=1)
    while len(chosen) < k:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.abs(A - A[chosen[-1]]).sum(axis=1))
    return representative_rows(A, chosen)


def _start(A: torch.Tensor, eps: float, start: Proposal | None) -> FloatFactor:
    if start and isinstance(start.witness, FloatFactor):
        return start.witness
    values = A.double().cpu().numpy()
    k = round(SHARE * classical_upper(values, eps).rank)
    if start and isinstance(start.witness, FloatHS):
        return _weighted_optimum(values, start.witness, k)
    return truncated_svd(values, k)


def _weighted_optimum(A: np.ndarray, weights: FloatHS, k: int) -> FloatFactor:
    """The rank-k B that minimises ||diag(sqrt w) (A - B) T||_F, weights kept off zero."""
    root = np.sqrt(weights.w + 1e-3 * weights.w.max())
    U, sigma, Vt = np.linalg.svd(root[:, None] * (A @ weights.T), full_matrices=False)
    U, sigma, Vt = U[:, :k], sigma[:k], Vt[:k]
    return FloatFactor(U * sigma / root[:, None], Vt @ np.linalg.pinv(weights.T, rcond=1e-3))


def _balanced(
    witness: FloatFactor, eps: float, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    X, Y = (torch.from_numpy(np.ascontiguousarray(f)).to(like) for f in (witness.X, witness.Y))
    sizes = X.norm(dim=0) / eps, Y.norm(dim=1)
    ratio = (sizes[1] / sizes[0]).sqrt().nan_to_num(1.0, 1.0, 1.0)
    ratio = torch.where(ratio > 0, ratio, 1.0)
    return X / eps * ratio, Y / ratio[:, None]


def _witness(best: Factors, A: torch.Tensor, eps: float) -> FloatFactor:
    """Factors of the cell, its dropped and failing rows appended exactly."""
    exact = (best.dropped | best.failing).cpu().numpy()
    X = best.X.double().cpu().numpy() * eps
    X[exact] = 0.0
    Y = best.Y.double().cpu().numpy()
    values = A.double().cpu().numpy()
    return FloatFactor(np.hstack([X, np.eye(len(X))[:, exact]]), np.vstack([Y, values[exact]]))
