"""The second checker, on certificates built here by hand (see docs/certificate-format.md)."""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact import minicheck
from softrank_exact.minicheck import Verdict, check_bytes

SCRIPT = Path(minicheck.__file__)
LETTER = {"F64": "d", "I32": "i", "I64": "q"}
INF = math.inf
Rows = Sequence[Sequence[Any]]

# --------------------------------------------------------------------------------- the builder


def hexadecimal(value: int | Fraction) -> str:
    value = Fraction(value)
    return f"{value.numerator:#x}/{value.denominator:#x}"


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass
class Draft:
    """A certificate before it is written: metadata, and (dtype, shape, flat values) by name."""

    meta: dict[str, Any]
    tensors: dict[str, tuple[str, list[int], list[Any]]]

    @property
    def target(self) -> dict[str, Any]:
        return self.meta["target"]

    @property
    def claims(self) -> list[dict[str, Any]]:
        return self.meta["claims"]

    def put(self, name: str, dtype: str, values: Any) -> Draft:
        array = np.array(values, dtype=object)
        self.tensors[name] = (dtype, list(array.shape), array.ravel().tolist())
        return self

    def claim(self, side: str, kind: str, rank: int, params: Any = None, **tensors: Any) -> Draft:
        number = len(self.claims)
        texts = {name: f"{value:#x}" for name, value in (params or {}).items()}
        self.claims.append({"side": side, "kind": kind, "rank": rank, "params": texts})
        for name, values in tensors.items():
            self.put(f"claim{number}.{name}", "I32", values)
        return self

    def raw(self) -> dict[str, bytes]:
        return {
            name: struct.pack(f"<{len(values)}{LETTER[dtype]}", *values)
            for name, (dtype, _, values) in self.tensors.items()
        }

    def digest(self) -> str:
        raw = self.raw()
        return hashlib.sha256(
            b"".join(raw[name] for name in sorted(raw) if name.startswith("target."))
        ).hexdigest()

    def header(self) -> dict[str, Any]:
        """The header's object, with the hash filled in unless the metadata already has one."""
        meta = copy.deepcopy(self.meta)
        if isinstance(meta["target"], dict):
            meta["target"].setdefault("sha256", self.digest())
        header: dict[str, Any] = {"__metadata__": {"softrank": canonical(meta)}}
        position = 0
        for name, data in sorted(self.raw().items()):
            dtype, shape, _ = self.tensors[name]
            offsets = [position, position + len(data)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            position += len(data)
        return header

    def data(self) -> bytes:
        raw = self.raw()
        return b"".join(raw[name] for name in sorted(raw))

    def bytes(self) -> bytes:
        return pack(canonical(self.header()).encode(), self.data())


def pack(header: bytes, data: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def draft(
    object_: str, shape: tuple[int, int], den: int, epsilon: Any, alpha: Any = 0, **extra: str
) -> Draft:
    target = {
        "object": object_,
        "shape": list(shape),
        "den": f"{den:#x}",
        "alpha": hexadecimal(alpha),
        **extra,
    }
    meta = {
        "format": "softrank-certificate-1",
        "norm": "max-row-l1",
        "class": "any",
        "epsilon": hexadecimal(epsilon),
        "provenance": {"by": "hand \u00e9"},
        "target": target,
        "claims": [],
    }
    return Draft(meta, {})


def integers(matrix: Rows, den: int, epsilon: Any) -> Draft:
    """A draft about the exact matrix `matrix` / den."""
    shape = (len(matrix), len(matrix[0]))
    return draft("matrix", shape, den, epsilon).put("target.N", "I64", matrix)


def one(made: Draft) -> Verdict:
    (verdict,) = check_bytes(made.bytes())
    return verdict


def codes(data: bytes) -> list[tuple[str, str]]:
    return [(verdict.verdict, verdict.code) for verdict in check_bytes(data)]


def malformed(data: bytes) -> str:
    (verdict,) = check_bytes(data)
    assert verdict.verdict == "malformed"
    assert (verdict.side, verdict.rank, verdict.kind) == (None, None, None)
    assert (verdict.needed, verdict.found, verdict.margin) == (None, None, None)
    return verdict.code


# ------------------------------------------------------------------ the two-bit oracle (MATH 9.1)

CHI = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], dtype=object)
CELLS = [
    ("3/4", "1/2", "1/4", 4),
    ("3/4", "1/2", "3/8", 3),
    ("3/4", "1/2", "1/2", 2),
    ("3/4", "1/2", "3/4", 1),
    ("3/4", "3/4", "5/8", 3),
    ("3/4", "3/4", "3/4", 1),
    ("3/4", "3/4", "9/16", 3),
]


def spectral(values: Sequence[Fraction]) -> Rows:
    """The matrix with eigenvalue values[a] on the character chi_a."""
    return sum(value * np.outer(chi, chi) for value, chi in zip(values, CHI, strict=True)) / 4


def over_common(matrix: Any) -> tuple[Any, int]:
    array = np.array(matrix, dtype=object)
    den = math.lcm(*(Fraction(x).denominator for x in array.ravel()))
    return np.vectorize(lambda x: int(x * den), otypes=[object])(array), den


def thresholds(t: Fraction, s: Fraction) -> list[Fraction]:
    """d_0, d_1, ..., d_4 of the two-bit matrix."""
    return [Fraction(1), t, s, t * s, Fraction(0)]


def two_bit(t: Fraction, s: Fraction, epsilon: Any) -> Draft:
    return integers(*over_common(spectral([Fraction(1), t, s, t * s])), epsilon)


def add_upper(made: Draft, t: Fraction, s: Fraction, rank: int) -> Draft:
    if rank == 4:
        return made.claim("upper", "trivial", 4)
    if rank == 1:
        value = ((1 - t) * (1 + s) + (1 + t) * (1 - s)) / 8
        left, right, scale = [[1]] * 4, [[value.numerator] * 4], value.denominator
    else:
        weights = [Fraction(1), t, s][:rank]
        right, den = over_common([w * chi for w, chi in zip(weights, CHI, strict=False)])
        left, scale = CHI[:rank].T, 4 * den
    return made.claim("upper", "factor", rank, {"scale": scale}, X=left, Y=right)


def inverse_part(t: Fraction, s: Fraction, rank: int) -> tuple[Any, Any]:
    """The decoder G of MATH 9.1 for rank 2, 3 or 4, and the eigenvalues of I - G A."""
    values = [Fraction(1), t, s, t * s]
    decoder = [1 / value for value in values[:rank]] + [Fraction(0)] * (4 - rank)
    if rank == 3:
        decoder[3] = 1 + 1 / t - 1 / s
    return spectral(decoder), [1 - g * a for g, a in zip(decoder, values, strict=True)]


def add_lower(made: Draft, t: Fraction, s: Fraction, rank: int, kind: str = "bernstein") -> Draft:
    if rank == 1:
        tensors = {"d": [1, 0, 0, 0], "T": [[1]] * 4, "Q": [[1]]}
        return made.claim("lower", "hilbert-schmidt", 1, {"q_scale": 1}, **tensors)
    decoder, removed = inverse_part(t, s, rank)
    decoder, g_scale = over_common(decoder)
    left, xy_scale = over_common([[value / 4 for value in removed[rank:]]] * 4)
    left = left * CHI[rank:].T
    index = "columns" if kind == "bernstein" else "rows"
    tensors = {index: [0, 1, 2, 3], "G": decoder, "X": left, "Y": CHI[rank:]}
    params = {"g_scale": g_scale, "xy_scale": xy_scale}
    return made.claim("lower", kind, rank, params, **tensors)


@pytest.mark.parametrize(("t", "s", "epsilon", "rank"), CELLS)
def test_two_bit_cells(t: str, s: str, epsilon: str, rank: int) -> None:
    pair = Fraction(t), Fraction(s)
    upper = one(add_upper(two_bit(*pair, epsilon), *pair, rank))
    assert (upper.verdict, upper.code, upper.side, upper.rank) == ("verified", "ok", "upper", rank)
    lower = one(add_lower(two_bit(*pair, epsilon), *pair, rank))
    assert (lower.verdict, lower.code, lower.side, lower.rank) == ("verified", "ok", "lower", rank)
    if rank < 4:
        assert upper.needed == Fraction(epsilon)
        assert upper.found == thresholds(*pair)[rank]
    if rank > 1:
        assert lower.found == Fraction(epsilon) / thresholds(*pair)[rank - 1]
    assert lower.margin > 0


