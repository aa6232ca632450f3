"""Lower witnesses of very wide or large matrices, searched on some of the columns (MATH 5.1).

A witness about A_C is one about A: the other rows of T, or columns of Y, are zero, the column set
is mapped back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from softrank_exact.witness import FloatBernstein, FloatFantope, FloatHS, FloatShattering

from .types import Proposal

PER_ROW = 2  # columns kept per row of A: no more than m of them can be independent
LEAST, MOST = 64, 1024


def chosen_columns(A: np.ndarray) -> np.ndarray:
    """Increasing indices: all of them, or those that pivoted QR takes first, then the heaviest."""
    m, n = A.shape
    limit = min(MOST, max(LEAST, PER_ROW * m))
    if n <= limit:
        return np.arange(n)
    pivots = scipy.linalg.qr(A, mode="r", pivoting=True)[1][: min(m, limit)]
    heavy = np.argsort(-np.abs(A).sum(axis=0), kind="stable")
    others = heavy[~np.isin(heavy, pivots)]
    return np.sort(np.concatenate([pivots, others[: limit - len(pivots)]]))


def restricted(proposal: Proposal | None, columns: np.ndarray) -> Proposal | None:
    """A spectral proposal about A as a start about A_C: T without the other rows."""
    if proposal is None:
        return None
    match proposal.witness:
        case FloatHS() as witness:
            return replace(proposal, witness=replace(witness, T=witness.T[columns]))
        case FloatFantope() as witness:
            kept = np.isin(np.flatnonzero((witness.T != 0).any(axis=1)), columns)
            fewer = replace(
                witness, T=witness.T[columns], w=witness.w[kept], v=witness.v[kept][:, columns]
            )
            return replace(proposal, witness=fewer)
    return None


def lifted(proposal: Proposal, columns: np.ndarray, n: int) -> Proposal:
    """A proposal about A_C as one about A with its n columns."""
    witness = proposal.witness
    if isinstance(witness, FloatBernstein):
        return replace(proposal, witness=replace(witness, columns=columns[witness.columns]))
    if isinstance(witness, FloatShattering):
        return replace(proposal, witness=replace(witness, Y=_spread(witness.Y, columns, n)))
    if isinstance(witness, FloatHS | FloatFantope):
        wide: FloatHS | FloatFantope = replace(witness, T=_spread(witness.T.T, columns, n).T)
        if isinstance(wide, FloatFantope):
            wide = replace(wide, v=_spread(wide.v, columns, n))
        return replace(proposal, witness=wide)
    return proposal


def _spread(values: np.ndarray, columns: np.ndarray, n: int) -> np.ndarray:
    wide = np.zeros((len(values), n))
    wide[:, columns] = values
    return wide
