"""The picture of a diagnosis: its spectrum over regions of stability, and the steps over time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..panels import dress
from .limits import horner
from .regions import all_methods, bdf, locus, polynomial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .diagnosis import Diagnosis

WIDE = 12.0  # |h lambda| up to which both axes are linear
LINEAR = 4.0  # and else up to where: the region of dopri5 is in there
GRID = 301
PLACES = 3  # and more have a scale of colours
METHODS = {"bdf": "#222222", "dopri5": "#DD7722", "ralston4": "#AA4499", "bosh3": "#4C9FD0"}  # after Tol's "muted"
BDF1, BDF2, LIMIT, REJECTED, GREY = "#332288", "#44AA99", "#117733", "#CC0000", "#777777"


def draw(d: Diagnosis, path: str | Path | None) -> Figure:
    """Two panels; as a file too if a path is given, whose ending says of which kind."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a picture needs matplotlib: pip install matplotlib", name=error.name
        ) from None
    figure = Figure(figsize=(11.5, 4.9), dpi=150)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.26, top=0.88, wspace=0.2)
    left, right = figure.subplots(1, 2)
    if not d.places:
        figure.suptitle("nothing could be probed: f or its derivative is not finite", fontsize=11)
    _spectrum(left, d)
    _steps(right, d)
    if path is not None:
        figure.savefig(path)
    return figure


# The spectrum


def _spectrum(panel: Axes, d: Diagnosis) -> None:
    kind = "eigenvalues" if d.exact else "Ritz values"
    dress(panel, f"spectrum: {kind} times the step h that was taken", "Re h λ", "Im h λ", log="")
    z = [place.h * place.spectrum.values for place in d.places]
    radius = max((float(each.abs().max()) for each in z), default=0.0)
    linear = radius <= WIDE
    low = min([-4.0, *(1.15 * float(each.real.min()) for each in z)])
    high = max([5.0, *(1.15 * float(each.real.max()) for each in z)])
    top = max([4.2, *(1.15 * float(each.imag.max()) for each in z)])
    if not linear:
        low, high, top = (1.6 * edge if abs(edge) > LINEAR else edge for edge in (low, high, top))
        for axis, edge in ((panel.xaxis, max(-low, high)), (panel.yaxis, top)):
            if _symlog(panel, axis, edge):
                axis.set_label_text(f"{axis.get_label_text()} (by decades beyond {LINEAR:g})")
    _regions(panel)
    _points(panel, d, z)
    panel.set_xlim(low, high)
    panel.set_ylim(-top, top)
    handles, _ = panel.get_legend_handles_labels()
    panel.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=2, frameon=False, fontsize=8.5,
        columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def _symlog(panel: Axes, axis: Any, edge: float) -> bool:
    """Linear up to LINEAR, then by decades, of which at most five get a number. False where all of it is linear."""
    which = axis.axis_name
    if edge <= LINEAR * 1.6:
        return False
    scale = panel.set_xscale if which == "x" else panel.set_yscale
    scale("symlog", linthresh=LINEAR, linscale=1.2)
    decades = range(1, int(math.log10(edge)) + 1)
    stride = max(1, math.ceil(len(decades) / 4))
    powers = [10.0**k for k in decades if k % stride == 0 or len(decades) <= 4]
    ticks = [*(-p for p in reversed(powers)), -2.0, 0.0, 2.0, *powers]
    axis.set_ticks(ticks, [_power(x) for x in ticks])
    axis.set_minor_locator(_none())
    return True


def _none() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _power(x: float) -> str:
    if abs(x) < 10:
        return f"{x:g}".replace("-", "\N{MINUS SIGN}")
    return f"${'-' if x < 0 else ''}10^{{{round(math.log10(abs(x)))}}}$"


def _regions(panel: Axes) -> None:
    """That of dopri5 filled; of the implicit methods the boundaries, outside of which they are stable."""
    panel.axvline(0, color="#bbbbbb", linewidth=0.8, zorder=1)
    panel.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=1)
    x = torch.linspace(-4.2, 1.2, GRID, dtype=torch.float64)
    y = torch.linspace(-4.2, 4.2, GRID, dtype=torch.float64)
    growth = horner(polynomial(all_methods()["dopri5"][1]), torch.complex(*torch.meshgrid(x, y, indexing="xy"))).abs()
    colour = METHODS["dopri5"]
    panel.contourf(x, y, growth, levels=[0.0, 1.0], colors=[colour], alpha=0.22, zorder=1)
    panel.contour(x, y, growth, levels=[1.0], colors=[colour], linewidths=1.4, zorder=2)
    panel.plot([], [], color=colour, lw=5, alpha=0.4, label="dopri5, stable inside")
    for k, line, name in ((1, BDF1, "backward Euler"), (2, BDF2, "BDF2")):
        curve = locus(bdf(k))
        panel.plot(curve.real, curve.imag, color=line, lw=1.3, zorder=2, label=f"{name}, stable outside")


