"""Newton's method on a batch: every sample has its own Jacobian, its own rate and its own end."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..inner.stop import ULPS
from .field import BatchField
from .linearised import Linearised

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
        return torch.addcmul(z - self.anchor, self.gamma[:, None], f(self.t, z), value=-1.0)


class Roots(NamedTuple):
    z: Tensor
    solved: Tensor
    rate: Tensor
    iterations: int

    @property
    def undefined(self) -> Tensor:
        """Those that met values that are not finite."""
        return ~(torch.isfinite(self.rate) & torch.isfinite(self.z).all(-1))


def solve(f: BatchField, at: Equations, z: Tensor, near: Linearised, rate: Tensor) -> Roots:
    """From the guess z, with those Jacobians. How fast moves and residuals shrink says when a sample is done, as in
    `inner.newton`; a move too short for a Jacobian that is too stiff is noticed by its residual."""
    systems, weights = near.systems(at.gamma), at.scale.reciprocal() * z.shape[-1] ** -0.5
    noise = ULPS * torch.finfo(z.dtype).eps * torch.linalg.vector_norm(z * weights, dim=-1)
    tol, none = torch.maximum(at.tol, noise), torch.zeros_like(at.wanted)
    known = torch.where(torch.isfinite(rate), rate, 1.0)  # a step that met nan says nothing of the next
    done, failed, before = ~at.wanted, none, None
    i = 0
    for i in range(1, TRIES + 1):  # noqa: B007
        r = at.residual(f, z)
        left = torch.linalg.vector_norm(r * weights, dim=-1)
        good = left <= tol
        keep = done | failed | good
        move = systems(r, keep)
        sizes = torch.stack((torch.linalg.vector_norm(move * weights, dim=-1), left))
        if before is not None:
            shrunk = (sizes / before.clamp(min=TINY)).amax(0)
            rate = torch.where(done, rate, torch.maximum(0.3 * known, shrunk))
            known = torch.where(torch.isfinite(rate), rate, 1.0)
            failed = failed | ~(keep | (shrunk < SLOW))
            keep = keep | failed
            good = good | ((rate < SLOW) & (rate * sizes[0] <= tol * (1.0 - rate)))
        z = torch.where(keep[:, None], z, z - move)
        done = done | (good & ~failed)
        before = sizes
        if bool((done | failed).all()):
            break
    return Roots(z, done & at.wanted, rate, i)