@pytest.mark.parametrize(("t", "s", "epsilon", "rank"), CELLS)
def test_two_bit_cells_are_exact(t: str, s: str, epsilon: str, rank: int) -> None:
    pair = Fraction(t), Fraction(s)
    made = two_bit(*pair, epsilon)
    add_upper(made, *pair, rank)
    add_lower(made, *pair, rank)
    beyond = []
    if rank < 4:
        add_lower(made, *pair, rank + 1)
        beyond.append(Fraction(epsilon) / thresholds(*pair)[rank])
    if rank > 1:
        add_upper(made, *pair, rank - 1)
        beyond.append(thresholds(*pair)[rank - 1])
    verdicts = check_bytes(made.bytes())
    assert [v.verdict for v in verdicts] == ["verified"] * 2 + ["refuted"] * len(beyond)
    assert [v.found for v in verdicts[2:]] == beyond
    assert {v.code for v in verdicts[2:]} == {"margin"}
    assert minicheck.exit_code(verdicts) == 1


def test_margin_zero_suffices_above_and_not_below() -> None:
    pair = Fraction(3, 4), Fraction(1, 2)
    upper = one(add_upper(two_bit(*pair, "1/2"), *pair, 2))
    lower = one(add_lower(two_bit(*pair, "1/2"), *pair, 3))
    assert (upper.margin, upper.verdict) == (0, "verified")
    assert (lower.margin, lower.verdict) == (0, "rejected")


def test_published_figures_at_five_eighths() -> None:
    pair = Fraction(3, 4), Fraction(3, 4)
    lower = one(add_lower(two_bit(*pair, "5/8"), *pair, 3))
    upper = one(add_upper(two_bit(*pair, "5/8"), *pair, 3))
    assert (lower.margin, upper.found) == (Fraction(1, 6), Fraction(9, 16))
    # Frobenius: d uniform, T = I, Q the characters; the squared tail 225/1024 is short of 25/64.
    tensors = {"d": [1] * 4, "T": np.eye(4, dtype=int), "Q": CHI.T}
    frobenius = two_bit(*pair, "5/8")
    frobenius.claim("lower", "hilbert-schmidt", 3, {"q_scale": 2}, **tensors)
    verdict = one(frobenius)
    assert (verdict.needed, verdict.found) == (Fraction(25, 64), Fraction(225, 1024))
    assert verdict.verdict == "rejected"


# -------------------------------------------------------------------------- one kind at a time

PAIR = Fraction(3, 4), Fraction(1, 2)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1)])
def test_trivial_for_a_matrix(shape: tuple[int, int]) -> None:
    least = min(shape)
    made = integers(np.ones(shape, dtype=int), 1, "1/2")
    for rank in range(least + 1):
        made.claim("upper", "trivial", rank).claim("lower", "trivial", rank)
    for verdict in check_bytes(made.bytes()):
        sound = verdict.rank == (least if verdict.side == "upper" else 0)
        assert (verdict.verdict == "verified") is sound
        assert verdict.margin == (
            verdict.rank - least if verdict.side == "upper" else 1 - verdict.rank
        )


@pytest.mark.parametrize(
    ("epsilon", "upper", "lower"),
    [("0/1", 2, 1), (Fraction(2**70 - 1, 2**70), 2, 1), ("1/1", 0, 0), ("5/4", 0, 0)],
)
def test_trivial_for_a_softmax(epsilon: Any, upper: int, lower: int) -> None:
    made = draft("logits", (2, 2), 2, epsilon, Fraction(1, 2**70))
    made.put("target.H", "F64", [[0.0, 0.0]] * 2).put("target.N", "I64", [[1, 1]] * 2)
    for rank in range(3):
        made.claim("upper", "trivial", rank).claim("lower", "trivial", rank)
    for verdict in check_bytes(made.bytes()):
        assert verdict.rank is not None
        sound = verdict.rank >= upper if verdict.side == "upper" else verdict.rank <= lower
        assert (verdict.verdict == "verified") is sound


def test_only_a_softmax_has_rank_zero_from_epsilon_one_on() -> None:
    made = integers([[5]], 1, 2).claim("upper", "trivial", 0)
    assert codes(made.bytes()) == [("rejected", "margin")]


def test_factor_charges_alpha_and_counts_every_entry() -> None:
    # A* = 1/3 stored as a float is within alpha of 1/3; the witness is off by 1/12 per entry.
    third = 1 / 3
    made = draft("matrix", (1, 2), 3, "1/5", Fraction(1, 30)).put("target.A", "F64", [[third] * 2])
    made.claim("upper", "factor", 1, {"scale": 4}, X=[[1]], Y=[[1, 1]])
    verdict = one(made)
    assert verdict.needed == Fraction(1, 6) == verdict.found
    assert (verdict.verdict, verdict.margin) == ("verified", 0)
    made.meta["epsilon"] = hexadecimal(Fraction(1, 5) - Fraction(1, 2**200))
    assert codes(made.bytes()) == [("rejected", "margin")]


def test_factor_of_rank_zero() -> None:
    made = integers([[1, -2], [3, 0]], 1, 3)
    made.claim("upper", "factor", 0, {"scale": 1})
    made.tensors["claim0.X"] = ("I32", [2, 0], [])
    made.tensors["claim0.Y"] = ("I32", [0, 2], [])
    verdict = one(made)
    assert (verdict.verdict, verdict.found) == ("verified", 3)
    made.meta["epsilon"] = hexadecimal(Fraction(29, 10))
    assert one(made).verdict == "rejected"


def test_epsilon_below_alpha_never_verifies_a_factor() -> None:
    made = draft("matrix", (1, 1), 1, "1/8", "1/4").put("target.N", "I64", [[1]])
    verdict = one(made.claim("upper", "factor", 1, {"scale": 1}, X=[[1]], Y=[[1]]))
    assert (verdict.verdict, verdict.margin) == ("rejected", Fraction(-1, 8))


def test_hilbert_schmidt_by_hand() -> None:
    # M = diag(1, -2) N = [[3, 0], [0, -4]]: squared singular values 9 and 16, S = 5, t = 1.
    made = integers([[3, 0], [0, 2]], 1, 1)
    tensors = {"d": [1, -2], "T": [[1, 0], [0, 1]], "Q": [[1, 0], [0, 1]]}
    made.claim("lower", "hilbert-schmidt", 1, {"q_scale": 1}, **tensors)
    made.claim("lower", "hilbert-schmidt", 2, {"q_scale": 1}, **tensors)
    first, second = check_bytes(made.bytes())
    assert (first.needed, first.found, first.verdict) == (1, 5, "verified")
    assert (second.needed, second.found, second.verdict) == (1, Fraction(9, 5), "verified")
    made.meta["epsilon"] = hexadecimal(Fraction(3, 2))
    assert [v.verdict for v in check_bytes(made.bytes())] == ["verified", "rejected"]


def test_hilbert_schmidt_beyond_its_test_columns_proves_nothing() -> None:
    made = integers([[3, 0], [0, 2]], 1, 0)
    tensors = {"d": [1, 1], "T": [[1], [0]], "Q": [[1]]}
    verdict = one(made.claim("lower", "hilbert-schmidt", 2, {"q_scale": 1}, **tensors))
    assert (verdict.verdict, verdict.found, verdict.margin) == ("rejected", 0, 0)


def test_bottom_sum_with_an_inexact_basis() -> None:
    # Q^T Q = [[101, 30], [30, 104]], scale 10: D = 34; M = Q^T S Q with S = diag(1, 100).
    made = integers([[1, 0], [0, 10]], 1, 0)
    tensors = {"d": [1, 1], "T": [[1, 0], [0, 1]], "Q": [[10, 2], [1, 10]]}
    made.claim("lower", "hilbert-schmidt", 1, {"q_scale": 10}, **tensors)
    made.claim("lower", "hilbert-schmidt", 2, {"q_scale": 10}, **tensors)
    whole, smallest = check_bytes(made.bytes())
    # M = [[200, 1020], [1020, 10004]]: x = (-820, 8984).
    bottom = Fraction(-820, 100 - 34)
    assert smallest.found == bottom / 2
    assert whole.found == (Fraction(8984, 134) + bottom) / 2


@pytest.mark.parametrize("q_scale", [1, 7, 15, 1000])
def test_a_basis_far_from_orthogonal_is_refused(q_scale: int) -> None:
    made = integers([[1, 0], [0, 1]], 1, 0)
    tensors = {"d": [1, 1], "T": [[1, 0], [0, 1]], "Q": [[10, 0], [0, 10]]}
    verdict = one(made.claim("lower", "hilbert-schmidt", 1, {"q_scale": q_scale}, **tensors))
    defect = Fraction(abs(100 - q_scale**2), q_scale**2)
    expected = "verified" if defect < 1 else "basis"
    assert (verdict.code if verdict.code == "basis" else verdict.verdict) == expected
    if expected == "basis":
        assert (verdict.needed, verdict.found, verdict.margin) == (1, defect, 1 - defect)


