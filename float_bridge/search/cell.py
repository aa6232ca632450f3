"""One target at one tolerance: what is proven so far, and the proposals to go on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from softrank_exact.certificate import Certificate
from softrank_exact.certifying import assemble, trivial_claims
from softrank_exact.interrupts import unbroken
from softrank_exact.kernel.check import Fantope, InvalidWitness, Witness
from softrank_exact.rounding import Verdict, question, round_and_check
from softrank_exact.targets import Target
from softrank_exact.witness import (
    FloatBernstein,
    FloatFactor,
    FloatFantope,
    FloatHS,
    FloatShattering,
    FloatWitness,
)

from .types import Proposal

DISTANCE = 2e-4  # relative to eps: how far from the threshold a retried row must stay


class Cell:
    """The ledger of one search: a claim enters only through the exact kernel.

    `proposals`: the best of each witness type, in float, whether or not its side has a better
    claim of another kind by now: searchers start from them.
    """

    def __init__(self, target: Target, epsilon: Fraction) -> None:
        self.target = target
        self.epsilon = epsilon
        self.asked = question(target, epsilon)
        self.A = target.float_matrix
        self.lower, self.upper = trivial_claims(target, epsilon)
        self.proposals: dict[type, Proposal] = {}
        self.accepted: list[Verdict] = []

    @property
    def closed(self) -> bool:
        return self.lower.rank == self.upper.rank

    def best(self, *kinds: type) -> Proposal | None:
        """The first of these kinds that there is a proposal of."""
        return next((self.proposals[kind] for kind in kinds if kind in self.proposals), None)

    def offer(self, proposal: Proposal | None) -> bool:
        """Judge a proposal, and weaker forms of it if rounding breaks it; True if it improved."""
        if proposal is None:
            return False
        while self._improves(proposal.side, proposal.rank):
            verdict = self._judge(proposal.rank, proposal.witness)
            if verdict is not None and verdict.verified:
                self._remember(proposal)
                self.enter(verdict)
                return True
            weaker = weakened(proposal, self.A, float(self.asked.lo), float(self.asked.hi))
            if weaker is None:
                return False
            proposal = weaker
        self._remember(proposal)
        return False

    def offer_exact(self, rank: int, witness: Witness) -> bool:
        """Judge an integer witness for a claim of this rank; True if it improved the bracket."""
        if not self._improves(witness.side, rank):
            return False
        verdict = self._judge(rank, witness)
        if verdict is None or not verdict.verified:
            return False
        self.enter(verdict)
        return True

    def enter(self, verdict: Verdict) -> None:
        """Take over a verified claim if it is better. Raises ``ArithmeticError`` if L > U."""
        claim = verdict.claim
        if not verdict.verified or not self._improves(claim.side, claim.rank):
            return
        if claim.side == "lower":
            self.lower = claim
        else:
            self.upper = claim
        self.accepted.append(verdict)
        if self.lower.rank > self.upper.rank:
            raise ArithmeticError(
                f"verified claims contradict each other: {self.lower.rank} <= r_eps "
                f"<= {self.upper.rank}; the exact checker is wrong, please report it"
            )

    def share(self, others: Iterable[Cell]) -> None:
        """Offer what was accepted to cells of the same target at tolerances where it holds too."""
        for other in others:
            for verdict in self.accepted:
                if _holds_at(verdict, other.epsilon):
                    rank, witness = verdict.claim.rank, verdict.claim.witness
                    if isinstance(witness, Fantope):
                        other.offer(Proposal("lower", rank, _with_new_bases(rank, witness)))
                    elif witness is not None:
                        other.offer_exact(rank, witness)

    def certificate(self, provenance: Mapping[str, str]) -> Certificate:
        return assemble(self.target, self.epsilon, (self.lower, self.upper), provenance)

    def _improves(self, side: str, rank: int) -> bool:
        return rank > self.lower.rank if side == "lower" else rank < self.upper.rank

    def _judge(self, rank: int, witness: FloatWitness | Witness) -> Verdict | None:
        try:
            with unbroken():
                return round_and_check(self.asked, self.A, witness, rank)
        except (InvalidWitness, OverflowError):
            return None

    def _remember(self, proposal: Proposal) -> None:
        kind = type(proposal.witness)
        known = self.proposals.get(kind)
        sign = 1 if proposal.side == "lower" else -1
        if known is None or sign * proposal.rank >= sign * known.rank:
            self.proposals[kind] = proposal


def _with_new_bases(rank: int, witness: Fantope) -> FloatFantope:
    """The same T and weights in float: their eigenvectors depend on the tolerance."""
    T, w, v = (array.astype(float) for array in (witness.T, witness.w, witness.v))
    return FloatFantope(rank, T, w, v)


def _holds_at(verdict: Verdict, epsilon: Fraction) -> bool:
    finding = verdict.finding
    after = finding.valid_from is None or finding.valid_from <= epsilon
    if verdict.claim.side == "upper":
        return finding.valid_from is not None and after
    return finding.valid_to is not None and after and epsilon < finding.valid_to


def weakened(proposal: Proposal, A: np.ndarray, lo: float, hi: float) -> Proposal | None:
    """A slightly weaker claim that should survive rounding, or None.

    Rows too close to the threshold are kept exactly (factors) or dropped with their column
    (Bernstein); a shattering witness without edges loses its last query, a spectral one claims one
    rank less.
    """
    witness, rank = proposal.witness, proposal.rank
    match witness:
        case FloatFactor(X, Y):
            close = np.abs(A - X @ Y).sum(axis=1) > lo * (1 - DISTANCE)
            if not close.any():
                return None
            exact = FloatFactor(
                np.hstack([np.where(close[:, None], 0.0, X), np.eye(len(X))[:, close]]),
                np.vstack([Y, A[close]]),
            )
            return replace(proposal, rank=exact.rank, witness=exact)
        case FloatBernstein(columns, G, X, Y):
            H = np.eye(len(columns)) - G @ A[:, columns] - X @ Y
            far = hi * np.abs(G).sum(axis=1) + np.abs(H).sum(axis=1) < 1 - DISTANCE
            fewer = FloatBernstein(columns[far], G[far], X[far], Y[:, far])
            if far.all() or fewer.rank < 1:
                return None
            return replace(proposal, rank=fewer.rank, witness=fewer)
        case FloatShattering(D, blocks, Y, edges) if rank > 1 and not len(edges):
            last = int(blocks[-1])
            shorter = np.append(blocks[:-1], last - 1) if last > 1 else blocks[:-1]
            surplus = max(1, 1 << (last - 1) >> 1)  # patterns in which the query has the other sign
            fewer_queries = FloatShattering(D[:-1], shorter, Y[:-surplus])
            return replace(proposal, rank=rank - 1, witness=fewer_queries)
        case FloatHS() | FloatFantope() if rank > 1:
            return replace(proposal, rank=rank - 1, witness=replace(witness, rank=rank - 1))
    return None
