"""Spends a budget of steps over many cells: who searches what, from where, in which order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from softrank_exact.witness import FloatFactor, FloatFantope, FloatHS

from .bernstein import bernstein
from .cell import Cell
from .columns import chosen_columns, lifted, restricted
from .factors import factors
from .fantope import fantope
from .hilbert_schmidt import hilbert_schmidt
from .restarts import restarts
from .shattering import shattering
from .special import offer_known
from .types import Proposal, Searcher

CPU_ENTRIES = 1 << 18  # entries of A in one batch: more do not fit the cache
DEVICE_ENTRIES = 1 << 23
CPU_RATIO, CPU_RANK = 2, 16  # of ranks in one batch, and below which any go: buffers are padded
FULL_ENTRIES = 1 << 18  # up to this size of A every step is taken; beyond, fewer in proportion
PROBE = 25  # steps that show what a step costs

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


def _up_to(rank: int) -> Callable[[Cell], bool]:
    """Where Fantope or shattering witnesses may beat the others at a price worth paying."""
    return lambda cell: cell.lower.rank <= rank


def _cold(cell: Cell) -> Proposal | None:
    return None


def _factors(cell: Cell) -> Proposal | None:
    return cell.best(FloatFactor)


def _spectral(cell: Cell) -> Proposal | None:
    return cell.best(FloatFantope, FloatHS)


def _above(ratio: float) -> Callable[[Cell], Proposal | None]:
    """The best spectral witness, to aim at this multiple of the rank proven so far."""

    def start(cell: Cell) -> Proposal | None:
        witness = _spectral(cell)
        proven = cell.lower.rank
        room = min(cell.A.shape) - proven
        step = max(1, round(min((ratio - 1) * proven, room / 2)))
        return witness and replace(witness, rank=proven + min(step, room))

    return start


_next = _above(1.0)  # one more than proven


def _lower_upper(cell: Cell) -> Proposal | None:
    """The best spectral witness, to try factors of one rank less than proven so far."""
    witness = _spectral(cell)
    return witness and replace(witness, rank=cell.upper.rank - 1)


FAST = (
    Stage(hilbert_schmidt, _cold, 150, _any),
    Stage(factors, _cold, 800, _any),
    Stage(factors, _factors, 7000, _any),
    Stage(bernstein, _above(1.25), 1000, _high),
    Stage(fantope, _spectral, 150, _up_to(45)),
    Stage(bernstein, _above(1.05), 1500, _high),
    Stage(shattering, _next, 600, _up_to(7)),
)
THOROUGH = (
    Stage(hilbert_schmidt, _cold, 300, _any),
    Stage(factors, _cold, 800, _any),
    Stage(factors, _factors, 12000, _any),
    Stage(bernstein, _above(1.25), 1000, _high),
    Stage(fantope, _spectral, 300, _up_to(70)),
    Stage(bernstein, _above(1.05), 3000, _high),
    Stage(bernstein, _above(1.03), 5000, _high),
    Stage(fantope, _spectral, 500, _up_to(45)),
    Stage(factors, _factors, 20000, _any),
    Stage(bernstein, _above(1.05), 8000, _high),
    Stage(restarts, _lower_upper, 3000, _up_to(30)),
    Stage(shattering, _next, 1500, _up_to(11)),
    Stage(factors, _factors, 20000, _any),
    Stage(shattering, _next, 4000, _up_to(11)),
)
AGAIN = (
    Stage(factors, _factors, 3000, _any),
    Stage(bernstein, _above(1.06), 3000, _high),
    Stage(fantope, _spectral, 200, _up_to(70)),
    Stage(shattering, _next, 2000, _up_to(11)),
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
    clock = _Clock(seconds)
    generator = torch.Generator().manual_seed(seed)
    for cell in cells:
        offer_known(cell)
        observe(cell)
    for stage in _stages(effort, repeat=seconds is not None):
        active = [cell for cell in cells if not cell.closed and cell.epsilon > 0]
        if not active:
            return
        for batch in _batches([cell for cell in active if stage.suits(cell)], device):
            for steps in clock.portions(stage, batch):
                proposals = _propose(stage, batch, steps, device, generator)
                for cell, proposal in zip(batch, proposals, strict=True):
                    cell.offer(proposal)
                    observe(cell)
        if clock.over:
            return


class _Clock:
    """How many steps to take: those of the plan, or as many as the time left allows."""

    def __init__(self, seconds: float | None) -> None:
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.costs: dict[tuple[Searcher, int], float] = {}  # seconds a step, by entries of a batch

    @property
    def over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def portions(self, stage: Stage, batch: list[Cell]) -> Iterator[int]:
        """Step counts to run the stage with, one after the other."""
        entries = batch[0].A.size
        steps = max(PROBE, round(stage.steps * min(1.0, FULL_ENTRIES / entries)))
        if self.deadline is None:
            yield steps
            return
        key = stage.searcher, entries * len(batch)
        if key not in self.costs and not self.over:
            started = time.monotonic()
            yield PROBE
            self.costs[key] = (time.monotonic() - started) / PROBE
        affordable = int((self.deadline - time.monotonic()) / self.costs.get(key, math.inf))
        if affordable > PROBE:
            yield min(steps, affordable)


def _stages(effort: str, repeat: bool) -> Iterator[Stage]:
    yield from PLANS[effort]
    while repeat:
        yield from AGAIN


def _batches(cells: list[Cell], device: torch.device) -> Iterator[list[Cell]]:
    """Cells of one shape and of like ranks, as many as the device works on well at once."""
    on_cpu = device.type == "cpu"
    entries = CPU_ENTRIES if on_cpu else DEVICE_ENTRIES
    cells = sorted(cells, key=lambda cell: (cell.A.shape, cell.upper.rank, cell.lower.rank))
    batch: list[Cell] = []
    for cell in cells:
        full = (len(batch) + 1) * cell.A.size > entries
        least = batch[0].upper.rank if batch else cell.upper.rank
        unlike = on_cpu and cell.upper.rank > max(CPU_RATIO * least, CPU_RANK)
        if batch and (full or unlike or cell.A.shape != batch[0].A.shape):
            yield batch
            batch = []
        batch.append(cell)
    if batch:
        yield batch


def _propose(
    stage: Stage, batch: list[Cell], steps: int, device: torch.device, generator: torch.Generator
) -> list[Proposal | None]:
    start = [stage.start(cell) for cell in batch]
    matrices = [cell.A for cell in batch]
    columns = [np.arange(A.shape[1]) for A in matrices]
    if stage.searcher not in (factors, restarts):
        columns = [chosen_columns(A) for A in matrices]
        start = [restricted(*pair) for pair in zip(start, columns, strict=True)]
    A = torch.from_numpy(np.stack([A[:, c] for A, c in zip(matrices, columns, strict=True)]))
    eps = torch.tensor([float(cell.epsilon) for cell in batch], dtype=A.dtype)
    found = stage.searcher(A.to(device), eps.to(device), start, steps, generator)
    return [
        proposal and lifted(proposal, c, A.shape[1])
        for proposal, c, A in zip(found, columns, matrices, strict=True)
    ]
