"""The command line of the lemmas: ``softrank lemmas list | check``.

Checking needs hypothesis (the extra "dev"); it is imported when a verb runs, so that the rest of
the command line does without it.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from softrank_exact.errors import UserError
from softrank_exact.scalars import float_below

if TYPE_CHECKING:
    from .examine import Report, Search
    from .lemma import Lemma

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Only = Annotated[
    str | None, typer.Option(metavar="ID", help='One lemma, or all of a number such as "3.4".')
]
Examples = Annotated[
    int | None, typer.Option(min=1, help="Examples for each lemma [default: 100].")
]

app = typer.Typer(no_args_is_help=True, help="Statements of the theory as executable checks.")


def register(root: typer.Typer) -> None:
    """Add ``lemmas`` to the command line."""
    root.add_typer(app, name="lemmas")


@app.command("list")
def list_lemmas(only: Only = None, as_json: Json = False) -> None:
    """Name every lemma with its statement."""
    lemmas = _select(only)
    if as_json:
        _print_json([_entry(lemma) for lemma in lemmas])
        return
    width = max(len(lemma.id) for lemma in lemmas)
    for lemma in lemmas:
        typer.echo(f"{lemma.id:<{width}}  {lemma.says}")


@app.command()
def check(only: Only = None, examples: Examples = None, as_json: Json = False) -> None:
    """Try every lemma on examples, and every mutant of it until a counterexample is found.

    Exit code 1 if a lemma is refuted or a mutant survives.
    """
    lemmas = _select(only)
    reports = _examined(lemmas, examples)
    passed = sum(report.passed for report in reports)
    if as_json:
        _print_json([{**_entry(report.lemma), **_result(report)} for report in reports])
    else:
        _print_table(reports)
        for report in reports:
            _print_failures(report, every=len(reports) == 1)
        typer.echo(f"{passed} of {len(reports)} lemmas hold and refute their mutants")
    if passed < len(reports):
        raise typer.Exit(1)


def _select(only: str | None) -> list[Lemma]:
    try:
        from .catalogue import select
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise UserError('the lemmas need hypothesis; install the extra "dev"') from None
    return select(only)


def _examined(lemmas: list[Lemma], examples: int | None) -> list[Report]:
    from .examine import examine
    from .lemma import EXAMPLES

    reports = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(lemmas))
        for lemma in lemmas:
            progress.update(task, description=lemma.id)
            reports.append(examine(lemma, examples or EXAMPLES))
            progress.advance(task)
    return reports


def _print_table(reports: list[Report]) -> None:
    table = Table(Column("lemma", no_wrap=True), "examples", "worst margin", "mutants killed", "")
    for report in reports:
        killed = len(report.mutants) - len(report.survivors)
        table.add_row(
            report.lemma.id,
            str(report.search.tried),
            _margin(report.search),
            f"{killed} of {len(report.mutants)}",
            "ok" if report.passed else "FAILED",
        )
    Console().print(table)


def _print_failures(report: Report, every: bool) -> None:
    """What refutes the lemma and which mutants survive; with ``every``, what kills the others."""
    if report.search.counterexample is not None:
        typer.echo(f"{report.lemma.id} is refuted: {_counterexample(report.search)}")
    elif not report.holds:
        typer.echo(f"{report.lemma.id}: no example satisfies its hypotheses")
    for name, search in report.mutants.items():
        if search.counterexample is None:
            typer.echo(f"{report.lemma.id}: mutant survives {search.tried} examples: {name}")
        elif every:
            typer.echo(f"mutant: {name}\n  refuted by {_counterexample(search)}")


def _counterexample(search: Search) -> str:
    found = search.counterexample
    return f"{found.clause.says}, at {found.case}" if found else "nothing"


def _margin(search: Search) -> str:
    return "-" if search.worst is None else f"{_rounded(search.worst):.3g}"


def _rounded(margin: Fraction) -> float:
    return float_below(margin) + 0.0  # no minus zero


def _entry(lemma: Lemma) -> dict[str, Any]:
    return {
        "id": lemma.id,
        "source": lemma.source,
        "statement": lemma.says,
        "latex": lemma.latex,
        "assumes": lemma.assumes,
        "mutants": [mutant.says for mutant in lemma.mutants],
    }


def _result(report: Report) -> dict[str, Any]:
    mutants = [{"says": name, **_outcome(search)} for name, search in report.mutants.items()]
    return {"passed": report.passed, **_outcome(report.search), "mutants": mutants}


def _outcome(search: Search) -> dict[str, Any]:
    """``worst_margin`` is a float rounded down, null where no clause has a margin."""
    found = search.counterexample
    return {
        "examples": search.tried,
        "worst_margin": None if search.worst is None else _rounded(search.worst),
        "refuted_by": None if found is None else {"case": found.case, "clause": found.clause.says},
    }


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
