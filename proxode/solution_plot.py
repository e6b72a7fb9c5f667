"""The picture of a solve: its state over time, and below it the steps that were taken and those that were rejected."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .panels import dress
from .steps import Columns, Kind, Steps
from .summary import OUTPUTS, Solved, parts_of

CURVES = 10  # of the state, at most
POINTS = 1_000  # at which a dense solution is drawn
CROWDED = 5_000  # markers, from which they become pixels in a file of lines
EARLY = 0.01  # part of the interval within which half of the steps lie, if its times differ by orders of magnitude
# After Paul Tol's "muted" scheme, distinct also to colour-blind readers.
COLOURS = (
    "#332288", "#DD7722", "#44AA99", "#CC6677", "#4C9FD0", "#117733", "#AA4499", "#999933", "#661100", "#888888",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "h", "p")
RED, GREY = "#CC0000", "#777777"
EVENTS = (GREY, "#996633", "black")  # a colour for each, in turn
DASHES: tuple[Any, ...] = ("--", (0, (6, 2, 1, 2)), ":")
_SPARSE = "\nstates known at {} times only: give {}save_at, or dense=True"  # what a line between them would hide
LARGE = 1e3  # times the usual size: what a state that grows without bound is, before it fails
HUGE = 1e4  # and what no other state can be drawn beside


class Curve(NamedTuple):
    """One component of the state."""

    name: str
    values: Tensor
    row: int  # of its tensor: the sample, where there are samples
    colour: str
    style: str = "-"  # dashed: an imaginary part


def plot(solution: Solved, path: Any = None, axes: Any = None) -> Any:
    """Draw on the two axes that are given, or on those of a new figure."""
    if axes is None:
        upper, lower = _new_axes()
    else:
        upper, lower = _checked(axes)
    tried = solution.stats.steps.columns()
    _draw_state(upper, solution, tried)
    if solution.samples is None:
        _draw_steps(lower, solution, tried)
        _mark(upper, lower, solution)
        _same_times(upper, lower)
        _legend(lower)
    else:
        _draw_samples(lower, solution)
    figure = upper.figure
    if path is not None:
        figure.savefig(path)
    return figure


def _new_axes() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Solution.plot() needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(8.0, 6.0), dpi=150, layout="constrained")
    upper, lower = figure.subplots(2, 1)
    return upper, lower


def _checked(axes: Any) -> tuple[Any, Any]:
    try:
        upper, lower = axes
    except (TypeError, ValueError):
        upper = lower = None
    if not hasattr(upper, "axvline") or not hasattr(lower, "axvline"):
        raise TypeError("`axes` must be two matplotlib axes, for the state and for the steps")
    return upper, lower


# The state


def _draw_state(panel: Any, solution: Solved, tried: Columns) -> None:
    times, parts, between = _sampled(solution, tried)
    curves, note = curves_of(parts)
    sparse = not between and len(times) < OUTPUTS and solution.stats.n_accepted > len(times)
    for curve in curves:
        marker = "." if len(times) <= 60 and not between else ""
        face = {"linestyle": ":", "marker": "o", "markersize": 4.0} if sparse else {"linestyle": curve.style}
        panel.plot(times[:, curve.row] if times.dim() == 2 else times, curve.values, color=curve.colour, linewidth=1.2,
                   label=curve.name, **({"marker": marker} | face))  # fmt: skip
    if solution.samples is None and is_logarithmic(solution.stats.steps, tried):
        panel.set_xscale("log")
    usual = _usual(curves, LARGE if solution.failure is not None else HUGE)
    if usual is not None:
        panel.set_yscale("symlog", linthresh=usual)
    few = _SPARSE.format(len(times), "more times to " if len(times) > 2 else "") if sparse else ""
    dress(panel, _title(solution) + few, "t", note, log="")
    if len(curves) > 1:
        _legend(panel)


def _sampled(solution: Solved, tried: Columns) -> tuple[Tensor, list[Tensor], bool]:
    """Times and states to draw: the outputs, or points between them where the solution can be evaluated there."""
    taken = tried.of(tried.accepted)
    if solution.dense is not None and len(taken.h):
        steps: Steps = solution.stats.steps
        inside = taken.t1[:: max(1, len(taken.t1) // POINTS)]
        even = torch.linspace(steps.start, float(taken.t1[-1]), POINTS, dtype=torch.float64)
        last = float(taken.t1[-1])
        if solution.status.name == "EVENT":  # it is inside of the last step
            last = steps.sign * max(steps.sign * t for ts in solution.event_ts for t in ts.detach().tolist())
        times = torch.cat([even, inside]).clamp(min(steps.start, last), max(steps.start, last)).unique()
        with torch.no_grad():
            ys = solution.dense(times)
        return times, [y.detach().cpu() for y in (ys if isinstance(ys, tuple) else (ys,))], True
    parts = [part.detach().cpu() for part in parts_of(solution)]
    return solution.ts.detach().double().cpu(), parts, False


def curves_of(parts: Sequence[Tensor]) -> tuple[list[Curve], str]:
    """At most CURVES components of the state, and in words which. Of a large state they come from all over it: the one
    that varies most from the middle of each of as many equal ranges."""
    flat = torch.cat([part.reshape(len(part), -1).to(_wide(parts)) for part in parts], 1)
    names = list(_names(parts))
    most = CURVES // 2 if flat.is_complex() else CURVES
    chosen = range(flat.shape[1]) if flat.shape[1] <= most else _most_varied(flat, most)
    curves = []
    for (name, row, both), values, colour in ((names[i], flat[:, i], COLOURS[k]) for k, i in enumerate(chosen)):
        if both:
            curves.append(Curve(f"Re {name}", values.real, row, colour))
            curves.append(Curve(f"Im {name}", values.imag, row, colour, "--"))
        else:
            curves.append(Curve(name, values.real, row, colour))
    note = "state" if len(chosen) == flat.shape[1] else f"{len(chosen)} of {flat.shape[1]:,} components"
    return curves, note


def _usual(curves: Sequence[Curve], beyond: float) -> float | None:
    """The usual size of what is drawn, where some of it is beyond all measure."""
    sizes = torch.cat([curve.values for curve in curves]).abs()
    sizes = sizes[torch.isfinite(sizes) & (sizes > 0.0)]
    first = float(sizes[: max(1, len(sizes) // 10)].median()) if len(sizes) else 0.0
    return first if first and float(sizes.max()) > beyond * first else None


def _wide(parts: Sequence[Tensor]) -> torch.dtype:
    return torch.complex128 if any(part.is_complex() for part in parts) else torch.float64


def _most_varied(flat: Tensor, count: int) -> list[int]:
    moved = (flat - flat[:1]).abs().nan_to_num(0.0, 0.0, 0.0).amax(0)
    size = flat.shape[1]
    edges = [round(k * size / count) for k in range(count + 1)]
    ranges = [(low + (high - low) // 4, high - (high - low) // 4) for low, high in itertools.pairwise(edges)]
    return [low + int(moved[low:high].argmax()) for low, high in ranges]


def _names(parts: Sequence[Tensor]) -> Iterator[tuple[str, int, bool]]:
    """The name of each component, its first index, and whether it is complex."""
    for k, part in enumerate(parts):
        shape = part.shape[1:]
        whole = "y" if len(parts) == 1 else f"y[{k}]"
        for i in range(shape.numel()):
            index = [int(j) for j in torch.unravel_index(torch.tensor(i), shape)] if len(shape) else []
            name = whole + (f"[{', '.join(map(str, index))}]" if index else "")
            yield name, index[0] if index else 0, part.is_complex()


def _title(solution: Solved) -> str:
    stats = solution.stats
    rejected = f", {stats.n_rejected:,} rejected" if stats.n_rejected else ""
    steps = f"{stats.n_accepted:,} steps{rejected}"
    return f"{stats.steps.method}, {solution.status.name}: {steps}, {stats.nfe_forward:,} NFE"


# The steps


def _draw_steps(panel: Any, solution: Solved, tried: Columns) -> None:
    names = solution.stats.steps.names
    methods = {kind.method for kind in names.values()}
    for place, code in enumerate(sorted(names, key=lambda code: names[code])):
        steps = tried.of(tried.accepted & (tried.code == code))
        if len(steps.h):
            _scatter(panel, steps, MARKERS[place % len(MARKERS)], COLOURS[place % len(COLOURS)],
                     label=_kind(names[code], len(names) == 1 or methods != {solution.stats.steps.method}))  # fmt: skip
    refused = tried.of(~tried.accepted)
    if len(refused.h):
        _scatter(panel, refused, "x", RED, label="rejected")
    panel.set_yscale("log")
    if is_logarithmic(solution.stats.steps, tried):
        panel.set_xscale("log")
    more = solution.stats.steps.forgotten
    dress(panel, f"the first {more:,} steps were not kept" if more else "", "t", "step length h", log="")
    if not len(tried.h):
        panel.text(0.5, 0.5, "no step was taken", transform=panel.transAxes, ha="center", color=GREY)


def _kind(kind: Kind, named: bool) -> str:
    return f"{kind.method}, order {kind.order}" if named else f"order {kind.order}"


def _scatter(panel: Any, steps: Columns, marker: str, colour: str, label: str) -> None:
    crowded = len(steps.h) > CROWDED
    face = "none" if marker != "x" and not crowded else colour
    panel.plot(steps.t0, steps.h, linestyle="none", marker=marker, markersize=2.0 if crowded else 4.0, color=colour,
               markerfacecolor=face, markeredgewidth=0.9, label=label, rasterized=crowded, zorder=2.1)  # fmt: skip


def is_logarithmic(steps: Steps, tried: Columns) -> bool:
    """Do most of the steps lie at the very beginning of a time from zero on? Then a linear axis would show nothing."""
    taken = tried.of(tried.accepted)
    if steps.start < 0.0 or steps.sign < 0.0 or len(taken.h) < 2:
        return False
    return float(taken.t1.median()) - steps.start < EARLY * (steps.reached - steps.start)


def _draw_samples(panel: Any, solution: Solved) -> None:
    """Steps of one sample are not recorded: how many there were is."""
    samples = solution.samples
    numbers = torch.arange(len(samples.status))
    face = {"linestyle": "none", "markersize": 3.0}
    panel.plot(numbers, samples.n_accepted.cpu(), marker="o", color=COLOURS[0], label="accepted", **face)
    panel.plot(numbers, samples.n_rejected.cpu(), marker="x", color=RED, label="rejected", **face)
    failed = [i for i, status in enumerate(samples.status) if not status.ok]
    if failed:
        panel.plot(failed, samples.n_steps.cpu()[failed], marker="s", color="black", markerfacecolor="none",
                   linestyle="none", label="failed")  # fmt: skip
    panel.set_yscale("symlog", linthresh=10)
    dress(panel, "each sample has steps of its own", "sample", "steps", log="")
    _legend(panel)


# Marks, axes, legends


def _mark(upper: Any, lower: Any, solution: Solved) -> None:
    """Events, and where a solve failed."""
    for k, ts in enumerate(solution.event_ts):
        name = "event" if len(solution.event_ts) == 1 else f"event {k}"
        for j, t in enumerate(ts.detach().tolist()):
            for panel in (upper, lower):
                panel.axvline(t, color=EVENTS[k % len(EVENTS)], linewidth=0.9, linestyle=DASHES[k % len(DASHES)],
                              label=None if j else name, zorder=0.5)  # fmt: skip
    failure = solution.failure
    if failure is not None and math.isfinite(failure.t):
        for panel in (upper, lower):
            panel.axvline(failure.t, color=RED, linewidth=1.0, linestyle=":", zorder=0.5)
        lower.annotate(failure.status.name, (failure.t, 1.0), xycoords=("data", "axes fraction"), color=RED,
                       xytext=(-3, -3), textcoords="offset points", ha="right", va="top", fontsize=8)  # fmt: skip


def _same_times(upper: Any, lower: Any) -> None:
    ends = [*upper.get_xlim(), *lower.get_xlim()]
    for panel in (upper, lower):
        panel.set_xlim(min(ends), max(ends))


def _legend(panel: Any) -> None:
    """Right of the panel, where it hides nothing."""
    if not panel.get_legend_handles_labels()[0]:
        return
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, borderaxespad=0.0)
