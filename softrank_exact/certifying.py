"""``certify``: anyone's witnesses become a certificate that holds what the kernel verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib.metadata import version

from .certificate import Certificate
from .errors import UserError
from .intake.document import TRIVIAL, Claim
from .kernel.check import Witness
from .rounding import Verdict, question, round_and_check
from .scalars import parse_epsilon
from .targets import Number, Target
from .witness import FloatWitness

Ranked = FloatWitness | tuple[int, Witness]


def certify(
    target: Target,
    eps: Number,
    witnesses: Iterable[Ranked] = (),
    provenance: Mapping[str, str] | None = None,
) -> Certificate:
    """The best bracket that the witnesses prove, as a certificate; trivial claims fill the gaps.

    A witness is a float witness, or a pair (rank, integer witness of the kernel).
    Raises ``UserError`` for a witness whose arrays do not fit the target.
    """
    epsilon = parse_epsilon(eps)
    verdicts = [
        verdict.claim for verdict in judge_witnesses(target, epsilon, witnesses) if verdict.verified
    ]
    return assemble(target, epsilon, verdicts, provenance)


def judge_witnesses(
    target: Target, epsilon: Fraction, witnesses: Iterable[Ranked]
) -> list[Verdict]:
    """The kernel's verdict on each witness, rounded. Raises ``UserError`` as ``certify`` does."""
    if not isinstance(target, Target):
        raise UserError(f"target is a {type(target).__name__}; accepted: a Target")
    if isinstance(witnesses, FloatWitness):
        raise UserError("witnesses is a single witness; accepted: a list of witnesses")
    asked = question(target, epsilon)
    verdicts = []
    for number, entry in enumerate(witnesses):
        if not isinstance(entry, FloatWitness | tuple):
            raise UserError(
                f"witness {number} is a {type(entry).__name__}; accepted: a witness of "
                "softrank_exact.witness, or a pair (rank, integer witness)"
            )
        rank, witness = entry if isinstance(entry, tuple) else (entry.rank, entry)
        try:
            verdicts.append(round_and_check(asked, target.float_matrix, witness, rank))
        except (ValueError, OverflowError) as error:
            raise UserError(
                f"witness {number} ({type(witness).__name__}, rank {rank}): {error}; "
                f"accepted: finite arrays that fit the {target.shape} target"
            ) from None
    return verdicts


def assemble(
    target: Target,
    epsilon: Fraction,
    proven: Iterable[Claim],
    provenance: Mapping[str, str] | None = None,
) -> Certificate:
    """A certificate of the best proven claim on either side, trivial ones included."""
    claims = [*proven, *trivial_claims(target, epsilon)]
    lower = max((c for c in claims if c.side == "lower"), key=lambda c: c.rank)
    upper = min((c for c in claims if c.side == "upper"), key=lambda c: c.rank)
    said = {"tool": f"softrank-exact {version('softrank-exact')}", **(provenance or {})}
    return Certificate(target.declared, epsilon, (lower, upper), said)


def trivial_claims(target: Target, epsilon: Fraction) -> tuple[Claim, Claim]:
    """The bracket that needs no witness (docs/certificate-format.md, "trivial")."""
    softmax = target.declared.is_softmax
    lower = 1 if softmax and epsilon < 1 else 0
    upper = 0 if softmax and epsilon >= 1 else min(target.shape)
    return (
        Claim("lower", lower, TRIVIAL, None),
        Claim("upper", upper, TRIVIAL, None),
    )
