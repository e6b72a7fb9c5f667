"""Forward mode: the tangent of a solved equation, where dual numbers run through the solve.

`(I - gamma J) dz = d anchor + d(gamma f)`, the last with z held fixed. torch has one level of dual numbers, which the
caller has opened; so products with J are made on that level too, less what the other tangents add to them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from ..inner import ImplicitEquation
from ..linear import gmres
from ..norms import all_finite
from ..solution import Failure, SolverError
from ..status import Status
from ..times import number

MAX_ITERS = 4_000


def has_tangents() -> bool:
    """Is a level of dual numbers open?"""
    return forward_ad._current_level >= 0


def paused() -> AbstractContextManager[Any]:
    """A block in which dual numbers are plain ones: for the inner iterations, whose tangents mean nothing."""
    return forward_ad._set_fwd_grad_enabled(False) if has_tangents() else nullcontext()


def with_tangent(z: Tensor, dz: Tensor | None) -> Tensor:
    if dz is None:
        return z
    if z.requires_grad:
        with paused():
            dz = NoReverse.apply(dz, z)  # type: ignore[no-untyped-call]
    return forward_ad.make_dual(z, dz)


class NoReverse(torch.autograd.Function):
    """A tangent that cannot be differentiated in reverse, and says so."""

    @staticmethod
    def forward(ctx: Any, dz: Tensor, z: Tensor) -> Tensor:
        return dz.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            "reverse mode over the tangent of a proximal step is not available: "
            "use autograd.grad with create_graph=True twice"
        )


def transforming() -> bool:
    """Is a transform of torch.func (grad, jvp, vmap, ...) going on?"""
    return torch._C._functorch.peek_interpreter_stack() is not None


def refuse_transforms() -> None:
    """torch.func has its own tensors, on which neither products nor stopping tests work."""
    if transforming():
        raise NotImplementedError(
            "transforms of torch.func (grad, jvp, jacrev, ...) over a proximal method are not available: use "
            "torch.autograd (for jacrev torch.autograd.functional.jacobian, for jvp torch.autograd.forward_ad), or an "
            "explicit method, over which grad, vjp, jvp and jacrev work"
        )


def refuse_vmap(*given: Any) -> None:
    """Steps are chosen by numbers, which a tensor with hidden samples does not have."""
    if transforming() and any(_has_hidden_samples(x) for x in given if isinstance(x, Tensor)):
        raise NotImplementedError(
            "torch.func.vmap over a solve is not available, with any method: give the batch as y0 to an f that takes "
            "batches, with solve(..., per_sample=True) if each sample is to have steps of its own, or solve in a loop"
        )


def _has_hidden_samples(x: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def refuse_for_events() -> None:
    """The time of an event is found by comparing numbers, and linked to what it depends on for backward only."""
    if has_tangents() or transforming():
        raise NotImplementedError(
            "forward mode and transforms of torch.func through events are not available: use torch.autograd"
        )


@torch.no_grad()
def tangent_of(equation: ImplicitEquation, z: Tensor, rtol: float) -> Tensor | None:
    """dz, or None where nothing that the equation depends on has a tangent."""
    gamma = number(equation.gamma)
    plain = z.detach()
    value = equation.f(equation.t, plain)
    fixed = forward_ad.unpack_dual(value).tangent
    image = equation.anchor + equation.gamma * value
    rhs = forward_ad.unpack_dual(image).tangent
    if rhs is None:
        return None

    def matvec(v: Tensor) -> Tensor:
        equation.f.stats.count("n_jvp")
        pushed = forward_ad.unpack_dual(equation.f.evaluate(equation.t, forward_ad.make_dual(plain, v))).tangent
        if pushed is None:
            return v
        pushed = pushed if fixed is None else pushed - fixed
        return torch.sub(v, pushed, alpha=gamma)

    solved = gmres(matvec, rhs.detach(), rtol=rtol, max_iters=MAX_ITERS, restart=min(200, max(40, equation.f.size)))
    if not solved.residual <= max(10 * rtol, torch.finfo(z.dtype).eps ** 0.5):
        detail = f"forward mode: {solved.iterations} products, relative residual {solved.residual:.3g}"
        t = equation.f.user_time(equation.t)
        finite = all_finite(matvec(rhs.detach()))
        status = Status.BACKWARD_NOT_CONVERGED if finite else Status.BACKWARD_NO_DERIVATIVE
        raise SolverError(Failure(status, t, 0, gamma, detail), None)
    return solved.x.detach()


def refuse_tangents(name: str, *tensors: Tensor) -> None:
    """Raise where dual numbers would be lost, or a transform of torch.func. Without tensors: where a level of them is
    open at all."""
    if transforming():
        raise NotImplementedError(
            f"transforms of torch.func with gradient={name!r} are not available: use 'implicit', or torch.autograd"
        )
    if has_tangents() and (not tensors or any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)):
        raise NotImplementedError(f"forward mode with gradient={name!r} is not available: use 'implicit'")
