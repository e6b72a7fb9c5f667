"""Does f know the time, and does it jump in it? Steps that are long cross what is short without seeing it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..calls import call
from ..randomness import SAME, difference
from ..vector_field import VectorField
from .path import Path, Stop

TIMES, FEWER = 1_600, 400  # that are looked at over the way, of states of up to LARGE unknowns and of others
LARGE = 4_096
BESIDE = 400  # times more, one in each of as many steps: where these are short, more happens
GOLDEN = 0.6180339887498949
STEEP = 20.0  # slope in t over that of the neighbours, from where it may be a jump
SMALL = 1e-3  # of the largest value of f: what is less is no jump
LARGE_PART = 0.1  # of the largest value of f: what is smooth and less is the tail of something
WINDOW = 6  # neighbours on each side
HALVINGS = 24
COARSER = (1, 4)  # every time, and every fourth: beside what is as long as the window all is steep
ULPS = 4.0  # of the time, below which nothing is told apart
ROOM = 2**26  # bytes of values that are held between two stops
LEFT = 0.3  # of a jump, after as many halvings; of what is smooth less is left
FAR = 20.0  # lengths of a change, from which the times of its beginning and end are taken to be others
MANY = 12  # jumps that are looked at closely
HARMLESS = ("dtype", "device", "shape", "ndim", "requires_grad", "dim", "size", "is_floating_point")  # not its value


class Change(NamedTuple):
    """A jump of f at b, or what comes and goes between a and b."""

    a: float
    b: float
    size: float


class Clock(NamedTuple):
    """What f does in time, in the user's times."""

    varies: bool = False
    jumps: tuple[float, ...] = ()  # that were not given as `jump_t`
    pulses: tuple[tuple[float, float], ...] = ()  # that are smooth, and short
    more: int = 0  # other places where it seems to jump
    crossed: tuple[float, float] | None = None  # a step that has gone over two jumps or a pulse without noticing


class _Reading(TorchFunctionMode):
    """Hears of every torch function that is given this tensor."""

    def __init__(self, t: Tensor) -> None:
        super().__init__()
        self.t, self.heard = t, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(getattr(func, "__self__", None), "__name__", "") or getattr(func, "__name__", "")
        if not self.heard and name not in HARMLESS:
            self.heard = any(leaf is self.t for leaf in tree_leaves((args, kwargs)))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def reads_time(f: VectorField, t: float, y: Tensor) -> bool:
    """Whether f does anything with t; by one evaluation."""
    f.stats.count_f()
    time = f.time(t, y)
    with _Reading(time) as reading:
        call(f.func, time, f.structure.restore(y))
    return reading.heard


@torch.no_grad()
def look_at_the_clock(f: VectorField, path: Path, sign: float, known: Sequence[float], allowed: float) -> Clock:
    """f at fixed states at many times, each compared with its neighbours. `known` are jumps that the user has given;
    `allowed` is the error that a step may make."""
    varies, seen = bool(known), 0
    jumps: list[Change] = []
    pulses: list[Change] = []
    near = 1e-6 * abs(path.reached - path.stops[0].t)
    for times, y in _rows(path):
        values = [f(sign * t, y) for t in times]
        varies = varies or any(not difference(values[0], value) <= SAME for value in values[1:])
        for coarse in COARSER:
            rough_times, rough_values = times[::coarse], values[::coarse]
            new = [i for i in _steep(rough_times, rough_values) if not _told(rough_times[i : i + 2], jumps, pulses)]
            for i in new[: max(0, MANY - seen)]:
                a, b = rough_times[i : i + 2]
                jump = _narrowed(f, sign, a, b, y)
                if jump is None:
                    change = _smooth(rough_times, rough_values, i, returning=coarse > 1)
                    pulses = pulses if change is None else _joined(pulses, change)
                elif all(abs(jump.b - t) > near for t in known):
                    jumps.append(jump)
            seen += len(new)
    pulses = [pulse for pulse in pulses if _is_short(path, pulse) and not _is_given(pulse, known)]
    jumps += [pulse for pulse in pulses if abs(pulse.b - pulse.a) <= near]
    pulses = [pulse for pulse in pulses if abs(pulse.b - pulse.a) > near]
    jumps.sort(key=lambda jump: sign * jump.b)
    crossed = _crossed(path, jumps, pulses, allowed)
    return Clock(varies, tuple(j.b for j in jumps), tuple((p.a, p.b) for p in pulses), max(0, seen - MANY), crossed)


