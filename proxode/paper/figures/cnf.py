"""Likelihood against evaluations and against time, error of the solvers, and what the flows have learned."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..cnf.solvers import OURS, PAPER, SOLVERS
from ..cnf.sources import SPAN
from ..experiment import Picture, Report, Row
from ..style import FONT, MARKERS, colour, dress, labelled, save, side_legend
from .ticks import plain_ticks

SHADES = (
    "#DD7722", "#222222", "#bbbbbb", "#88CCAA", "#44AA99", "#117733", "#999933", "#CC3311", "#4C9FD0", "#AA4499",
    "#332288", "#88CCEE",
)  # fmt: skip
LINES = {PAPER: "--", OURS: "-", "rival": ":"}


def draw(report: Report, folder: Path) -> list[Picture]:
    names = [name for name in report["setting"]["sources"] if any(row["data"] == name for row in report["rows"])]
    figure = Figure(figsize=(14, 3.9 * len(names)), dpi=130)
    panels = figure.subplots(len(names), 3, squeeze=False)
    for (calls, time, profile), name in zip(panels, names, strict=True):
        rows = [row for row in report["rows"] if row["data"] == name]
        unit = rows[0]["unit"]
        dress(calls, name, "evaluations and products in training (NFE)", f"held-out {unit}", log="x")
        dress(time, "", "seconds of training", f"held-out {unit}", log="x")
        for row in rows:
            _likelihood(calls, row, [a + b for a, b in zip(row["history"]["nfe_forward"],
                                                           row["history"]["nfe_backward"], strict=True)])  # fmt: skip
            _likelihood(time, row, row["history"]["seconds"])
        dress(profile, "the flow that DOPRI5 trained", "evaluations forward", "error of z", log="xy")
        _profile(profile, rows)
        plain_ticks(calls.xaxis, time.xaxis, profile.xaxis)
    figure.subplots_adjust(left=0.07, right=0.84, bottom=0.2 / len(names), top=1 - 0.12 / len(names), hspace=0.4,
                           wspace=0.28)  # fmt: skip
    side_legend(figure, labelled(*panels[:, 0]), 0.85)
    save(figure, folder, "cnf")
    pictures = [
        Picture(
            "cnf", "Flows: held-out likelihood (by a solve at 1e-7) against what the training has cost, and errors of "
            "solvers on one trained flow. Dotted: DOPRI5 with the adjoint; dashed: the paper's; solid: ours.",
        )
    ]  # fmt: skip
    return pictures + _shown(report, names, folder)


def _likelihood(panel: Axes, row: Row, costs: list[float]) -> None:
    history, i = row["history"], list(SOLVERS).index(row["solver"])
    sums = list(accumulate(costs))
    if history["judged_at"]:
        costs = [sums[at - 1] for at in history["judged_at"]]
        panel.plot(costs, history["held_out"], LINES[SOLVERS[row["solver"]].group], color=SHADES[i],
                   marker=MARKERS[i % len(MARKERS)], ms=4, lw=1.5, label=row["solver"])  # fmt: skip


def _profile(panel: Axes, rows: list[Row]) -> None:
    profile: list[Row] = next((row["profile"] for row in rows if row.get("profile")), [])
    for i, curve in enumerate(dict.fromkeys(point["curve"] for point in profile)):
        points = [point for point in profile if point["curve"] == curve and point["error"]]
        panel.plot([point["nfe"] for point in points], [point["error"] for point in points], marker=MARKERS[i], ms=4,
                   color=colour(curve, i), lw=1.4, label=curve)  # fmt: skip
    if profile:
        panel.legend(frameon=False, fontsize=FONT - 1)


def _shown(report: Report, names: list[str], folder: Path) -> list[Picture]:
    """Densities, or samples: a column for each solver whose training came to its end."""
    rows = {name: [row for row in report["rows"] if row["data"] == name and ("density" in row or "samples" in row)]
            for name in names}  # fmt: skip
    rows = {name: found for name, found in rows.items() if found}
    if not rows:
        return []
    columns = max(len(found) for found in rows.values())
    figure = Figure(figsize=(1.75 * columns, 2.2 * len(rows)), dpi=130)
    panels = figure.subplots(len(rows), columns, squeeze=False)
    for line, found in zip(panels, rows.values(), strict=True):
        whole = max(row["iterations"] for row in found)
        for i, panel in enumerate(line):
            panel.set_axis_off()
            if i < len(found):
                _image(panel, found[i], short=found[i]["iterations"] < whole)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.9, wspace=0.05, hspace=0.35)
    save(figure, folder, "cnf_learned")
    return [Picture("cnf_learned", "What the flows have learned, and the likelihood of held-out data.")]


def _image(panel: Axes, row: Row, *, short: bool) -> None:
    after = f"\nafter {row['iterations']} iterations" if short else ""
    panel.set_title(f"{row['solver']}{after}\n{row['held_out']:.3f} {row['unit']}", fontsize=7)
    if "density" in row:
        panel.imshow(row["density"], origin="lower", extent=(-SPAN, SPAN, -SPAN, SPAN), cmap="magma", vmin=0)
    else:
        panel.imshow(_sheet(row["samples"]), cmap="gray", vmin=0, vmax=255)


def _sheet(images: list[list[list[int]]]) -> list[list[Any]]:
    """Images in rows of four."""
    return [[value for image in images[i : i + 4] for value in image[y]] for i in range(0, len(images), 4)
            for y in range(len(images[0]))]  # fmt: skip
