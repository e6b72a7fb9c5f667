"""Gradient descent on the proximal functional, plain and with momentum: `gd`, `nag`, `restart`.

All move along the residual `r(z)`, gamma times the gradient. The step length `lr` multiplies it (`lr = 1` is the
fixed-point iteration; the paper's `eta` is `lr = eta / gamma`). Left out, it starts at the inverse of a measured
Lipschitz constant and follows the secant `<dz, dr> / <dr, dr>` down whenever the last step shows a stiffer
direction: the inverse curvature for a symmetric Jacobian, and small enough for a rotating one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..norms import dot
from .base import InnerSolver
from .equation import ImplicitEquation


def first_lr(lr: float | None, equation: ImplicitEquation, z: Tensor, r: Tensor) -> Tensor:
    """The given step length, or the inverse of a Lipschitz constant measured for one evaluation."""
    return torch.full_like(r[..., :1], 1.0 / equation.lipschitz(z, r) if lr is None else lr)


def secant_lr(lr: Tensor, dz: Tensor, dr: Tensor, growth: float = 1.0) -> Tensor:
    """The step length after the residual changed by dr over dz; it may grow by a factor a step."""
    dz_dr, dr_dr = dot(dz, dr), dot(dr, dr)
    seen = torch.where(dz_dr > 0, dz_dr / dr_dr, lr)
    return torch.minimum(lr * growth, seen)


class DescentState(NamedTuple):
    lr: Tensor
    z: Tensor  # where the residual was evaluated last
    r: Tensor
    x: Tensor  # the last point of descent; momentum carries z beyond it
    momentum: Tensor  # Nesterov's sequence 1, 1.6, 2.2, ...


@dataclass(frozen=True)
class GradientDescent(InnerSolver):
    """`z <- z - lr r`. Iterations grow like gamma * lambda_max."""

    lr: float | None = None

    name: ClassVar[str] = "gd"
    max_iters: ClassVar[int] = 100_000
    patience: ClassVar[int] = 2_000

    growth: ClassVar[float] = 1.02

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: float) -> DescentState:
        lr = first_lr(self.lr, equation, z, r)
        return DescentState(lr, z, r, z, torch.ones_like(lr))

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: DescentState) -> tuple[Tensor, DescentState]:
        lr = state.lr
        if self.lr is None and z is not state.z:
            lr = secant_lr(lr, z - state.z, r - state.r, self.growth)
        x = z - lr * r
        beta, momentum = self.extrapolation(lr, r, x, state)
        ahead = x if beta is None else x + beta * (x - state.x)
        return ahead, DescentState(lr, z, r, x, momentum)

    def extrapolation(self, lr: Tensor, r: Tensor, x: Tensor, state: DescentState) -> tuple[Tensor | None, Tensor]:
        """How far to go on beyond x, in units of the last move; None is not at all."""
        return None, state.momentum


def _next_momentum(momentum: Tensor) -> tuple[Tensor, Tensor]:
    following = 0.5 * (1 + (1 + 4 * momentum * momentum).sqrt())
    return (momentum - 1) / following, following


@dataclass(frozen=True)
class Nesterov(GradientDescent):
    """Nesterov's accelerated gradient. Iterations grow like the square root of gamma * lambda_max.

    With a given `lr` the momentum follows the usual growing sequence. With its own `lr` it is the best constant
    one for a functional of convexity 1, which `|z - anchor|^2 / 2` provides for every dissipative f.
    """

    name: ClassVar[str] = "nag"
    growth: ClassVar[float] = 1.0

    def extrapolation(self, lr: Tensor, r: Tensor, x: Tensor, state: DescentState) -> tuple[Tensor, Tensor]:
        if self.lr is not None:
            return _next_momentum(state.momentum)
        q = lr.clamp(max=1.0).sqrt()
        return (1 - q) / (1 + q), state.momentum


@dataclass(frozen=True)
class Restart(GradientDescent):
    """Nesterov's growing momentum, started again when it points uphill (O'Donoghue & Candes 2015) or when the
    residual grew, which the first test misses on a Jacobian that rotates."""

    name: ClassVar[str] = "restart"
    growth: ClassVar[float] = 1.0

    def extrapolation(self, lr: Tensor, r: Tensor, x: Tensor, state: DescentState) -> tuple[Tensor, Tensor]:
        uphill = (dot(r, x - state.x) > 0) | (dot(r, r) > dot(state.r, state.r))
        return _next_momentum(torch.where(uphill, torch.ones_like(lr), state.momentum))
