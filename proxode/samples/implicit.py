"""The gradient of a solved step on a batch: implicit differentiation, one small transposed system for each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..autocast import uncasting
from ..eager import eager
from .field import BatchField
from .linearised import transposed


def attached(f: BatchField, t: Tensor, z: Tensor, anchor: Tensor, gamma: Tensor, rtol: float) -> Tensor:
    """z, which solves `z = anchor + gamma f(t, z)`, as a function of the anchor and of all that f captures.

    f is evaluated once more, with its graph but cut off from z: the dependence on z itself is what the system
    `(I - gamma J)^T u = g` accounts for. Its Jacobian, or products with it up to `rtol`, are made in backward.
    """
    z = z.detach()
    moved = torch.addcmul(anchor, gamma[:, None].to(z.dtype), f.graph(t, z))
    out: Tensor = Attached.apply(moved, z, f, t, gamma, rtol)  # type: ignore[no-untyped-call]
    return out


class Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, moved: Tensor, z: Tensor, f: BatchField, t: Tensor, gamma: Tensor, rtol: float) -> Tensor:
        ctx.save_for_backward(z, t, gamma)
        ctx.f, ctx.rtol = f, rtol
        return z.clone()

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():  # torch's `once_differentiable` says so too late: a second derivative would be zero
            raise NotImplementedError(
                "second derivatives (`create_graph=True`) of steps by BDF with `per_sample` are not available: take "
                "solves without `per_sample`, whose gradients have derivatives"
            )
        z, t, gamma = ctx.saved_tensors
        with ctx.f.stats.counting_backward():
            u = transposed(ctx.f, t, z, gamma.to(z.dtype), grads[0], ctx.rtol)
        return u, None, None, None, None, None
