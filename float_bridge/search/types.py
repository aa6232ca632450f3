"""What every searcher takes and gives: one interface for both ends of a bracket.

Shapes: `A` is [b, m, n] (b cells that share m and n), `eps` is [b], both on one device and of
one floating dtype. Float success is only a proposal: `softrank_exact.certify` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from softrank_exact.witness import FloatWitness

Side = Literal["lower", "upper"]


@dataclass(frozen=True)
class Proposal:
    """A float witness for `r_eps(A) <= rank` (upper) or `r_eps(A) >= rank` (lower)."""

    side: Side
    rank: int
    witness: FloatWitness


class Searcher(Protocol):
    """Improves one kind of witness for every cell of a batch at once.

    `start` holds one proposal (of this kind or, where the searcher can begin from it, of another
    kind of the same side) or None for each cell. `steps` counts optimiser steps for the batch;
    the same steps and generator seed give the same result on one machine. Returns, for each
    cell, the best proposal of this searcher's kind found so far (its start included), or None.
    """

    def __call__(
        self,
        A: torch.Tensor,
        eps: torch.Tensor,
        start: Sequence[Proposal | None],
        steps: int,
        generator: torch.Generator,
    ) -> list[Proposal | None]: ...


def working_dtype(A: torch.Tensor, eps: torch.Tensor) -> torch.dtype:
    """float32 where it resolves eps against the largest row of its cell, else float64."""
    norm = A.abs().sum(dim=2).amax(dim=1)
    return torch.float32 if bool((eps > 0.02 * norm).all()) else torch.float64
