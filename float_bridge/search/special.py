"""Witnesses that cost no search: the classical ones, and exact ones for special matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg

from softrank_exact.witness import (
    FloatBernstein,
    FloatFactor,
    FloatHS,
    frobenius_tail,
    truncated_pseudoinverse,
)

from .cell import Cell
from .characters import bernstein_lowers, exact_uppers, is_xor_invariant
from .columns import chosen_columns, lifted
from .factors import classical_upper
from .types import Proposal

TINY = 1e-13  # relative: singular values that float64 cannot tell from zero


def offer_known(cell: Cell) -> None:
    """Offer what needs no search: trivial ranks, classical witnesses, special matrices."""
    A, eps = cell.A, float(cell.epsilon)
    m, n = A.shape
    largest = int(np.abs(A).sum(axis=1).argmax())
    cell.offer(Proposal("upper", 0, FloatFactor(np.zeros((m, 0)), np.zeros((0, n)))))
    signs = np.where(A[largest] < 0, -1.0, 1.0)[:, None]
    cell.offer(Proposal("lower", 1, FloatHS(1, np.eye(m)[largest], signs)))
    if cell.closed:
        return
    for proposal in (*classical_proposals(A, eps), _distinct_rows(A)):
        cell.offer(proposal)
    if not cell.closed and is_xor_invariant(cell.target.N):
        any(cell.offer_exact(*found) for found in exact_uppers(cell.target, eps))
        for proposal in bernstein_lowers(A, eps):
            cell.offer(proposal)


def classical_proposals(A: np.ndarray, eps: float) -> Iterator[Proposal]:
    """Truncated SVD; Frobenius tail, truncated pseudoinverse, greedy decoded inverse.

    The lower ones on the columns of `columns.chosen_columns`: all of them unless A is very wide.
    """
    upper = classical_upper(A, eps)
    yield Proposal("upper", upper.rank, upper)
    columns = chosen_columns(A)
    for witness in _classical_lower(A[:, columns], eps):
        yield lifted(Proposal("lower", witness.rank, witness), columns, A.shape[1])


def _classical_lower(A: np.ndarray, eps: float) -> Iterator[FloatHS | FloatBernstein]:
    sigma = np.linalg.svd(A, compute_uv=False)
    unit = sigma[0] or 1.0  # squares of the largest may exceed float64
    tails = unit * np.sqrt(np.cumsum((sigma[::-1] / unit) ** 2))[::-1]
    rank = int((tails > np.sqrt(len(A)) * eps).sum())
    if rank:
        yield frobenius_tail(A, rank)
    for witness in (_pseudoinverse(A, eps, sigma), _decoded_inverse(A, eps)):
        if witness is not None:
            yield witness


def _pseudoinverse(A: np.ndarray, eps: float, sigma: np.ndarray) -> FloatBernstein | None:
    """The truncated pseudoinverse of the largest rank that a bisection finds."""
    low, high = 0, int((sigma > TINY * sigma[0]).sum()) if sigma[0] > 0 else 0
    while low < high:
        p = (low + high + 1) // 2
        norm = np.abs(truncated_pseudoinverse(A, p).G).sum(axis=1).max()
        low, high = (p, high) if eps * norm < 1 else (low, p - 1)
    return truncated_pseudoinverse(A, low) if low else None


def _decoded_inverse(A: np.ndarray, eps: float) -> FloatBernstein | None:
    """Inverse of a square block, its columns and rows chosen greedily by pivoted QR."""
    columns = scipy.linalg.qr(A, mode="r", pivoting=True)[1]
    low, high, best = 0, min(A.shape), None
    while low < high:
        p = (low + high + 1) // 2
        witness = _block_inverse(A, np.sort(columns[:p]))
        if witness is not None and eps * np.abs(witness.G).sum(axis=1).max() < 1:
            low, best = p, witness
        else:
            high = p - 1
    return best


def _block_inverse(A: np.ndarray, columns: np.ndarray) -> FloatBernstein | None:
    p = len(columns)
    rows = scipy.linalg.qr(A[:, columns].T, mode="r", pivoting=True)[1][:p]
    block = A[np.ix_(rows, columns)]
    if np.linalg.cond(block) > 1 / TINY:
        return None
    G = np.zeros((p, len(A)))
    G[:, rows] = np.linalg.inv(block)
    return FloatBernstein(columns, G, np.zeros((p, 0)), np.zeros((0, p)))


def _distinct_rows(A: np.ndarray) -> Proposal:
    """Rows that repeat are said once: exact, and of least rank where the distinct ones are few."""
    rows, which = np.unique(A, axis=0, return_inverse=True)
    return Proposal("upper", len(rows), FloatFactor(np.eye(len(rows))[which.reshape(-1)], rows))
