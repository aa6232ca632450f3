"""One optimiser for both ends: the least rank of X Y that leaves every row cheap.

A problem has a base M (r, c) and, for Bernstein witnesses, a dictionary D (g, c). Row i costs
||(M - G D - X Y)_i||_1 + ||G_i||_1 and passes if it costs less than one. The price of a solution is
the rank of X Y plus the number of rows that do not pass: a failing row is given up ("dropped").

* Upper end (MATH 4.1): M = A / eps, no dictionary; a dropped row is kept exactly (rank one more).
* Lower end (MATH 5.3): M = I, D = A / eps, G scaled by eps; dropping row j deletes column j too.

Adam with hand-written gradients on sum_i relu(cost_i - 0.98)^1.5, many problems in one batch. Each
slot of the batch runs its own sequence of attempts: cut the rank by a truncated SVD of X Y and
descend; on success cut again, otherwise cut less; after a failed cut by one take more time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

TARGET = 0.98  # cost that the loss asks of every row
PASS = 1 - 2e-4  # cost below which a row is believed to pass after rounding
OBSERVE = 25  # steps between two looks at the costs
JOLT = 0.02  # relative noise on the factors after a failed cut by one
SPREAD = 3.0  # after a failed cut by one the rate is drawn within this factor either way


@dataclass(frozen=True)
class Recipe:
    """How to descend. `rate`: of the typical size of the factors' entries, falls by a cosine.

    `attempt`, `patience`: steps of an attempt, of one after a failed cut by one.
    """

    rate: float
    betas: tuple[float, float]
    attempt: int
    patience: int


@dataclass(frozen=True)
class Factors:
    """One solution: G (r, g), X (r, k), Y (k, c), and which rows are dropped or fail (r,)."""

    G: torch.Tensor
    X: torch.Tensor
    Y: torch.Tensor
    dropped: torch.Tensor
    failing: torch.Tensor

    @property
    def rank(self) -> int:
        return int(self.X.shape[1])

    @property
    def price(self) -> int:
        return self.rank + int(self.dropped.sum()) + int(self.failing.sum())

    def settled(self) -> Factors:
        """The same price with the failing rows dropped."""
        return replace(
            self, dropped=self.dropped | self.failing, failing=torch.zeros_like(self.failing)
        )


def begin(G: torch.Tensor, X: torch.Tensor, Y: torch.Tensor, solved: bool) -> Factors:
    """A start with nothing dropped; unless it is a solution, every row counts as failing."""
    nothing = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    return Factors(G, X, Y, nothing, nothing if solved else ~nothing)


def truncated(X: torch.Tensor, Y: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Balanced factors of the best Frobenius approximation of X Y of the given rank."""
    left, upper = torch.linalg.qr(X.double())
    right, lower = torch.linalg.qr(Y.double().mT)
    U, sigma, Vt = torch.linalg.svd(upper @ lower.mT)
    root = sigma[:rank].sqrt()
    return (
        ((left @ U[:, :rank]) * root).to(X),
        (root[:, None] * (Vt[:rank] @ right.mT)).to(X),
    )


class _Slot:
    """The sequence of attempts on one problem."""

    def __init__(self, start: Factors, cut: int, recipe: Recipe) -> None:
        self.best = start
        self.cut = cut
        self.recipe = recipe
        self.length = recipe.attempt
        self.failures = 0  # of cuts by one since the last success
        self.pace = 1.0  # of the current attempt, relative to the usual rate

    def observe(self, current: Factors) -> None:
        better = current.price < self.best.price
        cleaner = current.price == self.best.price and not current.failing.any()
        if better or (cleaner and bool(self.best.failing.any())):
            self.best = current

    def next_attempt(self, succeeded: bool, generator: torch.Generator) -> Factors:
        """Where the next attempt starts; call after every attempt."""
        if succeeded:
            self.failures = 0
            self.length = self.recipe.attempt
        elif self.cut > 1:
            self.cut = (self.cut + 1) // 2
        else:
            self.failures += 1
            self.length = self.recipe.patience
        source = self.best.settled() if self.failures % 2 == 0 else self.best
        X, Y = truncated(source.X, source.Y, max(source.rank - self.cut, 0))
        self.pace = 1.0
        if self.failures:
            X, Y = (_jolted(factor, generator) for factor in (X, Y))
            self.pace = SPREAD ** float(2 * torch.rand(1, generator=generator) - 1)
        return replace(source, X=X, Y=Y)


