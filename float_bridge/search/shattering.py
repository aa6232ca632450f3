"""Shattering witnesses (theory 5.8), one block: averaged queries driven to every pattern of signs.

Maximises, in floating point, the least of s_i (D A y_s)_i over rows of D of l1 norm one and values
y_s in [-1, 1]^n, from several starts a cell; the claim holds where it exceeds eps. Where the best
start falls short, edges of its facets are divided, those first on which failing facets lean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from softrank_exact.witness import FloatShattering

from .distances import distant_rows
from .types import Proposal, working_dtype

MOST = 12  # queries: the cost is 2^(MOST - 1) vectors of values a start
MARGIN = 1e-4  # relative, on eps: what rounding to integers may cost
STARTS = 32  # a cell, most; fewer where they would have more than `PATTERNS` together
PATTERNS = 1 << 13
KEPT = 4  # one of so many starts goes on to the end
CANDIDATES = 512  # rows that the starts choose from, at random beyond
SCOUTING = 0.3  # share of the steps that all starts take
ROUNDS, EDGES = 4, 4  # of dividing edges, with half the steps each; edges divided in one
FACETS = 1 << 10  # most, after dividing
SHARPNESS = (10.0, 30.0, 300.0)  # of the soft minimum, over eps: first, after scouting, last
RATE_D, RATE_Y, BETAS = 0.02, 0.05, (0.9, 0.99)
LAST = 0.03  # of the rates, at the end
CHECKS = 20  # steps between looks at whether a cell is done


def shattering(
    A: torch.Tensor,
    eps: torch.Tensor,
    start: Sequence[Proposal | None],
    steps: int,
    generator: torch.Generator,
) -> list[Proposal | None]:
    """Best shattering proposal of each cell (interface: `types.Searcher`).

    Fresh attempts of `steps` at the rank of the start, then at one more after each success, up to
    `MOST`; the witness of the start is not used, and a cell without one is left alone.
    """
    found: list[Proposal | None] = [None] * len(A)
    aims = {cell: p.rank for cell, p in enumerate(start) if p and p.rank <= min(MOST, *A.shape[1:])}
    while aims:
        p = min(aims.values())
        cells = [cell for cell, aim in aims.items() if aim == p]
        witnesses = _attempt(A[cells], eps[cells], p, steps, generator)
        for cell, witness in zip(cells, witnesses, strict=True):
            del aims[cell]
            if witness is not None:
                found[cell] = Proposal("lower", p, witness)
                if p < min(MOST, *A.shape[1:]):
                    aims[cell] = p + 1
    return found


def _pattern_signs(p: int, like: torch.Tensor) -> torch.Tensor:
    """Signs (p, 2^(p-1)) in the order of `FloatShattering`."""
    k = np.arange(1 << (p - 1))
    signs = 1 - 2 * ((k << 1) >> np.arange(p)[:, None] & 1)
    return torch.from_numpy(signs).to(like)


def _attempt(
    A: torch.Tensor, eps: torch.Tensor, p: int, steps: int, generator: torch.Generator
) -> list[FloatShattering | None]:
    """All starts of all cells for a share of the steps, then the best ones, then edges divided."""
    dtype = working_dtype(A, eps)
    norm = A.abs().sum(dim=2).amax(dim=1)
    norm = torch.where(norm > 0, norm, 1.0)
    A, target = (A / norm[:, None, None]).to(dtype), (eps / norm * (1 + MARGIN)).to(dtype)
    candidates = torch.randperm(A.shape[1], generator=generator)[:CANDIDATES].sort().values
    candidates = candidates.to(A.device)
    starts = min(STARTS, PATTERNS >> (p - 1))
    rows = candidates[distant_rows(A[:, candidates], p, starts, generator)]
    ascent = _Ascent(A, target, rows, generator)
    scouting = round(SCOUTING * steps)
    ascent.run(scouting, SHARPNESS[0], SHARPNESS[2])
    ascent.keep(-(-starts // KEPT))
    ascent.run(steps - scouting, SHARPNESS[1], SHARPNESS[2])
    for _ in range(ROUNDS):
        ascent.keep(1)
        if not ascent.divide():
            break
        ascent.run(steps // 2, SHARPNESS[1], SHARPNESS[2])
    return [ascent.found.get(cell) for cell in range(len(A))]


class _Ascent:
    """Adam on a soft minimum of the margins, for several starts of each open cell.

    Vertices v: U (b, s, v, m) is D unscaled. Facets f: Y (b, s, f, n), and signs (b, s, v, f), 0
    where a vertex is not in the facet; a facet of zeros only fills up the batch.
    """

    def __init__(
        self,
        A: torch.Tensor,
        target: torch.Tensor,
        rows: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        b, starts, p = rows.shape
        self.A, self.target, self.generator = A, target, generator
        self.cells = list(range(b))
        self.found: dict[int, FloatShattering] = {}
        self.edges: list[list[tuple[int, int]]] = [[] for _ in range(b)]
        self.signs = _pattern_signs(p, A).expand(b, starts, -1, -1)
        self.U = torch.nn.functional.one_hot(rows, A.shape[1]) + 1e-3 * self._noise(b, starts, p)
        images = self._images(self._unit())
        inverse = torch.linalg.pinv(images.double()).to(A)
        self.Y = 0.5 * (inverse @ self.signs).mT.sign()

    def run(self, steps: int, sharpness: float, last: float) -> None:
        """Stops early once every cell has a start that succeeds."""
        adam = torch.optim.Adam(
            [{"params": [self.U], "lr": RATE_D}, {"params": [self.Y], "lr": RATE_Y}], betas=BETAS
        )
        rates = RATE_D, RATE_Y
        for step in range(steps):
            if step % CHECKS == 0 and self._observe():
                return
            share = step / steps
            cosine = LAST + (1 - LAST) * 0.5 * (1 + np.cos(np.pi * share))
            for group, rate in zip(adam.param_groups, rates, strict=True):
                group["lr"] = rate * cosine
            self._set_gradients(sharpness * (last / sharpness) ** share)
            adam.step()
            self.Y.clamp_(-1.0, 1.0)
        self._observe()

    def keep(self, starts: int) -> None:
        """Go on with the best starts of each cell that has not succeeded."""
        still = [i for i, cell in enumerate(self.cells) if cell not in self.found]
        least = self._margins()[2].flatten(2).amin(dim=2)[still]
        order = least.topk(starts, dim=1).indices[:, :, None, None]
        self.cells, self.edges = [self.cells[i] for i in still], [self.edges[i] for i in still]
        self.A, self.target = self.A[still], self.target[still]
        self.U, self.Y, self.signs = (
            part[still].take_along_dim(order, dim=1) for part in (self.U, self.Y, self.signs)
        )

    def divide(self) -> bool:
        """Divide the heaviest edges, as many in each open cell's only start; False if none."""
        weights, D = (part[:, 0] for part in self._weights(SHARPNESS[2])[:2])
        edges = [_heaviest_edges(*pair) for pair in zip(weights, self.signs[:, 0], strict=True)]
        count = min(map(len, edges), default=0)
        if not count:
            return False
        spheres = []
        for i in range(len(self.cells)):
            U, Y, signs = D[i], self.Y[i, 0], self.signs[i, 0]
            for a, b, sign in edges[i][:count]:
                signs, parents = _divided(signs, a, b, sign)
                middle = U[a] + sign * U[b]
                U, Y = torch.vstack([U, middle / middle.abs().sum().clamp_min(1e-3)]), Y[parents]
                self.edges[i].append((a + 1, sign * (b + 1)))
            spheres.append((U, Y, signs))
        most = max(signs.shape[1] for _, _, signs in spheres)
        pad = torch.nn.functional.pad
        self.U = torch.stack([U for U, _, _ in spheres])[:, None]
        self.U += 1e-4 * self._noise(*self.U.shape[:3])
        self.Y = torch.stack([pad(Y, (0, 0, 0, most - len(Y))) for _, Y, _ in spheres])[:, None]
        self.signs = torch.stack([pad(s, (0, most - s.shape[1])) for _, _, s in spheres])[:, None]
        return True

    def _noise(self, *shape: int) -> torch.Tensor:
        """Of [0, 1), for every query."""
        full = *shape, self.A.shape[1]
        return torch.rand(full, generator=self.generator, device=self.generator.device).to(self.A)

    def _unit(self) -> torch.Tensor:
        return self.U / self.U.abs().sum(dim=3, keepdim=True)

    def _images(self, D: torch.Tensor) -> torch.Tensor:
        """D A (b, s, v, n) of D (b, s, v, m)."""
        return (D.flatten(1, 2) @ self.A).view(*D.shape[:3], self.A.shape[2])

    def _margins(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """D, D A and the margins (b, s, v, f), infinite where a vertex is not in a facet."""
        D = self._unit()
        images = self._images(D)
        margins = self.signs * (images @ self.Y.mT)
        return D, images, margins.masked_fill_(self.signs == 0, torch.inf)

    def _observe(self) -> bool:
        """Keep each cell's first success; True if all have one."""
        D, _, margins = self._margins()
        least, start = margins.flatten(2).amin(dim=2).max(dim=1)
        for i in (least > self.target).nonzero()[:, 0].tolist():
            if self.cells[i] not in self.found:
                s = int(start[i])
                facets = (self.signs[i, s] != 0).any(dim=0)
                queries, values = D[i, s], self.Y[i, s, facets]
                edges = np.array(self.edges[i], dtype=np.int64).reshape(-1, 2)
                self.found[self.cells[i]] = FloatShattering(
                    queries.double().cpu().numpy(),
                    np.array([len(queries) - len(edges)]),
                    values.double().cpu().numpy(),
                    edges,
                )
        return all(cell in self.found for cell in self.cells)

    def _weights(self, sharpness: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the soft minimum, for every margin, and D, D A."""
        D, images, margins = self._margins()
        scaled = -sharpness / self.target[:, None, None, None] * margins
        return scaled.flatten(2).softmax(dim=2).view_as(margins), D, images

    def _set_gradients(self, sharpness: float) -> None:
        weights, D, images = self._weights(sharpness)
        weights *= -self.signs
        self.Y.grad = weights.mT @ images
        slope = ((weights @ self.Y).flatten(1, 2) @ self.A.mT).view_as(D)
        radial = (slope * D).sum(dim=3, keepdim=True)
        self.U.grad = (slope - self.U.sign() * radial) / self.U.abs().sum(dim=3, keepdim=True)


def _heaviest_edges(weights: torch.Tensor, signs: torch.Tensor) -> list[tuple[int, int, int]]:
    """(a, b, sign): vertices on which the same failing facets lean most; both (v, f).

    In the optimum the weights of a facet are, up to a factor, the coordinates of its point nearest
    to zero. Fewer than `EDGES` where there would be too many facets.
    """
    shares = weights / weights.sum(dim=0).clamp_min(1e-30)
    both = weights @ shares.T, (weights * signs) @ (shares * signs).T
    scores = torch.stack([both[0] + both[1], both[0] - both[1]]).triu(diagonal=1)
    order = scores.flatten().argsort(descending=True, stable=True)[:EDGES].tolist()
    v = len(weights)
    edges, count = [], int((signs != 0).any(dim=0).sum())
    for k in order:
        a, b, sign = k // v % v, k % v, -1 if k >= v * v else 1
        count += int((signs[a] * signs[b] == sign).sum())
        if scores.flatten()[k] > 0 and count <= FACETS:
            edges.append((a, b, sign))
    return edges


def _divided(signs: torch.Tensor, a: int, b: int, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Signs (v + 1, g) with the edge divided, facets in the order of the format; their parents."""
    hit = signs[a] * signs[b] == sign
    parents = torch.arange(len(hit), device=signs.device).repeat_interleave(1 + hit.long())
    new = torch.vstack([signs, torch.where(hit, signs[a], 0.0)])[:, parents]
    second = torch.nn.functional.pad(parents[1:] == parents[:-1], (1, 0))
    new[a, hit[parents] & ~second] = 0.0
    new[b, second] = 0.0
    return new, parents
