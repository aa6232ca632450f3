"""The second checker: re-checks certificate files with the Python standard library alone.

    python -I -S minicheck.py FILE... [--json]

It follows docs/certificate-format.md ("the format" below; MATH n is a numbered statement of the
theory page) and shares no code with the rest of the package, so that the two checkers fail
independently. Read it from top to bottom: the verdicts, the file (steps 1 to 7 of the format), the
target (step 8), the claims (steps 9 to 12), integer matrices, the command line. Every number that
decides is a Python integer or a fraction; matrices are lists of rows, or of columns where a name
says so.
"""

import argparse
import hashlib
import json
import math
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import mul
from typing import Any, NamedTuple

# ------------------------------------------------------------------------------------ verdicts


class Verdict(NamedTuple):
    """What is found about one claim; of a malformed file only `verdict` and `code` are known."""

    side: str | None
    rank: int | None
    kind: str | None
    verdict: str
    code: str
    needed: Fraction | None
    found: Fraction | None
    margin: Fraction | None


def check_bytes(data: bytes) -> list[Verdict]:
    """Return one verdict per claim of the certificate file `data`, or a single `malformed` one."""
    try:
        certificate = read_certificate(data)
    except Malformed as malformed:
        return [Verdict(None, None, None, "malformed", malformed.code, None, None, None)]
    return mark_refuted(judge_all(certificate))


# ------------------------------------------------------------------- the file: steps 1 to 7

MAX_FILE = 2**30
MAX_HEADER = 2**20
MAX_DIMENSION = 4096
MAX_INTEGER_DIGITS = 4300
ITEM = {"F64": ("d", 8), "I32": ("i", 4), "I64": ("q", 8)}

HEX = r"0x(0|[1-9a-f][0-9a-f]{0,319})"
RATIO = re.compile(f"{HEX}/{HEX}")
INTEGER = re.compile(HEX)
DIGEST = re.compile(r"[0-9a-f]{64}")


class Malformed(Exception):
    """The file is not a certificate, for the reason `code`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def require(condition: bool, code: str) -> None:
    """Raise `Malformed(code)` unless the condition holds."""
    if not condition:
        raise Malformed(code)


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file, row-major and little-endian."""

    dtype: str
    shape: list[int]
    data: memoryview

    def each_row(self) -> Iterator[tuple[Any, ...]]:
        """The rows along the last axis, one by one (a vector is a single row)."""
        letter, size = ITEM[self.dtype]
        width = self.shape[-1]
        for row in range(math.prod(self.shape[:-1])):
            yield struct.unpack_from(f"<{width}{letter}", self.data, row * width * size)

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.each_row())

    def columns(self) -> list[tuple[Any, ...]]:
        """The columns of a matrix; there are shape[1] of them even if there is no row."""
        return list(zip(*self.each_row(), strict=True)) if self.shape[0] else [()] * self.shape[1]

    def vector(self) -> tuple[Any, ...]:
        return next(self.each_row())


@dataclass(frozen=True)
class Claim:
    """One claim with the tensors that it owns, by their short names."""

    side: str
    kind: str
    rank: int
    params: dict[str, int]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Certificate:
    """A well-formed file: an m x n target with its tensors by short name, and the claims."""

    object: str
    m: int
    n: int
    epsilon: Fraction
    alpha: Fraction
    den: int
    scale: Fraction
    over_sqrt: int
    tensors: dict[str, Tensor]
    claims: list[Claim]


class Kind(NamedTuple):
    sides: tuple[str, ...]
    params: tuple[str, ...]
    tensors: tuple[str, ...]


KINDS = {
    "trivial": Kind(("lower", "upper"), (), ()),
    "factor": Kind(("upper",), ("scale",), ("X", "Y")),
    "hilbert-schmidt": Kind(("lower",), ("q_scale",), ("d", "T", "Q")),
    "bernstein": Kind(("lower",), ("g_scale", "xy_scale"), ("columns", "G", "X", "Y")),
    "bernstein-rows": Kind(("lower",), ("g_scale", "xy_scale"), ("rows", "G", "X", "Y")),
    "fantope": Kind(("lower",), ("q_scale",), ("T", "w", "v", "Q")),
    "shattering": Kind(("lower",), (), ("D", "blocks", "edges", "Y")),
}


