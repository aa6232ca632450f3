"""The plot of a profile: tau, kappa and the shape score against the retained rank.

matplotlib (the extra ``report``) is imported only here, and only when a plot is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..display import exact
from ..errors import UserError
from .profile import ProfilePoint

_SUFFIXES = (".svg", ".png", ".pdf")
_TITLE: dict[str, Any] = {"fontsize": 9, "loc": "left"}
_BLUE, _ORANGE, _GREY = "#0b5394", "#b45f06", "#777777"


def draw(points: Sequence[ProfilePoint], eps: Fraction, title: str, path: Path) -> None:
    """Draw the profile to a file; its suffix names the format. Points after a gap in r are left
    out.

    Raises ``UserError`` if matplotlib is missing, or for another suffix or an unwritable path.
    """
    if path.suffix not in _SUFFIXES:
        raise UserError(f"--plot is {path}; accepted: a file name in {', '.join(_SUFFIXES)}")
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise UserError(
            "--plot needs matplotlib: pip install '.[report]' in a clone of softrank-exact; "
            "accepted: no --plot"
        ) from None
    shown = [point for r, point in enumerate(points) if point.rank == r]
    figure = Figure(figsize=(7.2, 7.2), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    _draw_tau(top, shown, eps)
    _draw_kappa(middle, shown)
    _draw_score(bottom, shown, eps)
    enough = next((point.rank for point in shown if point.tau.upper < eps), None)
    for axes in (top, middle, bottom):
        if enough is not None:
            axes.axvline(enough, color=_ORANGE, linewidth=0.8, linestyle=":")
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(-0.5, shown[-1].rank + 0.5)
    figure.suptitle(title, fontsize=10, wrap=True)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def _draw_tau(axes: Any, points: Sequence[ProfilePoint], eps: Fraction) -> None:
    ranks = [point.rank for point in points]
    axes.plot(ranks, [p.tau.floats()[1] for p in points], "o-", color=_BLUE, markersize=3)
    axes.axhline(float(eps), color=_ORANGE, linewidth=1)
    axes.annotate(
        f"eps = {exact(eps)}",
        (0.01, float(eps)),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color=_ORANGE,
        fontsize=9,
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tau(T)")
    axes.set_title("l1 distance of rows that C - T costs (dotted: below eps)", **_TITLE)


def _draw_kappa(axes: Any, points: Sequence[ProfilePoint]) -> None:
    ranks = [point.rank for point in points]
    low, high = zip(*(p.kappa.floats() for p in points), strict=True)
    half_q = [float(p.interaction.unit.lower * p.size.q / 2) for p in points]
    axes.fill_between(ranks, low, high, color=_BLUE, alpha=0.3, linewidth=0)
    axes.plot(ranks, high, "o-", color=_BLUE, markersize=3, label="kappa(T), certified")
    axes.plot(ranks, half_q, "--", color=_GREY, linewidth=1, label="q(T)/2, always below")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("kappa(T)")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.set_title("size of the retained interaction", **_TITLE)


def _draw_score(axes: Any, points: Sequence[ProfilePoint], eps: Fraction) -> None:
    scores = [(p.rank, score) for p in points if (score := p.shape_score(eps)) is not None]
    if scores:
        ranks, values = zip(*((r, score.upper) for r, score in scores), strict=True)
        axes.plot(ranks, values, "o-", color=_BLUE, markersize=3)
        axes.set_ylim(0, 1.1 * max(values) or 1)
    else:
        axes.text(0.5, 0.5, "tau >= eps at every point", transform=axes.transAxes, ha="center")
    axes.set_ylabel("shape score")
    axes.set_xlabel("retained rank r")
    axes.set_title(
        "(r/2) log(1 + kappa/(eps - tau)^2): a shape, not a bound", fontsize=9, loc="left"
    )
