"""GRAND: evaluations per epoch, loss against time, accuracy, and the errors of gradients along the training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..experiment import Picture, Report, Row
from ..grand import SOLVERS
from ..style import LINES, colour, dress, labelled, save, side_legend

NAMES = {
    "adaptive_heun": "adaptive Heun, adjoint", "dopri5": "DOPRI5, adjoint", "dopri8": "DOPRI8, adjoint",
    "dopri5, backpropagated": "DOPRI5,\nbackpropagated", "backward_euler": "proximal: backward Euler",
    "crank_nicolson": "proximal: Crank-Nicolson", "bdf2": "proximal: BDF2", "bdf3": "proximal: BDF3",
    "bdf4": "proximal: BDF4", "bdf2, found": "proximal: BDF2,\nstep length found",
    "bdf2, mean": "proximal: BDF2,\nmean residual 1e-4", "auto": "ours: auto",
    "bdf2, anderson": "ours: BDF2, anderson",
}  # fmt: skip
SHADES = {
    "dopri5, backpropagated": "#AA4499", "bdf2, anderson": "#000000", "bdf2, mean": "#88CCAA", "bdf2, found": "#DDAA33",
}  # fmt: skip
DASHES = {"adaptive": "-", "control": "-.", "paper": "--", "ours": "-"}


def draw(report: Report, folder: Path) -> list[Picture]:
    """One picture of costs, one of trainings, one of gradients if any were measured."""
    sort = "Coauthor-CS" if report["setting"]["graph"] == "coauthor_cs" else report["setting"]["graph"].capitalize()
    _panels(report, folder, "grand_nfe", [
        ("forward", "epoch", "evaluations of f", "y", _epochs("nfe_forward")),
        ("backward", "epoch", "vector-Jacobian products", "y", _epochs("nfe_backward")),
    ])  # fmt: skip
    _panels(report, folder, "grand", [
        ("loss", "seconds of training", "training loss", "x", _loss),
        ("validation", "epoch", "accuracy", "", _epochs("validation")),
    ])  # fmt: skip
    pictures = [
        Picture("grand_nfe", f"NFE per epoch in training GRAND on {sort}. A line ends where the training failed."),
        Picture("grand", f"Training loss against time, and validation accuracy, of GRAND on {sort}."),
    ]
    if any("error_whole: auto" in row["history"] for row in report["rows"]):
        _gradients(report, folder)
        pictures.append(
            Picture(
                "grand_gradients",
                "Relative error of the gradient at weights along the training: DOPRI5 with the adjoint, and ours. "
                "A point is missing where there was no gradient.",
            )
        )
    return pictures


def plain(*axes: Axis) -> None:
    """Logarithmic axes over few decades: 20, 50, 100 and not powers of ten."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())


Draw = Callable[[Row], tuple[list[float], list[float]]]


def _epochs(name: str) -> Draw:
    def points(row: Row) -> tuple[list[float], list[float]]:
        known = [(k + 1.0, value) for k, value in enumerate(row["history"].get(name, [])) if value is not None]
        return [k for k, _ in known], [value for _, value in known]

    return points


def _loss(row: Row) -> tuple[list[float], list[float]]:
    seconds, total = [], 0.0
    for value in row["history"].get("seconds", []):
        total += value
        seconds.append(total)
    return seconds, row["history"].get("loss", [])


def _panels(report: Report, folder: Path, stem: str, columns: list[tuple[str, str, str, str, Draw]]) -> None:
    """A row of panels for each variant, a line for each solver; of several seeds the first has the label."""
    variants = report["setting"]["variants"]
    figure = Figure(figsize=(11.5, 0.9 + 3.5 * len(variants)), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.79, bottom=0.08, top=0.95, wspace=0.24, hspace=0.32)
    panels = figure.subplots(len(variants), 2, squeeze=False)
    for line, variant in zip(panels, variants, strict=True):
        for panel, (title, xlabel, ylabel, log, points) in zip(line, columns, strict=True):
            dress(panel, f"{variant}: {title}", xlabel, ylabel, log=log)
            plain(*(getattr(panel, f"{name}axis") for name in log))
            if xlabel == "epoch":
                panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            for row in (row for row in report["rows"] if row["variant"] == variant):
                x, y = points(row)
                if x:
                    panel.plot(x, y, **_style(row, report))
                    panel.plot(x[-1], y[-1], "o" if row["status"] == "SUCCESS" else "x", color=_shade(row), ms=4)
    lines = labelled(*panels.flat)
    side_legend(figure, {name: lines[name] for name in NAMES.values() if name in lines}, 0.80)
    save(figure, folder, stem)


def _shade(row: Row) -> str:
    return SHADES.get(row["solver"], colour(row["solver"]))


def _style(row: Row, report: Report) -> dict[str, Any]:
    group = SOLVERS[row["solver"]].group
    first = row["training_seed"] == report["setting"]["seeds"][0]
    return {
        "color": _shade(row), "ls": DASHES[group], "lw": 2.0 if group == "ours" else 1.4,
        "alpha": 1.0 if first else 0.45, "label": NAMES[row["solver"]] if first else None,
        "zorder": 3 if group == "ours" else 2,
    }  # fmt: skip


def _gradients(report: Report, folder: Path) -> None:
    variants = report["setting"]["variants"]
    figure = Figure(figsize=(11.5, 4.4), dpi=150)
    figure.subplots_adjust(left=0.09, right=0.77, bottom=0.13, top=0.91, wspace=0.28)
    panels = figure.subplots(1, len(variants), squeeze=False)[0]
    for panel, variant in zip(panels, variants, strict=True):
        dress(panel, f"{variant}: error of the gradient", "epoch", "relative error")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        for row in report["rows"]:
            if row["variant"] == variant and row["training_seed"] == report["setting"]["seeds"][0]:
                _errors(panel, row)
    side_legend(figure, labelled(*panels), 0.78)
    save(figure, folder, "grand_gradients")


def _errors(panel: Axes, row: Row) -> None:
    short = {"dopri5": "adjoint", "auto": "ours"}
    for name in short:
        for j, (key, what) in enumerate((("error_theta", "attention"), ("error_whole", "all weights"))):
            x, y = _epochs(f"{key}: {name}")(row)
            if x:
                label = f"{short[name]}: {what},\ntraining by {short[row['solver']]}"
                panel.plot(x, y, LINES[j], color=colour(name), marker="os"[row["solver"] == "auto"], ms=5, label=label)
