"""How much of the tolerance goes where: to a step, to the equations of a step, to the linear solves of backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .methods import Method
from .norms import largest, least, rms_norm, tolerance_scale
from .problem import LEAST_RTOL, Problem

OF_MOVE = 1e-3  # part of what a step moves that its residual may have: errors add up over steps, as moves do
KAPPA = 0.01  # part of the tolerance that the residual of an equation may have (Hairer & Wanner IV.8)
SHARE = 0.5  # of rtol^(1/(p+1)): keeps the error of a solve within ten tolerances on benchmarks/stiff_problems.py
OF_ATOL = 0.1  # part of atol over the size of the state that counts as a relative tolerance
LEAST_ORDER = 3  # whose share every lower order gets too: theirs would be tiny
OF_MOVE_ADAPTIVE = 0.1  # the same where an error test follows
OF_MOVE_GIVEN = 0.1  # the same beside an `inner_tol`: a guess that meets that by itself is no step
KAPPA_ADAPTIVE = 0.3  # the same where steps are rejected by their error, which includes that of the solve
BACKWARD = 0.1  # part of rtol that a linear solve of backward may leave of the gradient; no error test follows it


def accuracy_of(problem: Problem, inner_tol: float | None, share: float) -> Callable[[Tensor], Tensor | float]:
    """What an equation that counts as solved may be off, at a state y."""
    if inner_tol is not None:
        return lambda y: float(inner_tol)
    return lambda y: KAPPA_ADAPTIVE * share * tolerance_scale(problem.rtol, problem.atol, y)


def share_for(problem: Problem, method: Method) -> float:
    """The part of the tolerance that one step may use. The errors of N steps add up, and N grows as tol^(-1/(p+1)) at
    order p: with a share as small as 1/N the error of the whole solve stays in proportion to the tolerance."""
    return share_of(relative_of(problem), method.implicit_order, problem.y0.dtype)


def relative_of(problem: Problem) -> float:
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


def backward_rtol_of(problem: Problem, inner_tol: float | None) -> float:
    """What a linear solve in backward may leave of the gradient: a part of rtol, or what was asked of inner solves."""
    rtol = least(problem.rtol) if isinstance(problem.rtol, Tensor) else problem.rtol
    lowest = 4.0 * torch.finfo(problem.y0.dtype).eps
    return max(BACKWARD * rtol if inner_tol is None else min(inner_tol, BACKWARD * rtol), lowest)
