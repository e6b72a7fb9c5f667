"""Variable-step, variable-order BDF on a batch: each sample has its own time, step, order, end and status."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..controllers import REACH
from ..status import Status
from ..tolerances import KAPPA_ADAPTIVE
from . import control
from .batch import (
    RUNNING,
    STATUSES,
    STIFF,
    Batch,
    Counts,
    Place,
    count_step,
    ended,
    first_steps,
    harmless,
    over_if_random,
    rms,
    save,
    tell,
)
from .bdf import Past, Reach
from .implicit import attached
from .linearised import Linearised, linearised
from .newton import Equations, Roots
from .newton import solve as solve_equations

PRODUCTS = 4  # iterations that a new linearisation costs, where no matrix is made
FIRST_POWER = 2  # of the step, that the error of the first follows: it is of order one


class Jacobians(NamedTuple):
    near: Linearised
    fresh: Tensor  # which were made where the sample is
    rate: Tensor
    spent: int = 0  # iterations that better ones would have spared


def run(batch: Batch, max_order: int, outputs: list[Tensor], place: Place, slope: Tensor | None = None) -> Place:
    """From where those that are RUNNING or STIFF are to the end of each; `slope` is f there, if it is known."""
    code = torch.where(place.code == STIFF, RUNNING, place.code)
    slope = batch.f(place.t, place.y) if slope is None else slope
    finite = torch.isfinite(slope).all(-1)
    code = torch.where((code == RUNNING) & ~finite, STATUSES.index(Status.NON_FINITE), code)
    place = place._replace(code=code, rejected=torch.zeros_like(place.rejected))
    if not bool((code == RUNNING).any()):
        return place
    with torch.no_grad():
        y = place.y.detach()
        place = place._replace(h=first_steps(batch, place.t, y, slope, FIRST_POWER).h)
        known = Jacobians(linearised(batch.f, place.t, y), code == RUNNING, torch.ones_like(place.h))
    past = Past.of(place.t, place.y)  # with its graph, if it has one
    while bool((place.code == RUNNING).any()):
        before = batch.f.stats.n_accepted
        place, past, known = _step(batch, max_order, place, past, known, slope, outputs)
        if batch.observers:
            tell(batch, place, "bdf", past.order, batch.f.stats.n_accepted > before)
        place = over_if_random(batch, place)
    return place


def _step(
    batch: Batch, max_order: int, place: Place, past: Past, known: Jacobians, slope: Tensor, outputs: list[Tensor]
) -> tuple[Place, Past, Jacobians]:
    running, end, dtype = place.code == RUNNING, batch.saves[-1], slope.dtype
    last = place.t + place.h * (1.0 + REACH) >= end
    t = torch.where(running, torch.where(last, end, place.t + place.h), place.t + place.t.abs().clamp(min=1.0))
    with torch.no_grad():
        reach = Reach.of(t, past)
        y = place.y.detach()
        guess = reach.predicted(past, slope).to(dtype)
        now = torch.where(running, t, place.t)  # no f beyond the end of a sample
        at = Equations(now, reach.anchor.to(dtype), reach.gamma.to(dtype), batch.scale(y, guess),
                       (KAPPA_ADAPTIVE * batch.share).to(dtype), running)  # fmt: skip
        roots = solve_equations(batch.f, at, guess, known.near, known.rate)
        scale = batch.scale(y, roots.z)
        error = reach.error_part[:, None].to(dtype) * (roots.z - guess)
        ratio = rms(error / scale).double() / batch.share
        ratio = torch.where(roots.solved & torch.isfinite(ratio), ratio, math.inf)
        place = place.refused(running & ~roots.solved & roots.undefined, end - batch.t0)
        accept = running & (ratio <= 1.0)
        some = bool(accept.any())
        taken = reach.ended(past, roots.z)
        choice = _choice(batch, max_order, reach, taken, ratio, scale, running & roots.solved)
        count_step(batch.f.stats, roots.iterations, some)
    if some and batch.f.wanted and (batch.f.captures or past.differences.requires_grad):
        taken = _recorded(batch, past, reach, accept, now, roots.z)
    following = past.where(accept, taken)
    place, following = _decided(batch, place, past, following, choice, accept, roots.solved | known.fresh, roots.solved,
                                last)  # fmt: skip
    if some:
        reached = save(batch, place.t, place.reached, accept, outputs,
                       lambda when, new: following.at(when, reach.order).to(dtype))  # fmt: skip
        place = place._replace(reached=reached)
    return place, following, _renewed(batch, place, known, roots, running & ~roots.solved, accept)


def _recorded(batch: Batch, past: Past, reach: Reach, accept: Tensor, now: Tensor, z: Tensor) -> Past:
    """The past after the step, as a function of the past before and of what f captures."""
    again, dtype = Reach.of(reach.t, past), z.dtype
    now, z = harmless(accept, now, z)
    z = attached(batch.f, now, z, again.anchor.to(dtype), again.gamma.to(dtype), batch.backward_rtol)
    return again.ended(past, z)


def _choice(
    batch: Batch, max_order: int, reach: Reach, after: Past, ratio: Tensor, scale: Tensor, solved: Tensor
) -> control.Choice:
    """Neighbouring orders are looked at after order + 1 steps: the points must have settled to it. A step that is
    rejected goes on at no higher one."""
    order = reach.order
    choice = control.at_order(ratio, order)
    look = solved & (after.since > order)
    if bool(look.any()):
        for beside in (-1, 1):
            other = (order + beside).clamp(1, max_order)
            allowed = look & (other == order + beside) & (after.points >= other + 2)
            if beside > 0:
                allowed &= ratio <= 1.0
            found = rms(reach.error_at(other, after) / scale.double()) / batch.share
            choice = control.better(choice, found, other, beside > 0, allowed)
    return choice


def _decided(
    batch: Batch, place: Place, past: Past, following: Past, choice: control.Choice, accept: Tensor, judged: Tensor,
    solved: Tensor, last: Tensor,
) -> tuple[Place, Past]:  # fmt: skip
    """`judged` are those whose step was no good by itself: an old Jacobian is no reason for a shorter one."""
    running, taken = place.code == RUNNING, torch.minimum(past.order, past.points)
    h = torch.where(last, batch.saves[-1] - place.t, place.h)
    longer = control.longer(h, choice, taken, place.rejected > 0)
    longer = torch.where(last, torch.maximum(longer, place.h), longer)
    shorter, lower = control.shorter(h, choice, taken, place.rejected)
    shorter = torch.where(judged, shorter, h)
    order = torch.where(accept, choice.order, torch.where(solved, lower, taken))
    following = following._replace(order=torch.where(running, order, past.order),
                                   since=torch.where(order == taken, following.since, 0))  # fmt: skip
    counts = Counts(place.counts.steps + running, place.counts.accepted + accept)
    h = torch.where(running, torch.where(accept, longer, shorter), place.h)
    rejected = torch.where(accept, 0, place.rejected + 1)
    t, y = following.ts[0], following.y.to(place.y.dtype)
    place = Place(t, y, h, place.code, rejected, place.reached, counts, place.standing)
    return place._replace(code=ended(batch, place)), following


def _renewed(
    batch: Batch, place: Place, known: Jacobians, roots: Roots, failed: Tensor, accept: Tensor
) -> Jacobians:
    """New Jacobians for all, when an old one has failed, or when they have cost as much as new ones."""
    spent = known.spent + max(roots.iterations - 2, 0)
    stale = failed & ~known.fresh & (place.code == RUNNING)
    if bool(stale.any()) or spent > min(place.y.shape[-1], PRODUCTS):
        near = linearised(batch.f, place.t, place.y.detach())
        return Jacobians(near, torch.ones_like(accept), torch.ones_like(roots.rate))
    return Jacobians(known.near, known.fresh & ~accept, roots.rate, spent)