def test_a_singular_basis_is_refused() -> None:
    made = integers([[1, 0], [0, 1]], 1, 0)
    tensors = {"d": [1, 1], "T": [[1, 0], [0, 1]], "Q": [[1, 0], [0, 0]]}
    verdict = one(made.claim("lower", "hilbert-schmidt", 2, {"q_scale": 1}, **tensors))
    assert (verdict.verdict, verdict.code, verdict.found) == ("rejected", "basis", 1)


@pytest.mark.parametrize("kind", ["bernstein", "bernstein-rows"])
@pytest.mark.parametrize(("epsilon", "verdict"), [("3/8", "verified"), ("1/2", "rejected")])
def test_bernstein(kind: str, epsilon: str, verdict: str) -> None:
    found = one(add_lower(two_bit(*PAIR, epsilon), *PAIR, 3, kind))
    assert (found.kind, found.verdict) == (kind, verdict)
    assert found.found == 2 * Fraction(epsilon)


@pytest.mark.parametrize("kind", ["bernstein", "bernstein-rows"])
def test_bernstein_on_a_selection_with_a_residual(kind: str) -> None:
    matrix = np.array([[0, 8], [3, 0], [0, 1]], dtype=object)
    chosen = {"columns": [1]} if kind == "bernstein" else {"rows": [0]}
    decoder = [[7, 0, 0]] if kind == "bernstein" else [[0], [7]]
    made = integers(matrix, 8, "1/8")
    made.claim("lower", kind, 1, {"g_scale": 8, "xy_scale": 5}, G=decoder, **chosen)
    made.tensors["claim0.X"] = ("I32", [1, 0], [])
    made.tensors["claim0.Y"] = ("I32", [0, 1], [])
    # G A_C = 7/8, so H = 1/8 and found = 1/8 * 7/8 + 1/8.
    verdict = one(made)
    assert (verdict.verdict, verdict.found) == ("verified", Fraction(15, 64))


def test_bernstein_norms_are_per_row_on_the_left_and_global_on_the_right() -> None:
    left = integers([[4, 0], [0, 1]], 4, "1/8")
    tensors = {"G": [[1, 0], [0, 2]], "X": np.empty((2, 0)), "Y": np.empty((0, 2))}
    scales = {"g_scale": 1, "xy_scale": 1}
    left.claim("lower", "bernstein", 2, scales, columns=[0, 1], **tensors)
    left.claim("lower", "bernstein-rows", 2, scales, rows=[0, 1], **tensors)
    per_row, overall = check_bytes(left.bytes())
    assert per_row.found == overall.found == Fraction(2, 8) + Fraction(1, 2)
    left.tensors["claim0.G"] = left.tensors["claim1.G"] = ("I32", [2, 2], [3, 0, 0, 4])
    per_row, overall = check_bytes(left.bytes())
    # Rows of (G, H): (3, 2) and (4, 0): per row max(3/8 + 2, 4/8), overall 4/8 + 2.
    assert (per_row.found, overall.found) == (Fraction(19, 8), Fraction(5, 2))


def eigenbasis(form: np.ndarray) -> Any:
    return np.rint(np.linalg.eigh(form)[1] * 2**20).astype(int)


def add_fantope(made: Draft, t: Fraction, s: Fraction, epsilon: float) -> Draft:
    """Rank 3 by weights near |G_j| of the Bernstein certificate on span{1, chi_1, chi_2}."""
    decoder, _ = inverse_part(t, s, 3)
    weights = np.array(abs(decoder) * 1000, dtype=float).astype(int) + 1
    test = CHI[:3].T.astype(int)
    matrix = np.array(spectral([Fraction(1), t, s, t * s]), dtype=float)
    bases = []
    for j, w in enumerate(weights):
        form = matrix.T @ np.diag(w) @ matrix
        form[j, j] -= epsilon**2 * w.sum()
        bases.append(eigenbasis(test.T @ form @ test))
    tensors = {"T": test, "w": weights, "v": np.zeros((4, 4), dtype=int), "Q": bases}
    return made.claim("lower", "fantope", 3, {"q_scale": 2**20}, **tensors)


@pytest.mark.parametrize(("epsilon", "verdict"), [("3/8", "verified"), ("1/2", "rejected")])
def test_fantope(epsilon: str, verdict: str) -> None:
    made = add_fantope(two_bit(*PAIR, epsilon), *PAIR, float(Fraction(epsilon)))
    found = one(made)
    assert (found.verdict, found.code) == (verdict, "ok" if verdict == "verified" else "margin")
    assert found.needed == 0


def test_fantope_by_hand() -> None:
    # One row of T is zero; J = (0, 2). N T = (3, 4)^T, den = 2, hi = 1/3.
    made = integers([[3, 5, 0], [0, 0, 2]], 2, "1/3")
    tensors = {
        "T": [[1], [0], [2]],
        "w": [[1, 0], [2, 1]],
        "v": [[0, 0, 0], [0, 0, 1]],
        "Q": [[[3]], [[3]]],
    }
    verdict = one(made.claim("lower", "fantope", 1, {"q_scale": 3}, **tensors))
    # j = 0: H = 9 - ceil(4/9) = 8, weights 1. j = 2: 2 * 9 + 16 + 4 * 4 - (ceil(12/9) + 4) * 4.
    assert verdict.found == min(Fraction(8, 1), Fraction(18 + 16 + 16 - 24, 4)) / (4 * 4)
    assert verdict.verdict == "verified"
    made.tensors["claim0.Q"] = ("I32", [2, 1, 1], [3, 5])
    verdict = one(made)
    assert (verdict.code, verdict.found) == ("basis", Fraction(16, 9))
    made.tensors["claim0.Q"] = ("I32", [2, 1, 1], [0, 5])
    assert one(made).found == 1


def test_fantope_on_a_single_row() -> None:
    made = integers([[3, 5]], 1, 1)
    tensors = {"T": [[0], [1]], "w": [[1]], "v": [[0, 0]], "Q": [[[1]]]}
    verdict = one(made.claim("lower", "fantope", 1, {"q_scale": 1}, **tensors))
    assert (verdict.verdict, verdict.found) == ("verified", 24)


def test_fantope_takes_the_count_of_the_rank() -> None:
    # H_j = diag(9, 4) - c e_j e_j^T with c = 1 for both rows: the sums of the smallest are known.
    made = integers([[3, 0], [0, 2]], 1, "1/2")
    tensors = {
        "T": [[1, 0], [0, 1]],
        "w": [[1, 1], [1, 1]],
        "v": [[0, 0], [0, 0]],
        "Q": [[[1, 0], [0, 1]]] * 2,
    }
    made.claim("lower", "fantope", 1, {"q_scale": 1}, **tensors)
    made.claim("lower", "fantope", 2, {"q_scale": 1}, **tensors)
    first, second = check_bytes(made.bytes())
    assert (first.found, second.found) == (Fraction(12, 2), Fraction(3, 2))


def test_shattering_by_hand() -> None:
    made = integers([[3, 0, 1], [0, 2, 1]], 2, "1/9")
    tensors = {"D": [[1, 0], [0, 1]], "blocks": [2], "Y": [[2, 1, -1], [2, -1, 1]]}
    whole = np.zeros((0, 2), dtype=object)
    # One block of two queries: Z = D N Y^T = [[5, 7], [1, -1]], u = 2, den = 2.
    verdict = one(made.claim("lower", "shattering", 2, {}, edges=whole, **tensors))
    assert (verdict.verdict, verdict.found) == ("verified", Fraction(1, 4))
    # Two blocks of one: both lose the other's output; u = 2 + 1 in the first column.
    made = integers([[3, 0, 1], [0, 2, 1]], 2, "1/9")
    tensors = {"D": [[-1, 0], [0, 2]], "blocks": [1, 1], "Y": [[-2, 0, 0], [1, 2, 0]]}
    # Z = [[6, -3], [0, 8]]: g = (6 - 3, 8 - 0), ||D_i|| = (1, 2).
    verdict = one(made.claim("lower", "shattering", 2, {}, edges=whole, **tensors))
    assert (verdict.verdict, verdict.found) == ("verified", min(Fraction(3, 6), Fraction(8, 12)))
    # The edge (1, -2) divided by row 3: the facets (1, 2), (3, -2), (1, 3).
    made = integers([[3, 0, 1], [0, 2, 1]], 2, "1/9")
    tensors = {"D": [[1, 0], [0, 1], [1, -1]], "blocks": [2], "edges": [[1, -2]]}
    tensors["Y"] = [[2, 1, 1], [1, -2, 0], [2, -1, 0]]
    # Z = [[7, 3, 6], [3, -4, -2], [4, 7, 8]]: g = (6, 3, 7), ||D_i|| = (1, 1, 2), u = 2, den = 2.
    verdict = one(made.claim("lower", "shattering", 2, {}, **tensors))
    assert (verdict.verdict, verdict.found) == ("verified", Fraction(3, 4))


