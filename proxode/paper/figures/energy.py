"""Energy against time, and how far the law of each scheme was broken, against the step size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiment import Picture, Report, Row
from ..experiments.energy import LAWS, SLACK
from ..style import GREY, MARKERS, colour, dress, labelled, save, side_legend

FLOOR = 1e-17
HIGHEST = 1e3  # energies beyond are off the picture


def draw(report: Report, folder: Path) -> list[Picture]:
    steps = [s for s in report["setting"]["step_sizes"] if any(row["step"] == s for row in report["rows"])]
    shown = [steps[0], steps[len(steps) // 2], steps[-1]] if len(steps) > 2 else steps
    figure = Figure(figsize=(11.5, 7.2), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.84, bottom=0.08, top=0.94, wspace=0.24, hspace=0.38)
    panels = figure.subplots(2, 2)
    lines = list(panels.flat)
    for panel, step in zip(lines[:3], shown, strict=False):
        _energies(panel, [row for row in report["rows"] if row["step"] == step], step)
    _violations(lines[3], report["rows"])
    side_legend(figure, labelled(*lines), 0.85)
    save(figure, folder, "energy")
    return [Picture("energy", "Energy of Allen-Cahn step by step, and the worst step by each scheme's own law.")]


def _energies(panel: Axes, rows: list[Row], step: float) -> None:
    dress(panel, f"step {step:g}", "step number", "F(h_k)", log="")
    for row in rows:
        seen = [value for value in row["energies"] if value is not None and value < HIGHEST]
        if len(seen) > 1:
            panel.plot(range(len(seen)), seen, label=row["method"], **_style(row["method"]))
    if rows and rows[0]["energies"]:
        start = rows[0]["energies"][0]
        panel.set_ylim(-0.05 * start, 1.5 * start)


def _violations(panel: Axes, rows: list[Row]) -> None:
    dress(panel, "largest step against the law", "step size s", "change / (1 + F(h_0))", log="xy")
    for method in LAWS:
        own = [row for row in rows if row["method"] == method and row["violation"] is not None]
        if own:
            style = _style(method) | {"markevery": 1, "lw": 1.3}
            panel.plot([r["step"] for r in own], [min(max(r["violation"], FLOOR), HIGHEST) for r in own], **style)
    panel.axhline(SLACK, color=GREY, ls=":", lw=1.2)
    panel.annotate("what counts as kept", (0.99, SLACK), xycoords=("axes fraction", "data"), xytext=(0, 4),
                   textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    panel.annotate("no rise at all", (0.99, FLOOR), xycoords=("axes fraction", "data"), xytext=(0, 6),
                   textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    panel.set_ylim(FLOOR / 5, None)


def _style(method: str) -> dict[str, Any]:
    place = list(LAWS).index(method)
    line = "--" if method == "euler" else "-"
    return {"color": colour(method), "marker": MARKERS[place], "ms": 4, "lw": 1.8, "markevery": 0.15, "ls": line}
