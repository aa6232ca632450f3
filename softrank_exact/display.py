"""What the command line shows: verdict lines, tables and JSON. Bounds are rounded outward only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .intake.audit import Audit, Verdict
from .kernel.check import Finding
from .targets import Target

DIGITS = 5
STYLES = {"verified": "green", "rejected": "yellow", "refuted": "red", "malformed": "red"}
OBJECTS = {"matrix": "matrix", "logits": "softmax of logits", "qk": "softmax of Q K^T"}
ONLY_TRIVIAL = "only trivial claims written: no witness was verified"
CLAIM_FIELDS = (
    "side",
    "rank",
    "kind",
    "verdict",
    "code",
    "needed",
    "found",
    "margin",
    "valid_from",
    "valid_to",
)


def say(line: str) -> None:
    """The result, on stdout."""
    print(line)


def say_json(value: Any) -> None:
    """The result as JSON, on stdout; fractions are strings "p/q"."""
    print(json.dumps(value, indent=1))


def note(message: str) -> None:
    """Everything that is not the result, on stderr."""
    stderr().print(Text(message), soft_wrap=True)


def stdout() -> Console:
    return Console(highlight=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on stderr that leaves no trace; shown on a terminal only."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=stderr(),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    if not bar.console.is_terminal:
        yield bar
        return
    with bar:
        yield bar


@contextmanager
def paused(bar: Progress) -> Iterator[None]:
    """Take the bar away while something is printed."""
    shown = bar.live.is_started
    if shown:
        bar.stop()
    yield
    if shown:
        bar.start()


def ratio(value: Fraction | None) -> str | None:
    """The fraction as JSON holds it."""
    return None if value is None else f"{value.numerator}/{value.denominator}"


def exact(value: Fraction) -> str:
    """The fraction itself where that is short, else its first digits, marked as cut."""
    return str(value) if len(str(value)) <= 20 else f"{below(value)}..."


def above(value: Fraction) -> str:
    """A decimal of few digits that is not below the value."""
    return _decimal(value, ROUND_CEILING)


def below(value: Fraction) -> str:
    """A decimal of few digits that is not above the value."""
    return _decimal(value, ROUND_FLOOR)


def _decimal(value: Fraction, rounding: str) -> str:
    with localcontext(prec=DIGITS, rounding=rounding):
        quotient = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    return f"{quotient:f}" if not quotient or -4 <= quotient.adjusted() < 6 else f"{quotient:e}"


def found_must_stay_below(finding: Finding) -> bool:
    """Whether the claim needs found <= needed (or <), rather than found > needed."""
    return finding.margin == finding.needed - finding.found


def numbers(finding: Finding) -> tuple[str, str, str]:
    """needed, found and margin as decimals, each rounded to the side that claims less."""
    small, large = (above, below) if found_must_stay_below(finding) else (below, above)
    return large(finding.needed), small(finding.found), below(finding.margin)


def inequality(verdict: Verdict) -> str:
    """The claim itself."""
    return f"r_eps {_bound(verdict)}"


def bracket_line(audit: Audit) -> str:
    """The bracket in one line: what has been proven, no more, and about which object."""
    lower, upper, document = audit.lower, audit.upper, audit.document
    if document is None:
        raise ValueError("a malformed file has no bracket")
    left = "" if lower is None else f"{lower} <= "
    right = "" if upper is None else f" <= {upper}"
    bracket = f"{left}r_eps{right}" if left or right else "nothing proven"
    m, n = document.target.shape
    return (
        f"{bracket}{' (exact)' if lower == upper and left else ''} at eps = "
        f"{exact(document.epsilon)}, {OBJECTS[document.target.object]} {m} x {n}"
    )


def verdict_line(audit: Audit) -> str:
    """A file's verdict in one line, without its name."""
    if audit.document is None:
        code, message = audit.malformed or ("", "")
        return f"malformed ({code}): {message}"
    failed = sum(v.verdict != "verified" for v in audit.verdicts)
    count = f" ({failed} of {counted(len(audit.verdicts), 'claim')})" if failed else ""
    return f"{overall(audit)}{count}: {bracket_line(audit)}"


