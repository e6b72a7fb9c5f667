"""Events in use: starts from where one was, the doors that take them (against torchdiffeq), what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode import Event, Status

ZERO = torch.tensor(0.0, dtype=torch.float64)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def oscillator(t: Any, y: Any) -> Tensor:
    return torch.stack([y[1], -y[0]])


def falling(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], torch.full_like(y[1], -10.0)])


# Starts from where an event was


@pytest.mark.parametrize("method", ["dopri5", "auto", "bdf"])
@pytest.mark.parametrize(("dtype", "start"), [(torch.float64, 0.0), (torch.float32, 0.0), (torch.float64, 1e7)])
def test_a_ball_bounces_again_and_again(method: str, dtype: torch.dtype, start: float) -> None:
    """Restarted from the ground it has not just landed, whatever the rounding of its height or of the time."""
    t, y = torch.tensor(start, dtype=dtype), torch.tensor([1.5, 0.0], dtype=dtype)
    lands, rest = math.sqrt(0.3), 0.8
    for bounce in range(6):
        t, ys = proxode.odeint_event(
            falling, y, t, event_fn=lambda t, y: y[0], method=method, rtol=1e-7 if dtype is torch.float64 else 1e-5
        )
        assert t.dtype is dtype and t.dim() == 0
        assert float(t) - start == pytest.approx(lands, rel=1e-5 if dtype is torch.float64 else 1e-3), bounce
        y = torch.stack([ys[1, 0], -rest * ys[1, 1]])
        lands += 2 * math.sqrt(0.3) * rest ** (bounce + 1)


def test_a_ball_that_comes_back_within_its_first_step_is_seen() -> None:
    """The second event is at 0.4; the first step, which starts at the ground, is longer."""
    ours = proxode.solve(falling, f64(0.0, 2.0), 0.0, 1.0, method="rk4", step_size=0.5, event=lambda t, y: y[0])
    assert ours.event_ts[0].tolist() == pytest.approx([0.4])


def test_a_ball_at_rest_has_no_event() -> None:
    ours = proxode.solve(
        lambda t, y: torch.zeros_like(y), f64(0.0), 0.0, 1.0, method="rk4", step_size=0.2, event=lambda t, y: y
    )
    assert ours.status is Status.SUCCESS and len(ours.event_ts[0]) == 0 and ours.event_ys[0].shape == (0, 1)


# Doors


def test_torchdiffeq_finds_the_same_event_with_the_same_gradient() -> None:
    """A ball in air, with respect to its drag, its start and the time of that."""

    def run(package: Any) -> tuple[Tensor, ...]:
        drag, t0 = f64(0.1).requires_grad_(), f64(0.5).requires_grad_()
        start = (f64(3.0).requires_grad_(), f64(1.0).requires_grad_())

        def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return y[1], -9.8 - drag * y[1] + 0.1 * torch.sin(t)

        kwargs = {"method": "dopri5", "rtol": 1e-10, "atol": 1e-11}
        t, (x, v) = package.odeint_event(f, start, t0[0], event_fn=lambda t, y: y[0] - 0.2, **kwargs)
        grads = torch.autograd.grad(t + (2 * x + v)[-1].sum(), (drag, *start, t0))
        return t.detach(), x.detach(), v.detach(), *grads

    ours, theirs = run(proxode), run(torchdiffeq)
    assert ours[1].shape == (2, 1)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_the_first_of_several_elements_ends_the_solve_as_in_torchdiffeq() -> None:
    def g(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[0] + 0.5, y[1] + 0.2, t - 4.0])

    for reverse in (False, True):
        kwargs = {"event_fn": g, "reverse_time": reverse, "method": "dopri5"}
        ours, theirs = (p.odeint_event(oscillator, f64(1.0, 0.3), ZERO, **kwargs) for p in (proxode, torchdiffeq))
        assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("door", [proxode.odeint, proxode.odeint_adjoint])
@pytest.mark.parametrize("method", [None, "dopri5", "bdf"])
def test_the_second_time_is_only_a_direction(door: Any, method: str | None) -> None:
    for second in (0.1, 1e6, -1.0):
        t, y = door(oscillator, f64(1.0, 0.0), f64(0.0, second), event_fn=lambda t, y: y[0] + 0.5, method=method)
        assert t.item() == pytest.approx(math.copysign(2 * math.pi / 3, second), abs=1e-4)
        assert y.shape == (2, 2) and y[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("method", ["rk4", "bdf2", "euler"])
def test_fixed_steps_go_on_until_the_event_and_stop_at_jumps(method: str) -> None:
    """f jumps at 0.55 and an event follows at 5.55, twenty step sizes beyond t[1]."""
    t, y = proxode.odeint(
        lambda t, y: torch.where(t < 0.55, 0.0, 1.0).to(y).expand_as(y), f64(0.0), f64(0.0, 0.1), method=method,
        event_fn=lambda t, y: y[0] - 5.0, options={"step_size": 0.25, "jump_t": f64(0.55)},
    )  # fmt: skip
    assert t.item() == pytest.approx(5.55) and y[1].item() == pytest.approx(5.0)


def test_an_event_costs_no_evaluation_of_f_that_the_output_would_not() -> None:
    def cost(**kwargs: Any) -> int:
        return proxode.solve(oscillator, f64(1.0, 0.0), 0.0, 5.0, **kwargs).stats.nfe_forward

    event = Event(lambda t, y: y[0], terminal=False)
    times = f64(math.pi / 2, 3 * math.pi / 2)
    for kwargs in ({"method": "dopri5"}, {"method": "dopri8"}, {"method": "bdf2", "step_size": 0.1}):
        with torch.no_grad():
            assert cost(event=event, **kwargs) == cost(save_at=times, **kwargs)
            assert cost(event=Event(lambda t, y: y[0] + 2.0), **kwargs) == cost(**kwargs)


def test_dense_output_ends_at_a_terminal_event() -> None:
    ours = proxode.solve(
        oscillator, f64(0.0, 1.0), 0.0, 9.0, event=lambda t, y: y[0] - 0.5, dense=True, method="dopri8", step_size=0.8
    )
    end = ours.event_ts[0][0]
    assert_close(ours.evaluate(end), ours.event_ys[0][0])
    assert_close(ours.evaluate(0.4)[0], torch.sin(f64(0.4))[0], rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="outside"):
        ours.evaluate(end + 0.1)


def test_tuples_and_batches_keep_their_structure() -> None:
    y0 = (torch.ones(3, 2, dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    ours = proxode.solve(
        lambda t, y: (-y[0], torch.ones_like(y[1])), y0, 0.0, 3.0,
        event=[Event(lambda t, y: y[1] - 1.0, False), lambda t, y: y[0] - 0.1],
    )  # fmt: skip
    assert [part.shape for part in ours.event_ys[0]] == [(1, 3, 2), (1,)]
    assert ours.event_ts[1].tolist() == pytest.approx([math.log(10.0)] * 6, rel=1e-3)  # all elements at the same time
    assert [part.shape for part in ours.ys] == [(2, 3, 2), (2,)]


# What goes wrong


def test_no_event_is_an_outcome_of_its_own() -> None:
    ours = proxode.solve(oscillator, f64(1.0, 0.0), 0.0, 3.0, event=lambda t, y: y[0] - 2.0)
    assert ours.status is Status.SUCCESS and len(ours.event_ts[0]) == 0 and ours.ts.tolist() == [0.0, 3.0]
    with pytest.raises(proxode.SolverError, match="no event was found") as caught:
        proxode.odeint(lambda t, y: -y, f64(1.0), f64(0.0, 1.0), event_fn=lambda t, y: y[0] + 1.0, method="bdf")
    assert caught.value.status is Status.NO_EVENT and not caught.value.status.ok
    with pytest.raises(proxode.SolverError, match="no event was found"):  # whose tolerance float32 does not carry
        proxode.odeint_event(lambda t, y: -y, torch.ones(1), torch.tensor(0.0), event_fn=lambda t, y: y[0] - 2.0)
    with pytest.raises(proxode.SolverError, match="no event was found") as caught:
        proxode.odeint(
            oscillator, f64(1.0, 0.0), f64(0.0, 1.0), event_fn=lambda t, y: y[0] - 2.0, options={"max_num_steps": 50}
        )
    assert caught.value.status is Status.MAX_STEPS


def test_a_partial_solution_has_the_events_before_the_failure() -> None:
    def broken(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t > 2.0, math.nan, 1.0).to(y).expand_as(y)

    ours = proxode.solve(
        broken, f64(0.0), 0.0, 3.0, method="rk4", step_size=0.5, throw=False,
        event=[Event(lambda t, y: y[0] - 0.7, terminal=False), lambda t, y: y[0] - 2.9], save_at=f64(0.5, 1.0, 3.0),
    )  # fmt: skip
    assert ours.status is Status.NON_FINITE and ours.ts.tolist() == [0.5, 1.0]
    assert [t.tolist() for t in ours.event_ts] == [pytest.approx([0.7]), []]


def first(t: Tensor, y: Tensor) -> Tensor:
    return y[0]


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a number as fn": (lambda: Event(1.0), TypeError, "`fn`"),  # type: ignore[arg-type]
    "a number as terminal": (lambda: Event(first, terminal=2), TypeError, "`terminal`"),  # type: ignore[arg-type]
    "a direction of 2": (lambda: Event(first, direction=2), ValueError, "`direction`"),
    "a boolean direction": (lambda: Event(first, direction=True), ValueError, "`direction`"),
    "a number as event": (lambda: solved(event=1.0), TypeError, "`event`"),
    "a number among events": (lambda: solved(event=[abs, 1.0]), TypeError, "`event`"),
    "nested events": (lambda: solved(event=[[abs]]), TypeError, "`event`"),
    "a float for a value": (lambda: solved(event=lambda t, y: 1.0), TypeError, "event function must return"),
    "a truth for a value": (lambda: solved(event=lambda t, y: y[0] > 0), TypeError, "event function must return"),
    "nothing for a value": (lambda: solved(event=lambda t, y: y[:0]), TypeError, "event function must return"),
    "nan for a value": (lambda: solved(event=lambda t, y: y * math.nan), ValueError, "function 0 is nan at t = 0"),
    "values that come and go": (lambda: solved(event=lambda t, y: y[: 1 + int(t > 0)]), ValueError, "2 values"),
    "a number as event_fn": (lambda: until(event_fn=1.0), TypeError, "`event_fn`"),
    "an event_fn of the state": (
        lambda: until(event_fn=lambda y: y[0]), TypeError, r"`event_fn` is called as .*: write lambda t, y: event_fn",
    ),
    "an event_fn of state and time": (
        lambda: until(event_fn=lambda y, t: y[0]), TypeError, "`event_fn` is called as .*: exchange its arguments",
    ),
    "an event of the state": (lambda: solved(event=[first, lambda y: y[0]]), TypeError, "`event` is called as"),
    "an Event of state and time": (lambda: Event(lambda y, t: y[0]), TypeError, "`fn` is called as .*: exchange"),
    "three times": (lambda: until(t=f64(0.0, 1.0, 2.0)), ValueError, "`t` must have two elements"),
    "one time": (lambda: until(t=f64(0.0)), ValueError, "`t` must have two elements"),
    "fixed steps of no size": (lambda: until(method="rk4"), ValueError, "`step_size`"),
    "a grid": (lambda: until(method="rk4", options={"grid_constructor": lambda f, y, t: t}), ValueError, "`step_size`"),
    "a number as t0": (lambda: proxode.odeint_event(oscillator, f64(1.0, 0.0), 0.0, event_fn=abs), TypeError, "`t0`"),
}  # fmt: skip


def solved(**kwargs: Any) -> Any:
    return proxode.solve(oscillator, f64(1.0, 0.5), 0.0, 1.0, **kwargs)


def until(t: Tensor | None = None, event_fn: Any = lambda t, y: y[0], **kwargs: Any) -> Any:
    return proxode.odeint(oscillator, f64(1.0, 0.0), f64(0.0, 1.0) if t is None else t, event_fn=event_fn, **kwargs)


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_a_bad_argument_is_named(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
