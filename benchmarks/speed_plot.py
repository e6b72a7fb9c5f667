"""The pictures of the speed benchmark, drawn from its JSON report and from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .speed_works import OURS

Rows = list[dict[str, Any]]
COLOURS = {
    OURS: "#332288", "proxode rkc2": "#88CCEE", "CVODE GMRES": "#117733", "diffrax Kvaerno5": "#CC6677",
    "SciPy BDF": "#999933", "torchdiffeq dopri5": "#DD7722", "torchode dopri5": "#AA4499",
}  # fmt: skip
MET, NOT_MET = "#332288", "#CC3311"
OF = {"seconds": "time", "seconds_per_nfe": "time per evaluation", "nfe": "evaluations"}


def draw(report: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(12.5, 6.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _ratios(left, [line for line in report["bounds"] if line["ratio"] is not None and line["what"] in OF])
    _diffusion(right, report["rows"])
    for panel in (left, right):
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.savefig(path)


def _ratios(panel: Any, lines: Rows) -> None:
    """Ours over theirs, each beside the bound that it is held to."""
    lines = lines[::-1]
    labels = [f"{line['title']}: {OF[line['what']]}\nagainst {line['against']}" for line in lines]
    places = range(len(lines))
    panel.hlines(places, [line["ratio"] for line in lines], 1.0, color="#dddddd", lw=2, zorder=0)
    panel.scatter([line["ratio"] for line in lines], places, s=36, zorder=3,
                  color=[MET if line["met"] else NOT_MET for line in lines])  # fmt: skip
    panel.scatter([line["at_most"] for line in lines], places, marker="|", s=120, color="#777777", zorder=2)
    for place, line in zip(places, lines, strict=True):
        panel.annotate(f"{line['ratio']:.2g}", (line["ratio"], place), xytext=(0, 7), textcoords="offset points",
                       ha="center", fontsize=7, color=MET if line["met"] else NOT_MET)  # fmt: skip
    panel.axvline(1.0, color="#bbbbbb", lw=1, ls=":")
    panel.set_yticks(list(places), labels, fontsize=7)
    panel.set_xscale("log")
    panel.set_xlabel("proxode over the other, at the same error (| the bound; red where it is not met)", fontsize=8)
    panel.set_title("Where proxode stands", loc="left")


def _diffusion(panel: Any, rows: Rows) -> None:
    """Seconds against the number of points, those of each library that got there."""
    done = [row for row in rows if row["work"].startswith(("diffusion_", "scaling_")) and row.get("seconds")]
    for solver, colour in COLOURS.items():
        mine = sorted({(row["size"], row["seconds"]) for row in done if row["solver"] == solver
                       and (row["work"].startswith("diffusion_") or solver == OURS)})  # fmt: skip
        best = {size: min(s for n, s in mine if n == size) for size, _ in mine}
        if best:
            panel.plot(list(best), list(best.values()), marker="o", ms=4, color=colour, label=solver)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("points")
    panel.set_ylabel("seconds")
    panel.set_title("Diffusion on a ring, T = 1, error at most 1e-6", loc="left")
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, frameon=False)
