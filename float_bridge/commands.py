"""The float verbs of the command line: bracket, capture, recheck."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import torch
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from softrank_exact import Target, display
from softrank_exact.certificate import SUFFIX, Certificate, load_certificate
from softrank_exact.errors import UserError
from softrank_exact.inputs import Tensors, read_tensors
from softrank_exact.intake.audit import Verdict
from softrank_exact.options import (
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
from softrank_exact.scalars import parse_epsilon
from softrank_exact.selftest import self_test
from softrank_exact.target_files import Selection, check_output, load_target

from .bracket import Bracket, bracket
from .capture import capture
from .recheck import OBJECT_TENSORS, WITNESS_TENSORS, CellReport, Recheck, recheck

OK, NOT_VERIFIED, INTERRUPTED = 0, 1, 130

Effort = Literal["fast", "thorough"]
Device = Annotated[str, typer.Option(help="torch device, cpu or cuda.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("bracket")(bracket_command)
    app.command("capture")(capture_command)
    app.command("recheck")(recheck_command)


# --- bracket -----------------------------------------------------------------------------------


def bracket_command(
    file: MatrixFile,
    eps: Annotated[str, typer.Option(help='Tolerances, such as "1/4" or "0.5,1/4".')],
    object: Object = "matrix",
    effort: Annotated[Effort, typer.Option(help="Budget of the search, in steps.")] = "fast",
    seconds: Annotated[
        float | None, typer.Option(help="Search for so long instead (not deterministic).")
    ] = None,
    warm: Annotated[
        Path | None, typer.Option(help="A certificate of the same shape to start from.")
    ] = None,
    key: Key = None,
    layer: Layer = None,
    head: Head = None,
    prefix: Prefix = None,
    scale: Scale = "1",
    over_sqrt: OverSqrt = 1,
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    device: Device = "cpu",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Write the certificate, *{SUFFIX}.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Search for a bracket L <= r_eps <= U and certify it."""
    self_test()
    torch.set_num_threads(1)
    tolerances = [parse_epsilon(text) for text in eps.split(",")]
    check_output(output)
    if len(tolerances) > 1 and any(not 0 < tolerance < 2 for tolerance in tolerances):
        display.note(
            f"warning: --eps {eps} is {len(tolerances)} tolerances: a comma separates tolerances, "
            "a decimal has a point"
        )
    mine = Selection(file, key, layer, head, prefix)
    target, where = load_target(mine, object, min(tolerances), scale, over_sqrt)
    start = perf_counter()
    found = _search(
        target,
        tolerances,
        effort,
        device,
        seed,
        seconds,
        None if warm is None else load_certificate(warm),
    )
    saved = _save(found, output)
    elapsed = perf_counter() - start
    shown = [
        display.FoundBracket(
            file,
            where,
            target,
            one.epsilon,
            one.certificate.audit,
            one.certificate.verdicts,
            elapsed,
            name,
        )
        for one, name in zip(found, saved, strict=True)
    ]
    if as_json:
        entries = [one.as_json() for one in shown]
        display.say_json(entries[0] if len(entries) == 1 else entries)
    else:
        for each in shown:
            each.say()
    if any(one.interrupted for one in found):
        display.note("interrupted: these are the best brackets proven until then")
        raise typer.Exit(INTERRUPTED)


def _search(
    target: Target,
    tolerances: list[Fraction],
    effort: Effort,
    device: str,
    seed: int,
    seconds: float | None,
    warm: Certificate | None,
) -> list[Bracket]:
    """The brackets, one per tolerance, with the best so far shown on stderr."""
    with display.progress() as bar:
        task = bar.add_task("searching", total=None)

        def show(best: Bracket) -> None:
            words = f"{best.lower} <= r_eps <= {best.upper} at eps = {display.exact(best.epsilon)}"
            bar.update(task, advance=1, description=words)

        found: Sequence[Bracket] = bracket(
            target, tolerances, effort, device, seed, seconds=seconds, warm=warm, progress=show
        )
    return list(found)


