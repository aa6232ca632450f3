"""The start-up self-test: does this machine's BLAS multiply integers exactly?

The kernel assumes it (docs/trust.md, assumption A3): products of digits up to 2^20 over an inner
dimension up to 2^12 have partial sums up to 2^52, which float64 holds exactly and which no
reduced-precision mode does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import mul

import numpy as np

from .kernel.limbs import HALF, MAX_INNER, WIDTH, Limbs

QUICK = 4
FULL = 32
LOW, HIGH = -HALF, HALF - 1


class SelfTestFailure(RuntimeError):
    """The arithmetic of this machine is not what the kernel assumes; nothing it says counts."""


def self_test(size: int = QUICK) -> None:
    """Multiply size x 4096 by 4096 x size integers of two digits each, and compare.

    The answer is known from Python integers. Row and column 0 are extreme throughout, so that the
    digit sums reach 2^52; row 1 alternates the extremes, the others are pseudo-random with extreme
    digits among them. Raises ``SelfTestFailure`` with the first wrong entry.
    """
    generator = random.Random(size)
    rows = [_vector(i, generator) for i in range(size)]
    columns = [_vector(i, generator) for i in range(size)]
    found = (Limbs.of(np.array(rows)) @ Limbs.of(np.array(columns)).T).integers()
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            expected = sum(map(mul, row, column))
            if found[i][j] != expected:
                raise SelfTestFailure(
                    f"the BLAS self-test failed: entry ({i}, {j}) of a known integer product is "
                    f"{found[i][j]}, not {expected}; this numpy cannot check anything here"
                )


def _vector(number: int, generator: random.Random) -> list[int]:
    digit: Callable[[int], int] = {
        0: lambda k: LOW,
        1: lambda k: LOW if k % 2 else HIGH,
    }.get(number, lambda k: generator.choice((LOW, HIGH, generator.randint(LOW, HIGH))))
    return [digit(k) + (digit(k) << WIDTH) for k in range(MAX_INNER)]
