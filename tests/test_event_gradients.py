"""Gradients of the time and the state of an event."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import proxode
from proxode import Event
from proxode.gradients import GRADIENTS, Checkpoint, Continuous, Gradient, Implicit
from proxode.methods import METHODS

EXACT = {  # of the discrete solution
    **{name: gradient for name, gradient in GRADIENTS.items() if name != "continuous"},
    "implicit with its graphs": Implicit(store_graph=True),
    "checkpoint with one place": Checkpoint(checkpoints=1),
}
EVERY = {**EXACT, "continuous": Continuous(), "continuous with places": Continuous(checkpoints=3)}
every_exact = pytest.mark.parametrize("gradient", EXACT.values(), ids=EXACT)
every_gradient = pytest.mark.parametrize("gradient", EVERY.values(), ids=EVERY)


def inputs() -> tuple[Tensor, ...]:
    """y0, a parameter of f, a parameter of the event function, and t0."""
    values = ([0.3, 1.1], [0.8], [0.9], 0.25)
    return tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values)


def made(weight: Tensor, level: Tensor) -> tuple[Any, Any]:
    """A driven pendulum, and a function of time and state that it crosses twice before t = 3."""
    outside = torch.exp(0.1 * weight)

    def f(t: Tensor, y: Tensor) -> Tensor:
        force = -outside * torch.sin(y[0]) - 0.2 * y[1] + 0.3 * torch.cos(2 * t) * weight[0]
        return torch.cat([y[1:], force])

    return f, lambda t, y: y[0] + 0.2 * y[1] ** 2 - level[0] * torch.cos(0.3 * t)


def crossings(y0: Tensor, weight: Tensor, level: Tensor, t0: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Both crossings, without an end there, and an output between."""
    f, g = made(weight, level)
    solution = proxode.solve(
        f, y0, t0, 3.2, event=Event(g, terminal=False), save_at=torch.tensor([1.2, 3.2], dtype=torch.float64), **options
    )
    assert len(solution.event_ts[0]) == 2
    return solution.event_ts[0], solution.event_ys[0], solution.ys


