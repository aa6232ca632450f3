"""The verb ``profile``: what softmax sees of one head, certified, as a table, JSON or a plot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from .. import display
from ..captures import is_capture
from ..certificate import SUFFIX
from ..certifying import assemble
from ..intake.document import Claim
from ..options import (
    OBJECT_HELP,
    Epsilon,
    Head,
    Json,
    Key,
    Layer,
    MatrixFile,
    OverSqrt,
    Prefix,
    Scale,
)
from ..scalars import parse_epsilon
from ..selftest import self_test
from ..target_files import Selection, check_output, load_target
from ..targets import Target
from .exact import Enclosure
from .explicit import ExplicitBound, explicit_bound, explicit_witness
from .native import NativeProfile, native_profile
from .plot import draw
from .profile import Profile, ProfilePoint, profile
from .visible import visible

_LEGEND = """\
explicit: a proven bound on r_eps. tau: proven, what C - T spends of the budget
eps. q, kappa: proven enclosures, not bounds on r_eps. shape score*: diagnostic,
not a bound, as its constant C_r is unknown (MATH 3.7)."""
_NEGLIGIBLE = Fraction(1, 10**6)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("profile")(profile_command)


@dataclass(frozen=True)
class Report:
    """All that the verb shows about one target at one tolerance."""

    target: Target
    where: str
    eps: Fraction
    profile: Profile
    points: tuple[ProfilePoint, ...]
    explicit: tuple[ExplicitBound | None, ...]
    witness: Claim | None
    native: NativeProfile | None


def profile_command(
    file: MatrixFile,
    eps: Epsilon,
    object: Annotated[
        str | None,
        typer.Option(help=f"{OBJECT_HELP} [default: matrix; qk of a capture]"),
    ] = None,
    key: Key = None,
    layer: Layer = None,
    head: Head = None,
    prefix: Prefix = None,
    scale: Scale = "1",
    over_sqrt: OverSqrt = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Draw tau, kappa and the shape score: .svg, .png or .pdf.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Write the explicit upper certificate, *{SUFFIX}."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Certify rank, residual q, tau and size kappa of what softmax sees, per retained rank."""
    self_test()
    epsilon = parse_epsilon(eps)
    check_output(output)
    if object is None:
        object = "qk" if is_capture(file) else "matrix"
    mine = Selection(file, key, layer, head, prefix)
    target, where = load_target(mine, object, epsilon, scale, over_sqrt)
    report = examine(target, where, epsilon)
    if output is not None:
        proven = [] if report.witness is None else [report.witness]
        assemble(target, epsilon, proven).save(output)
        if not proven:
            display.note(display.ONLY_TRIVIAL)
    if plot is not None:
        draw(report.points, epsilon, _title(report), plot)
    if as_json:
        display.say_json(_json(report))
        return
    display.say(_title(report))
    display.stdout().print(_table(report))
    display.say(_LEGEND)
    for line in _conclusions(report):
        display.say(line)


def examine(target: Target, where: str, eps: Fraction) -> Report:
    """The whole profile, with a progress bar.

    Raises ``UserError`` for a target without a common interaction (masks, zeros).
    """
    with display.progress() as bar:
        step = bar.add_task("visible rank", total=None)
        found = profile(visible(target))
        bar.update(step, description="profile", total=found.rank.upper + 1)
        points = []
        for point in _informative(found):
            point.kappa  # noqa: B018 (computed here, under the progress bar)
            points.append(point)
            bar.update(step, completed=point.rank + 1)
        bar.update(step, description="explicit bounds", total=None)
        bounds = tuple(explicit_bound(point, eps) for point in points)
        witness = explicit_witness(points, target, eps)
        bar.update(step, description="native quantities")
        native = _native(target)
    return Report(target, where, eps, found, tuple(points), bounds, witness, native)


def _informative(found: Profile) -> Iterator[ProfilePoint]:
    """The points from r = 0 on until tau is negligible, then the last one."""
    last = found.rank.upper
    for point in found.points():
        yield point
        if point.tau.upper <= _NEGLIGIBLE:
            break
    if point.rank < last:
        yield found.point(last)


