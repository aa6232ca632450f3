"""What the trusted base must do, as probes that also run against damaged copies of it.

A probe is a function of a loaded copy (see ``load``); it raises AssertionError, or anything else,
when the copy misbehaves. Probes use ``_require`` so that they also bite under ``python -O``.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import count, product
from math import prod
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import vector_cases
from flint import arb

from softrank_exact import minicheck

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
        contradictions_are_seen,
        scales_are_positive,
        types_decide,
        flushed_subnormals_are_refused,
        kernel_checks_by_itself,
        undecided_softmax,
        large_file,
    ):
        yield probe.__name__, probe
    for case in vector_cases.all_cases():
        yield case.name, _vector_probe(case)
    for probe in (
        ranges_are_tight,
        limits_are_reached,
        full_digits_are_exact,
        limbs_equal_integers,
    ):
        yield probe.__name__, probe


def _require(condition: object, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def flushed_subnormals_are_refused(copy: Copy) -> None:
    """Where 2^-1074 reads as 0, a file about it would be about another matrix."""
    copy.target.ulp = lambda value: 0
    data = vector_cases.subnormal().bytes()
    try:
        _refused(ArithmeticError, lambda: copy.audit.audit_bytes(data), "flush to zero")
    finally:
        copy.target.ulp = math.ulp


def types_decide(copy: Copy) -> None:
    """Numpy scalars wrap and floats round: only Python integers, fractions and int64 arrays."""
    check, eye = copy.check, np.eye(2, dtype=np.int64)
    N, zero, one = copy.limbs.identity(2), Fraction(0), Fraction(1)
    for arguments in ((N, np.int64(1), zero, zero), (N, 1, 0.5, zero), (N, 1, one, 0)):
        _refused(TypeError, lambda a=arguments: check.Question(*a), f"{arguments[1:]}")
    question = check.Question(N, 1, zero, zero)
    for rank, witness in (
        (np.int64(2), check.Factor(eye, eye, 1)),
        (2, check.Factor(eye, eye, np.int64(1))),
        (2, check.Factor(np.array([[1.0, 0.0], [0.0, 1.0]], dtype=object), eye, 1)),
        (2, check.Factor(eye, eye.astype(np.int32), 1)),
        (2, check.Factor(eye.tolist(), eye, 1)),
    ):
        _refused(
            check.InvalidWitness,
            lambda r=rank, w=witness: check.check(question, r, w),
            f"rank {rank!r}, {witness}",
        )


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
        sides = {
            side: [v.rank for v in audit.verdicts if (v.verdict, v.side) == ("verified", side)]
            for side in ("lower", "upper")
        }
        bracket = (max(sides["lower"], default=None), min(sides["upper"], default=None))
        _require((audit.lower, audit.upper) == bracket, f"not the bracket {bracket}")
        _require(audit.contradiction is False, "a contradiction")
        for verdict, (code, *numbers) in zip(audit.verdicts, _numbers_of(case.data), strict=False):
            finding = verdict.finding
            same = [finding.needed, finding.found, finding.margin] == numbers
            _require(code == "alpha" or same, f"other numbers than {numbers}")

    return probe


@cache
def _numbers_of(data: bytes) -> list[tuple[Any, ...]]:
    """What the second checker finds."""
    return [(v.code, v.needed, v.found, v.margin) for v in minicheck.check_bytes(data)]


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
    most, digit = 4096, 1 << 20
    Limbs = copy.limbs.Limbs
    rows = Limbs.of(np.full((1, most), digit, dtype=np.int64))
    _require((rows @ rows.T).integers() == [[most << 40]], "a full product")
    _require(rows.sums() == [most << 20], "a full sum")
    long = Limbs([np.zeros((1, most + 1))], 1)
    _refused(OverflowError, lambda: long @ long.T, "an inner dimension of 4097")
    _refused(OverflowError, long.sums, "a sum of 4097")


def large_digits_are_refused(copy: Copy) -> None:
    zero, most = [np.zeros(1)], (1 << 53) - (1 << 34)
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


def limbs_equal_integers(copy: Copy) -> None:
    """Every operation on integers of 1 to 300 bits, extremes included, against Python's own."""
    Limbs, rng = copy.limbs.Limbs, random.Random(7)

    def integers(bits: int, *shape: int) -> Any:
        top = 1 << bits
        array = np.empty(prod(shape), dtype=object)
        array[:] = [
            rng.choice((top, -top, top - 1, rng.randint(-top, top))) for _ in range(array.size)
        ]
        return array.reshape(shape)

    for bits, other in product((1, 21, 42, 53, 54, 62, 300), repeat=2):
        a, b, c = integers(bits, 2, 3), integers(other, 3, 2), integers(other, 2, 3)
        x, y, z = Limbs.of(a), Limbs.of(b), Limbs.of(c)
        _exactly(x @ y, a @ b)
        _exactly((x @ y).T @ (x @ y), (a @ b).T @ (a @ b))
        _exactly((x @ y) * z[:, :1], (a @ b) * c[:, :1])
        _exactly(x * z, a * c)
        _exactly(x + z, a + c)
        _exactly(x + z - x * z, a + c - a * c)
        _exactly(x - z, a - c)
        _exactly((x - z).absolute(), abs(a - c))
        for factor in (0, 1, 2, 3, -1, (1 << 63) + 1, int(c[0, 0])):
            _exactly(x.times(factor), a * factor)
        _require((x - z).sums() == (a - c).sum(axis=1).tolist(), "sums")
        _require((x * z).absolute().sums() == abs(a * c).sum(axis=1).tolist(), "absolute sums")


