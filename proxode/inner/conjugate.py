"""Gradient descent with conjugate directions: `fr`, the paper's default."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..norms import dot, two_norm
from .base import Goal, InnerSolver
from .equation import ImplicitEquation
from .gradient import DescentState, GradientDescent, first_lr, first_reach

CHECK_DROP = 0.1  # a predicted residual that fell to this part is checked by an evaluation
LINEAR = 0.1  # a prediction that was off by less than this counts as right
POWELL = 0.2  # successive gradients are orthogonal up to this part, or the directions start again (Powell 1977)
BLOW_UP = 10.0  # growth of the residual in one conjugate step that means there is no convex functional
FAILURES = 3  # times that happens, or that the residual grew as conjugacy was lost, before plain descent goes on


class Point(Enum):
    """What the residual that the loop evaluated is for."""

    START = 0
    TRIAL = 1  # to measure the curvature along p
    CHECK = 2  # to check a predicted residual


class ConjugateState(NamedTuple):
    point: Point
    z: Tensor  # the iterate; the loop evaluates a trial point beyond it
    r: Tensor  # its residual, by prediction
    p: Tensor
    alpha: Tensor
    rr: Tensor
    checked: Tensor  # |r|^2 when it was last known and not predicted
    reach: Tensor  # how far a move may go
    failures: int = 0


class FixedState(NamedTuple):
    p: Tensor
    rr: Tensor


State = ConjugateState | FixedState | DescentState


@dataclass(frozen=True)
class FletcherReeves(InnerSolver):
    """`p_i = r_i + beta_i p_{i-1}`, `beta_i = |r_i|^2 / |r_{i-1}|^2`, `z <- z - lr p_i`.

    With a given `lr` this is the paper's iteration. Without, the step goes to the minimum along p: the residual
    at a trial point gives the curvature `A p = (r - r_trial) / trial length`, hence the minimum and the residual
    there without another evaluation. For a linear symmetric f that is the conjugate gradient method at one
    evaluation an iteration. For a nonlinear one the predicted residual is checked whenever it fell tenfold, and
    where conjugacy fails for good (a Jacobian far from symmetric) the solver goes on as `gd`.
    """

    lr: float | None = None

    name: ClassVar[str] = "fr"
    max_iters: ClassVar[int] = 100_000
    patience: ClassVar[int] = 2_000

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> State:
        rr = dot(r, r)
        if self.lr is not None:
            return FixedState(r * 0, rr)
        return ConjugateState(Point.START, z, r, r, first_lr(None, equation, z, r), rr, rr, first_reach(z))

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: State) -> tuple[Tensor, State]:
        if isinstance(state, FixedState):
            return self._fixed(z, r, state)
        if isinstance(state, DescentState):
            return GradientDescent().step(equation, z, r, state)
        if state.failures > FAILURES:
            return GradientDescent().step(equation, z, r, _descent(z, r, state))
        if state.point is Point.START:
            return _trial(state)
        if state.point is Point.CHECK:
            return _after_check(z, r, state)
        return _after_trial(r, state)

    def iterate(self, z: Tensor, state: State) -> Tensor:
        return state.z if isinstance(state, ConjugateState) else z

    def _fixed(self, z: Tensor, r: Tensor, state: FixedState) -> tuple[Tensor, FixedState]:
        rr = dot(r, r)
        p = r + (rr / state.rr) * state.p
        return z - self.lr * p, FixedState(p, rr)  # type: ignore[operator]


def _trial(state: ConjugateState) -> tuple[Tensor, ConjugateState]:
    alpha = torch.minimum(state.alpha, state.reach / two_norm(state.p))
    return state.z - alpha * state.p, state._replace(point=Point.TRIAL, alpha=alpha)


def _after_check(z: Tensor, r: Tensor, state: ConjugateState) -> tuple[Tensor, ConjugateState]:
    """The residual at the iterate is known: keep the direction if it was predicted well, else start again."""
    off = two_norm(r - state.r) > LINEAR * two_norm(r)
    rr = dot(r, r)
    p = r.where(off, state.p)
    return _trial(state._replace(z=z, r=r, p=p, rr=rr, checked=rr))


def _after_trial(r: Tensor, state: ConjugateState) -> tuple[Tensor, ConjugateState]:
    """To the minimum along p, and on in the next conjugate direction."""
    ap = (state.r - r) / state.alpha
    slope, curvature = dot(state.r, state.p), dot(state.p, ap)
    if not bool((curvature > 0).all()):
        return _on_from_trial(r, state)
    furthest = state.reach / two_norm(state.p)
    alpha = torch.minimum(slope / curvature, furthest)
    r_next = state.r - alpha * ap
    rr = dot(r_next, r_next)
    if not bool(((slope > 0) & (rr <= BLOW_UP**2 * state.rr)).all()):
        return _least_residual(ap, r, state)
    z_next = state.z - alpha * state.p
    held = alpha >= furthest
    turned = ~held & (dot(r_next, state.r).abs() > POWELL * rr)
    p = r_next + (rr / state.rr).where(~(turned | held), 0.0) * state.p
    reach = torch.where(held, 2.0 * state.reach, state.reach)
    failures = state.failures + bool((turned & (rr > state.rr)).any())
    state = ConjugateState(Point.CHECK, z_next, r_next, p, alpha, rr, state.checked, reach, failures)
    fallen = bool((rr <= CHECK_DROP**2 * state.checked).all())
    if fallen or bool((rr > state.checked).any()):
        return z_next, state
    return _trial(state)


def _on_from_trial(r: Tensor, state: ConjugateState) -> tuple[Tensor, ConjugateState]:
    """No minimum ahead on this line, which only falls: keep the trial point, and go on from it with longer steps."""
    z, rr = state.z - state.alpha * state.p, dot(r, r)
    return _trial(ConjugateState(Point.TRIAL, z, r, r, 2.0 * state.alpha, rr, rr, state.reach, state.failures + 1))


def _least_residual(ap: Tensor, r: Tensor, state: ConjugateState) -> tuple[Tensor, ConjugateState]:
    """No use in the minimum along p: go where the residual is least on that line and start again."""
    apap = dot(ap, ap)
    alpha = (dot(state.r, ap) / apap).where(apap > 0, 0.0)
    z, r = state.z - alpha * state.p, state.r - alpha * ap
    rr = dot(r, r)
    length = alpha.abs().where(alpha != 0, 0.5 * state.alpha)
    return z, ConjugateState(Point.CHECK, z, r, r, length, rr, rr, state.reach, state.failures + 1)


def _descent(z: Tensor, r: Tensor, state: ConjugateState) -> DescentState:
    return DescentState(state.alpha, z, r, z, state.alpha, state.reach)
