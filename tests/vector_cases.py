"""The conformance vectors: certificate files built by hand, each with the verdicts it must get.

Run as a script it writes ``vectors/``. Tests regenerate the files, compare them byte for byte and
run both checkers on every one; the clause-deletion test runs them against damaged checkers.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "vectors"
CODES = {"F64": "d", "I32": "i", "I64": "q"}


@dataclass(frozen=True)
class Case:
    """One vector. ``verdicts``: per claim [verdict, code]; malformed: [["malformed", code]]."""

    name: str
    comment: str
    data: bytes
    verdicts: list[list[str]]
    control: str | None = None


@dataclass
class Draft:
    """A certificate file before it is frozen, every part open to tampering."""

    meta: dict[str, Any]
    tensors: dict[str, tuple[str, list[int], list[Any]]]
    header: dict[str, Any] = field(default_factory=dict)
    rehash: bool = True

    def copy(self) -> Draft:
        return copy.deepcopy(self)

    def bytes(self, tamper: Callable[[dict[str, Any]], object] | None = None) -> bytes:
        """The file; ``tamper`` may change the header object before it is written."""
        blobs = {
            name: struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
            for name, (dtype, _, values) in self.tensors.items()
        }
        if self.rehash and isinstance(self.meta.get("target"), dict):
            digest = hashlib.sha256(
                b"".join(blobs[name] for name in sorted(blobs) if name.startswith("target."))
            )
            self.meta["target"]["sha256"] = digest.hexdigest()
        header: dict[str, Any] = {"__metadata__": {"softrank": canonical(self.meta)}}
        position = 0
        for name in sorted(blobs):
            dtype, shape, _ = self.tensors[name]
            end = position + len(blobs[name])
            header[name] = {"data_offsets": [position, end], "dtype": dtype, "shape": shape}
            position = end
        if tamper:
            tamper(header)
        return container(
            canonical(header).encode(), b"".join(blobs[name] for name in sorted(blobs))
        )


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def container(header: bytes, data: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def ratio(value: Fraction | int | str) -> str:
    exact = Fraction(value)
    return f"{exact.numerator:#x}/{exact.denominator:#x}"


def matrix_target(rows: list[list[Fraction]], epsilon: Fraction | str) -> Draft:
    """Fractions over their common denominator."""
    den = 1
    for row in rows:
        for entry in row:
            den = den * entry.denominator // _gcd(den, entry.denominator)
    flat = [int(entry * den) for row in rows for entry in row]
    return _draft("matrix", [len(rows), len(rows[0])], den, 0, epsilon, {"N": ("I64", flat)})


def float_target(rows: list[list[float]], den: int, alpha: Fraction, epsilon: str) -> Draft:
    flat = [entry for row in rows for entry in row]
    return _draft("matrix", [len(rows), len(rows[0])], den, alpha, epsilon, {"A": ("F64", flat)})


def logits_target(
    rows: list[list[float]], N: list[int], den: int, alpha: str, epsilon: str
) -> Draft:
    flat = [entry for row in rows for entry in row]
    tensors = {"H": ("F64", flat), "N": ("I64", N)}
    return _draft("logits", [len(rows), len(rows[0])], den, Fraction(alpha), epsilon, tensors)


def qk_target(
    Q: list[list[float]],
    K: list[list[float]],
    N: list[int],
    den: int,
    alpha: str,
    epsilon: str,
    over_sqrt: int,
    bias: list[float] | None = None,
) -> Draft:
    m, n, d = len(Q), len(K), len(Q[0])
    draft = _draft("qk", [m, n], den, Fraction(alpha), epsilon, {"N": ("I64", N)})
    draft.tensors["target.Q"] = ("F64", [m, d], [x for row in Q for x in row])
    draft.tensors["target.K"] = ("F64", [n, d], [x for row in K for x in row])
    if bias is not None:
        draft.tensors["target.bias"] = ("F64", [m, n], bias)
    draft.meta["target"]["scale"] = ratio(1)
    draft.meta["target"]["over_sqrt"] = f"{over_sqrt:#x}"
    return draft


def claim(
    draft: Draft,
    side: str,
    kind: str,
    rank: int,
    params: dict[str, int] | None = None,
    tensors: dict[str, tuple[list[int], list[int]]] | None = None,
) -> Draft:
    """A copy of the draft with one more claim; tensors: name -> (shape, integers)."""
    result = draft.copy()
    number = len(result.meta["claims"])
    scales = {name: f"{value:#x}" for name, value in (params or {}).items()}
    result.meta["claims"].append({"side": side, "kind": kind, "rank": rank, "params": scales})
    for name, (shape, values) in (tensors or {}).items():
        result.tensors[f"claim{number}.{name}"] = ("I32", shape, values)
    return result


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _draft(
    kind: str,
    shape: list[int],
    den: int,
    alpha: Fraction | int,
    epsilon: Fraction | str,
    tensors: dict[str, tuple[str, list[Any]]],
) -> Draft:
    meta = {
        "format": "softrank-certificate-1",
        "norm": "max-row-l1",
        "class": "any",
        "epsilon": ratio(epsilon),
        "provenance": {"made by": "hand"},
        "target": {
            "object": kind,
            "shape": shape,
            "den": f"{den:#x}",
            "alpha": ratio(alpha),
            "sha256": "",
        },
        "claims": [],
    }
    stored = {f"target.{name}": (dtype, shape, values) for name, (dtype, values) in tensors.items()}
    return Draft(meta, stored)


# ---------------------------------------------------------------------------------------------
# The matrices and witnesses that the cases are made of.


def two_bit(t: Fraction, s: Fraction) -> list[list[Fraction]]:
    """K_t (x) K_s (MATH 9.1)."""

    def entry(first: int, second: int) -> Fraction:
        return (1 + (-1) ** first * t) * (1 + (-1) ** second * s) / 4

    return [[entry((x ^ y) >> 1, (x ^ y) & 1) for y in range(4)] for x in range(4)]


T34, S12 = Fraction(3, 4), Fraction(1, 2)
CHI12 = [1, -1, -1, 1]
IDENTITY4 = [int(i == j) for i in range(4) for j in range(4)]


def rank_one_upper(draft: Draft, value: int, scale: int) -> Draft:
    """The constant matrix value/scale as a rank-one witness."""
    return claim(
        draft,
        "upper",
        "factor",
        1,
        {"scale": scale},
        {"X": ([4, 1], [value] * 4), "Y": ([1, 4], [1] * 4)},
    )


def rank_two_upper(draft: Draft) -> Draft:
    """K_{3/4} (x) J/4: error 1/2 (MATH 9.1), over scale 32."""
    X = [1, 0, 1, 0, 0, 1, 0, 1]
    Y = [7, 7, 1, 1, 1, 1, 7, 7]
    return claim(draft, "upper", "factor", 2, {"scale": 32}, {"X": ([4, 2], X), "Y": ([2, 4], Y)})


def rank_three_lower(draft: Draft, rank: int = 3) -> Draft:
    """MATH 9.1's witness for r >= 3 at t = 3/4, s = 1/2: valid for eps < 1/2.

    lam = ((1 + 4/3)/2, 0, (2 - 4/3)/2, (1 - 2)/2) = (7, 0, 2, -3)/6 by x xor y;
    I - G A = (1 - ts(1 + 1/t - 1/s))/4 chi chi^T = (7/32) chi chi^T.
    """
    lam = [7, 0, 2, -3]
    G = [lam[x ^ y] for x in range(4) for y in range(4)]
    tensors = {
        "columns": ([4], [0, 1, 2, 3]),
        "G": ([4, 4], G),
        "X": ([4, 1], CHI12),
        "Y": ([1, 4], [7 * c for c in CHI12]),
    }
    return claim(draft, "lower", "bernstein", rank, {"g_scale": 6, "xy_scale": 32}, tensors)


def mirrored(draft: Draft) -> Draft:
    """The same witness read by rows: A and G are symmetric and commute."""
    result = rank_three_lower(draft)
    result.meta["claims"][-1]["kind"] = "bernstein-rows"
    number = len(result.meta["claims"]) - 1
    result.tensors[f"claim{number}.rows"] = result.tensors.pop(f"claim{number}.columns")
    return result


def frobenius_lower(draft: Draft, rank: int) -> Draft:
    """d = 1, T = I and the exact eigenvectors (the characters, of norm 2) of a two-bit matrix."""
    Q = [(-1) ** bin(x & y).count("1") for x in range(4) for y in range(4)]
    tensors = {"d": ([4], [1] * 4), "T": ([4, 4], IDENTITY4), "Q": ([4, 4], Q)}
    return claim(draft, "lower", "hilbert-schmidt", rank, {"q_scale": 2}, tensors)


def fantope_lower(draft: Draft, rank: int, v: int = 0) -> Draft:
    """w = 1, T = I, characters as eigenvectors: H_j = A^T A - 4 epsilon^2 e_j e_j^T.

    v e_j as weights of the columns adds v e_j e_j^T and takes it away again.
    """
    Q = [(-1) ** bin(x & y).count("1") for x in range(4) for y in range(4)]
    tensors = {
        "T": ([4, 4], IDENTITY4),
        "w": ([4, 4], [1] * 16),
        "v": ([4, 4], [v * entry for entry in IDENTITY4]),
        "Q": ([4, 4, 4], Q * 4),
    }
    return claim(draft, "lower", "fantope", rank, {"q_scale": 2}, tensors)


def sign_lower(draft: Draft, scale: int = 1) -> Draft:
    """r >= 1 by one row and its signs (Hilbert-Schmidt with k = 0)."""
    tensors = {"d": ([4], [1, 0, 0, 0]), "T": ([4, 1], [1] * 4), "Q": ([1, 1], [scale])}
    return claim(draft, "lower", "hilbert-schmidt", 1, {"q_scale": 1}, tensors)


def rank_two_lower(draft: Draft, rank: int = 2) -> Draft:
    """MATH 9.1's witness for r >= 2 at t = 3/4: G = 7/12 where first bits agree, else -1/12."""
    G = [7 if (x ^ y) < 2 else -1 for x in range(4) for y in range(4)]
    chi2 = [1, -1, 1, -1]
    X = [c for pair in zip(chi2, CHI12, strict=True) for c in pair]
    tensors = {
        "columns": ([4], [0, 1, 2, 3]),
        "G": ([4, 4], G),
        "X": ([4, 2], X),
        "Y": ([2, 4], chi2 + CHI12),
    }
    return claim(draft, "lower", "bernstein", rank, {"g_scale": 12, "xy_scale": 4}, tensors)


