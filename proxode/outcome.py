"""What a controller is told of a step that was tried: its error in units of the tolerance, and that of other orders."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .controllers import Outcome
from .methods.base import Method, Step
from .norms import all_finite, tolerance_scale
from .problem import Problem
from .recording import without_graph


def outcome_of(problem: Problem, method: Method, y0: Tensor, step: Step) -> Outcome:
    ratio = _error_ratio(problem, y0, step)
    others: list[tuple[int, float]] = []
    if step.neighbours and math.isfinite(ratio):
        scale = _scale(problem, y0, step)
        others = [(order, float(problem.norm(error / scale).max())) for order, error in step.neighbours]
    if method.implicit and (step.order is None or step.order > 0):
        problem.f.spares.pieces.clear()  # beside the vectors of an inner solver they would only take room
    if step.order is None:
        return Outcome(ratio, method.error_power)
    return Outcome(ratio, method.power_of(step.order), step.order, step.switch, tuple(others), step.stretch)


def _scale(problem: Problem, y0: Tensor, step: Step) -> Tensor:
    """What the error may be. Not nothing: with atol = 0 a component that is and stays zero has no error either."""
    real, spares = y0.dtype.to_real(), problem.f.spares
    into, spare = spares.take(y0, real), spares.take(y0, real)
    scale = tolerance_scale(problem.rtol, problem.atol, y0.detach(), step.y1.detach(), into=into, spare=spare)
    spares.put(spare)
    tiny = torch.finfo(scale.dtype).tiny
    return scale if isinstance(problem.atol, float) and problem.atol >= tiny else scale.clamp_(min=tiny)


@without_graph
def _error_ratio(problem: Problem, y0: Tensor, step: Step) -> float:
    """The error in units of the tolerance; infinite where the step is no step at all, zero where none is known."""
    if step.failure is not None:
        return math.inf
    if step.error is None:
        return 0.0 if all_finite(step.y1) else math.inf
    scale = _scale(problem, y0, step)
    if not all_finite(scale):
        return math.inf
    # Nobody needs the error but for its ratio: it is divided in place.
    ratio = _largest_of(problem.norm(step.error.div_(scale)))
    if step.error_low is not None and ratio != 0.0:
        low = _largest_of(problem.norm(step.error_low.div_(scale)))
        ratio = ratio * ratio / math.sqrt(ratio * ratio + 0.01 * low * low)  # Hairer's DOP853
    for piece in (scale, step.error, step.error_low):
        problem.f.spares.put(piece)
    return ratio


def _largest_of(sizes: Tensor) -> float:
    return float(sizes if sizes.numel() == 1 else sizes.max())
