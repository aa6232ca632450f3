"""The exact verbs of the command line: certify, audit, explain, doctor."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from . import display, witness_files
from .auditing import (
    INTERNAL,
    MALFORMED,
    NOT_VERIFIED,
    OK,
    Outcome,
    audit_one,
    certificate_files,
    worst,
)
from .certificate import SUFFIX, audit_file
from .certifying import assemble, judge_witnesses
from .doctor import diagnose
from .errors import UserError
from .explain import Explanation, explain
from .intake.audit import Verdict
from .intake.document import Document
from .interrupts import unbroken
from .options import (
    Epsilon,
    Head,
    Json,
    Key,
    Layer,
    MatrixFile,
    Object,
    OverSqrt,
    Prefix,
    Scale,
)
from .scalars import parse_epsilon
from .selftest import self_test
from .target_files import Selection, check_output, load_target
from .witness import FloatWitness


def register(app: typer.Typer) -> None:
    """Add the verbs and ``--version``."""
    app.callback()(_options)
    app.command("certify")(certify_command)
    app.command("audit")(audit_command)
    app.command("explain")(explain_command)
    app.command("doctor")(doctor_command)


def _print_version(asked: bool) -> None:
    if asked:
        display.say(f"softrank-exact {version('softrank-exact')}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


# --- certify -----------------------------------------------------------------------------------


def certify_command(
    file: MatrixFile,
    eps: Epsilon,
    object: Object = "matrix",
    key: Key = None,
    layer: Layer = None,
    head: Head = None,
    prefix: Prefix = None,
    scale: Scale = "1",
    over_sqrt: OverSqrt = 1,
    upper: Annotated[
        list[str] | None, typer.Option(metavar="X,Y", help="Factors, A near X Y.")
    ] = None,
    hs: Annotated[
        list[str] | None, typer.Option(metavar="W,T[,RANK]", help="Hilbert-Schmidt witness.")
    ] = None,
    bernstein: Annotated[
        list[str] | None, typer.Option(metavar="COLUMNS,G,X,Y", help="Bernstein witness.")
    ] = None,
    bernstein_rows: Annotated[
        list[str] | None, typer.Option(metavar="ROWS,G,X,Y", help="Its left mirror.")
    ] = None,
    fantope: Annotated[
        list[str] | None, typer.Option(metavar="T,W,V,RANK", help="Fantope-Bernstein witness.")
    ] = None,
    shattering: Annotated[
        list[str] | None, typer.Option(metavar="D,BLOCKS,Y[,EDGES]", help="Shattering witness.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Write the certificate, *{SUFFIX}.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Certify witnesses of your own, given as array files. Needs no torch."""
    start = perf_counter()
    self_test()
    epsilon = parse_epsilon(eps)
    check_output(output)
    mine = Selection(file, key, layer, head, prefix)
    target, where = load_target(mine, object, epsilon, scale, over_sqrt)
    witnesses: list[FloatWitness] = [
        *(witness_files.read_factor(text, target) for text in upper or ()),
        *(witness_files.read_hilbert_schmidt(text, target, epsilon) for text in hs or ()),
        *(witness_files.read_bernstein(text, target) for text in bernstein or ()),
        *(witness_files.read_bernstein_rows(text, target) for text in bernstein_rows or ()),
        *(witness_files.read_fantope(text, target) for text in fantope or ()),
        *(witness_files.read_shattering(text, target) for text in shattering or ()),
    ]
    if not witnesses:
        raise UserError(
            "no witness given; accepted: --upper, --hs, --bernstein, --bernstein-rows, --fantope, "
            "--shattering"
        )
    with unbroken():
        judged = judge_witnesses(target, epsilon, witnesses)
        certificate = assemble(target, epsilon, [v.claim for v in judged if v.verified])
        audit = certificate.audit
    if audit.contradiction:
        display.say(display.contradiction_line(audit))
        raise typer.Exit(INTERNAL)
    if output is not None:
        certificate.save(output)
    verdicts = [
        display.against_bracket(
            Verdict(v.claim.side, v.claim.rank, v.claim.kind, v.verdict, v.finding), audit
        )
        for v in judged
    ]
    seconds = perf_counter() - start
    found = display.FoundBracket(file, where, target, epsilon, audit, verdicts, seconds, output)
    if as_json:
        display.say_json(found.as_json())
    else:
        found.say()
    if output is not None and not any(v.verified for v in judged):
        display.note(display.ONLY_TRIVIAL)
    raise typer.Exit(OK if all(v.verdict == "verified" for v in verdicts) else NOT_VERIFIED)


# --- audit -------------------------------------------------------------------------------------


def audit_command(
    paths: Annotated[list[Path], typer.Argument(help="Certificates, or folders of them.")],
    both: Annotated[bool, typer.Option("--both", help="Ask the second checker too.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Is the certificate about the matrix in this file?")
    ] = None,
    key: Key = None,
    layer: Layer = None,
    head: Head = None,
    prefix: Prefix = None,
    as_json: Json = False,
) -> None:
    """Re-check certificates exactly. Exit code 0 only if every claim is verified."""
    self_test()
    files = certificate_files(paths)
    mine = None if against is None else Selection(against, key, layer, head, prefix)
    outcomes = []
    with display.progress() as bar:
        for file in bar.track(files, description="auditing"):
            outcomes.append(audit_one(file, both, mine))
            if not as_json:
                with display.paused(bar):
                    _show(outcomes[-1], alone=len(files) == 1)
    if as_json:
        display.say_json([entry for outcome in outcomes for entry in _audit_json(outcome)])
    elif len(files) > 1:
        _summarise(outcomes)
    if both and all(outcome.disagreement is None for outcome in outcomes):
        display.note(f"both checkers agree on {display.counted(len(files), 'file')}")
    raise typer.Exit(worst(outcome.exit_code for outcome in outcomes))


