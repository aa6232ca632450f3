"""What the trusted base must do, as probes that also run against damaged copies of it.

A probe is a function of a loaded copy (see ``load``); it raises AssertionError, or anything else,
when the copy misbehaves. Probes use ``_require`` so that they also bite under ``python -O``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import vector_cases
from flint import arb

PACKAGE = Path(__file__).resolve().parent.parent / "softrank_exact"
MODULES = (
    "kernel.limbs",
    "kernel.check",
    "intake.malformed",
    "intake.container",
    "intake.target",
    "intake.document",
    "intake.audit",
)
_numbers = count()


@dataclass(frozen=True)
class Copy:
    """One loaded copy of the trusted base."""

    limbs: Any
    check: Any
    container: Any
    target: Any
    document: Any
    audit: Any


def source_path(module: str) -> Path:
    return PACKAGE / (module.replace(".", "/") + ".py")


def load(codes: Mapping[str, CodeType]) -> Copy:
    """The trusted base from compiled modules, under a fresh package name."""
    root = f"trusted_copy_{next(_numbers)}"
    loaded = {}
    for name in (root, f"{root}.kernel", f"{root}.intake"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    try:
        for module in MODULES:
            name = f"{root}.{module}"
            loaded[module] = ModuleType(name)
            loaded[module].__package__ = name.rpartition(".")[0]
            loaded[module].__spec__ = importlib.util.spec_from_loader(name, None)
            sys.modules[name] = loaded[module]
            exec(codes[module], loaded[module].__dict__)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == root]:
            if name not in {f"{root}.{module}" for module in loaded}:
                del sys.modules[name]
    return Copy(*(loaded[name] for name in MODULES if name != "intake.malformed"))


def failures(copy: Copy) -> Iterator[str]:
    """The names of the probes that this copy fails."""
    for name, probe in probes():
        try:
            probe(copy)
        except Exception as error:  # noqa: BLE001 - any misbehaviour is a failed probe
            yield f"{name}: {error}"


def probes() -> Iterator[tuple[str, Callable[[Copy], None]]]:
    """All probes, the quickest to fail first."""
    for probe in (
        overflow_is_refused,
        sums_are_exact,
        types_are_refused,
        long_axes_are_refused,
        large_digits_are_refused,
        questions_are_sane,
        scales_are_positive,
        kernel_checks_by_itself,
        undecided_softmax,
        large_file,
    ):
        yield probe.__name__, probe
    for case in vector_cases.all_cases():
        yield case.name, _vector_probe(case)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _refused(error: type[BaseException], action: Callable[[], object], message: str) -> None:
    try:
        action()
    except error:
        return
    raise AssertionError(f"{message} was accepted")


def _vector_probe(case: vector_cases.Case) -> Callable[[Copy], None]:
    def probe(copy: Copy) -> None:
        audit = copy.audit.audit_bytes(case.data)
        if audit.malformed:
            found = [["malformed", audit.malformed[0]]]
        else:
            found = [[verdict.verdict, verdict.code] for verdict in audit.verdicts]
        _require(found == case.verdicts, f"{found} instead of {case.verdicts}")

    return probe


def overflow_is_refused(copy: Copy) -> None:
    for value in ((1 << 62) + 1, -(1 << 62) - 1, -(1 << 63)):
        array = np.array([value], dtype=np.int64)
        _refused(OverflowError, lambda array=array: copy.limbs.Limbs.of(array), f"{value}")
    for value in (1 << 62, -(1 << 62)):
        limbs = copy.limbs.Limbs.of(np.array([value], dtype=np.int64))
        _require(limbs.integers() == [value], f"{value} is not kept")


def types_are_refused(copy: Copy) -> None:
    for dtype in (np.int32, np.uint64, np.float64, np.bool_):
        array = np.zeros(2, dtype=dtype)
        _refused(TypeError, lambda array=array: copy.limbs.Limbs.of(array), str(dtype))


def long_axes_are_refused(copy: Copy) -> None:
    most, digit = copy.limbs.MAX_INNER, 1 << 20
    Limbs = copy.limbs.Limbs
    rows = Limbs.of(np.full((1, most), digit, dtype=np.int64))
    _require((rows @ rows.T).integers() == [[most << 40]], "a full product")
    _require(rows.sums() == [most << 20], "a full sum")
    long = Limbs([np.zeros((1, most + 1))], 1)
    _refused(OverflowError, lambda: long @ long.T, "an inner dimension of 4097")
    _refused(OverflowError, long.sums, "a sum of 4097")


def large_digits_are_refused(copy: Copy) -> None:
    zero, most = [np.zeros(1)], copy.limbs.LARGEST
    _require(copy.limbs.Limbs(zero, most).integers() == [0], "the largest bound")
    _refused(OverflowError, lambda: copy.limbs.Limbs(zero, most + 1), "a larger bound")


def sums_are_exact(copy: Copy) -> None:
    rng = np.random.default_rng(5)
    Limbs = copy.limbs.Limbs
    a = rng.integers(-(1 << 62), 1 << 62, (4, 3)).astype(object) ** 3
    b = rng.integers(-(1 << 62), 1 << 62, (3, 5)).astype(object)
    x, y = Limbs.of(a), Limbs.of(b)
    _require((x @ y).integers() == (a @ b).tolist(), "product")
    _require((x * x).integers() == (a * a).tolist(), "entrywise product")
    _require((x - y[:, :1].T).integers() == (a - b[:, :1].T).tolist(), "difference")
    _require((x + y[:, :1].T).integers() == (a + b[:, :1].T).tolist(), "sum")
    _require(x.absolute().sums() == np.abs(a).sum(axis=1).tolist(), "absolute sums")
    _require(x.times(-(10**40)).integers() == (a * -(10**40)).tolist(), "scalar product")


def questions_are_sane(copy: Copy) -> None:
    N = copy.limbs.identity(2)
    for den, epsilon, alpha in ((0, 0, 0), (-1, 0, 0), (1, -1, 0), (1, 1, -1)):
        make = copy.check.Question
        arguments = (N, den, Fraction(epsilon), Fraction(alpha))
        _refused(ValueError, lambda a=arguments, make=make: make(*a), f"{den, epsilon, alpha}")


def scales_are_positive(copy: Copy) -> None:
    """-I with scale -1 would be I."""
    question = copy.check.Question(copy.limbs.identity(2), 1, Fraction(0), Fraction(0))
    eye = np.eye(2, dtype=np.int64)
    for scale in (0, -1):
        witness = copy.check.Factor(-eye, eye, scale)
        _refused(
            copy.check.InvalidWitness,
            lambda w=witness: copy.check.check(question, 2, w),
            f"scale {scale}",
        )


def kernel_checks_by_itself(copy: Copy) -> None:
    """The kernel is sound without intake: shapes and values are its own business."""
    question = copy.check.Question(copy.limbs.identity(2), 1, Fraction(1, 4), Fraction(0))
    one = np.ones((1, 1), dtype=np.int64)
    broadcast = copy.check.Factor(one, one, 1)
    eye = np.eye(2, dtype=np.int64)
    empty = np.zeros((2, 0), dtype=np.int64)
    repeated = copy.check.Bernstein(np.array([0, 0]), eye, empty, empty.T, 1, 1)
    for rank, witness in ((1, broadcast), (2, repeated)):
        _refused(
            copy.check.InvalidWitness,
            lambda r=rank, w=witness: copy.check.check(question, r, w),
            type(witness).__name__,
        )
    found = copy.check.check(question, 2, copy.check.Factor(eye, eye, 1))
    _require(found.code == "ok" and found.found == 0, "the identity as itself")


def undecided_softmax(copy: Copy) -> None:
    """Enclosures that say nothing give the bound that always holds."""
    wide = [arb(0, 1e300), arb(0, 1e300)]
    bound = copy.target._softmax_distance(wide, [1, 2], 4)
    _require(bound == Fraction(7, 4), f"{bound} instead of 1 + 3/4")


def large_file(copy: Copy) -> None:
    """Over 2^30 bytes is refused unread (a stand-in for the bytes, to spare memory)."""

    class Large(bytes):
        def __len__(self) -> int:
            return (1 << 30) + 1

    audit = copy.audit.audit_bytes(Large(vector_cases.bracket().bytes()))
    _require(audit.malformed and audit.malformed[0] == "size", "over 2^30 bytes")
