"""Anderson acceleration of the fixed-point iteration: `anderson`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..norms import two_norm
from .base import InnerSolver
from .equation import ImplicitEquation
from .gradient import first_lr


class AndersonState(NamedTuple):
    z: Tensor
    r: Tensor
    dz: tuple[Tensor, ...]
    dr: tuple[Tensor, ...]
    lr: Tensor


@dataclass(frozen=True)
class Anderson(InnerSolver):
    """Anderson acceleration (1965; type II of Fang & Saad 2009): the combination of the last `memory` moves
    that leaves the least residual, then a step `lr` along what is left. Needs no symmetry.

    The least-squares problem is solved through its Gram matrix, with unit columns and small eigenvalues cut:
    one pass over the memory, whatever the size of the state. `memory` = 20 keeps the growth of the iterations
    near the square root of gamma * lambda_max on diffusion; it holds 2 * memory states at the most.
    """

    lr: float | None = None
    memory: int = 20

    name: ClassVar[str] = "anderson"

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: float) -> AndersonState:
        return AndersonState(z, r, (), (), first_lr(self.lr, equation, z, r))

    def step(
        self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: AndersonState
    ) -> tuple[Tensor, AndersonState]:
        moves, changes = state.dz, state.dr
        if z is not state.z:
            dz, dr = z - state.z, r - state.r
            size = two_norm(dr)
            unit = torch.where(size > 0, 1.0 / size, torch.zeros_like(size))
            moves = (*moves, unit * dz)[-self.memory :]
            changes = (*changes, unit * dr)[-self.memory :]
        z_bar, r_bar = (z, r) if not moves else _least_residual(z, r, moves, changes)
        return z_bar - state.lr * r_bar, AndersonState(z, r, moves, changes, state.lr)


def _least_residual(
    z: Tensor, r: Tensor, moves: tuple[Tensor, ...], changes: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """The point in the span of the moves with the least residual, if the residual were linear; and that residual."""
    s, y = torch.stack(moves, -2), torch.stack(changes, -2)
    weights, vectors = torch.linalg.eigh(y @ y.mT)
    cut = 1e3 * torch.finfo(r.dtype).eps * weights[..., -1:]
    inverse = torch.where(weights > cut, 1.0 / weights, torch.zeros_like(weights)).unsqueeze(-1)

    def project(residual: Tensor) -> Tensor:
        return vectors @ (inverse * (vectors.mT @ (y @ residual.unsqueeze(-1))))

    c = project(r)
    c = c + project(r - (y.mT @ c).squeeze(-1))  # once more: the Gram matrix halves the digits
    return z - (s.mT @ c).squeeze(-1), r - (y.mT @ c).squeeze(-1)
