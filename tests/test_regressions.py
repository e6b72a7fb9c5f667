"""Mistakes that were made once: each of these went wrong without an error."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch

import proxode
from proxode.gradients.implicit import Links
from proxode.gradients.transposed import Transposed
from proxode.inner import INNER, ImplicitEquation
from proxode.methods.bdf import LARGEST_RATIO, stable_order
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField

T = torch.tensor([0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("inner", ["anderson", "lbfgs", "fr", "nag", "restart", "gd", "newton_krylov", "newton"])
def test_the_noise_of_stiff_components_does_not_excuse_an_error_in_the_others(inner):
    """In float32, rates from 1 to 1e6: a solver that stops too early must say so, or the answer is right."""
    rates = torch.logspace(0, 6, 64)
    y0 = torch.ones(64)
    solution = proxode.solve(
        lambda t, y: -rates * y, y0, 0.0, 0.5, method="backward_euler", step_size=0.5, inner=inner, throw=False
    )
    if solution.status.ok:
        assert float((solution.ys[-1] - y0 / (1 + 0.5 * rates)).abs().max()) < 1e-4


@pytest.mark.parametrize("inner", ["anderson", "lbfgs", "fr"])
def test_a_stiffness_that_has_passed_does_not_loosen_the_tolerance(inner):
    d = torch.logspace(0, 3, 32)

    def f(t, y):
        return -(1e5 if t < 0.15 else 1.0) * d * (y - 1 - 5 * t)

    def run(name):
        return proxode.solve(
            f, torch.ones(32), 0.0, 1.0, method="backward_euler", step_size=0.1, inner=name, throw=False
        )

    solution = run(inner)
    if solution.status.ok:
        assert torch.allclose(solution.ys[-1], run("newton").ys[-1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("inner", INNER)
def test_a_guess_that_is_exact_is_accepted_by_the_update_test_too(inner):
    options = {"inner": inner, "inner_stop": "update", "inner_tol": 1e-6}
    y = proxode.odeint(lambda t, y: 0 * y, torch.ones(3), torch.tensor([0.0, 1.0]), method="bdf2", options=options)
    assert torch.equal(y[-1], torch.ones(3))


@pytest.mark.parametrize("inner", ["newton", "newton_krylov", "lbfgs"])
@pytest.mark.parametrize("start", [3.0, 5.0])
def test_a_step_that_was_too_long_and_is_being_shortened_is_no_solution(inner, start):
    def f(t, y):
        return -1e3 * y**3 + 30 * torch.sin(40 * y)

    y0 = torch.tensor([start, 1.5], dtype=torch.float64)
    solution = proxode.solve(
        f, y0, 0.0, 1.0, method="backward_euler", step_size=1.0, inner=inner, inner_stop="update", inner_tol=1e-6,
        predictor="previous", throw=False,
    )  # fmt: skip
    if solution.status.ok:
        z = solution.ys[-1].detach()
        assert float((z - y0 - f(None, z)).abs().max()) < 1e-2


@pytest.mark.parametrize("name", ["step_t", "jump_t"])
@pytest.mark.parametrize("method", ["bdf2", "bdf3", "bdf4", "bdf5"])
def test_a_stop_beside_a_grid_point_makes_no_tiny_step(method, name):
    """3 * 0.1 is not 0.3: the difference is not a step."""
    y0 = torch.ones(1, dtype=torch.float64)
    options = {"step_size": 0.1, name: torch.tensor([0.3], dtype=torch.float64)}
    with proxode.record() as stats:
        y = proxode.odeint(lambda t, y: -y, y0, T, method=method, options=options)
    assert stats.n_steps == 10
    assert abs(float(y[-1]) - math.exp(-1)) < 5e-3


@pytest.mark.parametrize("method", ["bdf2", "bdf3", "bdf4", "bdf5"])
def test_bdf_stays_stable_on_a_grid_whose_steps_double(method):
    t = torch.cat([torch.zeros(1), torch.logspace(-6, 0, 24)]).double()
    y = proxode.odeint(lambda t, y: -y, torch.ones(1, dtype=torch.float64), t, method=method)
    assert abs(float(y[-1]) - math.exp(-1)) < 0.05


def test_the_order_is_lowered_just_where_steps_grow_too_fast():
    for order, ratio in LARGEST_RATIO.items():
        for growth, expected in ((0.99 * ratio, order), (1.01 * ratio, order - 1)):
            times = [0.0]
            for i in range(order):
                times.insert(0, times[0] + growth**i)
            assert (stable_order(times[0], times[1:]) == order) is (expected == order)


@pytest.mark.parametrize("method", ["rk4", "bdf2", "crank_nicolson", "dopri5"])
def test_nothing_of_a_solve_is_left_when_its_result_is_dropped(method):
    """By reference counts alone: a graph that waits for the garbage collector is memory that is not there."""

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(-torch.ones(3, dtype=torch.float64))

        def forward(self, t, y):
            self.kept = self.weight * y
            return self.kept

    gc.collect()
    gc.disable()
    try:
        f = Field()
        alive = weakref.ref(f)
        proxode.odeint(f, torch.ones(3, dtype=torch.float64), T, method=method)[-1].sum().backward()
        assert f.weight.grad is not None
        del f
        assert alive() is None
    finally:
        gc.enable()


def test_a_parameter_that_f_returns_collects_no_hooks():
    slope = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    y = proxode.odeint(lambda t, y: slope, torch.zeros(2, dtype=torch.float64), T, method="rk4")
    y[-1].sum().backward()
    assert not slope._backward_hooks
    assert torch.allclose(slope.grad, torch.ones_like(slope))


def test_a_transposed_product_walks_one_evaluation_and_not_the_steps_before_it():
    """Autograd's engine visits all that is upstream of what it differentiates, for each product of each step."""
    y0 = torch.ones(2, dtype=torch.float64, requires_grad=True)
    anchor = 2 * y0
    f = VectorField(lambda t, y: -y, Structure.of(y0), Stats())
    links = Links(f, Transposed(1e-10, f.stats), store_graph=True)
    solved = links.attach(ImplicitEquation(f, 0.0, anchor, 0.5), anchor.detach() / 1.5, None)
    upstream, ahead = set(), [solved.grad_fn.kept.moved.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in upstream:
            upstream.add(node)
            ahead.extend(parent for parent, _ in node.next_functions)
    assert anchor.grad_fn not in upstream and 1 <= len(upstream) < 10


def test_a_field_that_autograd_does_not_see_refuses_its_gradient():
    """y' = -grad E without create_graph: dy/dy0 would come out as one."""

    def f(t, y):
        with torch.enable_grad():
            x = y.detach().requires_grad_()
            return -torch.autograd.grad((x**4).sum() / 4, x)[0]

    y0 = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="create_graph"):
        proxode.odeint(f, y0, T, method="bdf2", options={"step_size": 0.1})
    with torch.no_grad():
        assert torch.isfinite(proxode.odeint(f, y0, T, method="bdf2", options={"step_size": 0.1})).all()


