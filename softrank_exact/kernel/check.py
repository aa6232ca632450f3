"""The claims about an integer matrix, and what proves them: one class per kind of witness.

Everything here is exact: integer matrices as limbs, scalars as Python integers and fractions.
The question is about the working matrix ``A0 = N / den``, known to be within ``alpha`` of the
declared matrix in the norm || || (largest l1 norm of a row). By MATH 2.1 an upper claim is proven
at ``lo = epsilon - alpha`` and a lower claim at ``hi = epsilon + alpha``.

The normative description, formulas included, is docs/certificate-format.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, gcd, isqrt
from typing import ClassVar, Protocol

import numpy as np

from .limbs import IntArray, Limbs, identity

Shapes = Mapping[str, tuple[str, ...]]
Facets = list[tuple[int, ...]]


class InvalidWitness(ValueError):
    """The arrays are no witness at all; ``code`` is the format's reason code (steps 6b and 7)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Question:
    """The working matrix N / den (N: m x n integers), the tolerance and the slack (both >= 0)."""

    N: Limbs
    den: int
    epsilon: Fraction
    alpha: Fraction

    def __post_init__(self) -> None:
        if type(self.den) is not int or {type(self.epsilon), type(self.alpha)} != {Fraction}:
            raise TypeError("den must be a Python integer, epsilon and alpha fractions")
        if not (self.den > 0 and self.epsilon >= 0 and self.alpha >= 0):
            raise ValueError("den must be positive, epsilon and alpha not negative")

    @property
    def lo(self) -> Fraction:
        return self.epsilon - self.alpha

    @property
    def hi(self) -> Fraction:
        return self.epsilon + self.alpha


@dataclass(frozen=True)
class Finding:
    """What a check found. Only ``code == "ok"`` is a proof.

    ``code``: "ok", "margin" or "basis". The same witness proves the same claim for every tolerance
    e with valid_from <= e (upper), or valid_from <= e < valid_to (lower); None: no end. Of a
    Fantope witness that is T, w and v: the eigenvectors have to be computed anew for another e.
    """

    code: str
    needed: Fraction
    found: Fraction
    margin: Fraction
    valid_from: Fraction | None = None
    valid_to: Fraction | None = None


class Witness(Protocol):
    """What every kind of witness provides.

    ``shapes`` names the arrays and their axes; m, n and rank are given, other names are free.
    """

    kind: ClassVar[str]
    side: ClassVar[str]
    shapes: ClassVar[Shapes]
    scales: ClassVar[tuple[str, ...]]

    def relations(self, axes: Mapping[str, int]) -> bool:
        """Whether the free axes fit the rank."""

    def values(self, axes: Mapping[str, int]) -> None:
        """Raise ``InvalidWitness("value", ...)`` if entries are not allowed."""

    def judge(self, question: Question, rank: int) -> Finding:
        """The verdict on a witness whose shapes and values have been checked."""


def check(question: Question, rank: int, witness: Witness) -> Finding:
    """Does the witness prove ``r <= rank`` (upper) or ``r >= rank`` (lower)?

    Raises ``InvalidWitness`` when shapes or entries make it no witness at all.
    """
    m, n = question.N.shape
    check_values(witness, check_shapes(witness, m, n, rank))
    return witness.judge(question, rank)


def check_shapes(witness: Witness, m: int, n: int, rank: int) -> dict[str, int]:
    """The witness's axes for a claim about an m x n matrix; ``InvalidWitness`` if they clash."""
    if type(rank) is not int:
        raise InvalidWitness("tensors", f"rank {rank!r} is not a Python integer")
    axes = {"m": m, "n": n, "rank": rank}
    for name, pattern in witness.shapes.items():
        array = getattr(witness, name)
        if not _holds_integers(array):
            raise InvalidWitness("tensors", f"{name} is not an array of int64 or Python integers")
        shape = array.shape
        if len(shape) != len(pattern):
            raise InvalidWitness("tensors", f"{name} has {len(shape)} axes, not {len(pattern)}")
        for axis, size in zip(pattern, shape, strict=True):
            if axes.setdefault(axis, size) != size:
                raise InvalidWitness(
                    "tensors", f"{name} has {size} for its axis {axis}, not {axes[axis]}"
                )
    if not witness.relations(axes):
        raise InvalidWitness("tensors", f"axes {axes} do not fit a {witness.kind} claim")
    return axes


def _holds_integers(array: object) -> bool:
    if type(array) is not np.ndarray:
        return False
    return array.dtype == np.int64 or all(type(entry) is int for entry in array.flat)


