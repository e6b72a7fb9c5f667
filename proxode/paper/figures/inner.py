"""The cost of the inner solvers as the step grows, and the way of each to the solution of one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiment import Picture, Report, Row
from ..inner import INVERSE_LR, PAPER_STIFFNESS, slope
from ..style import COLOURS, FONT, GREY, MARKERS, dress, labelled, save, side_legend
from ..style import LINES as STYLES
from .diffusion import LEADER, spread

SHORT = 1e-15


def draw(report: Report, folder: Path) -> list[Picture]:
    found = []
    if any(row["kind"] == "cost" for row in report["rows"]):
        draw_costs(report, folder)
        found.append(Picture("inner", "Evaluations for one implicit step, as the step grows."))
    if any(row["kind"] == "path" for row in report["rows"]):
        draw_paths(report, folder, None, "inner_paths")
        found.append(Picture("inner_paths", "The way of each inner solver that finds its own step length."))
    if any(row["kind"] == "path" and row["lr"] == INVERSE_LR for row in report["rows"]):
        draw_paths(report, folder, INVERSE_LR, "inner_constant")
        found.append(
            Picture("inner_constant", "The same with one constant step length, one over the Lipschitz constant.")
        )
    return found


def draw_costs(report: Report, folder: Path) -> None:
    """Evaluations against stiffness, a panel for each set of initial data, the growth exponent in the labels."""
    rows = [row for row in report["rows"] if row["kind"] == "cost"]
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(6.2 * len(names), 4.9), dpi=150)
    figure.subplots_adjust(left=0.06, right=0.865, bottom=0.12, top=0.86, wspace=0.62)
    panels = figure.subplots(1, len(names), squeeze=False, sharex=True, sharey=True)[0]
    for name, panel in zip(names, panels, strict=True):
        dress(panel, f"initial data: {name}", "stiffness, gamma * lambda_max", "evaluations of f (NFE)", log="xy")
        panel.tick_params(labelleft=True)
        _cost_panel(panel, [row for row in rows if row["data"] == name])
    figure.suptitle(_title(report), x=0.06, ha="left", fontsize=12)
    save(figure, folder, "inner")


def draw_paths(report: Report, folder: Path, lr: float | None, stem: str) -> None:
    """The paper's picture: distance to the last iterate and to the solution, against evaluations."""
    rows = [row for row in report["rows"] if row["kind"] == "path" and row["nfe"] and row["lr"] == lr]
    names = list(dict.fromkeys(row["data"] for row in rows))
    height = 0.9 + 3.6 * len(names)
    figure = Figure(figsize=(12, height), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.86, bottom=0.55 / height, top=1 - 0.9 / height, wspace=0.2, hspace=0.3)
    panels = figure.subplots(len(names), 2, squeeze=False, sharex=True)
    order = list(dict.fromkeys(row["solver"] for row in report["rows"]))
    for name, (left, right) in zip(names, panels, strict=True):
        chosen = [row for row in rows if row["data"] == name]
        _path_panel(left, chosen, "updates", f"{name}: distance to the iterate before", order)
        _path_panel(right, chosen, "errors", f"{name}: distance to the solution", order)
    side_legend(figure, labelled(*panels.flat), 0.87)
    how = "step lengths found" if lr is None else f"constant step length {lr:.3g}"
    title = f"The way of each inner solver on one diffusion step, gamma * lambda_max = {PAPER_STIFFNESS:.3g}, {how}"
    figure.suptitle(title, x=0.07, ha="left", fontsize=12)
    save(figure, folder, stem)


def _title(report: Report) -> str:
    points = report["problem"]["points"]
    return (
        f"Cost of one implicit diffusion step ({points} points, residual 1e-10). "
        "In brackets the growth exponent; dashed grey: 1/2 and 1"
    )


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
            _note(panel, text, x[-1], y[-1], style["color"], (8 if len(runs) < 2 else -30, 24), leader=True)
        else:
            growth = slope(runs)
            label = solver if growth is None else f"{solver} ({abs(growth):.2f})"
            ends.append((label, x[-1], y[-1], style["color"]))
    _reference_lines(panel, rows)
    _label_ends(panel, ends)


def _reference_lines(panel: Axes, rows: Sequence[Row]) -> None:
    """Dashed lines of slope 1/2 and 1, through one point at a stiffness of 1."""
    start, right = 60.0, max(row["stiffness"] for row in rows)
    top = max((row["nfe"] for row in rows if row["status"] == "SUCCESS"), default=start)
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


def _path_panel(panel: Axes, rows: Sequence[Row], key: str, title: str, order: Sequence[str]) -> None:
    dress(panel, title, "evaluations of f (NFE)", "2-norm")
    for row in rows:
        style = _style(order.index(row["solver"])) | {"markevery": 0.12}
        panel.plot(row["nfe"], row[key], label=row["solver"], **style)
    panel.set_ylim(SHORT, 1e2)


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
