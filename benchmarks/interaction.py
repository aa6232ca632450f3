"""Certified interaction quantities against the obvious tools, which certify nothing.

    OMP_NUM_THREADS=1 python benchmarks/interaction.py [--json] [--large]

q against a HiGHS linear program, kappa against cvxpy with SCS and Clarabel, the visible rank
against sympy and python-flint, in one run and one BLAS thread. Heads are Gaussian queries and keys
with 32 columns, logits Q K^T / sqrt(32). cvxpy is left out if it is not installed. ``--large`` adds
the sizes at which the other tools take minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import coo_array, hstack, vstack

from softrank_exact.interaction import ExactMatrix, of_qk, residual, size
from softrank_exact.interaction.exact import to_flint

HEAD = 32


@dataclass(frozen=True)
class Row:
    """One measurement: what, which tool, the size, the result and how far it is from ours."""

    quantity: str
    tool: str
    shape: str
    seconds: float
    result: str


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    value = action()
    return value, time.perf_counter() - start


def head(n: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, columns)), rng.standard_normal((n, columns))


def logits(n: int, columns: int, seed: int) -> ExactMatrix:
    Q, K = head(n, columns, seed)
    return ExactMatrix.of(Q @ K.T / np.sqrt(columns))


def highs_q(F: np.ndarray) -> float:
    """min 2 t subject to |F_ij - a_i - b_j| <= t."""
    m, n = F.shape
    entry, one = np.arange(m * n), np.ones(m * n)
    rows = coo_array((one, (entry, entry // n)), shape=(m * n, m))
    columns = coo_array((one, (entry, entry % n)), shape=(m * n, n))
    radius = coo_array((one, (entry, np.zeros(m * n, dtype=int))), shape=(m * n, 1))
    A = vstack([hstack([rows, columns, -radius]), hstack([-rows, -columns, -radius])]).tocsr()
    b = np.concatenate([F.ravel(), -F.ravel()])
    cost = np.append(np.zeros(m + n), 2.0)
    return float(linprog(cost, A, b, bounds=(None, None), method="highs").fun)


def residual_rows(large: bool) -> Iterator[Row]:
    for n in (64, 128, 256):
        F = logits(n, HEAD, n)
        ours, seconds = timed(lambda F=F: residual(F))
        yield Row("q", "ours, exact", f"{n} x {n}", seconds, f"{float(ours.value):.12g}")
        if n <= (256 if large else 128):
            theirs, seconds = timed(lambda F=F: highs_q(F.floats()))
            off = theirs / float(ours.value) - 1
            yield Row("q", "HiGHS", f"{n} x {n}", seconds, f"{theirs:.12g} (off {off:+.0e})")


def cvxpy_kappa(C: np.ndarray, solver: str) -> float:
    """min t, [[P, C + a 1^T + 1 b^T], [., Q]] psd, diagonals at most t."""
    import cvxpy

    m, n = C.shape
    block, t = cvxpy.Variable((m + n, m + n), PSD=True), cvxpy.Variable()
    a, b = cvxpy.Variable((m, 1)), cvxpy.Variable((1, n))
    corner = C + a @ np.ones((1, n)) + np.ones((m, 1)) @ b
    problem = cvxpy.Problem(cvxpy.Minimize(t), [cvxpy.diag(block) <= t, block[:m, m:] == corner])
    return float(problem.solve(solver=solver))


def size_rows(large: bool) -> Iterator[Row]:
    try:
        import cvxpy

        solvers = [s for s in ("SCS", "CLARABEL") if s in cvxpy.installed_solvers()]
    except ImportError:
        solvers = []
    most = {"SCS": 128 if large else 64, "CLARABEL": 48 if large else 24}
    for n, columns in ((24, 8), (48, 8), (64, 8), (128, HEAD), (128, 127), (256, HEAD)):
        T = logits(n, columns, n)
        ours, seconds = timed(lambda T=T: size(T))
        shape = f"{n} x {n}, rank {columns}"
        low, high = ours.enclosure.floats()
        text = f"[{low:.7g}, {high:.7g}] gap {ours.relative_gap:.0e}"
        yield Row("kappa", "ours, certified", shape, seconds, text)
        for solver in solvers:
            if n <= most[solver]:
                C = T.doubly_centred().floats()
                value, seconds = timed(lambda C=C, s=solver: cvxpy_kappa(C, s))
                inside = "inside" if low <= value <= high else "outside"
                yield Row("kappa", f"cvxpy {solver}", shape, seconds, f"{value:.7g} ({inside})")


def rank_rows(large: bool) -> Iterator[Row]:
    import sympy

    for n, columns in ((12, 4), (24, 8), (128, 64), (256, 64)):
        Q, K = head(n, columns, n)
        interaction = of_qk(Q, K, Fraction(1), columns)
        shape = f"{n} x {n}, d = {columns}"
        ours, seconds = timed(interaction.rank)
        yield Row("rank C", "ours, proven", shape, seconds, str(ours))
        C = interaction.centred().numerators
        theirs, seconds = timed(lambda C=C: to_flint(C).rank())
        yield Row("rank C", "python-flint", shape, seconds, str(theirs))
        if n <= (24 if large else 12):
            theirs, seconds = timed(lambda C=C: sympy.Matrix(C.tolist()).rank())
            yield Row("rank C", "sympy", shape, seconds, str(theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--large", action="store_true", help="minutes more for the other tools")
    options = parser.parse_args()
    rows = []
    for family in (residual_rows, size_rows, rank_rows):
        for row in family(options.large):
            print(f"{row.quantity}, {row.tool}, {row.shape}: {row.seconds:.3f} s", file=sys.stderr)
            rows.append(row)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    table = Table("quantity", "tool", "size", "seconds", "result")
    for row in rows:
        table.add_row(row.quantity, row.tool, row.shape, f"{row.seconds:.4f}", row.result)
    Console().print(table)


if __name__ == "__main__":
    main()
