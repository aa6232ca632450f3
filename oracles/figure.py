"""The figure of the support laws: certified messages against beta, with theory's slopes.

Drawing only: floating point, and matplotlib (the extra ``report``), which nothing else here needs.
"""

from __future__ import annotations

from pathlib import Path

from softrank_exact.errors import UserError

from .balls import at_precision
from .support import BETAS, growths


@at_precision
def draw(path: Path) -> None:
    """Write the figure. Raises ``UserError`` without matplotlib or for a path it cannot write."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "the plot needs matplotlib: pip install '.[report]' in a clone of softrank-exact"
        ) from None
    with rc_context({"svg.hashsalt": "softrank"}):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        panels = dict(zip(("sphere", "ball"), figure.subplots(1, 2, sharey=True), strict=True))
        for law in growths():
            axes, theory = panels[law.name], float(law.theory)
            (points,) = axes.loglog(
                BETAS,
                law.messages,
                "o",
                label=f"d = {law.dimension}: {float(law.slope().mid()):.3f} (theory {theory})",
            )
            line = [law.messages[0] * (beta / BETAS[0]) ** theory for beta in BETAS]
            axes.loglog(BETAS, line, color=points.get_color(), linewidth=1)
        for name, axes in panels.items():
            axes.set(title=f"{name}: certified messages N (r >= N)", xlabel="beta")
            axes.legend()
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be drawn: {error}") from None