def test_two_verified_claims_that_contradict_each_other() -> None:
    def verdict(side: str, rank: int, result: str = "verified") -> Verdict:
        return Verdict(side, rank, "trivial", result, "ok", None, None, None)

    assert minicheck.exit_code([verdict("upper", 2), verdict("lower", 3)]) == 70
    assert minicheck.exit_code([verdict("upper", 2), verdict("lower", 2)]) == 0
    assert minicheck.exit_code([verdict("upper", 2), verdict("lower", 3, "rejected")]) == 1
    assert minicheck.exit_code([]) == 1


# ------------------------------------------------------------------------- softmax enclosures

TINY = 5e-324


def softmax_truth(logits: Sequence[Sequence[Any]], den: int) -> tuple[list[list[int]], Fraction]:
    """N nearest to the softmax of exact logits (mpmath, None for a mask), and the distance."""
    nearest, worst = [], Fraction(0)
    with mpmath.workprec(400):
        for row in logits:
            top = max(x for x in row if x is not None)
            weights = [0 if x is None else mpmath.exp(exact(x - top)) for x in row]
            total = mpmath.fsum(weights)
            entries = [weight / total for weight in weights]
            rounded = [int(mpmath.nint(entry * den)) for entry in entries]
            off = l1_distance(entries, [mpmath.mpf(k) / den for k in rounded])
            worst = max(worst, Fraction(int(off * 2**300), 2**300))
            nearest.append(rounded)
    return nearest, worst


def l1_distance(row: Sequence[Any], other: Sequence[Any]) -> Any:
    return mpmath.fsum(abs(a - b) for a, b in zip(row, other, strict=True))


def exact(x: Any) -> Any:
    if isinstance(x, Fraction):
        return mpmath.mpf(x.numerator) / x.denominator
    return mpmath.mpf(x)


def judge_distance(made: Draft, logits: Sequence[Sequence[Any]], den: int) -> None:
    """Alpha just above the true distance verifies, just below does not, and found is close."""
    matrix, truth = softmax_truth(logits, den)
    made.target["den"] = f"{den:#x}"
    made.put("target.N", "I64", matrix).claim("lower", "trivial", 1)
    grid = 2**100
    above = Fraction(math.ceil((truth + Fraction(1, 2**80)) * grid), grid)
    below = Fraction(math.floor((truth - Fraction(1, 2**80)) * grid), grid)
    made.target["alpha"] = hexadecimal(above)
    assert codes(made.bytes()) == [("verified", "ok")]
    made.target["alpha"] = hexadecimal(max(below, Fraction(0)))
    verdict = one(made)
    assert (verdict.verdict, verdict.code) == ("rejected", "alpha")
    assert verdict.found is not None
    assert truth - Fraction(1, 2**200) <= verdict.found <= truth + Fraction(1, 2**80)
    assert (verdict.needed, verdict.margin) == (max(below, 0), max(below, 0) - verdict.found)


def fractions(row: Sequence[float]) -> list[Fraction | None]:
    return [None if x == -INF else Fraction(x) for x in row]


@pytest.mark.parametrize(
    "row",
    [
        [0.1, 0.2, -0.3, 0.7],
        [5.5, 5.5, 5.5, 5.5],
        [1e300, 1e300, -1e300, 0.0],
        [1.7e308, -1.7e308, 1.0, TINY],
        [TINY, -TINY, 0.0, -0.0],
        [-700.0, -700.5, -INF, -790.0],
        [-INF, -INF, -INF, -1e308],
        [100.0, 11.5, 11.0, 12.5],
        [127.9999999, 0.0, -0.000001, -128.5],
    ],
)
def test_logits(row: list[float]) -> None:
    made = draft("logits", (1, 4), 1, "1/2").put("target.H", "F64", [row])
    judge_distance(made, [fractions(row)], 2**61)


def test_every_row_counts() -> None:
    logits = [[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]]
    made = draft("logits", (3, 2), 1, "1/2").put("target.H", "F64", logits)
    judge_distance(made, [fractions(row) for row in logits], 1000)


def test_equal_logits_give_the_uniform_row() -> None:
    made = draft("logits", (2, 3), 3, "1/2", Fraction(1, 2**90))
    made.put("target.H", "F64", [[1e10] * 3, [TINY] * 3]).put("target.N", "I64", [[1] * 3] * 2)
    assert codes(made.claim("lower", "trivial", 1).bytes()) == [("verified", "ok")]
    made.target["alpha"] = hexadecimal(0)
    verdict = one(made)
    assert (verdict.code, verdict.found > 0) == ("alpha", True)
    assert verdict.found < Fraction(1, 2**96)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("scale", "over_sqrt"), [("1/1", 5), ("1/8", 1), ("3/7", 64), ("0/1", 2)])
def test_qk(scale: str, over_sqrt: int, masked: bool) -> None:
    generator = np.random.default_rng(over_sqrt)
    queries, keys = generator.normal(size=(3, 5)), generator.normal(size=(4, 5)) * 3
    keys[0] *= 1e6
    bias = generator.normal(size=(3, 4))
    bias[0, 1] = bias[2, 3] = -INF
    extra = {"scale": hexadecimal(Fraction(scale)), "over_sqrt": f"{over_sqrt:#x}"}
    made = draft("qk", (3, 4), 1, "1/2", **extra)
    made.put("target.Q", "F64", queries).put("target.K", "F64", keys)
    if masked:
        made.put("target.bias", "F64", bias)
    with mpmath.workprec(500):
        factor = exact(Fraction(scale)) / mpmath.sqrt(over_sqrt)
        logits: list[list[Any]] = []
        for i, q in enumerate(queries):
            products = [factor * mpmath.fdot(q.tolist(), k.tolist()) for k in keys]
            shifts = bias[i].tolist() if masked else [0.0] * 4
            logits.append(
                [None if b == -INF else p + b for p, b in zip(products, shifts, strict=True)]
            )
        judge_distance(made, logits, 2**59)


def test_qk_of_one_coordinate() -> None:
    made = draft("qk", (1, 2), 1, "1/2", scale="0x1/0x1", over_sqrt="0x3")
    made.put("target.Q", "F64", [[-1.5]]).put("target.K", "F64", [[2.0], [-7.0]])
    with mpmath.workprec(500):
        root = mpmath.sqrt(3)
        judge_distance(made, [[-3 / root, mpmath.mpf("10.5") / root]], 2**50)


def test_qk_of_extreme_floats() -> None:
    extra = {"scale": "0x1/0x1", "over_sqrt": "0x2"}
    made = draft("qk", (2, 2), 2**40, "1/2", Fraction(1, 2**70), **extra)
    made.put("target.Q", "F64", [[1e300, TINY], [TINY, 0.0]])
    made.put("target.K", "F64", [[1e300, 1e300], [-1e300, 1e-300]])
    made.put("target.N", "I64", [[2**40, 0], [2**39, 2**39]])
    assert codes(made.claim("lower", "trivial", 1).bytes()) == [("verified", "ok")]


def test_masked_entries_are_exactly_zero() -> None:
    made = draft("logits", (1, 3), 2, "1/2", Fraction(1, 2**90))
    made.put("target.H", "F64", [[3.0, -INF, 3.0]]).put("target.N", "I64", [[1, 0, 1]])
    assert codes(made.claim("lower", "trivial", 1).bytes()) == [("verified", "ok")]


@given(st.lists(st.floats(-200, 200) | st.floats(-1e-5, 1e-5), min_size=2, max_size=6))
@settings(deadline=None, max_examples=40)
def test_softmax_weights_are_within_their_bound(row: list[float]) -> None:
    weights = minicheck.softmax_weights([minicheck.fixed(x) for x in row])
    with mpmath.workprec(400):
        top = max(row)
        truth = [mpmath.exp(exact(Fraction(x) - Fraction(top))) for x in row]
        total, ours = mpmath.fsum(truth), sum(weights)
        off = l1_distance([t / total for t in truth], [mpmath.mpf(w) / ours for w in weights])
        assert off <= mpmath.mpf(len(row)) / 2**108


