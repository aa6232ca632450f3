"""Captures: the attention heads of a model as ``softrank capture`` recorded them. No torch here.

``load_capture`` gives each head as the objects of MATH 2.2: ``qk``, ``logits``, ``matrix``; which
tensors a capture holds is told in docs/capture.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .inputs import SafeTensors
from .targets import Number, Target

FORMAT = "softrank-capture-1"
METADATA_KEY = "softrank_capture"
OBJECTS = ("qk", "logits", "matrix")


@dataclass(frozen=True)
class CapturedHead:
    """One head of one input, m queries by n keys.

    ``query`` (m, d) and ``key`` (n, d): float64, exactly what the model multiplied, or None where
    the model does not show them; ``scale``: the exact number that multiplied their product;
    ``bias`` (m, n): what was added to the logits, minus infinity where masked, or None;
    ``weights`` (m, n): float64, the attention weights that the model returned; ``dtype``: the
    model's; ``retained_mass`` (m,): for a common-support block, the weight that each query keeps.
    """

    layer: int
    head: int
    query: NDArray[np.float64] | None
    key: NDArray[np.float64] | None
    scale: Fraction
    bias: NDArray[np.float64] | None
    weights: NDArray[np.float64]
    dtype: str
    retained_mass: NDArray[np.float64] | None = None

    @property
    def objects(self) -> tuple[str, ...]:
        """The declared objects that this head offers, of ``qk``, ``logits``, ``matrix``."""
        return OBJECTS if self.query is not None else ("matrix",)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The attention weights that the model returned, (m, n) float64."""
        return self.weights

    @property
    def logits(self) -> NDArray[np.float64]:
        """scale Q K^T + bias evaluated in float64, (m, n); minus infinity where masked.

        Raises ``UserError`` for a head captured without queries and keys.
        """
        query, key = self.require_qk("logits")
        products = float(self.scale) * (query @ key.T)
        return products if self.bias is None else products + self.bias

    def target(self, object: str, eps: Number) -> Target:
        """The head as a certificate's target: ``object`` one of ``qk``, ``logits``, ``matrix``.

        Raises ``UserError`` for another object, one that this head does not offer, or a query
        that attends to nothing.
        """
        if object not in OBJECTS:
            raise UserError(f"object {object!r} is not one of {', '.join(OBJECTS)}")
        if object == "matrix":
            return Target.matrix(self.weights, eps)
        query, key = self.require_qk(object)
        if object == "logits":
            return Target.logits(self.logits, eps)
        return Target.qk(query, key, eps, scale=self.scale, bias=self.bias)

    def common_support(self, prefix: int) -> CapturedHead:
        """Late queries (positions prefix, prefix + 1, ...) against the first ``prefix`` keys.

        The softmax is renormalised over the prefix; ``retained_mass`` records what share of its
        weight each query had there (MATH 10). Raises ``UserError`` if no query or no key is left,
        or if a late query cannot see the whole prefix.
        """
        m, n = self.weights.shape
        if not 0 < prefix < min(m, n + 1):
            raise UserError(
                f"prefix {prefix} leaves no block of a {m} x {n} head: take 1 to {m - 1}"
            )
        bias = None if self.bias is None else self.bias[prefix:, :prefix]
        if bias is not None and not np.all(np.isfinite(bias)):
            raise UserError(f"prefix {prefix}: a late query does not see the whole prefix")
        kept = self.weights[prefix:, :prefix]
        mass = kept.sum(axis=1)
        return replace(
            self,
            query=None if self.query is None else self.query[prefix:],
            key=None if self.key is None else self.key[:prefix],
            bias=bias if bias is not None and np.any(bias) else None,
            weights=kept / mass[:, None],
            retained_mass=mass,
        )

    def require_qk(self, object: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Queries (m, d) and keys (n, d), for this object.

        Raises ``UserError`` for a head captured without them.
        """
        if self.query is None or self.key is None:
            raise UserError(
                f"layer {self.layer} was captured without queries and keys: "
                f"only object matrix is available, not {object}"
            )
        return self.query, self.key


class Capture:
    """A capture file: ``info`` (model, revision, text_sha256, input_ids, dtype, layers ...)."""

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path = path
        self.info = info

    @property
    def layers(self) -> list[dict[str, Any]]:
        """For each attention call in order: module, heads, key_heads, shape, scaling, qk."""
        layers: list[dict[str, Any]] = self.info["layers"]
        return layers

    def head(self, layer: int, head: int, batch: int = 0) -> CapturedHead:
        """One head. Raises ``UserError`` for a layer, head or batch entry out of range."""
        _in_range(self.path, "layer", layer, len(self.layers))
        record = self.layers[layer]
        _in_range(self.path, "head", head, record["heads"])
        _in_range(self.path, "batch", batch, record["batch"])
        tensors = _open(self.path)

        def read(name: str, index: int) -> NDArray[np.float64]:
            return tensors.matrix_at(f"layers.{layer}.{name}", batch, index).astype(np.float64)

        def read_if_there(name: str, index: int) -> NDArray[np.float64] | None:
            return read(name, index) if f"layers.{layer}.{name}" in tensors else None

        return CapturedHead(
            layer=layer,
            head=head,
            query=read_if_there("query", head),
            key=read_if_there("key", head * record["key_heads"] // record["heads"]),
            scale=Fraction(float.fromhex(record["scaling"])),
            bias=read_if_there("bias", head),
            weights=read("weights", head),
            dtype=self.info["dtype"],
        )

    def heads(self, batch: int = 0) -> Iterator[CapturedHead]:
        """Every head in order of (layer, head), read one at a time."""
        for layer, record in enumerate(self.layers):
            for head in range(record["heads"]):
                yield self.head(layer, head, batch)


def load_capture(path: str | Path) -> Capture:
    """Open a capture file. Raises ``UserError`` if it is not one."""
    described = _open(Path(path)).metadata.get(METADATA_KEY)
    if described is None:
        raise UserError(f"{path} is not a capture: write one with `softrank capture`")
    try:
        info = json.loads(described)
        version = info["format"]
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path} is a damaged capture: {METADATA_KEY} is {described!r}") from None
    if version != FORMAT:
        raise UserError(f"{path} has capture format {version!r}, not {FORMAT!r}")
    return Capture(Path(path), info)


def is_capture(path: Path) -> bool:
    """Whether a file, named ``*.safetensors``, says that it is a capture.

    Raises ``UserError`` for one that cannot be read.
    """
    return path.suffix == ".safetensors" and METADATA_KEY in _open(path).metadata


def captured_head(
    path: Path, layer: int | None, head: int | None, prefix: int | None = None
) -> CapturedHead:
    """The head of a capture file that a user has chosen; with ``prefix``, its common support block.

    Raises ``UserError`` if layer or head is None or out of range, or the prefix leaves no block.
    """
    if layer is None or head is None:
        raise UserError(f"{path} is a capture; accepted: with --layer and --head")
    chosen = load_capture(path).head(layer, head)
    return chosen if prefix is None else chosen.common_support(prefix)


def _open(path: Path) -> SafeTensors:
    try:
        return SafeTensors(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _in_range(path: Path, name: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise UserError(f"{path}: {name} {value} is not within 0 to {size - 1}")
