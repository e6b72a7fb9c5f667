"""The plain fixed-point iteration: `fixed_point`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..status import Status
from .base import Goal, InnerSolver
from .equation import ImplicitEquation


@dataclass(frozen=True)
class FixedPoint(InnerSolver):
    """`z <- anchor + gamma f(t, z)`, that is `z - r`. Converges while gamma times the Lipschitz constant of f
    is below one; past that radius it says so."""

    name: ClassVar[str] = "fixed_point"
    patience: ClassVar[int] = 50

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> None:
        return None

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: None) -> tuple[Tensor, None]:
        return z - r, None

    def explain(self, status: Status, state: None) -> Status:
        return Status.INNER_MAX_ITERATIONS if status is Status.INNER_MAX_ITERATIONS else Status.INNER_OUTSIDE_RADIUS