def until(y0: Tensor, weight: Tensor, level: Tensor, t0: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    f, g = made(weight, level)
    return proxode.odeint_event(f, y0, t0, event_fn=g, **kwargs)


def steps(method: str) -> dict[str, Any]:
    return {"step_size": 0.27, **({"inner_tol": 1e-14, "inner": "newton"} if METHODS[method].implicit else {})}


@pytest.mark.parametrize("method", METHODS)
def test_gradcheck_of_events_with_every_method(method: str) -> None:
    run = partial(crossings, method=method, **steps(method))
    assert gradcheck(run, inputs(), fast_mode=True, check_undefined_grad=False)


@every_exact
@pytest.mark.parametrize("method", ["rk4", "crank_nicolson", "bdf2"])
def test_gradcheck_of_events_with_every_exact_gradient(method: str, gradient: Gradient) -> None:
    run = partial(crossings, method=method, gradient=gradient, **steps(method))
    assert gradcheck(run, inputs(), fast_mode=True, check_undefined_grad=False)


@every_exact
@pytest.mark.parametrize("method", ["rk4", "backward_euler", "bdf2"])
def test_gradcheck_of_a_solve_that_ends_with_its_event(method: str, gradient: Gradient) -> None:
    run = partial(until, method=method, options={"gradient": gradient, **steps(method)})
    assert gradcheck(run, inputs(), fast_mode=True, check_undefined_grad=False)


def test_gradcheck_of_every_entry() -> None:
    assert gradcheck(partial(until, method="rk4", options={"step_size": 0.11}), inputs())


@pytest.mark.parametrize("method", ["dopri5", "dopri8"])
def test_gradcheck_with_adaptive_steps(method: str) -> None:
    """The steps are so short that choosing them otherwise changes nothing."""
    run = partial(until, method=method, rtol=1e-10, atol=1e-11)
    assert gradcheck(run, inputs(), fast_mode=True, check_undefined_grad=False)


@every_gradient
@pytest.mark.parametrize("method", ["dopri5", "auto", "bdf"])
def test_gradients_with_adaptive_steps_agree_with_those_of_a_fine_solve(method: str, gradient: Gradient) -> None:
    def gradients(**kwargs: Any) -> tuple[Tensor, ...]:
        given = inputs()
        t, y = until(*given, **kwargs)
        return torch.autograd.grad(t + torch.sin(y[1]).sum() + y[0, 0], given)

    fine = gradients(method="dopri8", rtol=1e-12, atol=1e-13)
    ours = gradients(method=method, rtol=1e-8, atol=1e-9, options={"gradient": gradient})
    assert_close(ours, fine, rtol=2e-5, atol=2e-6)


@every_gradient
def test_odeint_adjoint_and_decreasing_time(gradient: Gradient) -> None:
    """Backwards from the second crossing to the first, and the same by the adjoint door."""
    f, g = made(*inputs()[1:3])
    start = torch.tensor(2.6, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([0.4, -0.8], dtype=torch.float64, requires_grad=True)
    found = []
    for interface, options in ((proxode.odeint, {"gradient": gradient}), (proxode.odeint_adjoint, {})):
        t, y = proxode.odeint_event(
            f, y0, start, event_fn=g, reverse_time=True, odeint_interface=interface, rtol=1e-9, atol=1e-10,
            method="dopri5", options=options,
        )  # fmt: skip
        assert t < 2.6
        found.append((t, y, *torch.autograd.grad(t + y[1].sum(), (y0, start))))
    assert_close(found[0], found[1], rtol=1e-6, atol=1e-7)

    def late(y0: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        kwargs = {"method": "rk4", "options": {"gradient": gradient, "step_size": 0.1}}
        return proxode.odeint_event(f, y0, start, event_fn=g, reverse_time=True, **kwargs)

    if not isinstance(gradient, Continuous):
        assert gradcheck(late, (y0, start), fast_mode=True, check_undefined_grad=False)


@every_gradient
@pytest.mark.parametrize("method", ["dopri5", "bdf"])
def test_free_fall_has_the_gradient_of_its_formula(method: str, gradient: Gradient) -> None:
    """t = sqrt(2 h / g) and v = -sqrt(2 g h)."""
    height = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    pull = torch.tensor(9.81, dtype=torch.float64, requires_grad=True)
    t, y = proxode.odeint_event(
        lambda t, y: torch.stack([y[1], -pull]), torch.stack([height, torch.zeros_like(height)]),
        torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, y: y[0], method=method,
        options={"gradient": gradient},
    )  # fmt: skip
    h, g = 2.0, 9.81
    ours = (*torch.autograd.grad(t, (height, pull), retain_graph=True), *torch.autograd.grad(y[1, 1], (height, pull)))
    exact = (1 / math.sqrt(2 * g * h), -math.sqrt(h / 2 / g**3), -math.sqrt(g / 2 / h), -math.sqrt(h / 2 / g))
    assert t.item() == pytest.approx(math.sqrt(2 * h / g), rel=1e-6)
    assert y[1, 1].item() == pytest.approx(-math.sqrt(2 * g * h), rel=1e-6)
    assert [float(x) for x in ours] == pytest.approx(exact, rel=1e-6)


def test_an_event_at_a_given_time_moves_with_that_time() -> None:
    when = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    t, y = proxode.odeint(
        lambda t, y: -y, y0, torch.tensor([0.0, 9.0], dtype=torch.float64), method="dopri5",
        event_fn=lambda t, y: t - when,
    )  # fmt: skip
    of_t, of_y = torch.autograd.grad(t, when, retain_graph=True)[0], torch.autograd.grad(y[1], (when, y0))
    assert float(of_t) == pytest.approx(1.0)
    assert float(of_y[0]) == pytest.approx(-math.exp(-0.7), rel=1e-5)
    assert float(of_y[1]) == pytest.approx(math.exp(-0.7), rel=1e-6)


def test_an_event_at_an_output_time_that_moves_does_not_move_with_it() -> None:
    """The event is at t = 1 exactly, where an output and the end of a step are too."""
    t = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y0 = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    for gradient in EVERY.values():
        solution = proxode.solve(
            lambda t, y: torch.ones_like(y), y0, t[0], t[-1], save_at=t, method="rk4", step_size=0.25,
            gradient=gradient, event=Event(lambda t, y: y[0] - 1.0, terminal=False),
        )  # fmt: skip
        ((when,), (state,)) = solution.event_ts[0], solution.event_ys[0]
        assert when.item() == pytest.approx(1.0)
        of_t, of_y0 = torch.autograd.grad(when, (t, y0), retain_graph=True, allow_unused=True)
        assert of_t.tolist() == pytest.approx([1.0, 0.0, 0.0]), gradient
        assert float(of_y0) == pytest.approx(-1.0)
        of_t, of_y0 = torch.autograd.grad(state.sum(), (t, y0), retain_graph=True)
        assert [*of_t.tolist(), float(of_y0)] == pytest.approx([0.0, 0.0, 0.0, 0.0], abs=1e-12)
        of_t, of_y0 = torch.autograd.grad(when + solution.ys[1].sum(), (t, y0))  # two outputs at one time
        assert [*of_t.tolist(), float(of_y0)] == pytest.approx([0.0, 1.0, 0.0, 0.0])


@every_gradient
def test_second_derivatives_raise(gradient: Gradient) -> None:
    given = inputs()
    t, y = until(*given, method="dopri5", options={"gradient": gradient})
    for loss in (t, y[1].sum()):
        with pytest.raises(RuntimeError, match="second derivatives"):
            torch.autograd.grad(loss, given, create_graph=True)


def test_forward_mode_and_transforms_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="events"):
        torch.func.jvp(lambda y0: until(y0, *(x.detach() for x in inputs()[1:]), method="dopri5")[0],
                       (inputs()[0].detach(),), (torch.ones(2, dtype=torch.float64),))  # fmt: skip


def touching(t: Tensor, y: Tensor) -> Tensor:
    return (y[0] - 1.0) * (y[0] - 1.0).abs()  # changes its sign with slope zero


def test_an_event_that_is_only_touched_has_no_gradient_and_says_so() -> None:
    y0 = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    t, _ = proxode.odeint_event(
        lambda t, y: torch.ones_like(y), y0, torch.tensor(0.0, dtype=torch.float64), event_fn=touching, method="rk4",
        options={"step_size": 0.25},
    )  # fmt: skip
    assert t.item() == pytest.approx(1.0)
    with pytest.raises(RuntimeError, match="slope zero"):
        t.backward()


@pytest.mark.parametrize(
    "blind",
    [lambda t, y: y[0].detach() - 0.5, lambda t, y: torch.tensor(t.item() - 0.5), lambda t, y: t - y.detach()[0]],
)
def test_an_event_function_that_autograd_cannot_see_through_says_so_in_backward(blind: Any) -> None:
    y0 = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    t, y = proxode.odeint_event(
        lambda t, y: -y, y0, torch.tensor(0.0, dtype=torch.float64), event_fn=blind, method="dopri5"
    )
    assert 0.4 < t < 0.8
    if t.requires_grad:
        with pytest.raises(RuntimeError, match="autograd does not see"):
            t.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="autograd does not see"):
        y[1].sum().backward()


def test_an_event_that_the_loss_does_not_use_spoils_nothing() -> None:
    """The first event has no gradient; the loss is of the second."""
    y0 = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    solution = proxode.solve(
        lambda t, y: torch.ones_like(y), y0, 0.0, 2.1, method="rk4", step_size=0.25,
        event=Event(lambda t, y: torch.stack([touching(t, y), y[0] - 1.7]), terminal=False),
    )  # fmt: skip
    assert solution.event_ts[0].tolist() == pytest.approx([1.0, 1.7])
    solution.event_ts[0][1].backward()
    assert float(y0.grad) == pytest.approx(-1.0)


def test_gradients_pass_through_restarts() -> None:
    """Three bounces of a ball: the time of the third is a multiple of sqrt(2 h / g)."""
    height = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    t, y = torch.tensor(0.0, dtype=torch.float64), torch.stack([height, torch.zeros_like(height)])
    for _ in range(3):
        t, ys = proxode.odeint_event(
            lambda t, y: torch.stack([y[1], torch.full_like(y[1], -10.0)]), y, t, event_fn=lambda t, y: y[0],
            method="dopri5",
        )  # fmt: skip
        y = ys[1] * torch.tensor([1.0, -0.8], dtype=torch.float64)
    first = math.sqrt(0.3)
    assert t.item() == pytest.approx(first * (1 + 2 * 0.8 + 2 * 0.64), rel=1e-7)
    t.backward()
    assert float(height.grad) == pytest.approx(t.item() / 3.0, rel=1e-6)


def test_nothing_is_recorded_without_grad() -> None:
    with torch.no_grad():
        t, y = until(*inputs(), method="dopri5")
    assert not t.requires_grad and not y.requires_grad
    with torch.inference_mode():
        until(*inputs(), method="bdf")
