"""A safetensors file written tensor by tensor: what is recorded goes to disk at once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import torch

from softrank_exact.errors import UserError

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


class TensorFile:
    """Collects tensors of any shape in a temporary file beside ``path``; ``close`` makes the file.

    The header of a safetensors file comes first and holds the sizes, so the data wait in the
    temporary file until the last tensor is known. Leaving the context without ``close`` removes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, dict[str, Any]] = {}
        try:
            self._data: BinaryIO = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._data.close()

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Append one tensor (float64, float32, float16 or bfloat16, on any device)."""
        begin = self._data.tell()
        flat = tensor.detach().to("cpu").contiguous().reshape(-1)
        self._data.write(flat.view(torch.uint8).numpy().tobytes())
        self._entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, self._data.tell()],
        }

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write header and data to ``path``, all or nothing."""
        header = json.dumps(
            {"__metadata__": dict(metadata), **self._entries}, sort_keys=True
        ).encode()
        header += b" " * (-len(header) % 8)
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                self._data.seek(0)
                shutil.copyfileobj(self._data, file)
            os.chmod(temporary, 0o644)
            os.replace(temporary, self.path)
        except BaseException:
            os.unlink(temporary)
            raise
