"""Fantope-Bernstein witnesses (MATH 5.4) in floating point, with v = 0: v has not paid so far.

For column j let G_j = T^T A^T diag(w^j) A T / eps^2, sum w^j = 1, and s_j the largest s for which
the q - k smallest eigenvalues of G_j - s T_j^T T_j have a sum >= 0. The claim k + 1 holds when
every s_j > 1. Unlike the sums at s = 1 the s_j do not change with the scale of T, so that an ascent
does not end in a T that collapses. The sum is the least tr(P H_j) over projectors P of rank q - k:
s_j <= tr(P G_j) / T_j P T_j^T, with equality at the minimiser. So the projector at the last s gives
the next s (Dinkelbach's method) and the gradients by T and by w^j.

Adam ascends the soft minimum of the log s_j over T, and each log s_j over its own w^j. Where few
columns fail, their rows of T are set to zero and leave the claim. On success k grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from softrank_exact.witness import FloatFantope, FloatHS

from .hilbert_schmidt import normalised, working_dtype
from .types import Proposal

RATES = (0.1, 0.01)  # of the logits of w and of T
SHARPNESS = 30.0  # of the soft minimum
LEAST_RATIO, LARGEST_RATIO = 0.05, 3.0  # within which s_j is followed
BARRIER = 1e-3  # on the mean log of the q - k smallest eigenvalues of T^T T: T keeps its rank
NEVER = -1e4  # logit of a weight that is zero
SLACK = 1e-5  # least phi_j / max |T_l|^2 that counts as success: rounding to integers costs some
DROP_EVERY, DROP_ROUNDS = 10, 3
DROP_SHARE = 0.25  # of the columns
CHUNK = 4_000_000  # entries of the H_j handled at once
ALIKE = 1.3  # most, ratio of the q of cells handled at once: all are padded to the largest


def fantope(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best Fantope proposal of each cell (interface: `types.Searcher`).

    Begins at a `FloatFantope` or `FloatHS` start and aims above its rank; a cell with neither, or
    whose rank does not grow, keeps its start if that is of this kind, else None.
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
    """Where one cell begins: T (n, q), logits (n, m) of the w^j, the k that it aims at."""

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
        _point(cell, A[cell], proposal.rank, proposal.witness)
        for cell, proposal in enumerate(start)
        if proposal is not None
        and proposal.rank < limit
        and isinstance(proposal.witness, FloatHS | FloatFantope)
    ]
    points.sort(key=lambda point: point.T.shape[1])
    chunk: list[_Point] = []
    for point in points:
        q = point.T.shape[1]
        padded = bool(chunk) and q > ALIKE * chunk[0].T.shape[1]
        if padded or (chunk and (len(chunk) + 1) * A.shape[2] * q**2 > CHUNK):
            yield chunk
            chunk = []
        chunk.append(point)
    if chunk:
        yield chunk


def _point(cell: int, A: torch.Tensor, rank: int, witness: FloatHS | FloatFantope) -> _Point:
    n = A.shape[1]
    T = torch.from_numpy(witness.T).to(A)
    logits = torch.from_numpy(witness.w).to(A).log().clamp_min(NEVER)
    if isinstance(witness, FloatHS):
        q = min(T.shape[1], int(1.4 * rank) + 6)
        M = (logits / 2).exp()[:, None] * (A @ T)
        T = T @ torch.linalg.eigh(M.mT @ M).eigenvectors[:, -q:]
        logits = logits.expand(n, -1)
    else:
        kept = (T != 0).any(dim=1)
        known, logits = logits, logits.mean(dim=0).expand(n, -1).clone()
        logits[kept] = known
    return _Point(cell, rank, T, logits)


class _Ascent:
    """The state of one chunk: T (b, n, q) padded with zero columns, logits (b, n, m), s (b, n)."""

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
        self.s = torch.ones(A.shape[::2], dtype=dtype, device=A.device)
        self.best: list[tuple[int, torch.Tensor, torch.Tensor] | None] = [None] * len(points)
        self._widen()

    def run(self, steps: int) -> None:
        adam = self._adam()
        for step in range(steps):
            for group, rate in zip(adam.param_groups, RATES, strict=True):
                group["lr"] = rate * (1 - 0.9 * step / steps)
            self._set_gradients()
            if self._raise_targets(dropping=step % DROP_EVERY == 0) and self._widen():
                adam = self._adam()
                self._set_gradients()
            adam.step()

    def proposals(self) -> list[Proposal | None]:
        found: list[Proposal | None] = []
        for best in self.best:
            if best is None:
                found.append(None)
                continue
            rank, T, w = best
            v = torch.zeros(len(w), len(T), dtype=w.dtype)
            witness = FloatFantope(rank, T.cpu().numpy(), w.cpu().numpy(), v.numpy())
            found.append(Proposal("lower", rank, witness))
        return found

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam([{"params": [self.logits]}, {"params": [self.T]}])

    def _set_gradients(self) -> None:
        """One Dinkelbach step of every s_j; gradients of log s_j and of their soft minimum."""
        b, m, n = self.A.shape
        T, q = self.T, self.T.shape[2]
        w = self.logits.softmax(dim=2)
        image = self.A @ T
        H = _forms(w, image, T, self.s)
        size = max(q - k for q, k in zip(self.q, self.k, strict=True))
        active = self._active(size)
        U = torch.linalg.eigh(self._padded(H)).eigenvectors[:, :, :, :size]
        own = (T[:, :, None, :] @ U)[:, :, 0] * active[:, None, :]  # (b, n, size)
        U = (U * active[:, None, None, :]).permute(0, 2, 1, 3).reshape(b, q, n * size)
        projected = (image @ U).view(b, m, n, size)
        energy = projected.square().sum(dim=3).mT  # A_i K_j A_i^T / eps^2, (b, n, m)
        tiny = torch.finfo(T.dtype).tiny
        gain = (w * energy).sum(dim=2).clamp_min(tiny)
        cost = own.square().sum(dim=2).clamp_min(tiny)  # (K_j)_jj
        self.s = (gain / cost).clamp(LEAST_RATIO, LARGEST_RATIO)
        self.logits.grad = w * (1.0 - energy / gain[:, :, None])
        c = (-SHARPNESS * self.s.log()).softmax(dim=1)
        share = w * (c / gain)[:, :, None]
        slope = (projected * share.mT[..., None]).reshape(b, m, n * size) @ U.mT
        slope = self.A.mT @ slope + self._barrier_slope(active)
        U = U.view(b, q, n, size)
        slope -= torch.einsum("bjd,bqjd->bjq", own * (c / cost)[:, :, None], U)
        self.T.grad = -2.0 * slope * self._real_columns()[:, None, :]

    def _barrier_slope(self, active: torch.Tensor) -> torch.Tensor:
        size = active.shape[1]
        gram = self._padded((self.T.mT @ self.T)[:, None])[:, 0]
        eigenvalues, vectors = torch.linalg.eigh(gram)
        share = active / active.sum(dim=1, keepdim=True) / eigenvalues[:, :size].clamp_min(1e-9)
        R = vectors[:, :, :size]
        return BARRIER * (self.T @ (R * share[:, None, :])) @ R.mT

    def _active(self, size: int) -> torch.Tensor:
        """1 for the q - k smallest eigenvalues of each cell, (b, size)."""
        counts = [[q - k] for q, k in zip(self.q, self.k, strict=True)]
        index = torch.arange(size, device=self.T.device)
        return (index < torch.tensor(counts, device=self.T.device)).to(self.T)

    def _real_columns(self) -> torch.Tensor:
        index = torch.arange(self.T.shape[2], device=self.T.device)
        return (index < torch.tensor(self.q, device=self.T.device)[:, None]).to(self.T)

    def _padded(self, H: torch.Tensor) -> torch.Tensor:
        """H (b, s, q, q) with the padding's eigenvalues above all others."""
        padding = 1.0 - self._real_columns()
        height = 1.0 + H.abs().sum(dim=3).amax(dim=(1, 2))
        return H + torch.diag_embed(padding * height[:, None])[:, None]

    def _raise_targets(self, dropping: bool) -> bool:
        """Try to conclude every cell, dropping columns that fail; True if some k has grown."""
        grown = False
        most = DROP_SHARE * self.s.shape[1] if dropping else 0
        failing = self.s <= 1.0
        for cell in (failing.sum(dim=1) <= most).nonzero()[:, 0].tolist():
            while self.k[cell] < self._limit(cell) and self._conclude(cell, failing[cell], most):
                self.k[cell] += 1
                grown = True
        return grown

    def _limit(self, cell: int) -> int:
        """k stays below q and below both sides of A."""
        return min(*self.A.shape[1:], self.q[cell]) - 1

    def _conclude(self, cell: int, failing: torch.Tensor, most: float) -> bool:
        """In float64: does the cell's point, without its failing columns, prove rank k + 1?"""
        for _ in range(DROP_ROUNDS):
            T = self.T[cell, :, : self.q[cell]].double().clone()
            T[failing] = 0.0
            w = self.logits[cell, ~failing].double().softmax(dim=1)
            own = T[~failing]
            ones = torch.ones(1, len(own), dtype=T.dtype, device=T.device)
            H = _forms(w[None], (self.exact[cell] @ T)[None], own[None], ones)[0]
            phi = torch.linalg.eigvalsh(H)[:, : self.q[cell] - self.k[cell]].sum(dim=1)
            weak = ~(phi > SLACK * T.square().sum(dim=1).max())
            if len(own) and not bool(weak.any()):
                self.best[cell] = (self.k[cell] + 1, T, w)
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
            max(q, min(n, int(1.25 * k) + 5)) if q < 1.12 * k + 3 else q
            for q, k in zip(self.q, self.k, strict=True)
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


def _forms(
    w: torch.Tensor, image: torch.Tensor, own: torch.Tensor, s: torch.Tensor
) -> torch.Tensor:
    """image^T diag(w^j) image - s_j own_j^T own_j, (b, n, q, q); w (b, n, m), image (b, m, q)."""
    b, m, q = image.shape
    pairs = (image[..., :, None] * image[..., None, :]).reshape(b, m, q * q)
    G = (w @ pairs).reshape(b, -1, q, q)
    return G - own[..., :, None] * (own * s[..., None])[..., None, :]
