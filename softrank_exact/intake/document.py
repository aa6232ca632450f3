"""Metadata and tensors to a target and claims: docs/certificate-format.md, steps 4 to 7."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

from ..kernel.check import WITNESSES, InvalidWitness, Witness, check_shapes, check_values
from .container import MAX_AXIS, Tensor, is_integer, parse_canonical, read_container
from .malformed import Malformed
from .target import DeclaredTarget

FORMAT = "softrank-certificate-1"
NORM = "max-row-l1"
CLASS = "any"
MAX_CLAIMS = 64
KINDS = {cls.kind: cls for cls in WITNESSES}
TRIVIAL = "trivial"

# At most 320 hexadecimal digits.
_DIGITS = "[1-9a-f][0-9a-f]{0,319}"
_RATIO = re.compile(f"0x(0|{_DIGITS})/0x({_DIGITS})")
_POSITIVE = re.compile(f"0x({_DIGITS})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_METADATA_KEYS = ["claims", "class", "epsilon", "format", "norm", "provenance", "target"]
_OBJECT_KEYS = {
    "matrix": ["alpha", "den", "object", "sha256", "shape"],
    "logits": ["alpha", "den", "object", "sha256", "shape"],
    "qk": ["alpha", "den", "object", "over_sqrt", "scale", "sha256", "shape"],
}


@dataclass(frozen=True)
class Claim:
    """``r <= rank`` (side "upper") or ``r >= rank`` ("lower"); no witness for kind "trivial"."""

    side: str
    rank: int
    kind: str
    witness: Witness | None


@dataclass(frozen=True)
class Document:
    """A certificate whose form and values are in order; nothing has been proven yet."""

    epsilon: Fraction
    target: DeclaredTarget
    claims: tuple[Claim, ...]
    sha256: str
    provenance: Mapping[str, str]


def read_document(data: bytes) -> Document:
    """Steps 1 to 7. Raises ``Malformed`` at the first failure."""
    text, tensors = read_container(data)
    if not text.isascii():
        raise Malformed("json", "the metadata is not ASCII")
    fields = parse_canonical(text.encode(), "the metadata")
    if fields.get("format") != FORMAT:
        raise Malformed("version", f"format is {fields.get('format')!r}, not {FORMAT!r}")
    _keys(fields, _METADATA_KEYS, "metadata")
    if fields["norm"] != NORM:
        raise Malformed("field", f"norm is not {NORM!r}")
    if fields["class"] != CLASS:
        raise Malformed("field", f"class is not {CLASS!r}")
    epsilon = _ratio(fields["epsilon"], "epsilon")
    provenance = fields["provenance"]
    if not (isinstance(provenance, dict) and all(isinstance(v, str) for v in provenance.values())):
        raise Malformed("field", "provenance is not an object of strings")
    target = _target_fields(fields["target"])
    m, n = target["shape"]
    claims = fields["claims"]
    if not (isinstance(claims, list) and 1 <= len(claims) <= MAX_CLAIMS):
        raise Malformed("field", f"claims is not a list of 1 to {MAX_CLAIMS}")
    parsed = [_claim_fields(claim, f"claim {i}", min(m, n)) for i, claim in enumerate(claims)]
    declared = _target(target, tensors)
    built = _claims(parsed, tensors, m, n)
    _names(tensors, declared, built)
    if target_digest(tensors) != target["sha256"]:
        raise Malformed("hash", "sha256 is not that of the target's bytes")
    declared.check_values()
    for claim in built:
        _claim_values(claim, m, n)
    return Document(epsilon, declared, tuple(built), target["sha256"], provenance)


def target_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the bytes of the tensors named target.*, in sorted order of their names."""
    names = sorted(name for name in tensors if name.startswith("target."))
    return hashlib.sha256(b"".join(tensors[name].data for name in names)).hexdigest()


def _keys(value: object, expected: list[str], where: str) -> None:
    if not (isinstance(value, dict) and sorted(value) == expected):
        raise Malformed("field", f"{where}: its keys are not exactly {', '.join(expected)}")


def _ratio(text: object, where: str) -> Fraction:
    match = _RATIO.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise Malformed("field", f"{where} is not a ratio such as 0x1/0x4")
    top, bottom = int(match[1], 16), int(match[2], 16)
    if gcd(top, bottom) != 1:
        raise Malformed("field", f"{where} is not in lowest terms")
    return Fraction(top, bottom)


def _positive(text: object, where: str) -> int:
    match = _POSITIVE.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise Malformed("field", f"{where} is not a positive integer such as 0x400")
    return int(match[1], 16)