def _show(outcome: Outcome, alone: bool) -> None:
    audit = outcome.audit
    if outcome.disagreement is not None:
        display.say(f"checkers disagree: {outcome.disagreement}, {outcome.file}")
    elif audit.contradiction:
        display.say(f"{display.contradiction_line(audit)}, {outcome.file}")
    else:
        display.say(f"{display.verdict_line(audit)}, {outcome.file}")
    if outcome.against is not None:
        display.say(f"{'yes' if outcome.against.same else 'no'}: {outcome.against.sentence}")
    if audit.verdicts and (alone or outcome.exit_code == NOT_VERIFIED):
        display.stderr().print(display.claims_table(audit.verdicts))


def _summarise(outcomes: list[Outcome]) -> None:
    words = [display.overall(outcome.audit) for outcome in outcomes]
    parts = [f"{words.count(word)} {word}" for word in display.STYLES if word in words]
    others = sum(outcome.against is not None and not outcome.against.same for outcome in outcomes)
    if others:
        parts.append(f"{others} not about the matrix of --against")
    display.note(f"{display.counted(len(words), 'file')}: {', '.join(parts)}")


def _audit_json(outcome: Outcome) -> list[dict[str, Any]]:
    """One object per claim; one with nulls for a malformed file."""
    if outcome.audit.malformed is not None:
        code, _ = outcome.audit.malformed
        malformed = {"verdict": "malformed", "code": code}
        claims = [{**dict.fromkeys(display.CLAIM_FIELDS), **malformed}]
    else:
        claims = [display.claim_json(verdict) for verdict in outcome.audit.verdicts]
    if outcome.exit_code == INTERNAL:
        # Where checkers contradict each other or themselves nothing passes as verified.
        claims = [{**claim, "verdict": "rejected", "code": "disagreement"} for claim in claims]
    extra = {} if outcome.against is None else {"against": outcome.against.same}
    return [{"file": str(outcome.file), **claim, **extra} for claim in claims]


# --- explain -----------------------------------------------------------------------------------


def explain_command(
    file: Annotated[Path, typer.Argument(help="A certificate.")], as_json: Json = False
) -> None:
    """Say what a certificate claims, by which theorem, how safely, and what would tighten it."""
    self_test()
    with unbroken():
        audit = audit_file(file)
        if audit.document is None:
            display.say(f"{display.verdict_line(audit)}, {file}")
            raise typer.Exit(MALFORMED)
        document, explanation = audit.document, explain(audit, audit.document)
    outcome = Outcome(file, audit)
    if as_json:
        display.say_json(_explanation_json(outcome, document, explanation))
    elif audit.contradiction:
        display.say(f"{display.contradiction_line(audit)}, {file}")
    else:
        display.say(f"{display.verdict_line(audit)}, {file}")
        display.stdout().print(_explanation_table(explanation))
    raise typer.Exit(outcome.exit_code)


def _explanation_table(explanation: Explanation) -> Table:
    table = _pairs()
    for name, words in explanation.facts.items():
        table.add_row(name, Text(words))
    for claim in explanation.claims:
        table.add_section()
        verdict = claim.verdict
        table.add_row(
            Text(display.inequality(verdict), style="bold"),
            Text(verdict.verdict, style=display.STYLES[verdict.verdict]),
        )
        for name, words in claim.facts.items():
            table.add_row(name, Text(words))
    return table


def _explanation_json(
    outcome: Outcome, document: Document, explanation: Explanation
) -> dict[str, Any]:
    audit = outcome.audit
    return {
        "file": str(outcome.file),
        "object": document.target.object,
        "shape": list(document.target.shape),
        "epsilon": display.ratio(document.epsilon),
        "alpha": display.ratio(document.target.alpha),
        "lower": audit.lower,
        "upper": audit.upper,
        "exact": audit.lower == audit.upper,
        "explanation": explanation.facts,
        "claims": [
            {**entry, "explanation": claim.facts}
            for entry, claim in zip(_audit_json(outcome), explanation.claims, strict=True)
        ],
    }


# --- doctor ------------------------------------------------------------------------------------


def doctor_command(as_json: Json = False) -> None:
    """Show versions and devices, and test that this machine multiplies integers exactly."""
    with display.stderr().status("examining this machine"):
        diagnosis = diagnose()
    if as_json:
        display.say_json({**diagnosis.facts, "trustworthy": diagnosis.trustworthy})
    else:
        table = _pairs()
        for name, words in diagnosis.facts.items():
            table.add_row(name, words)
        display.stdout().print(table)
        display.say(
            "healthy: certificates can be checked here"
            if diagnosis.trustworthy
            else "NOT healthy: nothing that is checked here counts"
        )
    raise typer.Exit(OK if diagnosis.trustworthy else INTERNAL)


def _pairs() -> Table:
    """A table of names and sentences."""
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    return table
