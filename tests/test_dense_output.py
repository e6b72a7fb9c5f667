"""Between the steps a solution is as good as at their ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import proxode
from proxode.methods import METHODS

STEPS = {8: (5, 10)}
FIFTH = ("bdf5", "bdf", "auto")  # with fixed steps these are one: BDF5, whose first four steps come with a cubic
SPECIAL = {(name, "logistic"): (200, 400) for name in FIFTH}  # where the first terms of the error are still of one size
ENOUGH = 0.3  # of an order, by which a measurement on so few steps may be off
BETWEEN = 5.0  # tolerances that the error between two steps may be above that at their ends


def logistic(t: Tensor, y: Tensor) -> Tensor:
    """y' = -2 t y^2, y = 1 / (1 + t^2): nonlinear and non-autonomous."""
    return -2 * t * y * y


def swinging(t: Tensor, y: Tensor) -> Tensor:
    """y = (sin t, 1 + cos(t) / 2), with a nonlinear attraction to it."""
    slope = torch.stack([torch.cos(t), -torch.sin(t) / 2])
    off = y - exact_swinging(t.reshape(1))[0]
    return slope - torch.stack([off[0] + off[1] ** 3, 2 * off[1] - off[0] * off[1]]) - 0.5 * torch.sin(off)


def exact_swinging(t: Tensor) -> Tensor:
    return torch.stack([torch.sin(t), 1 + torch.cos(t) / 2], 1)


Problem = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]
PROBLEMS: dict[str, Problem] = {
    "logistic": (logistic, lambda t: (1 / (1 + t * t))[:, None]),
    "swinging": (swinging, exact_swinging),
}


@cache
def anywhere(end: float) -> Tensor:
    return end * torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def errors(
    method: str, problem: str, end: float = 1.0, times: Tensor | None = None, **options: Any
) -> tuple[float, float]:
    """The largest error at random times, and at the ends of the steps."""
    f, exact = PROBLEMS[problem]
    reached: list[float] = [0.0]

    def told(t: Tensor, y: Tensor) -> Tensor:
        return f(t, y)

    told.callback_accept_step = lambda t0, y0, dt: reached.append(float(t0 + dt))  # type: ignore[attr-defined]
    y0 = exact(torch.zeros(1, dtype=torch.float64))[0]
    solution = proxode.solve(told, y0, 0.0, end, method=method, dense=True, **options)
    times = anywhere(end) if times is None else times
    ends = torch.tensor(reached, dtype=torch.float64)
    return tuple(float((solution.evaluate(t) - exact(t)).abs().max()) for t in (times, ends))  # type: ignore[return-value]


def measured(method: str, problem: str, times: Tensor | None = None) -> float:
    options = {"inner": "newton", "inner_tol": 1e-15} if METHODS[method].implicit else {}
    steps = SPECIAL.get((method, problem), STEPS.get(METHODS[method].order, (40, 80)))
    coarse, fine = (errors(method, problem, times=times, step_size=1 / n, **options)[0] for n in steps)
    return math.log2(coarse / fine)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_the_error_at_any_time_falls_with_the_order_of_the_method(method: str, problem: str) -> None:
    order = 4 if method in FIFTH else METHODS[method].order
    assert measured(method, problem) > order - ENOUGH


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", FIFTH)
def test_bdf5_has_its_order_between_steps_once_it_has_started(method: str, problem: str) -> None:
    late = 0.2 + 0.8 * anywhere(1.0)
    assert measured(method, problem, late) > 5 - ENOUGH


ADAPTIVE = [name for name, method in METHODS.items() if method.adapting().adaptive]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", ADAPTIVE)
def test_with_adaptive_steps_the_error_between_them_is_within_a_few_tolerances(method: str, problem: str) -> None:
    """More than at their ends: there errors of many steps may have come together."""
    tol = 1e-4 if METHODS[method].order < 3 else 1e-6
    between, at_ends = errors(method, problem, 5.0, rtol=tol, atol=tol)
    assert between < at_ends + BETWEEN * tol


@pytest.mark.parametrize("method", METHODS)
def test_outputs_inside_steps_are_those_of_the_dense_solution(method: str) -> None:
    y0 = torch.tensor([0.0, 1.5], dtype=torch.float64)
    options = {} if METHODS[method].adaptive else {"step_size": 0.11}
    save_at = torch.linspace(0.0, 1.0, 8, dtype=torch.float64)
    solution = proxode.solve(swinging, y0, 0.0, 1.0, method=method, dense=True, save_at=save_at, **options)
    assert_close(solution.evaluate(save_at), solution.ys, rtol=1e-12, atol=1e-13)
    kwargs = {"method": method, "rtol": 1e-4, "atol": 1e-6, "options": options}
    dense = proxode.odeint_dense(swinging, y0, 0.0, 1.0, **kwargs)
    assert_close(dense(save_at), solution.ys, rtol=1e-12, atol=1e-13)
    assert_close(dense(0.4), dense(torch.tensor([0.4, 0.5], dtype=torch.float64))[0])


def test_decreasing_time_and_tuples() -> None:
    y0 = (torch.tensor([[1.0]], dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    dense = proxode.odeint_dense(lambda t, y: (-y[0], torch.cos(t)), y0, 0.0, -2.0, method="dopri5")
    t = torch.tensor([[-0.3, -1.1]], dtype=torch.float64)
    x, s = dense(t)
    assert x.shape == (1, 2, 1, 1) and s.shape == (1, 2)
    assert_close(x[..., 0, 0], torch.exp(-t), rtol=1e-6, atol=0.0)
    assert_close(s, torch.sin(t), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("gradient", ["direct", "implicit"])
@pytest.mark.parametrize("method", METHODS)
def test_gradients_pass_through_evaluate(method: str, gradient: str) -> None:
    """To the initial state, a parameter, both ends of the solve and the time of evaluation."""
    options = {"inner": "newton", "inner_tol": 1e-14} if METHODS[method].implicit else {}

    def run(y0: Tensor, weight: Tensor, t0: Tensor, t1: Tensor, t: Tensor) -> Tensor:
        solution = proxode.solve(
            lambda t, y: torch.tanh(weight * y.flip(0)) - y + torch.sin(t), y0, t0, t1, method=method,
            gradient=gradient, dense=True, step_size=0.3, **options,
        )  # fmt: skip
        return solution.evaluate(t)

    values = ([0.4, -0.7], [1.2, 0.5], 0.1, 0.9, [0.25, 0.62])
    given = tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values)
    assert gradcheck(run, given, fast_mode=True, check_undefined_grad=False)


@pytest.mark.parametrize("gradient", ["checkpoint", "continuous"])
def test_a_gradient_that_would_be_lost_is_refused(gradient: str) -> None:
    y0 = torch.ones(1, dtype=torch.float64, requires_grad=True)
    solution = proxode.solve(lambda t, y: -y, y0, 0.0, 1.0, dense=True, gradient=gradient)
    with pytest.raises(RuntimeError, match="dense"):
        solution.evaluate(0.5)
    with torch.no_grad():
        assert_close(solution.evaluate(0.5), torch.exp(torch.tensor([-0.5], dtype=torch.float64)), rtol=1e-3, atol=0.0)


def test_a_time_outside_is_refused() -> None:
    solution = proxode.solve(lambda t, y: -y, torch.ones(1), 0.0, 1.0, dense=True)
    with pytest.raises(ValueError, match="outside"):
        solution.evaluate(1.1)
    with pytest.raises(ValueError, match="dense=True"):
        proxode.solve(lambda t, y: -y, torch.ones(1), 0.0, 1.0).evaluate(0.5)
