"""Regions of stability in the complex plane: implicit methods stable outside of their curves, explicit ones inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...analysis.regions import growth
from ..experiment import Picture, Report, Row
from ..style import FONT, GREY, colour, dress, save

GRID = 241
# Windows (left, right, top) that show what differs, and the methods in them.
PANELS: dict[str, tuple[tuple[float, float, float], tuple[str, ...]]] = {
    "implicit, one step": ((-6, 14, 10), ("backward_euler", "crank_nicolson", "multistage2", "multistage3", "sdirk4")),
    "BDF": ((-8, 24, 16), ("bdf1", "bdf2", "bdf3", "bdf4", "bdf5")),
    "explicit": ((-7, 2, 5.5), ("euler", "heun2", "rk4", "bosh3", "dopri5", "tsit5", "dopri8")),
    "Chebyshev": ((-70, 5, 9), ("rkc2, 2 stages", "rkc2, 5 stages", "rkc2, 10 stages")),
}
REPEATED = {"midpoint": "heun2", "ralston4": "rk4"}  # have the same polynomials; adaptive_heun is heun2
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")


def draw(report: Report, folder: Path) -> list[Picture]:
    found = {row["method"]: row for row in report["rows"] if row["kind"] == "method"}
    figure = Figure(figsize=(11.5, 8.2), dpi=150)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.16, top=0.95, wspace=0.18, hspace=0.6)
    for panel, (title, (window, names)) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        _panel(panel, title, window, [found[name] for name in names if name in found])
    note = "shaded: left half plane. The upper methods are stable outside of their curves, the lower ones inside."
    figure.text(0.075, 0.012, note, fontsize=FONT, color=GREY)
    save(figure, folder, "stability")
    return [
        Picture("stability", "Where the factor per step is one: boundaries of the regions of stability, z = h lambda.")
    ]


def _panel(panel: Axes, title: str, window: tuple[float, float, float], rows: list[Row]) -> None:
    left, right, top = window
    dress(panel, title, "Re z", "Im z", log="")
    panel.axvspan(left, 0, color="#f1f3f6", zorder=0)
    x = torch.linspace(left, right, GRID, dtype=torch.float64)
    y = torch.linspace(0, top, GRID, dtype=torch.float64)
    z = torch.complex(*torch.meshgrid(x, y, indexing="xy"))
    handles = []
    for i, row in enumerate(rows):
        style: dict[str, Any] = {"color": _shade(row["method"], i), "ls": DASHES[i % len(DASHES)]}
        level = growth(row["coefficients"], z).clamp(max=1e3)
        for sign in (1, -1):
            panel.contour(
                x, sign * y, level, levels=[1.0], colors=style["color"], linestyles=style["ls"], linewidths=1.7
            )
        handles.append(Line2D([], [], lw=1.7, label=_label(row), **style))
    panel.set_xlim(left, right)
    panel.set_ylim(-top, top)
    if handles:
        panel.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.17), frameon=False,
            ncols=2 if len(handles) < 5 else 3, fontsize=FONT - 1, columnspacing=1.2,
        )  # fmt: skip


def _shade(method: str, index: int) -> str:
    return ("#44AA99", "#117733", "#332288")[index] if method.startswith("rkc2") else colour(method, index)


def _label(row: Row) -> str:
    same = [name for name, other in REPEATED.items() if other == row["method"]]
    name = ", ".join([row["method"], *same])
    if row["angle"] is None:
        return f"{name} (to {-row['real_reach']:.1f})"
    return f"{name} (A)" if row["angle"] == 90 else f"{name} ({row['angle']:.1f}°)"
