"""Explicit pairs on a batch: every sample has its own step, and outputs on the pair's own continuous extension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..controllers import REACH, Adaptive
from ..interpolation import combine
from ..methods.auto import EVIDENCE, LONG
from ..methods.pairs import AT_LIMIT, FINE, LIMIT, STABLE, SUSPECT
from ..methods.tableaus import ExplicitTableau
from ..status import Status
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

LARGEST, LEAST, SAFETY = Adaptive.ifactor, Adaptive.dfactor, Adaptive.safety
LEFT = 200.0  # steps to the end at the limit of stability, from which BDF is cheaper
GIVEN_UP = 10  # rejections in a row, after which BDF may try


class Drive(NamedTuple):
    """What an explicit step knows of the one before."""

    slope: Tensor  # f where the sample is; the last stage of the step before, if that is it
    ratio: Tensor  # error of the last accepted step
    evidence: Tensor  # that the sample is stiff


class Tried(NamedTuple):
    """A step from y0 at t0."""

    t0: Tensor
    y0: Tensor
    h: Tensor
    stages: list[Tensor]
    y: Tensor  # at its end


def run(batch: Batch, tableau: ExplicitTableau, outputs: list[Tensor], slope: Tensor, leaving: bool = False) -> Place:
    """To the end of every sample; with `leaving` the stiff ones stop on the way, with the code STIFF."""
    place, drive = _start(batch, tableau, slope, leaving)
    while bool((place.code == RUNNING).any()):
        before = batch.f.stats.n_accepted
        place, drive = _step(batch, tableau, place, drive, outputs, leaving)
        if batch.observers:
            tell(batch, place, tableau.name, tableau.order, batch.f.stats.n_accepted > before)
        if leaving:
            place = over_if_random(batch, place)
    return place


def _start(batch: Batch, tableau: ExplicitTableau, slope: Tensor, leaving: bool) -> tuple[Place, Drive]:
    place, y0 = Place.of(batch), batch.y0.detach()
    with torch.no_grad():
        h, rho = first_steps(batch, batch.t0, y0, slope, power_of(tableau))
        code = torch.where(torch.isfinite(slope).all(-1), RUNNING, STATUSES.index(Status.NON_FINITE))
        if leaving:
            far = rho * (batch.saves[-1] - batch.t0) > LONG
            code = torch.where((code == RUNNING) & far, STIFF, code)
    one = torch.ones_like(h)
    going = code == RUNNING
    if tableau.fsal and _recording(batch, batch.y0) and bool(going.any()):
        slope = batch.f.graph(*harmless(going, batch.t0, batch.y0))
    return place._replace(h=h, code=code), Drive(slope, one, torch.zeros_like(one))


def power_of(tableau: ExplicitTableau) -> int:
    """Of the step, that its error follows."""
    return (tableau.order if tableau.error_order is None else tableau.error_order) + 1


def _recording(batch: Batch, y: Tensor) -> bool:
    return batch.f.wanted and (batch.f.captures or y.requires_grad)


def _step(
    batch: Batch, tableau: ExplicitTableau, place: Place, drive: Drive, outputs: list[Tensor], leaving: bool
) -> tuple[Place, Drive]:
    f, end, running = batch.f, batch.saves[-1], place.code == RUNNING
    last = running & (place.t + place.h * (1.0 + REACH) >= end)
    h = torch.where(last, end - place.t, place.h) * running
    t = torch.where(last, end, place.t + h)
    with torch.no_grad():
        y = place.y.detach()
        slope = drive.slope.detach() if tableau.fsal else f(place.t, y)
        tried = attempt(f, tableau, place.t, t, y, h, slope)
        ratio = _ratio(batch, tableau, y, h, tried)
        accept = running & (ratio <= 1.0)
        some = bool(accept.any())
        place = place.refused(running & torch.isinf(ratio), end - batch.t0)
        count_step(f.stats, 0, some)
        evidence = _evidence(tableau, drive.evidence, h, tried) if leaving else drive.evidence
    if some and _recording(batch, place.y):
        tried = _recorded(batch, tableau, place, t, h, drive.slope, accept)
    taken = accept[:, None]
    following = Drive(torch.where(taken, tried.stages[-1], drive.slope) if tableau.fsal else drive.slope,
                      torch.where(accept, ratio.clamp(min=1e-4), drive.ratio), evidence)  # fmt: skip
    value = extension(f.graph if tried.y.requires_grad else f, tableau, t, tried)
    reached = save(batch, t, place.reached, accept, outputs, value) if some else place.reached
    length = _next_length(tableau, place, h, last, ratio, accept, drive.ratio)
    rejected = torch.where(accept, 0, place.rejected + 1)
    counts = Counts(place.counts.steps + running, place.counts.accepted + accept)
    t, y = torch.where(accept, t, place.t), torch.where(taken, tried.y, place.y)
    place = Place(t, y, length, place.code, rejected, reached, counts, place.standing)
    code = ended(batch, place)
    if leaving:
        stiff = ((evidence >= EVIDENCE) & (end - t > LEFT * length)) | (rejected >= GIVEN_UP)
        code = torch.where((code == RUNNING) & stiff, STIFF, code)
    return place._replace(code=code), following


def attempt(
    f: Callable[[Tensor, Tensor], Tensor], tableau: ExplicitTableau, t0: Tensor, t1: Tensor, y: Tensor, h: Tensor,
    slope: Tensor,
) -> Tried:  # fmt: skip
    stages, length = [slope], h[:, None].to(y.dtype)
    z = y
    for c, row in zip(tableau.c[1:], tableau.a[1:], strict=True):
        z = torch.addcmul(y, length, combine(None, row, stages))
        stages.append(f(t1 if c == 1.0 else torch.add(t0, h, alpha=c), z))
    return Tried(t0, y, h, stages, z if tableau.fsal else torch.addcmul(y, length, combine(None, tableau.b, stages)))


def _recorded(
    batch: Batch, tableau: ExplicitTableau, place: Place, t: Tensor, h: Tensor, slope: Tensor, accept: Tensor
) -> Tried:
    """The step again, as a function of the state before and of what f captures."""
    t0, t1, y, slope = harmless(accept, place.t, t, place.y, slope)
    h = h * accept
    if not tableau.fsal:
        slope = batch.f.graph(t0, y)
    return attempt(batch.f.graph, tableau, t0, t1, y, h, slope)


def _ratio(batch: Batch, tableau: ExplicitTableau, y: Tensor, h: Tensor, tried: Tried) -> Tensor:
    """The error in units of what a step may have of the tolerance; infinite where it is no step at all."""
    scale = batch.scale(y, tried.y) / h[:, None].to(y.dtype)
    sizes = [rms(combine(None, weights, tried.stages) / scale).double()
             for weights in (tableau.b_error, tableau.b_error_low) if weights is not None]  # fmt: skip
    ratio = sizes[0]
    if len(sizes) > 1:  # Hairer's DOP853
        ratio = ratio.square() / (ratio.square() + 0.01 * sizes[1].square()).sqrt().clamp(min=1e-300)
    return torch.where(torch.isfinite(ratio) & torch.isfinite(tried.y).all(-1), ratio / batch.share, math.inf)


def _evidence(tableau: ExplicitTableau, evidence: Tensor, h: Tensor, tried: Tried) -> Tensor:
    """As `methods.pairs.told`: the last two stages of dopri5 are at the same time, and their difference is that of the
    fastest modes. A step that is rejected tells as much."""
    *before, sixth, seventh = tried.stages
    weights = [b - a for a, b in zip((*tableau.a[-2], 0.0), tableau.a[-1], strict=True)]
    apart = rms(combine(None, weights, [*before, sixth]))
    part = rms(seventh - sixth) / (apart * STABLE[FINE])  # h rho, for `apart` is without its h
    told = torch.where(part > LIMIT, AT_LIMIT, torch.where(part > SUSPECT, 1.0, -AT_LIMIT))
    return (evidence + told).clamp(min=0.0)


def _next_length(
    tableau: ExplicitTableau, place: Place, h: Tensor, last: Tensor, ratio: Tensor, accept: Tensor, before: Tensor
) -> Tensor:
    """As `controllers.Adaptive` of kind "pi", of every sample."""
    power, again = power_of(tableau), place.rejected > 0
    plain = SAFETY * ratio.clamp(min=1e-30) ** (-1.0 / power)
    steered = plain * (ratio.clamp(min=1e-30) ** 0.15 * before**0.2) ** (1.0 / power)
    factor = torch.where(again | ~accept, plain, steered).clamp(LEAST, LARGEST)
    longer = h * torch.where(again, factor.clamp(max=1.0), factor)
    longer = torch.where(last, torch.maximum(longer, place.h), longer)
    shorter = h * torch.minimum(factor, torch.where(again, 0.5, SAFETY))
    return torch.where(accept, longer, torch.where(place.code == RUNNING, shorter, place.h))


def extension(
    f: Callable[[Tensor, Tensor], Tensor], tableau: ExplicitTableau, t1: Tensor, tried: Tried
) -> Callable[[Tensor, Tensor], Tensor]:
    """The step between its ends, `y0 + h sum_i b_i(theta) k_i`, with the extra stages that some tableaus need."""
    t0, y0, h, known, y1 = tried
    dense, stages, length = tableau.dense, list(known), h[:, None].to(y0.dtype)

    def value(when: Tensor, new: Tensor) -> Tensor:
        at_end = (when == t1) | ~new
        if bool(at_end.all()) or dense is None:
            return y1
        extra = len(stages) - tableau.stages
        for c, row in zip(tableau.c_dense[extra:], tableau.a_dense[extra:], strict=True):
            stages.append(f(t0 + c * h, torch.addcmul(y0, length, combine(None, row, stages))))
        theta = torch.where(at_end, 1.0, (when - t0) / h)
        powers = theta[:, None] ** torch.arange(1, len(dense[0]) + 1, device=theta.device)
        weights = (powers @ powers.new_tensor(dense).T).to(length.dtype)
        inside = torch.addcmul(y0, length, torch.einsum("bs,sbn->bn", weights, torch.stack(stages)))
        return torch.where(at_end[:, None], y1, inside)

    return value
