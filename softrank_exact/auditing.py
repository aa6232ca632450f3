"""Re-checking certificate files: this checker, the second one, and "is it about my matrix?"."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .captures import CapturedHead
from .certificate import SUFFIX, audit_file
from .display import above, below, exact
from .errors import UserError
from .inputs import load_matrix, load_qk, read_tensors
from .intake.audit import Audit
from .intake.target import DeclaredTarget
from .interrupts import unbroken
from .target_files import Selection

MINICHECK = Path(__file__).with_name("minicheck.py")
OK, NOT_VERIFIED, MALFORMED, INTERNAL = 0, 1, 4, 70
_SEVERITY = (INTERNAL, MALFORMED, NOT_VERIFIED, OK)

# side, rank, kind, verdict, code
Opinion: TypeAlias = tuple[str | None, int | None, str | None, str, str]


@dataclass(frozen=True)
class Comparison:
    """Whether the certificate is about the user's array, and a sentence that says what differs."""

    same: bool
    sentence: str


@dataclass(frozen=True)
class Outcome:
    """All that was found about one certificate file.

    ``disagreement``: None if the second checker agrees or was not asked, else how it differs.
    """

    file: Path
    audit: Audit
    disagreement: str | None = None
    against: Comparison | None = None

    @property
    def exit_code(self) -> int:
        if self.disagreement is not None or self.audit.contradiction:
            return INTERNAL
        if self.audit.document is None:
            return MALFORMED
        if not all(verdict.verdict == "verified" for verdict in self.audit.verdicts):
            return NOT_VERIFIED
        return OK if self.against is None or self.against.same else NOT_VERIFIED


def worst(codes: Iterable[int]) -> int:
    """The exit code of several: 70 before 4 before 1 before 0."""
    present = set(codes)
    return next(code for code in _SEVERITY if code in present)


def certificate_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and the certificates in the folders named. Raises ``UserError``."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob(f"*{SUFFIX}"))
            if not inside:
                raise UserError(f"{path} holds no file *{SUFFIX}; accepted: certificates")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise UserError(f"{path} does not exist; accepted: certificates, or folders of them")
    return files


def audit_one(file: Path, both: bool, against: Selection | None) -> Outcome:
    """Check one file exactly; ``both`` asks the second checker too.

    A signal during the check ends it. Raises ``UserError`` if the file cannot be read.
    """
    second = _start_minicheck(file) if both else None
    try:
        with unbroken():
            audit = audit_file(file)
        disagreement = None if second is None else _disagreement(audit, *second.communicate())
    finally:
        if second is not None:
            second.kill()
            second.wait()
    compared = None
    if against is not None and audit.document is not None:
        compared = compare(audit.document.target, against)
    return Outcome(file, audit, disagreement, compared)


