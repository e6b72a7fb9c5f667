"""Norms of states.

A state is a flat vector `(n,)`, or `(batch, n)` for independent samples. Every reduction here is over the
last dimension and keeps it, so that one formula serves both: a scalar has shape `(1,)` or `(batch, 1)`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Norm = Callable[[Tensor], Tensor]


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product over the last dimension, which stays with size one."""
    if x.dim() == 1:
        return torch.dot(x, y).unsqueeze(0)
    return (x * y).sum(-1, keepdim=True)


def two_norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def rms_norm(x: Tensor) -> Tensor:
    """Root mean square over the last dimension: the size of a typical component."""
    return two_norm(x) * (max(x.shape[-1], 1) ** -0.5)


def tolerance_scale(
    rtol: float | Tensor, atol: float | Tensor, *states: Tensor, into: Tensor | None = None, spare: Tensor | None = None
) -> Tensor:
    """`atol + rtol * max |y|`, the size of error that a component may have (Hairer & Wanner IV.8). It is written `into`
    a tensor if that is given, and `spare` is overwritten."""
    size = torch.abs(states[0], out=into)
    for y in states[1:]:
        size.clamp_(min=torch.abs(y, out=spare))
    return size.mul_(rtol).add_(atol)
