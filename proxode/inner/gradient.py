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

from ..norms import count, dot, two_norm
from .base import Goal, InnerSolver
from .equation import ImplicitEquation

REACH = 0.01
LEAST_COSINE = 0.02
STEEP = 0.5  # a slope uphill after a step, as part of the slope downhill before it, that is too much


def first_lr(
    lr: float | None, equation: ImplicitEquation, z: Tensor, r: Tensor, *, fresh: bool = False
) -> Tensor:
    """The given step length, or the inverse of a Lipschitz constant: of this equation, for one evaluation, if
    `fresh`; else of one not long before, which serves a solver that finds its way from any start."""
    return torch.full_like(r[..., :1], 1.0 / equation.lipschitz(z, r, fresh=fresh) if lr is None else lr)


def secant_lr(lr: Tensor, dz: Tensor, dr: Tensor, growth: float = 1.0) -> Tensor:
    """The step length after the residual changed by dr over dz; it may grow by a factor a step.

    `<dz, dr> / <dr, dr>` is `|dz| / |dr|` times the cosine between them. Near an inflection the cosine vanishes
    without any stiffness to answer for: it counts as no less than LEAST_COSINE.
    """
    dz_dr, size = dot(dz, dr), two_norm(dr)
    ratio = two_norm(dz) / size
    seen = torch.maximum(dz_dr / (size * size), LEAST_COSINE * ratio)
    return torch.minimum(lr * growth, torch.where((dz_dr > 0) & (size > 0), seen, lr))


def first_reach(z: Tensor) -> Tensor:
    """How far the first move may go: a hundredth of the state. A move that long doubles the reach of the next, so
    that a non-convex functional is felt out and not jumped over."""
    return REACH * (two_norm(z) + count(z) ** 0.5)


def within_reach(move: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """The move, cut to its reach, and the reach of the next."""
    size = two_norm(move)
    return move * (reach / size).clamp(max=1.0), torch.where(size >= reach, 2.0 * reach, reach)


class DescentState(NamedTuple):
    lr: Tensor
    z: Tensor  # where the residual was evaluated last
    r: Tensor
    x: Tensor  # the last point of descent; momentum carries z beyond it
    momentum: Tensor  # Nesterov's sequence 1, 1.6, 2.2, ...
    reach: Tensor


@dataclass(frozen=True)
class GradientDescent(InnerSolver):
    """`z <- z - lr r`. Iterations grow like gamma * lambda_max.

    A descent method: with its own `lr`, a step after which the functional rises steeply along the line is taken
    again, shorter, and no move is more than twice as long as the ones before. Started at `h_k` it keeps the energy
    inequalities of the schemes on a non-convex F.
    """

    lr: float | None = None

    name: ClassVar[str] = "gd"
    max_iters: ClassVar[int] = 100_000
    patience: ClassVar[int] = 2_000
    noise_patience: ClassVar[int] = 200  # these may be slow for as long without being done
    noise_doubt: ClassVar[int] = 50

    growth: ClassVar[float] = 1.02
    descent: ClassVar[bool] = True

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> DescentState:
        lr = first_lr(self.lr, equation, z, r, fresh=True)
        return DescentState(lr, z, r, z, torch.ones_like(lr), first_reach(z))

    def step(
        self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: DescentState
    ) -> tuple[Tensor, DescentState]:
        lr, reach = state.lr, state.reach
        if self.lr is None and z is not state.z:
            lr = secant_lr(lr, z - state.z, r - state.r, self.growth)
            if self.descent:
                uphill = dot(r, state.r) < -STEEP * dot(state.r, state.r)
                lr = torch.where(uphill, torch.minimum(lr, 0.5 * state.lr), lr)
                z, r = z.where(~uphill, state.z), r.where(~uphill, state.r)
        move = lr * r
        if self.lr is None and self.descent:
            move, reach = within_reach(move, reach)
        x = z - move
        beta, momentum = self.extrapolation(lr, r, x, state)
        ahead = x if beta is None else x + beta * (x - state.x)
        return ahead, DescentState(lr, z, r, x, momentum, reach)

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
    descent: ClassVar[bool] = False

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
    descent: ClassVar[bool] = False

    def extrapolation(self, lr: Tensor, r: Tensor, x: Tensor, state: DescentState) -> tuple[Tensor, Tensor]:
        uphill = (dot(r, x - state.x) > 0) | (dot(r, r) > dot(state.r, state.r))
        return _next_momentum(torch.where(uphill, torch.ones_like(lr), state.momentum))
