"""From options to objects: the method with its settings, the steps it takes, and how its equations are solved."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import logs
from .controllers import Adaptive, Controller, FixedGrid
from .gradients import SETTINGS, Gradient, gradient_of
from .inner import ImplicitEquation, InnerResult, InnerSolver, Solve, Stop, inner_solvers, solve_equation
from .inner.blame import blamed
from .loop import Plan
from .methods import Method, Proximal, method_of
from .norms import largest, least, rms_norm, tolerance_scale, two_norm
from .problem import LEAST_RTOL, SNAP, Problem
from .quadrature import Split, norm_of_solved, solve_without_rest
from .times import Time, number

GRID = ("step_size", "grid_constructor")
INNER = ("inner", "inner_lr", "inner_eta", "inner_tol", "inner_stop", "inner_max_iters")
GRADIENT = ("gradient", *SETTINGS)
STEPPING = ("controller", "first_step", "min_step", "max_step", "safety", "ifactor", "dfactor")
OWN = ("predictor", "interp", "perturb", "rho")  # fields of some methods, which say so in `settings`
PROBLEM = ("norm", "step_t", "jump_t", "quadrature")

ARGUMENTS = ("progress", "max_num_steps", "dtype")  # of the door; `solve` calls them otherwise, or has no use for them

DOOR_OPTIONS = (*GRID, *INNER, *GRADIENT, *STEPPING, *OWN, *PROBLEM, "compile", "group", *ARGUMENTS)
SOLVE_OPTIONS = tuple(
    name for name in DOOR_OPTIONS if name not in ("step_size", "inner", "gradient", *ARGUMENTS)
)

OF_MOVE = 1e-3  # part of what a step moves that its residual may have: errors add up over steps, as moves do
KAPPA = 0.01  # part of the tolerance that the residual of an equation may have (Hairer & Wanner IV.8)
SHARE = 0.5  # of rtol^(1/(p+1)): keeps the error of a solve within ten tolerances on benchmarks/stiff_problems.py
OF_ATOL = 0.1  # part of atol over the size of the state that counts as a relative tolerance
LEAST_ORDER = 3  # whose share every lower order gets too: theirs would be tiny
OF_MOVE_ADAPTIVE = 0.1  # the same where an error test follows
KAPPA_ADAPTIVE = 0.3  # the same where steps are rejected by their error, which includes that of the solve
BACKWARD = 0.1  # part of rtol that a linear solve of backward may leave of the gradient; no error test follows it


def choose_gradient(options: dict[str, Any]) -> Gradient:
    """Takes what concerns the gradient out of the options."""
    given = {name: options.pop(name) for name in GRADIENT if name in options}
    settings = {name: value for name, value in given.items() if name in SETTINGS and value is not None}
    if not settings.get("store_graph", True):  # not wanted: nothing that another gradient could not do
        del settings["store_graph"]
    return gradient_of("implicit" if given.get("gradient") is None else given["gradient"], **settings)


def configure(problem: Problem, method: Method, options: dict[str, Any], *, strict: bool = False) -> Plan:
    """`strict` raises for an option that has no meaning for the method; else a warning says so."""

    def again(other: Problem, other_method: Any = None, other_options: dict[str, Any] | None = None) -> Plan:
        chosen = method if other_method is None else method_of(other_method)
        given = dict(options if other_options is None else other_options)
        limit = given.pop("max_num_steps", None)
        plan = configure(other, chosen, {name: given[name] for name in given if name in DOOR_OPTIONS}, strict=strict)
        return plan if limit is None else replace(plan, max_steps=limit)

    options = {name: value for name, value in options.items() if value is not None}
    options.pop("dtype", None)  # torchdiffeq's dtype of the time, which is float64 here
    gridded = any(name in options for name in GRID)
    # torchdiffeq's adaptive methods ignore a grid (GRAND passes one to dopri5), and so does the default there.
    fixed = gridded and (strict or isinstance(method, Proximal))
    method = method.stepping() if fixed else method.adapting()
    fixed = fixed or not method.adaptive
    _refuse(method, options, fixed, strict)
    method = _with_settings(method, options).for_tolerance(_relative(problem))
    share = _share(problem, method) if method.implicit and not fixed else 1.0
    controller: Controller
    if fixed:
        controller = FixedGrid(make_grid(problem, options.get("step_size"), options.get("grid_constructor")))
    else:
        settings = {name: options[name] for name in STEPPING if name in options}
        kind = settings.pop("controller", method.steering)
        if (kind == "order") != (method.steering == "order"):
            raise ValueError(f"`controller` {kind!r} does not suit method {method.name}: leave it out")
        plain = {name: v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for name, v in settings.items()}
        controller = Adaptive(kind, share=share, **plain)
    solve: Solve = _no_equations
    tol, backward_rtol = None, _backward_rtol(problem, None)
    if method.implicit:
        solve, tol, backward_rtol = _make_solve(problem, options, None if fixed else share)
    return Plan(method, controller, solve, tol, backward_rtol, _accuracy(problem, options, share), again)


def _accuracy(problem: Problem, options: dict[str, Any], share: float) -> Callable[[Tensor], Tensor | float]:
    if options.get("inner_tol") is not None:
        return lambda y: float(options["inner_tol"])
    return lambda y: KAPPA_ADAPTIVE * share * tolerance_scale(problem.rtol, problem.atol, y)


def _share(problem: Problem, method: Method) -> float:
    """The part of the tolerance that one step may use. The errors of N steps add up, and N grows as tol^(-1/(p+1)) at
    order p: with a share as small as 1/N the error of the whole solve stays in proportion to the tolerance."""
    return share_of(_relative(problem), method.implicit_order, problem.y0.dtype)


def _relative(problem: Problem) -> float:
    size = float(rms_norm(problem.y0.detach()).max()) or 1.0
    rtol, atol = (largest(tol) if isinstance(tol, Tensor) else tol for tol in (problem.rtol, problem.atol))
    return relative_tolerance(rtol, atol, size)


def relative_tolerance(rtol: float, atol: float, size: float) -> float:
    """Of a state of this size: a tiny rtol beside an atol that is not says nothing."""
    return min(max(rtol, OF_ATOL * atol / size), 1.0)


def share_of(rtol: float, order: int, dtype: torch.dtype) -> float:
    """That part for a relative tolerance; it is not less than the dtype carries."""
    share = SHARE * rtol ** (1.0 / (max(order, LEAST_ORDER) + 1))
    return min(1.0, max(share, LEAST_RTOL * torch.finfo(dtype).eps / rtol))


def _backward_rtol(problem: Problem, inner_tol: float | None) -> float:
    """What a linear solve in backward may leave of the gradient: a part of rtol, or what was asked of inner solves."""
    rtol = least(problem.rtol) if isinstance(problem.rtol, Tensor) else problem.rtol
    lowest = 4.0 * torch.finfo(problem.y0.dtype).eps
    return max(BACKWARD * rtol if inner_tol is None else min(inner_tol, BACKWARD * rtol), lowest)


def _refuse(method: Method, options: dict[str, Any], fixed: bool, strict: bool) -> None:
    """Say which options have no meaning for this method."""
    others = {*OWN} - {*method.settings}
    idle = {*(STEPPING if fixed else GRID), *(() if method.implicit else INNER), *others}
    defaults = {"inner": "auto"}
    useless = sorted(name for name in options if name in idle and options[name] != defaults.get(name))
    if useless:
        kind = "proximal" if method.implicit else "explicit"
        message = (
            f"{', '.join(f'`{name}`' for name in useless)} has no meaning for this {kind} method "
            f"with {'fixed' if fixed else 'adaptive'} steps"
        )
        if strict:
            raise ValueError(message + ": leave it out")
        warnings.warn(message + " and is ignored", stacklevel=7)


def _with_settings(method: Method, options: dict[str, Any]) -> Method:
    given = {name: options[name] for name in method.settings if name in options}
    return replace(method, **given) if given else method


def _no_equations(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
    raise AssertionError("an explicit method has no equations to solve")


# The grid of fixed steps


def make_grid(problem: Problem, step_size: Any, grid_constructor: Callable[..., Any] | None) -> tuple[Time, ...]:
    """The times between which fixed steps go: by step size, by the user's constructor, or the output times."""
    if step_size is not None and grid_constructor is not None:
        raise ValueError("`step_size` and `grid_constructor` exclude each other: give one of them")
    if len(problem.ts) == 1:
        return problem.ts
    if grid_constructor is not None:
        grid = _constructed(problem, grid_constructor)
    elif step_size is not None:
        grid = _equal_steps(problem, step_size)
    else:
        grid = problem.ts
    return _with_stops(grid, problem)


