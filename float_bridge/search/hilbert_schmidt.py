"""Hilbert-Schmidt witnesses (MATH 5.2): weights w and T with unit rows that maximise, in floating
point, tail_k(diag(sqrt w) A T), the sum of the squares of all singular values but the k largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from softrank_exact.witness import FloatHS

from .types import Proposal

MARGIN = 2e-4  # relative, on eps: what rounding to integers may cost
FLOOR = 1e-7  # least tolerance, relative to the norm of A, at which floating point means anything
SQUARE_STEPS = 60  # of a cold search, with a square T: they find most of the rank
RATE = 0.1
NOISE = 0.01


def hilbert_schmidt(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best Hilbert-Schmidt proposal of each cell (interface: `types.Searcher`).

    A `FloatHS` start is continued, any other is ignored. A cold search begins with a square T and
    goes on with as many columns as the rank found by then calls for.
    """
    A, eps = normalised(A, eps)
    search = _Ascent(A, eps, start, generator)
    square = min(SQUARE_STEPS, steps) if search.columns == A.shape[2] else 0
    search.run(square)
    if steps > square:
        search.compress(generator)
        search.run(steps - square)
    return search.proposals()


def normalised(A: torch.Tensor, eps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A and eps over ||A||, which MATH 5.2, 5.4 do not see; float64, eps widened by the margin."""
    norm = A.double().abs().sum(dim=2).amax(dim=1)
    norm = torch.where(norm > 0, norm, 1.0)
    return A.double() / norm[:, None, None], (eps / norm * (1 + MARGIN)).clamp_min(FLOOR).double()


def working_dtype(eps: torch.Tensor) -> torch.dtype:
    """float32 where it resolves eps^2 against the norm one, else float64."""
    return torch.float32 if float(eps.min()) > 0.02 else torch.float64


def unit_rows(T: torch.Tensor) -> torch.Tensor:
    """Rows of T (..., n, q) of Euclidean norm one; zero rows stay zero."""
    return T / T.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(T.dtype).tiny)


def provable_rank(eigenvalues: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Largest rank k + 1 whose tail, all (ascending, (b, q)) eigenvalues but k, exceeds (b,)."""
    return (eigenvalues.cumsum(dim=1) > threshold[:, None]).sum(dim=1)


def lowest(eigenvalues: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Mask (b, q) of all ascending eigenvalues but the k (b,) largest, and at least one."""
    q = eigenvalues.shape[1]
    kept = (q - k).clamp_min(1)
    return torch.arange(q, device=k.device) < kept[:, None]


class _Ascent:
    """Adam on log tail_k over (softmax weights, unit rows), k = the rank that is proven so far."""

    def __init__(
        self,
        A: torch.Tensor,
        eps: torch.Tensor,
        start: Sequence[Proposal | None],
        generator: torch.Generator,
    ) -> None:
        dtype = working_dtype(eps)
        self.exact = A
        self.eps = eps
        self.A = A.to(dtype)
        w, T = _initial(A, start, generator)
        self.logits = w.log().clamp_min(-30.0).to(dtype)
        self.T = T.to(dtype)
        self.rank = torch.zeros(len(A), dtype=torch.long, device=A.device)
        self.best: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(A)

    @property
    def columns(self) -> int:
        return self.T.shape[2]

    def run(self, steps: int) -> None:
        adam = torch.optim.Adam([self.logits, self.T], lr=RATE)
        for step in range(steps):
            adam.param_groups[0]["lr"] = RATE * (1 - 0.8 * step / steps)
            self._set_gradients()
            adam.step()
        self._observe()

    def compress(self, generator: torch.Generator) -> None:
        """Turn T towards the top right singular vectors and drop the columns that carry little."""
        q = min(self.columns, int(1.5 * int(self.rank.max())) + 16)
        T = unit_rows(self.T)
        M = self.logits.softmax(dim=1).sqrt()[:, :, None] * (self.A @ T)
        basis = torch.linalg.eigh(M.mT @ M).eigenvectors[:, :, -q:]
        noise = torch.randn(*T.shape[:2], q, generator=generator, device=generator.device)
        self.T = T @ basis + NOISE / q**0.5 * noise.to(T)

    def proposals(self) -> list[Proposal | None]:
        found: list[Proposal | None] = []
        for cell, best in enumerate(self.best):
            if best is None:
                found.append(None)
                continue
            w, T = best[0].double().softmax(dim=0), unit_rows(best[1].double())
            M = w.sqrt()[:, None] * (self.exact[cell] @ T)
            tails = torch.linalg.eigvalsh(M.mT @ M)[None]
            rank = int(provable_rank(tails, self.eps[cell, None] ** 2))
            witness = FloatHS(rank, w.cpu().numpy(), T.cpu().numpy())
            found.append(Proposal("lower", rank, witness) if rank else None)
        return found

    def _observe(self) -> tuple[torch.Tensor, ...]:
        """Evaluate the current point, keep it where it proves more than any before."""
        w, T = self.logits.softmax(dim=1), unit_rows(self.T)
        image = self.A @ T
        M = w.sqrt()[:, :, None] * image
        eigenvalues, vectors = torch.linalg.eigh(M.mT @ M)
        rank = provable_rank(eigenvalues, (self.eps**2).to(eigenvalues))
        for cell in (rank > self.rank).nonzero()[:, 0].tolist():
            self.best[cell] = (self.logits[cell].clone(), self.T[cell].clone())
        self.rank = torch.maximum(self.rank, rank)
        return w, T, image, eigenvalues, vectors

    def _set_gradients(self) -> None:
        w, T, image, eigenvalues, vectors = self._observe()
        mask = lowest(eigenvalues, self.rank)
        tail = (eigenvalues * mask).sum(dim=1).clamp_min(torch.finfo(T.dtype).tiny)[:, None]
        residual = (image @ (vectors * mask[:, None, :])) @ vectors.mT
        share = (residual * image).sum(dim=2) / tail  # d log tail / d w
        self.logits.grad = -w * (share - 1.0)
        slope = self.A.mT @ (w[:, :, None] * residual) * (2.0 / tail[:, :, None])
        tangent = slope - (slope * T).sum(dim=2, keepdim=True) * T
        length = self.T.norm(dim=2, keepdim=True).clamp_min(torch.finfo(T.dtype).tiny)
        self.T.grad = -tangent / length


def _initial(
    A: torch.Tensor, start: Sequence[Proposal | None], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """w (b, m) and T (b, n, q): the start's where it is a `FloatHS`, else uniform and square."""
    b, m, n = A.shape
    warm = [p.witness if p and isinstance(p.witness, FloatHS) else None for p in start]
    q = max(n if witness is None else witness.T.shape[1] for witness in warm)
    w = torch.full((b, m), 1.0 / m, dtype=A.dtype, device=A.device)
    noise = torch.randn(b, n, q, generator=generator, device=generator.device)
    T = torch.eye(n, q, dtype=A.dtype, device=A.device) + NOISE * noise.to(A)
    for cell, witness in enumerate(warm):
        if witness is not None:
            w[cell] = torch.from_numpy(witness.w).to(A)
            T[cell] = 0.0
            T[cell, :, : witness.T.shape[1]] = torch.from_numpy(witness.T).to(A)
    return w, T
