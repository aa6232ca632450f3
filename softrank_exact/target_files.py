"""From a user's file to a target: the options that every verb which reads a matrix shares."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from .display import note
from .errors import UserError
from .inputs import load_matrix, load_qk, row_sum_warning
from .targets import Target

OBJECTS = ("matrix", "logits", "qk")


def load_target(
    file: Path,
    object: str,
    eps: Fraction,
    key: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    scale: str = "1",
    over_sqrt: int = 1,
) -> tuple[Target, str]:
    """The target that a file holds (``inputs.load_matrix``, ``inputs.load_qk``) and where it is.

    Warns on stderr of a matrix whose rows do not sum to one. Raises ``UserError`` for an unknown
    object or a file that does not hold one.
    """
    if object not in OBJECTS:
        raise UserError(f"--object is {object!r}; accepted: {', '.join(OBJECTS)}")
    if object == "qk":
        Q, K, bias = load_qk(file)
        return Target.qk(Q, K, eps, scale=scale, over_sqrt=over_sqrt, bias=bias), str(file)
    loaded = load_matrix(file, key, layer, head, masks=object == "logits")
    if object == "logits":
        return Target.logits(loaded.values, eps), loaded.where
    warning = row_sum_warning(loaded.values)
    if warning is not None:
        note(warning)
    return Target.matrix(loaded.values, eps), loaded.where
