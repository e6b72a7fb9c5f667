"""Loss against time and against evaluations, and what was learned beside the truth: a row for each model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiment import Picture, Report, Row
from ..experiments.stiff import MODELS
from ..style import FONT, dress, labelled, save, side_legend
from .ticks import plain_ticks

SHADES = {
    "proxode auto": "#CC3311", "proxode bdf2": "#44AA99", "torchdiffeq odeint": "#DD7722",
    "torchdiffeq odeint_adjoint": "#888888", "diffrax Kvaerno5": "#332288",
}  # fmt: skip
MARKS = {"proxode auto": "o", "proxode bdf2": "D", "torchdiffeq odeint": "s", "torchdiffeq odeint_adjoint": "v",
         "diffrax Kvaerno5": "^"}  # fmt: skip
TRUTH: dict[str, Any] = {"color": "#bbbbbb", "lw": 4.0}
LEARNED: dict[str, Any] = {"color": "#CC3311", "lw": 1.4}


def draw(report: Report, folder: Path) -> list[Picture]:
    names = [name for name in MODELS if any(row["model"] == name for row in report["rows"])]
    figure = Figure(figsize=(14, 3.7 * len(names)), dpi=130)
    panels = figure.subplots(len(names), 3, squeeze=False)
    for (time, calls, seen), name in zip(panels, names, strict=True):
        rows = [row for row in report["rows"] if row["model"] == name]
        title = report["problem"]["models"][name]
        dress(time, title, "seconds of training", "loss", log="xy")
        dress(calls, "", "evaluations and products (NFE)", "loss", log="xy")
        for row in rows:
            _curve(time, row, _sums(row["history"]["seconds"]))
            _curve(calls, row, _sums(map(sum, zip(*(row["history"][f"nfe_{way}"] for way in ("forward", "backward")),
                                                  strict=False))))  # fmt: skip
        _stopped(time, rows)
        plain_ticks(time.xaxis, time.yaxis, calls.xaxis, calls.yaxis)
        _learned(seen, name, rows)
    figure.subplots_adjust(left=0.06, right=0.83, bottom=0.2 / len(names), top=1 - 0.12 / len(names), hspace=0.4,
                           wspace=0.3)  # fmt: skip
    lines = labelled(*panels[:, 0])
    side_legend(figure, {name: lines[name] for name in SHADES if name in lines}, 0.84)
    save(figure, folder, "stiff")
    return [
        Picture(
            "stiff",
            "Training stiff models: loss against time (compiling left out) and against evaluations (diffrax counts "
            "none), and what was learned beside the truth. A dotted line: stopped, or failed, in its first step.",
        )
    ]


def _sums(values: Iterable[float]) -> list[float]:
    return list(accumulate(values))


def _curve(panel: Axes, row: Row, costs: list[float]) -> None:
    losses = row["history"]["loss"]
    if losses and len(costs) == len(losses):
        panel.plot(costs, losses, color=SHADES[row["method"]], lw=1.4, marker=MARKS[row["method"]], ms=4,
                   markevery=max(len(losses) // 12, 1), label=row["method"])  # fmt: skip


def _stopped(panel: Axes, rows: list[Row]) -> None:
    for row in rows:
        if not row["steps"] and "seconds_last" in row:
            panel.axvline(row["seconds_last"], color=SHADES[row["method"]], ls=":", label=row["method"])


def _learned(panel: Axes, name: str, rows: list[Row]) -> None:
    """Of our own training; the last one that has something to show."""
    ours = [row["curves"] for row in rows if row["method"].startswith("proxode") and row.get("curves")]
    if not ours:
        panel.set_axis_off()
        return
    {"allen_cahn": _allen_cahn, "robertson": _robertson, "van_der_pol": _van_der_pol}[name](panel, ours[-1])
    panel.legend(frameon=False, fontsize=FONT - 1, loc="best")


def _allen_cahn(panel: Axes, shown: dict[str, list[float]]) -> None:
    dress(panel, "the learned reaction", "u", "R(u)", log="")
    panel.plot(shown["u"], shown["true_R"], **TRUTH, label="5 (u - u³)")
    panel.plot(shown["u"], shown["R"], **LEARNED, label="network")
    panel.axvspan(min(shown["start"]), max(shown["start"]), color="#f3f3f3", zorder=0, label="seen in the data")


def _robertson(panel: Axes, shown: dict[str, list[float]]) -> None:
    dress(panel, "the learned kinetics on their own", "log10 t", "scaled concentrations", log="")
    for name in "abc":
        panel.plot(shown["log_t"], shown[f"true_{name}"], **TRUTH, label="truth" if name == "a" else "_")
        if name in shown:
            panel.plot(shown["log_t"], shown[name], **LEARNED, label="learned" if name == "a" else "_")
    panel.set_ylim(-0.15, 1.25)


def _van_der_pol(panel: Axes, shown: dict[str, list[float]]) -> None:
    dress(panel, "the learned oscillator on its own, two periods", "t", "x", log="")
    panel.plot(shown["t"], shown["true_x"], **TRUTH, label="truth")
    panel.plot(shown["data_t"], shown["data_x"], ".", color="#222222", ms=3, label="data")
    if "x" in shown:
        panel.plot(shown["t"], shown["x"], **LEARNED, label="learned")
    panel.set_ylim(-3, 3)
