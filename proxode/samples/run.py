"""Which method solves a batch of independent problems: an explicit pair, BDF, or one after the other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from .. import logs
from ..methods.bdf import MAX_ORDER
from ..methods.explicit_tableaus import EXPLICIT
from ..methods.tableaus import ExplicitTableau
from . import explicit, multistep
from .apart import check_apart
from .batch import STIFF, Batch, Place

PAIRS = {name: tableau for name, tableau in EXPLICIT.items() if tableau.b_error is not None}


class Way(NamedTuple):
    """The pair that begins, if any, and the highest order of BDF for those that are stiff, if any are to be."""

    pair: ExplicitTableau | None
    max_order: int

    @property
    def adapts(self) -> bool:
        return self.pair is not None and self.max_order > 0


def way_of(method: Any) -> Way:
    if method is None or method == "auto":
        return Way(PAIRS["dopri5"], MAX_ORDER)
    if isinstance(method, str) and method in PAIRS:
        return Way(PAIRS[method], 0)
    found = re.fullmatch(r"bdf([1-5]?)", method) if isinstance(method, str) else None
    if found is None:
        raise ValueError(f"`per_sample` takes method 'auto', 'bdf', 'bdf1' to 'bdf5' or one of {', '.join(PAIRS)}, "
                         f"not {method!r}")  # fmt: skip
    return Way(None, int(found[1] or MAX_ORDER))


def run(batch: Batch, way: Way) -> tuple[list[Tensor], Place]:
    """The state at every output, and where every sample ended; what was not reached is nan."""
    outputs, place = batch.empty(), Place.of(batch)
    slope = batch.f(batch.t0, batch.y0)
    check_apart(batch, slope)
    if way.pair is not None:
        place = explicit.run(replace(batch, share=batch.reserve), way.pair, outputs, slope, leaving=way.adapts)
    if batch.observers and way.adapts:
        logs.STEPS.debug("%d of %d samples go on with bdf", int((place.code == STIFF).sum()), len(place.code))
    if way.max_order:
        place = multistep.run(batch, way.max_order, outputs, place, slope if way.pair is None else None)
    return outputs, place
