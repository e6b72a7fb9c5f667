"""A solve that can be gone through again: the times of its accepted steps, and a few places to start from.

The forward pass records nothing for autograd. Each segment, from one kept place to the next, can be replayed: the same
steps between the same times, from the same history, by the same inner solves, so with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..controllers import FixedGrid
from ..inner import Solve
from ..loop import Plan, travel
from ..norms import anywhere, rms_norm
from ..problem import Problem
from ..solution import Failure, Stats
from ..spread import among_processes
from ..times import Time, number
from ..trajectory import Trajectory
from ..walk import Place

REPLAYS = 30.0  # accuracies of an inner solve by which a step may be off that is taken without what was recycled
SAME = 0.4  # power of eps: how well the values of a solve and of its replay must agree


@dataclass
class Keeper:
    """Keeps places while the steps go by, without knowing how many will come: every `stride`-th, and when there are
    more than `limit` of them (by default two for each step of a segment) it drops every other and doubles the stride.
    So both the places and the steps of a segment are of the order of the square root of all steps."""

    limit: int | None = None
    inexact: bool = False  # may a replay differ? Then the state after the first step from each place is kept too
    stride: int = 1
    times: list[Time] = field(default_factory=list)  # the start, and the end of each accepted step
    orders: list[int | None] = field(default_factory=list)  # of each accepted step
    places: list[tuple[int, Place]] = field(default_factory=list)  # the number of steps before it, and the place
    firsts: dict[int, Tensor] = field(default_factory=dict)  # those states
    last: Place | None = None

    def __call__(self, place: Place) -> None:
        step = len(self.times) - 1
        if self.last is not None and step % self.stride == 0:  # now it is known that a step starts there
            self.places.append((step, self.last))
        if self.inexact and step % self.stride == 0:
            self.firsts[step] = place.y
        self.last = place
        self.times.append(place.t)
        self.orders.append(place.order)
        most = 2 * self.stride if self.limit is None else self.limit - 1  # the start is a place too
        while len(self.places) > most:
            self.stride *= 2
            self.places = [(k, kept) for k, kept in self.places if k % self.stride == 0]
            self.firsts = {k: y for k, y in self.firsts.items() if k % self.stride == 0}


@dataclass(frozen=True)
class Segment:
    start: Place | None  # None: the initial state
    times: tuple[Time, ...]  # of its steps, the first is where it starts
    orders: tuple[int | None, ...]  # of its steps
    outputs: range  # of the problem's times, those after its start, up to its end
    end: Tensor  # the state where it ends
    first: Tensor | None = None  # the state after its first step, kept where a replay may differ
    exact: bool = True  # is a replay bitwise the same?


@dataclass(frozen=True)
class Replayed:
    ys: list[Tensor]  # at the outputs of the segment
    end: Place
    path: Trajectory


@dataclass(frozen=True)
class Tape:
    """One solve, ready to be replayed."""

    problem: Problem  # without a graph: its times are numbers, or tensors that are cut off
    plan: Plan
    segments: tuple[Segment, ...]
    memory: Any  # of the vector field, before the first step
    linked: tuple[tuple[Tensor, Tensor], ...] = ()  # times that are tensors, with those that they stand for

    def replay(
        self, segment: Segment, solve: Solve, y0: Tensor, states: tuple[Tensor, ...], time: Callable[[Time], Time],
        *, dense: bool = False,
    ) -> Replayed:  # fmt: skip
        """The steps of a segment from other tensors of the same values: `y0` where the solve starts, `states` in the
        history of a later place, and every time t as `time(t)`."""
        places: list[Place] = []
        place, y = None, y0
        self.problem.f.recall(self.memory if segment.start is None else segment.start.memory)
        if segment.start is not None:
            history = segment.start.history.rebuilt(states, time)
            place = Place(time(segment.start.t), states[0], history)
            y = states[0]
        grid = tuple(map(time, segment.times))
        wanted = [self.problem.ts[i] for i in segment.outputs]
        ends_at_output = bool(wanted) and number(wanted[-1]) == number(segment.times[-1])
        ts = (grid[0], *map(time, wanted), *(() if ends_at_output else grid[-1:]))
        problem = replace(self.problem, y0=y, ts=ts, stats=Stats(), callbacks={}, observers=())
        path, failure = travel(
            problem, self.plan.method, FixedGrid(grid, segment.orders), solve, max_steps=len(grid), dense=dense,
            start=place, on_accept=lambda reached: places.__setitem__(slice(1 if places else 0, None), [reached]),
        )  # fmt: skip
        if failure is not None:
            raise RuntimeError(
                f"a step that was taken before could not be taken again in backward: {failure} "
                "func is random, or something that it reads has changed since"
            )
        if segment.exact:
            check_same(places[-1].y, segment.end, self.problem.f.user_time(number(segment.times[-1])))
        else:  # later steps may carry a difference further apart, the first starts from the same history
            self._check_first(segment, places[0].y)
        return Replayed(path.ys[1 : 1 + len(wanted)], places[-1], path)

    @torch.no_grad()
    def _check_first(self, segment: Segment, now: Tensor) -> None:
        assert segment.first is not None
        size = self.plan.accuracy(segment.first) + torch.finfo(now.dtype).eps * segment.first.abs() + 1e-30
        off = rms_norm((now - segment.first) / size)
        if not bool((off <= REPLAYS).all()):
            raise RuntimeError(changed(self.problem.f.user_time(number(segment.times[1]))))


@torch.no_grad()
def check_same(now: Tensor, before: Tensor, t: float) -> None:
    """Raise if f is not the function that was solved for: the gradient would be that of something else."""
    size = before.abs() + 1e-3 * rms_norm(before) + 1e-30  # large components must not hide the others
    if anywhere(~((now - before).abs() <= torch.finfo(now.dtype).eps ** SAME * size)):
        raise RuntimeError(changed(t))


def changed(t: float) -> str:
    return (
        f"func gave other values in backward than in the solve, up to t = {t:.6g}: something that it reads has "
        "changed since, or it is random (dropout: put modules to eval(), or draw noise once for a whole solve). Keep "
        "what it reads until backward is done" + among_processes()
    )


@torch.no_grad()
def taped(problem: Problem, plan: Plan, limit: int | None) -> tuple[Trajectory, Failure | None, Tape]:
    """Solve without a graph, keeping up to `limit` places."""
    cut = Cut()
    flat = replace(problem, y0=problem.y0.detach(), ts=tuple(map(cut, problem.ts)))
    controller = plan.controller
    if isinstance(controller, FixedGrid):
        controller = replace(controller, grid=tuple(map(cut, controller.grid)))
    keeper, memory = Keeper(limit, plan.method.implicit, times=[flat.ts[0]]), problem.f.memory
    path, failure = travel(
        flat, plan.method, controller, plan.solve, max_steps=plan.max_steps, dense=plan.dense, on_accept=keeper
    )
    segments = tuple(_segments(path.problem, keeper))
    tape = Tape(path.problem, plan, segments, memory, tuple(_linked(keeper.times, cut)))
    return path, failure, tape


def _linked(times: list[Time], cut: Cut) -> Iterator[tuple[Tensor, Tensor]]:
    """Each time of the tape that is a tensor, and the tensor in the user's graph that it stands for. A step that the
    controller chose ends where it starts plus a number."""
    originals = cut.originals()
    done: set[int] = set()
    before: Any = None
    for t in [*times, *(new for _, new in cut.known.values())]:
        if not isinstance(t, Tensor) or id(t) in done:
            continue
        if id(t) in originals:
            linked = originals[id(t)]
        else:
            with torch.enable_grad():
                linked = before - before.detach() + t  # the value of t to the last bit
        before = linked
        done.add(id(t))
        yield t, linked


def _segments(problem: Problem, keeper: Keeper) -> Iterator[Segment]:
    last = len(keeper.times) - 1
    starts: list[tuple[int, Place | None]] = [(0, None), *keeper.places]
    ends = [*keeper.places, (last, keeper.last)]
    outputs = [number(t) for t in problem.ts]
    j = 1
    for (k, place), (end, reached) in zip(starts, ends, strict=True):
        if reached is None:
            continue
        first = j
        while j < len(outputs) and outputs[j] <= number(keeper.times[end]):
            j += 1
        times, orders = tuple(keeper.times[k : end + 1]), tuple(keeper.orders[k:end])
        yield Segment(place, times, orders, range(first, j), reached.y, keeper.firsts.get(k), reached.exact)


class Cut:
    """Tensors cut off from their graphs, each always the same one: the loop tells times apart by identity."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, t: Time) -> Time:
        if not isinstance(t, Tensor):
            return t
        return self.known.setdefault(id(t), (t, t.detach()))[1]

    def originals(self) -> dict[int, Tensor]:
        return {id(new): old for old, new in self.known.values()}
