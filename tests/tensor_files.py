"""Safetensors files and captures written by hand, so that tests of readers need no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from softrank_exact.captures import FORMAT, METADATA_KEY

BATCH, HEADS, KEY_HEADS, QUERIES, KEYS, WIDTH = 1, 2, 1, 6, 6, 3
SCALE = 3**-0.5


def write_safetensors(
    path: Path, metadata: dict[str, str] | None = None, **tensors: tuple[str, Any]
) -> Path:
    """A safetensors file: name -> (dtype, array)."""
    header: dict[str, Any] = {"__metadata__": metadata or {"format": "np"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(np.shape(array)),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def write_capture(path: Path, change: dict[str, Any] | None = None, causal: bool = False) -> Path:
    """Two layers of two heads that share a key; ``change`` replaces tensors, None leaves it out."""
    rng = np.random.default_rng(5)
    tensors: dict[str, Any] = {}
    for layer in range(2):
        Q = rng.standard_normal((BATCH, HEADS, QUERIES, WIDTH))
        K = rng.standard_normal((BATCH, KEY_HEADS, KEYS, WIDTH))
        bias = np.triu(np.full((1, 1, QUERIES, KEYS), -np.inf), k=1) if causal else None
        logits = SCALE * (Q @ K.swapaxes(-1, -2)) + (0 if bias is None else bias)
        weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        tensors |= {
            f"layers.{layer}.{name}": array
            for name, array in (("query", Q), ("key", K), ("bias", bias), ("weights", weights))
        }
    tensors |= change or {}
    record = {
        "module": "attention",
        "batch": BATCH,
        "heads": HEADS,
        "key_heads": KEY_HEADS,
        "shape": [QUERIES, KEYS],
        "scaling": SCALE.hex(),
    }
    info = {"format": FORMAT, "dtype": "float64", "layers": [record, record]}
    return write_safetensors(
        path,
        {METADATA_KEY: json.dumps(info)},
        **{name: ("F64", array) for name, array in tensors.items() if array is not None},
    )
