"""Events are found where they are: against SciPy and closed forms, and the root finder alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode import Event, Status
from proxode.methods import METHODS
from proxode.roots import find_root

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def oscillator(t: Any, y: Any) -> Tensor:
    return torch.stack([y[1], -y[0]])


def kepler(t: Tensor, y: Tensor) -> Tensor:
    return torch.cat([y[2:], -y[:2] / (y[0] ** 2 + y[1] ** 2) ** 1.5])


def robertson(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return torch.stack([b - a, a - b - c, c])


def by_scipy(
    f: Callable[..., Tensor],
    y0: Tensor,
    t0: float,
    t1: float,
    events: list[Event],
    method: str = "DOP853",
    **kwargs: Any,
) -> Any:
    """SciPy's solve of the same problem with the same events."""

    def told(event: Event) -> Any:
        def g(t: float, y: Any) -> float:
            return float(event.fn(torch.tensor(t, dtype=torch.float64), torch.from_numpy(np.asarray(y))))

        g.terminal, g.direction = event.terminal, event.direction  # type: ignore[attr-defined]
        return g

    def field(t: float, y: Any) -> Any:
        return f(torch.tensor(t, dtype=torch.float64), torch.from_numpy(y)).numpy()

    kwargs = {"rtol": 1e-10, "atol": 1e-12, **kwargs}
    return solve_ivp(field, (t0, t1), y0.numpy(), method=method, events=list(map(told, events)), **kwargs)


def agree(ours: proxode.Solution, theirs: Any, **tolerance: float) -> None:
    assert [len(t) for t in ours.event_ts] == [len(t) for t in theirs.t_events]
    for t, y, t_scipy, y_scipy in zip(ours.event_ts, ours.event_ys, theirs.t_events, theirs.y_events, strict=True):
        assert_close(t, torch.from_numpy(t_scipy), **tolerance)
        if len(t):
            assert_close(y, torch.from_numpy(y_scipy), **tolerance)


# Against SciPy

ELLIPSE = f64(0.3, 0.6, -1.1, 0.4)


def on_the_axis(t: Tensor, y: Tensor) -> Tensor:
    return y[1]


def at_an_apsis(t: Tensor, y: Tensor) -> Tensor:
    return y[0] * y[2] + y[1] * y[3]


