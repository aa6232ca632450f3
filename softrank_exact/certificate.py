"""Certificates in memory and on disk: the writer of the format, and the atomic file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .intake.audit import Audit, Verdict, audit_bytes, judge
from .intake.container import DTYPES, Tensor, canonical_text
from .intake.document import CLASS, FORMAT, NORM, Claim, Document, target_digest
from .intake.target import DeclaredTarget
from .scalars import hex_ratio

SUFFIX = ".softrank.safetensors"


@dataclass(frozen=True, repr=False)
class Certificate:
    """A target, a tolerance and claims, with what the exact check says of them."""

    declared: DeclaredTarget
    epsilon: Fraction
    claims: tuple[Claim, ...]
    provenance: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def audit(self) -> Audit:
        """The exact verdicts on the claims."""
        document = Document(self.epsilon, self.declared, self.claims, "", self.provenance)
        return Audit(document, judge(document), None)

    def __repr__(self) -> str:
        m, n = self.declared.shape
        return (
            f"Certificate({self.lower} <= r_eps <= {self.upper}, eps={self.epsilon}, "
            f"{self.declared.object} {m} x {n})"
        )

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.audit.verdicts

    @property
    def lower(self) -> int | None:
        """L, the largest verified lower rank."""
        return self.audit.lower

    @property
    def upper(self) -> int | None:
        """U, the smallest verified upper rank."""
        return self.audit.upper

    def to_bytes(self) -> bytes:
        """The one file content of this certificate (docs/certificate-format.md).

        Raises ``UserError`` for witnesses with entries beyond 32 bits.
        """
        tensors = {
            f"target.{name}": _tensor(array, "F64" if array.dtype == np.float64 else "I64")
            for name, array in self.declared.tensors.items()
        }
        for i, claim in enumerate(self.claims):
            for name in claim.witness.shapes if claim.witness else ():
                tensors[f"claim{i}.{name}"] = _tensor(getattr(claim.witness, name), "I32")
        header: dict[str, object] = {"__metadata__": {"softrank": self._metadata(tensors)}}
        position = 0
        for name in sorted(tensors):
            tensor = tensors[name]
            header[name] = {
                "data_offsets": [position, position + len(tensor.data)],
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
            }
            position += len(tensor.data)
        text = canonical_text(header)
        text += b" " * (-len(text) % 8)
        data = b"".join(tensors[name].data for name in sorted(tensors))
        return len(text).to_bytes(8, "little") + text + data

    def _metadata(self, tensors: Mapping[str, Tensor]) -> str:
        target: dict[str, object] = {
            "object": self.declared.object,
            "shape": list(self.declared.shape),
            "den": f"{self.declared.den:#x}",
            "alpha": hex_ratio(self.declared.alpha),
            "sha256": target_digest(tensors),
        }
        if self.declared.object == "qk":
            target["scale"] = hex_ratio(self.declared.scale)
            target["over_sqrt"] = f"{self.declared.over_sqrt:#x}"
        claims = [
            {
                "side": claim.side,
                "rank": claim.rank,
                "kind": claim.kind,
                "params": {
                    name: f"{getattr(claim.witness, name):#x}"
                    for name in (claim.witness.scales if claim.witness else ())
                },
            }
            for claim in self.claims
        ]
        fields = {
            "format": FORMAT,
            "norm": NORM,
            "class": CLASS,
            "epsilon": hex_ratio(self.epsilon),
            "provenance": dict(self.provenance),
            "target": target,
            "claims": claims,
        }
        return canonical_text(fields).decode()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the certificate atomically; the usual suffix is ``.softrank.safetensors``."""
        return write_atomically(Path(path), self.to_bytes())


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read and judge a certificate. Raises ``UserError`` if it cannot be read or is malformed."""
    audit = audit_file(path)
    if audit.document is None:
        code, message = audit.malformed or ("", "")
        raise UserError(f"{path}: malformed ({code}): {message}")
    document = audit.document
    certificate = Certificate(
        document.target, document.epsilon, document.claims, document.provenance
    )
    certificate.__dict__["audit"] = audit
    return certificate


def audit_file(path: str | os.PathLike[str]) -> Audit:
    """The exact verdicts on a file, which is read once. Raises ``UserError`` if unreadable."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    return audit_bytes(data)


def write_atomically(path: Path, data: bytes) -> Path:
    """Write a file so that it is there whole or not at all. Raises ``UserError``."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def _tensor(array: NDArray[np.float64] | NDArray[np.int64], dtype: str) -> Tensor:
    stored = np.ascontiguousarray(array, dtype=DTYPES[dtype])
    if not np.array_equal(stored, array):
        raise UserError(f"an entry does not fit {dtype}; accepted: witnesses of 32-bit integers")
    return Tensor(dtype, tuple(array.shape), stored.tobytes())
