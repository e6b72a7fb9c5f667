"""Does f jump in y, or end? Between two states the change of a continuous f shrinks with their distance, that of a
jump stays. A front that is steep, and a problem that is stiff, look like a jump to a step that is too long, and do not
to this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .norms import all_finite, largest
from .rough import rough_signs

FACTOR = 100.0  # from one distance to the next at which it is looked for, the first is that of a step
FAR = 0.01  # of the state: what is farther away concerns nobody
HALVES = 30  # of a distance; what is still there is no front
SMALL = 1e-3  # of f: a jump that is smaller is not what stops a solve
ULPS, LOUD = 8.0, 10.0  # from the state, where f tells how it is rounded; times that, from which a change is none of it
SIDES = (1.0, 4.0, 16.0)  # times the last distance: f on one side of a jump
LENGTHS = (1.0, 10.0, 100.0)  # of steps
EVEN = 0.1  # of the jump, by which it may differ there


class Jump(NamedTuple):
    """What f does between two states."""

    component: int  # of f, that changes most
    size: float
    apart: float  # the states


@torch.no_grad()
def undefined_near(f: Callable[[Any, Tensor], Tensor], t: float, y: Tensor, h: float) -> bool:
    """Has f no finite value ahead of y along its slope, at about the length of a step? An explicit step meets that in
    its stages, and only its refusal tells."""
    y = y.detach()
    slope = f(t, y).clone()
    return all_finite(slope) and not all(all_finite(f(t, y + length * h * slope)) for length in LENGTHS)


@torch.no_grad()
def jump_near(f: Callable[[Any, Tensor], Tensor], t: float, y: Tensor, h: float) -> Jump | None:
    """From y along its slope, for where steps of the length h get stuck f points to the jump; None if none is seen."""
    y = y.detach()
    slope, ulp = f(t, y).clone(), torch.finfo(y.dtype).eps * y.abs()
    floor = max(SMALL * largest(slope), LOUD * largest(f(t, y + ULPS * ulp * rough_signs(y, 7)) - slope))
    a, fa = y, slope
    while 0.0 < h * largest(slope) <= FAR * largest(y):
        b = y + h * slope
        fb = f(t, b).clone()
        found = _narrowed(lambda z: f(t, z).clone(), a, b, fa, fb, floor)
        if found is not None:
            return found
        a, fa, h = b, fb, FACTOR * h
    return None


def _narrowed(f: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, fa: Tensor, fb: Tensor, floor: float) -> Jump | None:
    """Bisection towards where f changes more, down to what is no longer a change, or one to which nothing leads up."""
    for _ in range(HALVES):
        if not largest(fb - fa) > floor:
            return None
        middle = torch.lerp(a, b, 0.5)
        if torch.equal(middle, a) or torch.equal(middle, b):
            break
        value = f(middle)
        if largest(value - fa) >= largest(fb - value):
            b, fb = middle, value
        else:
            a, fa = middle, value
    before, after = ([f(z + sign * k * (b - a)) for k in SIDES] for z, sign in ((a, -1.0), (b, 1.0)))
    step = (after[0] - before[0]).abs()
    size = largest(step)
    even = all(largest(x - side[0]) <= EVEN * size for side in (before, after) for x in side)
    return Jump(int(step.argmax()), size, largest(b - a)) if even and size > floor else None
