"""A batch of independent problems: what is to be solved, and what all ways of solving it share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..controllers import first_length, trial_length
from ..norms import tolerance_scale
from ..observers import Attempt, Observer
from ..randomness import SUSPECT, has_drawn, is_random
from ..solution import Stats
from ..status import Status
from ..tolerances import BACKWARD
from .field import BatchField
from .standing import Standing

ROUNDING = 1e-10
STUCK = 50  # rejections in a row: the step is nothing by then
RUNNING, STIFF = -1, -2  # codes of those that have no status yet; the second wait for BDF
STATUSES = (Status.SUCCESS, Status.MAX_STEPS, Status.STEP_UNDERFLOW, Status.NON_FINITE, Status.RANDOM)


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
    reserve: Tensor  # the same, of an explicit step
    max_steps: int
    observers: tuple[Observer, ...] = ()

    @property
    def backward_rtol(self) -> float:
        """What a linear solve of backward may leave, where it is iterative."""
        return max(BACKWARD * float(self.rtol.min()), 4.0 * torch.finfo(self.y0.dtype).eps)

    def scale(self, *states: Tensor) -> Tensor:
        """In which errors are measured; what has no tolerance at all, being zero, must stay zero."""
        return tolerance_scale(self.rtol, self.atol, *states).clamp(min=torch.finfo(self.y0.dtype).tiny)

    def empty(self) -> list[Tensor]:
        """Outputs, of which those at the start are there."""
        at_start = self.saves <= self.t0
        return [torch.where(there[:, None], self.y0, torch.nan) for there in at_start.unbind()]


class Counts(NamedTuple):
    """Of every sample."""

    steps: Tensor
    accepted: Tensor


class Place(NamedTuple):
    """Where every sample is."""

    t: Tensor
    y: Tensor
    h: Tensor  # the next step
    code: Tensor  # of its status; RUNNING before its end
    rejected: Tensor  # times in a row
    reached: Tensor  # outputs passed
    counts: Counts
    standing: Standing

    @staticmethod
    def of(batch: Batch) -> Place:
        zero = torch.zeros(len(batch.t0), dtype=torch.long, device=batch.y0.device)
        reached = (batch.saves <= batch.t0).sum(0)
        h, standing = torch.zeros_like(batch.t0), Standing.of(batch.t0, batch.y0)
        return Place(batch.t0, batch.y0, h, zero + RUNNING, zero, reached, Counts(zero, zero), standing)

    def refused(self, which: Tensor, way: Tensor) -> Place:
        """After a step that had no finite values for these samples, which some will not come beyond."""
        return self._replace(standing=self.standing.refused(which & (self.rejected == 0), self.t, self.y, way))


def tell(batch: Batch, place: Place, method: str, order: Tensor | int, accepted: bool) -> None:
    """Those who look on hear of a step of the batch."""

    def attempt() -> Attempt:
        running, way = place.code == RUNNING, batch.saves[-1] - batch.t0
        part = float(((place.t - batch.t0) / way).mean())
        ended = len(running) - int(running.sum()) - int((place.code == STIFF).sum())
        h = place.h[running] if ended < len(running) and bool(running.any()) else place.h
        highest = order if isinstance(order, int) else int(order.max())
        return Attempt(math.nan, math.nan, float(h.median()), method, highest, part=part,
                       note=f"{ended:,} of {len(running):,} samples done")  # fmt: skip

    for observer in batch.observers:
        observer.tried(attempt, accepted)


class Start(NamedTuple):
    h: Tensor
    rho: Tensor  # how fast the slope changes along itself


def first_steps(batch: Batch, t: Tensor, y: Tensor, slope: Tensor, power: int) -> Start:
    """As `controllers.first_step`, of every sample."""
    scale, span = batch.scale(y), batch.saves[-1] - t
    d0, d1 = (rms(x / scale).double() for x in (y, slope))
    h0 = _each(trial_length, d0, d1, span)
    change = batch.f(t + h0, y + h0[:, None].to(y.dtype) * slope) - slope
    d2 = rms(change / scale) / h0
    h = _each(lambda h0, d1, d2, span: first_length(h0, d1, d2, power, span), h0, d1, d2, span)
    return Start(h, rms(change) / (h0 * rms(slope)))


def _each(function: Callable[..., float], *values: Tensor) -> Tensor:
    """What is decided once, sample by sample."""
    rows = zip(*(value.tolist() for value in values), strict=True)
    return torch.tensor([function(*row) for row in rows], dtype=torch.float64, device=values[0].device)


def rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1) * x.shape[-1] ** -0.5


def ended(batch: Batch, place: Place) -> Tensor:
    """The status of those that are at their end, or can go no further."""
    there, tired = place.t >= batch.saves[-1], place.counts.steps >= batch.max_steps
    stuck, still = (place.t + place.h == place.t) | (place.rejected >= STUCK), place.standing.over
    code = place.code
    over = (there | tired | stuck | still) & (code == RUNNING)
    if not bool(over.any()):
        return code
    for status, where in ((Status.STEP_UNDERFLOW, stuck), (Status.NON_FINITE, still), (Status.MAX_STEPS, tired),
                          (Status.SUCCESS, there)):  # fmt: skip
        code = torch.where(over & where, STATUSES.index(status), code)
    return code


def over_if_random(batch: Batch, place: Place) -> Place:
    """As `randomness.is_noise`, asked at the 16th, 32nd, 64th ... step of the batch."""
    steps = batch.f.stats.n_steps
    if steps < SUSPECT or steps & (steps - 1) or not has_drawn(batch.f.drawn, place.y.device):
        return place
    rejected = int((place.counts.steps - place.counts.accepted).max())
    if rejected < SUSPECT or not is_random(batch.f, place.t, place.y):
        return place
    return place._replace(code=torch.where(place.code == RUNNING, STATUSES.index(Status.RANDOM), place.code))


def save(
    batch: Batch, t: Tensor, reached: Tensor, accept: Tensor, outputs: list[Tensor], value: Callable[..., Tensor]
) -> Tensor:
    """The outputs that the accepted steps up to t have passed, `value(when, new)`, and how many that are by now."""
    passed = (batch.saves <= t) & accept
    after = torch.maximum(reached, passed.sum(0))
    if bool((after > reached).any()):
        fresh = passed & (torch.arange(len(passed), device=t.device)[:, None] >= reached)
        for j in fresh.any(1).nonzero().flatten().tolist():
            new = fresh[j]
            outputs[j] = torch.where(new[:, None], value(torch.where(new, batch.saves[j], t), new), outputs[j])
    return after


def harmless(accept: Tensor, *states: Tensor) -> list[Tensor]:
    """Another's place for those that take no step: theirs may be one where f has no derivative, and zero times nan is
    nan in the gradient of what all samples share."""
    one = int(accept.nonzero()[0])
    return [torch.where(accept if x.dim() == 1 else accept[:, None], x, x[one].detach()) for x in states]


def count_step(stats: Stats, iterations: int, accepted: bool) -> None:
    """A step of the batch; it was accepted if it was for one of its samples."""
    stats.n_steps += 1
    stats.n_accepted += accepted
    stats.n_rejected += not accepted
    stats.n_inner += iterations