def _jolted(factor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(factor.shape, generator=generator, device=generator.device)
    return factor + JOLT * factor.square().mean().sqrt().nan_to_num() * noise.to(factor)


class Descent:
    """Batched descent; `base` [b, r, c], `dictionary` [b, g, c] (g may be 0), one start a slot.

    `cuts`: by how much each slot first reduces the rank. `paired`: rows and columns share their
    indices, so that a dropped row takes its column along.
    """

    def __init__(
        self,
        base: torch.Tensor,
        dictionary: torch.Tensor,
        starts: Sequence[Factors],
        cuts: Sequence[int],
        recipe: Recipe,
        generator: torch.Generator,
        paired: bool,
    ) -> None:
        self.base, self.dictionary, self.paired = base, dictionary, paired
        self.generator = generator
        self.atoms = dictionary.shape[1]
        self.betas = recipe.betas
        self.slots = [_Slot(*pair, recipe) for pair in zip(starts, cuts, strict=True)]
        self.M = base.clone()
        size = base.abs().sum(dim=2).amax(dim=1) / base.shape[2]
        self.usual = recipe.rate * size.sqrt()
        self.rate = self.usual.clone()
        self.age = torch.zeros_like(self.rate)
        self.length = torch.ones_like(self.rate)
        self.ranks = [start.rank for start in starts]
        self._allocate(max(self.ranks))
        self.dropped = torch.zeros(base.shape[:2], dtype=torch.bool, device=base.device)
        for slot, start in enumerate(starts):
            solved = not start.failing.any()
            first = self.slots[slot].next_attempt(True, generator) if solved else start
            self._load(slot, first)

    @property
    def best(self) -> list[Factors]:
        """The cheapest solution of each slot."""
        return [slot.best for slot in self.slots]

    def run(self, steps: int) -> None:
        """Take that many steps on every slot; may be called again to go on."""
        for step in range(steps):
            self._step()
            if step % OBSERVE == OBSERVE - 1 or step == steps - 1:
                self._observe()

    def _allocate(self, rank: int) -> None:
        b, r, c = self.base.shape
        self.left = self.base.new_zeros(b, r, self.atoms + rank)  # G | X
        self.right = self.base.new_zeros(b, self.atoms + rank, c)  # D over Y
        self.right[:, : self.atoms] = self.dictionary
        self.Y = self.right[:, self.atoms :]
        self.moments = [torch.zeros_like(self.left) for _ in range(2)]
        self.moments += [torch.zeros_like(self.Y) for _ in range(2)]
        self.slope_left, self.slope_Y = torch.empty_like(self.left), torch.empty_like(self.Y)

    def _resize(self, rank: int) -> None:
        """Buffers for another largest rank: steps cost in proportion to it."""
        left, right, moments = self.left, self.right, self.moments
        self._allocate(rank)
        width = min(left.shape[2], self.left.shape[2])
        self.left[:, :, :width] = left[:, :, :width]
        self.right[:, :width] = right[:, :width]
        for new, old in zip(self.moments[:2], moments[:2], strict=True):
            new[:, :, :width] = old[:, :, :width]
        for new, old in zip(self.moments[2:], moments[2:], strict=True):
            new[:, : width - self.atoms] = old[:, : width - self.atoms]

    def _load(self, slot: int, factors: Factors) -> None:
        g, k = self.atoms, factors.rank
        if k > self.Y.shape[1]:
            self._resize(k)
        kept = ~factors.dropped
        columns = kept if self.paired else torch.ones_like(self.base[slot, 0], dtype=torch.bool)
        self.M[slot] = self.base[slot] * kept[:, None] * columns
        self.right[slot] = 0.0
        self.right[slot, :g] = self.dictionary[slot] * columns
        self.right[slot, g : g + k] = factors.Y * columns
        self.left[slot] = 0.0
        self.left[slot, :, :g] = factors.G * kept[:, None]
        self.left[slot, :, g : g + k] = factors.X * kept[:, None]
        for moment in self.moments:
            moment[slot] = 0.0
        self.dropped[slot] = factors.dropped
        self.ranks[slot] = k
        self.age[slot] = 0.0
        self.length[slot] = float(self.slots[slot].length)
        self.rate[slot] = self.usual[slot] * self.slots[slot].pace

    def _costs(self) -> torch.Tensor:
        """Cost of each row [b, r]; leaves the residual in `self.residual`."""
        self.residual = torch.baddbmm(self.M, self.left, self.right, alpha=-1)
        costs = self.residual.abs().sum(dim=2)
        if self.atoms:
            costs += self.left[:, :, : self.atoms].abs().sum(dim=2)
        return costs

    def _step(self) -> None:
        pull = (self._costs() - TARGET).clamp_(min=0).sqrt_()[:, :, None]
        signs = self.residual.sign_().mul_(pull)
        torch.bmm(signs, self.right.mT, out=self.slope_left)
        if self.atoms:
            self.slope_left[:, :, : self.atoms] -= torch.sign(self.left[:, :, : self.atoms]) * pull
        torch.bmm(self.left[:, :, self.atoms :].mT, signs, out=self.slope_Y)
        self.age += 1
        rate = self.rate * 0.5 * (1 + torch.cos(math.pi * (self.age / self.length).clamp(max=1)))
        rate = (rate / (1 - self.betas[0] ** self.age))[:, None, None]
        correction = (1 - self.betas[1] ** self.age).rsqrt()[:, None, None]
        mean_left, square_left, mean_Y, square_Y = self.moments
        _adam(self.left, self.slope_left, mean_left, square_left, self.betas, rate, correction)
        _adam(self.Y, self.slope_Y, mean_Y, square_Y, self.betas, rate, correction)

    def _observe(self) -> None:
        failing = self._costs() >= PASS
        counts = failing.sum(dim=1).tolist()
        finished = (self.age >= self.length).tolist()
        for i, slot in enumerate(self.slots):
            price = self.ranks[i] + int(self.dropped[i].sum()) + counts[i]
            if price <= slot.best.price:
                slot.observe(self._current(i, failing[i]))
            if not counts[i] or finished[i]:
                self._load(i, slot.next_attempt(not counts[i], self.generator))
        if max(self.ranks) < 0.85 * self.Y.shape[1]:
            self._resize(max(self.ranks))

    def _current(self, slot: int, failing: torch.Tensor) -> Factors:
        g, k = self.atoms, self.ranks[slot]
        left = self.left[slot]
        return Factors(
            left[:, :g].clone(),
            left[:, g : g + k].clone(),
            self.Y[slot, :k].clone(),
            self.dropped[slot].clone(),
            failing.clone(),
        )


def _adam(
    values: torch.Tensor,
    descent: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    betas: tuple[float, float],
    rate: torch.Tensor,
    correction: torch.Tensor,
) -> None:
    """One step along `descent` (the negative gradient, overwritten), all in place."""
    mean.lerp_(descent, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(descent, descent, value=1 - betas[1])
    torch.sqrt(square, out=descent)
    descent.mul_(correction).add_(torch.finfo(values.dtype).tiny ** 0.5)
    torch.div(mean, descent, out=descent)
    values.addcmul_(descent, rate)
