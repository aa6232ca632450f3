"""Reader of .pt files for the command line (entry point group ``softrank.readers``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from softrank_exact.errors import UserError


def read_pt(path: Path) -> dict[str, NDArray[Any]]:
    """The tensors of a file of ``torch.save``, by name; a lone tensor is named "".

    Loaded with ``weights_only``: nothing in the file is executed. bfloat16 becomes float32, which
    holds it exactly. Raises ``UserError`` for anything but tensors and mappings of them.
    """
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 (what a damaged pickle raises has no bound)
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(
            f"{path} is not a file of tensors alone ({reason}); accepted: a tensor or a dict of "
            "tensors, written by torch.save"
        ) from None
    named = loaded if isinstance(loaded, Mapping) else {"": loaded}
    return {
        str(name): _array(value, f"{path}: {name}" if name else str(path))
        for name, value in named.items()
    }


def _array(value: Any, where: str) -> NDArray[Any]:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout != torch.strided:
        found = "sparse or meta tensor" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UserError(
            f"{where} is a {found}, not a dense tensor; accepted: tensors, or a dict of them"
        )
    if value.dtype == torch.bfloat16:
        value = value.float()
    array: NDArray[Any] = np.asarray(value.detach().resolve_conj().numpy())
    return array
