"""What to try where the equation of a step was not solved: not the solver that ran, and no step that is not allowed.
And where the user's own limits made the steps too many."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .controllers import Controller, FixedGrid
from .inner import INNER, InnerResult
from .status import Status

MATRIX = 4096  # unknowns up to which a dense Jacobian is worth a try where nothing else has solved an equation
HELD = "lower `min_step`, which forbids the shorter step that is needed here"
SHORTER, ADAPT = "take smaller steps", ", or leave out `step_size`: steps then adapt"
LOOK = "look at f there (a division, a log, a root?), or at its parameters: a loss that overflowed before"
JUMPS = "see that f does not jump in y (sign, round)"
OTHERS = "choose another inner solver: 'anderson', 'newton_krylov', 'fr'"
UNDEFINED = (
    "look at f near there (a root, a log or a power of a negative number?): keep its argument where it has a value, or "
    "end the solve before"
)
MORE_STEPS = "raise `max_num_steps` (`max_steps` in `solve`)"
PARAMETERS = "look at the loss and its gradient before the last step of the optimiser: one of them has overflowed"


def for_equation(inner: InnerResult, unknowns: float, *, can_adapt: bool, held: bool, undefined: bool) -> str:
    """Nothing where the status has said it all. `unknowns`: of which a matrix could be made. `can_adapt`: could the
    method choose its steps? `held`: it does, and `min_step` keeps them long. `undefined`: has f no value near by?"""
    status, ways = inner.status, [HELD if held else SHORTER + (ADAPT if can_adapt else "")]
    if status.final:
        return ""
    if undefined:
        return f"{UNDEFINED if inner.iterations else LOOK}; else {ways[0]}"
    if status is Status.INNER_MAX_ITERATIONS and not held:
        ways.append("raise `inner_max_iters`, loosen `inner_tol`")
    elif status is Status.INNER_STAGNATED:
        ways.append(f"{JUMPS}, loosen `inner_tol`, use float64")
    elif status is Status.INNER_NON_FINITE:
        ways.append(LOOK)
    elif status not in (Status.INNER_MAX_ITERATIONS, Status.INNER_DIVERGED, Status.INNER_OUTSIDE_RADIUS):
        return ""
    if status in (Status.INNER_DIVERGED, Status.INNER_NON_FINITE) and _has_length(inner.solver):
        ways.append("lower `inner_lr` or leave it out")
    if status is not Status.INNER_NON_FINITE or inner.iterations:  # the iterates may have grown out of all bounds
        ways.append(OTHERS if status is Status.INNER_OUTSIDE_RADIUS else _other_than(inner.solver, unknowns))
    return "; ".join(way for way in ways if way)


def for_many_steps(controller: Controller, state: Any, *, can_adapt: bool) -> str:
    """Where a limit of steps was reached because each is as long as the user allows, and not as the problem does;
    `state` is that of the controller."""
    if isinstance(controller, FixedGrid):
        count = len(controller.grid) - 1  # of a solve without a last time there is none
        whole = f", which makes {count:,} steps of the whole way" if count > 0 else ""
        return f"raise `step_size`{whole}{ADAPT if can_adapt else ''}; or {MORE_STEPS}"
    return f"raise `max_step`, which keeps the steps short; or {MORE_STEPS}" if state.h >= controller.max_step else ""


def _has_length(solver: str) -> bool:
    """May it be a step length that was given?"""
    return solver not in INNER or any(f.name == "lr" for f in fields(INNER[solver]))


def _other_than(solver: str, unknowns: float) -> str:
    """The Newton iteration without matrices goes the way of that with one, and knows less of what is slow."""
    if solver == "newton":
        return ""
    if unknowns <= MATRIX:
        return "choose 'newton'"
    return "" if solver == "newton_krylov" else "choose 'newton_krylov', or leave out `inner`"
