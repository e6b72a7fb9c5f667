"""What a step knows between its ends. Each interpolant is built from references only and computes when asked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .norms import two_norm
from .times import Time, number

SLACK = 1e-6  # part of the solved interval by which a time may miss it: ends that were rounded to float32
UNRESOLVED = 4.0  # length of step * slope, in sizes of the state

Slope = Callable[[], Tensor]  # f at an end of the step, evaluated when it is asked for


class Interpolant(Protocol):
    def evaluate(self, t: Time) -> Tensor: ...


def combine(
    base: Tensor | None, weights: Sequence[Time], states: Sequence[Tensor], into: Tensor | None = None
) -> Tensor:
    """`base + sum_i weights_i states_i`, skipping exact zeros; one allocation where no graph is recorded, and none
    where the sum may be written `into` a tensor."""
    recording = torch.is_grad_enabled()
    out, owned = base, False
    for weight, state in zip(weights, states, strict=True):
        if owned and type(weight) is float:  # most of them
            if weight:
                out.add_(state, alpha=weight)  # type: ignore[union-attr]
        elif isinstance(weight, Tensor):
            term = weight.to(state.dtype) * state
            out, owned = term if out is None else out + term, False
        elif out is None:
            out, owned = torch.mul(state, weight, out=into), not recording
        elif weight == 0.0:
            continue
        else:
            out, owned = torch.add(out, state, alpha=weight, out=into), not recording
    if out is None:
        raise ValueError("nothing to combine")
    return out


@dataclass(frozen=True)
class Linear:
    """Straight between the ends: order 1."""

    t0: Time
    t1: Time
    y0: Tensor
    y1: Tensor

    def evaluate(self, t: Time) -> Tensor:
        theta = (t - self.t0) / (self.t1 - self.t0)
        return combine(None, (1.0 - theta, theta), (self.y0, self.y1))


@dataclass(frozen=True)
class Hermite:
    """The cubic with the right values and slopes at both ends: order 3.

    Where a slope would carry further over the step than the state is large, the step has jumped over a fast
    transient, and the cubic would overshoot by as much: then the straight line is the better answer.
    """

    t0: Time
    t1: Time
    y0: Tensor
    y1: Tensor
    slope0: Slope
    slope1: Slope

    def evaluate(self, t: Time) -> Tensor:
        h = self.t1 - self.t0
        slopes = self.slope0(), self.slope1()
        size = max(float(two_norm(y.detach()).max()) for y in (self.y0, self.y1))
        if any(number(h) * float(two_norm(slope.detach()).max()) > UNRESOLVED * size for slope in slopes):
            return Linear(self.t0, self.t1, self.y0, self.y1).evaluate(t)
        theta = (t - self.t0) / h
        rest = 1.0 - theta
        weights = (
            (1.0 + 2.0 * theta) * rest * rest,
            theta * theta * (3.0 - 2.0 * theta),
            h * theta * rest * rest,
            -h * theta * theta * rest,
        )
        return combine(None, weights, (self.y0, self.y1, *slopes))


@dataclass(frozen=True)
class Lagrange:
    """The polynomial through given points; with k + 1 of them its order is k."""

    ts: tuple[Time, ...]
    ys: tuple[Tensor, ...]

    def evaluate(self, t: Time) -> Tensor:
        return combine(None, lagrange_weights(t, self.ts), self.ys)


def lagrange_weights(t: Time, nodes: Sequence[Time]) -> list[Time]:
    """Values at t of the polynomials that are one at their own node and zero at the others."""
    weights: list[Time] = []
    for i, node in enumerate(nodes):
        weight: Time = 1.0
        for j, other in enumerate(nodes):
            if j != i:
                weight = weight * (t - other) / (node - other)
        weights.append(weight)
    return weights


@dataclass(frozen=True)
class Pieces:
    """A solution at every time: the interpolants of its steps, in order."""

    start: float
    ends: tuple[float, ...]  # of each step, increasing
    steps: tuple[Interpolant, ...]

    def evaluate(self, t: Time) -> Tensor:
        where = number(t)
        slack = SLACK * (self.ends[-1] - self.start)
        if not self.start - slack <= where <= self.ends[-1] + slack:
            raise ValueError(f"`t` = {where:.6g} is outside of the solved interval")
        return self.steps[min(bisect_left(self.ends, where), len(self.ends) - 1)].evaluate(t)
