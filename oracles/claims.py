"""What a control claims, and the steps that prove it.

A claim carries its value in closed form and at least one ``Step``; a step was checked when it was
made, by the kernel or by exact arithmetic, and holds or not. A claim with a failed step is not
proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Exact: TypeAlias = Any
"""bool, int, str, Fraction, Enclosure, an array of fractions, or lists and dicts of those."""

Inputs: TypeAlias = Mapping[str, Exact]

RANK = "approximation-rank"
DISTANCE = "corank-one-distance"


@dataclass(frozen=True)
class Enclosure:
    """A real number known to lie in [lower, upper]."""

    lower: Fraction
    upper: Fraction


@dataclass(frozen=True)
class Step:
    """One checked step of a proof.

    kind: a kernel witness kind ("factor", "bernstein", ...), "arithmetic", "game", "ball".
    says: the statement that was checked; holds: the outcome; witness: what a second checker needs.
    """

    kind: str
    says: str
    holds: bool
    witness: Mapping[str, Exact] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A known answer: ``value`` for ``inputs``, proven by ``steps``.

    id: unique, "control/claim/case"; source: the number in MATH; says: the statement in words;
    quantity: RANK or DISTANCE where inputs and value have the form that docs/oracles.md gives.
    """

    id: str
    source: str
    says: str
    inputs: Inputs
    value: Exact
    steps: tuple[Step, ...]
    quantity: str = "other"

    @property
    def proven(self) -> bool:
        """At least one step, and all of them hold."""
        return bool(self.steps) and all(step.holds is True for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """The entry of known_answers.json (docs/oracles.md)."""
        return {
            "id": self.id,
            "source": self.source,
            "statement": self.says,
            "quantity": self.quantity,
            "inputs": plain(dict(self.inputs)),
            "value": plain(self.value),
            "proof": [
                {"kind": s.kind, "statement": s.says, "witness": plain(dict(s.witness))}
                for s in self.steps
            ],
        }


def arithmetic(says: str, holds: bool | np.bool_, **witness: Exact) -> Step:
    """A step that exact rational arithmetic decides."""
    return Step("arithmetic", says, bool(holds), witness)


def ball(says: str, holds: bool, **witness: Exact) -> Step:
    """A step that ball arithmetic decides: ``holds`` only if it is true of the whole enclosure."""
    return Step("ball", says, bool(holds), witness)


def plain(value: Exact) -> Any:
    """The JSON form: a fraction as "p" or "p/q", an enclosure as {"lower", "upper"}."""
    match value:
        case bool() | str():
            return value
        case int() | np.integer():
            return int(value)
        case Fraction():
            return str(value)
        case Enclosure(lower, upper):
            return {"lower": str(lower), "upper": str(upper)}
        case np.ndarray() | list() | tuple():
            return [plain(entry) for entry in value]
        case dict():
            return {key: plain(entry) for key, entry in value.items()}
    raise TypeError(f"{type(value).__name__} has no exact JSON form")
