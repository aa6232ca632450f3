"""Fantope-Bernstein witnesses (MATH 5.4) in floating point.

Of every column j the sum phi_j of the q - k smallest eigenvalues of H_j is concave in its own
weights p^j = (eps^2 w^j, v^j), scaled to sum one; T is shared. Adam ascends the soft minimum of the
phi_j over T and each phi_j over its own weights. Where few columns fail, their rows of T are set to
zero, which takes them out of the claim. On success the target is k + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from softrank_exact.witness import FloatFantope, FloatHS

from .hilbert_schmidt import normalised, working_dtype
from .types import Proposal

WEIGHT_RATE, T_RATE = 0.1, 0.02
SHARPNESS = 20.0  # of the soft minimum over columns, for rows of T of norm about one
BARRIER = 1e-3  # on the mean log of the q - k smallest eigenvalues of T^T T: T keeps its rank
FRESH_V = -5.0  # logit of v at a Hilbert-Schmidt start, against the logarithm of w
NEVER = -1e4  # logit of a weight that is zero
SLACK = 1e-5  # least phi_j / max |T_l|^2 that counts as success: rounding to integers costs some
DROP_EVERY, DROP_ROUNDS = 10, 3
DROP_SHARE = 0.25  # of the columns
CHUNK = 4_000_000  # entries of the H_j handled at once


def fantope(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best Fantope proposal of each cell (interface: `types.Searcher`).

    Begins at a `FloatFantope` or `FloatHS` start and aims above its rank; a cell with neither, or
    whose rank cannot grow, keeps its own kind's start or None.
    """
    A, eps = normalised(A, eps)
    found = [p if p and isinstance(p.witness, FloatFantope) else None for p in start]
    for chunk in _chunks(A, eps, start):
        cells = [point.cell for point in chunk]
        search = _Ascent(A[cells], eps[cells], chunk, generator)
        search.run(steps)
        for cell, better in zip(cells, search.proposals(), strict=True):
            found[cell] = better or found[cell]
    return found


@dataclass(frozen=True)
class _Point:
    """Where one cell begins: T (n, q), logits (n, m + n) of p^j, the k that it aims at."""

    cell: int
    k: int
    T: torch.Tensor
    logits: torch.Tensor


def _chunks(
    A: torch.Tensor, eps: torch.Tensor, start: Sequence[Proposal | None]
) -> Iterator[list[_Point]]:
    """The cells to search in batches of bounded size, cells of like q together."""
    limit = min(A.shape[1:])
    points = [
        _point(cell, A[cell], float(eps[cell]), proposal.rank, proposal.witness)
        for cell, proposal in enumerate(start)
        if proposal is not None
        and proposal.rank < limit
        and isinstance(proposal.witness, FloatHS | FloatFantope)
    ]
    points.sort(key=lambda point: point.T.shape[1])
    chunk: list[_Point] = []
    for point in points:
        if chunk and (len(chunk) + 1) * A.shape[2] * point.T.shape[1] ** 2 > CHUNK:
            yield chunk
            chunk = []
        chunk.append(point)
    if chunk:
        yield chunk


def _columns(k: int, n: int) -> int:
    return min(n, int(1.4 * k) + 6)


def _point(
    cell: int, A: torch.Tensor, eps: float, rank: int, witness: FloatHS | FloatFantope
) -> _Point:
    m, n = A.shape
    T = torch.from_numpy(witness.T).to(A)
    w = torch.from_numpy(witness.w).to(A)
    own = torch.arange(n, device=A.device)
    if isinstance(witness, FloatHS):
        M = w.sqrt()[:, None] * (A @ T)
        q = min(T.shape[1], _columns(rank, n))
        T = T @ torch.linalg.eigh(M.mT @ M).eigenvectors[:, -q:]
        logits = torch.full((n, m + n), FRESH_V, dtype=A.dtype, device=A.device)
        logits[:, :m] = w.log()
    else:
        v = torch.from_numpy(witness.v).to(A)
        known = torch.cat([eps**2 * w, v], dim=1).log()
        kept = (T != 0).any(dim=1)
        logits = known.mean(dim=0).expand(n, -1).clone()
        logits[kept] = known
    logits = logits.clamp_min(NEVER)
    logits[own, m + own] = NEVER  # v_j^j multiplies zero
    return _Point(cell, rank, T, logits)


