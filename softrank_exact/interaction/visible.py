"""What softmax sees: the visible interaction C = P_m (log A) P_n and its rank (MATH 3.2, 3.3).

The logits of A are known up to additive terms a_i + b_j, which C forgets. They are held as
``unit * (logits + E)`` with a rational matrix, entries |E_ij| <= radius, and a positive real unit;
the radius is zero whenever the object allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, nmod_mat

from ..errors import UserError
from ..targets import Target
from .exact import (
    PRECISION,
    Enclosure,
    ExactMatrix,
    Objects,
    ball,
    ball_enclosure,
    integers,
    product,
    sqrt_enclosure,
    to_flint,
)

_PRIME = (1 << 61) - 1
_LOG_BITS = 256
_EUCLID_BITS = 4096
_ONE = Enclosure.exactly(1)


@dataclass(frozen=True)
class Rank:
    """Proven bounds lower <= rank C <= upper; ``lower_proof``, ``upper_proof`` say by what."""

    lower: int
    upper: int
    lower_proof: str
    upper_proof: str

    @property
    def exact(self) -> bool:
        return self.lower == self.upper

    def __str__(self) -> str:
        return str(self.lower) if self.exact else f"{self.lower}..{self.upper}"


@dataclass(frozen=True)
class VisibleInteraction:
    """log A = unit * (logits + E) + a_i + b_j with |E_ij| <= radius (MATH 3.2).

    ``logits``: m x n, dimensionless. ``unit``: a positive real. ``factors``: None, or exact X
    (m x d), Y (n x d) with logits = X Y^T. ``columns``: the keys in use (the common support).
    ``rank_bound``: an upper bound of rank C, and what proves it.
    """

    logits: ExactMatrix
    radius: Fraction
    unit: Enclosure
    factors: tuple[ExactMatrix, ExactMatrix] | None
    columns: tuple[int, ...]
    rank_bound: tuple[int, str]

    @property
    def shape(self) -> tuple[int, int]:
        return self.logits.shape

    @property
    def exact(self) -> bool:
        """Whether the interaction is known exactly up to its unit."""
        return self.radius == 0

    def centred(self) -> ExactMatrix:
        """C / unit when ``exact``, else its rational midpoint (within 4 radius, entrywise)."""
        return self.logits.doubly_centred()

    def rank(self) -> Rank:
        """Bounds of rank C, equal to each other whenever the object is exact (MATH 3.3)."""
        if self.exact:
            return _exact_rank(self.centred(), self.rank_bound)
        return _enclosed_rank(self)


def visible(target: Target) -> VisibleInteraction:
    """The visible interaction of a target's declared matrix A*.

    ``UserError`` for an entry of a stored matrix that is not positive, and for a mask that depends
    on the row.
    """
    tensors, declared = target.declared.tensors, target.declared
    if target.object == "logits":
        return of_logits(tensors["H"])
    if target.object == "qk":
        bias = tensors.get("bias")
        return of_qk(tensors["Q"], tensors["K"], declared.scale, declared.over_sqrt, bias)
    stored = tensors.get("A")
    if stored is not None:
        return of_matrix(stored)
    return of_matrix(ExactMatrix(tensors["N"].astype(object), declared.den))


def of_logits(H: Any) -> VisibleInteraction:
    """From logits H (m x n, floats or rows of fractions), each entry taken exactly.

    A column that is minus infinity in every row is left out. ``UserError`` for any other mask.
    """
    columns = _common_support(H)
    if isinstance(H, np.ndarray) and len(columns) < H.shape[1]:
        H = H[:, columns]
    logits = ExactMatrix.of(H, "H")
    bound = _shape_bound(*logits.shape)
    return VisibleInteraction(logits, Fraction(0), _ONE, None, columns, bound)


def of_qk(
    Q: Any, K: Any, scale: Fraction = Fraction(1), over_sqrt: int = 1, bias: Any = None
) -> VisibleInteraction:
    """From queries Q (m x d) and keys K (n x d): logits (scale / sqrt(over_sqrt)) Q K^T + bias.

    Exact without a bias, and with one if over_sqrt is a square; else enclosed to 2^-96 relatively.
    """
    X, Y = ExactMatrix.of(Q, "Q"), ExactMatrix.of(K, "K")
    if X.shape[1] != Y.shape[1]:
        raise UserError(f"Q has {X.shape[1]} columns and K {Y.shape[1]}; accepted: equally many")
    if not (scale >= 0 and over_sqrt >= 1):
        raise UserError(
            f"scale is {scale} and over_sqrt {over_sqrt}; accepted: scale >= 0, over_sqrt >= 1"
        )
    products = X @ Y.T
    factor = sqrt_enclosure(scale**2 / over_sqrt)
    if bias is None and scale > 0:
        everything, bound = tuple(range(Y.shape[0])), _factor_bound(X, Y)
        return VisibleInteraction(products, Fraction(0), factor, (X, Y), everything, bound)
    shift = np.zeros(products.shape) if bias is None else np.asarray(bias, dtype=np.float64)
    columns = _common_support(shift)
    selected = np.array(columns)
    products = products.columns(selected)
    logits = products.scaled(factor.lower) + ExactMatrix.of(shift[:, selected], "bias")
    radius = (factor.upper - factor.lower) * products.largest()
    bound = _shape_bound(*logits.shape)
    return VisibleInteraction(logits, radius, _ONE, None, columns, bound)


def of_matrix(A: Any) -> VisibleInteraction:
    """From a positive matrix A (m x n, floats or fractions, each taken exactly).

    Exact if all ratios A_ij A_11 / (A_i1 A_1j) are powers of one rational theta > 1 (then the unit
    is log theta); else logarithms are enclosed to about 2^-256.
    ``UserError`` for an entry that is not positive.
    """
    numerators = ExactMatrix.of(A, "A").numerators
    _require_positive(numerators)
    everything = tuple(range(numerators.shape[1]))
    ratios = _double_ratios(numerators)
    theta = _common_base(set(ratios.ravel()))
    if theta is not None:
        exponent = {x: _exponent(x, theta) for x in set(ratios.ravel())}
        whole = np.array([exponent[x] for x in ratios.ravel()], dtype=object)
        logits = ExactMatrix(whole.reshape(ratios.shape), 1)
        with ctx.workprec(PRECISION):
            unit = ball_enclosure(ball(theta).log())
        bound = _shape_bound(*logits.shape)
        return VisibleInteraction(logits, Fraction(0), unit, None, everything, bound)
    logits, radius = _logarithms(numerators)
    bound = (_distinct_lines(ratios) - 1, "number of rows, or columns, that are not proportional")
    return VisibleInteraction(logits, radius, _ONE, None, everything, bound)


def _common_support(H: Any) -> tuple[int, ...]:
    """The columns of a float array that are not masked; all columns of any other matrix."""
    if not isinstance(H, np.ndarray) or H.dtype.kind != "f" or H.ndim != 2:
        return tuple(range(len(H[0]))) if len(H) else ()
    masked = np.isneginf(H)
    if (masked != masked[:1]).any():
        raise UserError(
            "the logits have a row-dependent mask (a causal mask, for example), and the interaction"
            " needs all queries on the same keys; accepted: a common-support block, that is late"
            " queries against an early prefix of keys (--prefix of a capture)"
        )
    if masked.size and masked.all():
        raise UserError("every key is masked; accepted: at least one finite logit in each row")
    return tuple(int(j) for j in np.flatnonzero(~masked.any(axis=0)))


def _require_positive(numerators: Objects) -> None:
    bad = np.argwhere(numerators <= 0)
    if len(bad):
        i, j = (int(index) for index in bad[0])
        value = "zero" if numerators[i, j] == 0 else "negative"
        raise UserError(
            f"A[{i}, {j}] is {value} and has no logarithm ({len(bad)} such entries; a row-dependent"
            " mask gives zeros); accepted: positive matrices, such as a common-support block, that"
            " is late queries against an early prefix of keys, renormalised (--prefix of a capture)"
        )


def _double_ratios(N: Objects) -> Objects:
    """A_ij A_11 / (A_i1 A_1j): their logarithms are the logits up to additive terms."""
    crossed, divisors = N[0, 0] * N, N[:, :1] * N[:1, :]
    ratios = [Fraction(x, y) for x, y in zip(crossed.ravel(), divisors.ravel(), strict=True)]
    return np.array(ratios, dtype=object).reshape(N.shape)


def _common_base(ratios: set[Fraction]) -> Fraction | None:
    """The largest theta > 1 of which all ratios are powers (2 if all ratios are one).

    None if there is none, or none that Euclid's algorithm on the exponents finds at moderate size.
    """
    base = Fraction(1)
    for ratio in ratios:
        x = max(ratio, 1 / ratio)
        while x != 1:
            if x.numerator.bit_length() + base.numerator.bit_length() > _EUCLID_BITS:
                return None
            base, x = min(base, x), max(base, x) / min(base, x)
            base, x = (x, base) if base == 1 else (base, x)
    return base if base > 1 else Fraction(2)


def _exponent(x: Fraction, theta: Fraction) -> int:
    """k with x = theta^k, where there is one."""
    k = 0
    while x > 1:
        x, k = x / theta, k + 1
    while x < 1:
        x, k = x * theta, k - 1
    return k


def _distinct_lines(ratios: Objects) -> int:
    """The least number of different rows, or columns, of a matrix."""
    return min(len({tuple(line) for line in lines}) for lines in (ratios, ratios.T))


def _logarithms(N: Objects) -> tuple[ExactMatrix, Fraction]:
    """log N rounded to multiples of 2^-LOG_BITS, and a bound of the error."""
    with ctx.workprec(2 * _LOG_BITS):
        balls = [ball(Fraction(x)).log() * (1 << _LOG_BITS) for x in N.ravel()]
        near = [int(x.mid().floor().unique_fmpz()) for x in balls]
        error = max(ball_enclosure(abs(x - k)).upper for x, k in zip(balls, near, strict=True))
    scale = 1 << _LOG_BITS
    return ExactMatrix(np.array(near, dtype=object).reshape(N.shape), scale), error / scale


def _factor_bound(X: ExactMatrix, Y: ExactMatrix) -> tuple[int, str]:
    """rank C <= the ranks of the centred factors, and <= min(m, n) - 1."""
    inner = min(int(to_flint(side.centred_rows().numerators).rank()) for side in (X, Y))
    shape = _shape_bound(X.shape[0], Y.shape[0])
    return min(shape, (inner, "rank of the centred factors"))


def _shape_bound(m: int, n: int) -> tuple[int, str]:
    return min(m, n) - 1, "min(m, n) - 1"


def _exact_rank(C: ExactMatrix, bound: tuple[int, str]) -> Rank:
    """A rank modulo a prime never exceeds the rank, and often meets the structural bound."""
    m, n = C.shape
    residues = [int(x) % _PRIME for x in C.numerators.ravel()]
    lower = int(nmod_mat(m, n, residues, _PRIME).rank())
    if lower == bound[0]:
        return Rank(lower, lower, "rank modulo 2^61 - 1", bound[1])
    rank = int(to_flint(C.numerators).rank())
    return Rank(rank, rank, "exact elimination", "exact elimination")


def _enclosed_rank(interaction: VisibleInteraction) -> Rank:
    upper, proof = interaction.rank_bound
    if upper == min(interaction.shape) - 1 and _full_rank(interaction):
        return Rank(upper, upper, "a minor whose enclosure excludes zero", proof)
    lower = _compressed_rank(interaction)
    return Rank(lower, upper, "a diagonally dominant compression U^T C V", proof)


def _full_rank(interaction: VisibleInteraction) -> bool:
    """Whether the minor F_ij - F_ik - F_kj + F_kk of the leading keys is certainly not zero.

    Such a minor, k the last index, is one of U^T C V for U, V that differences span.
    """
    k = min(interaction.shape) - 1
    if k == 0:
        return True
    F = interaction.logits.numerators[: k + 1, : k + 1]
    anchored = F[:k, :k] - F[:k, k:] - F[k:, :k] + F[k, k]
    error = 4 * interaction.radius * interaction.logits.den
    with ctx.workprec(4 * _LOG_BITS):
        width = ball(error)
        entries = [arb(arb(int(x)), width) for x in anchored.ravel()]
        return not arb_mat(k, k, entries).det().contains(0)


def _compressed_rank(interaction: VisibleInteraction) -> int:
    """The largest leading block of U^T C V, near diagonal by singular vectors U, V, that is
    strictly diagonally dominant for every matrix in the enclosure."""
    C = interaction.centred()
    U, _, Vt = np.linalg.svd(C.floats(), full_matrices=False)
    left, right = integers(U * 2.0**50), integers(Vt.T * 2.0**50)
    block = np.abs(product(product(left.T, C.numerators), right))
    spread = np.outer(np.abs(left).sum(axis=0), np.abs(right).sum(axis=0))
    error = spread * ceil(4 * interaction.radius * C.den)
    upper_row_sums = np.cumsum(block + error, axis=1)
    diagonal = np.diagonal(block)
    rank = 0
    for r in range(1, len(block) + 1):
        sums = upper_row_sums[:r, r - 1] - diagonal[:r]
        if not (diagonal[:r] > sums).all():
            break
        rank = r
    return rank