def bracket(epsilon: str = "1/2") -> Draft:
    """K_{3/4} (x) K_{1/2} at 1/2: r = 2, proven from both sides, above exactly on a threshold."""
    return rank_two_upper(rank_two_lower(matrix_target(two_bit(T34, S12), epsilon)))


# ---------------------------------------------------------------------------------------------
# Verified, rejected and refuted.

OK, MARGIN, BASIS, ALPHA = (
    ["verified", "ok"],
    ["rejected", "margin"],
    ["rejected", "basis"],
    ["rejected", "alpha"],
)
REFUTED = ["refuted", "margin"]
ORACLE = two_bit(T34, S12)


def factor_exact(rows: list[list[Fraction]], epsilon: str) -> Draft:
    """A itself over den 32 as X = 32 A, Y = I."""
    X = [int(32 * entry) for row in rows for entry in row]
    tensors = {"X": ([4, 4], X), "Y": ([4, 4], IDENTITY4)}
    return claim(matrix_target(rows, epsilon), "upper", "factor", 4, {"scale": 32}, tensors)


def rank_zero(epsilon: str) -> Draft:
    tensors: dict[str, tuple[list[int], list[int]]] = {"X": ([4, 0], []), "Y": ([0, 4], [])}
    return claim(matrix_target(ORACLE, epsilon), "upper", "factor", 0, {"scale": 1}, tensors)


def inverse_lower(epsilon: str) -> Draft:
    """G = A^-1: rank 4 below d_3 = 3/8 (MATH 5.5); A^-1 = K_{4/3} (x) K_2 up to scale."""
    # (K_t)^-1 = K_{1/t}: entries (1 + 4/3)/2 = 7/6 and -1/6; (1 + 2)/2 = 3/2 and -1/2.
    G = [(7, -1)[(x ^ y) >> 1] * (3, -1)[(x ^ y) & 1] for x in range(4) for y in range(4)]
    tensors = {
        "columns": ([4], [0, 1, 2, 3]),
        "G": ([4, 4], G),
        "X": ([4, 0], []),
        "Y": ([0, 4], []),
    }
    params = {"g_scale": 12, "xy_scale": 1}
    return claim(matrix_target(ORACLE, epsilon), "lower", "bernstein", 4, params, tensors)


def one_entry(epsilon: str, columns: list[int], g: int) -> Draft:
    """The entry 3/10 and zeros: rank 1 by column 0 and G = 10/3 at 1/4, where X and Y are empty.

    With column 0 twice, G = 5/3 would "prove" rank 1 at 2/5, where the rank is 0.
    """
    c = len(columns)
    tensors = {
        "columns": ([c], columns),
        "G": ([c, 2], [g, 0] * c),
        "X": ([c, c - 1], [1, -1][: c * (c - 1)]),
        "Y": ([c - 1, c], [1, -1][: c * (c - 1)]),
    }
    draft = matrix_target([[Fraction(3, 10), Fraction(0)], [Fraction(0), Fraction(0)]], epsilon)
    return claim(draft, "lower", "bernstein", 1, {"g_scale": 3, "xy_scale": 2}, tensors)


def fantope_column(epsilon: str = "1/4") -> Draft:
    """T selects column 0 alone: |A_0|_2^2 sum over rows against 4 epsilon^2."""
    tensors = {
        "T": ([4, 1], [1, 0, 0, 0]),
        "w": ([1, 4], [1] * 4),
        "v": ([1, 4], [0] * 4),
        "Q": ([1, 1, 1], [1]),
    }
    draft = matrix_target(ORACLE, epsilon)
    return claim(draft, "lower", "fantope", 1, {"q_scale": 1}, tensors)


def trivial(draft: Draft, lower: int, upper: int) -> Draft:
    return claim(claim(draft, "lower", "trivial", lower), "upper", "trivial", upper)


def uniform_logits(epsilon: str) -> Draft:
    return logits_target(
        [[0.0, 0.0], [1.0, 1.0]], [1, 1, 1, 1], 2, "1/1152921504606846976", epsilon
    )


def three_equal_logits(alpha: str) -> Draft:
    """A row of 1/3, which no power of two holds: 715827883/2^31 is off by 1/(3 2^31) each."""
    row = [715827883, 715827883, 715827882]
    return trivial(logits_target([[-7.0] * 3], row, 1 << 31, alpha, "1/4"), 1, 1)


def masked_logits() -> Draft:
    """Rows (1, 0) and (1/2, 1/2), then a sign witness and an exact factor."""
    rows = [[3.0, -float("inf")], [2.0, 2.0]]
    draft = logits_target(rows, [2, 0, 1, 1], 2, "1/1152921504606846976", "1/4")
    sign = {"d": ([2], [1, 0]), "T": ([2, 1], [1, 1]), "Q": ([1, 1], [1])}
    draft = claim(draft, "lower", "hilbert-schmidt", 1, {"q_scale": 1}, sign)
    exact = {"X": ([2, 2], [2, 0, 1, 1]), "Y": ([2, 2], [1, 0, 0, 1])}
    return claim(draft, "upper", "factor", 2, {"scale": 2}, exact)


def huge_logits() -> Draft:
    """Rows (1, 0) and (0, 1) up to e^-1e300."""
    rows = [[1e300, -1e300], [-1e300, 0.0]]
    return trivial(logits_target(rows, [1, 0, 0, 1], 1, "1/1152921504606846976", "1/4"), 1, 2)