def full_digits_are_exact(copy: Copy) -> None:
    """All digits extreme, 4096 of them in a row, many of one weight: the worst of every bound."""
    Limbs = copy.limbs.Limbs
    digits, lengths = (1 << 20, -(1 << 20), (1 << 20) - 1), ((1, 1), (2, 6), (9, 9))
    for size, digit, (length, other) in product((4096, 1024), digits, lengths):
        values = [sum(digit << (21 * t) for t in range(many)) for many in (length, other)]
        row, column = (Limbs.of(np.array([[value] * size], dtype=object)) for value in values)
        _exactly(row @ column.T, np.array([[size * values[0] * values[1]]], dtype=object))
        _require(row.sums() == [size * values[0]], "a sum of full digits")
    largest, one = (1 << 53) - (1 << 34), Limbs.of(np.array([[1]]))
    for value in (1 << 51, largest, largest + 1, 1 << 53, (1 << 62) - 1):
        row = Limbs.of(np.full((1, 4096), value))
        _require(row.sums() == [4096 * value], "a sum of large digits")
        for signed in (value, -value):
            limbs, exact = Limbs.of(np.array([[signed]])), np.array([[signed]], dtype=object)
            _exactly(limbs + limbs, 2 * exact)
            _exactly(limbs + one, exact + 1)
            _exactly(one - limbs, 1 - exact)
            _exactly((limbs - limbs) @ (limbs - limbs).absolute(), 0 * exact)
            _exactly(limbs * limbs, exact * exact)
    zero, nothing = Limbs.of(np.zeros((1, 1), dtype=np.int64)), np.zeros((1, 1), dtype=object)
    _exactly(zero @ one * zero - zero, nothing)
    _require(Limbs.of(np.array([1, 2])).sums() == [3], "a vector's sum")
    stack = np.arange(24).reshape(2, 3, 4).astype(object) << 60
    a, b = Limbs.of(stack), Limbs.of(stack[0].T)
    _exactly(a @ b, np.array([x @ stack[0].T for x in stack], dtype=object))
    _exactly(a.T, np.swapaxes(stack, -1, -2))
    _require(a.sums() == stack.sum(axis=-1).tolist(), "sums of a stack")
    most = Limbs([np.full(2, float(largest)), np.full(2, float(largest))], largest)
    _exactly(most, np.array([largest + (largest << 21)] * 2, dtype=object))


