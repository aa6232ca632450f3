"""Targets: from a user's arrays to a declared matrix, its working matrix and its slack (MATH 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .intake.container import MAX_AXIS
from .intake.malformed import Malformed
from .intake.target import MAX_MAGNITUDE, DeclaredTarget
from .scalars import parse_epsilon

BUDGET = Fraction(1, 10**7)
# Room that the other checker's enclosures need (docs/certificate-format.md, step 8).
ROOM = Fraction(1, 1 << 70)
GRID = 1 << 80
MAX_SOFTMAX_BITS = 60

Number = Fraction | int | float | str


@dataclass(frozen=True)
class Contribution:
    """One line of the ledger: where slack comes from, and a certified bound of it."""

    source: str
    bound: Fraction


@dataclass(frozen=True)
class Target:
    """A declared matrix A* (m, n), its working matrix N / den, and alpha >= ||A* - N/den||."""

    declared: DeclaredTarget
    N: NDArray[Any]
    ledger: tuple[Contribution, ...]

    @classmethod
    def matrix(cls, A: Any, eps: Number = 0) -> Target:
        """The stored entries of A (m, n): float or integer array, every entry taken exactly.

        ``eps`` is the smallest tolerance in question: entries that do not fit 62 bits over a common
        power of two are rounded, by at most min(1e-8, eps 2^-20) a row; for eps = 0 never.
        Raises ``UserError`` for an array that is not a finite real matrix.
        """
        values = real_matrix(A, "A")
        tolerance = parse_epsilon(eps)
        ratios = [value.as_integer_ratio() for value in values.ravel().tolist()]
        exact = max(bottom for _, bottom in ratios)
        largest = max(abs(top) * (exact // bottom) for top, bottom in ratios)
        den = exact if largest <= MAX_MAGNITUDE or not tolerance else _den(values.shape, tolerance)
        return _complete(
            DeclaredTarget("matrix", _pair(values), min(den, exact), Fraction(0), {"A": values})
        )

    @classmethod
    def fractions(cls, rows: list[list[Fraction]]) -> Target:
        """The exact matrix with these rational entries (fractions, integers, "7/8").

        Raises ``UserError`` for anything else, and beyond 62 bits over the common denominator.
        """
        exact = [
            [_fraction(entry, f"rows[{i}][{j}]") for j, entry in enumerate(row)]
            for i, row in enumerate(rows)
        ]
        if not exact or not exact[0] or len({len(row) for row in exact}) != 1:
            raise UserError("rows is not a non-empty matrix; accepted: m rows of n fractions")
        den = lcm(*(entry.denominator for row in exact for entry in row))
        integers = [[int(entry * den) for entry in row] for row in exact]
        if max(abs(entry) for row in integers for entry in row) > MAX_MAGNITUDE:
            raise UserError(
                "rows: an entry exceeds 2^62 over the common denominator; accepted: smaller ones"
            )
        N = np.array(integers, dtype=np.int64)
        return _complete(DeclaredTarget("matrix", _pair(N), den, Fraction(0), {"N": N}))

    @classmethod
    def logits(cls, H: Any, eps: Number) -> Target:
        """The exact softmax of every row of H (m, n); minus infinity is a mask."""
        values = real_matrix(H, "H", masks=True)
        return _softmax_target("logits", {"H": values}, values, parse_epsilon(eps))

    @classmethod
    def qk(
        cls,
        Q: Any,
        K: Any,
        eps: Number,
        scale: Number = 1,
        over_sqrt: int = 1,
        bias: Any = None,
    ) -> Target:
        """The exact softmax of every row of (scale / sqrt(over_sqrt)) Q K^T + bias.

        Q: (m, d), K: (n, d), bias: (m, n) or None, with minus infinity for masked entries.
        """
        queries, keys = real_matrix(Q, "Q"), real_matrix(K, "K")
        if queries.shape[1] != keys.shape[1]:
            raise UserError(
                f"Q has {queries.shape[1]} columns and K {keys.shape[1]}; accepted: the same number"
            )
        factor = parse_epsilon(scale, "scale")
        if not (type(over_sqrt) is int and 0 < over_sqrt < 1 << 1000):
            raise UserError(f"over_sqrt is {over_sqrt!r}; accepted: an integer, 1 to 2^1000")
        tensors = {"Q": queries, "K": keys}
        with np.errstate(over="ignore", invalid="ignore"):
            logits = float(factor) / float(over_sqrt) ** 0.5 * (queries @ keys.T)
        if bias is not None:
            tensors["bias"] = real_matrix(bias, "bias", masks=True)
            if tensors["bias"].shape != logits.shape:
                raise UserError(f"bias has shape {tensors['bias'].shape}; accepted: {logits.shape}")
            logits = logits + tensors["bias"]
        return _softmax_target("qk", tensors, logits, parse_epsilon(eps), factor, over_sqrt)

    @property
    def object(self) -> str:
        return self.declared.object

    @property
    def shape(self) -> tuple[int, int]:
        return self.declared.shape

    @property
    def den(self) -> int:
        return self.declared.den

    @property
    def alpha(self) -> Fraction:
        return self.declared.alpha

    @property
    def description(self) -> str:
        """The object in words: of which matrix ranks are meant."""
        return {
            "matrix": "stored matrix",
            "logits": "exact softmax of stored logits",
            "qk": "exact softmax of stored Q and K",
        }[self.object]

    @cached_property
    def float_matrix(self) -> NDArray[np.float64]:
        """N / den in float64 (m, n), for searches."""
        if self.N.dtype == np.int64:
            return self.N.astype(np.float64) / float(self.den)
        quotients = [Fraction(entry, self.den) for entry in self.N.ravel().tolist()]
        return np.array([float(q) for q in quotients]).reshape(self.shape)

    def budget(self, eps: Fraction) -> str:
        """alpha against the budget 1e-7: "within", "over" (sound, accounted) or "unusable"."""
        if not self.alpha < eps and self.alpha > 0:
            return "unusable"
        return "within" if self.alpha <= BUDGET else "over"


def _fraction(entry: Any, name: str) -> Fraction:
    try:
        return Fraction(entry)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        raise UserError(f'{name} is {entry!r}; accepted: a finite number such as "7/8"') from None


def real_matrix(array: Any, name: str, masks: bool = False) -> NDArray[np.float64]:
    """A user's array as float64 (m, n), every entry exactly. Raises ``UserError`` otherwise."""
    accepted = "a non-empty matrix of finite real numbers (float16, 32, 64 or integers up to 2^53)"
    if isinstance(array, np.ma.MaskedArray):
        raise UserError(f"{name} is a masked array; accepted: {accepted}")
    try:
        values = np.asarray(array)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{name} is not an array ({error}); accepted: {accepted}") from None
    if values.dtype.kind not in "fiu" or values.dtype.itemsize > 8:
        hint = "; Target.fractions takes fractions" if values.dtype.kind == "O" else ""
        raise UserError(f"{name} has dtype {values.dtype}; accepted: {accepted}{hint}")
    if values.ndim != 2 or not values.size:
        raise UserError(f"{name} has shape {values.shape}; accepted: {accepted}")
    if max(values.shape) > MAX_AXIS:
        raise UserError(
            f"{name} has shape {values.shape}; accepted: at most {MAX_AXIS} by {MAX_AXIS}"
        )
    if values.dtype.kind in "iu" and int(np.abs(values.astype(object)).max()) > 1 << 53:
        raise UserError(f"{name} has an integer over 2^53; accepted: {accepted}")
    exact = np.ascontiguousarray(values, dtype=np.float64)
    allowed = np.isfinite(exact) | (masks & (exact == -np.inf))
    if not np.all(allowed):
        i, j = (int(index) for index in np.argwhere(~allowed)[0])
        extra = ", -inf for masked entries" if masks else ""
        raise UserError(f"{name}[{i}, {j}] is {exact[i, j]}; accepted: finite numbers{extra}")
    if masks and not np.all(np.any(np.isfinite(exact), axis=1)):
        i = int(np.flatnonzero(~np.any(np.isfinite(exact), axis=1))[0])
        raise UserError(f"{name}[{i}] is a fully masked row; accepted: rows with a finite entry")
    return exact


