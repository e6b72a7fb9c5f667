"""Norms of states.

A state is a flat vector `(n,)`, or `(batch, n)` for independent samples. Every reduction here is over the
last dimension and keeps it, so that one formula serves both: a scalar has shape `(1,)` or `(batch, 1)`.

A state may be spread over processes (spread.py). Then each reduction is over all of them, and every process gets the
same number: whatever a solver decides by a state, it decides by a function of this file.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable

import torch
from torch import Tensor

from .spread import present

Norm = Callable[[Tensor], Tensor]


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product over the last dimension, which stays with size one."""
    own = torch.dot(x, y).unsqueeze(0) if x.dim() == 1 else (x * y).sum(-1, keepdim=True)
    spread = present()
    return own if spread is None else spread.total(own)


def two_norm(x: Tensor) -> Tensor:
    own = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    spread = present()
    return own if spread is None else spread.total(own.double() ** 2).sqrt().to(own.dtype)


def rms_norm(x: Tensor) -> Tensor:
    """Root mean square over the last dimension: the size of a typical component."""
    spread = present()
    if spread is None:
        return two_norm(x) * (max(x.shape[-1], 1) ** -0.5)
    own = torch.linalg.vector_norm(x, dim=-1, keepdim=True).double() ** 2
    squares, number = spread.total(torch.stack([own, torch.full_like(own, x.shape[-1])]))
    return (squares / number.clamp(min=1.0)).sqrt().to(x.dtype.to_real())


def products(rows: Tensor, x: Tensor) -> Tensor:
    """The inner product of x with each row; x may be a matrix with states as columns."""
    own = rows @ x
    spread = present()
    return own if spread is None else spread.total(own)


def count(x: Tensor) -> int:
    """The number of components."""
    spread = present()
    return x.shape[-1] if spread is None else int(spread.total(torch.tensor(x.shape[-1], device=x.device)))


def largest(x: Tensor) -> float:
    """The largest absolute value of any component; not finite if one is not."""
    own = x.detach().abs().max() if x.numel() else x.new_zeros((), dtype=x.dtype.to_real())
    spread = present()
    if spread is None:
        return float(own)
    return float(spread.most(torch.nan_to_num(own, nan=torch.inf)))  # in a maximum over processes nan may be lost


def least(x: Tensor) -> float:
    """The smallest component."""
    spread = present()
    return float(x.min() if spread is None else -spread.most(-x.min()))


def all_finite(x: Tensor) -> bool:
    x, spread = x.detach(), present()
    if spread is None:  # a sum is cheap, and may overflow
        return cmath.isfinite(x.sum().item()) or bool(torch.isfinite(x).all())
    return not int(spread.total((~torch.isfinite(x)).sum()))


def somewhere(flag: bool) -> bool:
    """Whether this is so in any of the processes."""
    spread = present()
    return flag if spread is None else bool(spread.most(torch.tensor(int(flag), device=spread.device)))


def anywhere(where: Tensor) -> bool:
    """Whether any of these conditions holds, of one for each component."""
    spread = present()
    return bool(where.any()) if spread is None else bool(spread.total(where.sum()))


def tolerance_scale(
    rtol: float | Tensor, atol: float | Tensor, *states: Tensor, into: Tensor | None = None, spare: Tensor | None = None
) -> Tensor:
    """`atol + rtol * max |y|`, the size of error that a component may have (Hairer & Wanner IV.8). It is written `into`
    a tensor if that is given, and `spare` is overwritten."""
    size = torch.abs(states[0], out=into)
    for y in states[1:]:
        size.clamp_(min=torch.abs(y, out=spare))
    return size.mul_(rtol).add_(atol)
