"""Rows of a matrix that are far from each other's span in l1: where searches begin."""

from __future__ import annotations

import torch

NOISE = 0.2  # most, on the logarithm of the distance by which a start takes its rows
REWEIGHTINGS = 6  # of the least squares that stand for a least l1 distance


def distant_rows(A: torch.Tensor, p: int, starts: int, generator: torch.Generator) -> torch.Tensor:
    """Indices (b, starts, p), each of the row farthest in l1 from the span of those before it.

    The distance counts up to noise: none at the first start, up to `NOISE` at the last.
    """
    b, m, _ = A.shape
    noise = torch.linspace(0, NOISE, starts, device=A.device)[None, :, None]
    distance = A.abs().sum(dim=2)[:, None].expand(b, starts, m)
    chosen = torch.empty(b, starts, 0, dtype=torch.long, device=A.device)
    for _ in range(p):
        draw = torch.rand(b, starts, m, generator=generator, device=generator.device).to(A)
        gumbel = -(-draw.clamp(1e-6, 1 - 1e-6).log()).log()
        score = distance.clamp_min(1e-12).log() + noise * gumbel
        score.scatter_(2, chosen, -torch.inf)
        chosen = torch.cat([chosen, score.argmax(dim=2, keepdim=True)], dim=2)
        if chosen.shape[2] < p:
            distance = torch.stack([_distances(A[c], A[c][chosen[c]]) for c in range(b)])
    return chosen


def _distances(A: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """About the least l1 distances (s, m) of rows of A (m, n) from the spans of basis (s, r, n)."""
    s, r, n = basis.shape
    weight = torch.ones(s, len(A), n, dtype=A.dtype, device=A.device)
    identity = torch.eye(r, dtype=A.dtype, device=A.device)
    products = (basis[:, :, None] * basis[:, None]).reshape(s, r * r, n)
    for _ in range(REWEIGHTINGS):
        gram = (weight @ products.mT).view(s, len(A), r, r)
        ridge = (1e-6 * gram.diagonal(dim1=2, dim2=3).mean(dim=2)).clamp_min(1e-30)
        gram = gram + ridge[..., None, None] * identity
        moment = (weight * A) @ basis.mT
        residual = (A - torch.linalg.solve(gram, moment) @ basis).abs()
        weight = 1 / (residual + 1e-3 * residual.mean(dim=2, keepdim=True) + 1e-12)
    return residual.sum(dim=2)