def test_an_output_inside_a_step_that_starts_at_a_jump_sees_the_right_side():
    def f(t, y):
        return torch.where(t <= 1, torch.ones_like(y), -3 * torch.ones_like(y))

    t = torch.tensor([0.0, 1.25, 2.0], dtype=torch.float64)
    options = {"step_size": 0.5, "jump_t": torch.tensor([1.0], dtype=torch.float64)}
    for method in ("multistage2", "crank_nicolson", "bdf3"):
        y = proxode.odeint(f, torch.zeros(1, dtype=torch.float64), t, method=method, options=options)
        assert float(y[1]) == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize("method", ["bdf2", "bdf4", "crank_nicolson"])
def test_a_state_that_changes_less_than_the_tolerance_in_a_step_still_changes(method):
    y0 = torch.tensor([1e-8], dtype=torch.float64)
    grown = proxode.solve(lambda t, y: y * (1 - y), y0, 0.0, 25.0, method=method, step_size=0.05).ys[-1]
    assert float(grown) == pytest.approx(0.99861, abs=3e-3)
    for h in (1e-2, 1e-3):
        one = torch.ones(1, dtype=torch.float64)
        y = proxode.solve(lambda t, y: -0.009 * y, one, 0.0, 1.0, method=method, step_size=h).ys[-1]
        assert float(y) == pytest.approx(math.exp(-0.009), abs=2e-5)


def test_no_tolerance_at_all_is_one_of_rounding():
    y = proxode.odeint(lambda t, y: -y, torch.ones(3), torch.linspace(0, 1, 11), method="bdf2", rtol=0, atol=0)
    assert torch.allclose(y[-1], torch.full((3,), math.exp(-1)), atol=5e-3)


class Flow(torch.nn.Module):
    """As FFJORD is written: it sets flags on what it is given, and differentiates inside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()

    def forward(self, t, state):
        with torch.enable_grad():
            z = state[0].requires_grad_(True) if state[0].is_leaf else state[0]
            t.requires_grad_(True)
            dz = self.net(torch.cat([z, t.expand(len(z), 1)], 1))
            pulled = torch.autograd.grad(dz, z, torch.ones_like(dz), create_graph=True)[0]
        return dz, -pulled.sum(1, keepdim=True)


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
def test_leaves_that_f_makes_itself_are_no_captured_tensors(gradient, method):
    def gradients(name):
        f, z = Flow(), torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2).requires_grad_()
        start = (z, torch.zeros(3, 1, dtype=torch.float64))
        options = {"step_size": 0.02, "gradient": name}
        out = proxode.odeint(f, start, T, method=method, options=options)
        return torch.autograd.grad(out[0][-1].square().sum() + out[1][-1].sum(), (z, *f.parameters()))

    tolerance = 1e-2 if gradient == "continuous" else 1e-9
    for ours, reference in zip(gradients(gradient), gradients("direct"), strict=True):
        assert torch.allclose(ours, reference, rtol=tolerance, atol=tolerance)


def test_anderson_does_not_propose_again_what_was_no_solution():
    """Old pairs promised a residual that f did not keep; the same point came up until patience was over."""

    def f(t, y):
        return 400.0 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1)) + torch.sin(y) + torch.cos(t)

    y0 = torch.linspace(0, 6.283, 200, dtype=torch.float64).sin()
    solution = proxode.solve(f, y0, 0.0, 1.0, method="bdf2", step_size=0.02, inner="anderson", throw=False)
    assert solution.status.ok and solution.stats.nfe_forward < 450
