"""Places on the way at which f was looked at, and what they say of all of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .spectrum import Spectrum

if TYPE_CHECKING:
    from .diagnosis import Diagnosis


@dataclass(frozen=True)
class Place:
    """A state on the way, and what f is like there. Times are the user's."""

    index: int  # steps before it
    t: float
    h: float  # of the step that leaves it, or at the end that came there; 0 where there was none
    by: str  # the method of that step
    spectrum: Spectrum
    limit: float  # the longest step for which dopri5 is stable here; may be infinite
    speed: float  # |f| over the largest |y| of the way: the rate at which the solution itself moves
    drift: float  # what another time changes in f here, relative

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        s = self.spectrum
        return {
            "step": self.index, "t": self.t, "h": self.h, "by": self.by, "radius": s.radius, "left": s.left,
            "right": s.right, "imaginary": s.imaginary, "stiffness_ratio": s.ratio, "zeros": s.zeros,
            "exact": s.exact, "asymmetry": s.asymmetry, "dopri5_limit": finite(self.limit), "speed": self.speed,
            "eigenvalues": [[z.real, z.imag] for z in s.values.tolist()],
        }  # fmt: skip


def integral(d: Diagnosis, rate: Callable[[Place], float], *, resolved: bool = False) -> float:
    """Of a rate over the interval. It is summed over the steps that were taken, and goes in a straight line from place
    to place over their numbers: steps crowd where things change. What was not reached is taken to be like the rest.

    A rate that the steps have to follow (`resolved`) is no larger in a step than it is in those of the places beside
    it: one that is large in a short jump does not reach into the long steps around it.
    """
    if not d.places:
        return math.nan
    rates = [rate(place) for place in d.places]
    moves = [place.h * rate(place) for place in d.places]
    total = covered = 0.0
    for i, stride in enumerate(d.path.strides):
        move = stride.h * _between(d.places, rates, i + 0.5)
        total += min(move, _between(d.places, moves, i + 0.5)) if resolved else move
        covered += stride.h
    return total * d.span / covered if covered > 0 else rates[0] * d.span


def _between(places: tuple[Place, ...], rates: list[float], index: float) -> float:
    after = next((k for k, place in enumerate(places) if place.index >= index), len(places) - 1)
    if after == 0:
        return rates[0]
    a, b = places[after - 1].index, places[after].index
    part = min(max((index - a) / (b - a), 0.0), 1.0)
    return (1 - part) * rates[after - 1] + part * rates[after]


def finite(value: float | None) -> float | None:
    """JSON has no infinity and no nan."""
    return value if value is not None and math.isfinite(value) else None