def _native(target: Target) -> NativeProfile | None:
    """The native quantities of a target that is declared by factors alone."""
    declared = target.declared
    if target.object != "qk" or "bias" in declared.tensors:
        return None
    Q, K = declared.tensors["Q"], declared.tensors["K"]
    return native_profile(Q, K, declared.scale, declared.over_sqrt)


def _title(report: Report) -> str:
    m, n = report.target.shape
    rank = report.profile.rank
    return (
        f"visible rank {rank}, {display.OBJECTS[report.target.object]} {m} x {n}, "
        f"eps = {display.exact(report.eps)}, {report.where}"
    )


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("r", "q(C - T)", "tau", "kappa", "shape score*", "explicit"):
        table.add_column(name, justify="right", no_wrap=True)
    for point, bound in zip(report.points, report.explicit, strict=True):
        score = point.shape_score(report.eps)
        table.add_row(
            str(point.rank),
            _outward(point.q),
            _outward(point.tau),
            _outward(point.kappa),
            "-" if score is None else f"{score.upper:.3g}",
            "-" if bound is None else f"r_eps <= {bound.bound}",
        )
    return table


def _outward(value: Enclosure) -> str:
    """One decimal where both ends agree to five digits, else both ends."""
    low, high = display.below(value.lower), display.above(value.upper)
    near = f"{float(value.upper):.5g}"
    tight = value.upper - value.lower <= abs(value.upper) * Fraction(1, 10**5)
    return near if tight else f"{low} .. {high}"


def _conclusions(report: Report) -> Iterator[str]:
    rank = report.profile.rank
    yield f"rank C >= {rank.lower}: {rank.lower_proof}; rank C <= {rank.upper}: {rank.upper_proof}"
    skipped = report.profile.rank.upper + 1 - len(report.points)
    if skipped:
        yield f"{display.counted(skipped, 'point')} with tau <= 1e-6 left out"
    if report.witness is None:
        yield "no explicit factor witness below min(m, n)"
    else:
        yield f"r_eps <= {report.witness.rank}: explicit factor witness, verified by the kernel"
    if report.native is not None:
        low, high = report.native.dimension(report.eps / 3)
        dimension = str(low) if low == high else f"{low}..{high}"
        yield (
            f"native, diagnostic (these Q and K only): Gamma {_outward(report.native.gamma)}, "
            f"r_int^SVD(eps/3) = {dimension}"
        )


def _json(report: Report) -> dict[str, Any]:
    rank, native = report.profile.rank, report.native
    return {
        "file": report.where,
        "object": report.target.object,
        "shape": list(report.target.shape),
        "epsilon": display.ratio(report.eps),
        "visible_rank": {
            "lower": rank.lower,
            "upper": rank.upper,
            "lower_proof": rank.lower_proof,
            "upper_proof": rank.upper_proof,
        },
        "points": [
            _point_json(point, bound, report.eps)
            for point, bound in zip(report.points, report.explicit, strict=True)
        ],
        "explicit_witness": None if report.witness is None else report.witness.rank,
        "native": None if native is None else _native_json(native, report.eps),
    }


def _point_json(point: ProfilePoint, bound: ExplicitBound | None, eps: Fraction) -> dict[str, Any]:
    """Enclosures as two floats, rounded outward."""
    score = point.shape_score(eps)
    return {
        "r": point.rank,
        "q": point.q.floats(),
        "tau": point.tau.floats(),
        "kappa": point.kappa.floats(),
        "shape_score": None
        if score is None
        else {"lower": score.lower, "upper": score.upper, "is_a_bound": False},
        "explicit_bound": None if bound is None else bound.bound,
    }


def _native_json(native: NativeProfile, eps: Fraction) -> dict[str, Any]:
    return {
        "gamma": native.gamma.floats(),
        "dimension_at_third_of_epsilon": native.dimension(eps / 3),
        "points": [
            {
                "r": point.rank,
                "width": point.width.floats(),
                "tau": point.tau.floats(),
                "spectral": point.spectral.floats(),
                "direct": point.direct.floats(),
            }
            for point in native.points
        ],
    }