def _exactly(limbs: Any, expected: Any) -> None:
    """Equal entries; digits are integers within the bound, before and after carrying."""
    for form in (limbs, limbs.carried(1), limbs.carried(1 << 30)):
        _require(form.integers() == expected.tolist(), "not the integers")
        for digit in form.digits:
            _require(np.abs(digit).max(initial=0) <= form.bound, "a digit beyond its bound")
            _require(np.all(digit == np.rint(digit)), "a digit that is no integer")


def ranges_are_tight(copy: Copy) -> None:
    """A proof holds up to the end of its range and not beyond; fantope's by its own formula."""
    step = Fraction(1, 1 << 40)
    for case in vector_cases.judged_cases():
        document = copy.document.read_document(case.data)
        for index, verdict in enumerate(copy.audit.judge(document)):
            finding = verdict.finding
            if verdict.code == "alpha" or verdict.kind in ("trivial", "fantope"):
                continue
            if verdict.verdict != "verified" and verdict.side == "lower":
                continue
            start, end = finding.valid_from, finding.valid_to
            tolerances = (start, start - step) if end is None else (end - step, end + step)
            for epsilon, word in zip(tolerances, ("verified", "margin"), strict=True):
                if epsilon < 0:
                    continue
                again = copy.audit.judge(replace(document, epsilon=epsilon))[index]
                _require(word in (again.verdict, again.code), f"{case.name} at {epsilon}")
    _require(_range_of(copy, vector_cases.bracket()) == (0, Fraction(3, 4)), "bernstein")
    weighted = vector_cases.oblong_fantope("1/4")
    weighted.tensors["claim0.w"] = ("I32", [2, 3], [1, 0, 2, 0, 1, 0])
    weighted.tensors["claim0.v"] = ("I32", [2, 4], [0] * 8)
    for draft, hi, paid, unit in (
        (vector_cases.fantope_column(), Fraction(1, 4), Fraction(244), 4096),
        (
            vector_cases.oblong_fantope("1/4"),
            Fraction(17, 64),
            Fraction(291 - 4 * 55),
            256 * 3 * 4,
        ),
        (weighted, Fraction(17, 64), Fraction(291 - 4 * 55), 256 * 3 * 4),
    ):
        start, end = _range_of(copy, draft)
        root, square = end + hi - Fraction(1, 4), hi**2 + paid / unit
        tight = root**2 <= square < (root + Fraction(1, 1 << 63)) ** 2
        _require(start == 0 and tight, "a range of fantope")
    unweighted = vector_cases.fantope_column()
    unweighted.tensors["claim0.T"] = ("I32", [4, 1], [2, 1, 0, 0])
    unweighted.tensors["claim0.w"] = ("I32", [2, 4], [0] * 8)
    unweighted.tensors["claim0.v"] = ("I32", [2, 4], [0, 1, 0, 0, 1, 0, 0, 0])
    unweighted.tensors["claim0.Q"] = ("I32", [2, 1, 1], [1, 1])
    _require(_range_of(copy, unweighted) == (0, 0), "no proof, no range")
    none = _range_of(
        copy, vector_cases.fantope_lower(vector_cases.matrix_target(vector_cases.ORACLE, "3/4"), 1)
    )
    _require(none == (0, 0), "a range of nothing")
    for epsilon, ranges in (
        ("1/4", [(0, 1), (0, None)]),
        ("1", [(0, None), (1, None)]),
    ):
        draft = vector_cases.uniform_logits(epsilon)
        draft = vector_cases.trivial(draft, int(epsilon != "1"), 2 * int(epsilon != "1"))
        found = copy.audit.audit_bytes(draft.bytes()).verdicts
        same = [(v.finding.valid_from, v.finding.valid_to) for v in found] == ranges
        _require(same, f"ranges of trivial claims at {epsilon}")


