"""Newton's method on a batch: every sample has its own Jacobian, its own rate and its own end."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..inner.base import ULPS
from .field import BatchField

SLOW = 0.9  # rate from which a solve has failed
TRIES = 5
TINY = 1e-300


class Equations(NamedTuple):
    """`z = anchor + gamma f(t, z)`, for the samples in `wanted`."""

    t: Tensor
    anchor: Tensor
    gamma: Tensor
    scale: Tensor  # in which errors are measured
    tol: Tensor
    wanted: Tensor

    def residual(self, f: BatchField, z: Tensor) -> Tensor:
        return z - self.anchor - self.gamma[:, None] * f(self.t, z)

    def measure(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x / self.scale, dim=-1) * x.shape[-1] ** -0.5


class Roots(NamedTuple):
    z: Tensor
    solved: Tensor
    rate: Tensor
    iterations: int


def solve(f: BatchField, at: Equations, z: Tensor, jacobian: Tensor, rate: Tensor) -> Roots:
    """From the guess z, with that Jacobian. How fast moves and residuals shrink says when a sample is done, as in
    `inner.newton`; a move too short for a Jacobian that is too stiff is noticed by its residual."""
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    lu, pivots, _ = torch.linalg.lu_factor_ex(eye - at.gamma[:, None, None] * jacobian)
    tol = torch.maximum(at.tol, ULPS * torch.finfo(z.dtype).eps * at.measure(z))
    done, failed = ~at.wanted, torch.zeros_like(at.wanted)
    before: tuple[Tensor, Tensor] | None = None
    i = 0
    for i in range(1, TRIES + 1):  # noqa: B007
        r = at.residual(f, z)
        move = torch.linalg.lu_solve(lu, pivots, r.unsqueeze(-1)).squeeze(-1)
        size, left = at.measure(move), at.measure(r)
        seen = left <= tol
        believed = torch.zeros_like(done)
        if before is not None:
            shrunk = torch.maximum(size / before[0].clamp(min=TINY), left / before[1].clamp(min=TINY))
            known = torch.where(torch.isfinite(rate), rate, 1.0)  # a step that met nan says nothing of the next
            rate = torch.where(done, rate, torch.maximum(0.3 * known, shrunk))
            failed |= ~(done | seen | (shrunk < SLOW))
            believed = (rate < SLOW) & (rate / (1.0 - rate).clamp(min=1.0 - SLOW) * size <= tol)
        z = torch.where((done | seen | failed)[:, None], z, z - move)
        done = done | ((seen | believed) & ~failed)
        before = size, left
        if bool((done | failed).all()):
            break
    return Roots(z, done & at.wanted, rate, i)
