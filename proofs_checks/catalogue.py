"""All lemmas, in the order of the theory."""

from __future__ import annotations

from softrank_exact.errors import UserError

from . import controls, gauges, gibbs, interaction, kernel, lower, slack, softmax, target, upper  # noqa: F401
from .lemma import REGISTRY, Lemma


def select(only: str | None = None) -> list[Lemma]:
    """All lemmas; with ``only`` the one of that id, or all of that number ("3.4").

    Raises ``UserError`` if there is none.
    """
    chosen = [x for x in REGISTRY.values() if only is None or only in (x.id, x.number)]
    if not chosen:
        raise UserError(
            f"no lemma is called {only!r}; accepted: an id or a number that "
            "`softrank lemmas list` shows"
        )
    return sorted(chosen, key=lambda x: [int(part) for part in x.number.split(".")])