def _start_minicheck(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(MINICHECK), "--json", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _disagreement(audit: Audit, output: str, complaints: str) -> str | None:
    try:
        second = [_opinion(entry) for entry in json.loads(output)]
    except (ValueError, KeyError, TypeError):
        return f"minicheck failed: {complaints.strip() or 'no output'}"
    if audit.document is None:
        code, _ = audit.malformed or ("", "")
        first: list[Opinion] = [(None, None, None, "malformed", code)]
    else:
        first = [(v.side, v.rank, v.kind, v.verdict, v.code) for v in audit.verdicts]
    if first == second:
        return None
    different = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    if not different:
        return f"this checker has {len(first)} verdicts, minicheck {len(second)}"
    a, b = different[0]
    return f"this checker says {_said(a)}, minicheck {_said(b)}"


def _opinion(entry: dict[str, Any]) -> Opinion:
    return entry["side"], entry["rank"], entry["kind"], entry["verdict"], entry["code"]


def _said(opinion: Opinion) -> str:
    return " ".join(str(part) for part in opinion if part is not None)


def compare(declared: DeclaredTarget, mine: Selection) -> Comparison:
    """Is the declared matrix the user's? Numbers are compared exactly.

    A capture holds the declared object itself. Another file that does not is taken for the
    attention matrix, and its distance is enclosed: the exact distance to the working matrix, plus
    and minus alpha (MATH 2.1).
    """
    captured = mine.captured()
    if captured is not None:
        return _compare_capture(declared, captured, mine.where)
    if declared.object == "qk" and mine.key is None and {"Q", "K"} <= set(read_tensors(mine.path)):
        difference = _qk_difference(declared, *load_qk(mine.path))
        if difference is not None:
            return Comparison(False, f"{mine.path} is not the certified Q and K: {difference}")
        scale = f"{exact(declared.scale)} / sqrt({declared.over_sqrt})"
        return Comparison(True, f"Q and K of {mine.path} are the certified ones, scale {scale}")
    theirs = load_matrix(mine.path, mine.key, mine.layer, mine.head, masks=declared.is_softmax)
    values, where, role = theirs.values, theirs.where, _ROLES[declared.object]
    if values.shape != declared.shape:
        return Comparison(
            False, f"{where} is {_by(values.shape)}, the certified matrix {_by(declared.shape)}"
        )
    if declared.object == "qk":
        return Comparison(False, f"{where} is not the certified {role}; {_apart(declared, values)}")
    difference = _matrix_difference(declared, values)
    if difference is None:
        return Comparison(True, f"{where} is the certified {role}, exactly")
    distance = f"; {_apart(declared, values)}" if np.all(np.isfinite(values)) else ""
    return Comparison(False, f"{where} is not the certified {role}: {difference}{distance}")


_ROLES = {"matrix": "matrix", "logits": "logits", "qk": "Q, K and scale"}


def _compare_capture(declared: DeclaredTarget, head: CapturedHead, where: str) -> Comparison:
    role = _ROLES[declared.object]
    if declared.object == "qk":
        query, key = head.require_qk("qk")
        difference = _qk_difference(declared, query, key, head.bias)
        if difference is None and not _same_scale(declared, head.scale):
            difference = (
                f"scale is {head.scale}, certified is {declared.scale} / sqrt({declared.over_sqrt})"
            )
    else:
        mine = head.logits if declared.object == "logits" else head.weights
        difference = _matrix_difference(declared, mine)
    if difference is None:
        return Comparison(True, f"{where} is the certified {role}, exactly")
    return Comparison(False, f"{where} is not the certified {role}: {difference}")


def _same_scale(declared: DeclaredTarget, scale: Fraction) -> bool:
    return scale >= 0 and declared.scale**2 == scale**2 * declared.over_sqrt


def _qk_difference(
    declared: DeclaredTarget,
    Q: NDArray[np.float64],
    K: NDArray[np.float64],
    bias: NDArray[np.float64] | None,
) -> str | None:
    """What differs first, in words; None for the certified numbers themselves."""
    mine, theirs = {"Q": Q, "K": K}, declared.tensors
    if (bias is None) != ("bias" not in theirs):
        return f"bias is {'absent' if bias is None else 'present'}, unlike in the certificate"
    if bias is not None:
        mine["bias"] = bias
    found = (_first_difference(name, values, theirs[name]) for name, values in mine.items())
    return next((difference for difference in found if difference is not None), None)


def _matrix_difference(declared: DeclaredTarget, values: NDArray[np.float64]) -> str | None:
    """As ``_qk_difference``, for the objects logits and matrix."""
    name = "H" if declared.object == "logits" else "A"
    stored = declared.tensors.get(name)
    if stored is not None:
        return _first_difference(name, values, stored)
    return _first_difference(
        name, _fractions(values), _fractions(declared.tensors["N"]) / declared.den
    )


def _first_difference(name: str, mine: NDArray[Any], theirs: NDArray[Any]) -> str | None:
    if mine.shape != theirs.shape:
        return f"{name} is {_by(mine.shape)}, the certified one {_by(theirs.shape)}"
    places = np.argwhere(mine != theirs)
    if not len(places):
        return None
    i, j = (int(index) for index in places[0])
    return (
        f"{name}[{i}, {j}] is {mine[i, j]}, certified is {theirs[i, j]} "
        f"({len(places)} of {mine.size} entries differ)"
    )


def _fractions(values: NDArray[Any]) -> NDArray[Any]:
    exactly = [Fraction(value) for value in values.ravel().tolist()]
    return np.array(exactly, dtype=object).reshape(values.shape)


def _apart(declared: DeclaredTarget, values: NDArray[np.float64]) -> str:
    distance, alpha = _distance_to_working_matrix(declared, values), declared.alpha
    return (
        f"as an attention matrix it is {below(max(distance - alpha, Fraction(0)))} to "
        f"{above(distance + alpha)} away in the certificate's norm"
    )


def _distance_to_working_matrix(declared: DeclaredTarget, values: NDArray[np.float64]) -> Fraction:
    mine = DeclaredTarget("matrix", declared.shape, declared.den, Fraction(0), {"A": values})
    return mine.distance_bound(declared.working_matrix())


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
