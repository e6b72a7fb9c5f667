"""Solves without a last time, that go on until an event."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from .controllers import Controller, Decision, FixedGrid, Outcome
from .problem import SNAP, Problem
from .times import Time, number


@dataclass(frozen=True)
class EqualSteps(FixedGrid):
    """Steps of one size from `grid[0]` on, without end, cut at the stops that they would cross."""

    h: float = 1.0
    stops: tuple[float, ...] = ()

    def plain(self) -> EqualSteps:
        return replace(self, grid=tuple(map(number, self.grid)))

    def start(self, t0: Time, first_step: float) -> Decision:
        return self._to_point(t0, 1)

    def next(self, t0: Time, t1: Time, outcome: Outcome, state: int) -> Decision:
        reached = number(t1) >= number(self._point(state)) - SNAP * self.h
        return self._to_point(t1, state + reached)

    def _point(self, i: int) -> Time:
        return self.grid[0] + i * self.h

    def _to_point(self, t: Time, i: int) -> Decision:
        point = self._point(i)
        stops = (s for s in self.stops if number(t) < s <= number(point) + SNAP * self.h)
        return Decision(True, next(stops, point), i)


def without_end(problem: Problem) -> Problem:
    """The same from its first time on. It ends where the square of the time would overflow in the numbers that f
    gets: nobody waits for an event beyond."""
    t0 = problem.ts[0]
    last = torch.finfo(problem.y0.dtype.to_real()).max ** 0.5
    return replace(problem, ts=(t0, max(last, 2.0 * abs(number(t0)))), endless=True)


def nearby(problem: Problem, step_size: object) -> Problem:
    """The same up to the end of a first step, for what has to be made for a finite time."""
    h = float(step_size) if isinstance(step_size, int | float | torch.Tensor) and step_size > 0 else 1.0
    t0 = problem.ts[0]
    return replace(problem, ts=(t0, number(t0) + h))


def going_on(controller: Controller, problem: Problem, step_size: object) -> Controller:
    """The controller for a solve without end."""
    if not isinstance(controller, FixedGrid):
        return controller
    if not isinstance(step_size, int | float | torch.Tensor):
        raise ValueError(
            "an event is waited for without a last time: a method with fixed steps needs `step_size` in options, "
            "and takes no `grid_constructor`"
        )
    return EqualSteps(problem.ts[:1], h=float(step_size), stops=problem.stops)
