"""Why a solve cannot go on: where it stands, and what can be found out there for a few evaluations of f."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from .controllers import Controller
from .inner import InnerResult
from .jump import Jump, jump_near, undefined_near
from .methods.base import Method, Step
from .norms import all_finite, largest
from .problem import Problem
from .randomness import is_random
from .rejections import FAILED, FEW, REJECTED
from .remedies import (
    GROWS,
    HELD,
    LEAVE_OUT,
    MAY_JUMP,
    PARAMETERS,
    STEPPED_OVER,
    UNDEFINED,
    for_equation,
    for_many_steps,
    for_stop,
)
from .solution import Failure
from .status import Status
from .times import Time, number

UNDERFLOW = 10 * 2.0**-52  # step over time: what is left of the step when it is added (Hairer)
GROWN = 1e6  # times the first state, from which a solution may be growing without bound
NEAR = 10.0  # times the size of the solution: states up to there are near it
NOT_FINITE = (Status.NON_FINITE, Status.INNER_NON_FINITE, Status.STEP_UNDERFLOW)  # that a bad parameter may explain
AHEAD = (1e-9, 1e-6, 1e-3)  # of the way: where f is looked at after an underflow


def cannot_step(n_steps: int, max_steps: int, t: Time, t1: Time, given: bool) -> Status | None:
    """`given`: the end of the step was not the controller's choice, and may be as near as it likes."""
    if n_steps >= max_steps:
        return Status.MAX_STEPS
    least = 0.0 if given else UNDERFLOW * abs(number(t))
    return None if number(t1) - number(t) > least else Status.STEP_UNDERFLOW


def stopped(
    status: Status, problem: Problem, method: Method, t: Time, t1: Time, y: Tensor, max_steps: int,
    controller: Controller, state: Any,
) -> Failure:  # fmt: skip
    """No more steps, or none that is short enough; `state` is that of the controller."""
    where = " between two outputs" if problem.limited_by_output and not problem.endless else ""
    detail = f"limit {max_steps:,}{where}, " if status is Status.MAX_STEPS else ""
    detail += f"method {method.name}, {_size(problem, y)}"
    if status is Status.RANDOM or (method.adaptive and is_random(problem.f, number(t), y)):
        return _located(Status.RANDOM, problem, t, t1, detail)
    if status is Status.MAX_STEPS:
        held = for_many_steps(controller, state, can_adapt=method.adapting().adaptive)
        if held:
            return _located(status, problem, t, t1, detail, held)
    more, cause = _cause(status, problem, t, t1, y)
    advice = for_stop(status, cause=cause, explicit=not method.implicit, exact=y.dtype == torch.float64)
    return _located(status, problem, t, t1, detail + more, advice)


def _cause(status: Status, problem: Problem, t: Time, t1: Time, y: Tensor) -> tuple[str, str]:
    """What has stopped the solve, and what to do about it; nothing where there is no sign of a cause."""
    stats, jump = problem.stats, _jump(problem, t, t1, y)
    unsolved = stats.n_inner_failed > FAILED * stats.n_steps
    failed = f", {stats.n_inner_failed:,} inner solves failed" if unsolved else ""
    if jump is not None:
        where = f"in component {jump.component} between states {jump.apart:.1g} apart"
        return f"{failed}, f jumps by {jump.size:.3g} {where}", STEPPED_OVER
    ahead = _ahead(problem, number(t), y) if status is Status.STEP_UNDERFLOW else ""
    undefined = _mostly_undefined(problem, y) and (unsolved or status is Status.STEP_UNDERFLOW)
    said = f"{failed}: {_undefined(problem, y)}{ahead}" if unsolved and undefined else f"{failed}{ahead}"
    if status is Status.STEP_UNDERFLOW and not (undefined or ahead or unsolved) and _ends(problem, t, t1, y):
        undefined, said = True, ", f is nan or infinite for states near this one"
    if _grown(problem, y) or undefined or ahead:
        return said, GROWS if _grown(problem, y) else UNDEFINED
    if unsolved and not problem.f.has_derivative(t, y):
        return f"{failed}: the derivative of f is nan or infinite there", Status.INNER_NO_DERIVATIVE.advice
    if unsolved:
        return f"{failed}: look at `inner` first, if it was given, and whether f jumps in y", f"{LEAVE_OUT}; {MAY_JUMP}"
    rejected = stats.n_rejected > REJECTED * stats.n_steps and stats.n_steps >= FEW
    return "", MAY_JUMP if rejected else ""


def _jump(problem: Problem, t: Time, t1: Time, y: Tensor) -> Jump | None:
    """Where several processes have the state nobody sees all of it."""
    seen = problem.f.spread is None and problem.stats.n_steps >= FEW
    return jump_near(problem.f, number(t), y, number(t1) - number(t)) if seen else None


def _ends(problem: Problem, t: Time, t1: Time, y: Tensor) -> bool:
    return problem.f.spread is None and undefined_near(problem.f, number(t), y, number(t1) - number(t))


def without_start(problem: Problem, method: Method, slope: Tensor) -> Failure:
    """f is not finite where the solve is to begin."""
    t, detail = problem.ts[0], f"method {method.name}, at the first time {_not_finite(problem, slope)}"
    return _located(Status.NON_FINITE, problem, t, t, detail)


