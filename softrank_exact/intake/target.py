"""The declared matrix, its working matrix, and the proof of alpha: docs/certificate-format.md, 3.

A declared matrix A* is exact: stored entries, the softmax of stored logits, or the softmax of
stored queries and keys (MATH 2.2). The working matrix is N / den with integers N.
``distance_bound`` bounds ||A* - N/den|| from above, exactly for a matrix, by ball arithmetic for a
softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import frexp, ulp
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq, fmpz, fmpz_mat
from numpy.typing import NDArray

from .malformed import Malformed

MAX_MAGNITUDE = 1 << 62
# Bits beyond those of the largest logit: 160 leave a row's enclosures far narrower than 2^-80.
GUARD_BITS = 160

_FLOATS, _INTEGERS = ("F64", "m", "n"), ("I64", "m", "n")
_QK = {"Q": ("F64", "m", "d"), "K": ("F64", "n", "d"), "N": _INTEGERS}
_VARIANTS = {
    "matrix": ({"A": _FLOATS}, {"N": _INTEGERS}),
    "logits": ({"H": _FLOATS, "N": _INTEGERS},),
    "qk": (_QK, {**_QK, "bias": _FLOATS}),
}


@dataclass(frozen=True)
class DeclaredTarget:
    """What a certificate is about.

    ``object``: "matrix", "logits" or "qk"; ``shape``: (m, n); ``tensors``: float64 or int64 arrays
    by their names in the format; ``scale`` and ``over_sqrt`` matter for "qk" only.
    """

    object: str
    shape: tuple[int, int]
    den: int
    alpha: Fraction
    tensors: Mapping[str, NDArray[Any]]
    scale: Fraction = field(default=Fraction(1))
    over_sqrt: int = 1

    @property
    def is_softmax(self) -> bool:
        """Whether the rows of A* sum to one by definition."""
        return self.object != "matrix"

    def check_tensors(self, dtypes: Mapping[str, str]) -> None:
        """Step 6b: names, types and shapes. Raises ``Malformed``."""
        for variant in _VARIANTS[self.object]:
            if set(variant) == set(self.tensors):
                break
        else:
            raise Malformed("tensors", f"no {self.object} target has {sorted(self.tensors)}")
        axes = {"m": self.shape[0], "n": self.shape[1]}
        for name, (dtype, *pattern) in variant.items():
            shape = self.tensors[name].shape
            if dtypes[name] != dtype:
                raise Malformed("tensors", f"target.{name} is not {dtype}")
            if len(shape) != 2:
                raise Malformed("tensors", f"target.{name} has {len(shape)} axes, not 2")
            sizes = zip(pattern, shape, strict=True)
            if any(axes.setdefault(axis, size) != size for axis, size in sizes):
                raise Malformed("tensors", f"target.{name} has shape {shape}")
        if axes.get("d") == 0:
            raise Malformed("tensors", "target.Q has no columns")

    def check_values(self) -> None:
        """Step 7: finite, masked as allowed, in range. Raises ``Malformed``."""
        for name in ("A", "Q", "K"):
            if name in self.tensors and not np.all(np.isfinite(self.tensors[name])):
                raise Malformed("value", f"target.{name} has an entry that is not finite")
        for name in ("H", "bias"):
            if name in self.tensors:
                finite = np.isfinite(self.tensors[name])
                if not np.all(finite | (self.tensors[name] == -np.inf)):
                    raise Malformed("value", f"target.{name} has NaN or plus infinity")
                if not np.all(np.any(finite, axis=1)):
                    raise Malformed("value", f"target.{name} has a fully masked row")
        if "N" in self.tensors and self.tensors["N"].size:
            low, high = int(self.tensors["N"].min()), int(self.tensors["N"].max())
            if not (low >= -MAX_MAGNITUDE and high <= MAX_MAGNITUDE):
                raise Malformed("value", "target.N has an entry outside +-2^62")

    def working_matrix(self) -> NDArray[Any]:
        """N, m x n: int64 as stored, or Python integers (object) for a stored float matrix."""
        if "A" not in self.tensors:
            return self.tensors["N"]
        return nearest_integers(self.tensors["A"], self.den)

    def distance_bound(self, N: NDArray[Any]) -> Fraction:
        """An upper bound of ||A* - N/den||, N: m x n integers; exact for a matrix.

        Raises ``ArithmeticError`` where subnormal numbers would be read as zeros.
        """
        if not (ulp(0) > 0):
            raise ArithmeticError("subnormal numbers are flushed to zero in this process")
        rows = N.tolist()
        if self.object == "matrix":
            if "A" not in self.tensors:
                return Fraction(0)
            return max(
                _exact_distance(a, row, self.den)
                for a, row in zip(self.tensors["A"].tolist(), rows, strict=True)
            )
        bits = GUARD_BITS + self._magnitude_bits()
        with ctx.workprec(bits):
            return max(
                _softmax_distance(h, row, self.den)
                for h, row in zip(self._logits(), rows, strict=True)
            )

    def _magnitude_bits(self) -> int:
        """Bits before the binary point of the largest logit, at least 0."""
        if self.object == "logits":
            return _bits(self.tensors["H"])
        depth = int(self.tensors["Q"].shape[1]).bit_length()
        product = _bits(self.tensors["Q"]) + _bits(self.tensors["K"]) + depth
        product += int(self.scale.numerator).bit_length()
        bias = self.tensors.get("bias")
        return max(product, 0 if bias is None else _bits(bias)) + 1

    def _logits(self) -> list[list[arb | None]]:
        """Enclosures of the logits; None where masked."""
        if self.object == "logits":
            H = self.tensors["H"].tolist()
            return [[None if h == -np.inf else arb(h) for h in row] for row in H]
        q, q_bits = _scaled_integers(self.tensors["Q"])
        k, k_bits = _scaled_integers(self.tensors["K"])
        dots = (fmpz_mat(q) * fmpz_mat(k).transpose()).tolist()
        scale = fmpq(self.scale.numerator, self.scale.denominator) / fmpq(2) ** (q_bits + k_bits)
        root = arb(self.over_sqrt).sqrt()
        products = [[arb(dot * scale) / root for dot in row] for row in dots]
        if "bias" not in self.tensors:
            return [list(row) for row in products]
        return [
            [None if b == -np.inf else h + arb(b) for h, b in zip(row, biases, strict=True)]
            for row, biases in zip(products, self.tensors["bias"].tolist(), strict=True)
        ]


def nearest_integers(values: NDArray[np.float64], den: int) -> NDArray[Any]:
    """floor(value den + 1/2), exactly, as Python integers; values finite, any shape."""
    ratios = (value.as_integer_ratio() for value in values.ravel().tolist())
    integers = np.empty(values.size, dtype=object)
    integers[:] = [(2 * top * den + bottom) // (2 * bottom) for top, bottom in ratios]
    return integers.reshape(values.shape)


def _exact_distance(a: list[float], row: list[int], den: int) -> Fraction:
    ratios = [value.as_integer_ratio() for value in a]
    unit = max(bottom for _, bottom in ratios)
    total = sum(
        abs(top * (unit // bottom) * den - integer * unit)
        for (top, bottom), integer in zip(ratios, row, strict=True)
    )
    return Fraction(total, unit * den)


def _softmax_distance(logits: list[arb | None], row: list[int], den: int) -> Fraction:
    """An upper bound of the l1 distance between softmax(logits) and row/den."""
    finite = [h for h in logits if h is not None]
    top = max((h.mid() for h in finite), key=lambda mid: mid)
    weights = [arb(0) if h is None else (h - top).exp() for h in logits]
    total = sum(weights, arb(0))
    terms = (abs(w / total - fmpq(integer, den)) for w, integer in zip(weights, row, strict=True))
    # 2^-200 keeps the bound a number of moderate size, whatever the logits.
    bound = sum(terms, arb(fmpq(1, 1 << 200))).upper()
    if not bound.is_finite():
        # The triangle inequality always holds.
        return 1 + Fraction(sum(abs(integer) for integer in row), den)
    mantissa, exponent = bound.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def _bits(values: NDArray[np.float64]) -> int:
    largest = np.abs(values[np.isfinite(values)]).max(initial=0)
    return max(0, frexp(float(largest))[1])


def _scaled_integers(values: NDArray[np.float64]) -> tuple[list[list[fmpz]], int]:
    """(integers, bits) with values = integers / 2^bits exactly."""
    ratios = [[value.as_integer_ratio() for value in row] for row in values.tolist()]
    bits = max(bottom for row in ratios for _, bottom in row).bit_length() - 1
    return [[fmpz(top * ((1 << bits) // bottom)) for top, bottom in row] for row in ratios], bits
