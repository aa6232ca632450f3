"""What a certificate says, in words: which object, which theorem, which margin, what would help."""

from __future__ import annotations

from dataclasses import dataclass

from .display import above, below, exact, numbers
from .intake.audit import Audit, Verdict
from .intake.document import Claim, Document
from .intake.target import DeclaredTarget
from .kernel.check import Question, check
from .kernel.limbs import Limbs
from .targets import BUDGET

OBJECTS = {
    "matrix": "the matrix stored in the file, every entry exactly as it is stored",
    "logits": "the exact softmax, row by row, of the logits stored in the file",
    "qk": "the exact softmax, row by row, of c Q K^T (+ bias) with Q, K stored in the file",
}
RANK_OF = (
    "r_eps(A) is the least rank of any real matrix B with max_i sum_j |A_ij - B_ij| <= eps. "
    "B need not be nonnegative or row-stochastic; the rank of the logits is another quantity."
)


@dataclass(frozen=True)
class Theorem:
    """How a kind of witness proves its claim: the number in docs/theory.md, and the inequality."""

    name: str
    source: str
    inequality: str
    spectral: bool = False


THEOREMS = {
    "trivial": Theorem(
        "no witness needed",
        "MATH 1",
        "0 <= r_eps <= min(m, n); rows that sum to one give r_eps = 0 iff eps >= 1",
    ),
    "factor": Theorem(
        "explicit factors", "MATH 4.1 with 2.1", "||A0 - X Y|| <= eps - alpha (rank X Y <= rank)"
    ),
    "hilbert-schmidt": Theorem(
        "Hilbert-Schmidt tail",
        "MATH 5.2, checked as 5.6",
        "sum_{j >= rank} sigma_j(diag(d) A0 T)^2 / (S t) > (eps + alpha)^2",
        spectral=True,
    ),
    "bernstein": Theorem(
        "Bernstein certificate on columns",
        "MATH 5.3",
        "(eps + alpha) ||G_j||_1 + ||(I - G A0_C - X Y)_j||_1 < 1 for every j",
    ),
    "bernstein-rows": Theorem(
        "Bernstein certificate on rows",
        "MATH 5.3, left mirror",
        "(eps + alpha) ||G|| + ||I - A0_R G - X Y|| < 1",
    ),
    "fantope": Theorem(
        "Fantope-Bernstein certificate",
        "MATH 5.4",
        "the q - rank + 1 smallest eigenvalues of H_j have a positive sum for every j",
        spectral=True,
    ),
    "shattering": Theorem(
        "shattering certificate",
        "theory 5.8",
        "g_i > (eps + alpha) u ||D_i||_1 for every i: bounded values drive the outputs of the "
        "averaged queries D A beyond eps, with any signs, on every facet",
    ),
}


@dataclass(frozen=True)
class ClaimExplained:
    """One claim, and sentences about it by name."""

    verdict: Verdict
    facts: dict[str, str]


@dataclass(frozen=True)
class Explanation:
    """Sentences about a certificate by name, and its claims."""

    facts: dict[str, str]
    claims: tuple[ClaimExplained, ...]


