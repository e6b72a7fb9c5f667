"""Variable-step, variable-order BDF on a batch: what `methods.variable_bdf` does, for every sample at its own order.

The past is kept as divided differences, in which the polynomials of all orders are partial sums of one another: no
sample needs operations of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..methods.bdf import MAX_ORDER

POINTS = MAX_ORDER + 2


class Past(NamedTuple):
    """The last points of every sample, newest first."""

    ts: Tensor  # (POINTS, batch)
    differences: Tensor  # (POINTS, batch, n): number j is over the j + 1 newest points, zero where there are fewer;
    # float64, for they hold powers of the step
    points: Tensor  # (batch,): how many of them are real
    order: Tensor  # of the next step
    since: Tensor  # steps taken at that order

    @staticmethod
    def of(t: Tensor, y: Tensor) -> Past:
        ts = t - torch.arange(POINTS, dtype=t.dtype, device=t.device)[:, None]  # apart, though most mean nothing yet
        one = torch.ones(len(t), dtype=torch.long, device=t.device)
        empty = torch.zeros(POINTS - 1, *y.shape, dtype=torch.float64, device=y.device)
        return Past(ts, torch.cat([y.double()[None], empty]), one, one, torch.zeros_like(one))

    @property
    def y(self) -> Tensor:
        return self.differences[0]

    def at(self, t: Tensor, order: Tensor) -> Tensor:
        """The polynomial through the order + 1 newest points, at t."""
        return picked((_powers(t - self.ts)[..., None] * self.differences).cumsum(0), order)

    def where(self, chosen: Tensor, other: Past) -> Past:
        """`other` for the chosen samples."""
        return Past(*(torch.where(chosen[:, None] if a.dim() == 3 else chosen, b, a)
                      for a, b in zip(self, other, strict=True)))  # fmt: skip


class Reach(NamedTuple):
    """A step to t, at the order of each sample: `z = anchor + gamma f(t, z)`."""

    t: Tensor
    order: Tensor
    powers: Tensor  # (POINTS, batch): prod over m < j of (t - t_m)
    rates: Tensor  # sum over m < j of 1 / (t - t_m)
    sums: Tensor  # (POINTS, batch, n): the polynomials through the newest points, of every degree, at t
    gamma: Tensor
    anchor: Tensor
    error_part: Tensor  # of (solution - prediction)

    @staticmethod
    def of(t: Tensor, past: Past) -> Reach:
        order = torch.minimum(past.order, past.points)
        away = t - past.ts
        powers = _powers(away)
        rates = torch.cat([torch.zeros_like(away[:1]), away.reciprocal().cumsum(0)[:-1]])
        terms = powers[..., None] * past.differences
        sums = terms.cumsum(0)
        slopes = (rates[..., None] * terms).cumsum(0)
        gamma = picked(rates, order).reciprocal()
        anchor = picked(sums, order - 1) - gamma[:, None] * picked(slopes, order - 1)
        length = picked(away, torch.minimum(order, past.points - 1))
        return Reach(t, order, powers, rates, sums, gamma, anchor, gamma / (length + gamma))

    def predicted(self, past: Past, slope: Tensor) -> Tensor:
        """The polynomial through order + 1 points; from one point along the slope."""
        along = past.y + (self.t - past.ts[0])[:, None] * slope
        return torch.where((past.points == 1)[:, None], along, picked(self.sums, self.order))

    def ended(self, past: Past, z: Tensor) -> Past:
        """The past of those that take the step, with z at its end."""
        z = z.double()
        higher = (z - self.sums[:-1]) / self.powers[1:, :, None]
        known = torch.arange(1, POINTS, device=z.device)[:, None] <= past.points
        differences = torch.cat([z[None], torch.where(known[..., None], higher, 0.0)])
        points = (past.points + 1).clamp(max=POINTS)
        return Past(torch.cat([self.t[None], past.ts[:-1]]), differences, points, self.order, past.since + 1)

    def error_at(self, order: Tensor, after: Past) -> Tensor:
        """The local error of the step, had it been at this order."""
        size = picked(self.powers, order) / picked(self.rates, order)
        return size[:, None] * picked(after.differences, order + 1)


def picked(values: Tensor, index: Tensor) -> Tensor:
    """values[index[b], b] for every sample b."""
    index = index[None] if values.dim() == 2 else index[None, :, None].expand(-1, -1, values.shape[-1])
    return values.gather(0, index)[0]


def _powers(away: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(away[:1]), away[:-1].cumprod(0)])
