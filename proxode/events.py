"""Events: where a function of time and state changes its sign along the solution.

An event is an output time that is found on the way. The signs at both ends of each accepted step tell that there is
one, and the root is found on the interpolant of that step. From there on it is an output like any other: the state
there is read off the step, and every gradient differentiates it as it does the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .calls import check_call, check_func
from .duals import dual_level
from .norms import rms_norm
from .roots import find_root
from .times import Time, number
from .vector_field import VectorField

Curve = Callable[[Time], Tensor]  # the solution within a step

ROOM = 64.0  # ulps within which a function is zero where the solve starts: an event that it was restarted from
PROBE = 1.0 / 16  # part of a step after which the sign of a function that was zero at its start is known


@dataclass(frozen=True)
class Event:
    """`fn(t, y)` changes its sign.

    Args:
        fn: gets time and state as func does and returns a real tensor. If that has several elements, the event is at
            each of them that changes its sign.
        terminal: whether the solve ends there.
        direction: 1 for events at which fn rises in the direction of integration, -1 for those at which it falls,
            0 for both.

    A function that is zero, to rounding, where the solve starts has no event there: a ball thrown up from the ground
    has not just landed. Signs are compared at the ends of steps: two roots of one function within one step cancel
    and are not seen, unless `max_step` (or a fixed step) keeps the steps shorter than the time between them.
    """

    fn: Callable[[Tensor, Any], Tensor]
    terminal: bool = True
    direction: int = 0

    def __post_init__(self) -> None:
        check_function(self.fn, "fn")
        if not isinstance(self.terminal, bool):
            raise TypeError(f"`terminal` of an Event must be True or False, not {self.terminal!r}")
        if isinstance(self.direction, bool) or self.direction not in (-1, 0, 1):
            raise ValueError(f"`direction` of an Event must be -1, 0 or 1, not {self.direction!r}")

    def values(self, f: VectorField, t: Time, y: Tensor) -> Tensor:
        """fn at an inner time and a flat state, as one row of numbers."""
        out = self.fn(f.time(t, y), f.structure.restore(y))
        if not isinstance(out, Tensor) or not out.is_floating_point() or out.numel() == 0:
            got = f"a tensor of {out.dtype}, {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise TypeError(
                f"an event function must return a tensor of real numbers that change their sign, but it returned {got}"
            )
        return out.reshape(-1)


def events_of(event: Any) -> tuple[Event, ...]:
    """What the user gave as `event`: an Event, a function, or several of them."""
    if event is None:
        return ()
    if isinstance(event, Event):
        return (event,)
    if isinstance(event, tuple | list):
        if any(isinstance(part, tuple | list) or not (isinstance(part, Event) or callable(part)) for part in event):
            raise TypeError("`event` must hold proxode.Event objects or functions event(t, y)")
        return tuple(events_of(part)[0] for part in event)
    if not callable(event):
        raise TypeError(
            f"`event` must be a proxode.Event, a function or a sequence of them, not {type(event).__name__}"
        )
    return (Event(check_function(event, "event")),)


def check_function(fn: Any, argument: str) -> Callable[[Tensor, Any], Tensor]:
    """fn, if it can be called as one of an event. Of `(y, t)` it might run, and find another event."""
    check_func(fn, argument)
    check_call(fn, argument)
    return fn


@dataclass(frozen=True)
class Crossing:
    """An event that was found: at the inner time t, by one component of one function."""

    event: int
    component: int
    t: float
    velocity: Tensor  # of the interpolant at t, by which the state moves with the time of the event
    terminal: bool
    row: int = -1  # among the outputs


def as_output(
    crossing: Crossing, ts: tuple[Time, ...], asked: list[bool]
) -> tuple[tuple[Time, ...], list[bool], Crossing]:
    """The output times with that of the crossing among them, whether each was asked for, and the crossing with its
    row. A terminal one is the last. A time that was asked for and is the same stays beside it: it may want a gradient,
    which that of the crossing does not."""
    row = next((row for row, t in enumerate(ts) if number(t) > crossing.t), len(ts))
    later = ([], []) if crossing.terminal else (list(ts[row:]), asked[row:])
    return (*ts[:row], crossing.t, *later[0]), [*asked[:row], False, *later[1]], replace(crossing, row=row)


@dataclass(frozen=True)
class Watch:
    """The functions at the end of the last step. A sign of zero is that of a function that was zero there: when it
    leaves, that is no event."""

    events: tuple[Event, ...]
    f: VectorField
    start: float
    owners: tuple[tuple[int, int], ...]  # event and component of each value
    values: tuple[float, ...]
    signs: tuple[int, ...]
    noise: tuple[float, ...]  # of each value where the solve starts

    def after(self, t0: float, t1: float, y1: Tensor, curve: Curve) -> tuple[Watch, list[Crossing]]:
        """The watch at the end of a step from t0 to t1, and what was found in it, in order of time, up to the first
        that is terminal."""
        values = _evaluate(self.events, self.f, t1, y1, self.owners)
        before = [(t0, v, s) for v, s in zip(self.values, self.signs, strict=True)]
        following = replace(self, values=values, signs=tuple(map(_sign, values)))
        if not any(_differ(s, v) for (_, _, s), v in zip(before, values, strict=True)):
            return following, []
        curve(t1)  # what it has to evaluate it keeps, so that comes first and in the present mode of autograd
        if 0 in self.signs:
            before = self._left(t0, t1, curve, before)
        found = []
        for i, ((a, ga, sign), gb) in enumerate(zip(before, values, strict=True)):
            event, component = self.owners[i]
            if sign and _differ(sign, gb) and self.events[event].direction in (0, -sign):
                t = find_root(lambda t, i=i: self._at(t, curve)[i], a, t1, ga, gb)  # type: ignore[misc]
                if t - self.start > ROOM * math.ulp(self.start):
                    found.append((t, event, component))
        return following, self._in_order(found, curve)

    def _in_order(self, found: list[tuple[float, int, int]], curve: Curve) -> list[Crossing]:
        found = sorted(found)
        end = next((t for t, event, _ in found if self.events[event].terminal), math.inf)
        return [
            Crossing(event, component, t, _velocity(curve, t), self.events[event].terminal)
            for t, event, component in found
            if t <= end
        ]

    def _left(
        self, t0: float, t1: float, curve: Curve, before: list[tuple[float, float, int]]
    ) -> list[tuple[float, float, int]]:
        """Functions that were zero at t0 a little later, where their sign is known."""
        t = t0 + PROBE * (t1 - t0)
        later = self._at(t, curve)
        return [
            known if known[2] else (t, value, _sign(value) if abs(value) > noise else 0)
            for known, value, noise in zip(before, later, self.noise, strict=True)
        ]

    def _at(self, t: float, curve: Curve) -> tuple[float, ...]:
        with torch.no_grad():
            y = curve(t)
        return _evaluate(self.events, self.f, t, y, self.owners)


def begin_watch(events: tuple[Event, ...], f: VectorField, t0: Time, y0: Tensor) -> Watch:
    t, y = number(t0), y0.detach()
    with torch.no_grad():
        counts = [event.values(f, t, y).numel() for event in events]
    owners = tuple((i, j) for i, count in enumerate(counts) for j in range(count))
    values = _evaluate(events, f, t, y, owners)
    noise = _noise(events, f, t, y, owners, values)
    signs = tuple(_sign(v) if abs(v) > n else 0 for v, n in zip(values, noise, strict=True))
    return Watch(events, f, t, owners, values, signs, noise)


def _noise(
    events: tuple[Event, ...], f: VectorField, t: float, y: Tensor, owners: tuple[tuple[int, int], ...],
    values: tuple[float, ...],
) -> tuple[float, ...]:  # fmt: skip
    """What a few ulps of time and state do to each value. A component that is zero has the ulps of the whole state."""
    little = ROOM * torch.finfo(y.dtype).eps
    generator = torch.Generator(device="cpu").manual_seed(11)
    weights = torch.randn(y.shape, generator=generator, dtype=torch.float64, device="cpu").to(y)
    moved = _evaluate(events, f, t + little * abs(t), y + little * rms_norm(y) * weights, owners, check=False)
    changes = (abs(a - b) for a, b in zip(moved, values, strict=True))
    return tuple(change if math.isfinite(change) else 0.0 for change in changes)


def _evaluate(
    events: Sequence[Event], f: VectorField, t: Time, y: Tensor, owners: tuple[tuple[int, int], ...], check: bool = True
) -> tuple[float, ...]:
    with torch.no_grad():
        values = [v for event in events for v in event.values(f, t, y.detach()).tolist()]
    if len(values) != len(owners):
        raise ValueError(f"the event functions returned {len(values)} values, and {len(owners)} where the solve began")
    if check and any(map(math.isnan, values)):
        event = owners[list(map(math.isnan, values)).index(True)][0]
        raise ValueError(f"event function {event} is nan at t = {f.user_time(t):.6g}: it must have a sign everywhere")
    return tuple(values)


def _sign(value: float) -> int:
    return (value > 0.0) - (value < 0.0)


def _differ(sign: int, value: float) -> bool:
    return sign != _sign(value)


@torch.no_grad()
def _velocity(curve: Curve, t: float) -> Tensor:
    """The derivative of the interpolant, by a dual number."""
    with dual_level():
        time = torch.tensor(t, dtype=torch.float64)
        y, velocity = forward_ad.unpack_dual(curve(forward_ad.make_dual(time, torch.ones_like(time))))
        return torch.zeros_like(y) if velocity is None else velocity.detach().clone()
