"""An equation whose root no iteration finds from its guesses, followed from where it is known.

The equation of a shorter step has `gamma` and `anchor - previous` smaller by a factor (for backward Euler and for
Crank-Nicolson it is just that), and without length the last state solves it. Newton's iteration is sure near a root, so
the length is raised by factors, as large as the solves allow, from each root to the guess of the next, up to the whole.
A solve that took long may have wandered to another root, and does not count where a shorter way is left; so the root
is, as far as that can be told, the one that belongs to the solution.

For steps of given length: an adaptive method has the same, cheaper, by a shorter step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..status import Status
from ..times import number
from .base import InnerSolver
from .equation import ImplicitEquation
from .stop import InnerResult

FIRST = 1e-2  # part of the step that is tried first, and the factor by which it falls until one is solved
LEAST = 1e-14  # part of the step below which the last state would have to be as good as a root
NARROW = 1.01  # factor from one root to the next at which their curve has come to an end
STEADY = 12  # iterations of a solve that goes straight to its root
NEAR = 1.5  # factor from one root to the next up to which a longer solve counts too
TRIES = 40  # solves, at most

LOST = (Status.INNER_STAGNATED, Status.INNER_DIVERGED, Status.INNER_NON_FINITE)

SolveOne = Callable[[ImplicitEquation, Tensor], InnerResult]


def is_lost(result: InnerResult, solver: InnerSolver | None) -> bool:
    """Has the solve failed by itself, and not at a limit that somebody has set?"""
    if result.status is Status.INNER_MAX_ITERATIONS:
        return solver is not None and result.iterations >= solver.max_iters
    return result.status in LOST


def followed(equation: ImplicitEquation, previous: Tensor, solve: SolveOne) -> Tensor | None:
    """A guess for the equation that is the root of nearly all of it; None where the roots could not be followed."""
    whole, previous = equation.detached(), previous.detach()
    z, known = previous, 0.0  # the last root, and the part of the step that it belongs to
    part, factor = FIRST, 1.0 / FIRST
    for _ in range(TRIES):
        result = solve(_shorter(whole, previous, part), z)
        steady = result.iterations <= STEADY or (known > 0.0 and part <= NEAR * known)
        if result.converged and steady:
            if part == 1.0:
                return result.z
            z, known = result.z, part
            part, factor = min(1.0, part * factor), factor * factor
        elif known:
            factor = math.sqrt(part / known)
            part = known * factor
        else:
            part *= FIRST
        if factor < NARROW or part < LEAST:
            break
    return None


def _shorter(equation: ImplicitEquation, previous: Tensor, part: float) -> ImplicitEquation:
    if part == 1.0:
        return equation
    anchor = torch.lerp(previous, equation.anchor, part)
    return replace(equation, anchor=anchor, gamma=part * number(equation.gamma))
