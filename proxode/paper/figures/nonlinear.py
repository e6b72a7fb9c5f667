"""Time against the number of grid points, and time against evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ..experiment import Picture, Report
from ..experiments.nonlinear import SOLVERS
from ..style import COLOURS, MARKERS, dress, labelled, save, side_legend

SHADES = (COLOURS[0], COLOURS[2], COLOURS[7], COLOURS[7], COLOURS[5], COLOURS[3])
DASHES = ("-", "-", "-", ":", "--", "--")
NAMES = {
    "fr": "proximal: fr", "anderson": "proximal: anderson", "fixed_point": "fixed point, s = 1/2000",
    "fixed_point, short steps": "fixed point,\nits own short steps",
    "newton, dense": "Newton-Raphson,\ndense, by n products", "newton": "Newton, ours\n(band found, kept)",
}  # fmt: skip


def draw(report: Report, folder: Path) -> list[Picture]:
    figure = Figure(figsize=(11.5, 4.6), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.81, bottom=0.13, top=0.91, wspace=0.22)
    left, right = figure.subplots(1, 2)
    dress(left, "time against grid points", "grid points", "milliseconds for 20 steps", log="xy")
    dress(right, "time against evaluations", "evaluations of f (NFE)", "milliseconds for 20 steps", log="xy")
    for i, solver in enumerate(SOLVERS):
        rows = [row for row in report["rows"] if row["solver"] == solver and row["status"] == "SUCCESS"]
        style: dict[str, Any] = {"color": SHADES[i], "ls": DASHES[i], "marker": MARKERS[i], "ms": 5, "lw": 1.6}
        times = [1e3 * row["seconds"] for row in rows]
        if rows:
            left.plot([row["points"] for row in rows], times, label=NAMES[solver], **style)
            right.plot([row["nfe"] for row in rows], times, **style)
    sizes = report["setting"]["points"]
    left.xaxis.set_major_locator(FixedLocator(sizes))
    left.xaxis.set_minor_locator(NullLocator())
    left.set_xticklabels([str(size) for size in sizes])
    side_legend(figure, labelled(left), 0.82)
    save(figure, folder, "nonlinear")
    return [
        Picture(
            "nonlinear", "Steps of backward Euler on diffusion: time by solver. A line ends where the solver fails."
        )
    ]
