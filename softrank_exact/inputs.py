"""Users' files to arrays: .npy, .npz, .safetensors, and what entry points add (.pt).

No torch here: safetensors are read by numpy, bfloat16 included. A file that needs another package
is read through the entry point group ``softrank.readers``, named by suffix; a reader is a function
from a path to a mapping of names to numpy arrays.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .plugins import Unavailable, load
from .targets import real_matrix

Tensors: TypeAlias = Mapping[str, NDArray[Any]]

MAX_HEADER = 100 << 20
# What numpy raises for a damaged file, besides OSError.
_BROKEN = (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)
# Rows of half-precision attention weights sum to one within this.
ROW_SUM_TOLERANCE = 2.0**-8

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
}


@dataclass(frozen=True)
class Matrix:
    """A matrix from a file: ``values`` float64 (m, n), exact; ``where`` names file and tensor."""

    values: NDArray[np.float64]
    where: str
    dtype: str


def load_matrix(
    path: Path,
    key: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    masks: bool = False,
) -> Matrix:
    """One matrix of a file; with ``masks``, entries may be minus infinity.

    ``key`` names a tensor; without it the only one is taken, or with ``layer`` the attention
    pattern of that layer. A tensor [head_index, query_pos, key_pos] needs ``head``, a tensor
    [layer, head_index, query_pos, key_pos] both, and a batch axis must have size one.
    Raises ``UserError`` if the file cannot be read or does not hold such a matrix.
    """
    tensors = read_tensors(path)
    name = _choose(path, tensors, key, layer)
    by_name = key is None and name in _layer_names(layer)
    array, where = _one_head(
        tensors[name],
        f"{path}: {name}" if name else str(path),
        None if by_name else layer,
        head,
    )
    return Matrix(real_matrix(array, where, masks), where, str(array.dtype))


def load_qk(
    path: Path,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """The tensors "Q" (m, d), "K" (n, d) and, if there, "bias" (m, n) of a file."""
    Q, K = (load_matrix(path, key=name).values for name in ("Q", "K"))
    bias = "bias" in read_tensors(path)
    return Q, K, load_matrix(path, "bias", masks=True).values if bias else None


def load_array(path: Path) -> NDArray[np.float64]:
    """The only tensor of a file, as float64 of any shape; for parts of a witness."""
    tensors = read_tensors(path)
    array = tensors[_choose(path, tensors, None, None)]
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise UserError(f"{path} has dtype {array.dtype}; accepted: real numbers up to 64 bits")
    return array.astype(np.float64)


def row_sum_warning(values: NDArray[np.float64]) -> str | None:
    """A sentence if the rows do not look like attention weights."""
    off = np.abs(values.sum(axis=1) - 1)
    i = int(off.argmax())
    if off[i] <= ROW_SUM_TOLERANCE:
        return None
    return (
        f"warning: row {i} sums to {values[i].sum():.6g}, not 1: this is no attention matrix; "
        "ranks of the matrix as it is stored are certified"
    )


def read_tensors(path: Path) -> Tensors:
    """The tensors of a file by name; a file without names has one, named "".

    Raises ``UserError``.
    """
    try:
        if path.suffix in (".npy", ".npz"):
            loaded = np.load(path, allow_pickle=False)
            return {"": loaded} if isinstance(loaded, np.ndarray) else _Archive(loaded, path)
        if path.suffix == ".safetensors":
            return SafeTensors(path)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except _BROKEN as error:
        raise UserError(f"{path} is not a {path.suffix} file of numbers: {error}") from None
    return _read_by_entry_point(path)


def _read_by_entry_point(path: Path) -> Tensors:
    readers = {entry.name: entry for entry in entry_points(group="softrank.readers")}
    entry = readers.get(path.suffix.removeprefix("."))
    if entry is None:
        known = [".npy", ".npz", ".safetensors", *(f".{name}" for name in sorted(readers))]
        raise UserError(f"{path} has suffix {path.suffix!r}; accepted: {', '.join(known)}")
    if not path.is_file():
        raise UserError(f"{path} cannot be read: no such file")
    try:
        read = load(entry)
    except Unavailable as missing:
        raise UserError(f"{path}: reading {path.suffix} {missing}") from None
    tensors: Tensors = read(path)
    return tensors


class _Archive(Mapping[str, NDArray[Any]]):
    """An .npz file, its arrays read on demand."""

    def __init__(self, archive: Any, path: Path) -> None:
        self._archive = archive
        self._path = path

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = self._archive[name]
        except _BROKEN as error:
            raise UserError(f"{self._path}: {name} is not an array of numbers: {error}") from None
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.files)

    def __len__(self) -> int:
        return len(self._archive.files)


class SafeTensors(Mapping[str, NDArray[Any]]):
    """A .safetensors file, its tensors read on demand.

    Raises ``UserError`` for a file that is damaged, ``OSError`` for one that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as stream:
            self._entries, self._start = self._header(stream)
        metadata = self._entries.pop("__metadata__", None)
        self.metadata: dict[str, Any] = metadata if isinstance(metadata, dict) else {}

    def _header(self, stream: BinaryIO) -> tuple[dict[str, Any], int]:
        length = int.from_bytes(stream.read(8), "little")
        if not (2 <= length <= MAX_HEADER):
            raise UserError(
                f"{self._path} is not a safetensors file: its header length is {length}"
            )
        try:
            entries = json.loads(stream.read(length))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self._path} is not a safetensors file: {error}") from None
        if not isinstance(entries, dict):
            raise UserError(f"{self._path} is not a safetensors file: its header is no object")
        return entries, 8 + length

    def __getitem__(self, name: str) -> NDArray[Any]:
        kind, shape, begin = self._place(name)
        return self._read(kind, shape, begin)

    def matrix_at(self, name: str, *leading: int) -> NDArray[Any]:
        """The matrix at these leading indices; an axis of size one serves every index.

        No more than the matrix is read. Raises ``UserError`` if there is none.
        """
        if name not in self:
            raise UserError(f"{self._path} has no tensor {name!r}; accepted: a file with it")
        kind, shape, begin = self._place(name)
        axes, rest = shape[:-2], shape[-2:]
        if len(axes) != len(leading) or not all(
            i < n or n == 1 for i, n in zip(leading, axes, strict=True)
        ):
            raise UserError(f"{self._path}: {name} has shape {shape}; accepted: a matrix {leading}")
        part = np.ravel_multi_index(leading, axes, mode="clip")
        return self._read(kind, rest, begin + int(part) * prod(rest) * _itemsize(kind))

    def _place(self, name: str) -> tuple[str, list[int], int]:
        """The dtype, the shape and the first byte of a tensor that is wholly in the file."""
        where = f"{self._path}: {name}"
        entry = self._entries[name]
        try:
            kind, shape = entry["dtype"], [int(size) for size in entry["shape"]]
            begin, end = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{where}: its header entry is broken") from None
        if kind not in _DTYPES:
            raise UserError(f"{where} has dtype {kind}; accepted: {', '.join(_DTYPES)}")
        size = prod(shape) * _itemsize(kind)
        if not (all(axis >= 0 for axis in shape) and begin >= 0 and end - begin == size):
            raise UserError(f"{where}: shape {shape} does not fit the bytes {begin} to {end}")
        if self._start + end > self._path.stat().st_size:
            raise UserError(f"{where}: the file ends within its data")
        return kind, shape, self._start + begin

    def _read(self, kind: str, shape: list[int], begin: int) -> NDArray[Any]:
        with self._path.open("rb") as stream:
            stream.seek(begin)
            data = stream.read(prod(shape) * _itemsize(kind))
        array = np.frombuffer(data, dtype=_DTYPES[kind]).reshape(shape)
        if kind == "BF16":
            # A bfloat16 is the upper half of the float32 of the same value.
            return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return array

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _itemsize(kind: str) -> int:
    return np.dtype(_DTYPES[kind]).itemsize


