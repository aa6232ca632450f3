"""The file of known answers: computed afresh, in one canonical form, compared byte for byte.

docs/oracles.md describes the format for implementations that use it as test vectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from softrank_exact.certificate import write_atomically

from . import (
    class_gap,
    effective,
    gauges,
    grid,
    profiles,
    projective,
    slack,
    small,
    support,
    two_bit,
)
from .claims import Claim

FORMAT = "softrank-known-answers-1"
PATH = Path(__file__).with_name("known_answers.json")


@dataclass(frozen=True)
class Control:
    """One module of this package: its name (the first part of its ids), title and claims."""

    name: str
    title: str
    claims: Callable[[], Iterator[Claim]]


CONTROLS = (
    Control("class-gap", "Restricted competitors change the rank (9.2)", class_gap.claims),
    Control("effective", "Native sharpness, full algebraic dimension (9.7, 9.8)", effective.claims),
    Control("gauges", "Gauges move native quantities (8.1-8.3, 3.10)", gauges.claims),
    Control("grid", "The finite grid (9.3)", grid.claims),
    Control("profiles", "Invalid shortcut, base weights, 3-cycle (9.5, 9.6, 3.5)", profiles.claims),
    Control("projective", "The projective inequality is sharp (3.1)", projective.claims),
    Control("slack", "The slack shift is needed (2.4)", slack.claims),
    Control("small", "Small exact regimes (1.2, 5.5)", small.claims),
    Control("support", "Sphere and full ball (9.4)", support.claims),
    Control("two-bit", "The two-bit oracle (9.1)", two_bit.claims),
)


def canonical(claims: list[Claim]) -> bytes:
    """The file: one claim a line, sorted by id; keys sorted, no white space inside a claim."""
    entries = ",\n".join(_line(claim) for claim in sorted(claims, key=lambda claim: claim.id))
    return f'{{"claims":[\n{entries}\n],"format":"{FORMAT}"}}\n'.encode("ascii")


def regenerate(claims: list[Claim], path: Path = PATH) -> Path:
    """Write the file atomically. Raises ``ValueError`` if a claim is not proven."""
    unproven = [claim.id for claim in claims if not claim.proven]
    if unproven:
        raise ValueError(f"not proven: {', '.join(unproven)}")
    return write_atomically(path, canonical(claims))


def stored_lines(data: bytes) -> set[bytes]:
    """The lines of a file of known answers, without the commas between them."""
    return {line.rstrip(b",") for line in data.splitlines()}


def is_stored(claim: Claim, lines: set[bytes]) -> bool:
    """Whether this claim stands in the file exactly as it was computed."""
    return _line(claim).encode("ascii") in lines


def _line(claim: Claim) -> str:
    return json.dumps(claim.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
