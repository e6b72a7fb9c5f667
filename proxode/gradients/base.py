"""What a gradient is: a way to run a solve so that its result can be differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..loop import Plan
from ..problem import Problem
from ..solution import Solution


@dataclass(frozen=True)
class Gradient:
    """`solve` integrates the problem by the plan."""

    def solve(self, problem: Problem, plan: Plan) -> Solution:
        """Integrate the problem by the plan, so that autograd can go back through the result."""
        raise NotImplementedError


def outputs_only(name: str, dense: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A dense solution that says so where a gradient would be lost."""
    if dense is None:
        return None

    def evaluate(t: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"gradient={name!r} differentiates the outputs at given times (`save_at`), not a dense solution: "
                "evaluate it under torch.no_grad(), or solve with gradient='implicit'"
            )
        return dense(t)

    return evaluate


def check_count(checkpoints: int | None) -> None:
    if checkpoints is None:
        return
    if isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or checkpoints < 1:
        raise ValueError(f"`checkpoints` must be a positive integer, not {checkpoints!r}")