@given(st.integers(0, 140 * 2**128))
@settings(deadline=None, max_examples=100)
def test_exp_minus_is_within_its_bound(u: int) -> None:
    with mpmath.workprec(400):
        truth = mpmath.exp(-mpmath.mpf(u) / 2**128) * 2**128
        assert abs(minicheck.exp_minus(u) - truth) < 5 * 2**16
    assert minicheck.exp_minus(0) == 2**128


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 2**80),
)
@settings(deadline=None, max_examples=100)
def test_matrix_entries_are_rounded_half_up(entry: float, den: int) -> None:
    assert minicheck.nearest(entry, den) == math.floor(Fraction(entry) * den + Fraction(1, 2))


def test_alpha_of_a_matrix_is_exact() -> None:
    entries = [[0.1, 0.25], [TINY, -0.3]]
    den = 100
    rounded = [[10, 25], [0, -30]]
    truth = max(
        sum(abs(Fraction(x) - Fraction(k, den)) for x, k in zip(row, other, strict=True))
        for row, other in zip(entries, rounded, strict=True)
    )
    made = draft("matrix", (2, 2), den, "1/2", truth).put("target.A", "F64", entries)
    made.claim("upper", "trivial", 2)
    assert codes(made.bytes()) == [("verified", "ok")]
    smaller = truth - Fraction(1, truth.denominator * 3)
    made.target["alpha"] = hexadecimal(smaller)
    verdict = one(made)
    assert (verdict.verdict, verdict.code, verdict.needed) == ("rejected", "alpha", smaller)
    assert verdict.found == truth


def test_a_failed_alpha_rejects_every_claim_and_refutes_none() -> None:
    made = draft("matrix", (1, 1), 1, "1/2").put("target.A", "F64", [[0.25]])
    made.claim("upper", "trivial", 1).claim("lower", "trivial", 1)
    assert codes(made.bytes()) == [("rejected", "alpha")] * 2


# ------------------------------------------------------------------------------- malformed files


def sound() -> Draft:
    """A file with every kind of claim, all well-formed."""
    made = two_bit(*PAIR, "3/8")
    add_upper(made, *PAIR, 3)
    add_lower(made, *PAIR, 3)
    add_lower(made, *PAIR, 3, "bernstein-rows")
    add_lower(made, *PAIR, 1)
    add_fantope(made, *PAIR, 0.375)
    return made.claim("lower", "trivial", 0)


def qk() -> Draft:
    made = draft("qk", (1, 2), 2, "1/2", "1/8", scale="0x1/0x1", over_sqrt="0x4")
    made.put("target.Q", "F64", [[1.0, 0.0]]).put("target.K", "F64", [[0.0, 1.0], [0.0, 2.0]])
    made.put("target.bias", "F64", [[0.0, 0.0]]).put("target.N", "I64", [[1, 1]])
    return made.claim("lower", "trivial", 1)


def logits() -> Draft:
    made = draft("logits", (1, 2), 2, "1/2", "1/8").put("target.H", "F64", [[1.0, 1.0]])
    return made.put("target.N", "I64", [[1, 1]]).claim("lower", "trivial", 1)


def test_the_controls_are_verified() -> None:
    for made in (sound(), qk(), logits()):
        assert set(codes(made.bytes())) == {("verified", "ok")}


def with_length(length: int) -> bytes:
    data = sound().bytes()
    return struct.pack("<Q", length) + data[8:]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        bytes(8),
        struct.pack("<Q", 8) + b"{}",
        with_length(2**20 + 8),
        with_length(2**63),
        with_length(len(sound().bytes())),
        with_length(15),
    ],
)
def test_size(data: bytes) -> None:
    assert malformed(data) == "size"


def test_the_longest_header_and_the_most_claims() -> None:
    made = logits()
    made.claims.extend(made.claims * 63)
    made.meta["provenance"] = {"by": ""}
    length = len(canonical(made.header()))
    made.meta["provenance"] = {"by": "x" * (2**20 - length)}
    data = made.bytes()
    assert data[:8] == struct.pack("<Q", 2**20)
    assert codes(data) == [("verified", "ok")] * 64


def test_long_integers_are_refused_whatever_the_interpreter_allows() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert malformed(retext(lambda text: text.replace("[0,", f"[{'9' * 4301},", 1))) == "json"
        assert malformed(retext(lambda text: text.replace("[0,", f"[-{'9' * 4300},", 1))) == (
            "layout"
        )
    finally:
        sys.set_int_max_str_digits(before)


def test_no_more_is_read_than_a_file_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long"
    path.write_bytes(bytes(100))
    assert len(minicheck.read(str(path))) == 100
    monkeypatch.setattr(minicheck, "MAX_FILE", 10)
    assert len(minicheck.read(str(path))) == 11


def test_too_large_a_file_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sound().bytes()
    monkeypatch.setattr(minicheck, "MAX_FILE", len(data))
    assert {verdict for verdict, _ in codes(data)} == {"verified"}
    assert malformed(data + b"x") == "size"


def retext(change: Callable[[str], str]) -> bytes:
    made = sound()
    return pack(change(canonical(made.header())).encode(), made.data())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(":", ": ", 1),
        lambda text: " " + text,
        lambda text: text + "x",
        lambda text: text[:-1],
        lambda text: text + " " * 8,
        lambda text: text + "\t",
        lambda text: text.replace("[0,", "[0.0,", 1),
        lambda text: text.replace("[0,", "[-0,", 1),
        lambda text: text.replace("[0,", "[NaN,", 1),
        lambda text: text.replace("[0,", "[1e0,", 1),
        lambda text: text.replace("[0,", f"[{'9' * 5000},", 1),
        lambda text: text.replace("claim0.X", "claim0.Y", 1),
        lambda text: text.replace("hand", "h\u00e4nd", 1),
        lambda text: text.replace("dtype", "\\u0064type", 1),
        lambda text: "[" + text + "]",
        lambda text: "[" * 100_000,
        lambda text: '{"a":' * 50_000 + "1" + "}" * 50_000,
        lambda text: "[]",
        lambda text: "1",
    ],
)
def test_json_of_the_header(change: Callable[[str], str]) -> None:
    assert malformed(retext(change)) == "json"


def test_unsorted_keys_are_not_canonical() -> None:
    made = sound()
    header = made.header()
    text = json.dumps(dict(reversed(header.items())), separators=(",", ":"))
    assert malformed(pack(text.encode(), made.data())) == "json"


def relayout(change: Callable[[dict[str, Any]], Any], data: Callable[[bytes], bytes]) -> bytes:
    made = sound()
    header = made.header()
    change(header)
    return pack(canonical(header).encode(), data(made.data()))


def same(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (lambda header: header.pop("__metadata__"), same),
        (lambda header: header.update(__metadata__="x"), same),
        (lambda header: header["__metadata__"].update(other="x"), same),
        (lambda header: header["__metadata__"].update(softrank={}), same),
        (lambda header: header["target.N"].update(other=1), same),
        (lambda header: header["target.N"].pop("dtype"), same),
        (lambda header: header["target.N"].update(dtype="F32"), same),
        (lambda header: header["target.N"].update(dtype=["I64"]), same),
        (lambda header: header["target.N"].update(dtype="F64", shape=[]), same),
        (lambda header: header["target.N"].update(shape=[4, 2, 2, 1]), same),
        (lambda header: header["target.N"].update(shape=[4, True]), same),
        (lambda header: header["target.N"].update(shape=[-4, -4]), same),
        (lambda header: header["target.N"].update(shape=[4, 5]), same),
        (lambda header: header["target.N"].update(shape="44"), same),
        (lambda header: header["target.N"].update(shape=4), same),
        (lambda header: header["target.N"].update(data_offsets=4), same),
        (lambda header: header["claim0.X"].update(data_offsets=[False, 48]), same),
        (lambda header: header["claim0.X"].update(data_offsets=[0]), same),
        (lambda header: header["claim0.X"].update(data_offsets=[0, 47]), same),
        (lambda header: header["claim0.X"].update(data_offsets="00"), same),
        (lambda header: header["claim0.Y"].update(data_offsets=[0, 48]), same),
        (lambda header: header.update({"target.N": 3}), same),
        (lambda header: header.update({"z": header["target.N"]}), same),
        (lambda header: header["target.N"].update(shape=[4097, 0]), same),
        (lambda header: None, lambda data: data + bytes(8)),
        (lambda header: None, lambda data: data[:-1]),
        (lambda header: None, lambda data: b""),
        (lambda header: header.pop("target.N"), same),
        (lambda header: header.pop("claim0.X"), same),
    ],
)
def test_layout(change: Callable[[dict[str, Any]], Any], data: Callable[[bytes], bytes]) -> None:
    assert malformed(relayout(change, data)) == "layout"


