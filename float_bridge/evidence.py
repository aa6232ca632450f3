"""What others have, as float witnesses for many cells at once, and the first pass over them.

The first pass judges a whole batch, in exact integers on a device or by the float64 analysis of
``classical``; both only ever prove. What it leaves undecided goes to the kernel, cell by cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch

from softrank_exact.scalars import float_above
from softrank_exact.witness import FloatBernstein, FloatFactor, FloatWitness, frobenius_tail

from . import classical
from .batch_targets import BatchTargets
from .device_check import Multiply, bernstein_found, factor_found, tail_found
from .products import DeviceLimbs

BITS = 20


@dataclass(frozen=True)
class Finding:
    """One cell: ``found`` against the claim's threshold for the rank that the evidence proves."""

    rank: int
    kind: str
    found: Fraction


class Evidence(Protocol):
    """Float witnesses of one kind for b cells, on one device."""

    def findings(
        self, targets: BatchTargets, eps: Fraction, multiply: Multiply
    ) -> list[Finding | None]:
        """In exact integers; None where nothing is found."""

    def float_findings(self, targets: BatchTargets, eps: Fraction) -> list[Finding | None]:
        """By the float64 analysis, never better than exact; all ``covered`` arrays."""

    def covered(self) -> bool:
        """Whether the analysis of ``classical`` covers the arrays."""

    def witness(self, cell: int, A: np.ndarray) -> FloatWitness:
        """The cell's witness for ``softrank_exact.certify``; A: (m, n) float64."""


@dataclass(frozen=True)
class FactorEvidence:
    """A is near X Y: X [b, m, k], Y [b, k, n]; zero columns of X do not count (MATH 4.1)."""

    X: torch.Tensor
    Y: torch.Tensor

    def findings(
        self, targets: BatchTargets, eps: Fraction, multiply: Multiply
    ) -> list[Finding | None]:
        X, Y, scales = _integer_product(self.X, self.Y)
        found = factor_found(multiply, DeviceLimbs.of(targets.N), targets.den, X, Y, scales)
        return [Finding(rank, "factor", f) for rank, f in zip(self.ranks, found, strict=True)]

    def float_findings(self, targets: BatchTargets, eps: Fraction) -> list[Finding | None]:
        found = classical.factor_error(_floats(targets), self.X, self.Y).tolist()
        return [
            Finding(rank, "factor", Fraction(f)) for rank, f in zip(self.ranks, found, strict=True)
        ]

    def covered(self) -> bool:
        return classical.covers(self.X, self.Y)

    @property
    def ranks(self) -> list[int]:
        ranks: list[int] = (self.X != 0).any(dim=-2).sum(dim=-1).tolist()
        return ranks

    def witness(self, cell: int, A: np.ndarray) -> FloatWitness:
        kept = (self.X[cell] != 0).any(dim=-2)
        return FloatFactor(_numpy(self.X[cell][:, kept]), _numpy(self.Y[cell][kept]))


@dataclass(frozen=True)
class BernsteinEvidence:
    """The identity is near G A up to X Y, all columns: G [b, n, m], X [b, n, k] (MATH 5.3)."""

    G: torch.Tensor
    X: torch.Tensor
    Y: torch.Tensor

    def findings(
        self, targets: BatchTargets, eps: Fraction, multiply: Multiply
    ) -> list[Finding | None]:
        shifts = _shifts(self.G)
        G = _integers(self.G, shifts)
        X, Y, scales = _integer_product(self.X, self.Y)
        hi = [eps + targets.alpha(i) for i in range(len(shifts))]
        found = bernstein_found(
            multiply,
            DeviceLimbs.of(targets.N),
            targets.den,
            hi,
            *(G, X, Y),
            [1 << shift for shift in shifts],
            scales,
        )
        return [Finding(rank, "bernstein", f) for rank, f in zip(self.ranks, found, strict=True)]

    def float_findings(self, targets: BatchTargets, eps: Fraction) -> list[Finding | None]:
        hi = [float_above(eps + targets.alpha(i)) for i in range(len(self.G))]
        found = classical.reconstruction_error(
            _floats(targets), self.G.new_tensor(hi), self.G, self.X, self.Y
        )
        return [
            Finding(rank, "bernstein", Fraction(f))
            for rank, f in zip(self.ranks, found.tolist(), strict=True)
        ]

    def covered(self) -> bool:
        return classical.covers(self.G, self.X, self.Y)

    @property
    def ranks(self) -> list[int]:
        used = (self.X != 0).any(dim=-2).sum(dim=-1)
        ranks: list[int] = (self.X.shape[-2] - used).tolist()
        return ranks

    def witness(self, cell: int, A: np.ndarray) -> FloatWitness:
        kept = (self.X[cell] != 0).any(dim=-2)
        X, Y = _numpy(self.X[cell][:, kept]), _numpy(self.Y[cell][kept])
        return FloatBernstein(np.arange(len(X)), _numpy(self.G[cell]), X, Y)


