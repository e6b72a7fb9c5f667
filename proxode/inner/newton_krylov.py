"""Newton's method with products only: `newton_krylov` by GMRES, `cg` by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..linear import ASYMMETRY, LinearResult, cg, gmres
from ..norms import two_norm
from ..status import Status
from .base import Goal, InnerSolver
from .equation import ImplicitEquation

SHORTEST = 1e-4  # of the full step, before a new direction is made all the same
FIRST_FORCING = 1e-2  # part of the residual that the first linear solve may leave
LARGEST_FORCING = 0.5


class NewtonState(NamedTuple):
    z: Tensor  # where the direction was made
    r: Tensor
    direction: Tensor
    length: float  # 0 before the first step
    target: Tensor  # |r| to reach in the end
    left: float = 0.0  # part of r that the linear solve left: what the linear model says of the next residual
    asymmetry: float = 0.0
    given: bool = False  # see `Goal`
    taken: float = 1.0  # length of the step that led to z


@dataclass(frozen=True)
class DampedNewton(InnerSolver):
    """`z - length * d` with `(I - gamma J) d = r`. A step that does not shrink the residual is taken again from
    the same point, shorter; the length grows back to one."""

    max_iters: ClassVar[int] = 100
    patience: ClassVar[int] = 15
    local: ClassVar[bool] = True
    noise_doubt: ClassVar[int] = 1

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> NewtonState:
        return NewtonState(z, r, r, 0.0, goal.part * two_norm(r), given=goal.given)

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: NewtonState) -> tuple[Tensor, NewtonState]:
        shrunk = bool((two_norm(r) <= (1.0 - 0.1 * state.length) * two_norm(state.r)).all())
        if state.length > SHORTEST and not shrunk:
            length = state.length * (0.5 if state.length > 0.2 else 0.1)
            return state.z - length * state.direction, state._replace(length=length)
        solved = self.solve_linear(equation, z, r, state)
        length = min(1.0, 2.0 * state.length) if state.length else 1.0
        return z - length * solved.x, state._replace(
            z=z, r=r, direction=solved.x, length=length, left=solved.residual, taken=state.length or 1.0,
            asymmetry=max(solved.asymmetry, state.asymmetry),
        )  # fmt: skip

    def iterate(self, z: Tensor, state: NewtonState) -> Tensor:
        return state.z  # z itself may still be found too long a step

    def is_whole(self, state: NewtonState) -> bool:
        return state.taken == 1.0

    def retreats(self, state: NewtonState) -> bool:
        return state.given and state.length > SHORTEST

    def solve_linear(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: NewtonState) -> LinearResult:
        """Solve `(I - gamma J) d = r` at z, as well as the state asks for."""
        raise NotImplementedError


@dataclass(frozen=True)
class NewtonKrylov(DampedNewton):
    """Inexact Newton with GMRES on Jacobian-vector products; nothing of size n^2.

    How far each linear solve goes follows Eisenstat & Walker (1996, choice 1): as far as the linear model was
    right about the last step, so that a linear f takes one solve, and never further than the goal.
    """

    restart: int = 40
    linear_max_iters: int = 2_000

    name: ClassVar[str] = "newton_krylov"

    def solve_linear(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: NewtonState) -> LinearResult:
        return gmres(
            lambda v: equation.derivative(z, v, r),
            r,
            rtol=forcing(r, state),
            max_iters=self.linear_max_iters,
            restart=self.restart,
        )


@dataclass(frozen=True)
class NewtonCG(DampedNewton):
    """Inexact Newton with conjugate gradients, for a symmetric Jacobian (`f = -grad F`): four vectors of memory.
    A Jacobian that is not symmetric is noticed, and if the solve fails for it the status says so."""

    linear_max_iters: int = 2_000

    name: ClassVar[str] = "cg"

    def solve_linear(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: NewtonState) -> LinearResult:
        return cg(
            lambda v: equation.derivative(z, v, r), r, rtol=forcing(r, state), max_iters=self.linear_max_iters
        )

    def verdict(self, state: NewtonState) -> Status | None:
        failed = not state.left < 1.0
        return Status.INNER_NOT_SYMMETRIC if failed and state.asymmetry > ASYMMETRY else None

    def explain(self, status: Status, state: NewtonState) -> Status:
        return Status.INNER_NOT_SYMMETRIC if state.asymmetry > ASYMMETRY else status


def forcing(r: Tensor, state: NewtonState) -> float:
    """The part of the residual r that the linear solve may leave."""
    goal = max(0.5 * float((state.target / two_norm(r)).min()), torch.finfo(r.dtype).eps ** 0.75)
    if not state.length:
        return min(LARGEST_FORCING, max(FIRST_FORCING, goal))
    predicted = 1.0 - state.length * (1.0 - state.left)
    off = abs(float((two_norm(r) / two_norm(state.r)).max()) - predicted)
    return min(LARGEST_FORCING, max(off, goal))