def small_qk(over_sqrt: int = 2, bias: list[float] | None = None) -> Draft:
    """Logits [[1, 0], [0, 2]] / sqrt(2) + bias, N by float64 over 2^40, alpha 2^-38."""
    from math import exp, inf

    extra = bias or [0.0] * 4
    root = 2.0**-0.5
    H = [[root + extra[0], extra[1]], [extra[2], 2 * root + extra[3]]]
    N = []
    for row in H:
        weights = [0.0 if h == -inf else exp(h) for h in row]
        N += [round(w / sum(weights) * 2**40) for w in weights]
    draft = qk_target(
        [[1.0, 0.0], [0.0, 1.0]],
        [[1.0, 0.0], [0.0, 2.0]],
        N,
        1 << 40,
        "1/274877906944",
        "1/4",
        over_sqrt,
        bias,
    )
    return trivial(draft, 1, 2)


def float_target_bracket(den: int, alpha: Fraction, epsilon: str = "1/2") -> Draft:
    rows = [[float(entry) for entry in row] for row in ORACLE]
    return rank_two_upper(float_target(rows, den, alpha, epsilon))


def subnormal() -> Draft:
    """Entries 2^-1074 over den 2^1074: N is the identity, A is 2^-1074 I, and epsilon is 0."""
    tiny = 2.0**-1074
    draft = float_target([[tiny, 0.0], [0.0, tiny]], 1 << 1074, Fraction(0), "0")
    return trivial(draft, 0, 2)


def slack_lower(alpha: Fraction) -> Draft:
    """MATH 2.4: at epsilon = 1/2 - 2^-11, alpha decides."""
    rows = [[float(entry) for entry in row] for row in ORACLE]
    return rank_three_lower(float_target(rows, 32, alpha, "1023/2048"))


# A 3 x 4 matrix over 16 with alpha 1/64: nothing square, symmetric, binary or without slack.
OBLONG = [[Fraction(x, 16) for x in row] for row in ([8, 1, 0, -2], [1, 4, 0, 0], [0, -1, 3, 0])]


def oblong(epsilon: str) -> Draft:
    draft = matrix_target(OBLONG, epsilon)
    draft.meta["target"]["alpha"] = ratio(Fraction(1, 64))
    return draft


def oblong_factor(epsilon: str) -> Draft:
    """Row errors 2/16, 0 and 3/16."""
    tensors = {"X": ([3, 2], [8, 1, 1, 4, 0, -1]), "Y": ([2, 4], [1, 0, 0, 0, 0, 1, 0, 0])}
    return claim(oblong(epsilon), "upper", "factor", 2, {"scale": 16}, tensors)


def oblong_tail(epsilon: str) -> Draft:
    """Q is off orthogonal (D = 6 of 25); the bottom sum has terms of both signs."""
    tensors = {
        "d": ([3], [2, 1, 3]),
        "T": ([4, 3], [2, 0, 0, 0, 1, 0, 1, 0, 3, 1, 0, 0]),
        "Q": ([3, 3], [3, -4, 0, 4, 3, 0, 0, 1, 5]),
    }
    return claim(oblong(epsilon), "lower", "hilbert-schmidt", 1, {"q_scale": 5}, tensors)


def oblong_rotated(epsilon: str) -> Draft:
    """A rotation for Q, which its transpose is not, and one of two eigenvalues in the sum."""
    tensors = {
        "d": ([3], [2, -1, 3]),
        "T": ([4, 2], [2, 1, -1, 2, 0, 3, 1, 0]),
        "Q": ([2, 2], [3, -4, 4, 3]),
    }
    return claim(oblong(epsilon), "lower", "hilbert-schmidt", 2, {"q_scale": 5}, tensors)


def narrow_tail(rank: int) -> Draft:
    """q = 2 on the identity: from rank q + 2 on the number of eigenvalues is 0, never below."""
    tensors = {"d": ([4], [1] * 4), "T": ([4, 2], [1, 0] + [0, 1] * 3), "Q": ([2, 2], [1, 0, 0, 1])}
    draft = matrix_target([[Fraction(i == j) for j in range(4)] for i in range(4)], "0")
    return claim(draft, "lower", "hilbert-schmidt", rank, {"q_scale": 1}, tensors)


def oblong_bernstein(epsilon: str) -> Draft:
    """Two of four columns; one row of H that is not zero, over the unit lcm(96, 5)."""
    tensors = {
        "columns": ([2], [1, 3]),
        "G": ([2, 3], [0, 22, 1, 2, -1, 0]),
        "X": ([2, 1], [1, 5]),
        "Y": ([1, 2], [0, 1]),
    }
    params = {"g_scale": 6, "xy_scale": 5}
    return claim(oblong(epsilon), "lower", "bernstein", 1, params, tensors)


def oblong_rows(epsilon: str) -> Draft:
    """Two of three rows."""
    tensors = {
        "rows": ([2], [0, 2]),
        "G": ([4, 2], [11, 0, 0, 1, 0, 2, -1, 0]),
        "X": ([2, 1], [1, 5]),
        "Y": ([1, 2], [0, 1]),
    }
    params = {"g_scale": 6, "xy_scale": 5}
    return claim(oblong(epsilon), "lower", "bernstein-rows", 1, params, tensors)


def oblong_fantope(epsilon: str) -> Draft:
    """T = (2, 1, 0, 0)^T; row weights alone for column 0, a column weight alone for column 1."""
    tensors = {
        "T": ([4, 1], [2, 1, 0, 0]),
        "w": ([2, 3], [1, 0, 2, 0, 0, 0]),
        "v": ([2, 4], [0, 0, 0, 0, 1, 0, 0, 0]),
        "Q": ([2, 1, 1], [1, 1]),
    }
    return claim(oblong(epsilon), "lower", "fantope", 1, {"q_scale": 1}, tensors)


def oblong_fantope_rotated(epsilon: str, rank: int) -> Draft:
    """q = 2, one rotation and one basis that is off."""
    tensors = {
        "T": ([4, 2], [2, 1, 0, 0, -1, 2, 0, 0]),
        "w": ([2, 3], [2, 1, 3, 1, 3, 2]),
        "v": ([2, 4], [0, 0, 0, 0, 0, 0, 1, 0]),
        "Q": ([2, 2, 2], [3, -4, 4, 3, 4, -3, 3, 5]),
    }
    return claim(oblong(epsilon), "lower", "fantope", rank, {"q_scale": 5}, tensors)


def shattering(epsilon: str) -> Draft:
    """Rank 2 of the oracle below d_2 = 3/4: rows 0 and 3 by values of either sign of the bits."""
    tensors = {
        "D": ([2, 4], [1, 0, 0, 0, 0, 0, 0, 1]),
        "blocks": ([1], [2]),
        "edges": ([0, 2], []),
        "Y": ([2, 4], [1, 1, 1, 1, 1, 1, -1, -1]),
    }
    draft = matrix_target(ORACLE, epsilon)
    return claim(draft, "lower", "shattering", 2, {}, tensors)


