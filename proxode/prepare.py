"""From the arguments of a call to what runs: the problem, its gradient and the plan."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .compiled import Compiled, check_compile
from .configure import DOOR_OPTIONS, PROBLEM, SOLVE_OPTIONS, choose_gradient, configure
from .endless import going_on, nearby, without_end
from .gradients import Continuous, Gradient
from .gradients.tangent import refuse_transforms, refuse_vmap, transforming
from .logs import Log, listening
from .loop import Plan
from .methods import METHODS, ExplicitRungeKutta, Method, method_of
from .methods.auto import Auto
from .observers import Observer
from .problem import SNAP, Problem, make_problem
from .progress import Progress, is_terminal
from .quadrature import check_unread
from .sharding import local_part
from .solution import Stats
from .times import number

IMPLICIT_DTYPES = (torch.float32, torch.float64)


@contextmanager
def outside_inference_mode() -> Iterator[None]:
    """func may need grad mode inside, which inference tensors do not admit."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def prepare(
    func: Callable[..., Any], y0: Any, t: Any, rtol: Any, atol: Any, method: Method, options: dict[str, Any],
    stats: Stats, *, strict: bool, endless: bool = False,
) -> tuple[Problem, Gradient, Plan]:  # fmt: skip
    """`endless`: t has two times, of which the second only says in which direction time runs."""
    options = dict(options)
    refuse_vmap(t, *(y0 if isinstance(y0, tuple) else (y0,)))
    method = _for_dtype(method, y0)
    observers = observers_of(options.pop("progress", False))
    compiling = check_compile(options.pop("compile", None))
    marks = {name: options.pop(name) for name in PROBLEM if name in options}
    problem = make_problem(func, y0, t, rtol, atol, stats, implicit=method.implicit, **marks)
    if transforming():
        refuse_vmap(problem.f(problem.ts[0], problem.y0))  # f may capture what is mapped over
        if method.implicit:
            refuse_transforms()
    problem = replace(problem, observers=observers) if observers else problem
    problem.f.compiled = Compiled(func) if compiling else None
    if problem.quadrature is not None:
        check_unread(problem)
    gradient = choose_gradient(options)
    if isinstance(gradient, Continuous):
        check_adjoint(gradient.options)
    step_size = options.get("step_size")
    plan = configure(nearby(problem, step_size) if endless else problem, method, options, strict=strict)
    if endless:
        problem = without_end(problem)
        plan = replace(plan, controller=going_on(plan.controller, problem, step_size))
    return problem, gradient, plan


def refuse_for_spread(**given: Any) -> None:
    """What there is not for a state that is divided over processes."""
    for name, value in given.items():
        if value:
            raise NotImplementedError(
                f"`{name}` is not available where the state is divided over processes: leave it out"
            )


def observers_of(progress: Any) -> tuple[Observer, ...]:
    """Who look on: a line of progress where it was asked for and can be seen, the log where somebody reads it."""
    if not isinstance(progress, bool | None):
        raise TypeError(f"`progress` must be True or False, not {progress!r}")
    bar = (Progress(),) if progress and is_terminal(sys.stderr) and not _is_one_of_several() else ()
    return (*bar, Log()) if listening() else bar


def _is_one_of_several() -> bool:
    """Of several processes on one terminal the first speaks."""
    return dist.is_available() and dist.is_initialized() and dist.get_rank() > 0


def _for_dtype(method: Method, y0: Any) -> Method:
    """`auto` without the part that solves equations, for states on which none can be solved."""
    parts = y0 if isinstance(y0, tuple) else (y0,)
    if not isinstance(method, Auto) or not parts or not all(isinstance(part, Tensor) for part in parts):
        return method
    known = torch.cat([local_part(part).reshape(-1)[:0] for part in parts]).dtype in IMPLICIT_DTYPES
    return method if known else method.explicit_part


ARGUMENTS = ("method", "inner", "gradient", "save_at", "event", "rtol", "atol", "step_size", "per_sample", "max_steps",
             "progress", "throw", "dense")  # fmt: skip


def check_options(caller: str, options: dict[str, Any], known: Iterable[str] = (*ARGUMENTS, *SOLVE_OPTIONS)) -> None:
    """Raise for names that mean nothing. `known` are all that may be given, as options or as arguments."""
    unknown = sorted(set(options) - set(SOLVE_OPTIONS))
    if not unknown:
        return
    if unknown == ["options"]:
        raise TypeError(f"{caller}() takes options as keywords: step_size=0.1, not options={{'step_size': 0.1}}")
    raise TypeError(f"{caller}() got unknown options: {unknown_names(unknown, tuple(known))}")


def check_adjoint(options: Any) -> None:
    """Options of an adjoint solve: what is wrong with them is said before it begins, in backward."""
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"`options` of Continuous must be a dict, not {type(options).__name__}")
    unknown = sorted(set(options or {}) - set(DOOR_OPTIONS))
    if unknown:
        raise TypeError(f"Continuous got unknown options: {unknown_names(unknown, DOOR_OPTIONS)}")