def _with_stops(grid: tuple[Time, ...], problem: Problem) -> tuple[Time, ...]:
    """The grid with the times that no step may cross; a point that nearly is one of them gives way to it."""
    if not problem.stops:
        return grid
    kept = set(map(number, problem.ts))
    least = SNAP * min(number(b) - number(a) for a, b in itertools.pairwise(grid))
    inside = [s for s in problem.stops if number(grid[0]) < s < number(grid[-1])]
    points = [p for p in grid if number(p) in kept or all(abs(number(p) - s) > least for s in inside)]
    stops = [s for s in inside if all(abs(number(p) - s) > least for p in points)]
    return tuple(sorted((*points, *stops), key=number))


def _equal_steps(problem: Problem, step_size: Any) -> tuple[Time, ...]:
    if isinstance(step_size, Tensor) and step_size.numel() == 1:
        step_size = float(step_size)
    if isinstance(step_size, bool) or not isinstance(step_size, int | float):
        raise TypeError(f"`step_size` must be a number, not {type(step_size).__name__}")
    if not (math.isfinite(step_size) and step_size > 0):
        raise ValueError(f"`step_size` must be positive and finite, not {step_size} (also where t decreases)")
    t0, t1 = problem.ts[0], problem.ts[-1]
    count = max(1, math.ceil((number(t1) - number(t0)) / step_size - SNAP))
    grid = [t0, *(t0 + i * float(step_size) for i in range(1, count)), t1]
    return tuple(_snapped(grid, problem.ts, SNAP * step_size))