@pytest.mark.parametrize("direction", [-1, 0, 1])
@pytest.mark.parametrize("span", [(0.0, 9.0), (9.0, 0.0), (-2.0, 7.0)])
def test_the_events_of_an_orbit_are_those_of_scipy(direction: int, span: tuple[float, float]) -> None:
    events = [Event(on_the_axis, terminal=False, direction=direction), Event(at_an_apsis, terminal=False)]
    ours = proxode.solve(kepler, ELLIPSE, *span, method="dopri8", event=events, **TIGHT)
    theirs = by_scipy(kepler, ELLIPSE, *span, events)
    assert ours.status is Status.SUCCESS and len(ours.event_ts[1]) > 3
    agree(ours, theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("direction", [-1, 1])
def test_a_terminal_event_ends_the_solve_as_in_scipy(direction: int) -> None:
    events = [Event(on_the_axis, direction=direction), Event(at_an_apsis, terminal=False)]
    save_at = torch.linspace(0, 9, 40, dtype=torch.float64)
    ours = proxode.solve(kepler, ELLIPSE, 0.0, 9.0, method="dopri8", event=events, save_at=save_at, **TIGHT)
    theirs = by_scipy(kepler, ELLIPSE, 0.0, 9.0, events, t_eval=save_at.numpy())
    assert ours.status is Status.EVENT and ours.status.ok and theirs.status == 1
    agree(ours, theirs, rtol=1e-7, atol=1e-7)
    assert len(ours.ts) == len(theirs.t)
    assert_close(ours.ts, torch.from_numpy(theirs.t))
    assert_close(ours.ys, torch.from_numpy(theirs.y.T), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("method", ["bdf", "auto"])
def test_robertson_passes_values_on_its_way_to_1e4(method: str) -> None:
    levels = (0.9, 0.5, 0.2)
    events = [
        *(Event(lambda t, y, level=level: y[0] - level, terminal=False, direction=-1) for level in levels),
        Event(lambda t, y: y[2] - 0.7, terminal=False),
        Event(lambda t, y: y[0] - 0.7, terminal=False, direction=1),
    ]
    y0 = f64(1.0, 0.0, 0.0)
    ours = proxode.solve(robertson, y0, 0.0, 1e4, method=method, event=events, rtol=1e-6, atol=1e-10)
    theirs = by_scipy(robertson, y0, 0.0, 1e4, events, "Radau", rtol=1e-9, atol=1e-13)
    assert [len(t) for t in ours.event_ts] == [1, 1, 1, 1, 0]
    agree(ours, theirs, rtol=3e-4, atol=1e-9)


# Against closed forms


@settings(deadline=None, max_examples=40)
@given(
    phase=st.floats(0, 2 * math.pi), level=st.floats(-0.9, 0.9), end=st.floats(1.0, 15.0),
    direction=st.sampled_from([-1, 0, 1]), down=st.booleans(), method=st.sampled_from(["dopri5", "tsit5", "dopri8"]),
)  # fmt: skip
def test_all_crossings_of_an_oscillator_are_found(
    phase: float, level: float, end: float, direction: int, down: bool, method: str
) -> None:
    """y = sin(t + phase) = level, on steps shorter than the time between two crossings."""
    first = math.asin(level)
    roots = [root + 2 * math.pi * k - phase for k in range(-4, 6) for root in (first, math.pi - first)]
    span = (end, 0.0) if down else (0.0, end)
    exact = sorted((r for r in roots if 0 < r < end), reverse=down)
    if direction:
        exact = [r for r in exact if math.cos(r + phase) * (-1 if down else 1) * direction > 0]
    assume(all(abs(r - edge) > 1e-4 for r in roots for edge in (0.0, end)))
    y0 = f64(math.sin(span[0] + phase), math.cos(span[0] + phase))
    event = Event(lambda t, y: y[0] - level, terminal=False, direction=direction)
    ours = proxode.solve(oscillator, y0, *span, method=method, event=event, rtol=1e-9, atol=1e-10, max_step=0.4)
    assert ours.event_ts[0].tolist() == pytest.approx(exact, abs=1e-6)
    assert ours.event_ys[0][:, 0].tolist() == pytest.approx([level] * len(exact), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("span", [(0.0, 2.0), (2.0, 0.0)])
def test_every_method_finds_an_event_with_its_own_accuracy(method: str, span: tuple[float, float]) -> None:
    """y = exp(t0 - t) passes a level; fixed steps."""
    sign = 1.0 if span[1] > span[0] else -1.0
    ours = proxode.solve(
        lambda t, y: -sign * y, f64(1.0), *span, method=method, step_size=0.02, event=lambda t, y: y[0] - 0.5
    )
    assert ours.status is Status.EVENT
    exact = span[0] + sign * math.log(2.0)
    assert ours.event_ts[0].tolist() == pytest.approx([exact], abs=0.02 if METHODS[method].order == 1 else 1e-3)
    assert ours.event_ys[0].flatten().tolist() == pytest.approx([0.5], abs=1e-12)
    assert ours.ts.tolist() == [span[0], float(ours.event_ts[0])]
    assert ours.ys.flatten().tolist() == pytest.approx([1.0, 0.5])


def test_events_within_one_step_come_in_order_and_end_with_the_first_terminal_one() -> None:
    """y = t: four events in one step of length 4, and one function with two elements."""

    def at(*levels: float) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda t, y: y - torch.tensor(levels, dtype=torch.float64)

    events = [
        Event(at(3.0), terminal=False),
        Event(at(2.5)),
        Event(at(1.5), terminal=False),
        Event(at(2.25, 0.5), False),
    ]
    ours = proxode.solve(
        lambda t, y: torch.ones_like(y), f64(0.0), 0.0, 4.0, method="rk4", step_size=4.0, event=events,
        save_at=f64(0.0, 1.0, 2.0, 3.0),
    )  # fmt: skip
    assert [t.tolist() for t in ours.event_ts] == [[], *map(pytest.approx, ([2.5], [1.5], [0.5, 2.25]))]
    assert ours.ts.tolist() == [0.0, 1.0, 2.0]
    assert_close(ours.ys[:, 0], ours.ts)


def test_an_event_at_the_end_of_a_step_or_of_the_solve_is_found_once() -> None:
    for end, terminal in ((1.0, True), (1.0, False), (2.0, False)):
        ours = proxode.solve(
            lambda t, y: torch.ones_like(y), f64(-1.0), 0.0, end, method="rk4", step_size=0.25,
            event=Event(lambda t, y: y, terminal=terminal), save_at=f64(0.5, 1.0),
        )  # fmt: skip
        assert ours.event_ts[0].tolist() == [1.0]
        assert ours.ts.tolist() == [0.5, 1.0] and ours.ys.flatten().tolist() == [-0.5, 0.0]
        assert ours.status is (Status.EVENT if terminal else Status.SUCCESS)


def test_two_crossings_in_one_step_cancel_unless_steps_are_shorter() -> None:
    event = Event(lambda t, y: (y[0] - 0.3) * (y[0] - 0.5), terminal=False)
    counts = [
        len(
            proxode.solve(
                lambda t, y: torch.ones_like(y), f64(0.0), 0.0, 1.0, method="dopri5", event=event, **kwargs
            ).event_ts[0]
        )
        for kwargs in ({"first_step": 1.0}, {"max_step": 0.1})
    ]
    assert counts == [0, 2]


# The root finder alone


@pytest.mark.parametrize(
    ("g", "a", "b", "root", "most"),
    [
        (lambda t: t - 0.3, 0.0, 1.0, 0.3, 10),
        (lambda t: math.cos(t), 1.0, 2.0, math.pi / 2, 10),
        (lambda t: t**9 - 1e-9, 0.0, 1.0, 0.1, 60),
        (lambda t: -1.0 if t < 1e3 + 1 / 3 else 1.0, 0.0, 2e3, 1e3 + 1 / 3, 60),
        (lambda t: math.copysign(math.inf, t - 0.7), 0.0, 1.0, 0.7, 60),
        (lambda t: (t - 5e9) ** 3, 0.0, 7e9, 5e9, 60),
    ],
)
def test_a_root_is_found_to_rounding_in_few_evaluations(g: Any, a: float, b: float, root: float, most: int) -> None:
    calls = []

    def counted(t: float) -> float:
        calls.append(t)
        return g(t)

    found = find_root(counted, a, b, g(a), g(b))
    assert found == pytest.approx(root, rel=1e-14)
    assert len(calls) <= most