def _pair(array: NDArray[Any]) -> tuple[int, int]:
    m, n = array.shape
    return int(m), int(n)


def _den(shape: tuple[int, ...], eps: Fraction) -> int:
    """The smallest 2^s with n 2^-(s+1) <= min(1e-8, eps 2^-20)."""
    limit = min(Fraction(1, 10**8), eps / (1 << 20))
    return 1 << max(0, ceil(shape[1] / (2 * limit)) - 1).bit_length()


def _softmax_target(
    kind: str,
    tensors: dict[str, NDArray[np.float64]],
    logits: NDArray[np.float64],
    eps: Fraction,
    scale: Fraction = Fraction(1),
    over_sqrt: int = 1,
) -> Target:
    if not np.all(np.isfinite(logits) | (logits == -np.inf)):
        raise UserError("Q K^T overflows float64; accepted: logits below 1e308")
    most = 1 << MAX_SOFTMAX_BITS
    den = min(_den(logits.shape, eps), most) if eps else most
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax = weights / weights.sum(axis=1, keepdims=True)
    stored = {**tensors, "N": np.rint(softmax * float(den)).astype(np.int64)}
    shape = _pair(logits)
    return _complete(DeclaredTarget(kind, shape, den, Fraction(0), stored, scale, over_sqrt))


def _complete(draft: DeclaredTarget) -> Target:
    """The target with alpha, a certified bound rounded up to the grid with room to spare."""
    try:
        draft.check_values()
    except Malformed as error:
        raise UserError(f"{error}; accepted: finite logits") from None
    N = draft.working_matrix()
    distance = draft.distance_bound(N)
    room = distance / (1 << 20) + ROOM if draft.is_softmax else Fraction(0)
    alpha = Fraction(ceil((distance + room) * GRID), GRID)
    names = ("rounding to integers over den",)
    if draft.is_softmax:
        names = ("softmax in float64 and rounding to integers over den",)
    ledger = (
        *([Contribution("logit products (exact)", Fraction(0))] if draft.object == "qk" else []),
        Contribution("storage (entries taken exactly)", Fraction(0)),
        Contribution(names[0], distance),
        Contribution("room for the checkers' enclosures", alpha - distance),
    )
    return Target(replace(draft, alpha=alpha), N, ledger)