ADJOINT = "it is one of gradient=proxode.gradients.Continuous(...)"
ELSEWHERE = {  # names that mean something at another door
    "adjoint_rtol": ADJOINT, "adjoint_atol": ADJOINT, "adjoint_method": ADJOINT, "adjoint_options": ADJOINT,
    "adjoint_params": ADJOINT, "max_num_steps": "it is called max_steps here", "event_fn": "it is called event here",
    "grid_points": "times that no step crosses are `step_t`, or `jump_t` where f jumps",
    "eps": "torchdiffeq has no such option any more; `jump_t` marks where f jumps",
}  # fmt: skip


def unknown_names(unknown: Iterable[str], known: tuple[str, ...]) -> str:
    """Each with what may have been meant; then all that there are."""

    def meant(name: str) -> str:
        found = difflib.get_close_matches(name, known, 1)
        if name in ELSEWHERE and name not in known:
            return f"{name!r} ({ELSEWHERE[name]})"
        if name == "save_at" and "times" in known:
            return f"{name!r} (a layer calls it times, from the first to the last, in the place of t0 and t1)"
        if name == "save_at" and "reverse" in known:  # of a Stepper
            return f"{name!r} (of `proxode.solve` only: here interpolate(t) gives the state inside of the last step)"
        if name in ARGUMENTS and name not in known:
            return f"{name!r} (of `proxode.solve` only)"
        return f"{name!r}" + (f" (did you mean {found[0]!r}?)" if found else "")

    words = map(meant, unknown)
    return f"{', '.join(words)}; it accepts: {', '.join(known)}"


def check_method(method: str | Method | None, step_size: Any, options: dict[str, Any]) -> Method:
    """The method, which must have steps to take."""
    chosen = method_of(method)
    if step_size is None and not chosen.adapting().adaptive and options.get("grid_constructor") is None:
        raise ValueError(
            f"method {chosen.name!r} takes fixed steps{_why_fixed(chosen)}: give `step_size` (or `grid_constructor`), "
            "or choose an adaptive method such as 'dopri5'"
        )
    return chosen


def _why_fixed(method: Method) -> str:
    """Of a tableau of the user's own it is not plain."""
    own = isinstance(method, ExplicitRungeKutta) and method.tableau.name not in METHODS
    return " (its tableau has no `b_error`)" if own else ""


def check_limit(name: str, limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"`{name}` must be a positive integer, not {limit!r}")
    return limit


def check_time(name: str, t: Any) -> Tensor:
    """One time, as a float64 tensor of one element."""
    if not isinstance(t, int | float | Tensor) or isinstance(t, bool):
        raise TypeError(f"`{name}` must be a number or a tensor of one, not {type(t).__name__}")
    t = torch.as_tensor(t, dtype=torch.float64)
    if t.numel() != 1 or not math.isfinite(number(t)):
        raise ValueError(f"`{name}` must be one finite number")
    return t.reshape(1)


def check_ends(t0: Any, t1: Any) -> list[Tensor]:
    ends = [check_time("t0", t0), check_time("t1", t1)]
    if number(ends[0]) == number(ends[1]):
        raise ValueError("`t0` and `t1` are equal: there is nothing to integrate")
    return ends


def save_times(t0: Any, t1: Any, save_at: Any) -> tuple[Tensor, slice]:
    """t0, the times to save and t1 as one tensor, and which part of it the user wants back."""
    ends = check_ends(t0, t1)
    if save_at is None:
        return torch.cat(ends), slice(0, 2)
    if not isinstance(save_at, Tensor) or not save_at.is_floating_point() or save_at.dim() != 1 or not len(save_at):
        raise TypeError("`save_at` must be a one-dimensional floating torch.Tensor of times: torch.tensor([0.0, ...])")
    low, high = sorted((number(ends[0]), number(ends[1])))
    ulp = torch.finfo(save_at.dtype).eps
    save_at = save_at.to(torch.float64)
    for end in ends:  # an end that was rounded to float32 is still that end: in that dtype, or where it is left outside
        off, outside = (save_at - end).abs(), (save_at < low) | (save_at > high)
        near = SNAP * torch.minimum(end.abs(), (ends[1] - ends[0]).abs())
        save_at = torch.where((off <= ulp * end.abs()) | (outside & (off <= near)), end, save_at)
    if not bool(((save_at >= low) & (save_at <= high)).all()):
        raise ValueError(f"`save_at` must lie between t0 and t1, {number(ends[0]):g} and {number(ends[1]):g}")
    later = (save_at[1:] - save_at[:-1]) * (ends[1] - ends[0]).detach()
    if not bool((later > 0).all()):
        raise ValueError("`save_at` must be strictly monotone, from t0 towards t1")
    first = 0 if number(save_at[0]) == number(ends[0]) else 1
    last = 0 if number(save_at[-1]) == number(ends[1]) else 1
    times = torch.cat([*ends[:first], save_at, *ends[2 - last :][:last]])
    return times, slice(first, first + len(save_at))