def _points(panel: Axes, d: Diagnosis, z: list[Tensor]) -> None:
    if not z:
        return
    from matplotlib import colormaps

    shades = colormaps["viridis"]
    for i, (place, each) in enumerate(zip(d.places, z, strict=True)):
        shade = shades(0.9 * i / max(len(z) - 1, 1))
        first_or_last = i in (0, len(z) - 1)
        when = ("first place" if i == 0 else "last place") + f", t = {_time(place.t)}, h = {place.h:.2g}"
        panel.plot(
            each.real, each.imag, "o", ms=4.5, mec="white", mew=0.4, color=shade, zorder=4, clip_on=False,
            label=when if first_or_last else None,
        )  # fmt: skip
    if len(z) >= PLACES:
        _scale(panel, [shades(0.9 * i / (len(z) - 1)) for i in range(len(z))], [place.t for place in d.places])


def _scale(panel: Axes, colours: list[Any], times: list[float]) -> None:
    """A small bar: the colour of each place, and the times of some."""
    bar = panel.inset_axes((0.03, 0.93, 0.3, 0.03))
    bar.imshow([colours], aspect="auto", interpolation="nearest")
    shown = sorted({0, len(times) // 2, len(times) - 1})
    bar.set_xticks(shown, [_time(times[i]) for i in shown], fontsize=7.5)
    bar.set_yticks([])
    bar.tick_params(length=2, pad=1)
    bar.spines[:].set_visible(False)
    bar.set_title("places, by their t", fontsize=7.5, loc="left", pad=2)


def _time(t: float) -> str:
    return f"{t:.0f}" if 100 <= abs(t) < 1e5 else f"{t:.3g}"


# Steps over time


def _steps(panel: Axes, d: Diagnosis) -> None:
    dress(panel, "steps taken, and the longest that dopri5 could take", "t", "h", log="")
    if not d.steps:
        panel.text(0.5, 0.5, "no step could be taken", transform=panel.transAxes, ha="center", color=GREY)
        return
    by_log = _spread_in_time(d)
    for name in d.path.shares:
        mine = [stride for stride in d.path.strides if stride.method == name]
        ts = [abs(stride.t1 - d.t0) if by_log else stride.t1 for stride in mine]
        size, colour = 3.5 if d.steps < 400 else 2.2, METHODS.get(name, GREY)
        panel.plot(ts, [s.h for s in mine], "o", ms=size, mew=0, color=colour, label=f"taken by {name}")
    refused = [step for step in d.path.stats.steps if not step.accepted]
    if refused:
        ts = [abs(step.t1 - d.t0) if by_log else step.t1 for step in refused]
        panel.plot(ts, [step.h for step in refused], "x", ms=4, mew=0.9, color=REJECTED, label="rejected")
    limited = [place for place in d.places if math.isfinite(place.limit)]
    if limited:
        ts = [abs(place.t - d.t0) if by_log else place.t for place in limited]
        panel.plot(ts, [place.limit for place in limited], "-", color=LIMIT, lw=1.2, marker="v", ms=5, zorder=4,
                   label="dopri5, limit of stability")  # fmt: skip
    panel.set_yscale("log")
    _room(panel)
    if by_log:
        panel.set_xscale("log")
        panel.set_xlabel("t" if d.t0 == 0 and d.t1 > 0 else "|t - t0|")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=2, frameon=False, fontsize=8.5)


def _room(panel: Axes) -> None:
    """At least two decades, so that equal steps are not drawn as noise, and numbers at whole decades."""
    from matplotlib.ticker import NullFormatter

    low, high = panel.get_ylim()
    if high / low < 200:
        middle = math.sqrt(low * high)
        panel.set_ylim(middle / 14, middle * 14)
    panel.yaxis.set_minor_formatter(NullFormatter())


def _spread_in_time(d: Diagnosis) -> bool:
    """Whether half of the steps lie in the first thousandth of the interval."""
    ends = [abs(stride.t1 - d.t0) for stride in d.path.strides]
    return ends[len(ends) // 2] < 1e-3 * ends[-1]