def _save(found: list[Bracket], output: Path | None) -> list[Path | None]:
    """Save one file, or one for each tolerance with the tolerance in its name."""
    if output is None:
        return [None] * len(found)
    if len(found) == 1:
        return [found[0].save(output)]
    stem = output.name.removesuffix(SUFFIX)
    return [
        one.save(output.with_name(f"{stem}-eps{str(one.epsilon).replace('/', '_')}{SUFFIX}"))
        for one in found
    ]


# --- capture -----------------------------------------------------------------------------------


def capture_command(
    model: Annotated[
        str,
        typer.Argument(help="A model folder, package:NAME/FOLDER, or a cached hub name."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The capture, *.safetensors.")],
    text: Annotated[str | None, typer.Option(help="The input as text.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="The input as a text file.")] = None,
    ids: Annotated[
        Path | None, typer.Option(help='Token ids: a JSON list, or an object with "ids".')
    ] = None,
    pixels: Annotated[
        Path | None, typer.Option(help="pixel_values [batch, channel, row, column] as .npy.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Keep the first so many tokens.")] = None,
    prefix: Annotated[
        int | None,
        typer.Option(help="Record the weight that later queries keep on so many first keys."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float64, float32, bfloat16 or float16.")] = "float64",
    as_json: Json = False,
) -> None:
    """Record what every attention head of a transformers model multiplies."""
    check_output(output, ".safetensors")
    inputs = _inputs(text, text_file, ids, pixels, dtype)
    with display.progress() as bar, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        task = bar.add_task("attention layers", total=None)
        recorded = capture(
            model,
            inputs,
            output,
            dtype=dtype,
            tokens=tokens,
            prefix=prefix,
            on_layer=lambda name: bar.advance(task),
        )
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            display.note(f"warning: {warning.message}")
    heads = sum(layer["heads"] for layer in recorded.layers)
    if as_json:
        display.say_json({"file": str(output), "heads": heads, **recorded.info})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("layer", "module", "heads", "key heads", "queries x keys", "scale"):
        table.add_column(name)
    for i, layer in enumerate(recorded.layers):
        m, n = layer["shape"]
        scale = f"{float.fromhex(layer['scaling']):.6g}"
        table.add_row(
            str(i),
            layer["module"],
            str(layer["heads"]),
            str(layer["key_heads"]),
            f"{m} x {n}",
            scale,
        )
    display.stderr().print(table)
    display.say(
        f"{heads} heads in {len(recorded.layers)} layers of {recorded.info['model']} "
        f"({recorded.info['dtype']}) written to {output}"
    )


def _inputs(
    text: str | None, text_file: Path | None, ids: Path | None, pixels: Path | None, dtype: str
) -> Any:
    given = {"--text": text, "--text-file": text_file, "--ids": ids, "--pixels": pixels}
    if sum(value is not None for value in given.values()) != 1:
        raise UserError(f"the input is not given once; accepted: one of {', '.join(given)}")
    if text is not None:
        if not text:
            raise UserError("--text is empty; accepted: a text of at least one character")
        return text
    if text_file is not None:
        return _read_text(text_file)
    if ids is not None:
        return _read_ids(ids)
    assert pixels is not None
    values = read_tensors(pixels)
    if set(values) != {""}:
        raise UserError(f"{pixels} has named arrays; accepted: one array, .npy")
    return {"pixel_values": torch.from_numpy(values[""]).to(getattr(torch, dtype, torch.float64))}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text: {error}") from None


def _read_ids(path: Path) -> list[int]:
    try:
        loaded = json.loads(_read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    ids = loaded.get("ids") if isinstance(loaded, dict) else loaded
    if not (isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids)):
        raise UserError(f'{path} holds no token ids; accepted: a JSON list, or {{"ids": [...]}}')
    return ids


# --- recheck -----------------------------------------------------------------------------------


def recheck_command(
    file: Annotated[
        Path,
        typer.Argument(
            help=f"Tensors named {', '.join((*OBJECT_TENSORS, *WITNESS_TENSORS))}, "
            "lower, upper: .npz, .safetensors or .pt; or one attention tensor."
        ),
    ],
    eps: Epsilon,
    lower: Annotated[int | None, typer.Option(help="Claimed L, instead of the tensor.")] = None,
    upper: Annotated[int | None, typer.Option(help="Claimed U, instead of the tensor.")] = None,
    scale: Scale = "1",
    over_sqrt: OverSqrt = 1,
    effort: Annotated[
        Literal["fast", "thorough", "none"],
        typer.Option(help="Search for claims that come without evidence."),
    ] = "fast",
    fast: Annotated[
        bool, typer.Option("--fast", help="First pass by float64 error analysis.")
    ] = False,
    paranoid: Annotated[
        bool, typer.Option("--paranoid", help="Verify every exact product modulo random primes.")
    ] = False,
    device: Device = "cpu",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write certificates into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Re-check someone else's torch results, cell by cell."""
    self_test()
    torch.set_num_threads(1)
    tensors, claims = _results(read_tensors(file))
    options = {s: r for s, r in (("lower", lower), ("upper", upper)) if r is not None}
    claims |= options
    with display.progress() as bar:
        task = bar.add_task("cells", total=None)
        result = recheck(
            tensors,
            eps,
            **claims,
            scale=scale,
            over_sqrt=over_sqrt,
            effort=None if effort == "none" else effort,
            fast=fast,
            paranoid=paranoid,
            device=device,
            certificates=output is not None,
            on_cell=lambda done: bar.update(task, completed=done),
            called=lambda name: f"--{name}" if name in options else f"{file}: {name}",
        )
    if output is not None:
        _write_certificates(result, output)
    if as_json:
        display.say_json([{"file": str(file), **cell.as_json()} for cell in result.cells])
    else:
        _say_recheck(result)
    raise typer.Exit(OK if result.verified else NOT_VERIFIED)


def _results(named: Tensors) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object and evidence tensors, and the claims, of a file."""
    if set(named) == {""}:
        return {"attention": named[""]}, {}
    claims = {side: named[side] for side in ("lower", "upper") if side in named}
    return {name: named[name] for name in named if name not in claims}, claims


def _write_certificates(result: Recheck, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for cell in result.cells:
        assert cell.certificate is not None
        name = "-".join(["cell", *map(str, cell.index)])
        cell.certificate.save(folder / f"{name}{SUFFIX}")


def _say_recheck(result: Recheck) -> None:
    judged = [
        (cell, verdict, method)
        for cell in result.cells
        for verdict, method in zip(cell.verdicts, cell.methods, strict=True)
    ]
    display.stderr().print(_recheck_table(judged))
    deciders = Counter(f"{method} ({verdict.kind})" for _, verdict, method in judged)
    for decider, number in deciders.items():
        display.note(f"decided by {decider}: {display.counted(number, 'claim')}")
    worst = max(result.cells, key=lambda cell: cell.alpha)
    display.note(f"alpha, largest of all cells: {display.above(worst.alpha)} ({worst.budget})")
    for line in _ledger_lines(result.cells):
        display.note(line)
    if result.paranoia is not None:
        display.note(
            f"paranoid: {result.paranoia.products} products verified modulo random primes; a false "
            f"one passed with probability below {display.above(result.paranoia.false_accept)}"
        )
    counts = Counter(verdict.verdict for _, verdict, _ in judged)
    words = ", ".join(f"{counts[word]} {word}" for word in sorted(counts, reverse=True))
    display.say(f"{len(result.cells)} cells on {result.device}: {words}")


def _recheck_table(judged: Sequence[tuple[CellReport, Verdict, str]]) -> Table:
    """One row per claim; fits 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("cell", no_wrap=True)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in ("needed", "found", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell, verdict, _ in judged:
        table.add_row(
            Text(str(list(cell.index))),
            display.inequality(verdict),
            Text(verdict.verdict, style=display.STYLES[verdict.verdict]),
            *display.numbers(verdict.finding),
        )
    return table


def _ledger_lines(cells: Sequence[CellReport]) -> list[str]:
    """The largest entry of every line of the ledgers."""
    largest: dict[str, Fraction] = {}
    for cell in cells:
        for line in cell.ledger:
            largest[line.source] = max(largest.get(line.source, line.bound), line.bound)
    return [
        f"ledger, largest of all cells: {name}: {display.above(bound)}"
        for name, bound in largest.items()
    ]
