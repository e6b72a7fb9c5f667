"""What a Stepper is told: the arguments of `solve`, with rules of their own for steps that somebody else counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .configure import SOLVE_OPTIONS
from .gradients import Direct, Gradient, Implicit, gradient_of
from .loop import Plan
from .prepare import check_ends, check_limit, check_method, check_options, check_time, prepare
from .problem import Problem
from .sharding import spread_of
from .solution import Stats
from .structure import Structure
from .times import number

UNLIMITED = 2**62
ARGUMENTS = ("t1", "method", "inner", "gradient", "rtol", "atol", "step_size", "max_steps", "reverse")


def check_settings(caller: str, settings: dict[str, Any]) -> None:
    """Raise for what has no meaning. What depends on the state is checked when steps are prepared."""
    options = {name: value for name, value in settings.items() if name not in ARGUMENTS}
    check_options(caller, options, (*ARGUMENTS, "throw", *SOLVE_OPTIONS))
    check_method(settings["method"], settings["step_size"], options)
    if not isinstance(gradient_of(settings["gradient"]), Implicit | Direct):
        raise ValueError(
            f"`gradient` = {settings['gradient']!r} needs the whole solve at once, which a Stepper never has: "
            "use 'implicit' or 'direct', or call solve()"
        )
    if settings["max_steps"] is not None:
        check_limit("max_steps", settings["max_steps"])
    if settings["t1"] is None and options.get("grid_constructor") is not None:
        raise ValueError("`grid_constructor` needs a last time: give `t1`, or `step_size` in its place")
    if settings["t1"] is not None and settings["reverse"]:
        raise ValueError("`reverse` is for steps without an end: leave it out, `t1` tells the direction")


def check_replacement(y: Any, problem: Problem) -> None:
    """Raise if y cannot take the place of the state."""
    parts = y if isinstance(y, tuple) else (y,)
    same = all(isinstance(part, Tensor) for part in parts) and Structure.of(y) == problem.structure
    if not same or problem.structure.flatten(y).dtype != problem.y0.dtype:
        shapes = ", ".join(str(tuple(shape)) for shape in problem.structure.shapes)
        raise ValueError(f"`y` must be like the state that it replaces: {shapes} of {problem.y0.dtype}")


def prepare_steps(
    func: Any, y0: Any, t0: Any, stats: Stats, *, t1: Any, reverse: bool, max_steps: int | None, method: Any, rtol: Any,
    atol: Any, **options: Any,
) -> tuple[Problem, Gradient, Plan]:  # fmt: skip
    """What `solve` would run, from (t0, y0) on."""
    if options.pop("group", None) is not None or spread_of(y0, None) is not None:
        raise NotImplementedError("a Stepper of a state that is divided over processes is not available: use solve()")
    chosen = check_method(method, options["step_size"], options)
    start = number(check_time("t0", t0))
    ahead = start + (-1.0 if reverse else 1.0) * max(1.0, abs(start))  # any other time would do
    ts = torch.cat(check_ends(t0, ahead if t1 is None else t1))
    problem, gradient, plan = prepare(
        func, y0, ts, rtol, atol, chosen, options, stats, strict=True, endless=t1 is None
    )
    return problem, gradient, replace(plan, max_steps=UNLIMITED if max_steps is None else max_steps)
