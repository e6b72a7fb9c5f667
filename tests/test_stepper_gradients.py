"""Gradients through steps by hand: those of `solve`, where recording begins and ends, controls and restarts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from stepper_cases import Y0, every_way, settings, van_der_pol
from torch import Tensor

import proxode
from proxode import Stepper


@every_way
@pytest.mark.parametrize("gradient", ["implicit", "direct"])
def test_the_gradient_is_that_of_solve(method: str, step_size: float | None, gradient: str) -> None:
    k = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    y0 = Y0.clone().requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[1], k * (1 - y[0] ** 2) * y[1] - y[0]])

    kwargs = {**settings(method, step_size), "gradient": gradient}
    solution = proxode.solve(f, y0, 0.0, 0.05, **kwargs)
    expected = torch.autograd.grad(solution.ys[-1].square().sum(), (y0, k))
    stepper = Stepper(f, y0, 0.0, t1=0.05, **kwargs)
    for _ in stepper:
        pass
    assert torch.equal(stepper.y, solution.ys[-1])
    found = torch.autograd.grad(stepper.y.square().sum(), (y0, k))
    assert all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto", "crank_nicolson"])
def test_gradients_through_interpolation_and_the_time_of_advance(method: str) -> None:
    rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    t = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    stepper = Stepper(lambda t, y: -rate * y, Y0[:1], 0.0, method=method, rtol=1e-7, atol=1e-9)
    y = stepper.advance(t)
    by_rate, by_time = torch.autograd.grad(y, (rate, t), retain_graph=True)
    assert float(by_rate) == pytest.approx(-0.7 * float(y.detach()), rel=1e-3)
    assert float(by_time) == pytest.approx(-1.5 * float(y.detach()), rel=1e-3)
    step = stepper.step()
    middle = torch.tensor(0.5 * (step.t0 + step.t1), dtype=torch.float64, requires_grad=True)
    by_rate, by_middle = torch.autograd.grad(stepper.interpolate(middle), (rate, middle))
    exact = 2 * math.exp(-1.5 * float(middle.detach()))
    assert float(by_middle) == pytest.approx(-1.5 * exact, rel=1e-2)
    assert float(by_rate) == pytest.approx(-float(middle.detach()) * exact, rel=1e-2)


@pytest.mark.parametrize("method", ["dopri5", "auto", "crank_nicolson", "multistage3"])  # one-step methods
@pytest.mark.parametrize("how", ["no_grad before", "resumed", "detached"])
def test_where_recording_begins_later_the_first_slope_is_part_of_it(method: str, how: str) -> None:
    """The slope at the start of a step is known from the step before, which was not recorded."""

    def end(rate: Tensor) -> Tensor:
        def f(t: Tensor, y: Tensor) -> Tensor:
            return -rate * y

        with torch.set_grad_enabled(how == "detached"):
            stepper = Stepper(f, Y0[:1], 0.0, method=method, rtol=1e-5, atol=1e-7, first_step=0.01)
            stepper.advance(0.1)
            if how == "resumed":
                stepper = Stepper.resume(f, stepper.state)
            stepper.detach()
        with torch.enable_grad():
            return stepper.advance(0.3)

    rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y = end(rate)
    (found,) = torch.autograd.grad(y, rate)
    assert float(found) == pytest.approx(-0.2 * float(y.detach()), rel=1e-3)


def test_nothing_is_recorded_under_no_grad_and_in_inference_mode() -> None:
    y0 = Y0.clone().requires_grad_()
    with torch.no_grad():
        stepper = Stepper(van_der_pol, y0, 0.0, t1=0.3, method="bdf")
        plain = [step.y1 for step in stepper]
        assert not any(y.requires_grad for y in plain)
    with torch.inference_mode():
        stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
        assert all(torch.equal(step.y1, y) for step, y in zip(stepper, plain, strict=True))
        assert stepper.interpolate(0.3).shape == (2,)


def test_controls_that_change_between_steps_get_their_gradients() -> None:
    """Recorded where each step was taken; without `store_graph` backward says that func has changed."""
    controls = [torch.tensor(float(u), dtype=torch.float64, requires_grad=True) for u in (1, 2, 3)]
    now: list[Tensor] = [torch.zeros((), dtype=torch.float64)]

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -10 * y + now[0]

    def run(**kwargs: Any) -> Tensor:
        now[0] = torch.zeros((), dtype=torch.float64)
        stepper = Stepper(f, Y0, 0.0, method="bdf2", step_size=0.1, **kwargs)
        stepper.step()  # nothing wants a gradient so far
        for u in controls:
            now[0] = u
            stepper.step()
        return stepper.y

    direct = torch.autograd.grad(run(gradient="direct").sum(), controls)
    stored = torch.autograd.grad(run(store_graph=True).sum(), controls)
    assert all(float(g) > 0.01 for g in direct)
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(direct, stored, strict=True))
    with pytest.raises(RuntimeError, match=r"has changed since|wants a gradient"):
        torch.autograd.grad(run().sum(), controls)


def test_a_control_that_appears_later_is_seen() -> None:
    now = [torch.zeros((), dtype=torch.float64)]
    stepper = Stepper(lambda t, y: -10 * y + now[0], Y0, 0.0, method="bdf2", step_size=0.1)
    stepper.step()
    now[0] = torch.ones((), dtype=torch.float64, requires_grad=True)
    stepper.step()
    assert stepper.y.requires_grad


def test_a_bouncing_ball_and_its_gradient() -> None:
    """Restarts carry the graph: each bounce halves the speed."""
    v0 = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    start = torch.stack([torch.zeros_like(v0), v0])
    ball = Stepper(lambda t, y: torch.stack([y[1], torch.full_like(y[1], -8.0)]), start, 0.0, method="dopri5")
    t = 0.0
    for bounce in range(3):
        t += 0.5**bounce
        y = ball.advance(t)
        ball.restart(torch.stack([y[0], -0.5 * y[1]]))
    speed = ball.y[1]
    assert float(speed.detach()) == pytest.approx(0.5, rel=1e-9)
    (gradient,) = torch.autograd.grad(speed, v0)
    assert float(gradient) == pytest.approx(-0.125)  # at given times a faster ball is slower, thrice
