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
MakeStop = Callable[[Tensor], Stop]

MAX_ITERS = 2_000  # of the transposed solve


@dataclass(frozen=True)
class Implicit:
    """`rtol`: what the transposed solves may leave, relative to the incoming gradient; by default eps^0.75."""

    rtol: float | None = None

    def bind(self, inner_for: Callable[[ImplicitEquation], tuple[InnerSolver, ...]], make_stop: MakeStop) -> Solve:
        """How a method's equations are solved, and differentiated where autograd is recording."""

        def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
            plain = equation.detached()
            stop = make_stop(plain.anchor)
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
        image = equation.image(here)
        if not (equation.anchor.requires_grad or _reaches_a_leaf(image, here)):
            return z
        rtol = torch.finfo(z.dtype).eps ** 0.75 if self.rtol is None else self.rtol
        link = _Link(equation, image, here, rtol)
        attached: Tensor = _Solution.apply(image, z.detach(), link)  # type: ignore[no-untyped-call]
        return attached


def _reaches_a_leaf(image: Tensor, here: Tensor) -> bool:
    """Does the image depend on a tensor that wants a gradient, other than by way of z?"""
    seen, ahead = {None, here.grad_fn}, [image.grad_fn]
    while ahead:
        node = ahead.pop()
        if node in seen or node is None:
            continue
        if hasattr(node, "variable"):  # where autograd accumulates into a leaf
            return True
        seen.add(node)
        ahead.extend(parent for parent, _ in node.next_functions)
    return False


class _Link(NamedTuple):
    """What backward needs: the graph from z to its image."""

    equation: ImplicitEquation
    image: Tensor
    here: Tensor
    rtol: float

    def transposed(self, u: Tensor) -> Tensor:
        """(I - gamma J)^T u. The hook on f's value counts the product."""
        (pulled,) = torch.autograd.grad(self.image, self.here, u, retain_graph=True, allow_unused=True)
        return u if pulled is None else u - pulled


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
        solved = gmres(link.transposed, g, rtol=link.rtol, max_iters=MAX_ITERS)
        if not solved.residual <= max(10 * link.rtol, torch.finfo(g.dtype).eps ** 0.5):
            detail = f"{solved.iterations} products, relative residual {solved.residual:.3g}, tolerance {link.rtol:.3g}"
            t, gamma = link.equation.f.user_time(link.equation.t), number(link.equation.gamma)
            raise SolverError(Failure(Status.BACKWARD_NOT_CONVERGED, t, 0, gamma, detail), None)
        return solved.x, None, None