def oblong_shattering(epsilon: str, blocks: list[int]) -> Draft:
    """Rank 3: blocks of one, two or three rows, queries and values of several signs and sizes."""
    Y = {
        (3,): [0, 4, 4, -4, 3, -3, 4, -4, 1, 4, -4, -2, 1, -3, -4, -2],
        (2, 1): [3, 3, -1, -3, 3, -4, -1, -2, 2, 0, 4, 1],
        (1, 2): [3, 0, -1, -1, 2, 4, 4, 2, 1, 3, -4, 4],
        (1, 1, 1): [3, -1, -1, -2, 0, 3, 0, 1, 2, 0, 4, 0],
    }[tuple(blocks)]
    tensors = {
        "D": ([3, 3], [5, 0, -1, 0, 6, -1, 1, 1, 9]),
        "blocks": ([len(blocks)], blocks),
        "edges": ([0, 2], []),
        "Y": ([len(Y) // 4, 4], Y),
    }
    return claim(oblong(epsilon), "lower", "shattering", 3, {}, tensors)


DIVIDED_AGAIN = [4, -4, -1, 2, 0, -3, -4, -4, 4, -1, -2, -2, 1, 0, -4, -4]


def divided_shattering(epsilon: str, blocks: list[int]) -> Draft:
    """The same queries with edges divided: by either orientation, and an edge of a new vertex."""
    edges, D, Y = {
        (3,): (
            [1, -2, -3, 4],
            [4, -5, 0, 3, -2, -3],
            [3, 4, 4, -3, 1, -4, 3, 2, 4, -2, 4, -4, 4, 4, -4, 1, *DIVIDED_AGAIN],
        ),
        (2, 1): (
            [2, 1, 4, 1],
            [3, 4, 0, 4, 2, 0],
            [1, 2, 0, -1, 4, 3, -1, 0, 4, 3, -1, -3, 1, -4, -1, -4, 0, 0, 4, -1],
        ),
        (1, 2): (
            [-3, 2],
            [0, 4, -3],
            [3, 0, -1, 0, 1, 3, 3, -3, -1, 4, -2, 3, 1, 4, -3, 1],
        ),
    }[tuple(blocks)]
    tensors = {
        "D": ([3 + len(edges) // 2, 3], [5, 0, -1, 0, 6, -1, 1, 1, 9, *D]),
        "blocks": ([len(blocks)], blocks),
        "edges": ([len(edges) // 2, 2], edges),
        "Y": ([len(Y) // 4, 4], Y),
    }
    return claim(oblong(epsilon), "lower", "shattering", 3, {}, tensors)


def identity_rows(G: list[int]) -> Draft:
    """Rank 1 of the 2 x 2 identity from X Y = e_2 e_2^T; G may have rows of zeros."""
    tensors = {
        "columns": ([2], [0, 1]),
        "G": ([2, 2], G),
        "X": ([2, 1], [0, 1]),
        "Y": ([1, 2], [0, 1]),
    }
    draft = matrix_target([[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]], "1/2")
    return claim(draft, "lower", "bernstein", 1, {"g_scale": 1, "xy_scale": 1}, tensors)


def ladder(epsilon: str) -> Draft:
    """Lower 1, 2, 0 and upper 3, 2, 4, of a matrix of rank 2 at 1/2."""
    draft = rank_two_lower(sign_lower(matrix_target(ORACLE, epsilon)))
    draft = claim(draft, "lower", "trivial", 0)
    # Rank 3 is rank 2 with a column of zeros.
    X = [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0]
    Y = [7, 7, 1, 1, 1, 1, 7, 7, 0, 0, 0, 0]
    draft = claim(draft, "upper", "factor", 3, {"scale": 32}, {"X": ([4, 3], X), "Y": ([3, 4], Y)})
    return claim(rank_two_upper(draft), "upper", "trivial", 4)


def scaled_qk(scale: str) -> Draft:
    """Logits (3/5) / sqrt(3) Q K^T, entries with fractions, Q 2 x 2 and K 3 x 2."""
    from math import exp

    Q, K = [[0.5, -1.25], [0.75, 2.0]], [[1.5, 0.25], [-0.375, 1.0], [0.625, -0.5]]
    N = []
    for q in Q:
        weights = [exp(0.6 / 3**0.5 * sum(a * b for a, b in zip(q, k, strict=True))) for k in K]
        N += [round(w / sum(weights) * 2**40) for w in weights]
    draft = qk_target(Q, K, N, 1 << 40, "1/137438953472", "1/4", 3)
    draft.meta["target"]["scale"] = ratio(scale)
    return trivial(draft, 1, 2)


def large_qk() -> Draft:
    """Two equal logits 2^1200 / sqrt(3), whose difference takes 1200 bits to see."""
    draft = qk_target([[2.0**500]], [[2.0**400]] * 2, [1, 1], 2, "1/1152921504606846976", "1/4", 3)
    draft.meta["target"]["scale"] = ratio(1 << 300)
    return trivial(draft, 1, 1)


def large_bias() -> Draft:
    """small_qk with -2^1000 added to all of row 0, which changes nothing."""
    draft = small_qk(bias=[0.0] * 4)
    draft.tensors["target.bias"] = ("F64", [2, 2], [-(2.0**1000)] * 2 + [0.0] * 2)
    return draft


def second_row(wrong: bool) -> Draft:
    """Row 0 is what N says, row 1 only if not ``wrong``; logits."""
    N = [1, 1, 2, 0] if wrong else [1, 1, 1, 1]
    rows = [[0.0, 0.0], [1.0, 1.0]]
    return trivial(logits_target(rows, N, 2, "1/1152921504606846976", "1/4"), 1, 2)


def judged_cases() -> list[Case]:
    """Every certificate here is well-formed; what follows is what it proves."""
    cases: list[Case] = []

    def add(
        name: str, comment: str, draft: Draft, *verdicts: list[str], control: str | None = None
    ) -> None:
        cases.append(Case(name, comment, draft.bytes(), list(verdicts), control))

    def at(epsilon: str) -> Draft:
        return matrix_target(ORACLE, epsilon)

    add("bracket", "rank 2 at 1/2 on both sides, upper on its threshold", bracket(), OK, OK)

    add("factor", "error exactly epsilon", rank_two_upper(at("1/2")), OK)
    below = rank_two_upper(at("524287/1048576"))
    add("factor-below", "epsilon smaller by 2^-20", below, MARGIN, control="factor")
    add("factor-zero-epsilon", "A itself, epsilon 0", factor_exact(ORACLE, "0"), OK)
    add("factor-rank-zero", "rows sum to epsilon", rank_zero("1"), OK)
    below = rank_zero("255/256")
    add("factor-rank-zero-below", "rows sum to more", below, MARGIN, control="factor-rank-zero")
    square = matrix_target(two_bit(T34, T34), "3/4")
    add("factor-class-gap", "7/64 everywhere", rank_one_upper(square, 7, 64), OK)
    uniform = rank_one_upper(square, 8, 64)
    add("factor-uniform", "1/8 everywhere: 33/32", uniform, MARGIN, control="factor-class-gap")

    add("bernstein", "rank 3 below 1/2", rank_three_lower(at("7/16")), OK)
    on = rank_three_lower(at("1/2"))
    add("bernstein-on-threshold", "a row norm of exactly 1", on, MARGIN, control="bernstein")
    add("bernstein-rows", "the left mirror", mirrored(at("7/16")), OK)
    on = mirrored(at("1/2"))
    add("bernstein-rows-on-threshold", "exactly 1", on, MARGIN, control="bernstein-rows")
    add("bernstein-inverse", "X, Y empty", inverse_lower("23/64"), OK)
    on = inverse_lower("3/8")
    add("bernstein-inverse-on-threshold", "1/||A^-1||", on, MARGIN, control="bernstein-inverse")
    add("bernstein-one-column", "one column of two", one_entry("1/4", [0], 10), OK)

    add("hilbert-schmidt", "rank 4 below 3/16", frobenius_lower(at("11/64"), 4), OK)
    on = frobenius_lower(at("3/16"), 4)
    add(
        "hilbert-schmidt-on-threshold",
        "the tail is epsilon^2",
        on,
        MARGIN,
        control="hilbert-schmidt",
    )
    add("hilbert-schmidt-signs", "rank 1 from one row", sign_lower(at("255/256")), OK)
    on = sign_lower(at("1"))
    add("hilbert-schmidt-signs-on", "row norm 1", on, MARGIN, control="hilbert-schmidt-signs")
    bad = sign_lower(at("1/256"), scale=2)
    add("hilbert-schmidt-basis", "Q is twice q_scale", bad, BASIS, control="hilbert-schmidt-signs")

    add("fantope", "rank 4 below 3/16", fantope_lower(at("11/64"), 4), OK)
    on = fantope_lower(at("3/16"), 4)
    add("fantope-on-threshold", "phi is exactly 0", on, MARGIN, control="fantope")
    add("fantope-v", "v^j = e_j", fantope_lower(at("11/64"), 4, v=1), OK)
    negative = fantope_lower(at("3/4"), 1)
    add("fantope-negative", "negative eigenvalues", negative, MARGIN, control="fantope")
    add("fantope-column", "T has one non-zero row", fantope_column(), OK)
    bad = fantope_lower(at("11/64"), 4)
    bad.tensors["claim0.Q"][2][37] *= -1
    add("fantope-basis", "one sign of the third basis", bad, BASIS, control="fantope")

    add("shattering", "rank 2 below 3/4", shattering("767/1024"), OK)
    on = shattering("3/4")
    add("shattering-on-threshold", "every g_i is 3/4", on, MARGIN, control="shattering")

    add("trivial", "0 <= r <= min(m, n)", trivial(at("1/4"), 0, 4), OK, OK)
    add(
        "trivial-too-much",
        "needs witnesses",
        trivial(at("1/4"), 1, 3),
        MARGIN,
        MARGIN,
        control="trivial",
    )
    add("trivial-softmax", "rows sum to one", trivial(uniform_logits("1/4"), 1, 2), OK, OK)
    zero = trivial(uniform_logits("255/256"), 1, 0)
    add("trivial-softmax-zero", "rank 0 below 1", zero, OK, REFUTED, control="trivial-softmax")
    add("trivial-softmax-at-one", "epsilon 1", trivial(uniform_logits("1"), 0, 0), OK, OK)
    one = trivial(uniform_logits("1"), 1, 0)
    add("trivial-softmax-one", "rank 1 at 1", one, REFUTED, OK, control="trivial-softmax-at-one")

    three = rank_two_upper(rank_three_lower(at("1/2")))
    add("refuted-lower", "rank 3 against a proven 2", three, REFUTED, OK, control="bracket")
    one = rank_one_upper(rank_two_lower(at("1/2")), 1, 8)
    add("refuted-upper", "rank 1 against a proven 2", one, OK, REFUTED, control="bracket")

    slackful = "1/1073741824"
    add("logits-uniform", "1/3 three times", three_equal_logits(slackful), OK, OK)
    none = three_equal_logits("0")
    add("logits-uniform-no-slack", "alpha 0", none, ALPHA, ALPHA, control="logits-uniform")
    add("logits-masked", "one masked entry", masked_logits(), OK, OK)
    add("logits-huge", "logits 1e300 apart", huge_logits(), OK, OK)
    add("qk", "scale 1/sqrt(2)", small_qk(), OK, OK)
    wrong = small_qk(over_sqrt=3)
    add("qk-wrong-scale", "1/sqrt(3), N for 1/sqrt(2)", wrong, ALPHA, ALPHA, control="qk")
    biased = small_qk(bias=[0.0, -float("inf"), 1.0, 0.0])
    add("qk-bias", "a bias that masks one entry", biased, OK, OK)

    add("float-exact", "floats over den 32, alpha 0", float_target_bracket(32, Fraction(0)), OK)
    rounded = float_target_bracket(3, Fraction(1, 4), "7/8")
    add("float-rounded", "den 3: every row is off by alpha, exactly", rounded, OK)
    short = float_target_bracket(3, Fraction(1, 5), "7/8")
    add("float-rounded-short", "alpha 1/5", short, ALPHA, control="float-rounded")
    add("float-subnormal", "2^-1074 I over den 2^1074", subnormal(), OK, OK)
    spent = float_target_bracket(32, Fraction(1, 1 << 40))
    add("slack-upper", "alpha 2^-40 on a threshold", spent, MARGIN, control="float-exact")
    add("slack-lower-spared", "alpha 0", slack_lower(Fraction(0)), OK)
    spent = slack_lower(Fraction(1, 1 << 11))
    add("slack-lower", "alpha 2^-11 reaches 1/2", spent, MARGIN, control="slack-lower-spared")

    def on_either_side(
        name: str, comment: str, make: Callable[[str], Draft], below: str, above: str
    ) -> None:
        add(name, comment, make(below), OK)
        add(f"{name}-above", f"{above} is above its threshold", make(above), MARGIN, control=name)

    add("oblong-factor", "error exactly epsilon - alpha", oblong_factor("13/64"), OK)
    short = oblong_factor("12/64")
    add("oblong-factor-below", "error exactly epsilon", short, MARGIN, control="oblong-factor")
    on_either_side("oblong-tail", "terms of both signs", oblong_tail, "689/10000", "6891/100000")
    on_either_side("oblong-rotated", "Q a rotation", oblong_rotated, "599/10000", "5993/100000")
    on_either_side("oblong-bernstein", "H not zero", oblong_bernstein, "1686/10000", "1687/10000")
    on_either_side("oblong-rows", "H not zero", oblong_rows, "3809/10000", "3810/10000")
    on_either_side("oblong-fantope", "w or v zero", oblong_fantope, "2905/10000", "2906/10000")
    for rank, under, over in ((1, "1169/10000", "1170/10000"), (2, "798/10000", "799/10000")):
        on_either_side(
            f"oblong-fantope-rotated-{rank}",
            "q = 2",
            lambda epsilon, rank=rank: oblong_fantope_rotated(epsilon, rank),
            under,
            over,
        )
    for blocks, under, over in (
        ([3], "1022/10000", "1023/10000"),
        ([2, 1], "1025/10000", "1026/10000"),
        ([1, 2], "1025/10000", "1026/10000"),
        ([1, 1, 1], "1025/10000", "1026/10000"),
    ):
        on_either_side(
            "oblong-shattering-" + "-".join(map(str, blocks)),
            "blocks of queries, neither 0 nor 1 alone",
            lambda epsilon, blocks=blocks: oblong_shattering(epsilon, blocks),
            under,
            over,
        )
    for blocks, under, over in (
        ([3], "1093/10000", "1094/10000"),
        ([2, 1], "1025/10000", "1026/10000"),
        ([1, 2], "982/10000", "983/10000"),
    ):
        on_either_side(
            "divided-shattering-" + "-".join(map(str, blocks)),
            "facets divided by edges",
            lambda epsilon, blocks=blocks: divided_shattering(epsilon, blocks),
            under,
            over,
        )
    add("narrow-tail", "rank 2 from q = 2", narrow_tail(2), OK)
    add("narrow-tail-beyond", "rank 4 from q = 2", narrow_tail(4), MARGIN, control="narrow-tail")
    comment = "499 < 4096 epsilon^2 < 500 makes c_j 500, what column 0 has"
    on_either_side("fantope-ceiling", comment, fantope_column, "349/1000", "873/2500")
    add("qk-scaled", "scale 3/5, not square", scaled_qk("3/5"), OK, OK)
    wrong = scaled_qk("5/3")
    add("qk-scaled-wrong", "scale 5/3", wrong, ALPHA, ALPHA, control="qk-scaled")
    add("qk-large", "equal logits of 2^1200 / sqrt(3)", large_qk(), OK, OK)
    add("logits-second-row", "two rows", second_row(wrong=False), OK, OK)
    wrong = second_row(wrong=True)
    add("logits-second-row-wrong", "row 1", wrong, ALPHA, ALPHA, control="logits-second-row")
    add("qk-large-bias", "a bias of -2^1000", large_bias(), OK, OK)
    rows = [[0.5, 0.5], [0.5, 0.25]]
    both = trivial(float_target(rows, 2, Fraction(1, 4), "1/4"), 0, 2)
    add("float-second-row", "row 1 is off by alpha", both, OK, OK)
    short = trivial(float_target(rows, 2, Fraction(1, 8), "1/4"), 0, 2)
    add("float-second-row-short", "alpha 1/8", short, ALPHA, ALPHA, control="float-second-row")
    largest = matrix_target([[Fraction(1), Fraction(-1)]], "0")
    largest.meta["target"]["den"] = f"{1 << 62:#x}"
    largest.tensors["target.N"] = ("I64", [1, 2], [1 << 62, -(1 << 62)])
    add("integer-largest", "entries of +-2^62", trivial(largest, 0, 1), OK, OK)
    add("bernstein-zero-row", "a row of G is zero", identity_rows([1, 0, 0, 0]), OK)
    nothing = identity_rows([0] * 4)
    add("bernstein-zero", "G is zero", nothing, MARGIN, control="bernstein-zero-row")
    bad = sign_lower(at("1/256"), scale=0)
    add("hilbert-schmidt-basis-on", "D is s^2", bad, BASIS, control="hilbert-schmidt-signs")
    double = matrix_target([[2 * entry for entry in row] for row in ORACLE], "1")
    add("trivial-large", "epsilon 1, no softmax", trivial(double, 0, 4), OK, OK)
    zero = trivial(double, 0, 0)
    add("trivial-large-zero", "rank 0 at 1", zero, OK, MARGIN, control="trivial-large")
    add("ladder", "several ranks on either side", ladder("1/2"), *[OK] * 6)
    same = rank_one_upper(rank_two_lower(at("1/2")), 1, 8)
    same.meta["claims"][1]["rank"] = 2
    same.tensors["claim1.X"] = ("I32", [4, 2], [1, 0] * 4)
    same.tensors["claim1.Y"] = ("I32", [2, 4], [1] * 4 + [0] * 4)
    add("rejected-upper", "a bad rank 2 beside r >= 2", same, OK, MARGIN, control="bracket")
    same = rank_two_upper(rank_two_lower(at("1/2")))
    same.tensors["claim0.G"] = ("I32", [4, 4], [0] * 16)
    add("rejected-lower", "a bad rank 2 beside r <= 2", same, MARGIN, OK, control="bracket")
    add("trivial-oblong", "min(3, 4)", trivial(oblong("1/4"), 0, 3), OK, OK)
    tall = matrix_target([list(column) for column in zip(*OBLONG, strict=True)], "1/4")
    add("trivial-tall", "min(4, 3)", trivial(tall, 0, 3), OK, OK)
    accented = bracket()
    accented.meta["provenance"] = {"\u00e9\U0001f600": "[/x] \ud800\u001b\n"}
    add("provenance-escapes", "anything in a provenance", accented, OK, OK)
    return cases


# ---------------------------------------------------------------------------------------------
# Malformed: the bracket above with one thing wrong.


def malformed_cases() -> list[Case]:
    """One case for every way to be refused, beside the accepted control ``bracket``."""
    cases: list[Case] = []

    def add(name: str, code: str, data: bytes) -> None:
        cases.append(Case(f"malformed-{name}", "", data, [["malformed", code]], "bracket"))

    def meta(name: str, code: str, change: Callable[[dict[str, Any]], object]) -> None:
        draft = bracket()
        draft.bytes()  # fills in the hash
        draft.rehash = False
        change(draft.meta)
        add(name, code, draft.bytes())

    def header(name: str, code: str, tamper: Callable[[dict[str, Any]], object]) -> None:
        add(name, code, bracket().bytes(tamper))

    def tensors(
        name: str, code: str, change: Callable[[dict[str, Any]], object], draft: Draft | None = None
    ) -> None:
        draft = draft or bracket()
        change(draft.tensors)
        add(name, code, draft.bytes())

    good = bracket().bytes()
    length = int.from_bytes(good[:8], "little")
    text, data = good[8 : 8 + length].rstrip(b" "), good[8 + length :]

    add("empty", "size", b"")
    add("seven-bytes", "size", good[:7])
    add("header-length-zero", "size", (0).to_bytes(8, "little") + good[8:])
    add(
        "header-length-huge", "size", ((1 << 20) + 8).to_bytes(8, "little") + b" " * ((1 << 20) + 8)
    )
    add("header-beyond-file", "size", (length + 8 + len(data)).to_bytes(8, "little") + good[8:])
    add("header-unaligned", "size", (length - 1).to_bytes(8, "little") + good[8:])
    add("header-eight-spaces", "json", container(text + b" " * (-len(text) % 8 + 8), data))
    add("header-not-ascii", "json", container(b'{"\xc3\xa9":1}', data))
    add("header-not-json", "json", container(b"{]", data))
    add("header-list", "json", container(b"[]", data))
    add("header-nested", "json", container(b"[" * 100000, data))
    add("header-spaced", "json", container(text.replace(b'":{', b'": {', 1), data))
    add(
        "header-duplicate-key",
        "json",
        container(text.replace(b'{"__meta', b'{"a":1,"a":1,"__meta', 1), data),
    )
    add(
        "header-float",
        "json",
        container(text.replace(b'"shape":[4,4]', b'"shape":[4,4.0]', 1), data),
    )
    add(
        "header-nan", "json", container(text.replace(b'"shape":[4,4]', b'"shape":[4,NaN]', 1), data)
    )
    add("header-long-integer", "json", container(b'{"a":' + b"9" * 5000 + b"}", data))

    header("no-metadata", "layout", lambda h: h.pop("__metadata__"))
    header("metadata-not-object", "layout", lambda h: h.update(__metadata__=[]))
    header("metadata-other-key", "layout", lambda h: h["__metadata__"].update(pt="x"))
    header("metadata-not-string", "layout", lambda h: h["__metadata__"].update(softrank=1))
    header("entry-not-object", "layout", lambda h: h.update({"target.N": 1}))
    header("entry-extra-key", "layout", lambda h: h["target.N"].update(x=1))
    header("entry-dtype", "layout", lambda h: h["target.N"].update(dtype="U64"))
    header("entry-dtype-list", "layout", lambda h: h["target.N"].update(dtype=["I64"]))
    header("entry-shape-string", "layout", lambda h: h["target.N"].update(shape="44"))
    header("entry-four-axes", "layout", lambda h: h["target.N"].update(shape=[2, 2, 2, 2]))
    header("entry-negative-axis", "layout", lambda h: h["target.N"].update(shape=[-4, -4]))
    header("entry-axis-true", "layout", lambda h: h["claim0.columns"].update(shape=[True, 4]))
    header("entry-long-axis", "layout", lambda h: h["target.N"].update(shape=[4097, 4]))
    header("entry-offsets", "layout", lambda h: h["target.N"].update(data_offsets="x"))
    header("entry-offsets-true", "layout", lambda h: h["claim0.G"].update(data_offsets=[False, 64]))
    header("entry-hole", "layout", lambda h: h["target.N"].update(data_offsets=[9, 137]))
    header("entry-size", "layout", lambda h: h["target.N"].update(shape=[4, 5]))
    add("truncated", "layout", good[:-1])
    add("trailing-byte", "layout", good + b"\0")

    header("softrank-not-json", "json", lambda h: h["__metadata__"].update(softrank="{"))
    header(
        "softrank-not-ascii", "json", lambda h: h["__metadata__"].update(softrank='{"\u00e9":1}')
    )
    header("softrank-surrogate", "json", lambda h: h["__metadata__"].update(softrank="\ud800"))
    header("softrank-list", "json", lambda h: h["__metadata__"].update(softrank="[]"))

    meta("format", "version", lambda x: x.update(format="softrank-certificate-2"))
    meta("format-missing", "version", lambda x: x.pop("format"))
    meta("unknown-key", "field", lambda x: x.update(extra=1))
    meta("missing-key", "field", lambda x: x.pop("norm"))
    meta("norm", "field", lambda x: x.update(norm="max-col-l1"))
    meta("class", "field", lambda x: x.update({"class": "row-stochastic"}))
    meta("epsilon-number", "field", lambda x: x.update(epsilon=1))
    meta("epsilon-negative", "field", lambda x: x.update(epsilon="-0x1/0x2"))
    meta("epsilon-lowest-terms", "field", lambda x: x.update(epsilon="0x2/0x4"))
    meta("epsilon-leading-zero", "field", lambda x: x.update(epsilon="0x01/0x2"))
    meta("epsilon-upper-case", "field", lambda x: x.update(epsilon="0xA/0xb"))
    meta("epsilon-newline", "field", lambda x: x.update(epsilon="0x1/0x2\n"))
    meta("epsilon-long", "field", lambda x: x.update(epsilon="0x1/0x1" + "0" * 320))
    meta("epsilon-denominator-zero", "field", lambda x: x.update(epsilon="0x1/0x0"))
    meta("provenance-list", "field", lambda x: x.update(provenance=[]))
    meta("provenance-number", "field", lambda x: x.update(provenance={"seed": 1}))
    meta("provenance-mixed", "field", lambda x: x.update(provenance={"a": "x", "seed": 1}))
    meta("target-list", "field", lambda x: x.update(target=[]))
    meta("target-object", "field", lambda x: x["target"].update(object="attention"))
    meta("target-object-list", "field", lambda x: x["target"].update(object=["matrix"]))
    meta("target-extra-key", "field", lambda x: x["target"].update(scale="0x1/0x1"))
    meta("target-shape-three", "field", lambda x: x["target"].update(shape=[4, 4, 4]))
    meta("target-shape-zero", "field", lambda x: x["target"].update(shape=[0, 4]))
    meta("target-shape-large", "field", lambda x: x["target"].update(shape=[4097, 4]))
    meta("target-shape-string", "field", lambda x: x["target"].update(shape="44"))
    meta("target-shape-true", "field", lambda x: x["target"].update(shape=[True, 4]))
    meta("target-shape-strings", "field", lambda x: x["target"].update(shape=["4", 4]))
    meta("target-den-number", "field", lambda x: x["target"].update(den=4))
    meta("target-den-zero", "field", lambda x: x["target"].update(den="0x0"))
    meta("target-den-long", "field", lambda x: x["target"].update(den="0x1" + "0" * 320))
    meta("target-alpha-negative", "field", lambda x: x["target"].update(alpha="-0x1/0x2"))
    meta(
        "target-sha256-upper-case",
        "field",
        lambda x: x["target"].update(sha256=x["target"]["sha256"].upper()),
    )
    meta("target-sha256-number", "field", lambda x: x["target"].update(sha256=0))
    meta("claims-empty", "field", lambda x: x.update(claims=[]))
    meta("claims-object", "field", lambda x: x.update(claims={}))
    meta(
        "claims-65",
        "field",
        lambda x: x.update(
            claims=[{"side": "lower", "kind": "trivial", "rank": 0, "params": {}}] * 65
        ),
    )
    meta("claim-string", "field", lambda x: x.update(claims=["factor"]))
    meta("claim-kind-number", "field", lambda x: x["claims"][0].update(kind=1))
    meta("claim-kind", "unknown-kind", lambda x: x["claims"][0].update(kind="nuclear"))
    meta("claim-extra-key", "field", lambda x: x["claims"][0].update(alpha="0x0/0x1"))
    meta("claim-side", "field", lambda x: x["claims"][0].update(side="upper"))
    meta("claim-side-list", "field", lambda x: x["claims"][0].update(side=["lower"]))
    meta("claim-rank-string", "field", lambda x: x["claims"][0].update(rank="2"))
    meta("claim-rank-true", "field", lambda x: x["claims"][1].update(rank=True))
    meta("claim-rank-negative", "field", lambda x: x["claims"][1].update(rank=-1))
    meta("claim-rank-zero-lower", "field", lambda x: x["claims"][0].update(rank=0))
    meta("claim-rank-large", "field", lambda x: x["claims"][0].update(rank=5))
    meta("claim-params-list", "field", lambda x: x["claims"][0].update(params=[]))
    meta(
        "claim-params-names",
        "field",
        lambda x: x["claims"][0].update(params=["g_scale", "xy_scale"]),
    )
    meta("claim-params-missing", "field", lambda x: x["claims"][0]["params"].pop("g_scale"))
    meta("claim-scale-zero", "field", lambda x: x["claims"][1]["params"].update(scale="0x0"))
    meta("claim-scale-ratio", "field", lambda x: x["claims"][1]["params"].update(scale="0x1/0x2"))
    meta("hash", "hash", lambda x: x["target"].update(sha256="0" * 64))

    qk_draft = small_qk()
    for key, value in {"scale": "0x1", "over_sqrt": "0x0"}.items():
        draft = qk_draft.copy()
        draft.meta["target"][key] = value
        add(f"qk-{key.replace('_', '-')}", "field", draft.bytes())
    draft = qk_draft.copy()
    draft.meta["target"].pop("scale")
    add("qk-scale-missing", "field", draft.bytes())

    tensors("tensor-missing", "tensors", lambda t: t.pop("claim1.X"))
    tensors("tensor-extra", "tensors", lambda t: t.update({"claim1.Z": t["claim1.X"]}))
    tensors("tensor-third-claim", "tensors", lambda t: t.update({"claim2.X": t["claim1.X"]}))
    tensors("tensor-target-extra", "tensors", lambda t: t.update({"target.Z": t["target.N"]}))
    tensors("tensor-target-missing", "tensors", lambda t: t.pop("target.N"))
    tensors(
        "tensor-target-dtype",
        "tensors",
        lambda t: t.update({"target.N": ("I32", *t["target.N"][1:])}),
    )
    tensors(
        "tensor-target-axes",
        "tensors",
        lambda t: t.update({"target.N": ("I64", [4], [1] * 4)}),
    )
    tensors(
        "tensor-target-shape",
        "tensors",
        lambda t: t.update({"target.N": ("I64", [2, 8], t["target.N"][2])}),
    )
    tensors(
        "tensor-dtype", "tensors", lambda t: t.update({"claim1.X": ("I64", *t["claim1.X"][1:])})
    )
    tensors("tensor-axes", "tensors", lambda t: t.update({"claim1.X": ("I32", [4], [1] * 4)}))
    tensors(
        "tensor-shape",
        "tensors",
        lambda t: t.update({"claim1.X": ("I32", [2, 4], t["claim1.X"][2])}),
    )
    tensors(
        "tensor-broadcast", "tensors", lambda t: t.update({"claim1.X": ("I32", [1, 2], [1, 1])})
    )
    tensors(
        "qk-depth-zero",
        "tensors",
        lambda t: t.update({"target.Q": ("F64", [2, 0], []), "target.K": ("F64", [2, 0], [])}),
        small_qk(),
    )
    draft = bracket()
    draft.meta["claims"][0]["rank"] = 1
    add("rank-against-shapes", "tensors", draft.bytes())
    draft.meta["target"]["sha256"], draft.rehash = "0" * 64, False
    add("rank-against-shapes-and-hash", "tensors", draft.bytes())
    draft = bracket()
    draft.meta["claims"][1]["rank"] = 1
    add("rank-against-factor", "tensors", draft.bytes())
    draft = fantope_column()
    draft.meta["claims"][0]["rank"] = 2
    add("fantope-rank-above-q", "tensors", draft.bytes())
    draft = sign_lower(matrix_target(ORACLE, "1/4"))
    draft.tensors["claim0.T"] = ("I32", [4, 0], [])
    draft.tensors["claim0.Q"] = ("I32", [0, 0], [])
    add("hilbert-schmidt-q-zero", "tensors", draft.bytes())

    def entry(name: str, index: int, value: Any, draft: Draft, case: str) -> None:
        draft = draft.copy()
        draft.tensors[name][2][index] = value
        add(case, "value", draft.bytes())

    floats = float_target_bracket(32, Fraction(0))
    entry("target.A", 3, float("nan"), floats, "nan")
    entry("target.A", 3, float("inf"), floats, "infinity")
    entry("target.A", 3, -float("inf"), floats, "matrix-mask")
    entry("target.H", 2, float("inf"), masked_logits(), "logits-infinity")
    entry("target.H", 2, float("nan"), masked_logits(), "logits-nan")
    entry("target.H", 0, -float("inf"), masked_logits(), "masked-row")
    entry("target.Q", 0, float("inf"), small_qk(), "qk-infinity")
    entry("target.K", 0, float("nan"), small_qk(), "qk-nan")
    biased = small_qk(bias=[0.0, -float("inf"), 1.0, 0.0])
    entry("target.bias", 0, -float("inf"), biased, "bias-masked-row")
    entry("target.N", 0, (1 << 62) + 1, bracket(), "integer-above")
    entry("target.N", 0, -(1 << 62) - 1, bracket(), "integer-below")
    entry("target.N", 0, -(1 << 63), bracket(), "integer-least")
    entry("claim0.columns", 1, 0, bracket(), "columns-repeated")
    entry("claim0.columns", 2, 1, bracket(), "columns-repeated-later")
    entry("claim0.columns", 3, 1, bracket(), "columns-decreasing")
    entry("claim0.columns", 3, 4, bracket(), "columns-outside")
    entry("claim0.columns", 0, -1, bracket(), "columns-negative")
    add("columns-repeated-forgery", "value", one_entry("2/5", [0, 0], 5).bytes())
    entry("claim0.rows", 1, 0, mirrored(matrix_target(ORACLE, "7/16")), "rows-repeated")
    entry("claim0.rows", 3, 4, mirrored(matrix_target(ORACLE, "7/16")), "rows-outside")
    entry("claim0.d", 0, 0, sign_lower(matrix_target(ORACLE, "1/4")), "hilbert-schmidt-d-zero")
    draft = sign_lower(matrix_target(ORACLE, "1/4"))
    draft.tensors["claim0.T"] = ("I32", [4, 1], [0] * 4)
    add("hilbert-schmidt-t-zero", "value", draft.bytes())
    entry("claim0.T", 0, 0, fantope_column(), "fantope-t-zero")
    entry("claim0.T", 1, 1, fantope_column(), "fantope-support")
    draft = fantope_column()
    draft.tensors["claim0.T"] = ("I32", [4, 1], [0] * 4)
    draft.tensors.update({f"claim0.{name}": ("I32", [0, 4], []) for name in "wv"})
    draft.tensors["claim0.Q"] = ("I32", [0, 1, 1], [])
    add("fantope-empty", "value", draft.bytes())
    entry("claim0.w", 1, -1, fantope_column(), "fantope-w-negative")
    entry("claim0.v", 1, -1, fantope_column(), "fantope-v-negative")
    draft = fantope_column()
    draft.tensors["claim0.w"] = ("I32", [1, 4], [0] * 4)
    add("fantope-weights-zero", "value", draft.bytes())
    draft = oblong_fantope("1/4")
    draft.tensors["claim0.v"] = ("I32", [2, 4], [1] + [0] * 7)
    add("fantope-second-weights-zero", "value", draft.bytes())
    entry("claim0.D", 0, 0, shattering("1/4"), "shattering-d-zero-row")
    draft = oblong_shattering("1/10", [3])
    draft.tensors["claim0.blocks"] = ("I32", [3], [2, 1, 1])
    add("shattering-blocks-long", "value", draft.bytes())
    draft.tensors["claim0.blocks"] = ("I32", [2], [1, 1])
    draft.tensors["claim0.Y"] = ("I32", [2, 4], [4, 0, 0, 0, 0, 4, 0, 0])
    add("shattering-blocks-short", "value", draft.bytes())
    entry("claim0.blocks", 0, 3, shattering("1/4"), "shattering-block-beyond-rank")
    for case, blocks in (
        ("zero", [2, 0]),
        ("negative", [3, -1]),
        ("largest", [2, (1 << 31) - 1]),
        ("none", []),
    ):
        draft = shattering("1/4")
        draft.tensors["claim0.blocks"] = ("I32", [len(blocks)], blocks)
        add(f"shattering-blocks-{case}", "value", draft.bytes())
    for case, patterns, blocks in (("few", [2, 1], [3]), ("many", [3], [2, 1])):
        draft = oblong_shattering("1/10", patterns)
        draft.tensors["claim0.blocks"] = ("I32", [len(blocks)], blocks)
        add(f"shattering-{case}-patterns", "value", draft.bytes())
    draft = oblong_shattering("1/10", [1, 1, 1])
    draft.tensors["claim0.Y"] = ("I32", [2, 4], [1] * 8)
    add("shattering-fewer-patterns-than-blocks", "value", draft.bytes())
    draft = shattering("1/4")
    draft.tensors["claim0.Y"] = ("I32", [2, 4], [0] * 8)
    add("shattering-y-zero", "value", draft.bytes())
    for case, edge in (
        ("opposite", [1, -1]),
        ("other-block", [1, 3]),
        ("zero", [0, 2]),
        ("itself", [1, 4]),
        ("later", [1, 5]),
        ("absent", [1, -(1 << 31)]),
    ):
        draft = divided_shattering("1/20", [2, 1])
        draft.tensors["claim0.edges"] = ("I32", [2, 2], [*edge, 2, 1])
        add(f"shattering-edge-{case}", "value", draft.bytes())
    draft = divided_shattering("1/20", [2, 1])
    draft.tensors["claim0.edges"] = ("I32", [2, 2], [2, 1, 2, 1])
    add("shattering-edge-divided-already", "value", draft.bytes())
    draft = divided_shattering("1/20", [2, 1])
    draft.tensors["claim0.edges"] = ("I32", [2, 2], [2, 1, 1, 1])
    draft.tensors["claim0.Y"] = ("I32", [6, 4], [1] * 24)
    add("shattering-edge-of-one-end", "value", draft.bytes())
    for case, rows in (("few", 4), ("many", 6)):
        draft = divided_shattering("1/20", [2, 1])
        values = draft.tensors["claim0.Y"][2]
        draft.tensors["claim0.Y"] = ("I32", [rows, 4], [*values, 1, 1, 1, 1][: 4 * rows])
        add(f"shattering-{case}-facets", "value", draft.bytes())
    draft = divided_shattering("1/20", [2, 1])
    draft.tensors["claim0.edges"] = ("I32", [4, 1], [2, 1, 4, 1])
    add("shattering-edges-one-end", "tensors", draft.bytes())
    draft = divided_shattering("1/20", [2, 1])
    draft.meta["claims"][0]["rank"] = 2
    add("shattering-rank-against-edges", "tensors", draft.bytes())
    draft = oblong_rows("1/4")
    draft.meta["claims"][0]["rank"] = 2
    add("rank-against-rows", "tensors", draft.bytes())

    for name, rows in (("wide", OBLONG), ("tall", list(zip(*OBLONG, strict=True)))):
        draft = trivial(matrix_target([list(row) for row in rows], "1/4"), 0, 4)
        add(f"claim-rank-{name}", "field", draft.bytes())
    draft = trivial(bracket(), 0, 4)
    draft.meta["claims"][2]["params"] = []
    add("claim-trivial-params-list", "field", draft.bytes())
    draft = trivial(matrix_target(ORACLE, "1/4"), 0, 0)
    draft.meta["target"]["shape"] = [0, 4]
    add("target-shape-zero-trivial", "field", draft.bytes())

    draft = bracket()
    draft.tensors.clear()
    add("no-tensors", "tensors", draft.bytes())
    whole = draft.bytes()
    while not whole.endswith(b" "):
        draft.meta["provenance"]["made by"] += "x"
        whole = draft.bytes()
    add("header-beyond-by-one", "size", whole[:-1])
    unsorted = text.replace(b'"dtype":"I64","shape":[4,4]', b'"shape":[4,4],"dtype":"I64"', 1)
    add("header-unsorted", "json", container(unsorted, data))
    add("header-raw-escape", "json", container(text.replace(b"hand", b"\xc3\xa9"), data))
    for spaces in range(8):
        draft.meta["provenance"] = {"made by": "hand" + "x" * spaces}
        whole = draft.bytes()
        if not whole.endswith(b" "):
            add("header-exactly-eight-spaces", "json", container(whole[8:] + b" " * 8, b""))
    header("entry-shape-number", "layout", lambda h: h["target.N"].update(shape=16))

    def one_entry_of_shape(name: str, shape: list[int]) -> None:
        """Shapes of product 1 or 0 that fit the bytes, and nothing else."""
        draft = sign_lower(matrix_target(ORACLE, "1/4"))
        values = [1] if shape != [4097, 0] else []
        draft.tensors["claim0.Q"] = ("I32", shape, values)
        add(name, "layout", draft.bytes())

    one_entry_of_shape("entry-no-axes", [])
    one_entry_of_shape("entry-axes-minus-one", [-1, -1])
    one_entry_of_shape("entry-long-empty-axis", [4097, 0])
    return cases


def all_cases() -> list[Case]:
    return judged_cases() + malformed_cases()


def index(cases: list[Case]) -> str:
    """The JSON index of the vectors, in canonical order and readable."""
    rows = [
        {
            "id": case.name,
            "file": f"{case.name}.softrank.safetensors",
            "comment": case.comment,
            "control": case.control,
            "sha256": hashlib.sha256(case.data).hexdigest(),
            "verdicts": case.verdicts,
        }
        for case in cases
    ]
    return json.dumps({"format": "softrank-certificate-1", "vectors": rows}, indent=1) + "\n"


def write(folder: Path) -> None:
    for case in all_cases():
        (folder / f"{case.name}.softrank.safetensors").write_bytes(case.data)
    (folder / "index.json").write_text(index(all_cases()))


if __name__ == "__main__":
    write(FOLDER)
    sys.stderr.write(f"{len(all_cases())} vectors written\n")
