"""A solve in progress that others may look at, differentiate, leave and go on from, in inner times and flat states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .autocast import uncast
from .gradients import Direct, Gradient, Implicit
from .gradients.captured import check_seen
from .inner import Solve
from .interpolation import SLACK
from .loop import Plan
from .methods.base import Step
from .prepare import outside_inference_mode
from .problem import Problem
from .solution import Failure
from .times import Time, number
from .walk import Walk


class Leg(NamedTuple):
    """A step that was taken."""

    t0: Time
    y0: Tensor
    t1: Time
    step: Step
    recorded: bool  # did autograd look on?


@dataclass
class Course:
    problem: Problem
    gradient: Gradient
    plan: Plan

    walk: Walk = field(init=False)
    failure: Failure | None = None  # that ended the solve
    last: Leg | None = None
    recorded: bool = False  # was autograd recording when the history was made?
    versions: list[int] | None = None  # of the states of the history, when they were made; None before it has begun

    def __post_init__(self) -> None:
        plan = self.plan
        self.walk = Walk(self.problem, plan.method, plan.controller, self._bound(), plan.max_steps)

    def _bound(self) -> Solve:
        assert isinstance(self.gradient, Implicit | Direct)
        return self.gradient.bind(self.problem, self.plan)

    def begin(self) -> None:
        self.recorded = torch.is_grad_enabled()
        with outside_inference_mode(), uncast():
            self.failure = self.walk.begin()
        if self.failure is None:
            self._note()

    def go_on(self, standing: dict[str, Any], memory: tuple[Any, ...], recycled: dict[str, Any]) -> None:
        """From where another course stood."""
        walk = self.walk
        self.problem.f.recall(memory, recycled)
        walk.resume(standing)
        grid = getattr(walk.controller, "grid", ())
        if len(grid) > 1 and not walk.arrived and number(walk.t1) not in map(number, grid):
            raise ValueError("with another `t1` the steps of the saved state end elsewhere: begin a new Stepper")
        self._note()

    def step(self, until: Time | None) -> Failure | None:
        walk, f = self.walk, self.problem.f
        self._check_untouched()
        t0, y0 = walk.t, walk.y
        with outside_inference_mode(), uncast():
            recording = torch.is_grad_enabled()
            if recording:
                self._link()
            standing, counted, memory = walk.standing(), walk.counted(), f.memory
            try:
                step = walk.step(until)
            except BaseException:  # an error of func, Ctrl-C: as if it had not been tried, but for evaluations
                walk.stand(standing)
                walk.uncount(counted)
                f.recall(memory)
                raise
            if isinstance(step, Failure):
                self.failure = step
                return step
            check_seen(f)
        self.recorded, self.last = recording, Leg(t0, y0, walk.t, step, recording)
        self._note()
        walk.steps.trim()
        if walk.arrived:
            f.let_go()
        return None

    def _link(self) -> None:
        """Autograd records from here on. The slope that the history holds may have been evaluated when it did not; and
        while nothing wants a gradient, func may have come to use something that does."""
        walk, f = self.walk, self.problem.f
        if not self.recorded:
            walk.history = _with_graph(walk.history, lambda: f(walk.t, walk.y))
            self.recorded = True
            self._note()
        if isinstance(self.gradient, Implicit) and not walk.y.requires_grad and self.last is not None:
            walk.solve = self._bound()

    def within(self, points: Sequence[Time]) -> Tensor:
        """The states at times inside of the last step."""
        if self.last is None:
            raise ValueError("there is no step to interpolate in: call step() first")
        t0, y0, t1, step, recorded = self.last
        slack = SLACK * (number(t1) - number(t0))
        for point in map(number, points):
            if not number(t0) - slack <= point <= number(t1) + slack:
                asked, low, high = map(self.problem.f.user_time, (point, t0, t1))
                raise ValueError(f"`t` = {asked:.6g} is outside of the last step, from {low:.6g} to {high:.6g}")
        ends = {number(t0): y0, number(t1): step.y1}

        def at(point: Time) -> Tensor:
            fixed = not isinstance(point, Tensor) and point in ends
            return ends[number(point)] if fixed else step.interpolant.evaluate(point)

        with outside_inference_mode(), uncast(), torch.set_grad_enabled(recorded and torch.is_grad_enabled()):
            return torch.stack([at(point) for point in points])

    def detach(self) -> None:
        walk = self.walk
        walk.history = walk.history.rebuilt([x.detach() for x in walk.history.states], _cut)
        walk.y, walk.t, walk.t1 = walk.y.detach(), _cut(walk.t), _cut(walk.t1)
        self.recorded, self.last = False, None
        self._note()

    def _note(self) -> None:
        self.versions = [x._version for x in (self.walk.y, *self.walk.history.states)]

    def _check_untouched(self) -> None:
        """The states that were handed out are those of the history."""
        if self.versions != [x._version for x in (self.walk.y, *self.walk.history.states)]:
            raise RuntimeError(
                "the state was changed in place between two steps, which its history does not know: "
                "change a copy, y = stepper.y.clone(), and call stepper.restart(y)"
            )


def _cut(t: Any) -> Any:
    return t.detach() if isinstance(t, Tensor) else t


def _with_graph(history: Any, slope: Callable[[], Tensor]) -> Any:
    """The history with the graph of the slope at its newest point, whose value stays what it is."""
    if hasattr(history, "points"):
        return history._replace(points=_with_graph(history.points, slope))
    if history.slope is None or history.slope.requires_grad:
        return history
    evaluated = slope()
    if not evaluated.requires_grad:
        return history
    return history._replace(slope=history.slope + (evaluated - evaluated.detach()))
