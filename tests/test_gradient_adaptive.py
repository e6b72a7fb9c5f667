"""Gradients through adaptive steps, changes of order and switches: those of the accepted steps, held fixed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode.configure import configure
from proxode.controllers import FixedGrid
from proxode.gradients import Implicit
from proxode.loop import travel
from proxode.methods import METHODS
from proxode.problem import make_problem
from proxode.solution import Stats

ADAPTIVE = ["bdf", "auto", "bdf2", "backward_euler", "crank_nicolson", "multistage2", "multistage3"]
TOL = {"backward_euler": 1e-2, "crank_nicolson": 1e-3, "bdf2": 1e-3, "multistage2": 1e-2, "multistage3": 1e-3}


def inputs() -> tuple[Tensor, Tensor]:
    y0 = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    return y0, rate


def field(rate: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Nonlinear, gentle at first, then stiff: `auto` changes its method on the way."""
    def f(t: Tensor, y: Tensor) -> Tensor:
        strength = rate + 3e3 * torch.sigmoid(30 * (t - 1))
        return -strength * (y - torch.cos(t)) + torch.tanh(y.flip(0))

    return f


def held(method: str) -> tuple[Callable[[Tensor, Tensor], Tensor], list[int | None]]:
    """The solve on the steps and orders of an adaptive one, as a function of its inputs; and these orders."""
    y0, rate = (x.detach() for x in inputs())
    t = torch.tensor([0.0, 2.0], dtype=torch.float64)
    tol = TOL.get(method, 1e-4)
    places = []
    problem = make_problem(field(rate), y0, t, tol, 1e-2 * tol, Stats())
    plan = configure(problem, METHODS[method], {"inner_tol": 1e-13})
    with torch.no_grad():
        travel(problem, plan.method, plan.controller, plan.solve, max_steps=10**4, on_accept=places.append)
    grid = FixedGrid((0.0, *(p.t for p in places)), tuple(p.order for p in places))

    def solved(y0: Tensor, rate: Tensor) -> Tensor:
        problem = make_problem(field(rate), y0, t, tol, 1e-2 * tol, Stats())
        plan = configure(problem, METHODS[method], {"inner_tol": 1e-13})
        path, failure = travel(problem, plan.method, grid, Implicit().bind(problem, plan), max_steps=10**4)
        assert failure is None
        return path.ys[-1]

    return solved, list(grid.orders or ())


@pytest.mark.parametrize("method", ADAPTIVE)
def test_gradcheck_on_the_accepted_steps(method: str) -> None:
    solved, orders = held(method)
    if method == "bdf":
        assert len(set(orders)) >= 3
    if method == "auto":
        assert 0 in orders and max(o or 0 for o in orders) >= 2
    assert torch.autograd.gradcheck(solved, inputs(), atol=1e-6)


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "direct"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_every_gradient_of_the_discrete_solution_is_that_of_its_accepted_steps(method: str, gradient: str) -> None:
    if gradient == "direct" and method in ("multistage2", "multistage3", "backward_euler"):
        pytest.skip("thousands of recorded iterations: the others show it")
    y0, rate = inputs()
    tol = TOL.get(method, 1e-4)
    t = torch.tensor([0.0, 2.0], dtype=torch.float64)
    y = proxode.odeint(field(rate), y0, t, method=method, rtol=tol, atol=1e-2 * tol,
                       options={"gradient": gradient, "inner_tol": 1e-13})  # fmt: skip
    solved, _ = held(method)
    again = solved(y0, rate)
    assert_close(y[-1], again, rtol=1e-9, atol=1e-11)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ours, expected = (torch.autograd.grad(end @ weights, (y0, rate)) for end in (y[-1], again))
    assert_close(ours, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("method", ["bdf", "auto", "multistage3"])
def test_the_adjoint_of_an_adaptive_solve_agrees_to_tolerance(method: str) -> None:
    """On a stiff problem whose gradients have not died out."""
    rates = torch.tensor([1.0, 30.0, 1e4], dtype=torch.float64)
    found = []
    for name, gradient, tol in (("bdf", "implicit", 1e-9), (method, "continuous", 1e-5)):
        y0 = torch.tensor([1.0, 0.4, 2.0], dtype=torch.float64, requires_grad=True)
        scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
        t = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
        y = proxode.odeint(lambda s, y, scale=scale: -scale * rates * (y - torch.sin(s)) + y.flip(0), y0, t,
                           method=name, rtol=tol, atol=tol, options={"gradient": gradient})  # fmt: skip
        found.append(torch.autograd.grad(y.square().sum(), (y0, scale)))
    assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


def test_gradients_pass_through_a_large_state_that_recycles() -> None:
    """200 unknowns, matrix-free: a replay starts without what was recycled, and is as good as the inner solves."""
    points = 200
    found = []
    for gradient in ("implicit", "checkpoint", "continuous"):
        y0 = torch.linspace(-1, 1, points, dtype=torch.float64).sin().requires_grad_()
        k = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

        def f(t: Tensor, y: Tensor, k: Tensor = k) -> Tensor:
            return k * 1e3 * (torch.roll(y, 1) + torch.roll(y, -1) - 2 * y) + y - y**3

        t = torch.tensor([0.0, 0.5], dtype=torch.float64)
        y = proxode.odeint(f, y0, t, method="bdf", rtol=1e-5, atol=1e-5, options={"gradient": gradient})
        found.append(torch.autograd.grad(y[-1].square().sum(), (y0, k)))
    for other in found[1:]:
        assert_close(other[0], found[0][0], rtol=1e-3, atol=1e-5)
        assert_close(other[1], found[0][1], rtol=2e-3, atol=1e-4)
