"""The only loop over time: steps that were accepted, outputs and events, until the last time or a reason to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from .controllers import Controller
from .events import Watch, begin_watch
from .inner import Solve
from .methods.base import Method
from .observers import Trip, observed
from .problem import Problem
from .solution import Failure, Solution
from .times import number
from .trajectory import Trajectory
from .walk import Place, Walk

OnAccept = Callable[[Place], None]


@dataclass(frozen=True)
class Plan:
    """How a problem is to be solved, apart from its gradient."""

    method: Method
    controller: Controller
    solve: Solve  # of one equation, without a graph
    inner_tol: float | None  # the tolerance of the inner solves: absolute if it was given, else in units of rtol, atol
    backward_rtol: float  # what a linear solve in backward may leave, relative
    accuracy: Callable[[Tensor], Tensor | float]  # how well equations are solved, by component of the state
    again: Callable[..., Plan]  # (problem, method, options): a plan for another problem, such as an adjoint
    max_steps: int = 2**31 - 1
    dense: bool = False


def integrate(
    problem: Problem, method: Method, controller: Controller, solve: Solve, *, max_steps: int, dense: bool = False,
    on_accept: OnAccept | None = None,
) -> Solution:  # fmt: skip
    """Step from the first time to the last. Every outcome is a `Solution`, with the part that was reached."""
    path, failure = travel(problem, method, controller, solve, max_steps=max_steps, dense=dense, on_accept=on_accept)
    return path.solution(failure)


def travel(
    problem: Problem, method: Method, controller: Controller, solve: Solve, *, max_steps: int, dense: bool = False,
    start: Place | None = None, on_accept: OnAccept | None = None,
) -> tuple[Trajectory, Failure | None]:  # fmt: skip
    """The loop: what was reached, and why not more. `start` goes on from where a solve stood (at the first time);
    `on_accept` hears of every place that is reached."""
    events = problem.events
    path = Trajectory(replace(problem, events=()) if events else problem, dense, events, [problem.y0])
    if path.complete:
        return path, None
    if not problem.observers:
        return path, _go(problem, path, Walk(problem, method, controller, solve, max_steps), start, on_accept)
    with observed(problem.observers, trip_of(problem, method)) as ending:
        failure = _go(problem, path, Walk(problem, method, controller, solve, max_steps), start, on_accept)
        ending.status = path.status(failure)
    return path, failure


def trip_of(problem: Problem, method: Method) -> Trip:
    first, last = problem.f.user_time(problem.ts[0]), problem.f.user_time(problem.ts[-1])
    return Trip(method.name, first, None if problem.endless else last, problem.y0.shape[-1], problem.stats)


def _go(
    problem: Problem, path: Trajectory, walk: Walk, start: Place | None, on_accept: OnAccept | None
) -> Failure | None:
    events = problem.events
    watch = begin_watch(events, problem.f, problem.ts[0], problem.y0) if events else None
    failure = walk.begin(start)
    while failure is None and not path.complete:
        watch, failure = _advance(walk, path, watch, on_accept)
    problem.f.let_go()
    return failure


def _advance(
    walk: Walk, path: Trajectory, watch: Watch | None, on_accept: OnAccept | None
) -> tuple[Watch | None, Failure | None]:
    """One step, and all that hear of it. What it holds beside the solution is let go before the next."""
    t0 = walk.t
    step = walk.step()
    if isinstance(step, Failure):
        return watch, step
    if watch is not None:
        watch, found = watch.after(number(t0), number(walk.t), step.y1, step.interpolant.evaluate)
        for crossing in found:
            path.meet(crossing)
    reached = len(path.ys)
    path.take(walk.t, step)
    if walk.problem.limited_by_output and len(path.ys) > reached:
        walk.begun = walk.problem.stats.n_steps
    if on_accept is not None:
        on_accept(walk.place(step))
    return watch, None
