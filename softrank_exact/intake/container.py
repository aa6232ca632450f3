"""Bytes to tensors: the container of docs/certificate-format.md, section 1 (steps 1 to 3)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .malformed import Malformed

MAX_FILE = 1 << 30
MAX_HEADER = 1 << 20
MAX_AXIS = 4096
DTYPES = {"F64": "<f8", "I32": "<i4", "I64": "<i8"}


@dataclass(frozen=True)
class Tensor:
    """One stored tensor; ``data`` are its bytes, little-endian and row-major."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def array(self) -> NDArray[Any]:
        """float64 for F64, int64 for I32 and I64."""
        stored = np.frombuffer(self.data, dtype=DTYPES[self.dtype]).reshape(self.shape)
        return stored.astype(np.float64 if self.dtype == "F64" else np.int64)


def read_container(data: bytes) -> tuple[str, dict[str, Tensor]]:
    """The metadata string and the tensors by name, in sorted order. Raises ``Malformed``."""
    if not (8 <= len(data) <= MAX_FILE):
        raise Malformed("size", f"the file has {len(data)} bytes; 8 to {MAX_FILE} are allowed")
    length = int.from_bytes(data[:8], "little")
    if not (2 <= length <= MAX_HEADER):
        raise Malformed("size", f"the header length is {length}; 2 to {MAX_HEADER} are allowed")
    if not (8 + length <= len(data)):
        raise Malformed("size", f"the header length {length} goes beyond the end of the file")
    if length % 8:
        raise Malformed("size", f"the header length {length} is not a multiple of 8")
    text = data[8 : 8 + length]
    stripped = text.rstrip(b" ")
    if len(text) - len(stripped) > 7:
        raise Malformed("json", "more than 7 spaces end the header")
    header = parse_canonical(stripped, "the header")
    metadata = _metadata(header.pop("__metadata__", None))
    return metadata, _tensors(header, data[8 + length :])


def parse_canonical(text: bytes, where: str) -> dict[str, Any]:
    """A canonical JSON object. Raises ``Malformed`` (duplicate keys, spaces, floats ...)."""
    try:
        # Fractions and NaN become null, which is not the text that stands there.
        value = json.loads(text.decode("ascii"), parse_float=_null, parse_constant=_null)
        canonical = canonical_text(value)
    except (ValueError, RecursionError) as error:
        raise Malformed("json", f"{where} is not canonical JSON: {error}") from None
    if canonical != text:
        raise Malformed(
            "json",
            f"{where} is not canonical JSON (order, spaces, escapes, duplicate keys, fractions)",
        )
    if not isinstance(value, dict):
        raise Malformed("json", f"{where} is not a JSON object")
    return value


def canonical_text(value: Any) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def is_integer(value: object) -> bool:
    """A JSON integer (true and false are not)."""
    return type(value) is int


def _null(text: str) -> None:
    return None


def _metadata(entry: object) -> str:
    if not (isinstance(entry, dict) and list(entry) == ["softrank"]):
        raise Malformed("layout", "__metadata__ is not an object with the one key softrank")
    if not isinstance(entry["softrank"], str):
        raise Malformed("layout", "the metadata softrank is not a string")
    return entry["softrank"]


def _tensors(header: dict[str, Any], data: bytes) -> dict[str, Tensor]:
    tensors, position = {}, 0
    for name, entry in sorted(header.items()):
        tensors[name] = _tensor(name, entry, data, position)
        position += len(tensors[name].data)
    if position != len(data):
        raise Malformed("layout", f"{len(data) - position} bytes belong to no tensor")
    return tensors


def _tensor(name: str, entry: object, data: bytes, position: int) -> Tensor:
    if not (isinstance(entry, dict) and list(entry) == ["data_offsets", "dtype", "shape"]):
        raise Malformed("layout", f"{name!r}: keys other than data_offsets, dtype, shape")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(dtype, str) and dtype in DTYPES):
        raise Malformed("layout", f"{name!r}: dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if not (isinstance(shape, list) and 1 <= len(shape) <= 3):
        raise Malformed("layout", f"{name!r}: shape is not a list of 1 to 3 integers")
    if not all(is_integer(size) and 0 <= size <= MAX_AXIS for size in shape):
        raise Malformed("layout", f"{name!r}: shape {shape} has an entry outside 0..{MAX_AXIS}")
    end = position + prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if not (isinstance(offsets, list) and all(is_integer(offset) for offset in offsets)):
        raise Malformed("layout", f"{name!r}: data_offsets are not integers")
    if offsets != [position, end]:
        raise Malformed("layout", f"{name!r}: data_offsets {offsets} are not [{position}, {end}]")
    if end > len(data):
        raise Malformed("layout", f"{name!r}: its data end after the file")
    return Tensor(dtype, tuple(shape), data[position:end])