def _snapped(grid: list[Time], ts: tuple[Time, ...], distance: float) -> list[Time]:
    """The grid with points that nearly are output times replaced by them, so that nothing is interpolated there."""
    j = 0
    for i, point in enumerate(grid):
        while j < len(ts) - 1 and number(ts[j]) < number(point) - distance:
            j += 1
        if abs(number(ts[j]) - number(point)) <= distance:
            grid[i] = ts[j]
    return grid


def _constructed(problem: Problem, grid_constructor: Callable[..., Any]) -> tuple[Time, ...]:
    if not callable(grid_constructor):
        raise TypeError(f"`grid_constructor` must be a function, not {type(grid_constructor).__name__}")
    grid = grid_constructor(problem.f.func, problem.structure.restore(problem.y0), problem.user_ts)
    if not isinstance(grid, Tensor) or grid.dim() != 1 or not grid.is_floating_point() or len(grid) < 2:
        raise TypeError("`grid_constructor` must return a one-dimensional floating tensor of at least two times")
    grid = (grid if problem.sign > 0 else -grid).to(torch.float64)
    points: list[Time] = list(grid.unbind()) if grid.requires_grad else grid.tolist()
    ends = number(points[0]) == number(problem.ts[0]), number(points[-1]) == number(problem.ts[-1])
    if not all(ends):
        raise ValueError("`grid_constructor` must return a grid from t[0] to t[-1]")
    if not bool((grid[1:] > grid[:-1]).all()):
        raise ValueError("`grid_constructor` must return strictly monotone times, in the direction of t")
    return tuple(points)


