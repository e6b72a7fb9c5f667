"""Whether an equation is stiff: what stability asks of an explicit method, beside the steps that accuracy took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..randomness import SAME
from ..status import Status

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

EASY, MILD, STIFF, UNKNOWN = "not stiff", "mildly stiff", "stiff", "unknown"
OSCILLATORY = "oscillatory"  # undamped oscillations set the step of an explicit method: nothing decays fast

FAR_MORE = 2.0  # steps for stability over steps taken: the steps that were taken are not those of an explicit method
DEARER = 1.5  # evaluations for stability over those of the solve
HAS_A_SAY = 0.65  # steps for stability over steps taken, from where it is not accuracy alone that sets them;
BY_BDF = 0.4  # where most of them were taken by BDF
TURN, TURN_BY_BDF = 1.6, 0.5  # h |lambda| of undamped modes that are faster than what accurate steps follow
RIPPLE = 100.0  # |lambda| over the interval, over the way that the solution goes
UNDAMPED = 10.0  # |Im| over |Re|, from where modes oscillate more than they decay or grow
ALONG = 0.1  # the same, up to where a spectrum lies along the negative axis
UNRESOLVED = 1.0  # h |lambda| from which a step does not follow a mode
SEEN = 0.5  # part of the way from where the rest of a solve that was cut off is taken to be like it


def kind_of(d: Diagnosis) -> str:
    if not d.places or d.randomness > SAME:
        return UNKNOWN
    if not d.steps or d.part == 0:
        return STIFF if d.way > 1_000 and not cut_off(d) else UNKNOWN
    asked, taken, spent = d.stability_steps, d.steps / d.part, d.nfe_solve / d.part  # what is left is taken to be alike
    beyond = not is_implicit(d) and undamped(d)  # such modes grow slowly there, and the error test copes with them
    if asked > FAR_MORE * taken and 6 * asked > DEARER * spent and not beyond:
        return STIFF
    if unseen(d):
        return UNKNOWN
    if oscillates(d) or ripples(d):
        return OSCILLATORY
    # Of steps of BDF it is not known how many accuracy would ask of an explicit method; `auto` took them for stability.
    enough = HAS_A_SAY if d.path.by_bdf <= d.steps / 2 else BY_BDF
    return MILD if asked > enough * taken else EASY


def cut_off(d: Diagnosis) -> bool:
    """Whether the solve could have gone on, and was not let."""
    return d.path.failure is not None and d.path.failure.status is Status.MAX_STEPS


def unseen(d: Diagnosis) -> bool:
    """Whether most of the way of a solve that was cut off is before it: by its length, or by the steps that it would
    take, which had become short. A start is where accuracy asks for short steps, however stiff what follows is."""
    return cut_off(d) and (d.part < SEEN or to_go(d) > d.steps)


def to_go(d: Diagnosis) -> float:
    """Steps for the rest of the way, if they are as long as the last that was tried."""
    last = next((abs(step.h) for step in reversed(list(d.path.stats.steps))), 0.0)
    return (1.0 - d.part) * d.span / last if last > 0 else math.inf


def ripples(d: Diagnosis) -> bool:
    """Whether BDF had to follow an oscillation that is fast and of little size: its way is far longer than that of the
    solution."""
    return is_implicit(d) and undamped(d) and d.way * d.part > RIPPLE * d.motion


def oscillates(d: Diagnosis) -> bool:
    """Whether undamped oscillations, and not accuracy alone, set the step of an explicit method."""
    radians = TURN_BY_BDF if is_implicit(d) else TURN  # steps of BDF are shorter than accurate explicit ones
    return undamped(d) and d.way * d.part > radians * d.steps


def undamped(d: Diagnosis) -> bool:
    """Whether the modes oscillate and hardly decay."""
    return d.imaginary > UNDAMPED * max(-d.left, d.right)


def is_implicit(d: Diagnosis) -> bool:
    """Whether most of the steps were implicit."""
    return d.path.by_bdf > d.steps / 2


def near_axis(d: Diagnosis) -> bool:
    """Whether the eigenvalues lie along the negative axis at all places, as those of diffusion do."""
    return bool(d.places) and d.left < 0 and all(
        place.spectrum.imaginary <= ALONG * -place.spectrum.left for place in d.places
    )  # fmt: skip


def fast_angle(d: Diagnosis) -> float:
    """Of the modes that the steps did not resolve and that do not grow: the largest angle from the negative axis in
    degrees, 90 where they oscillate undamped; 0 where there are none."""
    angles = [0.0]
    for place in d.places:
        z = place.h * place.spectrum.values
        fast = z[(z.abs() > UNRESOLVED) & (z.real <= 1e-3 * z.abs())]
        angles += [math.degrees(math.atan2(abs(v.imag), max(-v.real, 0.0))) for v in fast.tolist()]
    return max(angles)


def known_back(d: Diagnosis) -> tuple[float, str]:
    """Orders of magnitude by which errors grow in a state that is integrated backwards, and how they are known: they
    were "measured", are the "least", for what comes together forwards runs apart backwards, or those of "frozen"
    eigenvalues, which only stiff equations grow by: elsewhere J turns, and they may be off by any number. 0 and "" if
    nothing is known."""
    if d.growth is not None and math.isfinite(d.growth.back):
        return d.backward_orders, "measured"
    if kind_of(d) == STIFF:
        return d.backward_orders, "frozen"
    return (-d.growth.end, "least") if d.growth is not None and d.growth.end < 0 else (0.0, "")
