"""The picture of `gradients_coauthor`, drawn from its JSON report and from nothing else."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# After Paul Tol's "muted" scheme, distinct also to colour-blind readers.
COLOURS = ("#332288", "#4C9FD0", "#44AA99", "#117733", "#999933", "#CC6677", "#AA4499", "#DD7722", "#666666", "#882255")
RIVAL, DEFAULT = "#222222", "#CC3311"
PANELS = {"error_u0": "error of dL/du0", "error_theta": "error of dL/dθ"}


def draw(report: dict[str, Any], path: Path) -> None:
    families = list(dict.fromkeys(row["family"] for row in report["rows"]))
    styles = {family: _style(i, family) for i, family in enumerate(families)}
    figure = Figure(figsize=(11, 5.6), dpi=150)
    figure.subplots_adjust(left=0.07, right=0.75, bottom=0.17, top=0.9, wspace=0.24)
    for panel, (key, title) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        _panel(panel, report, key, title, styles)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.765, 0.9), frameon=False, fontsize=8)
    figure.text(0.07, 0.02, _note(report), fontsize=8, color="#555555", va="bottom")
    figure.savefig(path)


def _style(i: int, family: str) -> dict[str, Any]:
    if family.startswith("torchdiffeq"):
        return {"color": RIVAL, "marker": "X" if "adjoint" in family else "s", "ls": ":"}
    if "default" in family:
        marker = "P" if "adjoint" in family else "*" if "checkpoint" in family else "D"
        return {"color": DEFAULT, "marker": marker, "ls": ":", "ms": 10 if marker == "*" else 7}
    inner = "," in family
    marker = "v" if "store_graph" in family else "^" if inner else "o"
    return {"color": COLOURS[i % len(COLOURS)], "marker": marker, "ls": "--" if inner else "-"}


def _panel(panel: Axes, report: dict[str, Any], key: str, title: str, styles: dict[str, dict[str, Any]]) -> None:
    for family, style in styles.items():
        rows = [row for row in report["rows"] if row["family"] == family and row.get(key) is not None]
        if not rows:
            continue
        cost = [row["nfe_forward"] + row["nfe_backward"] for row in rows]
        label = family.replace(" odeint default", " default").removeprefix("proxode odeint ")
        panel.plot(cost, [row[key] for row in rows], label=label, **({"ms": 6, "lw": 1.3} | style))
    goal = report["goal"]["error"]
    panel.axhline(goal, color="#888888", lw=0.8, ls=(0, (6, 3)))
    right = panel.get_yaxis_transform()
    panel.text(0.99, goal, f"{goal:g}", transform=right, ha="right", va="bottom", color="#666666", fontsize=9)
    panel.set(xscale="log", yscale="log", xlabel="NFE, forward and backward together", ylabel="relative error")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda nfe, _: f"{nfe:,.0f}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.margins(x=0.08, y=0.08)
    panel.set_title(title, loc="left", fontsize=11)
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _note(report: dict[str, Any]) -> str:
    problem = report["problem"]
    name, end = problem["title"], problem["end"]
    note = f"GRAND on {name}, T = {end:g}, float32. Along a curve: more steps, or a lower tolerance."
    failed = [f"{row['family']} {row['setting']} ({row['error']})" for row in report["rows"] if row.get("error")]
    if failed:
        note += " No result: " + "; ".join(failed) + "."
    return "\n".join(textwrap.wrap(note, 165)[:3])