def _layer_names(layer: int | None) -> tuple[str, ...]:
    """What a layer's attention pattern is called by TransformerLens."""
    return () if layer is None else (f"blocks.{layer}.attn.hook_pattern",)


def _choose(path: Path, tensors: Tensors, key: str | None, layer: int | None) -> str:
    if key is not None:
        if key not in tensors:
            raise UserError(f"{path} has no tensor {key!r}; accepted: {_listed(tensors)}")
        return key
    for name in _layer_names(layer):
        if name in tensors:
            return name
    if len(tensors) != 1:
        raise UserError(
            f"{path} has {len(tensors)} tensors; accepted: --key with one of {_listed(tensors)}"
        )
    return next(iter(tensors))


def _listed(tensors: Tensors) -> str:
    names = [repr(name) for name in sorted(tensors)]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _one_head(
    array: NDArray[Any], where: str, layer: int | None, head: int | None
) -> tuple[NDArray[Any], str]:
    axes = {3: ["head"], 4: ["batch" if layer is None else "layer", "head"]}.get(array.ndim, [])
    wanted = {"layer": layer, "head": head, "batch": None}
    for axis, index in wanted.items():
        if index is not None and axis not in axes:
            raise UserError(f"{where} has shape {array.shape}: no axis for --{axis} {index}")
    chosen = [
        _index(where, axis, wanted[axis], size)
        for axis, size in zip(axes, array.shape, strict=False)
    ]
    return array[tuple(chosen)], f"{where}[{', '.join(map(str, chosen))}]" if chosen else where


def _index(where: str, axis: str, index: int | None, size: int) -> int:
    if index is None and size == 1:
        return 0
    if index is None:
        remedy = "a batch of one, or --layer" if axis == "batch" else f"--{axis} 0 to {size - 1}"
        raise UserError(f"{where} has {size} entries on its {axis} axis; accepted: {remedy}")
    if not 0 <= index < size:
        raise UserError(f"{where}: --{axis} is {index}; accepted: 0 to {size - 1}")
    return index
