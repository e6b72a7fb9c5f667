"""The loop over a batch of independent problems: each has its own time, step, order, end and status."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..configure import KAPPA_ADAPTIVE
from ..controllers import first_length, trial_length
from ..norms import rms_norm, tolerance_scale
from ..solution import Stats, Status
from . import control
from .bdf import Past, Reach
from .field import BatchField
from .implicit import attached
from .newton import Equations
from .newton import solve as solve_equations

ROUNDING = 1e-10
STUCK = 50  # rejections in a row: the step is nothing by then
FIRST_POWER = 2  # of the step, that the error of the first follows: it is of order one
RUNNING = -1
STATUSES = (Status.SUCCESS, Status.MAX_STEPS, Status.STEP_UNDERFLOW, Status.NON_FINITE)


@dataclass(frozen=True)
class Batch:
    """What is to be solved. Times are float64 and grow, whatever the user's direction."""

    f: BatchField
    y0: Tensor  # (batch, n)
    t0: Tensor  # (batch,)
    saves: Tensor  # (outputs, batch), growing; the last are the ends
    rtol: Tensor  # (batch, 1)
    atol: Tensor  # (batch, 1), or one for each component
    share: Tensor  # (batch,): part of the tolerance that the error of a step may be
    max_steps: int
    max_order: int


class Counts(NamedTuple):
    """Of every sample."""

    steps: Tensor
    accepted: Tensor


class Place(NamedTuple):
    """Where every sample is."""

    past: Past
    h: Tensor
    code: Tensor  # of its status; RUNNING before its end
    rejected: Tensor  # times in a row
    reached: Tensor  # outputs passed
    counts: Counts

    @property
    def t(self) -> Tensor:
        return self.past.ts[0]

    @property
    def running(self) -> Tensor:
        return self.code == RUNNING


class Jacobians(NamedTuple):
    values: Tensor
    fresh: Tensor  # which were made where the sample is
    rate: Tensor
    spent: int = 0  # iterations that better ones would have spared


def run(batch: Batch) -> tuple[list[Tensor], Place]:
    """The state at every output, and where every sample ended; what was not reached is nan."""
    slope = batch.f(batch.t0, batch.y0)
    with torch.no_grad():
        place, known = _start(batch, slope)
    place = place._replace(past=Past.of(batch.t0, batch.y0))  # with its graph, if it has one
    outputs = [torch.where((place.reached > j)[:, None], batch.y0, torch.nan) for j in range(len(batch.saves))]
    while bool(place.running.any()):
        place, known = _step(batch, place, known, slope, outputs)
    return outputs, place


def _start(batch: Batch, slope: Tensor) -> tuple[Place, Jacobians]:
    end = batch.saves[-1]
    h = _first_step(batch, slope, end - batch.t0)
    zero = torch.zeros(len(batch.t0), dtype=torch.long, device=batch.y0.device)
    reached = (batch.saves <= batch.t0).sum(0)
    code = torch.where(torch.isfinite(slope).all(-1), RUNNING, STATUSES.index(Status.NON_FINITE))
    place = Place(Past.of(batch.t0, batch.y0), h, code, zero, reached, Counts(zero, zero))
    jacobian = batch.f.jacobian(batch.t0, batch.y0)
    return place, Jacobians(jacobian, place.running, torch.ones_like(h))


def _first_step(batch: Batch, slope: Tensor, span: Tensor) -> Tensor:
    """As `controllers.first_step`, of every sample."""
    scale = _scale(batch, batch.y0)
    d0, d1 = (_rms(x / scale) for x in (batch.y0, slope))
    h0 = _each(trial_length, d0, d1, span)
    moved = batch.f(batch.t0 + h0, batch.y0 + h0[:, None].to(slope.dtype) * slope)
    d2 = _rms((moved - slope) / scale) / h0
    return _each(lambda h0, d1, d2, span: first_length(h0, d1, d2, FIRST_POWER, span), h0, d1, d2, span)


