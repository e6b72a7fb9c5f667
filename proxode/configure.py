"""From options to objects: the method with its settings, the steps it takes, and how its equations are solved."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import logs
from .controllers import Adaptive, Controller, FixedGrid
from .gradients import SETTINGS, Gradient, gradient_of
from .grid import make_grid
from .inner import ImplicitEquation, InnerResult, InnerSolver, Solve, Stop, inner_solvers, solve_equation
from .inner.blame import blamed, is_steered
from .loop import Plan
from .methods import Method, Proximal, method_of
from .norms import Norm, largest, rms_norm, tolerance_scale, two_norm
from .problem import Problem
from .quadrature import Split, norm_of_solved, solve_without_rest
from .times import number
from .tolerances import (
    KAPPA,
    KAPPA_ADAPTIVE,
    OF_MOVE,
    OF_MOVE_ADAPTIVE,
    OF_MOVE_GIVEN,
    accuracy_of,
    backward_rtol_of,
    relative_of,
    share_for,
)

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
    method = _with_settings(method, options).for_tolerance(relative_of(problem))
    share = share_for(problem, method) if method.implicit and not fixed else 1.0
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
    tol, backward_rtol = None, backward_rtol_of(problem, None)
    if method.implicit:
        solve, tol, backward_rtol = _make_solve(problem, options, None if fixed else share)
    accuracy = accuracy_of(problem, options.get("inner_tol"), share)
    return Plan(method, controller, solve, tol, backward_rtol, accuracy, again)


def _refuse(method: Method, options: dict[str, Any], fixed: bool, strict: bool) -> None:
    """Say which options have no meaning for this method."""
    others = {*OWN} - {*method.settings}
    idle = {*(STEPPING if fixed else GRID), *(() if method.implicit else INNER), *others}
    defaults = {"inner": "auto"}
    useless = sorted(name for name in options if name in idle and options[name] != defaults.get(name))
    if useless:
        kind = "proximal" if method.implicit else "explicit"
        message = (
            f"{', '.join(f'`{name}`' for name in useless)} has no meaning for method '{method.name}' "
            f"({kind}, with {'fixed' if fixed else 'adaptive'} steps)"
        )
        fixing = "" if fixed or not {*GRID} & {*useless} else ", or name 'bdf2' or 'rk4', which step on a given grid"
        if strict:
            raise ValueError(message + ": leave it out" + fixing)
        warnings.warn(message + " and is ignored: leave it out" + fixing, stacklevel=7)


def _with_settings(method: Method, options: dict[str, Any]) -> Method:
    given = {name: options[name] for name in method.settings if name in options}
    return replace(method, **given) if given else method


def _no_equations(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
    raise AssertionError("an explicit method has no equations to solve")


# The inner solves


def _make_solve(problem: Problem, options: dict[str, Any], share: float | None) -> tuple[Solve, float, float]:
    lr, eta = (_positive(name, options.get(name)) for name in ("inner_lr", "inner_eta"))
    if lr is not None and eta is not None:
        raise ValueError("`inner_lr` and `inner_eta` exclude each other (lr = eta / gamma): give one of them")
    split = None if problem.quadrature is None else Split.of(problem)
    size = problem.f.size if split is None else split.unknowns
    inner = options.get("inner", "auto")
    # What is wrong with them is said at once.
    steered = any(map(is_steered, inner_solvers(inner, size=size, lr=lr if eta is None else 1.0)))

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
        if tol is not None and (share is None or kind == "update"):
            return Stop(tol, kind, max_iters=max_iters, of_move=OF_MOVE_GIVEN, given=share is None)
        scale = tolerance_scale(rtol, atol, anchor, guess)
        numbers = torch.finfo(scale.dtype)
        scale = scale.clamp(min=max(numbers.eps * largest(scale), numbers.tiny**0.25))
        if kind == "update":
            whole = KAPPA * float(two_norm(scale))
            return Stop(whole, kind, max_iters=max_iters, given=share is None)
        if share is not None:
            tight, move = KAPPA_ADAPTIVE * share, OF_MOVE_ADAPTIVE
            # The rates of parts that are not solved for multiply what an unseen point is off, and see it anyway.
            size_of = norm if tol is None else _larger(norm, scale, tight / tol)
            return Stop(tight, kind, scale, size_of, max_iters, believing=split is None, of_move=move)
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
        return blamed(result, equation, guess, stop, failures=f.unsolved, proven=f.proven, steered=steered)

    whole = solve if split is None else solve_without_rest(split, solve)
    return whole, KAPPA if tol is None else tol, backward_rtol_of(problem, tol)


def _larger(norm: Norm, scale: Tensor, factor: float) -> Norm:
    """The norm of x / scale, or factor times that of x, whichever is larger. A tolerance of one's own may make
    equations more accurate than the error test needs them. It cannot make them less: the guess would be as good as a
    solution, so that steps are as short as explicit ones."""
    return lambda x: torch.maximum(norm(x), factor * rms_norm(x * scale))


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