def test_an_overlap_that_covers_every_byte_is_refused() -> None:
    def swap(header: dict[str, Any]) -> None:
        first, second = header["claim0.X"], header["claim0.Y"]
        for one_, offsets in ((first, [48, 96]), (second, [0, 48])):
            one_["data_offsets"] = offsets

    assert malformed(relayout(swap, same)) == "layout"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " ",
        lambda text: text.replace(":", ": ", 1),
        lambda text: "[]",
        lambda text: "",
        lambda text: '"x"',
        lambda text: text.replace('"rank":3', '"rank":3.0', 1),
        lambda text: text.replace('"rank":3', '"rank":3,"rank":3', 1),
        lambda text: text.replace("any", "\u00e4ny"),
    ],
)
def test_json_of_the_metadata(change: Callable[[str], str]) -> None:
    def apply(header: dict[str, Any]) -> None:
        header["__metadata__"]["softrank"] = change(header["__metadata__"]["softrank"])

    assert malformed(relayout(apply, same)) == "json"


@pytest.mark.parametrize("value", [None, "softrank-certificate-2", 1, ["softrank-certificate-1"]])
def test_version(value: Any) -> None:
    made = sound()
    made.meta["format"] = value
    made.meta["norm"] = "something else"
    assert malformed(made.bytes()) == "version"
    del made.meta["format"]
    assert malformed(made.bytes()) == "version"


def changed(made: Draft, path: Sequence[Any], value: Any) -> Draft:
    """The draft with the metadata at `path` replaced; removed where the value is `...`."""
    place: Any = made.meta
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


BAD_RATIOS = [
    1, None, "1/2", "0x1", "0x1/0x0", "0x0/0x2", "0x2/0x4", "0x01/0x2", "0xA/0xb", "-0x1/0x2",
    "0x1/0x2\n", " 0x1/0x2", "0x1/-0x2", "0x" + "1" * 321 + "/0x1", "0x1/0x" + "1" * 321,
    "0x\u0661/0x2", "0x1_0/0x3", "0x/0x1", "0x1/0x2/0x3", ["0x1/0x2"],
]  # fmt: skip
BAD_INTEGERS = [1, None, "1", "0x0", "0x01", "0xA", "-0x1", "0x1/0x1", "0x" + "1" * 321, ["0x1"]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((("epsilon",), value) for value in BAD_RATIOS),
        *((("target", "alpha"), value) for value in BAD_RATIOS),
        *((("target", "den"), value) for value in BAD_INTEGERS),
        *((("claims", 0, "params", "scale"), value) for value in BAD_INTEGERS),
        (("norm",), "l1"),
        (("norm",), ...),
        (("class",), "nonnegative"),
        (("provenance",), {"a": 1}),
        (("provenance",), []),
        (("provenance",), ...),
        (("claims",), []),
        (("claims",), {}),
        (("claims",), 3),
        (("claims",), [{"side": "lower", "kind": "trivial", "rank": 0, "params": {}}] * 65),
        (("claims",), [{"side": "lower", "kind": "trivial", "rank": 0, "params": {}}, 3]),
        (("claims",), ...),
        (("other",), 1),
        (("target",), "x"),
        (("target", "object"), "tensor"),
        (("target", "object"), ["matrix"]),
        (("target", "object"), ...),
        (("target", "shape"), [4]),
        (("target", "shape"), [4, 0]),
        (("target", "shape"), [4, 4097]),
        (("target", "shape"), [4, True]),
        (("target", "shape"), "44"),
        (("target", "shape"), 4),
        (("target", "sha256"), "0" * 63),
        (("target", "sha256"), "A" * 64),
        (("target", "sha256"), 1),
        (("target", "scale"), "0x1/0x1"),
        (("target", "other"), 1),
        (("claims", 0, "side"), "lower"),
        (("claims", 0, "side"), 1),
        (("claims", 1, "side"), "upper"),
        (("claims", 5, "side"), "both"),
        (("claims", 0, "kind"), 1),
        (("claims", 0, "kind"), ...),
        (("claims", 0, "rank"), -1),
        (("claims", 0, "rank"), 5),
        (("claims", 0, "rank"), True),
        (("claims", 0, "rank"), "3"),
        (("claims", 0, "rank"), ...),
        (("claims", 1, "rank"), 0),
        (("claims", 3, "rank"), 0),
        (("claims", 0, "other"), 1),
        (("claims", 0, "params"), []),
        (("claims", 0, "params"), 1),
        (("claims", 0, "params"), {}),
        (("claims", 0, "params", "other"), "0x1"),
        (("claims", 5, "params"), {"scale": "0x1"}),
    ],
)
def test_field(path: Sequence[Any], value: Any) -> None:
    assert malformed(changed(sound(), path, value).bytes()) == "field"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((("target", "scale"), value) for value in BAD_RATIOS),
        *((("target", "over_sqrt"), value) for value in BAD_INTEGERS),
        (("target", "scale"), ...),
        (("target", "over_sqrt"), ...),
    ],
)
def test_field_of_qk(path: Sequence[Any], value: Any) -> None:
    assert malformed(changed(qk(), path, value).bytes()) == "field"


def test_unknown_kind_comes_before_the_rest_of_its_claim_and_after_the_claims_before() -> None:
    made = changed(sound(), ("claims", 1, "kind"), "magic")
    assert malformed(made.bytes()) == "unknown-kind"
    assert malformed(changed(made, ("claims", 1, "rank"), "x").bytes()) == "unknown-kind"
    assert malformed(changed(made, ("claims", 2), "x").bytes()) == "unknown-kind"
    assert malformed(changed(made, ("claims", 0, "rank"), "x").bytes()) == "field"


def retensor(made: Draft, name: str, dtype: str, shape: list[int]) -> Draft:
    made.tensors[name] = (dtype, shape, [0] * math.prod(shape))
    return made


@pytest.mark.parametrize(
    "made",
    [
        retensor(sound(), "stray", "I32", [1]),
        retensor(sound(), "", "I32", [0]),
        retensor(sound(), "claim00.X", "I32", [4, 3]),
        retensor(sound(), "claim6.X", "I32", [1]),
        retensor(sound(), "claim5.X", "I32", [1]),
        retensor(sound(), "claim0.Z", "I32", [1]),
        retensor(sound(), "target.A", "F64", [4, 4]),
        retensor(sound(), "target.H", "F64", [4, 4]),
        retensor(sound(), "target.N", "I32", [4, 4]),
        retensor(sound(), "target.N", "I64", [2, 8]),
        retensor(sound(), "target.N", "I64", [4, 4, 1]),
        retensor(sound(), "claim0.X", "I64", [4, 3]),
        retensor(sound(), "claim0.X", "I32", [4, 2]),
        retensor(sound(), "claim0.X", "I32", [3, 4]),
        retensor(sound(), "claim1.columns", "I32", [3]),
        retensor(sound(), "claim1.columns", "I32", [4, 1]),
        retensor(sound(), "claim1.columns", "I32", [2]),
        retensor(sound(), "claim1.X", "I32", [4, 0]),
        retensor(sound(), "claim1.G", "I32", [4, 3]),
        retensor(sound(), "claim2.G", "I32", [3, 4]),
        retensor(sound(), "claim3.d", "I32", [3]),
        retensor(sound(), "claim3.Q", "I32", [0, 0]),
        retensor(sound(), "claim3.Q", "I32", [2, 2]),
        retensor(retensor(sound(), "claim3.Q", "I32", [0, 0]), "claim3.T", "I32", [4, 0]),
        retensor(sound(), "claim3.Q", "I32", [1]),
        retensor(sound(), "claim4.w", "I32", [3, 4]),
        retensor(sound(), "claim4.Q", "I32", [4, 2, 2]),
        retensor(sound(), "claim4.Q", "I32", [9]),
        retensor(qk(), "target.Q", "F64", [1, 3]),
        retensor(qk(), "target.K", "F64", [2]),
        retensor(qk(), "target.bias", "F64", [2, 1]),
        retensor(qk(), "target.H", "F64", [1, 2]),
        retensor(retensor(qk(), "target.Q", "F64", [1, 0]), "target.K", "F64", [2, 0]),
        retensor(logits(), "target.bias", "F64", [1, 2]),
        retensor(logits(), "target.H", "I64", [1, 2]),
        changed(sound(), ("target", "shape"), [4, 5]),
        changed(sound(), ("claims", 0, "rank"), 4),
        changed(sound(), ("claims", 1, "rank"), 4),
        changed(sound(), ("claims", 4, "rank"), 4),
    ],
)
def test_tensors(made: Draft) -> None:
    assert malformed(made.bytes()) == "tensors"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (make, name)
        for make in (sound, qk, logits)
        for name in make().tensors
        if name != "target.bias"
    ],
)
def test_a_missing_tensor(make: Callable[[], Draft], name: str) -> None:
    made = make()
    del made.tensors[name]
    assert malformed(made.bytes()) == "tensors"