# The inner solves


def _make_solve(problem: Problem, options: dict[str, Any], share: float | None) -> tuple[Solve, float, float]:
    lr, eta = (_positive(name, options.get(name)) for name in ("inner_lr", "inner_eta"))
    if lr is not None and eta is not None:
        raise ValueError("`inner_lr` and `inner_eta` exclude each other (lr = eta / gamma): give one of them")
    split = None if problem.quadrature is None else Split.of(problem)
    size = problem.f.size if split is None else split.unknowns
    inner = options.get("inner", "auto")
    inner_solvers(inner, size=size, lr=lr if eta is None else 1.0)  # what is wrong with them is said at once

    def inner_for(equation: ImplicitEquation) -> tuple[InnerSolver, ...]:
        length = lr if eta is None else eta / abs(number(equation.gamma))
        return inner_solvers(inner, size=size, lr=length, equation=equation)

    tol = _positive("inner_tol", options.get("inner_tol"))
    kind = options.get("inner_stop", "residual")
    if kind not in ("residual", "update"):
        raise ValueError(f"unknown `inner_stop` {kind!r}; known are: residual, update")
    max_iters = options.get("inner_max_iters")
    if max_iters is not None and (isinstance(max_iters, bool) or not isinstance(max_iters, int) or max_iters < 1):
        raise ValueError(f"`inner_max_iters` must be a positive integer, not {max_iters!r}")

    rtol, atol, norm = problem.rtol, problem.atol, problem.norm
    if split is not None:
        rtol, atol = (x[split.solved] if isinstance(x, Tensor) and x.dim() else x for x in (rtol, atol))
        norm = norm_of_solved(split, norm)

    def make_stop(anchor: Tensor, guess: Tensor) -> Stop:
        if tol is not None:
            return Stop(tol, kind, max_iters=max_iters, given=share is None)
        scale = tolerance_scale(rtol, atol, anchor, guess)
        numbers = torch.finfo(scale.dtype)
        scale = scale.clamp(min=max(numbers.eps * largest(scale), numbers.tiny**0.25))
        if kind == "update":
            whole = KAPPA * float(two_norm(scale))
            return Stop(whole, kind, max_iters=max_iters, given=share is None)
        if share is not None:
            tight, move = KAPPA_ADAPTIVE * share, OF_MOVE_ADAPTIVE
            # The rates of parts that are not solved for multiply what an unseen point is off, and see it anyway.
            return Stop(tight, kind, scale, norm, max_iters, believing=split is None, of_move=move)
        return Stop(KAPPA, kind, scale, norm, max_iters, of_move=OF_MOVE, given=True)

    def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
        stop = make_stop(equation.anchor, guess)
        result: InnerResult | None = None
        for inner in inner_for(equation):
            if result is not None:
                told = problem.f.user_time(equation.t), result.solver, result.status.name, result.iterations
                logs.INNER.debug("t = %g: %s, %s after %d iterations: %s is next", *told, inner.name)
            result = solve_equation(inner, equation, guess, stop)
            if result.converged:
                break
        assert result is not None
        f = problem.f
        if result.converged:
            f.proven |= result.iterations > 0 and result.size <= result.tol  # and not by being noise
            return result
        f.unsolved += 1
        return blamed(result, equation, guess, stop, failures=f.unsolved, proven=f.proven)

    whole = solve if split is None else solve_without_rest(split, solve)
    return whole, KAPPA if tol is None else tol, _backward_rtol(problem, tol)


def _positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, Tensor) and value.numel() == 1:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a number, not {type(value).__name__}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be positive and finite, not {value}")
    return float(value)
