"""Who is to blame for an equation that was not solved. Mostly the step, and a shorter one mends it. But if f is random
there is no equation, without a derivative of f none has a way to its root, and a solver with a wrong sign solves none:
then shorter and shorter steps would only take time.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..randomness import is_random
from ..status import Status
from ..times import number
from .base import InnerSolver
from .equation import ImplicitEquation
from .own import is_own
from .stop import InnerResult, Stop

TRIES = 4  # equations that were not solved, and none that was, from which a solver is suspected
EASY = 0.1  # what one plain iteration leaves of a residual that any solver should lower


@torch.no_grad()
def blamed(
    result: InnerResult, equation: ImplicitEquation, guess: Tensor, stop: Stop, *, failures: int, proven: bool,
    steered: bool,
) -> InnerResult:  # fmt: skip
    """The same failure by its cause. It is looked for in the first, second, fourth, eighth ... failure of a solve,
    for a few evaluations each. `proven`: has the solver solved others? `steered`: is it the
    user's own, or its step length?"""
    if failures & (failures - 1) or (result.status is Status.INNER_NON_FINITE and not result.iterations):
        return result
    if is_random(equation.f, number(equation.t), guess):
        return replace(result, status=Status.RANDOM)
    suspected = not proven and failures >= TRIES
    if suspected and not stop.given and not equation.f.has_derivative(equation.t, guess):
        return replace(result, status=Status.INNER_NO_DERIVATIVE)
    if suspected and steered and stop.by_residual and _is_easy(equation, guess, stop, result.size):
        return replace(result, status=Status.INNER_AT_FAULT)
    return result


def is_steered(solver: InnerSolver) -> bool:
    """May what the user has given be at fault?"""
    return is_own(solver) or getattr(solver, "lr", None) is not None


def _is_easy(equation: ImplicitEquation, guess: Tensor, stop: Stop, reached: float) -> bool:
    """Does one plain iteration, z = anchor + gamma f(t, z), come nearer than the solver with all of its own?"""
    r = equation.residual(guess)
    before, after = stop.measure(r), stop.measure(equation.residual(guess - r))
    return after <= EASY * min(before, reached)
