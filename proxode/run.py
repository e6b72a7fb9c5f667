"""One call from the door to its `Solution`: what it asks for is checked, prepared and run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from .autocast import uncast
from .collective import check_collective
from .configure import DOOR_OPTIONS
from .controllers import Adaptive
from .events import Event
from .gradients import refuse_for_events
from .gradients.communication import check_transposed
from .methods import Method, method_of
from .prepare import check_limit, outside_inference_mode, prepare, refuse_for_spread, unknown_names
from .remarks import remark
from .sharding import spread_of
from .solution import Solution, SolverError, new_stats
from .spread import LOCKSTEP, over

Func = Callable[..., Any]


def known_options(options: dict[str, Any], argument: str, level: int) -> dict[str, Any]:
    """Those that mean something; of each other one a warning says at the user's line, `level` calls up, what may have
    been meant."""
    for name in sorted(set(options) - set(DOOR_OPTIONS)):
        message = f"an unknown option in `{argument}` is ignored: {unknown_names([name], DOOR_OPTIONS)}"
        warnings.warn(message, stacklevel=level + 1)
    return {name: value for name, value in options.items() if name in DOOR_OPTIONS}


def at_the_door(
    func: Func, y0: Any, t: Any, rtol: Any, atol: Any, method: Any, options: dict[str, Any] | None,
    dense: bool = False, until: Event | None = None,
) -> Solution:  # fmt: skip
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"`options` must be a dict, not {type(options).__name__}")
    chosen = method_of(method)
    options = known_options(options or {}, "options", level=3 if until is None else 4)
    max_steps = check_limit("max_num_steps", options.pop("max_num_steps", 2**31 - 1))
    if until is None:
        return run(func, y0, t, rtol, atol, chosen, options, max_steps, throw=True, dense=dense)
    return run(func, y0, t, rtol, atol, chosen, options, max_steps, throw=False, events=(until,), endless=True)


def run(
    func: Func, y0: Any, t: Any, rtol: Any, atol: Any, method: Method, options: dict[str, Any], max_steps: int,
    throw: bool, dense: bool = False, strict: bool = False, events: tuple[Event, ...] = (), endless: bool = False,
) -> Solution:  # fmt: skip
    began = perf_counter()
    if events:
        refuse_for_events()
    options = dict(options)
    spread = spread_of(y0, options.pop("group", None))
    if spread is not None:
        refuse_for_spread(events=events, compile=options.get("compile"))
    with outside_inference_mode(), over(spread):
        problem, gradient, plan = prepare(
            func, y0, t, rtol, atol, method, options, new_stats(), strict=strict, endless=endless
        )
        check_collective(func, plan.method, gradient)
        plan = replace(plan, max_steps=max_steps, dense=dense)
        check_transposed(problem)
        # torchdiffeq, at whose door one is not `strict`, counts the steps between two outputs.
        decides = isinstance(plan.controller, Adaptive) or plan.method.implicit  # by a state, about its steps
        with uncast(), over(spread if spread is not None or decides else LOCKSTEP):
            solution = gradient.solve(replace(problem, events=events, limited_by_output=not strict), plan)
        solution.inner_tol = plan.inner_tol
        solution.status = remark(problem, plan, solution)
    problem.stats.seconds = perf_counter() - began
    if problem.y0.device.type == "cpu" and problem.f.compiled is None:
        problem.stats.seconds_in_f = problem.f.seconds  # of now: a backward goes on with the same f
    if solution.failure is not None and throw:
        raise SolverError(solution.failure, solution)
    return solution
