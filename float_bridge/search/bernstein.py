"""Bernstein witnesses (MATH 5.3): the identity is G A up to rank n - p and a small residual."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softrank_exact.witness import FloatBernstein, FloatFantope, FloatHS

from .descent import TARGET, Descent, Factors, Recipe, begin
from .types import Proposal, working_dtype

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the smallest eigenvalue kept
CUT = 0.04  # first increase of the rank, should the start succeed outright
RATE = 1.25  # over the square root of the number of steps


def bernstein(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best Bernstein proposal of each cell, all columns at first (interface: `types.Searcher`).

    One fresh attempt at the start's rank: aim above what is proven, failing columns are dropped.
    From a spectral start the subspace is the span of the top singular vectors of diag(sqrt w) A T,
    carried back by T (of a `FloatFantope`, w is the mean): far better than those of A alone.
    """
    dtype = working_dtype(A, eps)
    dictionary = (A.double() / eps.double()[:, None, None]).to(dtype)
    base = torch.eye(A.shape[2], dtype=dtype, device=A.device).repeat(len(A), 1, 1)
    first = [_start(dictionary[cell].double(), start[cell], dtype) for cell in range(len(A))]
    cuts = [max(1, round(CUT * (A.shape[2] - solution.rank))) for solution in first]
    recipe = Recipe(RATE / max(steps, 1) ** 0.5, (0.9, 0.99), steps, steps)
    descent = Descent(base, dictionary, first, cuts, recipe, generator, paired=True)
    descent.run(steps)
    return [_proposal(best, float(eps[cell])) for cell, best in enumerate(descent.best)]


def _start(A: torch.Tensor, start: Proposal | None, dtype: torch.dtype) -> Factors:
    m, n = A.shape
    weights, T = A.new_full((m,), 1.0 / m), torch.eye(n, dtype=A.dtype, device=A.device)
    witness = start.witness if start else None
    if isinstance(witness, FloatHS | FloatFantope):
        w = witness.w if isinstance(witness, FloatHS) else witness.w.mean(axis=0)
        weights, T = torch.from_numpy(w / w.sum()).to(A), torch.from_numpy(witness.T).to(A)
    p = start.rank if start else 1
    return _subspace_start(A, weights, T, min(p, m, T.shape[1]), dtype)


def _subspace_start(
    A: torch.Tensor, weights: torch.Tensor, T: torch.Tensor, p: int, dtype: torch.dtype
) -> Factors:
    """G by weighted ridge regression on a span V of p directions; X Y = (I - G A)(I - V V^T)."""
    m, n = A.shape
    Vt = torch.linalg.svd(weights.sqrt()[:, None] * (A @ T), full_matrices=False).Vh
    V, rest = torch.linalg.qr(T @ Vt[:p].mT, mode="complete").Q.split([p, n - p], dim=1)
    image = A @ V
    weighted = (m * weights)[:, None] * image
    gram = image.mT @ weighted
    floor = torch.linalg.eigvalsh(gram)[0].clamp_min(1e-12 * gram.diagonal().mean())
    identity = torch.eye(n, dtype=A.dtype, device=A.device)

    def regularised(ridge: float) -> tuple[float, torch.Tensor, torch.Tensor]:
        G = V @ torch.linalg.solve(gram + ridge * floor * identity[:p, :p], weighted.mT)
        remainder = identity - G @ A
        costs = (remainder @ V @ V.mT).abs().sum(dim=1) + G.abs().sum(dim=1)
        loss = float((costs - TARGET).clamp_min(0).pow(1.5).mean())
        return loss, G, remainder @ rest

    _, G, X = min(map(regularised, RIDGES), key=lambda found: found[0])
    return begin(G.to(dtype), X.to(dtype), rest.mT.to(dtype).contiguous(), solved=False)


def _proposal(best: Factors, eps: float) -> Proposal | None:
    kept = ~(best.dropped | best.failing)
    rank = int(kept.sum()) - best.rank
    if rank < 1:
        return None
    columns = kept.nonzero()[:, 0].cpu().numpy()
    G, X, Y = (
        part.double().cpu().numpy() for part in (best.G[kept] / eps, best.X[kept], best.Y[:, kept])
    )
    return Proposal("lower", rank, FloatBernstein(columns, G, X, Y))
