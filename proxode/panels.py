"""How every panel of a picture looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def dress(panel: Axes, title: str, xlabel: str, ylabel: str, log: str = "y") -> None:
    """Title at the left, a light grid, no frame at top and right; `log` names the logarithmic axes."""
    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)
    if "x" in log:
        panel.set_xscale("log")
    if "y" in log:
        panel.set_yscale("log")
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
