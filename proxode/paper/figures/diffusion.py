"""Final error against cost, with the tolerance varied, and error over time, for both sets of initial data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from ..experiment import Picture, Report, Row
from ..style import COLOURS, FONT, METHODS, dress, save

MARKERS = {"paper": "o", "proxode": "D", "explicit": "s"}
LINES = {"paper": "-", "proxode": "--", "explicit": ":"}
GROUPS = {
    "paper": "proximal, the paper's step and inner solver",
    "proxode": "proximal, larger or adaptive steps",
    "explicit": "explicit, adaptive",
}
SMALLEST = 1e-17  # below the rounding of the state: where an error of exactly zero is drawn
LEADER = {"arrowstyle": "-", "lw": 0.6, "shrinkA": 1, "shrinkB": 4}  # the line from a label to what it names


def draw(report: Report, folder: Path) -> list[Picture]:
    """One row of panels for each set of initial data: error against cost, and error over time."""
    names = list(dict.fromkeys(row["data"] for row in report["rows"]))
    height = 0.8 + 3.8 * len(names)
    figure = Figure(figsize=(12, height), dpi=150)
    figure.subplots_adjust(left=0.065, right=0.8, bottom=0.95 / height, top=1 - 0.35 / height, wspace=0.17, hspace=0.33)
    panels = figure.subplots(len(names), 2, squeeze=False)
    good = [row for row in report["rows"] if row["final_error"] is not None]
    colours = _colours(good)
    for name, (left, right) in zip(names, panels, strict=True):
        rows = [row for row in good if row["data"] == name]
        _cost_panel(left, rows, colours, name)
        _time_panel(right, [row for row in rows if row["main"]], colours, name)
    groups = list(dict.fromkeys(row["group"] for row in report["rows"]))
    figure.legend(handles=[_key(group) for group in groups], loc="lower center", ncols=3, frameon=False)
    save(figure, folder, "diffusion")
    caption = "Cost and error of all methods. Thin lines: the same method at other tolerances."
    return [Picture("diffusion", caption)]


def _family(row: Row) -> tuple[str, str, str]:
    """Runs that differ in a tolerance only."""
    return row["method"], row["group"], str(row["options"].get("inner")) + str(row["options"].get("inner_lr"))


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    """By label; the colour of the method, and another for a second family of it."""
    spare = iter(colour for colour in ("#DDAA33", "#994F00", "#6699CC", "#AA3377", *COLOURS))
    by_family: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if _family(row) not in by_family:
            own = METHODS.get(row["method"])
            by_family[_family(row)] = own if own is not None and own not in by_family.values() else next(spare)
    return {row["label"]: by_family[_family(row)] for row in rows}


def _key(group: str) -> Line2D:
    return Line2D([], [], color="#555555", marker=MARKERS[group], ls=LINES[group], label=GROUPS[group])


def _cost_panel(panel: Axes, rows: Sequence[Row], colours: dict[str, str], name: str) -> None:
    dress(panel, f"{name}: final error against cost", "evaluations of f (NFE)", "error at t = 1")
    panel.set_xscale("log")
    for family in dict.fromkeys(map(_family, rows)):
        own = sorted((row for row in rows if _family(row) == family), key=lambda row: float(row["nfe"]))
        points = [_point(row) for row in own]
        style: dict[str, Any] = {"color": colours[own[0]["label"]], "marker": MARKERS[own[0]["group"]]}
        panel.plot([x for x, _ in points], [y for _, y in points], ms=3, lw=0.9, alpha=0.7, **style)
    shown = [row for row in rows if row["main"]]
    for row in shown:
        x, y = _point(row)
        panel.plot(x, y, MARKERS[row["group"]], color=colours[row["label"]], markersize=7)
    panel.margins(x=0.3, y=0.15)
    _label_points(panel, shown, colours)


def _time_panel(panel: Axes, rows: Sequence[Row], colours: dict[str, str], name: str) -> None:
    dress(panel, f"{name}: error over time", "t", "error at t")
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
