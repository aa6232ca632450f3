"""Upper witnesses (MATH 4.1) from other starts than the descent's own, one rank lower at a time.

A descent follows one path from the truncated SVD downwards. Here the rank that it did not reach is
tried afresh from three starts at once: the truncated SVD; the matrix whose weighted residual a
Hilbert-Schmidt or Fantope witness looks at, cut in its metric; representative rows (MATH 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from softrank_exact.witness import FloatFactor, FloatFantope, FloatHS, truncated_svd

from .descent import Descent, Recipe, begin
from .distances import distant_rows
from .factors import as_proposal, balanced
from .types import Proposal, working_dtype

RATE, BETAS = 0.1, (0.95, 0.999)
LEAST_WEIGHT = 0.05  # of a row, over the mean: none is given up


def restarts(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best factor proposal of each cell (interface: `types.Searcher`).

    A start is a spectral proposal whose rank is the one to try; a cell without one is left alone.
    """
    found: list[Proposal | None] = [None] * len(A)
    aims = [(cell, aim) for cell, aim in enumerate(start) if aim and aim.rank >= 1]
    if not aims:
        return found
    base = (A / eps[:, None, None]).to(working_dtype(A, eps))
    owners, begins = [], []
    for cell, aim in aims:
        for witness in _starts(A[cell].double().cpu().numpy(), aim, generator):
            X, Y = balanced(witness, float(eps[cell]), base)
            owners.append(cell)
            begins.append(begin(base.new_zeros(len(X), 0), X, Y, solved=False))
    recipe = Recipe(RATE, BETAS, attempt=steps, patience=steps)
    slots = base[owners]
    descent = Descent(slots, slots[:, :0], begins, [1] * len(slots), recipe, generator, False)
    descent.run(steps)
    for cell, best in zip(owners, descent.best, strict=True):
        proposal, known = as_proposal(best, A[cell], float(eps[cell])), found[cell]
        if known is None or proposal.rank < known.rank:
            found[cell] = proposal
    return found


def _starts(A: np.ndarray, aim: Proposal, generator: torch.Generator) -> list[FloatFactor]:
    norm = np.abs(A).sum(axis=1).max() or 1.0  # squares of large entries exceed float64
    unit, rank = A / norm, aim.rank
    starts = [truncated_svd(unit, rank), representative_rows(unit, rank, generator)]
    if isinstance(aim.witness, FloatHS | FloatFantope):
        starts.append(weighted_svd(unit, rank, aim.witness))
    return [replace(start, X=norm * start.X) for start in starts]


def weighted_svd(A: np.ndarray, rank: int, witness: FloatHS | FloatFantope) -> FloatFactor:
    """D^-1 [D A T]_rank T^+, the nearest to A in the metric of a spectral witness. A: (m, n)."""
    weights = witness.w if isinstance(witness, FloatHS) else witness.w.mean(axis=0)
    root = np.sqrt(weights / weights.sum() + LEAST_WEIGHT / len(A))[:, None]
    cut = truncated_svd(root * (A @ witness.T), min(rank, witness.T.shape[1], len(A)))
    return FloatFactor(cut.X / root, cut.Y @ np.linalg.pinv(witness.T))


def representative_rows(A: np.ndarray, rank: int, generator: torch.Generator) -> FloatFactor:
    """Rows of A far from each other's span, and every row in them by least squares. A: (m, n)."""
    values = torch.from_numpy(A)[None]
    rows = distant_rows(values, rank, 1, generator)[0, 0].numpy()
    return FloatFactor(A @ np.linalg.pinv(A[rows]), A[rows])
