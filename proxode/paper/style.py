"""How the pictures look: one colour for each method, everywhere; axes, legends, files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..panels import dress as dress  # for all who draw
from .files import write_atomically

# After Paul Tol's "muted" scheme, distinct also to colour-blind readers (cyan darker, for text on white).
COLOURS = (
    "#332288", "#4C9FD0", "#44AA99", "#117733", "#999933", "#CC6677", "#AA4499", "#DD7722", "#222222", "#888888",
)  # fmt: skip
METHODS = {
    "backward_euler": "#332288", "bdf1": "#332288", "crank_nicolson": "#4C9FD0", "bdf2": "#44AA99", "bdf3": "#117733",
    "bdf4": "#999933", "bdf5": "#661100", "multistage2": "#AA4499", "multistage3": "#882255", "sdirk4": "#CC6677",
    "bdf": "#222222", "auto": "#CC3311", "euler": "#000000", "dopri5": "#DD7722", "adaptive_heun": "#888888",
    "midpoint": "#888888", "heun2": "#888888", "rk4": "#CC6677", "bosh3": "#4C9FD0", "tsit5": "#AA4499",
    "dopri8": "#332288", "rkc2": "#117733",
}  # fmt: skip
GREY = "#777777"
FONT = 9
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
LINES = ("-", "--", "-.", ":")


def colour(method: str, index: int = 0) -> str:
    return METHODS.get(method, COLOURS[index % len(COLOURS)])


def power(value: float) -> str:
    """1e-3 and not 1e-03."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def side_legend(
    figure: Figure, handles: Mapping[str, Line2D], x: float, y: float = 0.5, title: str | None = None
) -> None:
    """A legend right of all panels."""
    figure.legend(
        list(handles.values()), list(handles), loc="center left", bbox_to_anchor=(x, y), frameon=False, fontsize=FONT,
        title=title, title_fontsize=FONT, alignment="left", labelspacing=0.8,
    )  # fmt: skip


def labelled(*panels: Axes) -> dict[str, Line2D]:
    """The lines that have a label, one for each label."""
    lines = [line for panel in panels for line in panel.get_lines()]
    return {str(line.get_label()): line for line in lines if not str(line.get_label()).startswith("_")}


def save(figure: Figure, folder: Path, stem: str) -> None:
    """As PNG and as PDF, each in one move; without dates, so that the same report gives the same files."""
    for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        content = io.BytesIO()
        figure.savefig(content, format=suffix, metadata=metadata)
        write_atomically(folder / f"{stem}.{suffix}", content.getvalue())
