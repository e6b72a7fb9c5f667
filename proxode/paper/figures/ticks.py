"""Ticks of logarithmic axes that may be shorter than a decade: 1, 2 and 5, as plain numbers."""

from __future__ import annotations

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator


def plain_ticks(*axes: Axis) -> None:
    for axis in axes:
        low, high = axis.get_view_interval()
        short = high / low < 60
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
        axis.set_major_formatter(FuncFormatter(_words))
        if short:
            axis.set_minor_locator(NullLocator())


def _words(value: float, place: int | None = None) -> str:
    return f"{value:,.0f}" if 1 <= value < 1e7 else f"{value:g}"
