"""A user's witnesses on the command line: comma-separated array files in a fixed order.

Axes are checked here, so that a mistake is told by the name of its file: m queries, n keys, and
letters that only have to agree with each other.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .inputs import load_array
from .targets import Target
from .witness import (
    FloatArray,
    FloatBernstein,
    FloatBernsteinRows,
    FloatFactor,
    FloatFantope,
    FloatHS,
    FloatShattering,
)


def read_factor(text: str, target: Target) -> FloatFactor:
    """ "X,Y": X (m, rank), Y (rank, n)."""
    X, Y = _arrays("--upper", text.split(","), target, X="mk", Y="kn")
    return FloatFactor(X, Y)


def read_hilbert_schmidt(text: str, target: Target, epsilon: Fraction) -> FloatHS:
    """ "w,T" or "w,T,RANK": w (m,), T (n, q); without RANK the largest that floats believe in."""
    files, rank = _split_rank(text)
    w, T = _arrays("--hs", files, target, w="m", T="nq")
    if rank is None:
        rank = _plausible_rank(target.float_matrix, float(epsilon + target.alpha), w, T)
    return FloatHS(rank, w, T)


def read_bernstein(text: str, target: Target) -> FloatBernstein:
    """ "columns,G,X,Y": columns (c,) integers, G (c, m), X (c, c - rank), Y (c - rank, c)."""
    axes = {"columns": "c", "G": "cm", "X": "ck", "Y": "kc"}
    columns, G, X, Y = _arrays("--bernstein", text.split(","), target, **axes)
    return FloatBernstein(_indices("--bernstein", "columns", columns), G, X, Y)


def read_bernstein_rows(text: str, target: Target) -> FloatBernsteinRows:
    """ "rows,G,X,Y": rows (c,) integers, G (n, c), X (c, c - rank), Y (c - rank, c)."""
    axes = {"rows": "c", "G": "nc", "X": "ck", "Y": "kc"}
    rows, G, X, Y = _arrays("--bernstein-rows", text.split(","), target, **axes)
    return FloatBernsteinRows(_indices("--bernstein-rows", "rows", rows), G, X, Y)


def read_fantope(text: str, target: Target) -> FloatFantope:
    """ "T,w,v,RANK": T (n, q), and per non-zero row of T, in order, w (s, m) and v (s, n)."""
    files, rank = _split_rank(text)
    if rank is None:
        raise UserError(f"--fantope is {text!r}; accepted: T.npy,w.npy,v.npy,RANK")
    T, w, v = _arrays("--fantope", files, target, T="nq", w="sm", v="sn")
    rows = int(np.count_nonzero(np.any(T != 0, axis=1)))
    if len(w) != rows:
        raise UserError(
            f"--fantope: w in {files[1]} has {len(w)} rows; accepted: {rows}, one for each "
            "non-zero row of T"
        )
    return FloatFantope(rank, T, w, v)


def read_shattering(text: str, target: Target) -> FloatShattering:
    """ "D,blocks,Y" or "D,blocks,Y,edges": D (rank + e, m), blocks (b,), Y (r, n), edges (e, 2)."""
    files = text.split(",")
    axes = {"D": "vm", "blocks": "b", "Y": "rn"} | ({"edges": "e2"} if len(files) == 4 else {})
    D, blocks, Y, *edges = _arrays("--shattering", files, target, **axes)
    integers = [_indices("--shattering", "edges", array) for array in edges]
    return FloatShattering(D, _indices("--shattering", "blocks", blocks), Y, *integers)


def _arrays(flag: str, files: list[str], target: Target, **axes: str) -> list[FloatArray]:
    if len(files) != len(axes):
        accepted = ",".join(f"{name}.npy" for name in axes)
        raise UserError(f"{flag} is {','.join(files)!r}; accepted: {accepted}")
    arrays = [load_array(Path(file)) for file in files]
    sizes = dict(zip("mn2", (*target.shape, 2), strict=True))
    for file, array, (name, letters) in zip(files, arrays, axes.items(), strict=True):
        shape = array.shape
        fits = len(shape) == len(letters) and all(
            sizes.setdefault(letter, size) == size
            for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            accepted = ", ".join(str(sizes.get(letter, "any")) for letter in letters)
            raise UserError(f"{flag}: {name} in {file} has shape {shape}; accepted: ({accepted})")
    return arrays


def _split_rank(text: str) -> tuple[list[str], int | None]:
    *files, last = text.split(",")
    if last.isascii() and last.isdigit() and len(last) < 10:
        return files, int(last)
    return [*files, last], None


def _indices(flag: str, name: str, values: FloatArray) -> NDArray[np.int64]:
    if not (np.all(np.abs(values) < 2.0**31) and np.all(values == np.rint(values))):
        raise UserError(f"{flag}: {name} has an entry that is no int32; accepted: integers")
    return values.astype(np.int64)


def _plausible_rank(A: FloatArray, hi: float, w: FloatArray, T: FloatArray) -> int:
    """The largest rank that MATH 5.2 gives in floating point, at least 1."""
    weights = np.maximum(w, 0)
    image = np.sqrt(weights)[:, None] * (A @ T)
    if not np.all(np.isfinite(image)):
        return 1
    unit = weights.sum() * np.square(T).sum(axis=1).max()
    squares = np.square(np.linalg.svd(image, compute_uv=False))
    tails = np.cumsum(squares[::-1])[::-1]
    return max(1, int(np.count_nonzero(tails > hi**2 * unit)))
