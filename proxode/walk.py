"""A solve in progress: the next step that is accepted, after as many as are rejected, or why there is none."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from .controllers import REACH, Adaptive, Controller, Outcome, first_step
from .failures import cannot_step, standing_still, step_failure, stopped, without_start
from .inner import Solve
from .inner.own import is_own
from .methods.base import Method, Step
from .methods.own import check_step
from .norms import all_finite
from .observers import Attempt
from .outcome import outcome_of
from .problem import Problem
from .randomness import drawn, is_noise
from .solution import Failure
from .standstill import Standstill
from .status import Status
from .steps import Kind, Steps
from .times import Time, number

NEARLY = 1e-9  # part of a step below which the rest of the way to a point of a grid is rounding
KINDS = 100  # more than there are kinds of steps of one method
COUNTED = ("n_steps", "n_accepted", "n_rejected")
STANDING = ("t", "y", "history", "t1", "state", "order")


@dataclass(frozen=True)
class Place:
    """Where a solve stands between two steps: with it the solve goes on exactly as it would have."""

    t: Time
    y: Tensor
    history: Any
    memory: Any = None  # what the vector field has learned so far
    order: int | None = None  # of the step that led here
    exact: bool = True  # would a replay of the steps that led here be the same to the last bit?


@dataclass
class Walk:
    """A solve in progress, one accepted step at a time."""

    problem: Problem
    method: Method
    controller: Controller
    solve: Solve
    max_steps: int

    t: Time = field(init=False)
    y: Tensor = field(init=False)
    history: Any = field(init=False)
    t1: Time = field(init=False)  # where the next step should end
    state: Any = field(init=False)  # of the controller
    order: int | None = field(init=False)  # of the next step, where the method has a choice
    stops: list[Time] = field(init=False)  # that no step may cross
    begun: int = 0  # steps after which the count for `max_steps` began
    exact: bool = True  # would a replay of the steps so far solve their equations in the same way, to the last bit?
    own: bool = field(init=False)  # is the method the user's own?
    steps: Steps = field(init=False)  # the record of all that were tried
    ends: array[float] = field(init=False)  # of the accepted ones among them
    kind: Any = field(init=False, default=...)  # the order of the last of these
    standstill: Standstill = field(init=False, default_factory=Standstill)

    def __post_init__(self) -> None:
        problem = self.problem
        self.own = is_own(self.method)
        self.steps = problem.stats.steps
        self.ends = self.steps.ends
        end = math.inf if problem.endless else problem.f.user_time(problem.ts[-1])
        self.steps.begin(self.method.name, problem.f.user_time(problem.ts[0]), end, problem.sign, problem.atol)

    def begin(self, start: Place | None = None) -> Failure | None:
        problem, method = self.problem, self.method
        self.t, self.y = problem.ts[0], problem.y0
        span = math.inf if problem.endless else number(problem.ts[-1]) - number(self.t)
        side = int(number(self.t) in problem.jumps)
        self.history = method.init(problem.f, self.t, self.y, span, side) if start is None else start.history
        slope = getattr(self.history, "slope", None)
        if slope is not None and not all_finite(slope):
            return without_start(problem, method, slope)
        first = _first_step(problem, method.first_power(self.history), self.controller, slope)
        _, self.t1, self.state, self.order = self.controller.start(self.t, first)
        self.stops = _stops(problem, self.t)
        problem.f.drawn = drawn(self.y.device)
        return None

    def standing(self) -> dict[str, Any]:
        """All that the next steps depend on, apart from what the vector field has learned."""
        return {name: getattr(self, name) for name in STANDING}

    def counted(self) -> tuple[Any, ...]:
        """What steps are booked as, to go back there."""
        stats = self.problem.stats
        return *(getattr(stats, name) for name in COUNTED), len(stats.switches), self.kind, self.steps.mark()

    def uncount(self, counted: tuple[Any, ...]) -> None:
        """As if no step had been tried since."""
        stats, (*counts, switches, self.kind, mark) = self.problem.stats, counted
        for name, count in zip(COUNTED, counts, strict=True):
            setattr(stats, name, count)
        del stats.switches[switches:]
        self.steps.back_to(mark)

    def resume(self, standing: dict[str, Any]) -> None:
        """Go on where another walk stood, instead of beginning."""
        self.stand(standing)
        self.steps.begin_at(number(self.t))

    def stand(self, standing: dict[str, Any]) -> None:
        """Be again where this walk has stood."""
        for name in STANDING:
            setattr(self, name, standing[name])
        self.stops = _stops(self.problem, self.t)

    @property
    def arrived(self) -> bool:
        return not self.stops

    def ahead(self, until: Time | None = None) -> Time:
        """Where the next step is to end: at most at `until`, if it is given."""
        stop = self.stops[0] if until is None or number(until) > number(self.stops[0]) else until
        if isinstance(self.controller, Adaptive):
            # After a rejection a step is as long as it is said to be: made longer it might be the same once more.
            longest = 0.0 if self.state.rejected else self.controller.max_step
            return _not_beyond(self.t, self.t1, stop, longest)
        return self.t1 if until is None else _not_beyond(self.t, self.t1, stop, 0.0)

    def step(self, until: Time | None = None) -> Step | Failure:
        """The next step that is accepted, after as many as are rejected, or why there is none."""
        problem, method, controller, stats = self.problem, self.method, self.controller, self.problem.stats
        while True:
            t, y = self.t, self.y
            t1 = self.ahead(until)
            given = t1 is self.stops[0] or t1 is until or not controller.retries
            again = isinstance(controller, Adaptive) and self.state.rejected > 0
            status = cannot_step(stats.n_steps - self.begun, self.max_steps, t, t1, given=given)
            if status is not None:
                return stopped(status, problem, method, t, t1, y, self.max_steps, controller, self.state)
            if self.order is not None:
                self.history = method.with_order(self.history, self.order)
            problem.notify("callback_step", t, y, t1)
            stats.n_steps += 1
            iterations = stats.n_inner
            step = method.step(problem.f, t, t1, self.history, self.solve, side=_side(problem, t, t1))
            if self.own:
                check_step(method, step, t1, y, adaptive=isinstance(controller, Adaptive))
            outcome = outcome_of(problem, method, y, step)
            hopeless = not controller.retries or (step.failure is not None and step.failure.status.final)
            if hopeless and not math.isfinite(outcome.ratio):
                return step_failure(problem, method, t, t1, y, step)
            if not controller.retries and t1 is until and _short(t, t1, self.t1):
                accept = True  # the rest of the way to that point of the grid is the next step
            else:
                accept, self.t1, self.state, self.order = controller.next(t, t1, outcome, self.state)
            if accept:
                if problem.observers:
                    self._tell(t, t1, step, outcome, accepted=True)
                self._accept(t1, step)
                return step
            stats.n_rejected += 1
            self.steps.reject(number(t1) - number(t), self._code(step))
            if problem.observers:
                self._tell(t, t1, step, outcome, accepted=False)
            problem.notify("callback_reject_step", t, y, t1)
            if stats.n_inner > iterations and is_noise(problem.f, number(t), y, stats.n_rejected):
                return stopped(Status.RANDOM, problem, method, t, t1, y, self.max_steps, controller, self.state)
            if number(self.t1) >= number(t1):  # held at the least step that the user allows
                return step_failure(problem, method, t, t1, y, step, held=True)
            if not again and _is_not_finite(step, outcome) and self.standstill.refused(number(t), y, self._way()):
                return standing_still(problem, method, t, t1, y)
            self.history = step.retry or self.history
            del step  # its states are not to be held during the next

    def _way(self) -> float:
        """The length of the interval; without an end what was gone of it."""
        problem = self.problem
        return number(self.t if problem.endless else problem.ts[-1]) - number(problem.ts[0])

    def _accept(self, t1: Time, step: Step) -> None:
        problem = self.problem
        stats, end = problem.stats, number(t1)
        stats.n_accepted += 1
        self.ends.append(end)
        if step.order is not self.kind:  # small integers are always the same ones
            self.kind = step.order
            self.steps.change(self._code(step))
        if step.by is not None and (not stats.switches or stats.switches[-1][1] != step.by):
            stats.switches.append((problem.f.user_time(self.t), step.by))
        problem.notify("callback_accept_step", self.t, self.y, t1)
        # A replay has nothing recycled, and takes no step that was rejected, of which inner solvers may have learned;
        # and it runs no compiled code, by whose rounding they may go another way.
        f = problem.f
        self.exact = self.exact and not f.recycled and not (f.learned and stats.n_rejected)
        self.exact = self.exact and not (f.compiled is not None and self.method.implicit)
        self.t, self.y, self.history = t1, step.y1, step.history
        if end in problem.jumps:
            self.history = self.method.after_jump(self.history)
            problem.f.forget()
        if end >= number(self.stops[0]):
            self.stops.pop(0)

    def _code(self, step: Step) -> int:
        """What the record calls a step of this kind."""
        code = -KINDS if step.order is None else step.order
        if code not in self.steps.names:
            order = self.method.order if step.order is None else self.method.order_of(step.order)
            self.steps.names[code] = Kind(step.by or self.method.name, order)
        return code

    def _tell(self, t: Time, t1: Time, step: Step, outcome: Outcome, *, accepted: bool) -> None:
        attempt = partial(self._attempt, t, t1, self.t1, step, outcome, accepted)
        for observer in self.problem.observers:
            observer.tried(attempt, accepted)

    def _attempt(self, t: Time, t1: Time, t_next: Time, step: Step, outcome: Outcome, accepted: bool) -> Attempt:
        f, h = self.problem.f, number(t1) - number(t)
        h_next = number(t_next) - number(t1 if accepted else t)
        kind, ratio = self.steps.names[self._code(step)], self.controller.excess(outcome, h)
        return Attempt(f.user_time(t), f.user_time(t1), h, *kind, ratio, step.failure, h_next)

    def place(self, step: Step) -> Place:
        return Place(self.t, self.y, self.history, self.problem.f.memory, step.order, self.exact)


def _stops(problem: Problem, t: Time) -> list[Time]:
    last = problem.ts[-1]
    return [*(s for s in problem.stops if number(t) < s < number(last)), *([last] if number(t) < number(last) else [])]


def _first_step(problem: Problem, power: int, controller: Controller, slope: Tensor | None) -> float:
    if not isinstance(controller, Adaptive):
        return 0.0
    if controller.first_step is not None:
        return controller.first_step
    t0, span = problem.ts[0], number(problem.ts[-1]) - number(problem.ts[0])
    slope = problem.f(t0, problem.y0) if slope is None else slope
    rtol, atol = problem.rtol, problem.atol
    return first_step(problem.f, number(t0), problem.y0.detach(), slope.detach(), power, rtol, atol, problem.norm, span)


def _not_beyond(t: Time, t1: Time, stop: Time, longest: float) -> Time:
    """t1; or the stop, if the step would cross it, or reach it if it were a little longer (not than `longest`): what is
    left then would take a step of its own."""
    h = number(t1) - number(t)
    more = max(NEARLY * h, min(REACH * h, longest - h))
    return stop if number(t1) + more >= number(stop) else t1


def _short(t: Time, t1: Time, planned: Time) -> bool:
    return number(planned) - number(t1) > NEARLY * (number(planned) - number(t))


def _is_not_finite(step: Step, outcome: Outcome) -> bool:
    """Was it refused for that, and not for an equation that some inner solver did not solve?"""
    status = None if step.failure is None else step.failure.status
    return not math.isfinite(outcome.ratio) and status in (None, Status.INNER_NON_FINITE)


def _side(problem: Problem, t0: Time, t1: Time) -> int:
    return int(bool(problem.jumps) and (number(t0) in problem.jumps or number(t1) in problem.jumps))
