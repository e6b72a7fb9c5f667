"""What a solve has reached so far: its outputs, its events, and every step where a dense result is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .event_gradients import at_events
from .events import Crossing, Event, as_output
from .interpolation import Interpolant, Pieces
from .methods.base import Step
from .problem import Problem
from .solution import Failure, Solution
from .spread import over
from .status import Status
from .times import Time, number


@dataclass
class Trajectory:
    """What has been reached so far: the outputs, and every step's interpolant where a dense result is wanted.

    `problem` has the times of events that were found among its output times, and no others to look for."""

    problem: Problem
    dense: bool
    events: tuple[Event, ...] = ()
    ys: list[Tensor] = field(default_factory=list)
    found: list[Crossing] = field(default_factory=list)
    asked: list[bool] = field(init=False)  # for each output time: by the user, or is it that of an event only?
    ends: list[float] = field(default_factory=list)
    steps: list[Interpolant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = [True] * len(self.problem.ts)

    @property
    def complete(self) -> bool:
        return len(self.ys) == len(self.problem.ts)

    @property
    def rows(self) -> list[int]:
        """Of the times that the user asked for, among all output times."""
        return [row for row, asked in enumerate(self.asked) if asked]

    def meet(self, crossing: Crossing) -> None:
        """An event becomes an output."""
        ts, asked, crossing = as_output(crossing, self.problem.ts, self.asked)
        self.problem, self.asked = replace(self.problem, ts=ts), asked
        self.found.append(crossing)

    def take(self, t1: Time, step: Step) -> None:
        """The outputs up to t1."""
        end, ts = number(t1), self.problem.ts
        while not self.complete and number(ts[len(self.ys)]) <= end:
            t = ts[len(self.ys)]
            free = t is not t1 and (isinstance(t, Tensor) or isinstance(t1, Tensor))  # one may move without the other
            self.ys.append(step.y1 if number(t) == end and not free else step.interpolant.evaluate(t))
        if self.dense:
            self.ends.append(min(end, number(ts[-1])))  # a terminal event is within the step
            self.steps.append(step.interpolant)

    def solution(self, failure: Failure | None, ys: Tensor | None = None) -> Solution:
        """`ys`: the outputs with a graph of their own, if they have one."""
        problem, status = self.problem, self.status(failure)
        ys = torch.stack(self.ys) if ys is None else ys
        rows = [row for row in self.rows if row < len(ys)]
        asked = problem.structure.restore(ys if len(rows) == len(ys) else ys[rows], len(rows))
        solution = Solution(problem.user_ts[: len(rows)], asked, problem.stats, status, failure, dense=self._dense())
        solution.event_ts, solution.event_ys = at_events(self.events, self.found, ys, problem.f, problem.user_ts)
        return solution

    def status(self, failure: Failure | None) -> Status:
        if failure is not None:
            return failure.status
        return Status.EVENT if any(crossing.terminal for crossing in self.found) else Status.SUCCESS

    @property
    def pieces(self) -> Pieces:
        return Pieces(number(self.problem.ts[0]), tuple(self.ends), tuple(self.steps))

    def _dense(self) -> Callable[[Any], Any] | None:
        if not self.steps:
            return None
        problem, pieces = self.problem, self.pieces

        def evaluate(t: Any) -> Any:
            times = torch.as_tensor(t, dtype=torch.float64)
            inner = times if problem.sign > 0 else -times
            points = inner.reshape(-1).unbind() if inner.requires_grad else inner.reshape(-1).tolist()
            with over(problem.f.spread):
                ys = torch.stack([pieces.evaluate(point) for point in points])
            return problem.structure.restore(ys, *times.shape)

        return evaluate
