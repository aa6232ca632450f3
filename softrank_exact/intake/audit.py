"""The verdicts on a certificate: docs/certificate-format.md, steps 8 to 12."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ..kernel.check import Finding, Question, check
from ..kernel.limbs import Limbs
from .document import Claim, Document, read_document
from .malformed import Malformed
from .target import DeclaredTarget


@dataclass(frozen=True)
class Verdict:
    """One claim's verdict: "verified", "rejected" or "refuted"; only "verified" is a proof."""

    side: str
    rank: int
    kind: str
    verdict: str
    finding: Finding

    @property
    def code(self) -> str:
        return self.finding.code


@dataclass(frozen=True)
class Audit:
    """All that the exact check says about one file.

    ``malformed``: (reason code, sentence), then there is no document and no verdict.
    """

    document: Document | None
    verdicts: tuple[Verdict, ...]
    malformed: tuple[str, str] | None

    @property
    def lower(self) -> int | None:
        """The largest verified lower rank."""
        return max((v.rank for v in self.verdicts if _proven(v, "lower")), default=None)

    @property
    def upper(self) -> int | None:
        """The smallest verified upper rank."""
        return min((v.rank for v in self.verdicts if _proven(v, "upper")), default=None)

    @property
    def contradiction(self) -> bool:
        """Two proofs of opposite claims: a defect of this checker, whatever the file says."""
        return self.lower is not None and self.upper is not None and self.lower > self.upper


def audit_bytes(data: bytes) -> Audit:
    """Judge a certificate file's content. Never raises for any bytes."""
    try:
        document = read_document(data)
    except Malformed as defect:
        return Audit(None, (), (defect.code, str(defect)))
    return Audit(document, judge(document), None)


def judge(document: Document) -> tuple[Verdict, ...]:
    """The verdict on every claim, in order."""
    verdicts = [
        Verdict(c.side, c.rank, c.kind, "verified" if f.code == "ok" else "rejected", f)
        for c, f in zip(document.claims, _findings(document), strict=True)
    ]
    audit = Audit(document, tuple(verdicts), None)
    return tuple(_refuted(verdict, audit) for verdict in verdicts)


def _findings(document: Document) -> list[Finding]:
    target = document.target
    N = target.working_matrix()
    distance = target.distance_bound(N)
    if not (distance <= target.alpha):
        unproven = Finding("alpha", target.alpha, distance, target.alpha - distance)
        return [unproven for _ in document.claims]
    question = Question(Limbs.of(N), target.den, document.epsilon, target.alpha)
    return [_find(question, target, claim) for claim in document.claims]


def _find(question: Question, target: DeclaredTarget, claim: Claim) -> Finding:
    if claim.witness is None:
        return _trivial(question.epsilon, target, claim)
    return check(question, claim.rank, claim.witness)


def _trivial(epsilon: Fraction, target: DeclaredTarget, claim: Claim) -> Finding:
    if claim.side == "upper":
        one = target.is_softmax and epsilon >= 1
        return _trivial_upper(Fraction(claim.rank), Fraction(0 if one else min(target.shape)), one)
    one = target.is_softmax and epsilon < 1
    return _trivial_lower(Fraction(claim.rank - 1), Fraction(1 if one else 0), one)


def _trivial_upper(needed: Fraction, found: Fraction, one: bool) -> Finding:
    margin = needed - found
    if not (margin >= 0):
        return Finding("margin", needed, found, margin)
    return Finding("ok", needed, found, margin, Fraction(1 if one else 0))


def _trivial_lower(needed: Fraction, found: Fraction, one: bool) -> Finding:
    margin = found - needed
    if not (margin > 0):
        return Finding("margin", needed, found, margin)
    return Finding("ok", needed, found, margin, Fraction(0), Fraction(1) if one else None)


def _proven(verdict: Verdict, side: str) -> bool:
    return verdict.verdict == "verified" and verdict.side == side


def _refuted(verdict: Verdict, audit: Audit) -> Verdict:
    """A rejected claim that a verified claim of the same file contradicts."""
    if verdict.verdict != "rejected":
        return verdict
    lower, upper = audit.lower, audit.upper
    false = (
        lower is not None and verdict.rank < lower
        if verdict.side == "upper"
        else upper is not None and verdict.rank > upper
    )
    return replace(verdict, verdict="refuted") if false else verdict
