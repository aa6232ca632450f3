"""Upper witnesses (MATH 4.1): factors X, Y with every row of A - X Y below eps in l1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import eye_array, hstack, vstack

from softrank_exact.witness import FloatFactor, truncated_svd

from .descent import PASS, Descent, Factors, Recipe, begin
from .types import Proposal, working_dtype

# First relative reduction of the rank, and how to descend: from the classical rank, from a better.
COLD = 0.35, Recipe(rate=0.07, betas=(0.9, 0.99), attempt=200, patience=1000)
WARM = 0.05, Recipe(rate=0.1, betas=(0.95, 0.999), attempt=1500, patience=2500)
POLISHED = 8  # rows, most: beyond, a linear program each would not bring the rank down
POLISHED_ENTRIES = 1 << 14  # of Y, most


def factors(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best factor proposal of each cell (interface: `types.Searcher`).

    Descends from the `FloatFactor` starts; a batch with a cell that has none is taken for new, and
    begins with large cuts of the classical rank.
    """
    dtype = working_dtype(A, eps)
    new = any(proposal is None for proposal in start)
    base = (A.double() / eps.double()[:, None, None]).to(dtype)
    first = [
        begin(base.new_zeros(A.shape[1], 0), *_factors(A[i], float(eps[i]), start[i], base), True)
        for i in range(len(A))
    ]
    cut, recipe = COLD if new else WARM
    cuts = [max(1, round(cut * solution.rank)) for solution in first]
    descent = Descent(base, base[:, :0], first, cuts, recipe, generator, paired=False)
    descent.run(steps)
    return [as_proposal(best, A[cell], float(eps[cell])) for cell, best in enumerate(descent.best)]


def as_proposal(best: Factors, A: torch.Tensor, eps: float) -> Proposal:
    """Factors of A / eps as a proposal about A (m, n), the rows that do not pass kept exactly."""
    best = polished(best, A / eps)
    return Proposal("upper", best.price, _witness(best, A, eps))


def polished(best: Factors, base: torch.Tensor) -> Factors:
    """Rows that do not pass, if they are few, anew with their least l1 cost for this Y.

    base (m, n): A / eps. MATH 1.2: for a fixed row space every row is a linear program of its own.
    """
    rows = (best.dropped | best.failing).nonzero()[:, 0].tolist()
    if len(rows) > POLISHED or not 0 < best.Y.numel() <= POLISHED_ENTRIES:
        return best
    X, dropped, failing = best.X.clone(), best.dropped.clone(), best.failing.clone()
    Y = best.Y.double().cpu().numpy()
    for row in rows:
        x = _least_l1(base[row].double().cpu().numpy(), Y)
        if x is not None:
            X[row] = torch.from_numpy(x).to(X)
            dropped[row] = failing[row] = False
    return replace(best, X=X, dropped=dropped, failing=failing)


def _least_l1(row: np.ndarray, Y: np.ndarray) -> np.ndarray | None:
    """x (k,) with ||row - x Y||_1 least, if that passes; row (n,), Y (k, n)."""
    k, n = Y.shape
    unit = eye_array(n)
    above = vstack([hstack([Y.T, -unit]), hstack([-Y.T, -unit])])
    cost = np.concatenate([np.zeros(k), np.ones(n)])
    bounds = [(None, None)] * k + [(0, None)] * n
    found = linprog(cost, above, np.concatenate([row, -row]), bounds=bounds, method="highs")
    if found.x is None:
        return None
    x: np.ndarray = found.x[:k]
    return x if np.abs(row - x @ Y).sum() < PASS else None


def classical_upper(A: np.ndarray, eps: float) -> FloatFactor:
    """The smallest truncated SVD that a bisection finds within eps (rank min(m, n) at most)."""
    U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
    low, high = 0, len(sigma)
    while low < high:
        k = (low + high) // 2
        error = np.abs(A - (U[:, :k] * sigma[:k]) @ Vt[:k]).sum(axis=1).max()
        low, high = (low, k) if error < eps else (k + 1, high)
    return truncated_svd(A, high)


def _factors(
    A: torch.Tensor, eps: float, start: Proposal | None, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if start and isinstance(start.witness, FloatFactor):
        witness = start.witness
    else:
        witness = classical_upper(A.double().cpu().numpy(), eps)
    return balanced(witness, eps, like)


def balanced(
    witness: FloatFactor, eps: float, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors of A / eps with rank-one terms of balanced sizes, of the dtype and device of like."""
    factors = witness.X / eps, witness.Y  # in float64: of the right size only once balanced
    X, Y = (torch.from_numpy(np.ascontiguousarray(factor)) for factor in factors)
    ratio = (Y.norm(dim=1) / X.norm(dim=0)).sqrt().nan_to_num(1.0, 1.0, 1.0)
    ratio = torch.where(ratio > 0, ratio, 1.0)
    return (X * ratio).to(like), (Y / ratio[:, None]).to(like)


def _witness(best: Factors, A: torch.Tensor, eps: float) -> FloatFactor:
    """Factors of the cell, its dropped and failing rows appended exactly."""
    exact = (best.dropped | best.failing).cpu().numpy()
    X = best.X.double().cpu().numpy() * eps
    X[exact] = 0.0
    Y = best.Y.double().cpu().numpy()
    values = A.double().cpu().numpy()
    return FloatFactor(np.hstack([X, np.eye(len(X))[:, exact]]), np.vstack([Y, values[exact]]))
