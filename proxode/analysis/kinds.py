"""Whether an equation is stiff: what stability asks of an explicit method, beside the steps that accuracy took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

EASY, MILD, STIFF, UNKNOWN = "not stiff", "mildly stiff", "stiff", "unknown"

FAR_MORE = 2.0  # steps for stability over steps taken: the steps that were taken are not those of an explicit method
DEARER = 1.5  # evaluations for stability over those of the solve
HAS_A_SAY = 0.65  # steps for stability over steps taken, from where it is not accuracy alone that sets them;
BY_BDF = 0.4  # where most of them were taken by BDF
RIPPLE = 100.0  # |lambda| over the interval, over the way that the solution goes
UNRESOLVED = 1.0  # h |lambda| from which a step does not follow a mode


def kind_of(d: Diagnosis) -> str:
    if not d.places:
        return UNKNOWN
    part = abs(d.reached - d.t0) / d.span  # of the way: what is left of it is taken to be like that
    if not d.steps or part == 0:
        return STIFF if d.way > 1_000 else EASY
    asked, taken, spent = d.stability_steps, d.steps / part, d.nfe_solve / part
    if asked > FAR_MORE * taken and 6 * asked > DEARER * spent:
        return STIFF
    # Of steps of BDF it is not known how many accuracy would ask of an explicit method; `auto` took them for stability.
    enough = HAS_A_SAY if d.path.by_bdf <= d.steps / 2 else BY_BDF
    return MILD if asked > enough * taken else EASY


def ripples(d: Diagnosis) -> bool:
    """Whether BDF had to follow an oscillation that is fast and of little size: its way is far longer than that of the
    solution."""
    oscillates = d.imaginary > 10 * max(-d.left, d.right)
    return d.path.by_bdf > d.steps / 2 and oscillates and d.way > RIPPLE * d.motion


def fast_angle(d: Diagnosis) -> float:
    """Of the modes that the steps did not resolve and that do not grow: the largest angle from the negative axis in
    degrees, 90 where they oscillate undamped; 0 where there are none."""
    angles = [0.0]
    for place in d.places:
        z = place.h * place.spectrum.values
        fast = z[(z.abs() > UNRESOLVED) & (z.real <= 1e-3 * z.abs())]
        angles += [math.degrees(math.atan2(abs(v.imag), max(-v.real, 0.0))) for v in fast.tolist()]
    return max(angles)
