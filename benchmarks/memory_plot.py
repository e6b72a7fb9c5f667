"""The picture of peak memory against steps, drawn from the JSON report and from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

COLOURS = {
    "implicit": "#332288", "checkpoint": "#117733", "continuous": "#44AA99", "direct": "#CC6677",
    "torchdiffeq odeint (rk4)": "#DD7722", "torchdiffeq odeint_adjoint (rk4)": "#888888",
}  # fmt: skip
LINES = {"implicit, store_graph": "--", "continuous, 50 checkpoints": "--"}


def draw(report: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(9.5, 5.2), dpi=150, layout="constrained")
    panel = figure.subplots()
    rows = [row for row in report["rows"] if row["states"] is not None and "tighter" not in row["label"]]
    ends: list[tuple[float, float, str, str]] = []
    for label in dict.fromkeys(row["label"] for row in rows):
        mine = [row for row in rows if row["label"] == label]
        colour = COLOURS.get(label) or COLOURS[label.split(",")[0]]
        steps, states = [row["steps"] for row in mine], [row["states"] for row in mine]
        panel.plot(steps, states, marker="o", ms=4, color=colour, ls=LINES.get(label, "-"))
        ends.append((steps[-1], states[-1], label, colour))
    _guides(panel, rows)
    _labels(panel, ends)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlim(right=max(row["steps"] for row in rows) * 12)
    panel.set_xlabel("steps")
    panel.set_ylabel("peak memory, in states")
    panel.set_title("Memory of a solve and its gradient", loc="left", pad=12)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.grid(alpha=0.25)
    figure.savefig(path)


def _guides(panel: Any, rows: list[dict[str, Any]]) -> None:
    """One state for each step, and the square root of the steps."""
    first, last = min(row["steps"] for row in rows), max(row["steps"] for row in rows)
    panel.plot([first, last], [first, last], color="#bbbbbb", lw=1, ls=":", zorder=0)
    panel.annotate("one state per step", (last, last), color="#999999", fontsize=8, xytext=(4, -18),
                   textcoords="offset points")  # fmt: skip
    low = 6 * first**0.5
    panel.plot([first, last], [low, 6 * last**0.5], color="#bbbbbb", lw=1, ls=":", zorder=0)
    panel.annotate("as the square root", (last, 6 * last**0.5), color="#999999", fontsize=8, xytext=(4, -14),
                   textcoords="offset points")  # fmt: skip


def _labels(panel: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names at the ends of the lines, moved apart where they would lie on each other."""
    lowest: dict[float, float] = {}  # of the next name, for lines that end at the same number of steps
    for x, y, label, colour in sorted(ends, key=lambda end: end[1]):
        height = max(y, lowest.get(x, 0.0) * 1.32)
        panel.annotate(label, (x, y), xytext=(x * 1.12, height), color=colour, fontsize=9, va="center",
                       arrowprops={"arrowstyle": "-", "lw": 0.5, "color": colour})  # fmt: skip
        lowest[x] = height
