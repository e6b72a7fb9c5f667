"""The gradient of a solved step on a batch: implicit differentiation, one small transposed system for each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .field import BatchField


def attached(f: BatchField, t: Tensor, z: Tensor, anchor: Tensor, gamma: Tensor) -> Tensor:
    """z, which solves `z = anchor + gamma f(t, z)`, as a function of the anchor and of all that f captures.

    f is evaluated once more, with its graph but cut off from z: the dependence on z itself is what the system
    `(I - gamma J)^T u = g` accounts for. Its Jacobian is made in backward.
    """
    z = z.detach()
    moved = torch.addcmul(anchor, gamma[:, None].to(z.dtype), f.graph(t, z))
    out: Tensor = Attached.apply(moved, z, f, t, gamma)  # type: ignore[no-untyped-call]
    return out


class Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, moved: Tensor, z: Tensor, f: BatchField, t: Tensor, gamma: Tensor) -> Tensor:
        ctx.save_for_backward(z, t, gamma)
        ctx.f = f
        return z.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        z, t, gamma = ctx.saved_tensors
        with ctx.f.stats.counting_backward():
            jacobian = ctx.f.jacobian(t, z)
        matrix = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device) - gamma[:, None, None].to(z.dtype) * jacobian
        u, _ = torch.linalg.solve_ex(matrix.mT, grads[0].unsqueeze(-1))
        return u.squeeze(-1), None, None, None, None
