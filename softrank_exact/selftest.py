"""The start-up self-test: does this process multiply integers exactly, and keep subnormals?

The kernel assumes it (docs/trust.md, assumption 3): digits of up to 2^20, multiplied over an inner
dimension of up to 2^12, have partial sums of up to 2^52, which float64 holds exactly and which no
reduced-precision mode does.
"""

from __future__ import annotations

import random
from math import ulp
from operator import mul

import numpy as np

from .kernel.limbs import HALF, MAX_INNER, WIDTH, Limbs

LOW, HIGH = -HALF, HALF - 1


class SelfTestFailure(RuntimeError):
    """The arithmetic of this machine is not what the kernel assumes; nothing it says counts."""


def self_test(size: int = 4, copies: int = 1) -> None:
    """Multiply known integers of two digits each, and compare with Python's integers.

    The factors are (copies size) x 4096 and 4096 x (copies size): ``size`` different rows and
    columns, repeated, so that a large product costs little to know. Row and column 0 are extreme
    throughout, so that digit sums reach 2^52; number 1 alternates the extremes; the others are
    pseudo-random. Raises ``SelfTestFailure`` with the first wrong entry, or where subnormal numbers
    are flushed to zero (a library built for fast mathematics can do that to a whole process).
    """
    if not ulp(0) > 0:
        raise SelfTestFailure(
            "the self-test failed: subnormal numbers are flushed to zero in this process"
        )
    generator = random.Random(size)
    rows = [_vector(i, generator) for i in range(size)]
    columns = [_vector(i, generator) for i in range(size)]
    known = [[sum(map(mul, row, column)) for column in columns] for row in rows]
    product = Limbs.of(np.array(rows * copies)) @ Limbs.of(np.array(columns * copies)).T
    for i, found in enumerate(product.integers()):
        for j, entry in enumerate(found):
            expected = known[i % size][j % size]
            if entry != expected:
                raise SelfTestFailure(
                    f"the BLAS self-test failed: entry ({i}, {j}) of a known integer product is "
                    f"{entry}, not {expected}; this numpy cannot check anything"
                )


def _vector(number: int, generator: random.Random) -> list[int]:
    digits = (_digits(number, k, generator) for k in range(MAX_INNER))
    return [low + (high << WIDTH) for low, high in digits]


def _digits(number: int, k: int, generator: random.Random) -> tuple[int, int]:
    if number == 0:
        return LOW, LOW
    if number == 1:
        return (LOW, HIGH) if k % 2 else (HIGH, LOW)
    return generator.randint(LOW, HIGH), generator.randint(LOW, HIGH)