def test_too_few_eigenvectors_for_a_fantope_rank_are_malformed() -> None:
    made = integers(np.eye(3, dtype=int), 1, 0)
    tensors = {"T": [[1]] * 3, "w": [[1] * 3] * 3, "v": [[0] * 3] * 3, "Q": [[[1]]] * 3}
    assert malformed(made.claim("lower", "fantope", 2, {"q_scale": 1}, **tensors).bytes()) == (
        "tensors"
    )


def test_hash() -> None:
    made = sound()
    made.target["sha256"] = made.digest()
    assert {verdict for verdict, _ in codes(made.bytes())} == {"verified"}
    made.tensors["target.N"][2][0] += 1
    assert malformed(made.bytes()) == "hash"
    # The witness is not hashed: it has to prove itself.
    made = sound()
    made.target["sha256"] = made.digest()
    made.tensors["claim0.X"][2][0] += 100
    assert codes(made.bytes())[0] == ("rejected", "margin")


@pytest.mark.parametrize(
    ("make", "name", "position", "value"),
    [
        (sound, "target.N", 3, 2**62 + 1),
        (sound, "target.N", 3, -(2**62) - 1),
        (sound, "target.N", 3, -(2**63)),
        (logits, "target.H", 0, INF),
        (logits, "target.H", 1, math.nan),
        (logits, "target.N", 1, 2**62 + 1),
        (qk, "target.bias", 0, INF),
        (qk, "target.bias", 0, math.nan),
        (qk, "target.Q", 0, -INF),
        (qk, "target.K", 3, math.nan),
        (sound, "claim1.columns", 1, 0),
        (sound, "claim1.columns", 0, -1),
        (sound, "claim1.columns", 3, 4),
        (sound, "claim1.columns", 2, 1),
        (sound, "claim2.rows", 1, 0),
        (sound, "claim2.rows", 0, -1),
        (sound, "claim2.rows", 3, 4),
        (sound, "claim3.d", 0, 0),
        (sound, "claim4.w", 5, -1),
        (sound, "claim4.v", 5, -1),
    ],
)
def test_value(make: Callable[[], Draft], name: str, position: int, value: Any) -> None:
    made = make()
    made.tensors[name][2][position] = value
    assert malformed(made.bytes()) == "value"


@pytest.mark.parametrize("name", ["claim3.T", "claim4.T"])
def test_a_zero_test_matrix_is_malformed(name: str) -> None:
    made = sound()
    dtype, shape, _ = made.tensors[name]
    assert malformed(retensor(made, name, dtype, shape).bytes()) == "value"


def test_a_fantope_over_no_rows_is_malformed() -> None:
    made = integers([[1, 0], [0, 1]], 1, 0).claim("lower", "fantope", 1, {"q_scale": 1})
    for name, shape in (("T", [2, 1]), ("w", [0, 2]), ("v", [0, 2]), ("Q", [0, 1, 1])):
        retensor(made, f"claim0.{name}", "I32", shape)
    assert malformed(made.bytes()) == "value"


@pytest.mark.parametrize("entry", [2**62, -(2**62)])
def test_the_largest_integers(entry: int) -> None:
    made = integers([[entry]], 2**62, 0).claim("upper", "factor", 1, {"scale": 1})
    made.put("claim0.X", "I32", [[1]]).put("claim0.Y", "I32", [[entry >> 62]])
    assert codes(made.bytes()) == [("verified", "ok")]


def test_fantope_weights_must_belong_to_the_nonzero_rows() -> None:
    made = sound()
    made.tensors["claim4.T"][2][:3] = [0, 0, 0]
    assert malformed(made.bytes()) == "value"
    made = sound()
    made.tensors["claim4.w"][2][:4] = [0] * 4
    assert malformed(made.bytes()) == "value"


@pytest.mark.parametrize("entry", [INF, -INF, math.nan])
def test_a_matrix_is_finite(entry: float) -> None:
    made = draft("matrix", (1, 2), 1, "1/2", "1/2").put("target.A", "F64", [[entry, 0.0]])
    assert malformed(made.claim("upper", "trivial", 1).bytes()) == "value"


@pytest.mark.parametrize(("make", "name"), [(logits, "target.H"), (qk, "target.bias")])
def test_a_mask_is_welcome_but_not_a_whole_row(make: Callable[[], Draft], name: str) -> None:
    made = make()
    made.tensors[name][2][0] = -INF
    assert codes(made.bytes()) == [("rejected", "alpha")]
    made.tensors["target.N"][2][:] = [0, 2]
    assert codes(made.bytes()) == [("verified", "ok")]
    made.tensors[name][2][1] = -INF
    assert malformed(made.bytes()) == "value"


# -------------------------------------------------------------------- tampering and forged claims

VERDICTS = {"verified", "rejected", "refuted", "malformed"}


def true_claim(verdict: Verdict, distances: Sequence[Fraction], epsilon: Fraction) -> bool:
    """Whether the claim holds, d_k being distances[k] (0 from some k on)."""
    assert verdict.rank is not None
    truth = next(k for k, distance in enumerate(distances) if distance <= epsilon)
    return truth <= verdict.rank if verdict.side == "upper" else truth >= verdict.rank


BASE = sound().bytes()
BASE_DEN = int(sound().target["den"], 16)