class _Ascent:
    """The state of one chunk: T (b, n, q) padded with zero columns, logits (b, n, m + n)."""

    def __init__(
        self,
        A: torch.Tensor,
        eps: torch.Tensor,
        points: Sequence[_Point],
        generator: torch.Generator,
    ) -> None:
        dtype = working_dtype(eps)
        self.generator = generator
        self.eps = eps
        self.exact = A / eps[:, None, None]
        self.A = self.exact.to(dtype)
        self.k = [point.k for point in points]
        self.q = [point.T.shape[1] for point in points]
        self.T = torch.zeros(*A.shape[::2], max(self.q), dtype=dtype, device=A.device)
        for cell, point in enumerate(points):
            self.T[cell, :, : self.q[cell]] = point.T
        self.logits = torch.stack([point.logits for point in points]).to(dtype)
        self.best: list[tuple[int, torch.Tensor, torch.Tensor] | None] = [None] * len(points)
        self._widen()

    def run(self, steps: int) -> None:
        adam = self._adam()
        for step in range(steps):
            phi = self._set_gradients()
            if self._raise_targets(phi, dropping=step % DROP_EVERY == 0) and self._widen():
                adam = self._adam()
                self._set_gradients()
            adam.step()

    def proposals(self) -> list[Proposal | None]:
        m = self.A.shape[1]
        found: list[Proposal | None] = []
        for eps, best in zip(self.eps.tolist(), self.best, strict=True):
            if best is None:
                found.append(None)
                continue
            rank, T, p = best
            w, v = p[:, :m] / eps**2, p[:, m:]
            witness = FloatFantope(rank, T.cpu().numpy(), w.cpu().numpy(), v.cpu().numpy())
            found.append(Proposal("lower", rank, witness))
        return found

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam(
            [{"params": [self.logits], "lr": WEIGHT_RATE}, {"params": [self.T], "lr": T_RATE}]
        )

    def _set_gradients(self) -> torch.Tensor:
        """phi (b, n); gradients of phi_j by its logits and of the soft minimum by T.

        The gradient of a sum of smallest eigenvalues is the projector onto their eigenvectors.
        """
        b, m, n = self.A.shape
        T, q = self.T, self.T.shape[2]
        own = torch.arange(n, device=T.device)
        p = self.logits.softmax(dim=2)
        X = torch.cat([self.A @ T, T], dim=1)
        eigenvalues, vectors = torch.linalg.eigh(self._padded(_forms(p, X, T)))
        size = max(q - k for q, k in zip(self.q, self.k, strict=True))
        active = self._active(size, T)
        phi = (eigenvalues[:, :, :size] * active[:, None, :]).sum(dim=2)
        U = (vectors[:, :, :, :size] * active[:, None, None, :]).permute(0, 2, 1, 3)
        U = U.reshape(b, q, n * size)
        XU = (X @ U).view(b, m + n, n, size)
        energy = XU.square().sum(dim=3).mT
        self.logits.grad = -p * (energy - (p * energy).sum(dim=2, keepdim=True))
        c = (-SHARPNESS * phi).softmax(dim=1)
        weights = c[:, :, None] * p
        weights[:, own, m + own] = -c
        slope = (XU * weights.mT[..., None]).reshape(b, m + n, n * size) @ U.mT
        slope = self.A.mT @ slope[:, :m] + slope[:, m:] + self._barrier_slope(active)
        self.T.grad = -2.0 * slope * self._real_columns(T)[:, None, :]
        return phi

    def _barrier_slope(self, active: torch.Tensor) -> torch.Tensor:
        size = active.shape[1]
        gram = self._padded((self.T.mT @ self.T)[:, None])[:, 0]
        eigenvalues, vectors = torch.linalg.eigh(gram)
        share = active / active.sum(dim=1, keepdim=True) / eigenvalues[:, :size].clamp_min(1e-9)
        R = vectors[:, :, :size]
        return BARRIER * (self.T @ (R * share[:, None, :])) @ R.mT

    def _active(self, size: int, like: torch.Tensor) -> torch.Tensor:
        """1 for the q - k smallest eigenvalues of each cell, (b, size)."""
        counts = [[q - k] for q, k in zip(self.q, self.k, strict=True)]
        index = torch.arange(size, device=like.device)
        return (index < torch.tensor(counts, device=like.device)).to(like)

    def _real_columns(self, like: torch.Tensor) -> torch.Tensor:
        index = torch.arange(like.shape[2], device=like.device)
        return (index < torch.tensor(self.q, device=like.device)[:, None]).to(like)

    def _padded(self, H: torch.Tensor) -> torch.Tensor:
        """H (b, s, q, q) with the padding's eigenvalues above all others."""
        padding = 1.0 - self._real_columns(self.T)
        height = 1.0 + H.abs().sum(dim=3).amax(dim=(1, 2))
        return H + torch.diag_embed(padding * height[:, None])[:, None]

    def _raise_targets(self, phi: torch.Tensor, dropping: bool) -> bool:
        """Try to conclude every cell, dropping columns that fail; True if some k has grown."""
        grown = False
        most = DROP_SHARE * phi.shape[1] if dropping else 0
        failing = phi <= 0
        for cell in (failing.sum(dim=1) <= most).nonzero()[:, 0].tolist():
            while self.k[cell] < self._limit(cell) and self._conclude(cell, failing[cell], most):
                self.k[cell] += 1
                grown = True
        return grown

    def _limit(self, cell: int) -> int:
        return min(*self.A.shape[1:], self.q[cell])

    def _conclude(self, cell: int, failing: torch.Tensor, most: float) -> bool:
        """In float64: does the cell's point, without its failing columns, prove rank k + 1?"""
        m = self.A.shape[1]
        for _ in range(DROP_ROUNDS):
            T = self.T[cell, :, : self.q[cell]].double().clone()
            T[failing] = 0.0
            p = self.logits[cell, ~failing].double().softmax(dim=1)
            p[:, m:] *= ~failing
            p = p / p.sum(dim=1, keepdim=True)
            X = torch.cat([self.exact[cell] @ T, T])
            eigenvalues = torch.linalg.eigvalsh(_forms(p[None], X[None], T[None, ~failing])[0])
            phi = eigenvalues[:, : self.q[cell] - self.k[cell]].sum(dim=1)
            weak = phi <= SLACK * T.square().sum(dim=1).max()
            if not bool(weak.any()):
                self.best[cell] = (self.k[cell] + 1, T, p)
                return True
            failing = failing.clone()
            failing[(~failing).nonzero()[weak, 0]] = True
            if int(failing.sum()) > most:
                break
        return False

    def _widen(self) -> bool:
        """Give cells whose k has come close to q more columns, small ones; True if T changed."""
        n = self.A.shape[2]
        wanted = [
            max(q, _columns(k, n)) if q - k < 3 else q for q, k in zip(self.q, self.k, strict=True)
        ]
        if wanted == self.q:
            return False
        wide = torch.zeros(*self.T.shape[:2], max(*wanted, self.T.shape[2])).to(self.T)
        wide[:, :, : self.T.shape[2]] = self.T
        for cell, (old, new) in enumerate(zip(self.q, wanted, strict=True)):
            noise = torch.randn(
                n, new - old, generator=self.generator, device=self.generator.device
            )
            wide[cell, :, old:new] = 0.1 / n**0.5 * noise.to(wide)
        self.T, self.q = wide, wanted
        return True


def _forms(p: torch.Tensor, X: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """H_j (b, s, q, q) = X^T diag(p^j) X - own_j^T own_j; X (b, m + n, q), own (b, s, q)."""
    b, rows, q = X.shape
    pairs = (X[..., :, None] * X[..., None, :]).reshape(b, rows, q * q)
    H = (p @ pairs).reshape(b, -1, q, q)
    return H - own[..., :, None] * own[..., None, :]
