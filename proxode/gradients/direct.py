"""Backpropagation through everything: the reference for the other gradients.

Explicit steps are recorded as they are. Inner solvers search lines, restart and cut eigenvalues, and from a good guess
they do nothing at all; their iterations have no derivative worth having. So after the solution is found, iterations
`z <- z - P r(z)` are recorded from there, as many as it takes for a perturbation of the start to die out: the error of
the derivative shrinks by the same factor. P is the inverse of I - gamma J for small states, else a step length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..autocast import uncasting
from ..eager import eager
from ..inner import ImplicitEquation, InnerResult, Solve
from ..loop import Plan, integrate
from ..norms import two_norm
from ..problem import Problem
from ..rough import rough_signs
from ..solution import Failure, Solution, SolverError
from ..spread import present
from ..status import Status
from .base import Gradient
from .captured import captured_by, check_seen
from .tangent import has_tangents, paused, tangent_of, with_tangent

DENSE_LIMIT = 64
LEAST = 4  # iterations: after k of them the k-th derivative is right, where P is the inverse
MAX_ITERS = 1_000


@dataclass(frozen=True)
class Direct(Gradient):
    """Plain backpropagation through recorded iterations at each solution: a reference for the others.

    Args:
        max_iters: recorded iterations for one equation, beyond which the solve ends with an error.
    """

    max_iters: int = MAX_ITERS

    def solve(self, problem: Problem, plan: Plan) -> Solution:
        solve = self.bind(problem, plan)
        solution = integrate(
            problem, plan.method, plan.controller, solve, max_steps=plan.max_steps, dense=plan.dense
        )
        check_seen(problem.f)
        return solution

    def bind(self, problem: Problem, plan: Plan) -> Solve:
        """How a method's equations are solved, and recorded where autograd is recording."""
        checked: list[bool] = []

        def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
            with paused():
                if torch.is_grad_enabled() and not checked:
                    captured_by(problem.f, equation.t, guess)  # raises if autograd cannot see what f does
                    checked.append(True)
                result = plan.solve(equation.detached(), guess.detach())
                if not result.converged:
                    return result
                z = result.z
                if torch.is_grad_enabled():
                    z = self.recorded(equation, z, plan.backward_rtol)
            if has_tangents():
                z = with_tangent(z, tangent_of(equation, result.z, plan.backward_rtol))
            return replace(result, z=z)

        return solve

    def recorded(self, equation: ImplicitEquation, z: Tensor, rtol: float) -> Tensor:
        """z with the graph of iterations that stay at z."""
        precondition = _preconditioner(equation.detached(), z)
        x = z.detach()
        for _ in range(self._iterations(equation.detached(), z, precondition, rtol)):
            x = x - precondition(equation.residual(x))
        return z if not x.requires_grad else OnlyReverse.apply(z + (x - x.detach()))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _iterations(self, equation: ImplicitEquation, z: Tensor, precondition: Step, rtol: float) -> int:
        """How many it takes until a rough perturbation is a part `rtol` of itself."""
        e = rough_signs(z, 7).expand_as(z).clone()
        size = float(two_norm(e).max())
        r = equation.residual(z)
        for i in range(1, self.max_iters + 1):
            e = e - precondition(equation.derivative(z, e, r))
            left = float(two_norm(e).max()) / size
            if not left > rtol:
                return max(i, LEAST)
        t, detail = equation.f.user_time(equation.t), f"{self.max_iters} recorded iterations leave {left:.3g}"
        raise SolverError(Failure(Status.DIRECT_NOT_CONVERGED, t, 0, float(equation.gamma), detail), None)


class OnlyReverse(torch.autograd.Function):
    """Says that forward mode over this backward is not available: the recorded iterations stay at the solution, and
    tangents of what they saved would be those of a point that does not move."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *grads: Any) -> Any:
        if has_tangents():
            raise NotImplementedError(
                "forward mode over the backward of a proximal method is not available: "
                "use autograd.grad with create_graph=True twice"
            )
        return grads[0]


Step = Callable[[Tensor], Tensor]


def _preconditioner(equation: ImplicitEquation, z: Tensor) -> Step:
    if present() is None and z.numel() <= DENSE_LIMIT:
        inverse = torch.linalg.inv(equation.jacobian(z))
        return lambda r: inverse @ r
    lr = 1.0 / (2.0 * equation.lipschitz(z, equation.residual(z), fresh=True))
    return lambda r: lr * r
