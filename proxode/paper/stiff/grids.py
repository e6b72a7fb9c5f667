"""Times that crowd where a solution moves, and the track through what is known at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FINER = 8  # parts of an interval, so that distances can change within it
REACH = 0.3  # how fast the distance of two times may change


def crowded(motion: Callable[..., Any], f: Callable[..., Any], end: float, count: int) -> Tensor:
    """`count + 1` times from 0 to `end` whose distance follows time, state and speed, and changes gradually."""
    t = refined(motion, end)
    y = torch.stack([motion(s) for s in t])
    speed = f(None, y)[:, 0]
    path = torch.stack([4 * t / end, *(y / y.abs().amax(0)).T, 0.3 * torch.asinh(speed / speed.abs().median())])
    length = torch.cat([torch.zeros(1, dtype=t.dtype), path.diff(dim=1).norm(dim=0).cumsum(0)])
    spacing = (length[-1] / count * t.diff() / length.diff()).repeat_interleave(FINER)
    t = interpolated(torch.arange(len(spacing) + 1, dtype=t.dtype) / FINER, torch.arange(len(t), dtype=t.dtype), t)
    middle = (t[1:] + t[:-1]) / 2
    ahead = torch.cummin(spacing - REACH * middle, 0).values + REACH * middle
    behind = torch.cummin((spacing + REACH * middle).flip(0), 0).values.flip(0) - REACH * middle
    share = t.diff() / torch.minimum(ahead, behind)
    s = torch.cat([torch.zeros(1, dtype=t.dtype), share.cumsum(0)])
    return interpolated(torch.linspace(0.0, float(s[-1]), count + 1, dtype=t.dtype), s, t)


def refined(motion: Callable[..., Any], end: float, start: int = 400, rounds: int = 40) -> Tensor:
    """Times between which no state moves by more than a fiftieth of its size, and whose distance at most doubles from
    one to the next: intervals are halved until then."""
    t = torch.linspace(0.0, end, start, dtype=torch.float64)
    y = torch.stack([motion(s) for s in t])
    for _ in range(rounds):
        wide, width = (y.diff(dim=0).abs() > 0.02 * y.abs().amax(0)).any(1), t.diff()
        wide[1:] |= width[1:] > 2.1 * width[:-1]
        wide[:-1] |= width[:-1] > 2.1 * width[1:]
        if not bool(wide.any()):
            break
        middle = ((t[1:] + t[:-1]) / 2)[wide]
        t, order = torch.cat([t, middle]).sort()
        y = torch.cat([y, torch.stack([motion(s) for s in middle])])[order]
    return t


def interpolated(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """The straight lines through `(xs, ys)` at x."""
    right = torch.searchsorted(xs, x).clamp(1, len(xs) - 1)
    part = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + part * (ys[right] - ys[right - 1])


def cubics(values: Tensor) -> Tensor:
    """Coefficients `(n, 4, k)`, lowest first, of cubics between n + 1 values, one apart, that rise and fall with them:
    Fritsch & Carlson, SIAM J. Numer. Anal. 17 (1980), with harmonic means of the neighbouring slopes."""
    rise = values.diff(dim=0)
    same = rise[1:] * rise[:-1] > 0
    safe = torch.where(same, rise[1:] + rise[:-1], torch.ones_like(rise[1:]))
    inside = torch.where(same, 2 * rise[1:] * rise[:-1] / safe, torch.zeros_like(safe))
    slope = torch.cat([rise[:1], inside, rise[-1:]])
    left, right = slope[:-1], slope[1:]
    return torch.stack([values[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], 1)