def _printable(text: str) -> str:
    """A file's own words, with control characters and the like escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def explain(audit: Audit, document: Document) -> Explanation:
    """``audit`` is that of ``document``; what would tighten a claim is decided by the kernel."""
    m, n = document.target.shape
    facts = {
        "A": f"{m} queries x {n} keys: {_object(document.target)}",
        "r_eps": RANK_OF,
        "eps": exact(document.epsilon),
        "alpha": _slack(document),
        "sha256": f"{document.sha256} (of the stored arrays)",
    }
    if document.provenance:
        told = "; ".join(f"{key}: {value}" for key, value in document.provenance.items())
        facts["provenance"] = _printable(told)
    claims = (
        ClaimExplained(verdict, _facts(audit, document, index))
        for index, verdict in enumerate(audit.verdicts)
    )
    return Explanation(facts, tuple(claims))


def _facts(audit: Audit, document: Document, index: int) -> dict[str, str]:
    verdict = audit.verdicts[index]
    theorem = THEOREMS[verdict.kind]
    return {
        "by": f"{theorem.name} ({theorem.source}): {theorem.inequality}",
        "margin": _margin(verdict),
        "valid for": _validity(verdict),
        "to tighten" if verdict.verdict == "verified" else "to mend": _tighter(
            audit, document, index
        ),
    }


def _object(target: DeclaredTarget) -> str:
    """Which matrix A is."""
    words = OBJECTS[target.object]
    if target.object == "qk":
        over = f" / sqrt({target.over_sqrt})" if target.over_sqrt != 1 else ""
        words += f", c = {exact(target.scale)}{over}"
    masks = [name for name in ("H", "bias") if name in target.tensors]
    masked = sum(int((target.tensors[name] == -float("inf")).sum()) for name in masks)
    return words + (f"; {masked} masked entries are exactly 0" if masked else "")


def _slack(document: Document) -> str:
    """alpha, and the budget that it is held against."""
    alpha, epsilon = document.target.alpha, document.epsilon
    if alpha == 0:
        return "0: the integers that are checked are the matrix itself"
    if not alpha < epsilon:
        state = "unusable: alpha >= eps, no upper claim can hold"
    elif alpha <= BUDGET:
        state = "within the budget of 1e-7"
    else:
        state = "over the budget of 1e-7: sound, and accounted for in every margin"
    return f"{above(alpha)} bounds the distance to the integers that are checked; {state}"


def _margin(verdict: Verdict) -> str:
    """The numbers that decided."""
    needed, found, margin = numbers(verdict.finding)
    bound = ", a certified bound and not the truth" if THEOREMS[verdict.kind].spectral else ""
    return f"needed {needed}, found {found}: difference {margin}{bound}"


def _validity(verdict: Verdict) -> str:
    """For which tolerances the same witness proves the same claim."""
    start, end = verdict.finding.valid_from, verdict.finding.valid_to
    if verdict.code in ("alpha", "basis"):
        return "no eps: the check ended before it came to eps"
    if start is None:
        return "no eps"
    if end is not None and not end > 0:
        return "no eps"
    if end is not None:
        return f"every eps < {below(end)}"
    return f"every eps >= {above(start)}" if start else "every eps"


def _tighter(audit: Audit, document: Document, index: int) -> str:
    """What would tighten, or mend, one claim; decided by computation, not by rule of thumb only."""
    verdict = audit.verdicts[index]
    if verdict.code == "alpha":
        return "alpha is smaller than the proven distance: write the certificate anew"
    if verdict.code == "basis":
        return "Q is not near to q_scale times an orthogonal matrix: recompute and round it"
    if verdict.verdict == "refuted":
        return "nothing: the opposite claim of this file is proven"
    if verdict.verdict == "rejected":
        return _mending(verdict)
    if audit.lower == audit.upper:
        return "nothing: the bracket is exact at this eps"
    if verdict.kind == "trivial":
        return "any witness at all: softrank bracket searches for one"
    if verdict.side == "upper":
        return (
            f"factors of rank {verdict.rank - 1} with an error of at most "
            f"{below(verdict.finding.needed)}; these have {above(verdict.finding.found)}"
        )
    return _raising(document, document.claims[index])


def _mending(verdict: Verdict) -> str:
    end = verdict.finding.valid_to
    if verdict.kind == "trivial":
        return "a witness: none is stored"
    if verdict.side == "upper":
        return f"a larger eps ({_validity(verdict)}), a larger rank, or better factors"
    smaller = f"a smaller eps ({_validity(verdict)}), " if end is not None and end > 0 else ""
    return f"{smaller}a smaller rank, or a better witness"


def _raising(document: Document, claim: Claim) -> str:
    """Whether a spectral witness proves more than it claims; else where to look."""
    rank = claim.rank + 1
    contained = claim.kind not in ("fantope", "shattering")
    stronger = "; Fantope-Bernstein (MATH 5.4) contains this kind" if contained else ""
    if claim.witness is None or not THEOREMS[claim.kind].spectral:
        return f"a witness for rank {rank}{stronger}"
    if claim.kind == "fantope" and claim.rank == claim.witness.T.shape[1]:  # type: ignore[attr-defined]
        return f"a wider T: this one has q = {claim.rank} columns, and rank <= q"
    target = document.target
    N = Limbs.of(target.working_matrix())
    finding = check(Question(N, target.den, document.epsilon, target.alpha), rank, claim.witness)
    if finding.code == "ok":
        return f"claim rank {rank}: this very witness proves it"
    needed, found = above(finding.needed), below(finding.found)
    return f"this witness does not prove rank {rank}: needed {needed}, found {found}{stronger}"