def check_values(witness: Witness, axes: Mapping[str, int]) -> None:
    """Raise ``InvalidWitness`` unless scales are positive and entries are as the kind asks."""
    for name in witness.scales:
        scale = getattr(witness, name)
        if not (type(scale) is int and scale > 0):
            raise InvalidWitness("value", f"{name} is not a positive Python integer")
    witness.values(axes)


@dataclass(frozen=True)
class Factor:
    """``||A0 - X Y / scale|| <= lo`` proves r <= rank (MATH 4.1). X: m x rank, Y: rank x n."""

    X: IntArray
    Y: IntArray
    scale: int
    kind: ClassVar[str] = "factor"
    side: ClassVar[str] = "upper"
    shapes: ClassVar[Shapes] = {"X": ("m", "rank"), "Y": ("rank", "n")}
    scales: ClassVar[tuple[str, ...]] = ("scale",)

    def relations(self, axes: Mapping[str, int]) -> bool:
        return True

    def values(self, axes: Mapping[str, int]) -> None:
        """Any entries will do."""

    def judge(self, question: Question, rank: int) -> Finding:
        product = Limbs.of(self.X) @ Limbs.of(self.Y)
        shared = gcd(self.scale, question.den)
        error = question.N.times(self.scale // shared) - product.times(question.den // shared)
        found = Fraction(max(error.absolute().sums()), self.scale * question.den // shared)
        margin = question.lo - found
        if not (margin >= 0):
            return Finding("margin", question.lo, found, margin, found + question.alpha)
        return Finding("ok", question.lo, found, margin, found + question.alpha)


@dataclass(frozen=True)
class HilbertSchmidt:
    """Singular tail of diag(d) A0 T against the tolerance (MATH 5.2, checked as 5.6).

    d: m, T: n x q, Q: q x q approximate eigenvectors of the Gram matrix, of norm q_scale.
    """

    d: IntArray
    T: IntArray
    Q: IntArray
    q_scale: int
    kind: ClassVar[str] = "hilbert-schmidt"
    side: ClassVar[str] = "lower"
    shapes: ClassVar[Shapes] = {"d": ("m",), "T": ("n", "q"), "Q": ("q", "q")}
    scales: ClassVar[tuple[str, ...]] = ("q_scale",)

    def relations(self, axes: Mapping[str, int]) -> bool:
        return axes["rank"] >= 1 and axes["q"] >= 1

    def values(self, axes: Mapping[str, int]) -> None:
        if not np.any(self.d):
            raise InvalidWitness("value", "d is zero")
        if not np.any(self.T):
            raise InvalidWitness("value", "T is zero")

    def judge(self, question: Question, rank: int) -> Finding:
        d, T = Limbs.of(self.d), Limbs.of(self.T)
        M = d[:, None] * (question.N @ T)
        try:
            tail = bottom_sum(M.T @ M, Limbs.of(self.Q), self.q_scale, len(self.Q) - (rank - 1))
        except _NotABasis as defect:
            return defect.finding
        weight = sum((d * d).integers())
        unit = weight * max((T * T).sums()) * question.den**2
        needed, found = question.hi**2, tail / unit
        return _lower(question, needed, found, found - needed, _root(found))


class _Reconstruction:
    """What the two mirrors of MATH 5.3 share."""

    side: ClassVar[str] = "lower"
    scales: ClassVar[tuple[str, ...]] = ("g_scale", "xy_scale")

    def relations(self, axes: Mapping[str, int]) -> bool:
        return axes["rank"] >= 1 and axes["c"] == axes["c - rank"] + axes["rank"]


@dataclass(frozen=True)
class Bernstein(_Reconstruction):
    """The identity on c columns is G A0 up to rank c - rank (MATH 5.3).

    columns: c indices, G: c x m over g_scale, X: c x (c - rank), Y: (c - rank) x c over xy_scale.
    """

    columns: IntArray
    G: IntArray
    X: IntArray
    Y: IntArray
    g_scale: int
    xy_scale: int
    kind: ClassVar[str] = "bernstein"
    shapes: ClassVar[Shapes] = {
        "columns": ("c",),
        "G": ("c", "m"),
        "X": ("c", "c - rank"),
        "Y": ("c - rank", "c"),
    }

    def values(self, axes: Mapping[str, int]) -> None:
        _check_increasing(self.columns, axes["n"], "columns")

    def judge(self, question: Question, rank: int) -> Finding:
        G = Limbs.of(self.G)
        image = G @ question.N[:, self.columns]
        h, unit = _residual_sums(self, image, question.den)
        return _reconstructed(question, G.absolute().sums(), self.g_scale, h, unit)


@dataclass(frozen=True)
class BernsteinRows(_Reconstruction):
    """The left mirror of ``Bernstein`` (MATH 5.3): on c rows the identity is A0 G up to that rank.

    rows: c indices, G: n x c over g_scale, X and Y as there.
    """

    rows: IntArray
    G: IntArray
    X: IntArray
    Y: IntArray
    g_scale: int
    xy_scale: int
    kind: ClassVar[str] = "bernstein-rows"
    shapes: ClassVar[Shapes] = {
        "rows": ("c",),
        "G": ("n", "c"),
        "X": ("c", "c - rank"),
        "Y": ("c - rank", "c"),
    }

    def values(self, axes: Mapping[str, int]) -> None:
        _check_increasing(self.rows, axes["m"], "rows")

    def judge(self, question: Question, rank: int) -> Finding:
        G = Limbs.of(self.G)
        image = question.N[self.rows, :] @ G
        h, unit = _residual_sums(self, image, question.den)
        return _reconstructed(question, [max(G.absolute().sums())], self.g_scale, [max(h)], unit)


@dataclass(frozen=True)
class Fantope:
    """Fantope-Bernstein (MATH 5.4): one weighted spectral inequality per column j with T_j != 0.

    T: n x q, w: s x m, v: s x n, Q: s x q x q approximate eigenvectors of H_j, of norm q_scale.
    """

    T: IntArray
    w: IntArray
    v: IntArray
    Q: IntArray
    q_scale: int
    kind: ClassVar[str] = "fantope"
    side: ClassVar[str] = "lower"
    shapes: ClassVar[Shapes] = {
        "T": ("n", "q"),
        "w": ("s", "m"),
        "v": ("s", "n"),
        "Q": ("s", "q", "q"),
    }
    scales: ClassVar[tuple[str, ...]] = ("q_scale",)

    def relations(self, axes: Mapping[str, int]) -> bool:
        return 1 <= axes["rank"] <= axes["q"]

    def support(self) -> list[int]:
        """J: the columns whose row of T is not zero."""
        return [int(j) for j in np.flatnonzero(np.any(self.T != 0, axis=1))]

    def values(self, axes: Mapping[str, int]) -> None:
        if not np.any(self.T):
            raise InvalidWitness("value", "T is zero")
        if axes["s"] != len(self.support()):
            raise InvalidWitness("value", "w, v and Q need one entry per non-zero row of T")
        if np.any(self.w < 0):
            raise InvalidWitness("value", "w has a negative entry")
        if np.any(self.v < 0):
            raise InvalidWitness("value", "v has a negative entry")
        if not np.all(np.any(self.w, axis=1) | np.any(self.v, axis=1)):
            raise InvalidWitness("value", "w and v are zero for a column")

    def judge(self, question: Question, rank: int) -> Finding:
        T, w, v = Limbs.of(self.T), Limbs.of(self.w), Limbs.of(self.v)
        squares = (T * T).sums()
        image, unit = question.N @ T, question.den**2
        w_sums, v_sums = w.sums(), v.sums()
        found, limits = [], []
        for s, j in enumerate(self.support()):
            # Rounding the constant up only weakens the claim (MATH 5.4 subtracts a psd term).
            constant = ceil(question.hi**2 * unit * w_sums[s]) + unit * v_sums[s]
            diagonal = v[s].times(unit) - _unit_vector(len(squares), j).times(constant)
            H = (image.T * w[s]) @ image + (T.T * diagonal) @ T
            try:
                phi = bottom_sum(H, Limbs.of(self.Q[s]), self.q_scale, H.shape[0] - (rank - 1))
            except _NotABasis as defect:
                return defect.finding
            found.append(phi / (unit * max(squares) * (w_sums[s] + v_sums[s])))
            if w_sums[s]:
                # A tolerance e takes (e^2 - hi^2) sum(w) |T_j|^2 den^2 at most from phi.
                limits.append(question.hi**2 + phi / (unit * w_sums[s] * squares[j]))
            elif phi <= 0:
                limits.append(Fraction(0))
        limit = _root(min(limits)) if limits else None
        return _lower(question, Fraction(0), min(found), min(found), limit)


@dataclass(frozen=True)
class Shattering:
    """Bounded values drive rank sums of queries beyond eps, with any signs asked (theory 5.8).

    D: rank x m, in consecutive blocks of the sizes in ``blocks``, then one row for each of
    ``edges`` (e x 2), the edges that are divided (``facets``). Y: r x n, one row for each facet.
    """

    D: IntArray
    blocks: IntArray
    edges: IntArray
    Y: IntArray
    kind: ClassVar[str] = "shattering"
    side: ClassVar[str] = "lower"
    shapes: ClassVar[Shapes] = {
        "D": ("v", "m"),
        "blocks": ("b",),
        "edges": ("e", "ends"),
        "Y": ("r", "n"),
    }
    scales: ClassVar[tuple[str, ...]] = ()

    def relations(self, axes: Mapping[str, int]) -> bool:
        return axes["rank"] >= 1 and axes["v"] == axes["rank"] + axes["e"] and axes["ends"] == 2

    def values(self, axes: Mapping[str, int]) -> None:
        sizes = self.blocks.tolist()
        if not all(size >= 1 for size in sizes):
            raise InvalidWitness("value", "blocks has a size below 1")
        if sum(sizes) != axes["rank"]:
            raise InvalidWitness("value", "the sizes in blocks do not add up to rank")
        if sum(map(len, self.facets(axes["r"]))) < axes["r"]:
            raise InvalidWitness("value", "Y has more rows than there are facets")
        if not np.all(np.any(self.D, axis=1)):
            raise InvalidWitness("value", "D has a zero row")
        if not np.any(self.Y):
            raise InvalidWitness("value", "Y is zero")

    def facets(self, most: int) -> list[Facets]:
        """One of every two opposite facets, block by block: rows of D from 1, with signs.

        At first a block has a facet for each pattern of signs of its rows, the first one's being +1
        (a cross-polytope). An edge (a, b) is divided by its own row of D, w: a facet with a and b
        gives way to one with w for a and one with w for b; likewise -a, -b and -w. Raises
        ``InvalidWitness`` for an edge that is none, and as soon as there are more than ``most``.
        """
        blocks: list[Facets] = []
        rows = count = 0
        for size in self.blocks.tolist():
            facets: Facets = [()]
            for v in range(rows + 1, rows + size + 1):
                facets = [(*f, sign * v) for sign in (1, -1) for f in facets if f or sign > 0]
                if not count + len(facets) <= most:
                    raise InvalidWitness("value", "Y has fewer rows than patterns of signs")
            blocks.append(facets)
            rows, count = rows + size, count + len(facets)
        for w, (a, b) in enumerate(self.edges.tolist(), rows + 1):
            if a == b:
                raise InvalidWitness("value", "an edge has one end only")
            blocks = [[g for f in facets for g in _divided(f, a, b, w)] for facets in blocks]
            before, count = count, sum(map(len, blocks))
            if not before < count <= most:
                raise InvalidWitness("value", "an edge is in no facet, or Y has too few rows")
        return blocks

    def judge(self, question: Question, rank: int) -> Finding:
        D, Y = Limbs.of(self.D), Limbs.of(self.Y)
        Z = np.array((D @ question.N @ Y.T).integers(), dtype=object)
        start, gains, size = 0, np.zeros(len(Z), dtype=object), np.zeros(1, dtype=object)
        for facets in self.facets(len(self.Y)):
            part = np.arange(start, start + len(facets))
            vertices = np.array(facets).T
            rows = np.abs(vertices) - 1
            most = np.abs(Z[:, part]).max(axis=1)
            least = most.copy()
            np.minimum.at(least, rows, np.sign(vertices) * Z[rows, part])
            gains = gains + np.where(np.isin(np.arange(len(Z)), rows), least, -most)
            # Within +-2^62, as Limbs.of has seen; the sum over blocks need not be.
            size = size + np.abs(self.Y[part]).max(axis=0).astype(object)
            start += len(facets)
        unit, weights = question.den * max(size), D.absolute().sums()
        found = min(Fraction(g, unit * weight) for g, weight in zip(gains, weights, strict=True))
        return _lower(question, question.hi, found, found - question.hi, found)


WITNESSES = (Factor, HilbertSchmidt, Bernstein, BernsteinRows, Fantope, Shattering)


def bottom_sum(S: Limbs, Q: Limbs, scale: int, count: int) -> Fraction:
    """A certified lower bound on the sum of the ``count`` smallest eigenvalues of S.

    S: symmetric q x q integers; Q: q x q integers, near to scale times an orthogonal matrix whose
    columns are near to eigenvectors of S. How near decides how good the bound is, never its truth.

    With D = ||Q^T Q - scale^2 I|| < scale^2, Q is invertible and by Ostrowski the i-th smallest
    eigenvalue of M = Q^T S Q is that of S times a factor in [scale^2 - D, scale^2 + D]. With x_i =
    M_ii - sum_{j != i} |M_ij|, M - diag(x) is diagonally dominant, hence psd, so by Weyl the i-th
    smallest eigenvalue of M is at least the i-th smallest x (MATH 5.6).
    """
    q = Q.shape[0]
    square = scale**2
    defect = max((Q.T @ Q - identity(q).times(square)).absolute().sums())
    if not (defect < square):
        raise _NotABasis(Fraction(defect, square))
    M = Q.T @ (S @ Q)
    diagonal = M[np.arange(q), np.arange(q)].integers()
    absolute = M.absolute().sums()
    x = sorted(d + abs(d) - r for d, r in zip(diagonal, absolute, strict=True))[: max(count, 0)]
    positive, negative = sum(e for e in x if e > 0), sum(e for e in x if e < 0)
    return Fraction(positive, square + defect) + Fraction(negative, square - defect)


class _NotABasis(Exception):
    def __init__(self, found: Fraction) -> None:
        super().__init__("Q is too far from orthogonal")
        one = Fraction(1)
        self.finding = Finding("basis", one, found, one - found)


def _lower(
    question: Question, needed: Fraction, found: Fraction, margin: Fraction, limit: Fraction | None
) -> Finding:
    """A lower claim, proven by a positive margin, that holds while e + alpha < limit."""
    valid_to = None if limit is None else max(limit - question.alpha, Fraction(0))
    if not (margin > 0):
        return Finding("margin", needed, found, margin, Fraction(0), valid_to)
    return Finding("ok", needed, found, margin, Fraction(0), valid_to)


def _root(square: Fraction) -> Fraction:
    """The square root, or 0, rounded down to a multiple of 2^-64."""
    grid = 1 << 64
    return Fraction(isqrt(max(0, square.numerator * grid**2 // square.denominator)), grid)


def _check_increasing(indices: IntArray, bound: int, name: str) -> None:
    """A repeated column would make MATH 5.3 false; rows are held to the same form."""
    if not np.all(indices[1:] > indices[:-1]):
        raise InvalidWitness("value", f"{name} is not strictly increasing")
    if not (indices[0] >= 0 and indices[-1] < bound):
        raise InvalidWitness("value", f"{name} has an index outside 0..{bound - 1}")


def _residual_sums(
    witness: Bernstein | BernsteinRows, image: Limbs, den: int
) -> tuple[list[int], int]:
    """Row l1 norms of H = I - image / (g_scale den) - X Y / xy_scale, over a common unit."""
    image_unit = witness.g_scale * den
    unit = image_unit * witness.xy_scale // gcd(image_unit, witness.xy_scale)
    product = Limbs.of(witness.X) @ Limbs.of(witness.Y)
    residual = (
        identity(image.shape[0]).times(unit)
        - image.times(unit // image_unit)
        - product.times(unit // witness.xy_scale)
    )
    return residual.absolute().sums(), unit


def _reconstructed(
    question: Question, g: list[int], g_unit: int, h: list[int], h_unit: int
) -> Finding:
    """hi g_j / g_unit + h_j / h_unit < 1 for every j (MATH 5.3)."""
    needed, hi = Fraction(1), question.hi
    g_factor, h_factor = hi.numerator * h_unit, hi.denominator * g_unit
    largest = max(g_factor * a + h_factor * b for a, b in zip(g, h, strict=True))
    found = Fraction(largest, h_factor * h_unit)
    # A row without G holds at every tolerance or at none.
    limits = [Fraction(h_unit - b, a or 1) for a, b in zip(g, h, strict=True) if a or b >= h_unit]
    limit = min(limits) * g_unit / h_unit if limits else None
    return _lower(question, needed, found, needed - found, limit)


def _divided(facet: tuple[int, ...], a: int, b: int, w: int) -> Facets:
    """The two parts of a facet with the edge (a, b) or (-a, -b); any other as it is."""
    for sign in (1, -1):
        if sign * a in facet and sign * b in facet:
            return [tuple(sign * w if v == sign * end else v for v in facet) for end in (a, b)]
    return [facet]


def _unit_vector(size: int, index: int) -> Limbs:
    vector = np.zeros(size, dtype=np.int64)
    vector[index] = 1
    return Limbs.of(vector)
