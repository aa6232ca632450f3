"""Float witnesses: what a search proposes. Nothing is believed; ``rounding`` makes integers of it.

Arrays are float64. m queries, n keys; E = A - B is the error of a competitor B.
The named witnesses of the literature are functions that return one of these types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class FloatFactor:
    """r_eps <= rank: X (m, rank) and Y (rank, n) with A near X Y (MATH 4.1)."""

    X: FloatArray
    Y: FloatArray

    @property
    def rank(self) -> int:
        return int(self.X.shape[1])


@dataclass(frozen=True)
class FloatHS:
    """r_eps >= rank: weights w (m,), w >= 0, and T (n, q), rows of norm at most one (MATH 5.2)."""

    rank: int
    w: FloatArray
    T: FloatArray


@dataclass(frozen=True)
class FloatBernstein:
    """r_eps >= rank: c columns, G (c, m), X (c, c - rank), Y (c - rank, c) (MATH 5.3)."""

    columns: NDArray[np.int64]
    G: FloatArray
    X: FloatArray
    Y: FloatArray

    @property
    def rank(self) -> int:
        return int(self.X.shape[0] - self.X.shape[1])


@dataclass(frozen=True)
class FloatBernsteinRows:
    """The left mirror of ``FloatBernstein``: c rows, G (n, c) (MATH 5.3)."""

    rows: NDArray[np.int64]
    G: FloatArray
    X: FloatArray
    Y: FloatArray

    @property
    def rank(self) -> int:
        return int(self.X.shape[0] - self.X.shape[1])


@dataclass(frozen=True)
class FloatFantope:
    """r_eps >= rank: T (n, q); per non-zero row of T in order, w (s, m) and v (s, n) (MATH 5.4)."""

    rank: int
    T: FloatArray
    w: FloatArray
    v: FloatArray


@dataclass(frozen=True)
class FloatShattering:
    """r_eps >= rank: D (rank + e, m), sizes of blocks (b,), Y (r, n), edges (e, 2) (theory 5.8).

    Without edges, every block of t rows of D has 2^(t - 1) rows of Y. Row number k belongs to the
    signs +1 for the block's first row and, for i >= 1, -1 for its row i if bit i - 1 of k is set,
    else +1. Each edge, two signed row numbers counted from 1, divides facets (format, section 4).
    """

    D: FloatArray
    blocks: NDArray[np.int64]
    Y: FloatArray
    edges: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    @property
    def rank(self) -> int:
        return len(self.D) - len(self.edges)


FloatWitness: TypeAlias = (
    FloatFactor | FloatHS | FloatBernstein | FloatBernsteinRows | FloatFantope | FloatShattering
)


def truncated_svd(A: FloatArray, rank: int) -> FloatFactor:
    """The best rank-``rank`` approximation of A (m, n) in Frobenius norm (MATH 4.2).

    Raises ``UserError`` for a rank outside 0..min(m, n).
    """
    U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
    if not 0 <= rank <= len(sigma):
        raise UserError(f"rank is {rank}; accepted: 0 to {len(sigma)}")
    root = np.sqrt(sigma[:rank])
    return FloatFactor(U[:, :rank] * root, root[:, None] * Vt[:rank])


def representative_rows(A: FloatArray, representatives: list[int]) -> FloatFactor:
    """Every row of A (m, n) replaced by the nearest representative in l1 (MATH 4.2)."""
    Y = A[representatives]
    nearest = np.abs(A[:, None, :] - Y[None]).sum(axis=2).argmin(axis=1)
    return FloatFactor(np.eye(len(representatives))[nearest], Y)


def frobenius_tail(A: FloatArray, rank: int) -> FloatHS:
    """F_{rank-1}(A) > sqrt(m) eps (MATH 5.2 with w uniform, T = I). A: (m, n)."""
    m, n = A.shape
    return FloatHS(rank, np.full(m, 1.0 / m), np.eye(n))


def residual_aware(A: FloatArray, G: FloatArray, rank: int) -> FloatBernstein:
    """Any G (n, m), with I - G A cut to rank n - rank by its singular values (MATH 5.3)."""
    n = A.shape[1]
    rest = truncated_svd(np.eye(n) - G @ A, n - rank)
    return FloatBernstein(np.arange(n), G, rest.X, rest.Y)


def truncated_pseudoinverse(A: FloatArray, rank: int) -> FloatBernstein:
    """||A_rank^+|| < 1/eps (MATH 5.3). A: (m, n), its singular value number ``rank`` positive."""
    U, sigma, Vt = np.linalg.svd(A, full_matrices=True)
    G = (Vt[:rank].T / sigma[:rank]) @ U[:, :rank].T
    return FloatBernstein(np.arange(A.shape[1]), G, Vt[rank:].T, Vt[rank:])


def decoded_inverse(A: FloatArray, D: FloatArray, F: FloatArray) -> FloatBernstein:
    """||F R D|| < 1/eps with R the inverse of D A F, p x p (MATH 5.3). D: (p, m), F: (n, p)."""
    G = F @ np.linalg.inv(D @ A @ F) @ D
    return residual_aware(A, G, D.shape[0])


def near_identity(A: FloatArray, D: FloatArray, F: FloatArray) -> FloatBernstein:
    """||D A F - I|| + eps < 1 for contractions D (p, m), F (n, p) (MATH 5.3).

    By the Neumann series it implies ``decoded_inverse``, which therefore serves as its witness.
    """
    return decoded_inverse(A, D, F)


def distance_to_singularity(M: FloatArray) -> FloatBernstein:
    """r_eps(M) = n for eps < 1/||M^-1|| (MATH 5.5). M: (n, n), invertible."""
    n = M.shape[0]
    inverse = np.linalg.inv(M).astype(np.float64)
    return FloatBernstein(np.arange(n), inverse, np.zeros((n, 0)), np.zeros((0, n)))