def read_certificate(data: bytes) -> Certificate:
    """Steps 1 to 7: the certificate in `data`; `Malformed` with the code of the first failure."""
    header, body = split(data)
    text, tensors = read_layout(header, body)
    metadata = canonical_object(text)
    require(metadata.get("format") == "softrank-certificate-1", "version")
    check_metadata(metadata)
    target, claims = metadata["target"], metadata["claims"]
    check_target_fields(target)
    for claim in claims:
        check_claim_fields(claim, target["shape"])

    own_names = [owned(tensors, f"claim{i}.") for i in range(len(claims))]
    certificate = Certificate(
        object=target["object"],
        m=target["shape"][0],
        n=target["shape"][1],
        epsilon=ratio(metadata["epsilon"]),
        alpha=ratio(target["alpha"]),
        den=positive(target["den"]),
        scale=ratio(target.get("scale", "0x0/0x1")),
        over_sqrt=positive(target.get("over_sqrt", "0x1")),
        tensors=owned(tensors, "target."),
        claims=[
            Claim(
                side=claim["side"],
                kind=claim["kind"],
                rank=claim["rank"],
                params={name: positive(value) for name, value in claim["params"].items()},
                tensors=own,
            )
            for claim, own in zip(claims, own_names, strict=True)
        ],
    )
    count = len(certificate.tensors) + sum(map(len, own_names))
    require(count == len(tensors), "tensors")
    require(target_tensors_fit(certificate), "tensors")
    for one in certificate.claims:
        require(claim_tensors_fit(one, certificate.m, certificate.n), "tensors")
    require(target_digest(tensors) == target["sha256"], "hash")
    require(target_values_fit(certificate), "value")
    for one in certificate.claims:
        require(claim_values_fit(one, certificate.m, certificate.n), "value")
    return certificate


def split(data: bytes) -> tuple[bytes, memoryview]:
    """Step 1: header and data of the container."""
    require(8 <= len(data) <= MAX_FILE, "size")
    length = int.from_bytes(data[:8], "little")
    require(2 <= length <= MAX_HEADER and length % 8 == 0 and 8 + length <= len(data), "size")
    return data[8 : 8 + length], memoryview(data)[8 + length :]


def read_layout(header: bytes, body: memoryview) -> tuple[str, dict[str, Tensor]]:
    """Steps 2 and 3: the metadata string and the tensors, by name in sorted order."""
    text = header.rstrip(b" ")
    require(len(header) - len(text) <= 7 and text.isascii(), "json")
    entries = canonical_object(text.decode("ascii"))
    metadata = entries.pop("__metadata__", None)
    require(isinstance(metadata, dict) and set(metadata) == {"softrank"}, "layout")
    require(isinstance(metadata["softrank"], str), "layout")
    tensors = {}
    position = 0
    for name in sorted(entries):
        entry = entries[name]
        require(entry_is_well_typed(entry), "layout")
        begin, end = entry["data_offsets"]
        size = math.prod(entry["shape"]) * ITEM[entry["dtype"]][1]
        require(begin == position and end == begin + size, "layout")
        tensors[name] = Tensor(entry["dtype"], entry["shape"], body[begin:end])
        position = end
    require(position == len(body), "layout")
    return metadata["softrank"], tensors


def entry_is_well_typed(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"data_offsets", "dtype", "shape"}
        and isinstance(entry["dtype"], str)
        and entry["dtype"] in ITEM
        and isinstance(entry["shape"], list)
        and 1 <= len(entry["shape"]) <= 3
        and all(is_integer(size, 0, MAX_DIMENSION) for size in entry["shape"])
        and isinstance(entry["data_offsets"], list)
        and len(entry["data_offsets"]) == 2
        and all(is_integer(offset, 0, MAX_FILE) for offset in entry["data_offsets"])
    )


def canonical_object(text: str) -> dict[str, Any]:
    """The object whose canonical JSON text is `text`; otherwise `Malformed("json")`.

    A text is canonical when writing what was read gives it back: this also finds repeated and
    unsorted keys, white space and characters that are not ASCII.
    """
    try:
        value = json.loads(text, parse_int=short_integer, parse_float=no, parse_constant=no)
        again = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except (ValueError, RecursionError):
        raise Malformed("json") from None
    if not (isinstance(value, dict) and again == text):
        raise Malformed("json")
    return value


