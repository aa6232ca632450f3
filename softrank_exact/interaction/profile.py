"""The interaction profile: rank, residual and size of one retained interaction each (MATH 3.7).

A ``ProfilePoint`` is made from one retained T and computes its q, tau and kappa itself; no function
here takes a kappa and a tau, so those of different T cannot meet (MATH 9.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from flint import ctx

from .exact import PRECISION, Enclosure, ExactMatrix, ball, ball_enclosure
from .residual import Residual, enclosed_residual, residual, tau
from .size import Size, size
from .visible import Rank, VisibleInteraction

PROFILE_GAP = 1e-3
_BITS = 30


@dataclass(frozen=True)
class Retained:
    """T / unit, a rational matrix (m x n) of rank at most ``rank`` up to additive terms.

    ``factors``: exact X (m x rank), Y (n x rank) with T / unit = X Y^T, where they are known.
    """

    rank: int
    matrix: ExactMatrix
    factors: tuple[ExactMatrix, ExactMatrix] | None


@dataclass(frozen=True)
class ShapeScore:
    """(r/2) log(1 + kappa / (eps - tau)^2): the shape of the profile theorem, NOT a bound on any
    rank, since its constant C_r is unknown (MATH 3.7). Deliberately not a number."""

    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.lower:.4g} (shape score, not a bound: C_r is unknown)"


@dataclass(frozen=True)
class ProfilePoint:
    """The certified quantities of one retained interaction T of one attention matrix."""

    interaction: VisibleInteraction
    retained: Retained

    @property
    def rank(self) -> int:
        return self.retained.rank

    @cached_property
    def residual(self) -> Residual:
        """q((C - T) / unit) of the rational midpoint, with its proofs (MATH 3.4)."""
        return residual(self.interaction.logits - self.retained.matrix)

    @cached_property
    def q(self) -> Enclosure:
        """q(C - T), dimensionless (MATH 3.4)."""
        return enclosed_residual(self.residual, self.interaction)

    @cached_property
    def tau(self) -> Enclosure:
        """2 tanh(q/4): the l1 distance of rows at which softmax with interaction T meets A."""
        return tau(self.q)

    @cached_property
    def size(self) -> Size:
        """kappa(T) / unit with its proofs (MATH 3.6)."""
        return size(self.retained.matrix, self.retained.factors, PROFILE_GAP)

    @cached_property
    def kappa(self) -> Enclosure:
        """kappa(T), dimensionless (MATH 3.6)."""
        return self.interaction.unit * self.size.enclosure

    def shape_score(self, eps: Fraction) -> ShapeScore | None:
        """None unless tau < eps is certain, which the profile theorem needs (MATH 3.7)."""
        if not (self.tau.upper < eps):
            return None
        low = _score(self.rank, self.kappa.lower / (eps - self.tau.lower) ** 2)
        high = _score(self.rank, self.kappa.upper / (eps - self.tau.upper) ** 2)
        return ShapeScore(low.floats()[0], high.floats()[1])


def _score(rank: int, ratio: Fraction) -> Enclosure:
    with ctx.workprec(PRECISION):
        return ball_enclosure((1 + ball(ratio)).log() * rank / 2)


@dataclass(frozen=True)
class Profile:
    """rank C and the points T_r of the logit-SVD family, r = 0 .. rank (MATH 3.9)."""

    interaction: VisibleInteraction
    rank: Rank

    def point(self, r: int) -> ProfilePoint:
        """The point whose T_r is the rounded truncation of C to r singular values.

        T_0 = 0; at r = rank C, if that is known exactly, T_r is C itself. 0 <= r <= rank.upper.
        """
        if not (0 <= r <= self.rank.upper):
            raise ValueError(f"r = {r} lies outside 0..{self.rank.upper}")
        return ProfilePoint(self.interaction, self._retained(r))

    def points(self) -> Iterator[ProfilePoint]:
        return (self.point(r) for r in range(self.rank.upper + 1))

    def _retained(self, r: int) -> Retained:
        m, n = self.interaction.shape
        if r == 0:
            return Retained(0, ExactMatrix(np.zeros((m, n), dtype=object), 1), None)
        if r == self.rank.upper and self.rank.exact and self.interaction.exact:
            return Retained(r, self.interaction.logits, self.interaction.factors)
        X, Y = (side.columns(slice(r)) for side in self._factors)
        return Retained(r, X @ Y.T, (X, Y))

    @cached_property
    def _factors(self) -> tuple[ExactMatrix, ExactMatrix]:
        """Balanced singular factors of C / unit, rounded to 30 bits below their largest entry."""
        U, s, Vt = np.linalg.svd(self.interaction.centred().floats(), full_matrices=False)
        root = np.sqrt(s)
        bits = _BITS - int(np.frexp(root[0])[1])
        return ExactMatrix.rounded(U * root, bits), ExactMatrix.rounded(Vt.T * root, bits)


def profile(interaction: VisibleInteraction) -> Profile:
    """The profile of an attention matrix given by its visible interaction (MATH 3.7, 3.9)."""
    return Profile(interaction, interaction.rank())
