"""An equation whose root no iteration finds from its guess, followed from where it is known.

With gamma = 0 the anchor solves `z = anchor + gamma f(t, z)`, and the root moves with gamma, as backward Euler's step
does with its length. Newton's iteration is sure near a root: gamma is raised by factors, as large as the solves allow,
from each root to the guess of the next, up to its own value. Where an equation has several roots, that is the one which
belongs to the solution. For steps of given length: an adaptive method has the same, cheaper, by a shorter step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ..vector_field import number
from .base import InnerResult
from .equation import ImplicitEquation

FIRST = 1e-2  # part of gamma that is tried first, and the factor by which it falls until one is solved
LEAST = 1e-14  # part of gamma below which the anchor would have to be as good as a root
NARROW = 1.01  # factor of gamma from one root to the next at which their curve has come to an end
TRIES = 60  # solves, at most

SolveOne = Callable[[ImplicitEquation, Tensor], InnerResult]


def followed(equation: ImplicitEquation, solve: SolveOne, failed: InnerResult) -> InnerResult:
    """The solved equation, or the failure from which this began."""
    gamma, iterations = number(equation.gamma), failed.iterations
    z, known = equation.anchor, 0.0  # the last root, and the part of gamma that it belongs to
    part, factor = FIRST, 1.0 / FIRST
    for _ in range(TRIES):
        result = solve(replace(equation, gamma=part * gamma), z)
        iterations += result.iterations
        if result.converged and part == 1.0:
            return replace(result, iterations=iterations)
        if result.converged:
            z, known = result.z, part
            part, factor = min(1.0, part * factor), factor * factor
        elif known:
            factor = math.sqrt(part / known)
            part = known * factor
        else:
            part *= FIRST
        if factor < NARROW or part < LEAST:
            break
    return failed
