"""The command line of the controls: ``softrank oracles list | check | regenerate | plot``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from softrank_exact.errors import UserError

from .claims import Claim
from .known_answers import CONTROLS, PATH, Control, canonical, is_stored, regenerate, stored_lines

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

app = typer.Typer(no_args_is_help=True, help="Known-answer controls: exact values with proofs.")


def register(root: typer.Typer) -> None:
    """Add ``oracles`` to the command line."""
    root.add_typer(app, name="oracles")


@app.command("list")
def list_controls(as_json: Json = False) -> None:
    """Name every control, with the statements of docs/theory.md that it covers."""
    if as_json:
        _print_json([{"name": control.name, "title": control.title} for control in CONTROLS])
        return
    width = max(len(control.name) for control in CONTROLS)
    for control in CONTROLS:
        typer.echo(f"{control.name:<{width}}  {control.title}")


@app.command()
def check(
    only: Annotated[str | None, typer.Option(metavar="NAME", help="One control.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute every claim, check its proof, and compare with the stored file byte for byte.

    With --only, the claims of one control, each compared with its line of the file.
    """
    try:
        data = PATH.read_bytes()
    except OSError as error:
        raise UserError(f"{PATH} cannot be read: {error.strerror}") from None
    claims = _computed(_select(only))
    lines = stored_lines(data)
    results = [_result(claim, is_stored(claim, lines)) for claim in claims]
    identical = all(result["stored"] for result in results) if only else canonical(claims) == data
    proven = sum(claim.proven for claim in claims)
    if as_json:
        _print_json({"identical": identical, "claims": results})
    else:
        _print_results(results)
        verdict = "identical" if identical else "DIFFERENT"
        typer.echo(f"{proven} of {len(claims)} claims proven; {PATH.name}: {verdict}")
    if not (identical and proven == len(claims)):
        raise typer.Exit(1)


@app.command("regenerate")
def regenerate_file() -> None:
    """Rewrite the stored file from claims that are all proven."""
    claims = _computed(CONTROLS)
    try:
        path = regenerate(claims)
    except ValueError as error:
        typer.echo(f"nothing written: {error}")
        raise typer.Exit(1) from None
    typer.echo(f"{len(claims)} claims written to {path.name}")


@app.command()
def plot(path: Annotated[Path, typer.Argument(help="An .svg, .png or .pdf file.")]) -> None:
    """Draw certified messages against beta for sphere and full ball, beside theory's slopes."""
    from .figure import draw

    draw(path)
    typer.echo(f"slopes drawn in {path}")


def _select(only: str | None) -> Sequence[Control]:
    chosen = [control for control in CONTROLS if only in (None, control.name)]
    if not chosen:
        names = ", ".join(control.name for control in CONTROLS)
        raise UserError(f"--only is {only}; accepted: {names}")
    return chosen


def _computed(controls: Sequence[Control]) -> list[Claim]:
    claims: list[Claim] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for control in progress.track(controls, description="proving"):
            claims += control.claims()
    return claims


def _result(claim: Claim, stored: bool) -> dict[str, Any]:
    entry = claim.as_json()
    return {
        "id": claim.id,
        "source": claim.source,
        "statement": claim.says,
        "value": entry["value"],
        "proven": claim.proven,
        "stored": stored,
        "failed": [step.says for step in claim.steps if not step.holds],
        "proof": sorted({step.kind for step in claim.steps}),
    }


def _print_results(results: list[dict[str, Any]]) -> None:
    width = max(len(result["id"]) for result in results)
    for result in results:
        state = "proven" if result["proven"] else "FAILED"
        state += "" if result["stored"] else ", not as stored"
        typer.echo(f"{state}  {result['id']:<{width}}  {_short(result['value'])}")
        for step in result["failed"]:
            typer.echo(f"        does not hold: {step}")


def _short(value: Any) -> str:
    """A value in at most 60 characters; an enclosure as a decimal near to it."""
    text = json.dumps(_decimals(value), separators=(", ", ": ")).replace('"', "")
    return text if len(text) <= 60 else text[:57] + "..."


def _decimals(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"lower", "upper"}:
        return f"about {float(Fraction(value['lower'])):.10g}"
    return {key: _decimals(entry) for key, entry in value.items()}


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))
