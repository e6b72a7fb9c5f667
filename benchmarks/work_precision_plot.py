"""The picture of `work_precision`, drawn from its JSON report and from nothing else."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .shown import power

# Distinct also to colour-blind readers (after Okabe and Ito): warm and strong is ours, cool or grey the others.
STYLES: dict[str, tuple[str, str]] = {
    "proxode bdf, newton": ("#D55E00", "o"),
    "proxode bdf, matrix-free": ("#D55E00", "D"),
    "proxode auto": ("#CC2277", "*"),
    "proxode multistage3": ("#E69F00", "^"),
    "CVODE dense": ("#0072B2", "s"),
    "CVODE sparse": ("#0072B2", "h"),
    "CVODE GMRES": ("#0072B2", "P"),
    "CVODE GMRES, 100 vectors": ("#003B5C", "P"),
    "SciPy BDF": ("#009E73", "v"),
    "SciPy Radau": ("#56B4E9", "<"),
    "torchdiffeq dopri5": ("#555555", "X"),
}
LINES = {"dense": "-", "sparse": (0, (7, 1, 1, 1)), "matrix-free": (0, (4, 1.5)), "explicit": ":"}
COSTS = {"nfe": "NFE", "seconds": "seconds"}


def draw(report: dict[str, Any], path: Path) -> None:
    titles = {p["name"]: p["title"] for p in report["problems"]}
    rows = [r for r in report["rows"] if r["tol"] in report["tolerances"]]  # others serve the comparison at equal error
    names = [name for name in titles if any(row["problem"] == name for row in rows)]
    height = 3.1 * len(names) + 1.1
    figure = Figure(figsize=(11, height), dpi=130)
    figure.subplots_adjust(0.075, 0.75 / height, 0.775, 1 - 0.5 / height, wspace=0.12, hspace=0.42)
    panels = figure.subplots(len(names), len(COSTS), squeeze=False, sharey="row")
    for line, name in zip(panels, names, strict=True):
        here = [r for r in rows if r["problem"] == name]
        for panel, (cost, label) in zip(line, COSTS.items(), strict=True):
            _panel(panel, here, cost, label)
        line[0].set_ylabel("relative error", fontsize=9)
        line[0].set_title(titles[name], loc="left", fontsize=10.5)
        _failures(line[1], here)
    _legend(figure, rows)
    loosest, tightest = max(report["tolerances"]), min(report["tolerances"])
    note = (f"Tolerances from {power(loosest)} to {power(tightest)}. The error is the largest at the output times, in "
            "units of the largest value of each component.")  # fmt: skip
    figure.text(0.075, 0.12 / height, note, fontsize=8, color="#555555", va="bottom")
    figure.savefig(path)


def _panel(panel: Axes, rows: list[dict[str, Any]], cost: str, label: str) -> None:
    for solver, (colour, marker) in STYLES.items():
        mine = [r for r in rows if r["solver"] == solver and r["status"] == "SUCCESS" and r["error"]]
        if not mine:
            continue
        ours = mine[0]["library"] == "proxode"
        panel.plot([r[cost] for r in mine], [r["error"] for r in mine], color=colour, marker=marker,
                   ls=LINES[mine[0]["algebra"]], lw=1.7 if ours else 1.1, ms=_size(marker, ours),
                   mec="white", mew=0.5, zorder=3 if ours else 2)  # fmt: skip
    panel.set(xscale="log", yscale="log")
    panel.set_xlabel(label, fontsize=9, labelpad=2)
    panel.yaxis.set_major_locator(LogLocator(numticks=8))
    panel.yaxis.set_minor_formatter(NullFormatter())
    _numbers(panel)
    panel.tick_params(labelsize=8)
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _numbers(panel: Axes) -> None:
    """Plain numbers below the cost, as many of 1, 2, 5 as there is room for."""
    low, high = panel.get_xlim()
    decades = math.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 1.6 else (1.0, 3.0) if decades < 3.2 else (1.0,)
    panel.xaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:,.0f}" if cost >= 1 else f"{cost:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _size(marker: str, ours: bool) -> float:
    return (10 if marker == "*" else 6.5) if ours else 5.5


def _failures(panel: Axes, rows: list[dict[str, Any]]) -> None:
    """Who has no points, and at how many tolerances: an absent curve must not look like an absent run."""
    failed: dict[str, int] = {}
    for row in rows:
        if row["status"] != "SUCCESS":
            failed[row["solver"]] = failed.get(row["solver"], 0) + 1
    if failed:
        totals = {solver: sum(row["solver"] == solver for row in rows) for solver in failed}
        text = ", ".join(f"{solver} ({count} of {totals[solver]})" for solver, count in failed.items())
        lines = textwrap.wrap(f"no result: {text}", 74)
        panel.set_title("\n".join(lines), loc="left", fontsize=7.5, color="#777777", linespacing=1.05)


def _legend(figure: Figure, rows: list[dict[str, Any]]) -> None:
    present = [solver for solver in STYLES if any(row["solver"] == solver for row in rows)]
    handles = [Line2D([], [], color=STYLES[s][0], marker=STYLES[s][1], lw=1.5, ls=_line(s, rows), mec="white", mew=0.5,
                      ms=_size(STYLES[s][1], True), label=s) for s in present]  # fmt: skip
    kinds = [Line2D([], [], color="#333333", ls=line, lw=1.5, label=kind) for kind, line in LINES.items()]
    style: dict[str, Any] = {"loc": "upper left", "frameon": False, "fontsize": 9, "alignment": "left"}
    top = figure.subplotpars.top
    figure.legend(handles=handles, bbox_to_anchor=(0.785, top), handlelength=3.2, **style)
    drop = (0.3 + 0.22 * len(handles)) / figure.get_figheight()
    figure.legend(handles=kinds, bbox_to_anchor=(0.785, top - drop), handlelength=3.2, title="linear algebra", **style)


def _line(solver: str, rows: list[dict[str, Any]]) -> Any:
    """Its own line style; none in the legend where the size of the problem decides."""
    kinds = {row["algebra"] for row in rows if row["solver"] == solver}
    return LINES[kinds.pop()] if len(kinds) == 1 else "none"
