"""From float witnesses to integer ones, and to the kernel: where float ends and exact begins.

Each kind is tried at a coarse level first (one limb per entry: cheap to check) and at a fine one if
that fails. Rounding may lose a claim, never make a false one: the kernel judges what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intake.document import Claim
from .kernel.check import (
    Bernstein,
    BernsteinRows,
    Factor,
    Fantope,
    Finding,
    HilbertSchmidt,
    InvalidWitness,
    Question,
    Shattering,
    Witness,
    check,
)
from .kernel.limbs import IntArray, Limbs
from .targets import Target
from .witness import (
    FloatArray,
    FloatBernstein,
    FloatBernsteinRows,
    FloatFactor,
    FloatFantope,
    FloatHS,
    FloatShattering,
    FloatWitness,
)

INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class Level:
    """Bits of the integer entries: weights of rows, spectral T, eigenvectors, everything else."""

    weights: int
    spectral: int
    basis: int
    entries: int


LEVELS = (Level(10, 13, 20, 20), Level(20, 20, 30, 30))


@dataclass(frozen=True)
class Verdict:
    """The kernel's finding on one rounded witness; ``claim`` can go into a certificate."""

    claim: Claim
    finding: Finding

    @property
    def verified(self) -> bool:
        return self.finding.code == "ok"

    @property
    def verdict(self) -> str:
        return "verified" if self.verified else "rejected"


def question(target: Target, eps: Fraction) -> Question:
    """The kernel's view of a target at a tolerance."""
    return Question(Limbs.of(target.N), target.den, eps, target.alpha)


def round_and_check(
    asked: Question, A: FloatArray, witness: FloatWitness | Witness, rank: int
) -> Verdict:
    """Round a witness for a claim of this rank and let the kernel judge it.

    ``asked``: see ``question``; A (m, n): the working matrix in float64. A witness of the kernel's
    own integer types is judged as it is. Raises ``InvalidWitness`` if no integer form is a witness
    at all (entries not finite or too large, axes that do not fit).
    """
    verdict = None
    for rounded in integer_forms(A, asked, witness):
        claim = Claim(rounded.side, rank, rounded.kind, rounded)
        verdict = Verdict(claim, check(asked, rank, rounded))
        if verdict.verified:
            break
    if verdict is None:
        raise InvalidWitness("value", "the witness has entries that do not fit 32-bit integers")
    return verdict


def integer_forms(
    A: FloatArray, asked: Question, witness: FloatWitness | Witness
) -> Iterator[Witness]:
    """The integer witnesses to try, coarse before fine; arguments as in ``round_and_check``."""
    if not isinstance(witness, FloatWitness):
        yield witness
        return
    for name, values in vars(witness).items():
        if isinstance(values, np.ndarray) and not np.all(np.isfinite(values)):
            raise InvalidWitness("value", f"{name} has an entry that is not finite")
    for level in LEVELS:
        try:
            match witness:
                case FloatFactor():
                    yield _factor(witness, level)
                case FloatHS():
                    yield _hilbert_schmidt(A, witness, level)
                case FloatBernstein():
                    G, X, Y, scales = _reconstruction(witness, level)
                    yield Bernstein(witness.columns.astype(np.int64), G, X, Y, *scales)
                case FloatBernsteinRows():
                    G, X, Y, scales = _reconstruction(witness, level)
                    yield BernsteinRows(witness.rows.astype(np.int64), G, X, Y, *scales)
                case FloatFantope():
                    yield _fantope(A, float(asked.hi), witness, level)
                case FloatShattering():
                    D, Y = _rows(witness.D, level.entries), _relative(witness.Y, level.entries)
                    blocks, edges = (a.astype(np.int64) for a in (witness.blocks, witness.edges))
                    yield Shattering(D, blocks, edges, Y)
        except OverflowError:
            continue


def _factor(witness: FloatFactor, level: Level) -> Factor:
    X, Y, scale = _product(witness.X, witness.Y, level.entries)
    return Factor(X, Y, scale)


