"""What other packages bring, by entry points; one that cannot be imported breaks nothing else."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, requires
from typing import Any


class Unavailable(Exception):
    """An entry point whose package cannot be imported; the message says what to install."""


def load(entry: EntryPoint) -> Any:
    """The entry point's object. Raises ``Unavailable`` if a module that it needs is missing."""
    try:
        return entry.load()
    except ImportError as error:
        raise Unavailable(f"needs {_remedy(error)}") from None


def _remedy(error: ImportError) -> str:
    missing = (error.name or "").partition(".")[0]
    extra = _extra_with(missing) if isinstance(error, ModuleNotFoundError) else None
    if extra is None:
        return f"a package that cannot be imported here ({error})"
    return f"{missing}: pip install '.[{extra}]' in a clone of softrank-exact"


def _extra_with(module: str) -> str | None:
    """The extra of this distribution that installs a module (named as its distribution is)."""
    for requirement in requires("softrank-exact") or ():
        match = re.fullmatch(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"].*", requirement)
        if match and match[1].replace("-", "_").lower() == module.lower():
            return match[2]
    return None