def _each(function: Callable[..., float], *values: Tensor) -> Tensor:
    """What is decided once, sample by sample."""
    rows = zip(*(value.tolist() for value in values), strict=True)
    return torch.tensor([function(*row) for row in rows], dtype=torch.float64, device=values[0].device)


def _rms(x: Tensor) -> Tensor:
    return rms_norm(x).squeeze(-1).double()


def _step(
    batch: Batch, place: Place, known: Jacobians, slope: Tensor, outputs: list[Tensor]
) -> tuple[Place, Jacobians]:
    past, running, end = place.past, place.running, batch.saves[-1]
    last = place.t + place.h * (1.0 + ROUNDING) >= end
    t = torch.where(running, torch.where(last, end, place.t + place.h), place.t + place.t.abs().clamp(min=1.0))
    with torch.no_grad():
        reach = Reach.of(t, past)
        y, dtype = past.y.to(slope.dtype), slope.dtype
        guess = reach.predicted(past, slope).to(dtype)
        scale = _scale(batch, y, guess)
        gamma = reach.gamma.to(dtype)
        now = torch.where(running, t, place.t)  # no f beyond the end of a sample
        at = Equations(now, reach.anchor.to(dtype), gamma, scale, (KAPPA_ADAPTIVE * batch.share).to(dtype), running)
        roots = solve_equations(batch.f, at, guess, known.values, known.rate)
        scale = _scale(batch, y, roots.z)
        error = reach.error_part[:, None].to(dtype) * (roots.z - guess)
        ratio = _rms(error / scale) / batch.share
        ratio = torch.where(roots.solved & torch.isfinite(ratio), ratio, math.inf)
        accept = running & (ratio <= 1.0)
        taken = reach.ended(past, roots.z)
        choice = _choice(batch, reach, taken, ratio, scale, running & roots.solved)
        _count(batch.f.stats, roots.iterations, bool(accept.any()))
    if batch.f.wanted and (batch.f.captures or past.differences.requires_grad) and bool(accept.any()):
        taken = _recorded(batch, past, reach, accept, now, roots.z)
    place = _decided(batch, place, past.where(accept, taken), choice, accept, roots.solved, known.fresh, last)
    place = place._replace(reached=_save(batch, place, accept, reach.order, outputs))
    return place, _renewed(batch, place, known, roots.rate, roots.iterations, running & ~roots.solved, accept)


def _recorded(batch: Batch, past: Past, reach: Reach, accept: Tensor, now: Tensor, z: Tensor) -> Past:
    """The past after the step, as a function of the past before and of what f captures."""
    again, dtype = Reach.of(reach.t, past), z.dtype
    z = attached(batch.f, *_harmless(accept, now, z), again.anchor.to(dtype), again.gamma.to(dtype))
    return again.ended(past, z)


def _scale(batch: Batch, *states: Tensor) -> Tensor:
    """In which errors are measured; what has no tolerance at all, being zero, must stay zero."""
    return tolerance_scale(batch.rtol, batch.atol, *states).clamp(min=torch.finfo(batch.y0.dtype).tiny)