def step_failure(
    problem: Problem, method: Method, t0: Time, t1: Time, y0: Tensor, step: Step, *, held: bool = False
) -> Failure:
    """A step that cannot be taken, and no other in its place. `held`: by `min_step`."""
    inner = step.failure
    size = f"largest |y| {largest(y0):.3g} before the step"
    if inner is None:
        advice = f"{HELD}; else {Status.NON_FINITE.advice}" if held else ""
        return _located(Status.NON_FINITE, problem, t0, t1, f"method {method.name}, {size}", advice)
    detail = (
        f"method {method.name}, inner solver {inner.solver} after {inner.iterations} iterations: "
        f"smallest residual {inner.size:.3g}, tolerance {inner.tol:.3g}, {size}"
    )
    met = problem.f.undefined
    undefined = met is not None and number(t0) < met.t <= number(t1) and _is_near(problem, y0)
    detail += f"; {_undefined(problem, y0)}" if undefined else ""
    if not undefined and _has_no_derivative(problem, t0, y0, inner):
        inner = replace(inner, status=Status.INNER_NO_DERIVATIVE)
    unknowns = problem.y0.shape[-1] if problem.f.spread is None else math.inf
    advice = for_equation(inner, unknowns, can_adapt=method.adapting().adaptive, held=held, undefined=undefined)
    return _located(inner.status, problem, t0, t1, detail, advice)


def _has_no_derivative(problem: Problem, t: Time, y: Tensor, inner: InnerResult) -> bool:
    """Where the step began. Of a parameter or a state that is nan another word is said."""
    if inner.status.final or not inner.iterations:
        return False
    with torch.no_grad():
        return all_finite(problem.f(t, y)) and not problem.f.has_derivative(t, y)


def standing_still(problem: Problem, method: Method, t: Time, t1: Time, y: Tensor) -> Failure:
    """Steps that hardly move anything have no finite values."""
    most, dtype = torch.finfo(y.dtype).max, f"{y.dtype}".removeprefix("torch.")
    numbers = f"; {dtype} ends at {most:.3g}" if largest(y) > most**0.5 else ""
    short = f"steps so short that they hardly move it are not finite either{_ahead(problem, number(t), y)}"
    detail = f"method {method.name}, {_size(problem, y)}{numbers}; {short}"
    undefined = _mostly_undefined(problem, y)
    detail += f", {_undefined(problem, y)}" if undefined else ""
    advice = GROWS if _grown(problem, y) else UNDEFINED if undefined else ""
    return _located(Status.NON_FINITE, problem, t, t1, detail, advice)


def _mostly_undefined(problem: Problem, y: Tensor) -> bool:
    """Did most equations that were not solved lead to states where f has no value?"""
    met = problem.f.undefined
    return met is not None and 2 * met.times >= problem.f.unsolved > 0 and _is_near(problem, y)


def _is_near(problem: Problem, y: Tensor) -> bool:
    """Of the size of the solution: an inner solver that goes far off meets numbers that overflow anywhere."""
    met = problem.f.undefined
    return met is not None and met.size <= NEAR * max(largest(problem.y0), largest(y))


def _undefined(problem: Problem, y: Tensor) -> str:
    met = problem.f.undefined
    if met is None:
        return ""
    where = f"in {met.bad:,} of {y.shape[-1]:,} components, first in number {met.first}"
    return f"f is nan or infinite for states near this one, {where}, at t = {problem.f.user_time(met.t):.9g}"


def _size(problem: Problem, y: Tensor) -> str:
    grown = f" from {largest(problem.y0):.3g}: the solution may grow without bound" if _grown(problem, y) else ""
    return f"largest |y| {largest(y):.3g}{grown}"


def _grown(problem: Problem, y: Tensor) -> bool:
    return largest(y) > GROWN * max(largest(problem.y0), 1.0)


def _ahead(problem: Problem, t: float, y: Tensor) -> str:
    """Whether f has no value just ahead, which no step can cross."""
    span = number(problem.ts[-1]) - t
    with torch.no_grad():
        for part in () if problem.endless else AHEAD:
            value = problem.f(t + part * span, y.detach())
            if not all_finite(value):
                return f", at t = {problem.f.user_time(t + part * span):.9g} {_not_finite(problem, value)}"
    return ""


def _not_finite(problem: Problem, value: Tensor) -> str:
    """In which components."""
    if problem.f.spread is not None:  # who knows only a part
        return "f is nan or infinite"
    where = (~torch.isfinite(value)).nonzero().flatten()
    return f"f is nan or infinite in {len(where):,} of {value.shape[-1]:,} components, first in number {int(where[0])}"


def _bad_parameter(problem: Problem) -> str | None:
    """The name of one that is not finite, where f is a module."""
    if problem.f.spread is not None or not isinstance(problem.f.func, torch.nn.Module):
        return None
    trained = ((name, p) for name, p in problem.f.func.named_parameters() if p.requires_grad and not is_lazy(p))
    return next((name for name, p in trained if not bool(torch.isfinite(p.detach()).all())), None)


def _located(status: Status, problem: Problem, t0: Time, t1: Time, detail: str, advice: str = "") -> Failure:
    h = number(t1) - number(t0)
    if status in NOT_FINITE and (name := _bad_parameter(problem)) is not None:
        detail, advice = f"{detail}; the parameter {name!r} of f holds nan or infinite values", PARAMETERS
    return Failure(status, problem.f.user_time(t0), problem.stats.n_steps, h, detail, advice)
