"""Anyone's tensors as batches of float64 matrices, every entry exactly, or one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from softrank_exact.errors import UserError

MAX_AXIS = 1 << 12
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True)
class Cells:
    """A batch of matrices.

    ``values``: float64 [b, m, n] on the CPU; ``batch``: the leading axes, of product b; ``dtype``:
    as it was given, for the ledger.
    """

    values: torch.Tensor
    batch: tuple[int, ...]
    dtype: str


def as_cells(given: Any, name: str, masks: bool = False) -> Cells:
    """A tensor or array [..., m, n], or a sequence of equal-shaped ones, as cells.

    Accepted: float64, float32, float16, bfloat16 and integers up to 2^53, on any device, with or
    without gradients, contiguous or not; with ``masks`` also minus infinity. Raises ``UserError``
    for everything else, naming ``name``, the entry and what would be accepted.
    """
    tensor = _tensor(given, name)
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dim() < 2 or not tensor.numel():
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; accepted: non-empty [..., m, n]")
    if max(tensor.shape[-2:]) > MAX_AXIS:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; accepted: matrices up to 4096")
    largest = 1 << 53
    if tensor.dtype in _INTEGERS and bool(((tensor > largest) | (tensor < -largest)).any()):
        raise UserError(f"{name} has an integer over 2^53; accepted: integers up to that")
    batch = tuple(tensor.shape[:-2])
    values = tensor.to(torch.float64).reshape(-1, *tensor.shape[-2:]).contiguous()
    _require_finite(values, batch, name, dtype, masks)
    return Cells(values, batch, dtype)


def index_of(number: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The leading indices of cell ``number``."""
    return tuple(int(i) for i in np.unravel_index(number, batch)) if batch else ()


def _tensor(given: Any, name: str) -> torch.Tensor:
    accepted = "real tensors or arrays [..., m, n]"
    if isinstance(given, np.ma.MaskedArray):
        raise UserError(f"{name} is a masked array; accepted: {accepted}")
    if isinstance(given, Sequence) and not isinstance(given, str):
        members = [_tensor(member, f"{name}[{i}]") for i, member in enumerate(given)]
        shapes = sorted({tuple(member.shape) for member in members})
        if len(shapes) != 1:
            raise UserError(f"{name} mixes the shapes {shapes}; accepted: one shape in a batch")
        return torch.stack([member.to(members[0].dtype) for member in members])
    if isinstance(given, np.ndarray):
        if given.dtype.kind not in "fiu" or given.dtype.itemsize > 8:
            raise UserError(f"{name} has dtype {given.dtype}; accepted: {accepted}")
        if given.dtype.kind == "u":
            # Larger ones would wrap around; they are refused with the other integers.
            given = np.minimum(given.astype(np.float64), 2.0**60).astype(np.int64)
        given = torch.from_numpy(np.ascontiguousarray(given))
    if not isinstance(given, torch.Tensor):
        raise UserError(f"{name} is a {type(given).__name__}; accepted: {accepted}")
    if given.is_meta:
        raise UserError(f"{name} is a meta tensor, which has no entries; accepted: {accepted}")
    if given.is_sparse or given.is_quantized or given.dtype not in _FLOATS + _INTEGERS:
        kind = "sparse" if given.is_sparse else str(given.dtype).removeprefix("torch.")
        raise UserError(f"{name} is {kind}; accepted: dense float or integer tensors")
    return given.detach().to("cpu")


def _require_finite(
    values: torch.Tensor, batch: tuple[int, ...], name: str, dtype: str, masks: bool
) -> None:
    allowed = torch.isfinite(values)
    if masks:
        allowed |= values == -torch.inf
    if not bool(allowed.all()):
        cell, i, j = (int(index) for index in torch.nonzero(~allowed)[0])
        where = f"{name}{[*index_of(cell, batch), i, j]}"
        bad = values[cell, i]
        hint = ""
        if bool(torch.isnan(bad).all()):
            hint = " (the whole row is NaN: a fully masked query?)"
        elif dtype in ("float16", "bfloat16") and bool(torch.isinf(bad[j])):
            hint = f" (an overflow of {dtype}?)"
        extra = ", -inf for masked entries" if masks else ""
        raise UserError(f"{where} is {float(bad[j])}{hint}; accepted: finite numbers{extra}")
    if masks:
        seen = torch.isfinite(values).any(dim=-1)
        if not bool(seen.all()):
            cell, i = (int(index) for index in torch.nonzero(~seen)[0])
            where = f"{name}{[*index_of(cell, batch), i]}"
            raise UserError(f"{where} is a fully masked row; accepted: rows with a finite entry")
