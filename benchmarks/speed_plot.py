"""The pictures of the speed benchmark, drawn from its JSON report and from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .speed_works import OURS

Rows = list[dict[str, Any]]
ALONE = "proxode, without matrices"
COLOURS = {
    OURS: "#332288", ALONE: "#6655BB", "proxode rkc2": "#88CCEE", "CVODE GMRES": "#117733",
    "CVODE GMRES, 100 vectors": "#44AA99", "diffrax Kvaerno5": "#CC6677", "SciPy BDF": "#999933",
    "SciPy BDF, told the zeros": "#DDCC77", "torchdiffeq dopri5": "#DD7722", "torchode dopri5": "#AA4499",
}  # fmt: skip
MET, NOT_MET = "#332288", "#CC3311"
OF = {"seconds": "time", "seconds_per_nfe": "time per evaluation", "nfe": "evaluations"}


def draw(report: dict[str, Any], path: Path) -> None:
    lines = [line for line in report["bounds"] if line["ratio"] is not None and line["what"] in OF]
    figure = Figure(figsize=(14, 2.0 + 0.27 * max(len(lines), 14)), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
    _ratios(left, lines)
    _diffusion(right, report["rows"])
    for panel in (left, right):
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.savefig(path)


def _ratios(panel: Any, lines: Rows) -> None:
    """Ours over theirs, each beside the bound that it is held to."""
    lines = lines[::-1]
    labels = [f"{line['title']}: {OF[line['what']]}, {line['against']}" for line in lines]
    places = range(len(lines))
    panel.hlines(places, [line["ratio"] for line in lines], 1.0, color="#dddddd", lw=2, zorder=0)
    panel.scatter([line["ratio"] for line in lines], places, s=36, zorder=3,
                  color=[MET if line["met"] else NOT_MET for line in lines])  # fmt: skip
    panel.scatter([line["at_most"] for line in lines], places, marker="|", s=120, color="#777777", zorder=2)
    for place, line in zip(places, lines, strict=True):
        panel.annotate(f"{line['ratio']:.2g}", (line["ratio"], place), xytext=(-7, 0), textcoords="offset points",
                       ha="right", va="center", fontsize=7, color=MET if line["met"] else NOT_MET)  # fmt: skip
    panel.axvline(1.0, color="#bbbbbb", lw=1, ls=":")
    panel.set_yticks(list(places), labels, fontsize=7)
    panel.set_xscale("log")
    panel.set_xlim(min(line["ratio"] for line in lines) / 8 if lines else None)
    panel.set_xlabel("proxode over the other, at the same error (| the bound; red: not met)", fontsize=8)
    panel.set_title("Where proxode stands", loc="left", fontsize=11)


def _diffusion(panel: Any, rows: Rows) -> None:
    """Seconds against the number of points, those of each library that got there."""
    for name, colour in COLOURS.items():
        work, solver = ("scaling_", OURS) if name == ALONE else ("diffusion_", name)
        mine = sorted((row["size"], row["seconds"]) for row in rows
                      if row["work"].startswith(work) and row["solver"] == solver and row.get("seconds"))  # fmt: skip
        if mine:
            panel.plot(*zip(*mine, strict=True), marker="o", ms=4, color=colour, label=name,
                       ls="--" if name == ALONE else "-")  # fmt: skip
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("points")
    panel.set_ylabel("seconds")
    panel.set_title("Diffusion on a ring, T = 1, error at most 1e-6", loc="left", fontsize=11)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(0.02, 0.71))