def _target_fields(fields: Any) -> dict[str, Any]:
    kind = fields.get("object") if isinstance(fields, dict) else None
    if not (isinstance(kind, str) and kind in _OBJECT_KEYS):
        raise Malformed("field", f"target: object is none of {', '.join(_OBJECT_KEYS)}")
    _keys(fields, _OBJECT_KEYS[kind], "target")
    shape = fields["shape"]
    if not (isinstance(shape, list) and len(shape) == 2):
        raise Malformed("field", "target: shape is not [m, n]")
    if not all(is_integer(size) and 1 <= size <= MAX_AXIS for size in shape):
        raise Malformed("field", f"target: shape {shape} has an entry outside 1..{MAX_AXIS}")
    if not (isinstance(fields["sha256"], str) and _SHA256.fullmatch(fields["sha256"])):
        raise Malformed("field", "target: sha256 is not 64 lower-case hexadecimal digits")
    parsed = dict(fields)
    parsed["den"] = _positive(fields["den"], "target: den")
    parsed["alpha"] = _ratio(fields["alpha"], "target: alpha")
    if kind == "qk":
        parsed["scale"] = _ratio(fields["scale"], "target: scale")
        parsed["over_sqrt"] = _positive(fields["over_sqrt"], "target: over_sqrt")
    return parsed


def _claim_fields(fields: Any, where: str, most: int) -> dict[str, Any]:
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if not isinstance(kind, str):
        raise Malformed("field", f"{where} is not an object with a kind")
    if kind != TRIVIAL and kind not in KINDS:
        raise Malformed("unknown-kind", f"{where}: kind {kind!r} is not known")
    _keys(fields, ["kind", "params", "rank", "side"], where)
    sides = ("upper", "lower") if kind == TRIVIAL else (KINDS[kind].side,)
    if fields["side"] not in sides:
        raise Malformed("field", f"{where}: side is not {' or '.join(sides)}")
    rank = fields["rank"]
    least = 1 if kind != TRIVIAL and fields["side"] == "lower" else 0
    if not (is_integer(rank) and least <= rank <= most):
        raise Malformed("field", f"{where}: rank is not an integer from {least} to {most}")
    names = () if kind == TRIVIAL else KINDS[kind].scales
    _keys(fields["params"], sorted(names), f"{where}: params")
    params = {name: _positive(fields["params"][name], f"{where}: {name}") for name in names}
    return {**fields, "params": params}


def _target(fields: dict[str, Any], tensors: dict[str, Tensor]) -> DeclaredTarget:
    arrays = {
        name.removeprefix("target."): tensor
        for name, tensor in tensors.items()
        if name.startswith("target.")
    }
    declared = DeclaredTarget(
        fields["object"],
        tuple(fields["shape"]),
        fields["den"],
        fields["alpha"],
        {name: tensor.array() for name, tensor in arrays.items()},
        fields.get("scale", Fraction(1)),
        fields.get("over_sqrt", 1),
    )
    declared.check_tensors({name: tensor.dtype for name, tensor in arrays.items()})
    return declared


def _claims(
    parsed: list[dict[str, Any]], tensors: dict[str, Tensor], m: int, n: int
) -> list[Claim]:
    claims = []
    for i, fields in enumerate(parsed):
        witness = None
        if fields["kind"] != TRIVIAL:
            make = KINDS[fields["kind"]]
            arrays: dict[str, Any] = {}
            for name in make.shapes:
                tensor = tensors.get(f"claim{i}.{name}")
                if tensor is None or tensor.dtype != "I32":
                    raise Malformed("tensors", f"claim{i}.{name} is not there as I32")
                arrays[name] = tensor.array()
            witness = make(**arrays, **fields["params"])
            try:
                check_shapes(witness, m, n, fields["rank"])
            except InvalidWitness as error:
                raise Malformed(error.code, f"claim {i}: {error}") from None
        claims.append(Claim(fields["side"], fields["rank"], fields["kind"], witness))
    return claims


def _names(tensors: dict[str, Tensor], target: DeclaredTarget, claims: list[Claim]) -> None:
    known = {f"target.{name}" for name in target.tensors}
    for i, claim in enumerate(claims):
        if claim.witness is not None:
            known.update(f"claim{i}.{name}" for name in claim.witness.shapes)
    if set(tensors) != known:
        raise Malformed("tensors", f"nobody names {sorted(set(tensors) - known)}")


def _claim_values(claim: Claim, m: int, n: int) -> None:
    if claim.witness is not None:
        try:
            check_values(claim.witness, check_shapes(claim.witness, m, n, claim.rank))
        except InvalidWitness as error:
            raise Malformed(error.code, f"{claim.kind}: {error}") from None