def _range_of(copy: Copy, draft: vector_cases.Draft) -> tuple[Any, Any]:
    finding = copy.audit.audit_bytes(draft.bytes()).verdicts[0].finding
    return finding.valid_from, finding.valid_to


def limits_are_reached(copy: Copy) -> None:
    """The longest axis, the longest header, the most claims and digits are still accepted."""
    draft = vector_cases.matrix_target([[Fraction(1, 4096)] * 4096], "1/2")
    tensors = {"d": ([1], [1]), "T": ([4096, 1], [1] * 4096), "Q": ([1, 1], [1])}
    for _ in range(64):
        draft = vector_cases.claim(draft, "lower", "trivial", 0)
    draft.meta["claims"].pop()
    draft = vector_cases.claim(draft, "lower", "hilbert-schmidt", 1, {"q_scale": 1}, tensors)
    draft.meta["epsilon"] = "0x1/0x" + "f" * 320
    length = int.from_bytes(draft.bytes()[:8], "little")
    draft.meta["provenance"]["made by"] += "x" * ((1 << 20) - length)
    data = draft.bytes()
    _require(int.from_bytes(data[:8], "little") == 1 << 20, "the header is not the longest")
    audit = copy.audit.audit_bytes(data)
    _require([v.code for v in audit.verdicts] == ["ok"] * 64, f"{audit.malformed}")


def questions_are_sane(copy: Copy) -> None:
    N = copy.limbs.identity(2)
    for den, epsilon, alpha in ((0, 0, 0), (-1, 0, 0), (1, -1, 0), (1, 1, -1)):
        make = copy.check.Question
        arguments = (N, den, Fraction(epsilon), Fraction(alpha))
        _refused(ValueError, lambda a=arguments, make=make: make(*a), f"{den, epsilon, alpha}")


def contradictions_are_seen(copy: Copy) -> None:
    """Two proofs of opposite claims stay what they are, and are reported."""
    kinds = copy.audit
    finding = copy.check.Finding("ok", Fraction(0), Fraction(0), Fraction(0))
    for lower, upper, word in ((2, 1, True), (2, 2, False), (1, 2, False), (None, 1, False)):
        verdicts = tuple(
            kinds.Verdict(side, rank, "trivial", "verified", finding)
            for side, rank in (("lower", lower), ("upper", upper))
            if rank is not None
        )
        audit = kinds.Audit(None, verdicts, None)
        _require(audit.contradiction is word, f"{lower} <= r <= {upper}")
        kept = all(kinds._refuted(verdict, audit) == verdict for verdict in verdicts)
        _require(kept, "a proof was refuted")
    _require(kinds.Audit(None, (), None).contradiction is False, "no verdicts")
    alone = kinds.Audit(None, (kinds.Verdict("lower", 1, "trivial", "verified", finding),), None)
    _require(alone.contradiction is False, "a lower bound alone")


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
    bound = copy.target._softmax_distance(wide, [-1, 2], 4)
    _require(bound == Fraction(7, 4), f"{bound} instead of 1 + 3/4")
    # A logit in [-1/4, 1/4] beside 0: the distance to (1/2, 1/2) may be tanh(1/8) > 0.124.
    bound = copy.target._softmax_distance([arb(0, 0.25), arb(0)], [1, 1], 2)
    _require(bound > Fraction(31, 250), f"{bound} is below what is possible")


def large_file(copy: Copy) -> None:
    """Over 2^30 bytes is refused unread (a stand-in for the bytes, to spare memory)."""

    class Large(bytes):
        def __len__(self) -> int:
            return (1 << 30) + 1

    audit = copy.audit.audit_bytes(Large(vector_cases.bracket().bytes()))
    _require(audit.malformed and audit.malformed[0] == "size", "over 2^30 bytes")