@dataclass(frozen=True)
class FoundBracket:
    """What a verb that makes a certificate shows of it; ``saved``: where, or None."""

    file: Path
    where: str
    target: Target
    epsilon: Fraction
    audit: Audit
    verdicts: Sequence[Verdict]
    seconds: float
    saved: Path | None

    def say(self) -> None:
        """The bracket on stdout; claims, alpha and file on stderr."""
        say(f"{bracket_line(self.audit)}, {self.where}")
        stderr().print(claims_table(self.verdicts))
        note(
            f"alpha {above(self.target.alpha)} ({self.target.budget(self.epsilon)}), "
            f"{self.seconds:.2f} s, "
            f"{'nothing written: no -o' if self.saved is None else f'written to {self.saved}'}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "object": self.target.object,
            "shape": list(self.target.shape),
            "epsilon": ratio(self.epsilon),
            "lower": self.audit.lower,
            "upper": self.audit.upper,
            "exact": self.audit.lower == self.audit.upper,
            "alpha": ratio(self.target.alpha),
            "budget": self.target.budget(self.epsilon),
            "claims": [claim_json(verdict) for verdict in self.verdicts],
            "seconds": round(self.seconds, 3),
            "certificate": None if self.saved is None else str(self.saved),
        }


def contradiction_line(audit: Audit) -> str:
    """Two proofs of opposite claims: nothing of it counts."""
    return (
        f"contradiction: {audit.lower} <= r_eps and r_eps <= {audit.upper} both pass; "
        "this checker is wrong, please report it"
    )


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def against_bracket(verdict: Verdict, audit: Audit) -> Verdict:
    """The verdict, "refuted" if it was rejected and the bracket contradicts the claim."""
    lower, upper = audit.lower, audit.upper
    false = (
        lower is not None and verdict.rank < lower
        if verdict.side == "upper"
        else upper is not None and verdict.rank > upper
    )
    return replace(verdict, verdict="refuted") if false else verdict


def overall(audit: Audit) -> str:
    """The worst verdict of a file."""
    if audit.document is None:
        return "malformed"
    words = {verdict.verdict for verdict in audit.verdicts}
    return next(word for word in ("refuted", "rejected", "verified") if word in words)


def claims_table(verdicts: Iterable[Verdict]) -> Table:
    """One row per claim; a claim fails for want of the difference. Fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("r_eps", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("verdict", min_width=8)
    for name in ("needed", "found", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("for eps", no_wrap=True)
    for verdict in verdicts:
        needed, found, margin = numbers(verdict.finding)
        code = "" if verdict.code in ("ok", "margin") else f" ({verdict.code})"
        table.add_row(
            _bound(verdict),
            verdict.kind,
            Text(verdict.verdict + code, style=STYLES[verdict.verdict]),
            f"{_relation(verdict)} {needed}",
            found,
            margin,
            _range(verdict.finding),
        )
    return table


def _bound(verdict: Verdict) -> str:
    return f"{'<=' if verdict.side == 'upper' else '>='} {verdict.rank}"


def _relation(verdict: Verdict) -> str:
    """How found has to stand to needed."""
    if not found_must_stay_below(verdict.finding):
        return ">"
    strict = verdict.side == "lower" and verdict.code != "alpha"
    return "<" if strict else "<="


def _range(finding: Finding) -> str:
    """For which tolerances the same witness proves the same claim."""
    start, end = finding.valid_from, finding.valid_to
    if start is None:
        return "-"
    if end is not None:
        return f"< {below(end)}" if end > 0 else "none"
    return f">= {above(start)}" if start > 0 else "any"


def claim_json(verdict: Verdict) -> dict[str, Any]:
    """The fields of one claim in every JSON output."""
    finding = verdict.finding
    return {
        "side": verdict.side,
        "rank": verdict.rank,
        "kind": verdict.kind,
        "verdict": verdict.verdict,
        "code": verdict.code,
        "needed": ratio(finding.needed),
        "found": ratio(finding.found),
        "margin": ratio(finding.margin),
        "valid_from": ratio(finding.valid_from),
        "valid_to": ratio(finding.valid_to),
    }
