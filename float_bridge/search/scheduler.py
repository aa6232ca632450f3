"""Spends a budget of steps over many cells: who searches what, from where, in which order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from softrank_exact.witness import FloatFactor, FloatFantope, FloatHS

from .bernstein import bernstein
from .cell import Cell
from .factors import factors
from .fantope import fantope
from .hilbert_schmidt import hilbert_schmidt
from .special import offer_known
from .types import Proposal, Searcher

CPU_ENTRIES = 1 << 18  # entries of A in one batch: more do not fit the cache
DEVICE_ENTRIES = 1 << 23

Observer = Callable[[Cell], None]


@dataclass(frozen=True)
class Stage:
    """One searcher with its steps, what it starts from, and the cells that it is for."""

    searcher: Searcher
    start: Callable[[Cell], Proposal | None]
    steps: int
    suits: Callable[[Cell], bool]


def _any(cell: Cell) -> bool:
    return True


def _high(cell: Cell) -> bool:
    """Where Bernstein beats the spectral witnesses, or may: not at low ranks."""
    return cell.lower.rank >= 12


def _low(cell: Cell) -> bool:
    """Where Fantope witnesses beat Bernstein, or may: at low ranks, where they are cheap too."""
    return cell.lower.rank <= 45


def _cold(cell: Cell) -> Proposal | None:
    return None


def _factors(cell: Cell) -> Proposal | None:
    return cell.best(FloatFactor)


def _spectral(cell: Cell) -> Proposal | None:
    return cell.best(FloatFantope, FloatHS)


def _above(ratio: float) -> Callable[[Cell], Proposal | None]:
    """The Hilbert-Schmidt witness, to aim at this multiple of the rank proven so far."""

    def start(cell: Cell) -> Proposal | None:
        witness = cell.best(FloatHS)
        proven = cell.lower.rank
        room = min(cell.A.shape) - proven
        step = max(1, round(min((ratio - 1) * proven, room / 2)))
        return witness and replace(witness, rank=proven + min(step, room))

    return start


FAST = (
    Stage(hilbert_schmidt, _cold, 150, _any),
    Stage(factors, _cold, 800, _any),
    Stage(factors, _factors, 1500, _any),
    Stage(bernstein, _above(1.25), 1000, _high),
    Stage(fantope, _spectral, 150, _low),
    Stage(bernstein, _above(1.08), 1500, _high),
    Stage(factors, _factors, 2500, _any),
)
THOROUGH = (
    Stage(hilbert_schmidt, _cold, 300, _any),
    Stage(factors, _cold, 800, _any),
    Stage(factors, _factors, 2000, _any),
    Stage(bernstein, _above(1.25), 1000, _high),
    Stage(fantope, _spectral, 400, _low),
    Stage(factors, _factors, 8000, _any),
    Stage(bernstein, _above(1.08), 2000, _high),
    Stage(bernstein, _above(1.04), 4000, _high),
    Stage(factors, _factors, 8000, _any),
    Stage(fantope, _spectral, 800, _low),
    Stage(bernstein, _above(1.08), 6000, _high),
    Stage(bernstein, _above(1.04), 8000, _high),
)
AGAIN = (
    Stage(factors, _factors, 3000, _any),
    Stage(bernstein, _above(1.06), 3000, _high),
    Stage(fantope, _spectral, 200, _low),
)
PLANS = {"fast": FAST, "thorough": THOROUGH}


def search(
    cells: Sequence[Cell],
    effort: str,
    device: torch.device,
    seed: int,
    seconds: float | None,
    observe: Observer,
) -> None:
    """Improve every cell in place; `observe` hears of each cell after a batch that held it.

    With `seconds`, goes through the plan and then on in rounds until that time is over or every
    cell is closed. `KeyboardInterrupt` passes through; what was proven before stays proven.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    generator = torch.Generator().manual_seed(seed)
    for cell in cells:
        offer_known(cell)
    for stage in _stages(effort, repeat=deadline is not None):
        active = [cell for cell in cells if not cell.closed and cell.epsilon > 0]
        if not active:
            return
        for batch in _batches([cell for cell in active if stage.suits(cell)], device):
            if deadline is not None and time.monotonic() > deadline:
                return
            proposals = _propose(stage, batch, device, generator)
            for cell, proposal in zip(batch, proposals, strict=True):
                cell.offer(proposal)
                observe(cell)


def _stages(effort: str, repeat: bool) -> Iterator[Stage]:
    yield from PLANS[effort]
    while repeat:
        yield from AGAIN


def _batches(cells: list[Cell], device: torch.device) -> Iterator[list[Cell]]:
    """Cells of one shape and of like ranks, as many as the device works on well at once."""
    entries = CPU_ENTRIES if device.type == "cpu" else DEVICE_ENTRIES
    cells = sorted(cells, key=lambda cell: (cell.A.shape, cell.upper.rank, cell.lower.rank))
    batch: list[Cell] = []
    for cell in cells:
        full = (len(batch) + 1) * cell.A.size > entries
        if batch and (full or cell.A.shape != batch[0].A.shape):
            yield batch
            batch = []
        batch.append(cell)
    if batch:
        yield batch


def _propose(
    stage: Stage, batch: list[Cell], device: torch.device, generator: torch.Generator
) -> list[Proposal | None]:
    A = torch.from_numpy(np.stack([cell.A for cell in batch])).to(device)
    eps = torch.tensor([float(cell.epsilon) for cell in batch], dtype=A.dtype, device=device)
    start = [stage.start(cell) for cell in batch]
    return stage.searcher(A, eps, start, stage.steps, generator)
