"""Tolerance against evaluations, forward and backward, and evaluations against the error of the gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..experiment import Picture, Report
from ..experiments.tolerance import METHODS
from ..style import LINES, MARKERS, colour, dress, labelled, save, side_legend
from .grand import plain

NAMES = {"adaptive_heun": "adaptive Heun", "dopri5": "DOPRI5", "dopri8": "DOPRI8", "auto": "ours: auto"}


def order(label: str) -> tuple[int, str]:
    """As in the paper, ours last."""
    return list(NAMES.values()).index(label.split(", ")[0]), label


def draw(report: Report, folder: Path) -> list[Picture]:
    setting = report["setting"]
    variants, places = setting["variants"], setting["places"]
    figure = Figure(figsize=(13, 0.9 + 3.4 * len(variants)), dpi=150)
    figure.subplots_adjust(left=0.065, right=0.83, bottom=0.09, top=0.95, wspace=0.26, hspace=0.34)
    panels = figure.subplots(len(variants), 3, squeeze=False)
    for (left, middle, right), variant in zip(panels, variants, strict=True):
        dress(left, f"{variant}: forward", "tolerance", "evaluations of f", log="xy")
        dress(middle, f"{variant}: backward", "tolerance", "vector-Jacobian products", log="xy")
        dress(right, f"{variant}: what it buys", "NFE, forward and backward", "error of the gradient", log="xy")
        for i, method in enumerate(METHODS):
            for j, place in enumerate(places):
                key = (variant, place, method, "SUCCESS")
                rows = [r for r in report["rows"] if (r["variant"], r["weights"], r["method"], r["status"]) == key]
                if not rows:
                    continue
                label = NAMES[method] + (f", {place}" if len(places) > 1 else "")
                style: dict[str, Any] = {
                    "color": colour(method), "ls": LINES[j], "marker": MARKERS[i], "ms": 5, "lw": 1.6, "label": label,
                }  # fmt: skip
                tols = [row["tol"] for row in rows]
                left.plot(tols, [row["nfe_forward"] for row in rows], **style)
                middle.plot(tols, [row["nfe_backward"] for row in rows], **style)
                cost = [row["nfe_forward"] + row["nfe_backward"] for row in rows]
                right.plot(cost, [row["error_whole"] for row in rows], **style)
        plain(left.yaxis, middle.yaxis, right.xaxis)
        for panel in (left, middle):
            panel.set_xlim(2 * max(setting["tolerances"]), min(setting["tolerances"]) / 2)  # tighter to the right
    side_legend(figure, dict(sorted(labelled(*panels.flat).items(), key=lambda item: order(item[0]))), 0.84)
    save(figure, folder, "tolerance")
    caption = "NFE of one gradient of GRAND against the tolerance. A point is missing where the solve failed."
    return [Picture("tolerance", caption)]
