"""The solve that a diagnosis rests on: every step by its length, and the states at some of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import Stats, Stepper
from ..norms import two_norm
from ..problem import Problem
from ..solution import Failure
from ..steps import TriedStep
from .growth import HIGH, LOW, MOST, NODES, WHOLE, Bit

ROOM = 2**24  # numbers that the states of pieces may take


class Stop(NamedTuple):
    """A state on the way, flat."""

    step: int  # how many came before
    t: float
    y: Tensor


@dataclass
class Path:
    """What the solve did. `largest` is the largest size of each component on the way, `length` that of the way that the
    state itself has gone."""

    stats: Stats
    largest: Tensor
    atol: Tensor  # one for all, or one for each component
    length: float = 0.0
    sizes: list[float] = field(default_factory=list)  # of the state, at the first time and after every step
    stops: list[Stop] = field(default_factory=list)
    bits: list[Bit] = field(default_factory=list)  # the way in pieces, along which perturbations are followed
    failure: Failure | None = None

    @cached_property
    def strides(self) -> list[TriedStep]:
        """The steps that were taken; asked for when the solve is over."""
        return [step for step in self.stats.steps if step.accepted]

    @property
    def shares(self) -> dict[str, int]:
        """Steps of each method that took some, the most first."""
        counts: dict[str, int] = {}
        for stride in self.strides:
            counts[stride.method] = counts.get(stride.method, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    @property
    def growth(self) -> float:
        """Orders of magnitude by which the state itself has grown; one that begins at nothing, since a tenth of the
        steps."""
        first = next((size for size in (self.sizes[0], self.sizes[len(self.sizes) // 10]) if size > 0), 0.0)
        return math.log10(self.sizes[-1] / first) if first > 0 and self.sizes[-1] > 0 else 0.0

    @property
    def reached(self) -> float:
        return self.strides[-1].t1

    @property
    def by_bdf(self) -> int:
        return sum(stride.method == "bdf" for stride in self.strides)


@torch.no_grad()
def follow(
    func: Callable[..., Any], y0: Any, problem: Problem, *, rtol: Any, atol: Any, points: int, max_steps: int,
    options: dict[str, Any],
) -> Path:  # fmt: skip
    """Solve with `auto`, and keep states for at least `points` places: evenly over the steps, which crowd where the
    solution moves, and evenly over time, where a method spends its steps if stability sets them."""
    f, flatten = problem.f, problem.structure.flatten
    t0, t1 = (f.user_time(t) for t in (problem.ts[0], problem.ts[-1]))
    stepper = Stepper(func, y0, t0, t1=t1, rtol=rtol, atol=atol, max_steps=max_steps, throw=False, **options)
    path = Path(stepper.stats, problem.y0.detach().abs(), torch.as_tensor(problem.atol, dtype=torch.float64))
    path.sizes.append(float(two_norm(problem.y0.detach())))
    kept, pieces = _Kept(points, t0, t1), _Pieces(problem)
    kept.offer(0, t0, problem.y0.detach())
    while not stepper.done:
        step = stepper.step()
        if step.failure is not None:
            break
        before, y = flatten(step.y0), flatten(step.y1)
        path.length += float(torch.linalg.vector_norm((y - before).double()))
        path.sizes.append(float(two_norm(y)))
        torch.maximum(path.largest, y.abs(), out=path.largest)
        kept.offer(stepper.stats.n_accepted, step.t1, y)
        pieces.offer(stepper, step.t0, step.t1, y)
    pieces.finish()
    path.failure, path.stops, path.bits = stepper.failure, kept.chosen(), pieces.bits
    return path


class _Pieces:
    """The way in pieces: of small states every step, with states in it, of others by its end; where there are too many,
    every step of a stride that doubles."""

    def __init__(self, problem: Problem) -> None:
        self.sign, self.flatten, self.whole = problem.sign, problem.structure.flatten, problem.y0.numel() <= WHOLE
        self.most = MOST if self.whole else max(24, min(NODES, ROOM // problem.y0.numel() // 2 * 2))
        self.bits: list[Bit] = []
        self.stride, self.count, self.length = 1, 0, 0.0  # of the piece that is not whole yet

    def offer(self, stepper: Stepper, t0: float, t1: float, y: Tensor) -> None:
        self.count, self.length = self.count + 1, self.length + abs(t1 - t0)
        if self.count < self.stride:
            return
        if self.whole or self.stride == 1:
            inner = tuple(t0 + c * (t1 - t0) for c in (LOW, HIGH))
            self._end(inner, tuple(self.flatten(stepper.interpolate(t)) for t in inner))
        else:
            self._end((t1,), (y,))
        if len(self.bits) > self.most:  # an odd number, of which the last begins a longer piece
            self.count, self.length = self.stride, self.bits.pop().h
            pairs = zip(self.bits[::2], self.bits[1::2], strict=True)
            self.bits = [Bit(a.h + b.h, a.ts, a.ys) for a, b in pairs]
            self.stride *= 2

    def _end(self, ts: tuple[float, ...], ys: tuple[Tensor, ...]) -> None:
        self.bits.append(Bit(self.length, tuple(self.sign * t for t in ts), tuple(y.detach() for y in ys)))
        self.count, self.length = 0, 0.0

    def finish(self) -> None:
        """The piece that has begun is a part of the last."""
        if self.length > 0 and self.bits:
            self.bits[-1] = self.bits[-1]._replace(h=self.bits[-1].h + self.length)


class _Kept:
    """Some of the states that come by, not knowing how many will: every step of a stride that doubles, and the first
    beyond each of as many even times."""

    def __init__(self, points: int, t0: float, t1: float) -> None:
        self.points, self.t0, self.span = points, t0, t1 - t0
        self.stride, self.mark = 1, 0
        self.by_step: list[Stop] = []
        self.by_time: list[Stop] = []
        self.last: Stop | None = None

    def offer(self, index: int, t: float, y: Tensor) -> None:
        stop = self.last = Stop(index, t, y)
        mark = int(self.points * (t - self.t0) / self.span)
        if mark > self.mark:
            self.mark = mark
            self.by_time.append(stop)
        if index % self.stride == 0:
            self.by_step.append(stop)
            if len(self.by_step) > 2 * self.points:
                self.by_step, self.stride = self.by_step[::2], 2 * self.stride

    def chosen(self) -> list[Stop]:
        """`points` of them at most, with the first and the last; half by steps and half by time."""
        assert self.last is not None
        half = max(0, (self.points - 2) // 2)
        found = {stop.step: stop for stop in (self.by_step[0], self.last)[: self.points]}
        for several, room in ((self.by_time, max(0, self.points - 2 - half)), (self.by_step, half)):
            rest = [stop for stop in several if stop.step not in found]
            room = min(room, len(rest))
            found |= {rest[i].step: rest[i] for i in (int((k + 0.5) * len(rest) / room) for k in range(room))}
        rest = [stop for stop in (*self.by_step, *self.by_time) if stop.step not in found]
        found |= {stop.step: stop for stop in rest[: max(0, self.points - len(found))]}
        return [found[index] for index in sorted(found)]
