"""From a user's file to a target: the options that every verb which reads a matrix shares."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .captures import CapturedHead, captured_head, is_capture
from .certificate import SUFFIX
from .display import note
from .errors import UserError
from .inputs import load_matrix, load_qk, row_sum_warning
from .scalars import parse_epsilon
from .targets import Target

OBJECTS = ("matrix", "logits", "qk")
DEFAULTS = {"key": None, "layer": None, "head": None, "scale": "1", "over_sqrt": 1}


@dataclass(frozen=True)
class Selection:
    """Which matrix of a user's file is meant (``inputs.load_matrix``, ``captures``)."""

    path: Path
    key: str | None = None
    layer: int | None = None
    head: int | None = None
    prefix: int | None = None

    def captured(self) -> CapturedHead | None:
        """The head, where the file is a capture.

        Raises ``UserError`` for an option that the file has no use for.
        """
        if is_capture(self.path):
            refuse_given("--layer and --head, as FILE is a capture", key=self.key)
            return captured_head(self.path, self.layer, self.head, self.prefix)
        if self.prefix is not None:
            raise UserError(f"--prefix needs a capture, and {self.path} is none")
        return None

    @property
    def where(self) -> str:
        """The head of a capture in words."""
        block = "" if self.prefix is None else f", first {self.prefix} keys"
        return f"{self.path}: layer {self.layer}, head {self.head}{block}"


def load_target(
    mine: Selection, object: str, eps: Fraction, scale: str = "1", over_sqrt: int = 1
) -> tuple[Target, str]:
    """The target that a file holds (``inputs.load_matrix``, ``inputs.load_qk``, ``captures``) and
    where it is.

    Warns on stderr of a matrix whose rows do not sum to one. Raises ``UserError`` for an unknown
    object, a file that does not hold one, or an option that the object has no use for.
    """
    if object not in OBJECTS:
        raise UserError(f"--object is {object!r}; accepted: {', '.join(OBJECTS)}")
    captured = mine.captured()
    if captured is not None:
        refuse_given("not with a capture, which knows its scale", scale=scale, over_sqrt=over_sqrt)
        if captured.retained_mass is not None:
            note(_common_support(captured.retained_mass, captured.weights.shape[1]))
        return captured.target(object, eps), mine.where
    file, key, layer, head = mine.path, mine.key, mine.layer, mine.head
    if object == "qk":
        refuse_given("only with --object matrix or logits", key=key, layer=layer, head=head)
        factor = parse_epsilon(scale, "--scale")
        Q, K, bias = load_qk(file)
        return Target.qk(Q, K, eps, scale=factor, over_sqrt=over_sqrt, bias=bias), str(file)
    refuse_given("only with --object qk of a file with Q and K", scale=scale, over_sqrt=over_sqrt)
    loaded = load_matrix(file, key, layer, head, masks=object == "logits")
    if object == "logits":
        return Target.logits(loaded.values, eps), loaded.where
    warning = row_sum_warning(loaded.values)
    if warning is not None:
        note(warning)
    return Target.matrix(loaded.values, eps), loaded.where


def _common_support(mass: NDArray[np.float64], keys: int) -> str:
    return (
        f"common support: {len(mass)} queries against the first {keys} keys, which keep between "
        f"{mass.min():.3g} and {mass.max():.3g} of each query's weight"
    )


def refuse_given(accepted: str, **options: Any) -> None:
    """Raise ``UserError`` for an option that cannot apply and is not at its default."""
    for name, value in options.items():
        if value != DEFAULTS[name]:
            raise UserError(f"--{name.replace('_', '-')} is {value}; accepted: {accepted}")


def check_output(output: Path | None, suffix: str = SUFFIX) -> None:
    """Raise ``UserError`` for the name of an output file that lacks the suffix."""
    if output is not None and not output.name.endswith(suffix):
        raise UserError(f"-o is {output}; accepted: a name that ends in {suffix}")