def _reconstruction(
    witness: FloatBernstein | FloatBernsteinRows, level: Level
) -> tuple[IntArray, IntArray, IntArray, tuple[int, int]]:
    shift = _shift(witness.G, level.entries)
    X, Y, xy_scale = _product(witness.X, witness.Y, level.entries)
    return _integers(witness.G, shift), X, Y, (1 << shift, xy_scale)


def _hilbert_schmidt(A: FloatArray, witness: FloatHS, level: Level) -> HilbertSchmidt:
    d = _relative(np.sqrt(np.maximum(witness.w, 0.0)), level.weights)
    T = _relative(witness.T, level.spectral)
    M = d[:, None] * (A @ T)
    M /= np.abs(M).max(initial=0.0) or 1.0  # their squares may exceed float64
    return HilbertSchmidt(d, T, _basis(M.T @ M, level), 1 << level.basis)


def _fantope(A: FloatArray, hi: float, witness: FloatFantope, level: Level) -> Fantope:
    T = _relative(witness.T, level.entries)
    kept = np.any(T != 0, axis=1)
    were = np.any(witness.T != 0, axis=1)
    weights = np.maximum(np.concatenate([witness.w, witness.v], axis=1), 0.0)[kept[were]]
    top = weights.max(axis=1, keepdims=True)
    integers = np.rint(weights / top * float(1 << level.entries)).astype(np.int64)
    w, v = integers[:, : A.shape[0]], integers[:, A.shape[0] :]
    image = A @ T
    constants = hi**2 * w.sum(axis=1) + v.sum(axis=1)
    H = np.einsum("iq,si,ir->sqr", image, w.astype(np.float64), image, optimize=True)
    H += np.einsum("lq,sl,lr->sqr", T, v.astype(np.float64), T, optimize=True)
    H -= constants[:, None, None] * T[kept, :, None] * T[kept, None, :]
    return Fantope(T, w, v, _basis(H, level), 1 << level.basis)


def _basis(S: FloatArray, level: Level) -> IntArray:
    """Approximate eigenvectors of (a stack of) symmetric S as integers of norm 2^bits."""
    _, vectors = np.linalg.eigh(S)
    return _integers(vectors, level.basis)


def _product(X: FloatArray, Y: FloatArray, bits: int) -> tuple[IntArray, IntArray, int]:
    """Integers and one scale with X Y near to X' Y' / scale, every rank-one term balanced."""
    x, y = np.abs(X).max(axis=0, initial=0.0), np.abs(Y).max(axis=1, initial=0.0)
    balance = np.sqrt(np.divide(y, x, out=np.ones_like(x), where=(x > 0) & (y > 0)))
    X, Y = X * balance, Y / balance[:, None]
    shift = min(_shift(X, bits), _shift(Y, bits))
    return _integers(X, shift), _integers(Y, shift), 1 << (2 * shift)


def _shift(values: FloatArray, bits: int) -> int:
    """The largest s <= 2 bits with |values| 2^s <= 2^bits. Raises ``OverflowError`` below 0."""
    largest = float(np.abs(values).max(initial=0.0))
    shift = bits - frexp(largest)[1] if largest else 0
    if shift < 0:
        raise OverflowError("entries too large for a positive scale")
    return min(shift, 2 * bits)


def _integers(values: FloatArray, shift: int) -> IntArray:
    scaled = np.rint(np.ldexp(values, shift))
    if np.abs(scaled).max(initial=0.0) > INT32:
        raise OverflowError("an entry does not fit 32 bits")
    return scaled.astype(np.int64)


def _rows(values: FloatArray, bits: int) -> IntArray:
    """Integers proportional to every row, the largest of a row near 2^bits in absolute value."""
    _, exponents = np.frexp(np.abs(values).max(axis=1, initial=0.0))
    scaled: FloatArray = np.rint(np.ldexp(values, bits - exponents[:, None]))
    return scaled.astype(np.int64)


def _relative(values: FloatArray, bits: int) -> NDArray[Any]:
    """Integers proportional to values, the largest 2^bits in absolute value."""
    largest = float(np.abs(values).max(initial=0.0))
    if not largest:
        raise InvalidWitness("value", "a witness array is zero")
    return np.rint(values / largest * float(1 << bits)).astype(np.int64)
