"""Error over time at several inner tolerances, and the distance to exact steps beside its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..experiment import Picture, Report, Row
from ..experiments.scalar import bounds
from ..style import COLOURS, GREY, colour, dress, labelled, power, save, side_legend

SMALLEST = 1e-17


def draw(report: Report, folder: Path) -> list[Picture]:
    figure = Figure(figsize=(11, 7.4), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.81, bottom=0.07, top=0.94, wspace=0.24, hspace=0.36)
    panels = figure.subplots(2, 2)
    for (left, right), problem in zip(panels, ("growing", "damped"), strict=True):
        rows = [row for row in report["rows"] if row["problem"] == problem]
        dress(left, f"{problem}: error to the solution", "t", "|h - (sin t + cos t)|")
        dress(right, f"{problem}: distance to exact backward Euler", "t", "|h - exact steps|")
        for row in rows:
            style = _style(row, report)
            left.plot(row["times"][1:], _seen(row["errors"]), **style)
            if row["tol"] is not None:
                right.plot(row["times"][1:], _seen(row["distances"]), **style)
                right.plot(row["times"][1:], bounds(row)[0][1:], ":", color=style["color"], lw=1.0)
        right.plot([], [], ":", color=GREY, label="bound: residual times\nsum of 1/C^j")
    side_legend(figure, labelled(*panels.flat), 0.815)
    save(figure, folder, "scalar")
    return [
        Picture(
            "scalar", "Proximal backward Euler at several inner tolerances, beside exact backward and forward Euler."
        )
    ]


def _style(row: Row, report: Report) -> dict[str, Any]:
    if row["method"] == "euler":
        return {"color": colour("dopri5"), "ls": "-.", "lw": 2.0, "zorder": 3, "label": "forward Euler"}
    if row["method"] == "exact":
        return {"color": "#222222", "ls": "--", "lw": 2.0, "zorder": 3, "label": "backward Euler, exact"}
    tolerances = report["setting"]["tolerances"]
    shade = COLOURS[tolerances.index(row["tol"]) % 7]
    return {"color": shade, "lw": 1.5, "label": f"proximal, {power(row['tol'])}"}


def _seen(values: list[float]) -> list[float]:
    return [max(value, SMALLEST) for value in values[1:]]
