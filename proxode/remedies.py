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
LOOSEN = "loosen rtol and atol"
FOLLOWS = f"{LOOSEN}, which the tolerance of equations follows without `inner_tol`"
CONTINUOUS = "make it continuous (`tanh(y / e)` for `sign(y)`), or find the crossing by an event"
MAY_JUMP = f"f may jump in y (sign, round, the derivative of abs, a table): then {CONTINUOUS}; in t: give `jump_t`"
LOOK_AHEAD = "f may jump in t (give `jump_t`) or in y (make it continuous), or be nan just ahead: look at it near there"
LEAVE_OUT = "leave out `inner` and its options, if they were given"
STEPPED_OVER = f"{CONTINUOUS}: looser tolerances only step over the jump"
GROWS = (
    "see whether the solution should grow without bound (a sign in f, weights that are too large?): then ask for a "
    "shorter time, or scale the state. If not, tighten atol, below the size of every component that matters: larger "
    "errors may lead one astray, as below zero, from where the solution runs away"
)
OTHERS = "choose another inner solver: 'anderson', 'newton_krylov', 'fr'"
UNDEFINED = (
    "look at f near there (a root, a log or a power of a negative number?): keep its argument where it has a value "
    "(`y.clamp(min=1e-6)`), or end the solve before"
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
        ways.append(f"raise `inner_max_iters`, {FOLLOWS}")
    elif status is Status.INNER_STAGNATED:
        ways.append(f"{JUMPS}, {FOLLOWS}, use float64")
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


def for_stop(status: Status, *, cause: str, explicit: bool, exact: bool) -> str:
    """Where there are no more steps, or none that is short enough. `cause`: what to do about one that was found, or is
    likely; loosened tolerances would only hide it. `exact`: is the state float64?"""
    if status is Status.MAX_STEPS:
        ways = [f"{cause}; else {MORE_STEPS}" if cause else f"{MORE_STEPS}, {LOOSEN}"]
    else:
        ways = [cause or f"{LOOK_AHEAD}; else {LOOSEN}", *([] if exact or cause == UNDEFINED else ["use float64"])]
    if explicit and cause not in (STEPPED_OVER, UNDEFINED):
        ways.append("use 'auto' or 'bdf' if the problem is stiff")
    return ", ".join(ways)


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