@given(
    st.lists(st.tuples(st.integers(0, len(BASE) - 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(0, 30),
)
@settings(deadline=None, max_examples=400)
def test_mutated_bytes(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(BASE)
    for position, value in changes:
        data[position] = value
    mutated = bytes(data[: len(data) - cut]) if cut > 20 else bytes(data)
    verdicts = check_bytes(mutated)
    assert {v.verdict for v in verdicts} <= VERDICTS
    sure = [v for v in verdicts if v.verdict == "verified"]
    if sure:
        length = int.from_bytes(mutated[:8], "little")
        header = json.loads(mutated[8 : 8 + length])
        meta = json.loads(header["__metadata__"]["softrank"])
        # The target's integers are hashed, den and epsilon are not: the truth scales with them.
        ratio = Fraction(BASE_DEN, int(meta["target"]["den"], 16))
        distances = [d * ratio for d in thresholds(*PAIR)]
        epsilon = Fraction(*(int(x, 16) for x in meta["epsilon"].split("/")))
        assert all(true_claim(v, distances, epsilon) for v in sure)


@given(
    st.fractions(0, 2, max_denominator=64),
    st.fractions(0, 1, max_denominator=64),
    st.integers(1, 64),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
@settings(deadline=None, max_examples=200)
def test_changed_fields(epsilon: Fraction, alpha: Fraction, den: int, ranks: list[int]) -> None:
    made = sound()
    made.meta["epsilon"], made.target["alpha"] = hexadecimal(epsilon), hexadecimal(alpha)
    made.target["den"] = f"{den:#x}"
    for number, rank in enumerate(ranks):
        if number in (3, 5):
            made.claims[number]["rank"] = rank
    distances = [d * Fraction(BASE_DEN, den) for d in thresholds(*PAIR)]
    for verdict in check_bytes(made.bytes()):
        if verdict.verdict == "verified":
            assert true_claim(verdict, distances, epsilon)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_changed_witnesses(data: st.DataObject) -> None:
    made = sound()
    t, s = PAIR
    made.meta["epsilon"] = hexadecimal(data.draw(st.sampled_from([t, s, t * s, Fraction(7, 16)])))
    names = [name for name in made.tensors if name.startswith("claim")]
    for _ in range(data.draw(st.integers(1, 4))):
        values = made.tensors[data.draw(st.sampled_from(names))][2]
        place = data.draw(st.integers(0, len(values) - 1))
        values[place] = data.draw(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1))
    epsilon = Fraction(*(int(x, 16) for x in made.meta["epsilon"].split("/")))
    for verdict in check_bytes(made.bytes()):
        if verdict.verdict == "verified":
            assert true_claim(verdict, thresholds(t, s), epsilon)


def entries(count: int, bound: int = 4) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-bound, bound), min_size=count, max_size=count)


@given(
    entries(4),
    st.fractions(0, 4, max_denominator=8),
    st.integers(1, 2),
    st.data(),
)
@settings(deadline=None, max_examples=300)
def test_forged_claims_on_two_by_two_matrices(
    values: list[int], epsilon: Fraction, rank: int, data: st.DataObject
) -> None:
    """d_0 = ||A||, d_1 = 1 / ||A^-1|| (MATH 5.5): no witness proves more than that."""
    a, b, c, d = values
    determinant = a * d - b * c
    inverse_norm = max(abs(d) + abs(b), abs(c) + abs(a))
    norm = max(abs(a) + abs(b), abs(c) + abs(d))
    second = Fraction(abs(determinant), inverse_norm) if determinant else Fraction(0)
    distances = [Fraction(norm), second, Fraction(0)]
    made = integers([[a, b], [c, d]], 1, epsilon)
    scale = data.draw(st.integers(1, 3))
    left, right = data.draw(entries(2)), data.draw(entries(2))
    made.claim("upper", "factor", 1, {"scale": scale}, X=[[x] for x in left], Y=[right])
    g, x, y = data.draw(entries(4)), data.draw(entries(2)), data.draw(entries(2))
    scales = {"g_scale": max(1, abs(determinant)), "xy_scale": scale}
    if determinant and data.draw(st.booleans()):
        sign = 1 if determinant > 0 else -1
        g = [sign * d, -sign * b, -sign * c, sign * a]
    shape = 2 - rank
    removed = {"X": np.array(x)[:, None][:, :shape], "Y": np.array(y)[None][:shape]}
    decoder = np.array(g).reshape(2, 2)
    made.claim("lower", "bernstein", rank, scales, columns=[0, 1], G=decoder, **removed)
    made.claim("lower", "bernstein-rows", rank, scales, rows=[0, 1], G=decoder, **removed)
    basis = data.draw(st.sampled_from([[[5, 0], [0, 5]], [[3, 4], [-4, 3]], [[4, 3], [-2, 4]]]))
    test = data.draw(entries(4, 2).filter(lambda t: any(t[:2]) and any(t[2:])))
    test = np.array(test).reshape(2, 2)
    weights = data.draw(entries(2).filter(any))
    tensors = {"T": test, "Q": basis}
    made.claim("lower", "hilbert-schmidt", rank, {"q_scale": 5}, d=weights, **tensors)
    tensors = {"T": test, "Q": [basis] * 2}
    w = np.abs(np.array(data.draw(entries(4)))).reshape(2, 2) + np.eye(2, dtype=int)
    v = np.abs(np.array(data.draw(entries(4, 1)))).reshape(2, 2)
    made.claim("lower", "fantope", rank, {"q_scale": 5}, w=w, v=v, **tensors)
    verdicts = check_bytes(made.bytes())
    assert len(verdicts) == 5
    for verdict in verdicts:
        assert verdict.verdict in ("verified", "rejected", "refuted")
        if verdict.verdict == "verified":
            assert true_claim(verdict, distances, epsilon)


def test_a_repeated_column_would_prove_a_falsehood() -> None:
    # [[3/10]] has rank 0 at eps = 4/10; with its column twice the algebra would "prove" rank 1.
    made = integers([[3]], 10, "2/5")
    tensors = {"columns": [0, 0], "G": [[0], [0]], "X": [[1], [0]], "Y": [[1, 0]]}
    made.claim("lower", "bernstein", 1, {"g_scale": 1, "xy_scale": 1}, **tensors)
    assert malformed(made.bytes()) == "value"


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=50)
def test_bottom_sum_is_below_the_eigenvalues(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 6))
    half = generator.integers(-20, 21, size=(size, size))
    form = half + half.T
    scale = int(generator.choice([16, 1024]))
    matrix = np.rint(np.linalg.eigh(form)[1] * scale).astype(int)
    basis = minicheck.Basis.of([tuple(map(int, column)) for column in matrix.T], scale)
    values = np.linalg.eigvalsh(form)
    assert basis.sound
    for count in range(size + 1):
        bound = minicheck.bottom_sum([list(map(int, row)) for row in form], basis, count)
        assert float(bound) <= values[:count].sum() + 1e-9
        if scale == 1024:
            assert float(bound) >= values[:count].sum() - size**3


# -------------------------------------------------------------------------- the command line


def run(*arguments: str | Path, optimise: bool = False) -> subprocess.CompletedProcess[str]:
    flags = ["-I", "-S", *(["-O"] if optimise else [])]
    command = [sys.executable, *flags, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "good": logits().bytes(),
        "weak": add_lower(two_bit(*PAIR, "1/2"), *PAIR, 3).bytes(),
        "broken": b"broken!!",
    }
    paths = {}
    for name, content in contents.items():
        paths[name] = tmp_path / f"{name}.softrank.safetensors"
        paths[name].write_bytes(content)
    paths["absent"] = tmp_path / "absent"
    return paths


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["good"], 0),
        (["good", "weak"], 1),
        (["broken", "good", "weak"], 4),
        (["absent"], 2),
        (["good", "absent"], 2),
    ],
)
def test_exit_codes(files: dict[str, Path], names: list[str], code: int, optimise: bool) -> None:
    result = run(*(files[name] for name in names), optimise=optimise)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == ("absent" in names)
    assert len(result.stdout.splitlines()) == len([name for name in names if name != "absent"])


def test_lines(files: dict[str, Path]) -> None:
    result = run(files["good"], files["weak"], files["broken"])
    assert result.stdout.splitlines() == [
        f"{files['good']} lower 1 trivial verified ok",
        f"{files['weak']} lower 3 bernstein rejected margin",
        f"{files['broken']} - - - malformed size",
    ]


def test_json(files: dict[str, Path]) -> None:
    result = run(files["weak"], "--json", files["broken"])
    assert result.returncode == 4
    assert json.loads(result.stdout) == [
        {
            "file": str(files["weak"]),
            "side": "lower",
            "rank": 3,
            "kind": "bernstein",
            "verdict": "rejected",
            "code": "margin",
            "needed": "1/1",
            "found": "1/1",
            "margin": "0/1",
        },
        {
            "file": str(files["broken"]),
            "side": None,
            "rank": None,
            "kind": None,
            "verdict": "malformed",
            "code": "size",
            "needed": None,
            "found": None,
            "margin": None,
        },
    ]


def test_the_longest_numbers_of_the_format_are_printed(tmp_path: Path) -> None:
    big = 16**320 - 1
    epsilon, alpha = Fraction(1, big), Fraction(1, big - 1)
    made = draft("matrix", (2, 2), big - 2, epsilon, alpha)
    made.put("target.A", "F64", [[-1.7e308, TINY], [0.0, 1.3e308]])
    most = 2**31 - 1
    tensors = {"d": [most, 3], "T": [[most, 0], [0, 1]], "Q": [[most, 1], [1, most]]}
    made.claim("lower", "hilbert-schmidt", 1, {"q_scale": big - 3}, **tensors)
    path = tmp_path / "long"
    path.write_bytes(made.bytes())
    result = run(path, "--json")
    assert result.returncode == 1
    assert len(json.loads(result.stdout)[0]["margin"]) > 4300


@pytest.mark.parametrize("arguments", [[], ["--jso"], ["--other", "x"]])
def test_usage(arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


@pytest.mark.parametrize(
    "error", [MemoryError(), KeyboardInterrupt(), RecursionError("deep"), ZeroDivisionError("x\ny")]
)
def test_an_error_is_never_a_success(
    error: BaseException,
    files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setitem(minicheck.JUDGES, "trivial", fail)
    assert minicheck.main([str(files["good"])]) == 70
    output = capsys.readouterr()
    assert "verified" not in output.out
    assert len(output.err.splitlines()) == 1


def test_a_contradiction_outranks_everything(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = logits().claim("upper", "trivial", 0)
    path = files["good"].with_name("both")
    path.write_bytes(made.bytes())
    assert minicheck.main([str(path)]) == 1
    always = minicheck.at_least(0, Fraction(1))
    monkeypatch.setitem(minicheck.JUDGES, "trivial", lambda *_: always)
    arguments = [str(path), str(files["broken"]), str(files["absent"])]
    assert minicheck.main(arguments) == 70
    assert "contradict each other" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_output_is_an_internal_error(files: dict[str, Path]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-I", "-S", str(SCRIPT), str(files["good"])],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 70
    assert len(result.stderr.splitlines()) == 1


def test_it_stands_alone() -> None:
    tree = ast.parse(SCRIPT.read_text())
    imported = set()
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert)
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").split(".")[0])
    assert imported <= set(sys.stdlib_module_names)
