"""Exact checks against the plain floating-point computations they certify.

    OMP_NUM_THREADS=1 python benchmarks/kernel.py [--json]

Every row is the median over rounds of a ratio of two times taken one after the other in one round,
one BLAS thread. benchmarks/README.md says what the aims are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import flint
import numpy as np

from softrank_exact import Target, witness
from softrank_exact.kernel.check import Witness, check
from softrank_exact.kernel.limbs import Limbs
from softrank_exact.rounding import LEVELS, integer_forms, question

ROUNDS = 15
EPS = "1/4"


@dataclass(frozen=True)
class Row:
    """One comparison: ours against plain, and how many times plain it may take."""

    name: str
    aim: float | None
    ours: Callable[[], object]
    plain: Callable[[], object]


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratio(row: Row, rounds: int) -> float:
    row.ours(), row.plain()
    return median(seconds(row.ours) / seconds(row.plain) for _ in range(rounds))


def integers(rng: np.random.Generator, bits: int, n: int) -> np.ndarray:
    """Signed integers of ``bits`` bits: below 2^(bits - 1) in absolute value."""
    return rng.integers(-(1 << (bits - 1)) + 1, 1 << (bits - 1), (n, n))


def products(rng: np.random.Generator) -> list[Row]:
    rows = []
    for left, right, aim in ((44, 21, 4.0), (62, 62, 16.0)):
        a, b = integers(rng, left, 512), integers(rng, right, 512)
        x, y = a.astype(np.float64), b.astype(np.float64)
        rows.append(
            Row(
                f"product {left} x {right} bits, n = 512, split included",
                aim,
                lambda a=a, b=b: Limbs.of(a) @ Limbs.of(b),
                lambda x=x, y=y: x @ y,
            )
        )
    return rows


def checks(rng: np.random.Generator, n: int) -> list[Row]:
    target = Target.logits(rng.standard_normal((n, 16)) @ rng.standard_normal((16, n)), EPS)
    A, asked = target.float_matrix, question(target, target.alpha + 2)
    factor = witness.truncated_svd(A, n // 2)
    tail = witness.frobenius_tail(A, n // 8)
    inverse = witness.truncated_pseudoinverse(A, n // 2)

    def plain_bernstein() -> float:
        H = np.eye(n) - inverse.G @ A - inverse.X @ inverse.Y
        return float((0.25 * np.abs(inverse.G).sum(axis=1) + np.abs(H).sum(axis=1)).max())

    def exactly(float_witness: witness.FloatWitness) -> Callable[[], object]:
        rounded: Witness = next(integer_forms(A, asked, float_witness))
        return lambda: check(asked, float_witness.rank, rounded)

    def plain_upper() -> float:
        return float(np.abs(A - factor.X @ factor.Y).sum(axis=1).max())

    return [
        Row(
            f"upper check, n = {n}, k = n/2",
            4.0 if n == 256 else None,
            exactly(factor),
            plain_upper,
        ),
        Row(f"HS check, n = {n}, q = n", 15.0, exactly(tail), lambda: np.linalg.svdvals(A)),
        Row(f"Bernstein check, n = {n}, p = n/2", 6.0, exactly(inverse), plain_bernstein),
    ]


def flint_product(rng: np.random.Generator) -> Row:
    a, b = integers(rng, 44, 256), integers(rng, 21, 256)
    x, y = a.astype(np.float64), b.astype(np.float64)
    p, q = flint.fmpz_mat(a.tolist()), flint.fmpz_mat(b.tolist())
    return Row(
        "python-flint product 44 x 21 bits, n = 256, without conversion",
        None,
        lambda: p * q,
        lambda: x @ y,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    if "1" not in {os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")}:
        parser.error("set OMP_NUM_THREADS=1: the ratios are defined for one BLAS thread")
    rng = np.random.default_rng(0)
    rows = [*products(rng), *checks(rng, 128), *checks(rng, 256), flint_product(rng)]
    results = []
    for number, row in enumerate(rows, 1):
        print(f"\r{number}/{len(rows)}", end="", file=sys.stderr, flush=True)
        results.append({"name": row.name, "ratio": ratio(row, arguments.rounds), "aim": row.aim})
    print(file=sys.stderr)
    if arguments.json:
        print(json.dumps(results))
        return
    print(f"entries of {LEVELS[0].entries} bits; numpy {np.__version__}, one thread")
    for result in results:
        aim = f"aim {result['aim']:g}" if result["aim"] else ""
        print(f"{result['name']:<62} {result['ratio']:7.1f} x   {aim}")


if __name__ == "__main__":
    main()
