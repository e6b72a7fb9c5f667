"""The exact gradient of a solved equation, by the implicit function theorem.

`z = anchor + gamma f(t, z)` gives `(I - gamma J) dz = d(anchor + gamma f)` with z held fixed on the right. So the
iterations are not recorded. The image at the solution is evaluated once with a graph, which links the anchor,
gamma and every tensor that f captures; backward solves one transposed system and hands the result to the image.
The value returned is z itself, not its image, which would multiply the inner error by gamma |J|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..inner import ImplicitEquation, InnerResult, InnerSolver, Stop, solve_equation
from ..linear import gmres
from ..solution import Failure, SolverError, Status
from ..vector_field import number

Solve = Callable[[ImplicitEquation, Tensor], InnerResult]
MakeStop = Callable[[Tensor, Tensor], Stop]

MAX_ITERS = 4_000  # of the transposed solve
MEMORY = 2**25  # numbers that its basis may hold


@dataclass(frozen=True)
class Implicit:
    """`rtol`: what the transposed solves may leave, relative to the incoming gradient; by default eps^0.75."""

    rtol: float | None = None

    def bind(self, inner_for: Callable[[ImplicitEquation], tuple[InnerSolver, ...]], make_stop: MakeStop) -> Solve:
        """How a method's equations are solved, and differentiated where autograd is recording."""

        def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
            plain = equation.detached()
            stop = make_stop(plain.anchor, guess.detach())
            for inner in inner_for(plain):
                result = solve_equation(inner, plain, guess.detach(), stop)
                if result.converged:
                    break
            if not result.converged or not torch.is_grad_enabled():
                return result
            return replace(result, z=self.attach(equation, result.z))

        return solve

    def attach(self, equation: ImplicitEquation, z: Tensor) -> Tensor:
        """z with the graph of the equation that it solves."""
        here: Tensor = _Cut.apply(z.detach().requires_grad_())  # type: ignore[no-untyped-call]
        value = equation.f(equation.t, here)
        wanted, sees_z = _reach(value, here)
        if not (wanted or equation.anchor.requires_grad or isinstance(equation.gamma, Tensor)):
            return z
        if not sees_z and equation.f.depends_on_state(equation.t, z):
            raise RuntimeError(
                "autograd does not see how func depends on y, so the gradient would be wrong: func detaches its input, "
                "leaves torch, or calls autograd.grad without create_graph=True. Mend that, or solve under no_grad"
            )
        rtol = torch.finfo(z.dtype).eps ** 0.75 if self.rtol is None else self.rtol
        link = _Link(value, here, number(equation.gamma), rtol, equation.f.user_time(equation.t))
        image = equation.anchor + equation.gamma * value
        attached: Tensor = _Solution.apply(image, z.detach(), link)  # type: ignore[no-untyped-call]
        return attached


def _reach(value: Tensor, here: Tensor) -> tuple[bool, bool]:
    """Does a graph reach a tensor that wants a gradient, other than by way of z? And does it reach z?"""
    seen: set[Any] = set()
    ahead: list[Any] = [value.grad_fn]
    wanted = sees_z = False
    while ahead:
        node = ahead.pop()
        if node is here.grad_fn:
            sees_z = True
        elif node is not None and node not in seen:
            wanted = wanted or hasattr(node, "variable")  # where autograd accumulates into a leaf
            seen.add(node)
            ahead.extend(parent for parent, _ in node.next_functions)
    return wanted, sees_z


class _Link(NamedTuple):
    """What backward needs: the graph from z to f, and nothing of what came before."""

    value: Tensor
    here: Tensor
    gamma: float
    rtol: float
    t: float  # the user's

    def transposed(self, u: Tensor) -> Tensor:
        """(I - gamma J)^T u. The hook on f's value counts the product."""
        if not self.value.requires_grad:
            return u
        (pulled,) = torch.autograd.grad(self.value, self.here, u, retain_graph=True, allow_unused=True)
        return u if pulled is None else torch.sub(u, pulled, alpha=self.gamma)


class _Cut(torch.autograd.Function):
    """The identity, beyond which no gradient goes: what reaches z inside the image is `_Solution`'s to account for."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None


class _Solution(torch.autograd.Function):
    """z as a function of its image: backward turns g into u with `(I - gamma J)^T u = g`."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, z: Tensor, link: _Link) -> Tensor:
        ctx.link = link
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():  # once_differentiable is not enough: autograd may prune its error
            raise RuntimeError(
                "second derivatives through a proximal step are not available: call backward or autograd.grad "
                "without create_graph=True, or use an explicit method"
            )
        link: _Link = ctx.link
        (g,) = grads
        restart = max(40, min(200, MEMORY // max(g.numel(), 1)))
        solved = gmres(link.transposed, g, rtol=link.rtol, max_iters=MAX_ITERS, restart=restart)
        if not solved.residual <= max(10 * link.rtol, torch.finfo(g.dtype).eps ** 0.5):
            detail = f"{solved.iterations} products, relative residual {solved.residual:.3g}, tolerance {link.rtol:.3g}"
            raise SolverError(Failure(Status.BACKWARD_NOT_CONVERGED, link.t, 0, link.gamma, detail), None)
        return solved.x, None, None
