"""What there is to say of a solve that reached its end, but not quite as it was asked to."""

from __future__ import annotations

import torch

from .controllers import Adaptive
from .loop import Plan
from .problem import Problem
from .randomness import has_drawn, is_random
from .sharding import local_part
from .solution import Solution
from .status import Status


def remark(problem: Problem, plan: Plan, solution: Solution) -> Status:
    """The status of a solution, a good one qualified by what there is to say."""
    adaptive = isinstance(plan.controller, Adaptive)
    before, problem.f.drawn = problem.f.drawn, None  # whoever keeps f for backward need not keep that
    if solution.status is not Status.SUCCESS or not (adaptive or plan.method.implicit):
        return solution.status
    if has_drawn(before, problem.y0.device) and is_random(problem.f, problem.ts[-1], _last(problem, solution)):
        return Status.NOISY
    if adaptive and problem.asked_rtol is not None and problem.asks_too_much(_largest(solution)):
        return Status.TOLERANCE_RAISED
    return solution.status


def _last(problem: Problem, solution: Solution) -> torch.Tensor:
    parts = tuple(part[-1] for part in solution.ys) if isinstance(solution.ys, tuple) else solution.ys[-1]
    return problem.structure.flatten(parts)


def _largest(solution: Solution) -> torch.Tensor:
    """Of every component, over the outputs."""
    parts = map(local_part, solution.ys if isinstance(solution.ys, tuple) else (solution.ys,))
    return torch.cat([part.detach().abs().amax(0).reshape(-1) for part in parts])
