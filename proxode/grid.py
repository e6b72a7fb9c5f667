"""The times between which fixed steps go: by step size, by the user's constructor, or the output times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .problem import SNAP, Problem
from .times import Time, number

MOST_STEPS = 10_000_000  # of a grid, which is made as a whole: its times alone fill half a gigabyte


def make_grid(problem: Problem, step_size: Any, grid_constructor: Callable[..., Any] | None) -> tuple[Time, ...]:
    """By `step_size` or `grid_constructor`, and with the times that no step may cross."""
    if step_size is not None and grid_constructor is not None:
        raise ValueError("`step_size` and `grid_constructor` exclude each other: give one of them")
    if len(problem.ts) == 1:
        return problem.ts
    if grid_constructor is not None:
        grid = _constructed(problem, grid_constructor)
    elif step_size is not None:
        grid = _equal_steps(problem, step_size)
    else:
        grid = problem.ts
    return _with_stops(grid, problem)


def _with_stops(grid: tuple[Time, ...], problem: Problem) -> tuple[Time, ...]:
    """The grid with the times that no step may cross; a point that nearly is one of them gives way to it."""
    if not problem.stops:
        return grid
    kept = set(map(number, problem.ts))
    least = SNAP * min(number(b) - number(a) for a, b in itertools.pairwise(grid))
    inside = [s for s in problem.stops if number(grid[0]) < s < number(grid[-1])]
    points = [p for p in grid if number(p) in kept or all(abs(number(p) - s) > least for s in inside)]
    stops = [s for s in inside if all(abs(number(p) - s) > least for p in points)]
    return tuple(sorted((*points, *stops), key=number))


def _equal_steps(problem: Problem, step_size: Any) -> tuple[Time, ...]:
    if isinstance(step_size, Tensor) and step_size.numel() == 1:
        step_size = float(step_size)
    if isinstance(step_size, bool) or not isinstance(step_size, int | float):
        raise TypeError(f"`step_size` must be a number, not {type(step_size).__name__}")
    if not (math.isfinite(step_size) and step_size > 0):
        raise ValueError(f"`step_size` must be positive and finite, not {step_size} (also where t decreases)")
    t0, t1 = problem.ts[0], problem.ts[-1]
    _check_count(step_size, number(t0), number(t1))
    count = max(1, math.ceil((number(t1) - number(t0)) / step_size - SNAP))
    grid = [t0, *(t0 + i * float(step_size) for i in range(1, count)), t1]
    return tuple(_snapped(grid, problem.ts, SNAP * step_size))


def _check_count(step_size: float, t0: float, t1: float) -> None:
    """Whether there is room for the grid, before it is made, and its steps are longer than the rounding of the time."""
    count, ulp = (t1 - t0) / step_size, math.ulp(max(abs(t0), abs(t1)))
    if count > MOST_STEPS:
        raise ValueError(
            f"`step_size` {step_size:g} makes {count:,.0f} steps of a time of {t1 - t0:g}, more than {MOST_STEPS:,}: "
            "give a larger one, or leave it out and take an adaptive method such as 'auto'"
        )
    if step_size < ulp:
        raise ValueError(
            f"`step_size` {step_size:g} is less than the rounding of the times there, {ulp:.2g}: give a larger one, or "
            "let the times begin at 0"
        )


def _snapped(grid: list[Time], ts: tuple[Time, ...], distance: float) -> list[Time]:
    """The grid with points that nearly are output times replaced by them, so that nothing is interpolated there."""
    j = 0
    for i, point in enumerate(grid):
        while j < len(ts) - 1 and number(ts[j]) < number(point) - distance:
            j += 1
        if abs(number(ts[j]) - number(point)) <= distance:
            grid[i] = ts[j]
    return grid


def _constructed(problem: Problem, grid_constructor: Callable[..., Any]) -> tuple[Time, ...]:
    if not callable(grid_constructor):
        raise TypeError(f"`grid_constructor` must be a function, not {type(grid_constructor).__name__}")
    grid = grid_constructor(problem.f.func, problem.structure.restore(problem.y0), problem.user_ts)
    if not isinstance(grid, Tensor) or grid.dim() != 1 or not grid.is_floating_point() or len(grid) < 2:
        raise TypeError("`grid_constructor` must return a one-dimensional floating tensor of at least two times")
    grid = (grid if problem.sign > 0 else -grid).to(torch.float64)
    points: list[Time] = list(grid.unbind()) if grid.requires_grad else grid.tolist()
    ends = number(points[0]) == number(problem.ts[0]), number(points[-1]) == number(problem.ts[-1])
    if not all(ends):
        raise ValueError("`grid_constructor` must return a grid from t[0] to t[-1]")
    if not bool((grid[1:] > grid[:-1]).all()):
        raise ValueError("`grid_constructor` must return strictly monotone times, in the direction of t")
    return tuple(points)
