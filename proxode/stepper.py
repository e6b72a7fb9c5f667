"""A solve that its caller drives: one step at a time, with a state that can be saved and gone on from exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .controllers import Adaptive
from .course import Course
from .eager import eager
from .gradients import Gradient
from .inner import InnerSolver
from .methods import Method
from .prepare import check_time, outside_inference_mode
from .snapshot import freeze, is_plain, thaw
from .solution import COUNTERS, Failure, Solution, SolverError, Stats, new_stats
from .status import Status
from .stepper_settings import check_replacement, check_settings, prepare_steps
from .times import number

FORMAT = 3  # of a saved state


@dataclass(frozen=True)
class Stepped:
    """One accepted step from (t0, y0) to (t1, y1). A step that failed stays where it is, and `failure` says why."""

    t0: float
    t1: float
    y0: Any
    y1: Any
    order: int
    by: str  # the name of the method that took it; "auto" has several
    failure: Failure | None = None


class Stepper:
    """Solve `dy/dt = func(t, y)` one step at a time.

        stepper = proxode.Stepper(func, y0, 0.0, t1=1.0, method="bdf")
        for step in stepper:
            print(step.t1, step.order)

    Steps, results and costs are those of `solve` with the same arguments. Gradients flow through `y` and `interpolate`;
    under `torch.no_grad()` nothing is recorded.

    Args:
        func: `func(t, y)`, as in `solve`.
        y0: the state at t0.
        t0: where the steps begin.
        t1: the last time, which no step goes beyond; before t0 for a solve backwards. None: there is no end.
        gradient: "implicit" or "direct". If what func reads changes between steps through which you differentiate,
            use "direct", or "implicit" with `store_graph=True`.
        max_steps: a limit to the number of steps, with those that are rejected; by default there is none.
        throw: raise `SolverError` where the solve cannot go on; else `step` returns a step with a `failure`.
        reverse: without t1, step towards smaller times.
        options: as in `solve`.
    """

    _course: Course
    _start: tuple[Any, float]

    @eager
    def __init__(
        self, func: Any, y0: Any, t0: Any, *, t1: Any = None, method: str | Method = "auto",
        inner: str | InnerSolver = "auto", gradient: str | Gradient = "implicit", rtol: Any = 1e-4, atol: Any = 1e-6,
        step_size: float | None = None, max_steps: int | None = None, throw: bool = True, reverse: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        self._func, self._throw = func, throw
        self._settings = {
            "t1": t1, "method": method, "inner": inner, "gradient": gradient, "rtol": rtol, "atol": atol,
            "step_size": step_size, "max_steps": max_steps, "reverse": reverse, **options,
        }  # fmt: skip
        check_settings("Stepper", self._settings)
        self._begin(y0, t0, new_stats())

    @classmethod
    @eager
    def resume(cls, func: Any, state: dict[str, Any], **changed: Any) -> Stepper:
        """Go on from a saved `state`, with the same steps as if there had been no break, to the last bit.

        The settings are those that were saved. `changed` gives them anew: a later `t1`, `throw`, or what could not be
        saved because it was an object (a function as `norm`, a method)."""
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise ValueError("`state` is not the state of a Stepper of this version of proxode")
        missing = ", ".join(f"`{name}`" for name in state["objects"] if name not in changed)
        if missing:
            raise TypeError(f"{missing} could not be saved, for it is an object: give it to resume() again")
        self = cls.__new__(cls)
        self._func, self._throw = func, changed.pop("throw", True)
        self._settings = {**thaw(state["settings"]), **changed}
        check_settings("Stepper.resume", self._settings)
        y0, t0 = thaw(state["start"])
        self._course, self._start = self._set_out(y0, t0, _counted(thaw(state["stats"])))
        if self._course.plan.method.name != state["method"]:
            raise ValueError(f"the state was saved by method {state['method']!r}: its history is no use to another")
        self._course.go_on(**thaw({name: state[name] for name in ("standing", "memory", "recycled")}))
        if number(self._course.walk.t) > number(self._course.problem.ts[-1]):
            raise ValueError(f"`t1` = {self._end:.6g} is behind the time at which the solve stands, {self.t:.6g}")
        return self

    def __repr__(self) -> str:
        end = "" if self._course.problem.endless else f" of {self._end:.6g}"
        how = "" if self.status is None else f", {self.status.name}"
        return f"Stepper({self._course.plan.method.name}, t = {self.t:.6g}{end}, {self.stats.n_steps} steps{how})"

    # Where it stands

    @property
    def t(self) -> float:
        """The time at which the solve stands."""
        return self._course.problem.f.user_time(self._course.walk.t)

    @property
    def y(self) -> Any:
        """The state at t, in the structure of y0. Change copies of it only, and call `restart` with them."""
        return self._course.problem.structure.restore(self._course.walk.y)

    @property
    def h(self) -> float:
        """The length of the step that will be tried next."""
        walk = self._course.walk
        return 0.0 if self.done else number(walk.ahead()) - number(walk.t)

    @property
    def done(self) -> bool:
        """Was the last time reached, or can the solve not go on?"""
        return self.failure is not None or self._course.walk.arrived

    @property
    def status(self) -> Status | None:
        """How the solve ended; None before it has."""
        if self.failure is not None:
            return self.failure.status
        if not self._course.walk.arrived:
            return None
        problem, adaptive = self._course.problem, isinstance(self._course.plan.controller, Adaptive)
        raised = adaptive and any(map(problem.asks_too_much, (problem.y0, self._course.walk.y)))
        return Status.TOLERANCE_RAISED if raised else Status.SUCCESS

    @property
    def failure(self) -> Failure | None:
        """Where and why the solve cannot go on; None while it can."""
        return self._course.failure

    @property
    def stats(self) -> Stats:
        """What the steps have cost so far, those before a `restart` or a `resume` among them."""
        return self._course.problem.stats

    # Going on

    @eager
    def step(self) -> Stepped:
        """Take the next step, after as many as are rejected."""
        return self._step(None)

    @eager
    def advance(self, t: Any) -> Any:
        """Step until t, where the last step is cut, and return the state there. (With `throw=False`: the state where
        the solve failed, if it did.)"""
        walk, problem = self._course.walk, self._course.problem
        time = check_time("t", t).reshape(())
        inner = time if problem.sign > 0 else -time
        if number(inner) < number(walk.t):
            raise ValueError(f"`t` = {number(time):.6g} is behind the present time {self.t:.6g}")
        if number(inner) > number(problem.ts[-1]):
            raise ValueError(f"`t` = {number(time):.6g} is beyond the last time, t1 = {self._end:.6g}")
        while self.failure is None and number(walk.t) < number(inner):
            self._step(inner if inner.requires_grad else number(inner))
        return self.y

    @eager
    def __iter__(self) -> Iterator[Stepped]:
        if self._course.problem.endless:
            raise ValueError("without `t1` the steps have no end: give it, or call step()")
        while not self.done:
            step = self.step()
            if step.failure is None:
                yield step

    @eager
    def interpolate(self, t: Any) -> Any:
        """The state at a time t inside of the last step, or at each of several, stacked in front."""
        problem = self._course.problem
        times = torch.as_tensor(t, dtype=torch.float64)
        inner = (times if problem.sign > 0 else -times).reshape(-1)
        ys = self._course.within(inner.unbind() if inner.requires_grad else inner.tolist())
        return problem.structure.restore(ys, *times.shape)

    @eager
    def restart(self, y: Any = None, t: Any = None) -> None:
        """Begin anew at (t, y), by default where the solve stands: for a state that has jumped, or a func that has
        changed. History and what was learned of func are forgotten; settings and statistics stay."""
        problem = self._course.problem
        if t is None:
            t = self._course.walk.t if problem.sign > 0 else -self._course.walk.t
        if y is not None:
            check_replacement(y, problem)
        self._begin(self.y if y is None else y, t, problem.stats)

    def detach(self) -> None:
        """Cut the state off its graph, so that gradients of what follows end here. The history stays."""
        self._course.detach()

    @property
    def state(self) -> dict[str, Any]:
        """All that the next steps depend on, as plain data without graphs: for `torch.save`, and `Stepper.resume`."""
        course, f = self._course, self._course.problem.f
        if course.versions is None:
            raise ValueError("the solve failed where it began: there is nothing to go on from")
        objects = sorted(name for name, value in self._settings.items() if not is_plain(value))
        return freeze({
            "format": FORMAT,
            "settings": {name: value for name, value in self._settings.items() if name not in objects},
            "objects": objects,
            "method": course.plan.method.name,
            "start": self._start,
            "standing": course.walk.standing(),
            "memory": f.memory,
            "recycled": f.recycled,
            "stats": {"switches": self.stats.switches, **{name: getattr(self.stats, name) for name in COUNTERS}},
        })  # fmt: skip

    # Inside

    @property
    def _end(self) -> float:
        return self._course.problem.f.user_time(self._course.problem.ts[-1])

    def _set_out(self, y0: Any, t0: Any, stats: Stats) -> tuple[Course, tuple[Any, float]]:
        """A course from (t0, y0), before its first evaluation, and that start without its graph."""
        with outside_inference_mode():
            problem, gradient, plan = prepare_steps(self._func, y0, t0, stats, **self._settings)
            problem = replace(problem, y0=problem.y0.clone())  # the user's own may change
        start = problem.structure.restore(problem.y0.detach()), problem.f.user_time(problem.ts[0])
        return Course(problem, gradient, plan), start

    def _begin(self, y0: Any, t0: Any, stats: Stats) -> None:
        course, start = self._set_out(y0, t0, stats)
        course.begin()
        self._course, self._start = course, start  # now: what func raises leaves the solve where it stood
        if course.failure is not None:
            self._failed(course.failure)

    def _step(self, until: Any) -> Stepped:
        course, before = self._course, (self.t, self.y)
        if self.failure is not None:
            return self._failed(self.failure)
        if course.walk.arrived:
            raise ValueError(f"the last time t1 = {self._end:.6g} was reached: there is no step to take")
        failure = course.step(until)
        if failure is not None or course.last is None:
            assert failure is not None
            return self._failed(failure)
        step, method = course.last.step, course.plan.method
        order = method.order if step.order is None else method.order_of(step.order)
        return Stepped(before[0], self.t, before[1], self.y, order, step.by or method.name)

    def _failed(self, failure: Failure) -> Stepped:
        course, method = self._course, self._course.plan.method
        if self._throw:
            ts = torch.tensor([self.t], dtype=torch.float64)
            reached = course.problem.structure.restore(course.walk.y[None], 1)
            raise SolverError(failure, Solution(ts, reached, self.stats, failure.status, failure))
        return Stepped(self.t, self.t, self.y, self.y, method.order, method.name, failure)


def _counted(saved: dict[str, Any]) -> Stats:
    stats = new_stats()
    for name, value in saved.items():
        setattr(stats, name, value)
    return stats
