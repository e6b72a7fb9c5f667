"""The time and state of an event as functions of what the solve depends on.

A gradient strategy differentiates the state at the time t* that was found, held fixed. The time itself moves so that
the event function g stays zero along the solution, `dt = -dg / (dg/dt + dg/dy y')`, and the state moves with it by
`y' dt`. Here y' is the slope of the step's interpolant, on which t* was found: so the derivative is that of the
discrete solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .autocast import uncasting
from .eager import eager
from .events import Crossing, Event
from .norms import rms_norm
from .rough import rough_signs
from .vector_field import VectorField

TANGENTIAL = 100.0  # ulps of its parts below which the slope of an event function is nothing
MOVED = 1e-4  # part of time and state by which they are moved to see whether an event function depends on them


def at_events(
    events: Sequence[Event], found: Sequence[Crossing], rows: Tensor, f: VectorField, user_ts: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
    """For each event the times at which it was found and the states there, in the user's structure."""
    ts: list[list[Tensor]] = [[] for _ in events]
    ys: list[list[Tensor]] = [[] for _ in events]
    for crossing in found:
        t, y = _located(events[crossing.event], crossing, rows[crossing.row], f)
        ts[crossing.event].append((-t if f.reverse else t).to(user_ts.dtype))
        ys[crossing.event].append(y)
    times = tuple(torch.stack(t) if t else user_ts.detach()[:0] for t in ts)
    states = tuple(f.structure.restore(torch.stack(y) if y else rows.detach()[:0], len(y)) for y in ys)
    return times, states


def _located(event: Event, crossing: Crossing, y: Tensor, f: VectorField) -> tuple[Tensor, Tensor]:
    t = torch.tensor(crossing.t, dtype=torch.float64, device=y.device)
    if not torch.is_grad_enabled():
        return t, y
    g = event.values(f, crossing.t, y)[crossing.component]
    if not (y.requires_grad or g.requires_grad):
        return t, y
    return AtEvent.apply(y, g, t, _slope(event, crossing, y.detach(), f))  # type: ignore[no-untyped-call]


class Slope(NamedTuple):
    """Of an event function along the solution, and why it would give no gradient, if so."""

    value: Tensor
    velocity: Tensor
    trouble: str | None = None


def _slope(event: Event, crossing: Crossing, y: Tensor, f: VectorField) -> Slope:
    velocity = crossing.velocity
    with torch.enable_grad():
        t = torch.tensor(crossing.t, dtype=torch.float64, device=y.device).requires_grad_()
        here = y.clone().requires_grad_()
        g = event.values(f, t, here)[crossing.component]
        of_t, of_y = torch.autograd.grad(g, (t, here), allow_unused=True) if g.requires_grad else (None, None)
    hidden = _hidden(event, crossing, y, f, of_t is None, of_y is None)
    along = torch.zeros_like(g) if of_y is None else _product(of_y, velocity)
    alone = torch.zeros_like(g) if of_t is None else of_t.to(g.dtype)
    value = (along + alone).detach()
    if hidden is not None:
        return Slope(value, velocity, hidden)
    size = alone.abs() + (0.0 if of_y is None else of_y.norm() * velocity.norm())
    if not bool(value.abs() > TANGENTIAL * torch.finfo(y.dtype).eps * size):
        where = f"at t = {f.user_time(crossing.t):.6g}"
        return Slope(value, velocity, f"the solution only touches event {crossing.event} {where}: its function has "
                     "slope zero there, and the time of the event has no derivative")  # fmt: skip
    return Slope(value, velocity)


@torch.no_grad()
def _hidden(event: Event, crossing: Crossing, y: Tensor, f: VectorField, no_t: bool, no_y: bool) -> str | None:
    """What an event function depends on and autograd does not see, in words; None if it sees all."""
    before = event.values(f, crossing.t, y)[crossing.component]
    t = crossing.t + MOVED * (1.0 + abs(crossing.t)) if no_t else crossing.t
    at = y + MOVED * (1.0 + rms_norm(y)) * rough_signs(y, 13) if no_y else y
    if not (no_t or no_y) or bool(event.values(f, t, at)[crossing.component] == before):
        return None
    return (
        f"autograd does not see how event {crossing.event} depends on t and y, so its gradient would be wrong: its "
        "function detaches them or leaves torch. Mend that, or solve under no_grad"
    )


class AtEvent(torch.autograd.Function):
    """t* and y(t*), from the state at fixed t* and the event function there."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, g: Tensor, t: Tensor, slope: Slope) -> tuple[Tensor, Tensor]:
        ctx.slope = slope
        return t.clone(), y.clone()

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *grads: Any) -> Any:
        of_t, of_y = grads
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives through the time or state of an event are not available: solve to a fixed time"
            )
        slope: Slope = ctx.slope
        if not (bool(of_t.any()) or bool(of_y.any())):
            return torch.zeros_like(of_y), torch.zeros_like(slope.value), None, None
        if slope.trouble is not None:
            raise RuntimeError(slope.trouble)
        moved = of_t.to(slope.value.dtype) + _product(of_y, slope.velocity).to(slope.value.dtype)
        return of_y, -moved / slope.value, None, None


def _product(g: Tensor, v: Tensor) -> Tensor:
    return torch.vdot(g, v).real if g.is_complex() else torch.dot(g, v)
