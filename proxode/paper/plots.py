"""Pictures of the experiments, drawn from their JSON reports and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

Row = dict[str, Any]

# After Paul Tol's "muted" scheme, distinct also to colour-blind readers (cyan darker, for text on white).
COLOURS = (
    "#332288", "#4C9FD0", "#44AA99", "#117733", "#999933", "#CC6677", "#AA4499", "#DD7722", "#222222", "#888888",
)  # fmt: skip
MARKERS = {"paper": "o", "proxode": "D", "explicit": "s"}
LINES = {"paper": "-", "proxode": "--", "explicit": ":"}
GROUPS = {
    "paper": "proximal, the paper's step and inner solver",
    "proxode": "proximal, larger steps",
    "explicit": "explicit, adaptive",
}
SMALLEST = 1e-17  # below the rounding of the state: where an error of exactly zero is drawn
FONT = 9
LEADER = {"arrowstyle": "-", "lw": 0.6, "shrinkA": 1, "shrinkB": 4}  # the line from a label to what it names


def draw_diffusion(report: dict[str, Any], path: Path) -> None:
    """One row of panels for each set of initial data: error against cost, and error over time."""
    names = list(dict.fromkeys(row["data"] for row in report["rows"]))
    labels = list(dict.fromkeys(row["label"] for row in report["rows"]))
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    height = 0.8 + 3.6 * len(names)
    figure = Figure(figsize=(11, height), dpi=150)
    figure.subplots_adjust(
        left=0.07, right=0.81, bottom=0.95 / height, top=1 - 0.35 / height, wspace=0.2, hspace=0.33
    )
    panels = figure.subplots(len(names), 2, squeeze=False)
    for name, (left, right) in zip(names, panels, strict=True):
        rows = [row for row in report["rows"] if row["data"] == name and row["final_error"] is not None]
        _cost_panel(left, rows, colours, name)
        _time_panel(right, rows, colours, name)
    groups = list(dict.fromkeys(row["group"] for row in report["rows"]))
    figure.legend(handles=[_key(group) for group in groups], loc="lower center", ncols=3, frameon=False)
    figure.savefig(path)


def _key(group: str) -> Line2D:
    return Line2D([], [], color="#555555", marker=MARKERS[group], ls=LINES[group], label=GROUPS[group])


def _dress(panel: Axes, title: str, xlabel: str, ylabel: str) -> None:
    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)
    panel.set_yscale("log")
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _cost_panel(panel: Axes, rows: Sequence[Row], colours: dict[str, str], name: str) -> None:
    _dress(panel, f"{name}: final error against cost", "evaluations of f (NFE)", "error at t = 1")
    panel.set_xscale("log")
    for row in rows:
        x, y = _point(row)
        panel.plot(x, y, MARKERS[row["group"]], color=colours[row["label"]], markersize=7)
    panel.margins(x=0.35, y=0.2)
    _label_points(panel, rows, colours)


def _time_panel(panel: Axes, rows: Sequence[Row], colours: dict[str, str], name: str) -> None:
    _dress(panel, f"{name}: error over time", "t", "error at t")
    for row in rows:
        errors = [_visible(error) for error in row["errors"][1:]]  # the first is the initial value itself
        style = LINES[row["group"]] + MARKERS[row["group"]]
        panel.plot(row["times"][1:], errors, style, color=colours[row["label"]], lw=1.6, ms=3)
    panel.set_xlim(0, 1)
    _label_ends(panel, rows, colours)


def _visible(error: float) -> float:
    return max(error, SMALLEST)


def _point(row: Row) -> tuple[float, float]:
    return row["nfe"], _visible(row["final_error"])


def _short(row: Row, rows: Sequence[Row]) -> str:
    """The method's name where that tells which run is meant, the whole label where it does not."""
    same = [other for other in rows if other["method"] == row["method"]]
    return str(row["label"] if len(same) > 1 or row["group"] == "proxode" else row["method"])


def _label_points(panel: Axes, rows: Sequence[Row], colours: dict[str, str]) -> None:
    """A label beside every point: the nearest place that covers no point and no other label."""
    panel.autoscale_view()  # or the panel does not know yet where its points are
    pixels = panel.figure.dpi / 72
    dots = [panel.transData.transform(_point(row)) for row in rows]
    taken = [Bbox.from_bounds(x, y, 0, 0).padded(4 * pixels) for x, y in dots]
    room = panel.get_window_extent()
    for row, dot in zip(rows, dots, strict=True):
        text, colour = _short(row, rows), colours[row["label"]]
        width, height = _size(panel, text)
        for dx, dy in _offsets():
            left = dot[0] + dx * pixels - (width if dx < 0 else 0)
            box = Bbox.from_bounds(left, dot[1] + dy * pixels - height / 2, width, height)
            if room.containsx(box.x0) and room.containsx(box.x1) and box.count_overlaps(taken) == 0:
                break
        taken.append(box)
        panel.annotate(
            text,
            _point(row),
            xytext=(dx, dy),
            textcoords="offset points",
            ha="right" if dx < 0 else "left",
            va="center",
            fontsize=FONT,
            color=colour,
            arrowprops={"color": colour, "relpos": (float(dx < 0), 0.5)} | LEADER,
        )


def _offsets() -> Iterator[tuple[float, float]]:
    """Places for a label, in points from its dot: beside it first, then above and below, then farther off."""
    for distance in range(8, 60, 3):
        for dx, dy in ((1, 0), (-1, 0), (0.7, 0.7), (0.7, -0.7), (-0.7, 0.7), (-0.7, -0.7)):
            yield dx * distance, dy * distance


def _size(panel: Axes, text: str) -> tuple[float, float]:
    """Width and height of a label in pixels."""
    probe = panel.text(0.5, 0.5, text, fontsize=FONT, transform=panel.transAxes)
    box = probe.get_window_extent()
    probe.remove()
    return box.width, box.height


def _label_ends(panel: Axes, rows: Sequence[Row], colours: dict[str, str]) -> None:
    """Labels in a column right of the panel, as near as they can be to where their lines end."""
    panel.autoscale_view()
    to_panel = panel.transData - panel.transAxes
    ends = [float(to_panel.transform((1.0, _visible(row["final_error"])))[1]) for row in rows]
    for row, end, y in zip(rows, ends, spread(ends, 0.075), strict=True):
        colour = colours[row["label"]]
        panel.annotate(
            _short(row, rows),
            (1.0, end),
            xytext=(1.09, y),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=FONT,
            color=colour,
            arrowprops={"color": colour, "relpos": (0.0, 0.5)} | LEADER,
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights moved apart to at least `gap`, in the same order, by the least sum of squared moves.

    What is left after taking off `gap` per place must only be non-decreasing, so neighbours that are not
    are pooled at their mean (isotonic regression); then all is kept within [0, 1].
    """
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    pools: list[list[float]] = []
    for place, i in enumerate(order):
        pools.append([heights[i] - place * gap])
        while len(pools) > 1 and mean(pools[-2]) > mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    levels = [mean(pool) for pool in pools for _ in pool]
    top = 1.0 - (len(order) - 1) * gap
    moved = [0.0] * len(order)
    for place, i in enumerate(order):
        moved[i] = min(max(levels[place], 0.0), top) + place * gap
    return moved
