"""Variable-step, variable-order BDF on a batch: what `methods.variable_bdf` does, for every sample at its own order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import polynomial

MAX_ORDER = 5
POINTS = MAX_ORDER + 2


class Past(NamedTuple):
    """The last points of every sample, newest first; `count` of them are real."""

    ts: Tensor  # (POINTS, batch)
    ys: Tensor  # (POINTS, batch, n)
    count: Tensor  # (batch,)
    order: Tensor  # of the next step
    since: Tensor  # steps taken at that order

    @staticmethod
    def of(t: Tensor, y: Tensor) -> Past:
        ts = t - torch.arange(POINTS, dtype=t.dtype, device=t.device)[:, None]  # apart, though most mean nothing yet
        one = torch.ones(len(t), dtype=torch.long, device=t.device)
        return Past(ts, y.expand(POINTS, *y.shape), one, one, torch.zeros_like(one))

    def with_point(self, t: Tensor, y: Tensor) -> Past:
        count = (self.count + 1).clamp(max=POINTS)
        ts, ys = torch.cat([t[None], self.ts[:-1]]), torch.cat([y[None], self.ys[:-1]])
        return Past(ts, ys, count, self.order, self.since + 1)

    def where(self, chosen: Tensor, other: Past) -> Past:
        """`other` for the chosen samples."""
        ys = torch.where(chosen[:, None], other.ys, self.ys)
        ts, *rest = (torch.where(chosen, b, a) for a, b in zip(self._replace(ys=self.ts), other._replace(ys=other.ts),
                                                               strict=True))  # fmt: skip
        _, count, order, since = rest
        return Past(ts, ys, count, order, since)


class Formula(NamedTuple):
    """The formula of a step to t."""

    order: Tensor
    weights: Tensor  # of the past states in the anchor
    gamma: Tensor
    error_part: Tensor  # of (solution - prediction)

    @staticmethod
    def to(t: Tensor, past: Past) -> Formula:
        order = torch.minimum(past.order, past.count)
        own, weights = polynomial.slope(t, past.ts[:MAX_ORDER], order)
        gamma = own.reciprocal()
        reach = t - past.ts.gather(0, torch.minimum(order, past.count - 1)[None])[0]
        return Formula(order, -weights * gamma, gamma, gamma / (reach + gamma))

    def anchor(self, past: Past) -> Tensor:
        return combined(self.weights, past.ys[:MAX_ORDER])


def combined(weights: Tensor, ys: Tensor) -> Tensor:
    return (weights[..., None].to(ys.dtype) * ys).sum(0)


def predicted(t: Tensor, past: Past, order: Tensor, slope: Tensor) -> Tensor:
    """The polynomial through the last order + 1 points; from one point along the slope."""
    count = torch.minimum(order + 1, past.count)
    weights = polynomial.lagrange(t, past.ts[: MAX_ORDER + 1], count)
    along = past.ys[0] + ((t - past.ts[0])[:, None] * slope).to(slope.dtype)
    return torch.where((past.count == 1)[:, None], along, combined(weights, past.ys[: MAX_ORDER + 1]))


def neighbour_error(past: Past, order: Tensor) -> Tensor:
    """The local error of the last step, had it been at this order, from the divided difference over order + 2 points."""
    t, before = past.ts[0], past.ts[1:]
    own, _ = polynomial.slope(t, before[:MAX_ORDER], order)
    away = torch.where(polynomial.used(before, order), t - before, 1.0).prod(0)
    return combined(polynomial.difference(past.ts, order + 2) * (away / own), past.ys)
