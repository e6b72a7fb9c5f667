"""The solve that a diagnosis rests on: every step by its length, and the states at some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import Stats, Stepper
from ..problem import Problem
from ..solution import Failure
from ..steps import TriedStep


class Stop(NamedTuple):
    """A state on the way, flat."""

    step: int  # how many came before
    t: float
    y: Tensor


@dataclass
class Path:
    """What the solve did. `largest` is the largest size of each component on the way, `length` that of the way that the
    state itself has gone."""

    stats: Stats
    largest: Tensor
    atol: Tensor  # one for all, or one for each component
    length: float = 0.0
    stops: list[Stop] = field(default_factory=list)
    failure: Failure | None = None

    @cached_property
    def strides(self) -> list[TriedStep]:
        """The steps that were taken; asked for when the solve is over."""
        return [step for step in self.stats.steps if step.accepted]

    @property
    def shares(self) -> dict[str, int]:
        """Steps of each method that took some, the most first."""
        counts: dict[str, int] = {}
        for stride in self.strides:
            counts[stride.method] = counts.get(stride.method, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    @property
    def reached(self) -> float:
        return self.strides[-1].t1

    @property
    def by_bdf(self) -> int:
        return sum(stride.method == "bdf" for stride in self.strides)


@torch.no_grad()
def follow(
    func: Callable[..., Any], y0: Any, problem: Problem, *, rtol: Any, atol: Any, points: int, max_steps: int,
    options: dict[str, Any],
) -> Path:  # fmt: skip
    """Solve with `auto`, and keep states for at least `points` places: evenly over the steps, which crowd where the
    solution moves, and evenly over time, where a method spends its steps if stability sets them."""
    f, flatten = problem.f, problem.structure.flatten
    t0, t1 = (f.user_time(t) for t in (problem.ts[0], problem.ts[-1]))
    stepper = Stepper(func, y0, t0, t1=t1, rtol=rtol, atol=atol, max_steps=max_steps, throw=False, **options)
    path = Path(stepper.stats, problem.y0.detach().abs(), torch.as_tensor(problem.atol, dtype=torch.float64))
    kept = _Kept(points, t0, t1)
    kept.offer(0, t0, problem.y0.detach())
    while not stepper.done:
        step = stepper.step()
        if step.failure is not None:
            break
        before, y = flatten(step.y0), flatten(step.y1)
        path.length += float(torch.linalg.vector_norm((y - before).double()))
        torch.maximum(path.largest, y.abs(), out=path.largest)
        kept.offer(stepper.stats.n_accepted, step.t1, y)
    path.failure, path.stops = stepper.failure, kept.chosen()
    return path


class _Kept:
    """Some of the states that come by, not knowing how many will: every step of a stride that doubles, and the first
    beyond each of as many even times."""

    def __init__(self, points: int, t0: float, t1: float) -> None:
        self.points, self.t0, self.span = points, t0, t1 - t0
        self.stride, self.mark = 1, 0
        self.by_step: list[Stop] = []
        self.by_time: list[Stop] = []
        self.last: Stop | None = None

    def offer(self, index: int, t: float, y: Tensor) -> None:
        stop = self.last = Stop(index, t, y)
        mark = int(self.points * (t - self.t0) / self.span)
        if mark > self.mark:
            self.mark = mark
            self.by_time.append(stop)
        if index % self.stride == 0:
            self.by_step.append(stop)
            if len(self.by_step) > 2 * self.points:
                self.by_step, self.stride = self.by_step[::2], 2 * self.stride

    def chosen(self) -> list[Stop]:
        """`points` of them at most, with the first and the last; half by steps and half by time."""
        assert self.last is not None
        half = max(0, (self.points - 2) // 2)
        found = {stop.step: stop for stop in (self.by_step[0], self.last)[: self.points]}
        for several, room in ((self.by_time, max(0, self.points - 2 - half)), (self.by_step, half)):
            rest = [stop for stop in several if stop.step not in found]
            room = min(room, len(rest))
            found |= {rest[i].step: rest[i] for i in (int((k + 0.5) * len(rest) / room) for k in range(room))}
        rest = [stop for stop in (*self.by_step, *self.by_time) if stop.step not in found]
        found |= {stop.step: stop for stop in rest[: max(0, self.points - len(found))]}
        return [found[index] for index in sorted(found)]