def short_integer(text: str) -> int:
    """The integer `text`, of at most as many digits as Python writes by default."""
    if len(text.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise ValueError("integer too long")
    return int(text)


def no(text: str) -> None:
    raise ValueError(f"not an integer: {text}")


def is_integer(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_ratio(value: Any) -> bool:
    match = RATIO.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    numerator, denominator = int(match[1], 16), int(match[2], 16)
    return denominator > 0 and math.gcd(numerator, denominator) == 1


def is_positive(value: Any) -> bool:
    return isinstance(value, str) and INTEGER.fullmatch(value) is not None and value != "0x0"


def ratio(text: str) -> Fraction:
    numerator, denominator = text.split("/")
    return Fraction(int(numerator, 16), int(denominator, 16))


def positive(text: str) -> int:
    return int(text, 16)


def check_metadata(metadata: dict[str, Any]) -> None:
    """Step 6, section 2 of the format."""
    keys = {"claims", "class", "epsilon", "format", "norm", "provenance", "target"}
    require(set(metadata) == keys, "field")
    require(metadata["norm"] == "max-row-l1" and metadata["class"] == "any", "field")
    require(is_ratio(metadata["epsilon"]), "field")
    provenance, claims = metadata["provenance"], metadata["claims"]
    require(isinstance(provenance, dict), "field")
    require(all(isinstance(value, str) for value in provenance.values()), "field")
    require(isinstance(metadata["target"], dict), "field")
    require(isinstance(claims, list) and 1 <= len(claims) <= 64, "field")


def check_target_fields(target: dict[str, Any]) -> None:
    """Step 6, section 3 of the format."""
    require(target.get("object") in ("matrix", "logits", "qk"), "field")
    keys = {"object", "shape", "den", "alpha", "sha256"}
    if target["object"] == "qk":
        keys |= {"scale", "over_sqrt"}
    require(set(target) == keys, "field")
    shape, digest = target["shape"], target["sha256"]
    require(isinstance(shape, list) and len(shape) == 2, "field")
    require(all(is_integer(size, 1, MAX_DIMENSION) for size in shape), "field")
    require(is_positive(target["den"]) and is_ratio(target["alpha"]), "field")
    require(isinstance(digest, str) and DIGEST.fullmatch(digest) is not None, "field")
    if target["object"] == "qk":
        require(is_ratio(target["scale"]) and is_positive(target["over_sqrt"]), "field")


def check_claim_fields(claim: Any, shape: list[int]) -> None:
    """Step 6a for one claim."""
    require(isinstance(claim, dict) and isinstance(claim.get("kind"), str), "field")
    require(claim["kind"] in KINDS, "unknown-kind")
    kind = KINDS[claim["kind"]]
    require(set(claim) == {"side", "kind", "rank", "params"}, "field")
    require(claim["side"] in kind.sides, "field")
    needs_rank = claim["side"] == "lower" and claim["kind"] != "trivial"
    require(is_integer(claim["rank"], 1 if needs_rank else 0, min(shape)), "field")
    params = claim["params"]
    require(isinstance(params, dict) and set(params) == set(kind.params), "field")
    require(all(is_positive(value) for value in params.values()), "field")


def owned(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of the name."""
    size = len(prefix)
    return {name[size:]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def target_tensors_fit(certificate: Certificate) -> bool:
    """Step 6b for the target: names, types and shapes."""
    m, n, tensors = certificate.m, certificate.n, certificate.tensors
    have = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    stored = {"N": ("I64", [m, n])}
    if certificate.object == "matrix":
        return have == stored or have == {"A": ("F64", [m, n])}
    if certificate.object == "logits":
        return have == stored | {"H": ("F64", [m, n])}
    if "K" not in tensors:
        return False
    d = tensors["K"].shape[-1]
    product = stored | {"Q": ("F64", [m, d]), "K": ("F64", [n, d])}
    return d >= 1 and have in (product, product | {"bias": ("F64", [m, n])})


def claim_tensors_fit(claim: Claim, m: int, n: int) -> bool:
    """Step 6b for one claim: names, types and shapes."""
    if set(claim.tensors) != set(KINDS[claim.kind].tensors):
        return False
    if any(tensor.dtype != "I32" for tensor in claim.tensors.values()):
        return False
    shape = {name: tensor.shape for name, tensor in claim.tensors.items()}
    rank = claim.rank
    if claim.kind == "trivial":
        return True
    if claim.kind == "factor":
        return shape == {"X": [m, rank], "Y": [rank, n]}
    if claim.kind == "hilbert-schmidt":
        q = shape["Q"][0]
        return q >= 1 and shape == {"d": [m], "T": [n, q], "Q": [q, q]}
    if claim.kind == "fantope":
        s, q = shape["w"][0], shape["Q"][-1]
        return rank <= q and shape == {"T": [n, q], "w": [s, m], "v": [s, n], "Q": [s, q, q]}
    if claim.kind == "shattering":
        b, e, r = shape["blocks"][0], shape["edges"][0], shape["Y"][0]
        queries = {"D": [rank + e, m], "blocks": [b], "edges": [e, 2]}
        return rank >= 1 and shape == queries | {"Y": [r, n]}
    index, size = ("columns", m) if claim.kind == "bernstein" else ("rows", n)
    c = shape[index][0]
    decoder = [c, size] if claim.kind == "bernstein" else [size, c]
    removed = {"X": [c, c - rank], "Y": [c - rank, c]}
    return rank <= c and shape == removed | {index: [c], "G": decoder}


def target_digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if name.startswith("target."):
            digest.update(tensors[name].data)
    return digest.hexdigest()


def target_values_fit(certificate: Certificate) -> bool:
    """Step 7 for the target."""
    return all(
        row_fits(name, row)
        for name, tensor in certificate.tensors.items()
        for row in tensor.each_row()
    )


def row_fits(name: str, row: Sequence[Any]) -> bool:
    if name == "N":
        return all(-(2**62) <= entry <= 2**62 for entry in row)
    if name in ("H", "bias"):
        # Comparisons with NaN are false: only finite entries and minus infinity pass.
        return all(entry < math.inf for entry in row) and any(entry > -math.inf for entry in row)
    return all(map(math.isfinite, row))


def claim_values_fit(claim: Claim, m: int, n: int) -> bool:
    """Step 7 for one claim."""
    tensors = claim.tensors
    if claim.kind == "bernstein":
        return is_increasing(tensors["columns"].vector(), n)
    if claim.kind == "bernstein-rows":
        return is_increasing(tensors["rows"].vector(), m)
    if claim.kind == "hilbert-schmidt":
        return any(tensors["d"].vector()) and any(map(any, tensors["T"].each_row()))
    if claim.kind == "fantope":
        weights = list(zip(tensors["w"].each_row(), tensors["v"].each_row(), strict=True))
        return (
            1 <= len(weights) == len(nonzero_rows(tensors["T"]))
            and all(min(w) >= 0 and min(v) >= 0 for w, v in weights)
            and all(sum(w) + sum(v) > 0 for w, v in weights)
        )
    if claim.kind == "shattering":
        sizes = tensors["blocks"].vector()
        return (
            sum(sizes) == claim.rank
            and all(size >= 1 for size in sizes)
            and sum(1 << (size - 1) for size in sizes) <= tensors["Y"].shape[0]
            and facets_fit(claim)
            and all(map(any, tensors["D"].each_row()))
            and any(map(any, tensors["Y"].each_row()))
        )
    return True


def is_increasing(indices: Sequence[int], size: int) -> bool:
    """Whether the indices are strictly increasing within 0..size-1."""
    return all(0 <= index < size for index in indices) and all(
        before < after for before, after in pairwise(indices)
    )


def nonzero_rows(tensor: Tensor) -> list[int]:
    return [j for j, row in enumerate(tensor.each_row()) if any(row)]


# ------------------------------------------------------------------------ the target: step 8

# Fixed point: the integer x stands for x / ONE.
BITS = 128
ONE = 1 << BITS
HALVINGS = 16
DEGREE = 11
NEGLIGIBLE = 128 * ONE


def working_matrix(certificate: Certificate) -> list[tuple[int, ...]]:
    """The integer matrix N, row by row."""
    if "N" in certificate.tensors:
        return certificate.tensors["N"].rows()
    return [
        tuple(nearest(entry, certificate.den) for entry in row)
        for row in certificate.tensors["A"].each_row()
    ]


def nearest(entry: float, den: int) -> int:
    """floor(entry den + 1/2)."""
    numerator, denominator = entry.as_integer_ratio()
    return (2 * numerator * den + denominator) // (2 * denominator)


def distance(certificate: Certificate, matrix: list[tuple[int, ...]]) -> Fraction:
    """An upper bound of `||A* - N / den||`; the distance itself for the object `matrix`."""
    if certificate.object == "matrix":
        if "A" not in certificate.tensors:
            return Fraction(0)
        exact = map(over_common_power, certificate.tensors["A"].each_row())
        return max(
            row_distance(numerators, 1 << power, row, certificate.den)
            for (numerators, power), row in zip(exact, matrix, strict=True)
        )
    softmax_error = Fraction(certificate.n, 1 << (BITS - 20))
    return softmax_error + max(
        row_distance(weights, sum(weights), row, certificate.den)
        for weights, row in zip(map(softmax_weights, logits(certificate)), matrix, strict=True)
    )


def row_distance(row: Sequence[int], over: int, other: Sequence[int], den: int) -> Fraction:
    """sum_j |row_j / over - other_j / den|."""
    total = sum(abs(a * den - b * over) for a, b in zip(row, other, strict=True))
    return Fraction(total, over * den)


def softmax_weights(row: Sequence[int | None]) -> list[int]:
    """Integers E with sum_j |E_j / sum(E) - a_j| <= n / 2^(BITS - 20), a the softmax row.

    `row` holds n <= 4096 logits h_j in fixed point, each less than 2 units (2 / ONE) from the
    truth, None for a masked one. With z the largest of them and u_j = z - row_j >= 0, the true
    weights may be taken as W_j = ONE exp(h_j - z / ONE), since softmax ignores the shift.

    `exp_minus` is within 5 * 2^16 of ONE exp(-u_j / ONE) <= ONE, and the logit's error changes
    this by at most ONE (exp(2 / ONE) - 1) < 3: hence |E_j - W_j| < t := 2^19 (a masked entry is
    exactly 0 in both). Let S = sum E >= ONE, as E_j = ONE where u_j = 0. Then
    |E_j / S - a_j| <= |E_j - W_j| / S + a_j |sum W - S| / S, and the sum over j is at most
    (n t + n t) / S <= n 2^20 / 2^BITS. So the intervals E_j / S +- (t + a_j n t) / S, which
    enclose the row's entries, have total width at most n 2^21 / 2^BITS <= 2^-95.
    """
    largest = max(logit for logit in row if logit is not None)
    return [0 if logit is None else exp_minus(largest - logit) for logit in row]


def exp_minus(u: int) -> int:
    """ONE exp(-u / ONE), u >= 0, with an error below 5 * 2^16 units; exactly ONE for u = 0.

    Past NEGLIGIBLE the value is below ONE exp(-128) < 1, and 0 is returned. Otherwise
    y = u / 2^HALVINGS is below 2^-9; rounding it down to a unit costs less than 1 unit. Horner's
    T_k = 1 - (y / k) T_(k+1), from T_(DEGREE+1) = 1 down to T_1, is the Taylor polynomial of
    exp(-y); every floor adds less than a unit to an error that the next step divides by 512 or
    more: less than 2 in all. The series alternates and decreases: the rest is at most
    y^12 / 12! < 2^-108 2^-28, less than 1 unit. So the start is in error by less than 4 units.
    For 0 <= e <= ONE in error by r from ONE v, 0 <= v <= 1, the square e e / ONE is in error by
    at most r (e + ONE v) / ONE <= 2 r, and its floor by less than 2 r + 1: 16 squarings end
    below 2^16 (4 + 1).
    """
    if u >= NEGLIGIBLE:
        return 0
    y = u >> HALVINGS
    e = ONE
    for k in range(DEGREE, 0, -1):
        e = ONE - y * e // (k << BITS)
    for _ in range(HALVINGS):
        e = e * e >> BITS
    return e


def logits(certificate: Certificate) -> Iterator[list[int | None]]:
    """Row by row the logits in fixed point, less than 2 units from the truth, None if masked."""
    tensors = certificate.tensors
    if certificate.object == "logits":
        yield from ([fixed(h) for h in row] for row in tensors["H"].each_row())
        return
    keys = [over_common_power(row) for row in tensors["K"].each_row()]
    square = certificate.scale**2 / certificate.over_sqrt
    bias = tensors["bias"].each_row() if "bias" in tensors else None
    for query, query_power in map(over_common_power, tensors["Q"].each_row()):
        scaled = [
            scaled_product(dot(query, key), query_power + key_power, square)
            for key, key_power in keys
        ]
        yield list(scaled) if bias is None else list(map(add_bias, scaled, next(bias)))


def fixed(x: float) -> int | None:
    """floor(x ONE), less than a unit from the truth; None for minus infinity."""
    if x == -math.inf:
        return None
    numerator, denominator = x.as_integer_ratio()
    return (numerator << BITS) // denominator


def add_bias(logit: int, bias: float) -> int | None:
    offset = fixed(bias)
    return None if offset is None else logit + offset


def over_common_power(row: Sequence[float]) -> tuple[list[int], int]:
    """Integers a and a power p with row_j = a_j / 2^p exactly."""
    ratios = [x.as_integer_ratio() for x in row]
    largest = max(denominator for _, denominator in ratios)
    return [a * (largest // b) for a, b in ratios], largest.bit_length() - 1


def scaled_product(product: int, power: int, square: Fraction) -> int:
    """sqrt(square) product / 2^power in fixed point, towards 0: less than a unit from the truth.

    The magnitude is the root of a rational x, and floor(sqrt(x)) = isqrt(floor(x)).
    """
    numerator = product * product * square.numerator << 2 * BITS
    magnitude = math.isqrt((numerator >> 2 * power) // square.denominator)
    return magnitude if product >= 0 else -magnitude


# ------------------------------------------------------------------ the claims: steps 8 to 12


class Evidence(NamedTuple):
    """The numbers that decide about one claim, and the code should they not suffice."""

    code: str
    needed: Fraction
    found: Fraction
    margin: Fraction


def at_most(needed: Fraction | int, found: Fraction, code: str = "margin") -> Evidence:
    return Evidence(code, Fraction(needed), found, needed - found)


def at_least(needed: Fraction | int, found: Fraction) -> Evidence:
    return Evidence("margin", Fraction(needed), found, found - needed)


@dataclass(frozen=True)
class Working:
    """The working matrix `rows` / `den` (m x n), and what is needed to judge claims about A*."""

    rows: list[tuple[int, ...]]
    den: int
    epsilon: Fraction
    alpha: Fraction
    stochastic: bool

    @property
    def m(self) -> int:
        return len(self.rows)

    @property
    def n(self) -> int:
        return len(self.rows[0])

    @property
    def lo(self) -> Fraction:
        return self.epsilon - self.alpha

    @property
    def hi(self) -> Fraction:
        return self.epsilon + self.alpha


def judge_all(certificate: Certificate) -> list[Verdict]:
    """Steps 8 to 11: one verdict per claim."""
    if not math.ulp(0) > 0:
        raise ArithmeticError("subnormal numbers are flushed to zero in this process")
    rows = working_matrix(certificate)
    far = distance(certificate, rows)
    if not far <= certificate.alpha:
        evidence = at_most(certificate.alpha, far, "alpha")
        return [rejected(claim, evidence) for claim in certificate.claims]
    working = Working(
        rows=rows,
        den=certificate.den,
        epsilon=certificate.epsilon,
        alpha=certificate.alpha,
        stochastic=certificate.object != "matrix",
    )
    return [decide(claim, JUDGES[claim.kind](claim, working)) for claim in certificate.claims]


def decide(claim: Claim, evidence: Evidence) -> Verdict:
    """Steps 9 to 11."""
    enough = evidence.margin >= 0 if claim.side == "upper" else evidence.margin > 0
    if enough and evidence.code == "margin":
        return Verdict(claim.side, claim.rank, claim.kind, "verified", "ok", *evidence[1:])
    return rejected(claim, evidence)


def rejected(claim: Claim, evidence: Evidence) -> Verdict:
    return Verdict(claim.side, claim.rank, claim.kind, "rejected", *evidence)


def mark_refuted(verdicts: list[Verdict]) -> list[Verdict]:
    """Step 12: a rejected claim that a verified one contradicts is refuted."""
    return [
        verdict._replace(verdict="refuted")
        if verdict.verdict == "rejected" and any(contradict(verdict, v) for v in proven(verdicts))
        else verdict
        for verdict in verdicts
    ]


def proven(verdicts: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.verdict == "verified"]


def contradict(one: Verdict, other: Verdict) -> bool:
    """Whether an upper and a lower claim about the same rank cannot both hold."""
    if one.rank is None or other.rank is None or one.side == other.side:
        return False
    return one.rank < other.rank if one.side == "upper" else other.rank < one.rank


def trivial(claim: Claim, working: Working) -> Evidence:
    if claim.side == "upper":
        zero_suffices = working.stochastic and working.epsilon >= 1
        best = 0 if zero_suffices else min(working.m, working.n)
        return at_most(claim.rank, Fraction(best))
    best = 1 if working.stochastic and working.epsilon < 1 else 0
    return at_least(claim.rank - 1, Fraction(best))


def factor(claim: Claim, working: Working) -> Evidence:
    """MATH 4.1: `||N / den - X Y / scale|| <= epsilon - alpha`."""
    scale, den = claim.params["scale"], working.den
    product = multiply(claim.tensors["X"].rows(), claim.tensors["Y"].columns())
    found = max(
        row_distance(row, scale, other, den)
        for row, other in zip(product, working.rows, strict=True)
    )
    return at_most(working.lo, found)


def hilbert_schmidt(claim: Claim, working: Working) -> Evidence:
    """MATH 5.2, 5.6: the tail of M = diag(d) N T beyond rank - 1 exceeds S t (den hi)^2."""
    test, squares = claim.tensors["T"], [d * d for d in claim.tensors["d"].vector()]
    basis = Basis.of(claim.tensors["Q"].columns(), claim.params["q_scale"])
    if not basis.sound:
        return basis.evidence()
    decoded = transpose(multiply(working.rows, test.columns()))
    count = max(0, test.shape[1] - (claim.rank - 1))
    tail = bottom_sum(gram(decoded, squares), basis, count)
    found = tail / (sum(squares) * largest_square(test) * working.den**2)
    return at_least(working.hi**2, found)


def bernstein(claim: Claim, working: Working) -> Evidence:
    """MATH 5.3: hi ||G_j|| + ||H_j|| < 1 for every row j of H = I - G N_C / den - X Y."""
    decoder = claim.tensors["G"].rows()
    chosen = [[row[j] for row in working.rows] for j in claim.tensors["columns"].vector()]
    remainders = bernstein_remainders(multiply(decoder, chosen), claim, working)
    g_scale = claim.params["g_scale"]
    found = max(
        working.hi * Fraction(norm(row), g_scale) + remainder
        for row, remainder in zip(decoder, remainders, strict=True)
    )
    return at_most(1, found)


def bernstein_rows(claim: Claim, working: Working) -> Evidence:
    """MATH 5.3, left mirror: hi ||G|| + ||H|| < 1 for H = I - N_R G / den - X Y."""
    decoder = claim.tensors["G"]
    chosen = [working.rows[i] for i in claim.tensors["rows"].vector()]
    remainders = bernstein_remainders(multiply(chosen, decoder.columns()), claim, working)
    largest = max(map(norm, decoder.each_row()))
    return at_most(1, working.hi * Fraction(largest, claim.params["g_scale"]) + max(remainders))


def bernstein_remainders(
    decoded: list[list[int]], claim: Claim, working: Working
) -> list[Fraction]:
    """The l1 norms of the rows of H = I - decoded / (g_scale den) - X Y / xy_scale."""
    over, xy_scale = claim.params["g_scale"] * working.den, claim.params["xy_scale"]
    removed = multiply(claim.tensors["X"].rows(), claim.tensors["Y"].columns())
    one = over * xy_scale
    return [
        Fraction(
            sum(
                abs((one if i == j else 0) - xy_scale * a - over * b)
                for j, (a, b) in enumerate(zip(row, other, strict=True))
            ),
            one,
        )
        for i, (row, other) in enumerate(zip(decoded, removed, strict=True))
    ]


def fantope(claim: Claim, working: Working) -> Evidence:
    """MATH 5.4: for each nonzero row j of T the bottom sum phi_j of H_j is positive.

    With c_j rounded up, H_j = [N T; T]^T diag(w^j, den^2 v^j) [N T; T] - c_j T_j^T T_j.
    """
    test = claim.tensors["T"]
    q, square = test.shape[1], working.den**2
    eigenvectors = claim.tensors["Q"].rows()
    bases = [
        Basis.of(transpose(eigenvectors[start : start + q]), claim.params["q_scale"])
        for start in range(0, len(eigenvectors), q)
    ]
    for basis in bases:
        if not basis.sound:
            return basis.evidence()
    test_rows, test_columns = test.rows(), test.columns()
    decoded = transpose(multiply(working.rows, test_columns))
    stacked = [[*a, *b] for a, b in zip(decoded, test_columns, strict=True)]
    found = []
    for j, w, v, basis in zip(
        nonzero_rows(test),
        claim.tensors["w"].each_row(),
        claim.tensors["v"].each_row(),
        bases,
        strict=True,
    ):
        cost = math.ceil(working.hi**2 * square * sum(w)) + square * sum(v)
        form = gram(stacked, [*w, *(square * entry for entry in v)])
        paid = [
            [entry - cost * a * b for entry, b in zip(row, test_rows[j], strict=True)]
            for row, a in zip(form, test_rows[j], strict=True)
        ]
        phi = bottom_sum(paid, basis, q - (claim.rank - 1))
        found.append(phi / (sum(w) + sum(v)))
    return at_least(0, min(found) / (square * largest_square(test)))


def shattering(claim: Claim, working: Working) -> Evidence:
    """Theory 5.8: every g_i exceeds hi den u ||D_i||, for bounded values Y / u."""
    weights, driven = claim.tensors["D"].rows(), claim.tensors["Y"].rows()
    averaged = multiply(weights, list(zip(*working.rows, strict=True)))
    gains, sizes = [0] * len(weights), [0] * working.n
    done = 0
    for block in range(len(claim.tensors["blocks"].vector())):
        facets = list(block_facets(claim, block))
        own = driven[done : done + len(facets)]
        outputs = multiply(averaged, own)
        least: dict[int, int] = {}
        for k, facet in enumerate(facets):
            for vertex in facet:
                i = abs(vertex) - 1
                reached = outputs[i][k] if vertex > 0 else -outputs[i][k]
                least[i] = min(reached, least.get(i, reached))
        for i, output in enumerate(outputs):
            gains[i] += least[i] if i in least else -max(map(abs, output))
        reach = (max(map(abs, column)) for column in zip(*own, strict=True))
        sizes = [size + most for size, most in zip(sizes, reach, strict=True)]
        done += len(facets)
    unit = working.den * max(sizes)
    found = min(Fraction(g, unit * norm(d)) for g, d in zip(gains, weights, strict=True))
    return at_least(working.hi, found)


def facets_fit(claim: Claim) -> bool:
    """Edges with two ends that divide a facet each, and one row of Y for every facet."""
    edges = list(claim.tensors["edges"].each_row())
    count = 0
    vertices: set[int] = set()
    for block in range(len(claim.tensors["blocks"].vector())):
        for facet in block_facets(claim, block):
            count += 1
            vertices.update(map(abs, facet))
            if count > claim.tensors["Y"].shape[0]:
                return False
    return (
        count == claim.tensors["Y"].shape[0]
        and len(vertices) == claim.rank + len(edges)
        and all(a != b for a, b in edges)
    )


def block_facets(claim: Claim, block: int) -> Iterator[tuple[int, ...]]:
    """The facets of one block in the order of Y: signed rows of D, counted from 1."""
    sizes = claim.tensors["blocks"].vector()
    edges = list(claim.tensors["edges"].each_row())
    first = 1 + sum(sizes[:block])
    for k in range(1 << (sizes[block] - 1)):
        signs = [1, *(-1 if k >> i & 1 else 1 for i in range(sizes[block] - 1))]
        waiting = [(tuple(sign * (first + i) for i, sign in enumerate(signs)), 0)]
        while waiting:
            facet, done = waiting.pop()
            hit = next((e for e in range(done, len(edges)) if has_edge(facet, edges[e])), None)
            if hit is None:
                yield facet
                continue
            a, b = edges[hit]
            middle = claim.rank + 1 + hit
            new = {a: middle, -a: -middle}, {b: middle, -b: -middle}
            parts = [tuple(names.get(vertex, vertex) for vertex in facet) for names in new]
            waiting += [(parts[1], hit + 1), (parts[0], hit + 1)]


def has_edge(facet: tuple[int, ...], edge: tuple[int, ...]) -> bool:
    """Whether both ends, or the opposites of both, are vertices of the facet."""
    return all(end in facet for end in edge) or all(-end in facet for end in edge)


JUDGES = {
    "trivial": trivial,
    "factor": factor,
    "hilbert-schmidt": hilbert_schmidt,
    "bernstein": bernstein,
    "bernstein-rows": bernstein_rows,
    "fantope": fantope,
    "shattering": shattering,
}


@dataclass(frozen=True)
class Basis:
    """A square integer matrix Q, nearly scale times an orthogonal one, by its columns.

    `defect` is `||Q^T Q - scale^2 I||`; below scale^2 it makes Q invertible, and `sound`.
    """

    columns: list[tuple[int, ...]]
    square: int
    defect: int

    @classmethod
    def of(cls, columns: list[tuple[int, ...]], scale: int) -> "Basis":
        square = scale * scale
        products = gram(columns, [1] * len(columns))
        for i, row in enumerate(products):
            row[i] -= square
        return cls(columns, square, max(map(norm, products)))

    @property
    def sound(self) -> bool:
        return self.defect < self.square

    def evidence(self) -> Evidence:
        return at_most(1, Fraction(self.defect, self.square), "basis")


def bottom_sum(symmetric: list[list[int]], basis: Basis, count: int) -> Fraction:
    """A lower bound of the sum of the `count` smallest eigenvalues of a symmetric matrix.

    M = Q^T S Q dominates diag(x), x_i = M_ii - sum_{j != i} |M_ij|, so its i-th smallest
    eigenvalue is at least the i-th smallest x; it is one of S times a factor between
    square - defect and square + defect (Ostrowski).
    """
    turned = multiply(basis.columns, symmetric)
    centred = mirrored(turned, basis.columns)
    bounds = sorted(row[i] + abs(row[i]) - norm(row) for i, row in enumerate(centred))[:count]
    gain = sum(x for x in bounds if x > 0)
    loss = sum(-x for x in bounds if x < 0)
    return Fraction(gain, basis.square + basis.defect) - Fraction(loss, basis.square - basis.defect)


# ------------------------------------------------------------------------- integer matrices


def dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(map(mul, left, right))


def norm(row: Sequence[int]) -> int:
    """The l1 norm."""
    return sum(map(abs, row))


def multiply(rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]]) -> list[list[int]]:
    """The product of the matrix with these rows and the matrix with these columns."""
    return [[dot(row, column) for column in columns] for row in rows]


def mirrored(rows: Sequence[Sequence[int]], columns: Sequence[Sequence[int]]) -> list[list[int]]:
    """The product where it is known to be symmetric: the lower half, reflected."""
    product = [[dot(row, column) for column in columns[: i + 1]] for i, row in enumerate(rows)]
    for i, row in enumerate(product):
        row.extend(below[i] for below in product[i + 1 :])
    return product


def gram(columns: Sequence[Sequence[int]], weights: Sequence[int]) -> list[list[int]]:
    """M^T diag(weights) M for the matrix M with these columns."""
    return mirrored([list(map(mul, weights, column)) for column in columns], columns)


def transpose(rows: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return list(zip(*rows, strict=True))


def largest_square(tensor: Tensor) -> int:
    """The largest squared Euclidean norm of a row."""
    return max(dot(row, row) for row in tensor.each_row())


# ------------------------------------------------------------------------- the command line

VERIFIED, NOT_VERIFIED, USAGE, MALFORMED, INTERNAL = 0, 1, 2, 4, 70
BY_SEVERITY = (INTERNAL, USAGE, MALFORMED, NOT_VERIFIED, VERIFIED)


def main(arguments: list[str]) -> int:
    """Check the files named in `arguments`; return the exit code.

    0 all verified, 1 something not verified, 2 usage or a file that cannot be read, 4 malformed,
    70 two verified claims contradict each other or an internal error; of several the worst.
    """
    parser = argparse.ArgumentParser(
        prog="minicheck", description="Re-check certificate files.", allow_abbrev=False
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print a JSON list of verdicts")
    options = parser.parse_intermixed_args(arguments)
    try:
        code = check_files(options.files, options.json)
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERNAL
    except Exception as error:  # noqa: BLE001 (reported, and never a success)
        complain(f"internal error: {type(error).__name__}: {error}")
        if isinstance(error, OSError):
            # What is left in the buffer of a broken output would fail once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return INTERNAL
    return code


def check_files(files: list[str], as_json: bool) -> int:
    """Print the verdicts of all files and return the exit code."""
    codes = {VERIFIED}
    objects = []
    for file in files:
        try:
            data = read(file)
        except OSError as error:
            complain(f"{file}: {error.strerror}")
            codes.add(USAGE)
            continue
        verdicts = check_bytes(data)
        codes.add(exit_code(verdicts))
        if exit_code(verdicts) == INTERNAL:
            complain(f"{file}: two verified claims contradict each other: please report this")
        for verdict in verdicts:
            objects.append(as_object(file, verdict))
            if not as_json:
                print(printable(file), *("-" if x is None else x for x in verdict[:5]))
    if as_json:
        print(json.dumps(objects, indent=1))
    return next(code for code in BY_SEVERITY if code in codes)


def read(file: str) -> bytes:
    """The bytes of a file, or one more than the format allows if there are more."""
    chunks = []
    left = MAX_FILE + 1
    with open(file, "rb") as stream:
        while left and (chunk := stream.read(min(left, 2**20))):
            chunks.append(chunk)
            left -= len(chunk)
    return b"".join(chunks)


def exit_code(verdicts: list[Verdict]) -> int:
    """The exit code for the verdicts of one file."""
    sure = proven(verdicts)
    if any(contradict(one, other) for one in sure for other in sure):
        return INTERNAL
    if verdicts and len(sure) == len(verdicts):
        return VERIFIED
    return MALFORMED if any(v.verdict == "malformed" for v in verdicts) else NOT_VERIFIED


def as_object(file: str, verdict: Verdict) -> dict[str, str | int | None]:
    fields = {
        name: f"{value.numerator}/{value.denominator}" if isinstance(value, Fraction) else value
        for name, value in verdict._asdict().items()
    }
    return {"file": printable(file), **fields}


def printable(text: str) -> str:
    """The text in ASCII, other characters escaped, so that any terminal can print it."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def complain(message: str) -> None:
    print(printable(f"minicheck: {message}").replace("\n", " "), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
