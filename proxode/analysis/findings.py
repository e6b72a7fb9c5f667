"""What a user should know before anything else: what is wrong with f, or with the question."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..randomness import SAME
from ..rejections import FEW, REJECTED, reason
from ..status import Status
from .kinds import cut_off, to_go
from .named import about_the_method

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

DISAGREES = 0.05  # relative difference of a product and a difference quotient that is worth a word
GROWTH = 6.0  # orders of magnitude by which errors may grow forwards
SPREAD = 10.0  # largest over least gain of samples from where steps of their own pay
SMALLER = "give atol as a tensor, with entries below their own size"
UNSETTLED = 0.02  # of the radius: movement of the rim of Ritz values over the last products


def misled(d: Diagnosis) -> bool:
    """Whether autograd says something of f that differences of f do not."""
    return d.disagreement > DISAGREES and d.randomness <= SAME


def find(d: Diagnosis) -> Iterator[str]:
    yield from _about_the_solve(d)
    yield from _about_time(d)
    yield from _about_f(d)
    yield from _about_the_state(d)


def _about_the_solve(d: Diagnosis) -> Iterator[str]:
    stats, failure = d.path.stats, d.path.failure
    slow = failure is None or failure.status is Status.MAX_STEPS  # else it has a better reason
    if slow and d.randomness <= SAME and stats.n_steps >= FEW and stats.n_rejected > REJECTED * stats.n_steps:
        yield f"{stats.n_rejected:,} of {stats.n_steps:,} steps were rejected{reason(stats.steps)}"
    if d.path.failure is not None and d.randomness <= SAME:
        part = "nothing" if not d.steps else "less than 1%" if d.part < 0.01 else f"{d.part:.0%}"
        yield _cut(d, part) if cut_off(d) else (
            f"the solve failed at t = {d.reached:g} ({part} of the way), and what follows is about that part: "
            f"{str(d.path.failure).rstrip('.')}"
        )
    if d.randomness > SAME:
        yield (
            f"f is random: two values at the same place differ by {d.randomness:.1e}. No error can be controlled and "
            "no equation solved; put a module to eval() (dropout), or draw the noise once for a whole solve. What "
            f"follows is of the first {d.steps:,} steps, and means little"
        )
    if not d.places:
        yield "nothing could be probed: f or its derivative is not finite where the solve begins"
    if d.ok and d.sustained_orders > GROWTH:
        yield (
            f"a small change of y0 grows by about 10^{d.sustained_orders:.0f} more than the solution itself (measured "
            "along the way): no solver can follow one solution that far, and its gradient grows alike; a shorter "
            "interval, or several, may be what you want"
        )


def _cut(d: Diagnosis, part: str) -> str:
    """That it was not the equation which ended the solve, and what it would take to see the rest."""
    more = to_go(d)
    steps = f"some {more:,.0f} more" if more < 1e6 else f"{more:.0e} more"
    return (
        f"only the way up to t = {d.reached:g} was seen ({part} of it), for `max_steps` cut the solve off after "
        f"{d.path.stats.n_steps:,} steps: numbers for all of the way are as if the rest were like that. With steps as "
        f"long as the last one the rest takes {steps}; they may become longer. To see more of it raise `max_steps`, or "
        "loosen rtol and atol"
    )


def _about_f(d: Diagnosis) -> Iterator[str]:
    if d.places and not d.graph.of_state and d.radius > 0:
        yield (
            "autograd sees no dependence of f on y, though f depends on it: something detaches y (`.detach()`, "
            "`.item()`, numpy, torch.no_grad()); products were replaced by differences, and no gradient can pass"
        )
    elif misled(d):
        yield (
            f"a product with the Jacobian and a difference of f differ by {d.disagreement:.0%}: f may detach a part of "
            "y, have a wrong backward of its own, or bend or jump on the scale of a difference. Products were replaced "
            "by differences; gradients lack, or have wrong, what passes through that part"
        )
    elif d.places and d.products == "double_backward":
        yield "f does not admit forward mode: a product costs two backward passes instead of one forward"
    elif d.products == "difference" and d.radius > 0:
        yield "f admits neither forward mode nor double backward: products with its Jacobian are differences of f"
    if d.graph.of_state and not d.graph.of_others:
        yield "f uses no tensor that wants a gradient: a gradient will reach y0 and t only"
    worst = max((place.spectrum.moved for place in d.places), default=0.0)
    if worst > UNSETTLED:
        yield f"the rim of the spectrum still moved by {worst:.0%} of its radius: give a larger `krylov`"


def _about_time(d: Diagnosis) -> Iterator[str]:
    clock = d.clock
    if clock.jumps:
        times = ", ".join(in_full(t) for t in clock.jumps) + (" and more" if clock.more else "")
        yield f"f jumps in time, at t = {times}: steps may cross a jump without seeing it; give these times as `jump_t`"
    for a, b in clock.pulses:
        yield (
            f"f changes within t = {in_full(a, b)} to {in_full(b, a)}, which long steps may cross without seeing it: "
            "give both times as `jump_t`, where small steps begin anew, or a shorter `max_step`"
        )
    if clock.crossed is not None:
        a, b = clock.crossed
        yield (
            f"the solution that was computed does not fulfil the equation between t = {a:.6g} and {b:.6g}: one step "
            "went over all of such a change, and has seen nothing of it (later ones may have too)"
        )


def _about_the_state(d: Diagnosis) -> Iterator[str]:
    largest = d.path.largest.double()
    small = int(((largest < d.path.atol) & (largest > 0)).sum())
    if small:
        which = "the only component never exceeds" if d.n == 1 else f"{small} of {d.n} components never exceed"
        bound = f"atol = {d.atol:g}" if d.path.atol.numel() == 1 else "their entry of atol"
        yield (
            f"{which} {bound}: such values mean nothing at this tolerance; if they matter, "
            f"{'give a smaller one' if d.n == 1 else SMALLER}"
        )
    if d.t1 < d.t0:
        yield "t1 is before t0: the spectrum is that of the equation as it is integrated, -df/dy"
    if d.samples is not None and d.samples.independent and d.samples.spread > SPREAD:
        yield (
            f"the {d.samples.number} samples of dimension 0 are independent, and their rates differ by a factor of "
            f"{d.samples.spread:.2g}: `solve(..., per_sample=True)` gives each its own steps"
        )
    yield from about_the_method(d)


def in_full(t: float, other: float = math.inf) -> str:
    """A time to be copied, with the digits that tell it from another one."""
    digits = next((n for n in range(6, 17) if abs(float(f"{t:.{n}g}") - t) <= 0.01 * abs(t - other)), 17)
    return f"{t:.{digits}g}"
