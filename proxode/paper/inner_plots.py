"""Pictures of the inner solvers, drawn from the JSON report of their experiment and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .inner import slope
from .plots import COLOURS, FONT, LEADER, spread

Row = dict[str, Any]

STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
GREY = "#777777"


def draw_costs(report: dict[str, Any], path: Path) -> None:
    """Evaluations against stiffness, a panel for each set of initial data, the growth exponent in the labels."""
    rows = [row for row in report["rows"] if row["kind"] == "cost"]
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(6.2 * len(names), 4.9), dpi=150)
    figure.subplots_adjust(left=0.06, right=0.865, bottom=0.12, top=0.86, wspace=0.62)
    panels = figure.subplots(1, len(names), squeeze=False, sharex=True, sharey=True)[0]
    for name, panel in zip(names, panels, strict=True):
        _dress(panel, f"initial data: {name}", "stiffness, gamma * lambda_max", "evaluations of f (NFE)")
        panel.set_xscale("log")
        _cost_panel(panel, [row for row in rows if row["data"] == name])
    figure.suptitle(_title(report), x=0.06, ha="left", fontsize=12)
    figure.savefig(path)


def draw_paths(report: dict[str, Any], path: Path) -> None:
    """The paper's picture: distance to the last iterate and to the solution, against evaluations."""
    rows = [row for row in report["rows"] if row["kind"] == "path" and row["nfe"]]
    names = list(dict.fromkeys(row["data"] for row in rows))
    height = 0.7 + 3.7 * len(names)
    figure = Figure(figsize=(12, height), dpi=150)
    figure.subplots_adjust(
        left=0.07, right=0.86, bottom=0.55 / height, top=1 - 0.8 / height, wspace=0.22, hspace=0.3
    )
    panels = figure.subplots(len(names), 2, squeeze=False, sharex=True)
    for name, (left, right) in zip(names, panels, strict=True):
        chosen = [row for row in rows if row["data"] == name]
        _path_panel(left, chosen, "updates", f"{name}: distance to the iterate before")
        _path_panel(right, chosen, "errors", f"{name}: distance to the solution")
    handles, labels = panels[0][1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="center left", bbox_to_anchor=(0.87, 0.5), frameon=False, labelspacing=1
    )
    stiffness = rows[0]["stiffness"]
    title = f"The way of each inner solver on one diffusion step, gamma * lambda_max = {stiffness:.3g}"
    figure.suptitle(title, x=0.07, ha="left", fontsize=12)
    figure.savefig(path)


def _title(report: dict[str, Any]) -> str:
    points = report["problem"]["points"]
    return (
        f"Cost of one implicit diffusion step ({points} points, residual 1e-10). "
        "In brackets the growth exponent; dashed grey: 1/2 and 1"
    )


def _dress(panel: Axes, title: str, xlabel: str, ylabel: str) -> None:
    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)
    panel.set_yscale("log")
    panel.tick_params(labelleft=True)
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _style(index: int) -> dict[str, Any]:
    colours = (*COLOURS, "#882255")
    return {
        "color": colours[index % len(colours)],
        "marker": MARKERS[index % len(MARKERS)],
        "ls": STYLES[index % len(STYLES)],
        "lw": 1.5,
        "ms": 4.5,
    }


def _by_solver(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row["solver"] for row in rows)
    return {name: [row for row in rows if row["solver"] == name] for name in names}


def _cost_panel(panel: Axes, rows: Sequence[Row]) -> None:
    ends: list[tuple[str, float, float, str]] = []
    for index, (solver, all_runs) in enumerate(_by_solver(rows).items()):
        runs = [row for row in all_runs if row["status"] == "SUCCESS"]
        if not runs:
            continue
        x, y = [row["stiffness"] for row in runs], [row["nfe"] for row in runs]
        style = _style(index)
        panel.plot(x, y, **style)
        if len(runs) < len(all_runs):
            text = f"{solver}\nfails from {all_runs[len(runs)]['stiffness']:.3g}"
            _note(panel, text, x[-1], y[-1], style["color"], (-30, 24), leader=True)
        else:
            growth = slope(runs)
            label = solver if growth is None else f"{solver} ({abs(growth):.2f})"
            ends.append((label, x[-1], y[-1], style["color"]))
    _reference_lines(panel, rows)
    _label_ends(panel, ends)


def _reference_lines(panel: Axes, rows: Sequence[Row]) -> None:
    """Dashed lines of slope 1/2 and 1, through one point at a stiffness of 1."""
    start, right = 60.0, max(row["stiffness"] for row in rows)
    top = max(row["nfe"] for row in rows if row["status"] == "SUCCESS")
    for exponent, text in ((0.5, "1/2"), (1.0, "1")):
        end = min(right, (1.2 * top / start) ** (1 / exponent))
        panel.plot([1.0, end], [start, start * end**exponent], "--", color=GREY, lw=1.0, zorder=1)
        _note(panel, text, end, start * end**exponent, GREY, (4, -3))


def _note(
    panel: Axes,
    text: str,
    x: float,
    y: float,
    colour: str,
    offset: tuple[float, float],
    leader: bool = False,
) -> None:
    panel.annotate(
        text,
        (x, y),
        xytext=offset,
        textcoords="offset points",
        fontsize=FONT,
        color=colour,
        arrowprops={"color": colour} | LEADER if leader else None,
    )


def _path_panel(panel: Axes, rows: Sequence[Row], key: str, title: str) -> None:
    _dress(panel, title, "evaluations of f (NFE)", "2-norm")
    for index, (solver, (row,)) in enumerate(_by_solver(rows).items()):
        style = _style(index) | {"markevery": 0.12}
        panel.plot(row["nfe"], row[key], label=solver, **style)
    panel.set_ylim(1e-15, 1e2)


def _label_ends(panel: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Labels in a column right of the panel, as near as they can be to where their lines end."""
    panel.autoscale_view()
    to_panel = panel.transData - panel.transAxes
    places = [to_panel.transform((x, y)) for _, x, y, _ in ends]
    heights = spread([float(y) for _, y in places], 0.062)
    for (label, _, _, colour), (x, y), height in zip(ends, places, heights, strict=True):
        panel.annotate(
            label,
            (float(x), float(y)),
            xytext=(1.06, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=FONT,
            color=colour,
            arrowprops={"color": colour, "relpos": (0.0, 0.5)} | LEADER,
        )
