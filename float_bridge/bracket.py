"""`bracket`: search on floats, certify in integers, return what is proven.

Nothing here imports torch before it is needed: the command line loads this package for every verb.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softrank_exact import Certificate, Target, UserError
from softrank_exact.scalars import parse_epsilon
from softrank_exact.targets import Number

if TYPE_CHECKING:
    import torch

    from .search.cell import Cell

Progress = Callable[["Bracket"], None]


@dataclass(frozen=True)
class Bracket:
    """`lower <= r_eps(A) <= upper`, both ends proven by the exact kernel.

    `seconds`: wall-clock time of the call that found it, shared by the cells of the call.
    `interrupted`: the search ended before its budget did.
    """

    cell: Cell
    seconds: float
    interrupted: bool
    provenance: dict[str, str]

    @property
    def lower(self) -> int:
        return self.cell.lower.rank

    @property
    def upper(self) -> int:
        return self.cell.upper.rank

    @property
    def exact(self) -> bool:
        return self.lower == self.upper

    @property
    def epsilon(self) -> Fraction:
        return self.cell.epsilon

    @cached_property
    def certificate(self) -> Certificate:
        """Target, tolerance and the two claims, ready to be saved or audited."""
        return self.cell.certificate(self.provenance)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the certificate atomically (docs/certificate-format.md)."""
        return self.certificate.save(path)

    def __repr__(self) -> str:
        return f"Bracket({self.lower} <= r_eps <= {self.upper}, eps={self.epsilon})"


def bracket(
    A: Any,
    eps: Number | Sequence[Number],
    effort: Literal["fast", "thorough"] = "fast",
    device: str | torch.device | None = None,
    seed: int = 0,
    *,
    object: Literal["matrix", "logits"] = "matrix",
    seconds: float | None = None,
    warm: Certificate | None = None,
    progress: Progress | None = None,
) -> Any:
    """Bracket the approximation rank r_eps of A (MATH 1) and certify it.

    A: a `Target`, or an array or tensor [..., m, n] of the given `object` (floats up to float64;
    -inf is a mask in logits). eps: one tolerance, or a sequence: witnesses are then shared, and the
    ends are monotone in eps. effort: a budget in steps, the same result for a seed on one machine
    with one number of threads (one is fastest for a head: `torch.set_num_threads(1)`).
    seconds: go on until this wall-clock time is over (anytime; not deterministic). warm: a
    certificate of the same shape to start from. progress: called with a `Bracket` after every
    batch of work on its cell; every end it sees is proven.

    Returns a `Bracket`, or an object array of them: the leading axes of A, then one for eps if it
    is a sequence. Ctrl-C ends the search early and returns the best proven so far, marked
    `interrupted`. Raises `UserError` for unusable input.
    """
    from .search.cell import Cell
    from .search.scheduler import PLANS, search
    from .search.warm import offer_certificate

    given = [eps] if isinstance(eps, str) or not isinstance(eps, Sequence) else eps
    tolerances = [parse_epsilon(value) for value in given]
    if effort not in PLANS:
        raise UserError(f"effort is {effort!r}; accepted: {' or '.join(PLANS)}")
    if not tolerances:
        raise UserError("eps is an empty sequence; accepted: at least one tolerance")
    if seconds is not None and not seconds > 0:
        raise UserError(f"seconds is {seconds}; accepted: a positive number")
    targets, axes = _targets(A, object, min(tolerances))
    rows = [[Cell(target, epsilon) for epsilon in tolerances] for target in targets]
    provenance = {"effort": effort, "seed": str(seed)} | (
        {"seconds": str(seconds)} if seconds is not None else {}
    )
    started = time.monotonic()

    def result(cell: Cell, interrupted: bool) -> Bracket:
        return Bracket(cell, time.monotonic() - started, interrupted, provenance)

    def observe(cell: Cell) -> None:
        row = next(row for row in rows if cell in row)
        cell.share(other for other in row if other is not cell)
        if progress is not None:
            progress(result(cell, interrupted=False))

    interrupted = False
    try:
        for row in rows:
            for cell in row:
                if warm is not None:
                    offer_certificate(cell, warm)
        search(
            [cell for row in rows for cell in row], effort, _device(device), seed, seconds, observe
        )
    except KeyboardInterrupt:
        interrupted = True
    brackets = np.empty(len(targets) * len(tolerances), dtype=np.object_)
    brackets[:] = [result(cell, interrupted) for row in rows for cell in row]
    shaped = brackets.reshape(axes + ((len(tolerances),) if given is eps else ()))
    return shaped if shaped.ndim else shaped.item()


def _targets(A: Any, object: str, eps: Fraction) -> tuple[list[Target], tuple[int, ...]]:
    if isinstance(A, Target):
        return [A], ()
    declared: dict[str, Callable[[Any, Number], Target]] = {
        "matrix": Target.matrix,
        "logits": Target.logits,
    }
    if object not in declared:
        raise UserError(f"object is {object!r}; accepted: matrix or logits (qk: pass a Target)")
    values = _array(A)
    if values.ndim < 2 or not values.size:
        raise UserError(f"A has shape {values.shape}; accepted: a non-empty array [..., m, n]")
    matrices = values.reshape(-1, *values.shape[-2:])
    return [declared[object](matrix, eps) for matrix in matrices], values.shape[:-2]


def _array(A: Any) -> np.ndarray:
    """The entries of A, exactly. Half precisions of torch embed in float32."""
    import torch

    if isinstance(A, torch.Tensor):
        if A.is_meta:
            raise UserError("A is a meta tensor, which has no entries; accepted: a real tensor")
        if A.is_complex():
            raise UserError(f"A has dtype {A.dtype}; accepted: real numbers")
        A = A.detach().cpu()
        return (A.float() if A.dtype in (torch.bfloat16, torch.float16) else A).numpy()
    if isinstance(A, np.ma.MaskedArray):
        raise UserError("A is a masked array; accepted: a plain array")
    try:
        return np.asarray(A)
    except (ValueError, TypeError) as error:
        raise UserError(f"A is not an array ({error}); accepted: [..., m, n] numbers") from None


def _device(device: str | torch.device | None) -> torch.device:
    import torch

    try:
        chosen = torch.device(device or "cpu")
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"device {device!r} cannot be used ({reason}); accepted: cpu, or cuda if there is one"
        ) from None
    return chosen