@dataclass(frozen=True)
class TailEvidence:
    """The Frobenius tail beyond ``ranks[i] - 1`` singular values of cell i (MATH 5.2)."""

    ranks: list[int]

    def findings(
        self, targets: BatchTargets, eps: Fraction, multiply: Multiply
    ) -> list[Finding | None]:
        values, N = _floats(targets), DeviceLimbs.of(targets.N)
        if values.shape[-1] > values.shape[-2]:
            values, N = values.mT, N.T
        basis = torch.round(classical.eigenvectors(values) * 2.0**BITS).to(torch.int64)
        tails = tail_found(
            multiply, N, DeviceLimbs.of(basis), 1 << BITS, [rank - 1 for rank in self.ranks]
        )
        unit = targets.N.shape[-2] * targets.den**2
        return [
            None if tail is None else Finding(rank, "hilbert-schmidt", tail / unit)
            for rank, tail in zip(self.ranks, tails, strict=True)
        ]

    def float_findings(self, targets: BatchTargets, eps: Fraction) -> list[Finding | None]:
        beyond = torch.tensor([rank - 1 for rank in self.ranks], device=targets.N.device)
        found = classical.frobenius_tail_ratio(_floats(targets), beyond).tolist()
        return [
            Finding(rank, "hilbert-schmidt", Fraction(f))
            for rank, f in zip(self.ranks, found, strict=True)
        ]

    def covered(self) -> bool:
        return True

    def witness(self, cell: int, A: np.ndarray) -> FloatWitness:
        return frobenius_tail(A, self.ranks[cell])


def upper_evidence(given: Mapping[str, torch.Tensor], ranks: list[int]) -> Evidence | None:
    """From factors X, Y; a reconstruction B; or a singular value decomposition U, S, Vh.

    B and the decomposition are cut to the claimed ``ranks``.
    """
    if "X" in given and "Y" in given:
        return FactorEvidence(given["X"], given["Y"])
    if "B" in given:
        U, S, Vh = torch.linalg.svd(given["B"], full_matrices=False)
        return FactorEvidence(*_cut(U, S, Vh, ranks))
    if "U" in given and "S" in given and "Vh" in given:
        k = given["S"].shape[-1]
        return FactorEvidence(
            *_cut(given["U"][..., :k], given["S"], given["Vh"][..., :k, :], ranks)
        )
    return None


def lower_evidence(
    given: Mapping[str, torch.Tensor], A: torch.Tensor, ranks: list[int]
) -> Evidence | None:
    """From a reconstruction of the identity G [b, n, m], or singular values S (their tail)."""
    if "G" in given:
        identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
        U, S, Vh = torch.linalg.svd(identity - given["G"] @ A)
        return BernsteinEvidence(given["G"], *_cut(U, S, Vh, [A.shape[-1] - r for r in ranks]))
    if "S" in given:
        return TailEvidence(ranks)
    return None


def _cut(
    U: torch.Tensor, S: torch.Tensor, Vh: torch.Tensor, ranks: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Balanced factors of U diag(S) Vh cut to each cell's rank; the columns beyond are zero."""
    most = max(ranks)
    kept = torch.arange(most, device=S.device) < torch.tensor(ranks, device=S.device)[:, None]
    root = torch.where(kept, S[..., :most].sqrt(), 0.0)
    return U[..., :most] * root[:, None, :], root[:, :, None] * Vh[..., :most, :]


def _floats(targets: BatchTargets) -> torch.Tensor:
    return targets.N.to(torch.float64) * 2.0**-targets.bits


def _integer_product(
    X: torch.Tensor, Y: torch.Tensor
) -> tuple[DeviceLimbs, DeviceLimbs, list[int]]:
    """Integers and one scale a cell with X Y near to X' Y' / scale, every term balanced."""
    x, y = X.abs().amax(dim=-2), Y.abs().amax(dim=-1)
    balance = torch.where((x > 0) & (y > 0), (y / x).sqrt(), 1.0)
    X, Y = X * balance[:, None, :], Y / balance[:, :, None]
    shifts = [min(pair) for pair in zip(_shifts(X), _shifts(Y), strict=True)]
    return _integers(X, shifts), _integers(Y, shifts), [1 << (2 * shift) for shift in shifts]


def _shifts(values: torch.Tensor) -> list[int]:
    """For each cell the largest s >= 0 with |values| 2^s <= 2^BITS."""
    largest = values.abs().reshape(len(values), -1).amax(dim=-1) if values.numel() else None
    if largest is None:
        return [BITS] * len(values)
    exponents: list[int] = torch.frexp(largest).exponent.tolist()
    return [min(max(BITS - e, 0), 2 * BITS) for e in exponents]


def _integers(values: torch.Tensor, shifts: list[int]) -> DeviceLimbs:
    factors = values.new_tensor([2.0**shift for shift in shifts])
    return DeviceLimbs.of(torch.round(values * factors[:, None, None]).to(torch.int64))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.to("cpu").numpy()