def _harmless(accept: Tensor, t: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Another's place for those that take no step: theirs may be one where f has no derivative, and zero times nan is
    nan in the gradient of what all samples share."""
    one = int(accept.nonzero()[0])
    return torch.where(accept, t, t[one]), torch.where(accept[:, None], z, z[one])


def _count(stats: Stats, iterations: int, accepted: bool) -> None:
    """A step of the batch; it was accepted if it was for one of its samples."""
    stats.n_steps += 1
    stats.n_accepted += accepted
    stats.n_rejected += not accepted
    stats.n_inner += iterations


def _choice(
    batch: Batch, reach: Reach, after: Past, ratio: Tensor, scale: Tensor, solved: Tensor
) -> control.Choice:
    """Neighbouring orders are looked at after order + 1 steps: the points must have settled to it. A step that is
    rejected goes on at no higher one."""
    order = reach.order
    choice = control.at_order(ratio, order)
    look = solved & (after.since > order)
    if bool(look.any()):
        for beside in (-1, 1):
            other = (order + beside).clamp(1, batch.max_order)
            allowed = look & (other == order + beside) & (after.points >= other + 2)
            if beside > 0:
                allowed &= ratio <= 1.0
            found = _rms(reach.error_at(other, after) / scale.double()) / batch.share
            choice = control.better(choice, found, other, beside > 0, allowed)
    return choice


def _decided(
    batch: Batch, place: Place, following: Past, choice: control.Choice, accept: Tensor, solved: Tensor, fresh: Tensor,
    last: Tensor,
) -> Place:  # fmt: skip
    running, no = place.running, torch.zeros_like(place.rejected)
    taken = torch.minimum(place.past.order, place.past.points)
    h = torch.where(last, batch.saves[-1] - place.t, place.h)
    longer = control.longer(h, choice, taken, place.rejected > 0)
    longer = torch.where(last, torch.maximum(longer, place.h), longer)
    shorter, lower = control.shorter(h, choice, taken, place.rejected)
    shorter = torch.where(solved | fresh, shorter, h)  # an old Jacobian is no reason for a shorter step
    order = torch.where(accept, choice.order, torch.where(solved, lower, taken))
    past = following._replace(order=torch.where(running, order, place.past.order),
                              since=torch.where(order == taken, following.since, 0))  # fmt: skip
    counts = Counts(place.counts.steps + running, place.counts.accepted + accept)
    h = torch.where(running, torch.where(accept, longer, shorter), place.h)
    rejected = torch.where(accept, no, place.rejected + 1)
    code = _ended(batch, place.code, past.ts[0], h, counts.steps, rejected)
    return Place(past, h, code, rejected, place.reached, counts)


def _ended(batch: Batch, code: Tensor, t: Tensor, h: Tensor, steps: Tensor, rejected: Tensor) -> Tensor:
    """The status of those that are at their end, or can go no further."""
    running = code == RUNNING
    stuck = (t + h == t) | (rejected >= STUCK)
    reasons = {
        Status.STEP_UNDERFLOW: stuck, Status.MAX_STEPS: steps >= batch.max_steps, Status.SUCCESS: t >= batch.saves[-1],
    }  # fmt: skip
    for status, where in reasons.items():
        code = torch.where(running & where, STATUSES.index(status), code)
    return code


def _save(batch: Batch, place: Place, accept: Tensor, order: Tensor, outputs: list[Tensor]) -> Tensor:
    """The outputs that the accepted steps have passed, on the polynomial of the step, and how many that are by now."""
    t, past = place.t, place.past
    reached = (batch.saves <= t).sum(0)
    first, final = int(place.reached.min()), int(reached.max())
    for j in range(first, final):
        new = accept & (place.reached <= j) & (reached > j)
        if bool(new.any()):
            when = torch.where(new, batch.saves[j], t)
            outputs[j] = torch.where(new[:, None], past.at(when, order).to(batch.y0.dtype), outputs[j])
    return torch.maximum(place.reached, reached)


def _renewed(
    batch: Batch, place: Place, known: Jacobians, rate: Tensor, iterations: int, failed: Tensor, accept: Tensor
) -> Jacobians:
    """New Jacobians for all, when an old one has failed, or when they have cost as much as new ones."""
    spent = known.spent + max(iterations - 2, 0)
    stale = failed & ~known.fresh & place.running
    if bool(stale.any()) or spent > place.past.y.shape[-1]:
        values = batch.f.jacobian(place.t, place.past.y.detach().to(batch.y0.dtype))
        return Jacobians(values, torch.ones_like(accept), torch.ones_like(rate))
    return Jacobians(known.values, known.fresh & ~accept, rate, spent)
