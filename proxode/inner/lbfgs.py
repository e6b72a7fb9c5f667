"""Limited-memory quasi-Newton iteration: `lbfgs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..norms import dot, two_norm
from .base import Goal, InnerSolver
from .equation import ImplicitEquation
from .gradient import first_lr, first_reach, within_reach

GROWTH = 2.0  # a residual that grew by more is answered by a shorter step along the same direction
SHORTEN = 0.25
SHORTEST = 1e-3
CURVATURE = 1e-4  # cosine between dz and dr below which a pair is no curvature of a convex functional


class Pair(NamedTuple):
    dz: Tensor
    dr: Tensor
    dz_dr: Tensor


class LbfgsState(NamedTuple):
    z: Tensor
    r: Tensor
    pairs: tuple[Pair, ...]
    scale: Tensor
    direction: Tensor
    length: float
    reach: Tensor
    first_scale: Tensor


@dataclass(frozen=True)
class LBFGS(InnerSolver):
    """L-BFGS (Nocedal 1980) with unit steps, one evaluation each. `lr` sets the inverse Hessian before the
    first pair; left out, it is measured."""

    lr: float | None = None
    memory: int = 10

    name: ClassVar[str] = "lbfgs"

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> LbfgsState:
        scale = first_lr(self.lr, equation, z, r)
        return LbfgsState(z, r, (), scale, r, 1.0, first_reach(z), scale)

    def iterate(self, z: Tensor, state: LbfgsState) -> Tensor:
        return state.z  # z itself may still be found too long a step

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: LbfgsState) -> tuple[Tensor, LbfgsState]:
        pairs, scale = state.pairs, state.scale
        if z is not state.z:
            worse = bool((two_norm(r) > GROWTH * two_norm(state.r)).any())
            if worse and state.length > SHORTEST:
                length = SHORTEN * state.length
                return state.z - length * state.direction, state._replace(length=length)
            pairs, scale = _remember(z - state.z, r - state.r, () if worse else pairs, state.first_scale, self.memory)
        direction = _two_loops(r, pairs, scale)
        if not bool((dot(direction, r) > 0).all()):
            pairs, direction = (), scale * r
        reach = state.reach
        if pairs or self.lr is None:
            direction, reach = within_reach(direction, reach)
        return z - direction, LbfgsState(z, r, pairs, scale, direction, 1.0, reach, state.first_scale)


def _remember(
    dz: Tensor, dr: Tensor, pairs: tuple[Pair, ...], first_scale: Tensor, memory: int
) -> tuple[tuple[Pair, ...], Tensor]:
    """Add a pair, or forget all where the functional is not convex."""
    dz_dr = dot(dz, dr)
    if not bool((dz_dr > CURVATURE * two_norm(dz) * two_norm(dr)).all()):
        return (), first_scale
    return (*pairs, Pair(dz, dr, dz_dr))[-memory:], dz_dr / dot(dr, dr)


def _two_loops(r: Tensor, pairs: tuple[Pair, ...], scale: Tensor) -> Tensor:
    """The inverse Hessian times r."""
    q, weights = r, []
    for pair in reversed(pairs):
        weight = dot(pair.dz, q) / pair.dz_dr
        q = q - weight * pair.dr
        weights.append(weight)
    q = scale * q
    for pair, weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - dot(pair.dr, q) / pair.dz_dr) * pair.dz
    return q