def _rows(path: Path) -> Iterator[tuple[list[float], Tensor]]:
    """Times between two stops, and the state at the first of these. The times are uneven, so that no period hides."""
    stops: list[Stop] = path.stops
    count = TIMES if stops[0].y.numel() <= LARGE else FEWER
    count = min(count, max(len(stops), (len(stops) * ROOM) // max(stops[0].y.nbytes, 1)))
    t0, span = stops[0].t, path.reached - stops[0].t
    times = [t0 + span * (k + 0.25 + 0.5 * ((k * GOLDEN) % 1.0)) / count for k in range(count)]
    stride = math.ceil(len(path.strides) / BESIDE)
    times += [step.t0 + GOLDEN * (step.t1 - step.t0) for step in path.strides[::stride]]
    times.sort(reverse=span < 0)
    forwards = 1.0 if span > 0 else -1.0
    for a, b in pairwise(stops):
        inside = [t for t in times if forwards * a.t < forwards * t < forwards * b.t]
        if len(inside) > 1:
            yield [a.t, *inside, b.t], a.y


def _steep(times: Sequence[float], values: Sequence[Tensor]) -> list[int]:
    """Where f changes by far more than beside it."""
    changes = [float(torch.linalg.vector_norm((b - a).double())) for a, b in pairwise(values)]
    slopes = [c / max(abs(b - a), 1e-300) for c, a, b in zip(changes, times, times[1:], strict=False)]
    scale = max(float(torch.linalg.vector_norm(value.double())) for value in values)
    found = []
    for i, (change, slope) in enumerate(zip(changes, slopes, strict=True)):
        beside = sorted([*slopes[max(0, i - WINDOW) : max(0, i - 1)], *slopes[i + 2 : i + WINDOW + 1]])
        if beside and change > SMALL * scale and slope > STEEP * beside[len(beside) // 2]:
            found.append(i)
    return found


def _smooth(times: Sequence[float], values: Sequence[Tensor], i: int, returning: bool) -> Change | None:
    """A large change from the i-th time to the next; if it is to be `returning`, up to where it is undone, for seen
    coarsely any growth is steep."""
    largest = max(float(torch.linalg.vector_norm(value.double())) for value in values)
    sizes = [float(torch.linalg.vector_norm((value - values[i]).double())) for value in values[i + 1 : i + WINDOW]]
    if sizes[0] <= LARGE_PART * largest:
        return None
    if not returning:
        return Change(times[i], times[i + 1], sizes[0])
    back = next((k for k, size in enumerate(sizes[1:], 2) if size < LARGE_PART * sizes[0]), None)
    return None if back is None else Change(times[i], times[i + back], sizes[0])


def _told(interval: Sequence[float], jumps: list[Change], pulses: list[Change]) -> bool:
    """Whether that change is known already, from a finer look."""
    low, high = min(interval), max(interval)
    return any(low <= jump.b <= high for jump in jumps) or any(
        max(low, min(pulse[:2])) <= min(high, max(pulse[:2])) for pulse in pulses
    )


def _is_short(path: Path, change: Change) -> bool:
    """Beside the step that was taken there: a step that is shorter has followed it."""
    middle, length = 0.5 * (change.a + change.b), abs(change.b - change.a)
    return any(
        min(step.t0, step.t1) <= middle <= max(step.t0, step.t1) and 2 * abs(step.t1 - step.t0) > length
        for step in path.strides
    )


def _is_given(change: Change, known: Sequence[float]) -> bool:
    """Whether a time that the user has given lies in it, or about as near as it is long, or one not far on each side:
    small steps begin there."""
    length, low, high = abs(change.b - change.a), min(change[:2]), max(change[:2])
    before = any(0 <= low - t <= FAR * length for t in known)
    after = any(0 <= t - high <= FAR * length for t in known)
    return (before and after) or any(low - length <= t <= high + length for t in known)


def _narrowed(f: VectorField, sign: float, a: float, b: float, y: Tensor) -> Change | None:
    """The jump between a and b, by halving; None if f turns out to be smooth there."""
    at_a, at_b = f(sign * a, y), f(sign * b, y)
    whole = float(torch.linalg.vector_norm((at_b - at_a).double()))
    ulp = torch.finfo(y.dtype.to_real()).eps * max(abs(a), abs(b))
    if abs(b - a) <= ULPS * ulp:
        return None  # the time itself goes in steps there
    for _ in range(HALVINGS):
        if abs(b - a) <= ULPS * ulp:
            break
        middle = 0.5 * (a + b)
        at = f(sign * middle, y)
        before, after = (float(torch.linalg.vector_norm((x - at).double())) for x in (at_a, at_b))
        if before >= after:
            b, at_b = middle, at
        else:
            a, at_a = middle, at
    size = float(torch.linalg.vector_norm((at_b - at_a).double()))
    return Change(a, b, size) if size > LEFT * whole else None


def _joined(pulses: list[Change], new: Change) -> list[Change]:
    """One more, or the last made longer if it goes on, perhaps after its peak, where f hardly moves."""
    length = new.b - new.a
    if not pulses or (pulses[-1].b + 3.0 * length - new.a) * length < 0:
        return [*pulses, new]
    return [*pulses[:-1], Change(pulses[-1].a, new.b, max(pulses[-1].size, new.size))]


def _crossed(path: Path, jumps: list[Change], pulses: list[Change], allowed: float) -> tuple[float, float] | None:
    """The first step with all of a pulse inside, where the pulse moves the state by more than is allowed."""
    pairs = [Change(a.b, b.b, min(a.size, b.size)) for a, b in pairwise(jumps)]
    matter = [pulse for pulse in (*pairs, *pulses) if pulse.size * abs(pulse.b - pulse.a) > allowed]
    for step in path.strides:
        low, high = sorted((step.t0, step.t1))
        if any(low < min(pulse[:2]) and max(pulse[:2]) < high for pulse in matter):
            return step.t0, step.t1
    return None
