"""Gradients through a solve: those of the discrete solution, for everything that f sees."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import proxode
from proxode.inner import INNER
from proxode.methods import METHODS

PROXIMAL = [name for name, method in METHODS.items() if method.implicit]
FIXED = [name for name, method in METHODS.items() if not method.adaptive]


def data() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 3, generator=generator, dtype=torch.float64).requires_grad_()
    y0 = torch.randn(3, generator=generator, dtype=torch.float64).requires_grad_()
    t = torch.tensor([0.0, 0.3, 0.7, 1.0], dtype=torch.float64).requires_grad_()
    return weight, y0, t


def outputs(weight: Tensor, y0: Tensor, t: Tensor, method: str, **options) -> Tensor:
    def f(time, y):
        return torch.tanh(weight @ y) - y + torch.sin(3 * time)

    if METHODS[method].implicit:
        options = {"inner_tol": 1e-14, **options}
        if "step_size" not in options and method != "auto":
            options["grid_constructor"] = lambda f, y0, t: t
    return proxode.odeint(f, y0, t, method=method, options=options)


@pytest.mark.parametrize("method", FIXED)
def test_gradcheck_for_the_state_the_weights_and_the_times(method):
    assert torch.autograd.gradcheck(lambda *inputs: outputs(*inputs, method), data())


@pytest.mark.parametrize("method", ["bdf3", "crank_nicolson", "multistage2"])
def test_gradcheck_with_a_step_size_and_outputs_between_the_steps(method):
    assert torch.autograd.gradcheck(lambda *inputs: outputs(*inputs, method, step_size=0.08), data())


@pytest.mark.parametrize("method", ["backward_euler", "bdf2"])
def test_gradcheck_for_decreasing_times(method):
    weight, y0, t = data()
    backwards = t.detach().flip(0).requires_grad_()
    assert torch.autograd.gradcheck(lambda *inputs: outputs(*inputs, method, step_size=0.08), (weight, y0, backwards))


@pytest.mark.parametrize("inner", [name for name in INNER if name not in ("cg", "fixed_point")])
def test_the_gradient_does_not_depend_on_the_inner_solvers(inner):
    def gradients(name):
        weight, y0, t = data()
        loss = outputs(weight, y0, t, "bdf2", inner=name, step_size=0.1, inner_tol=1e-12)[-1].square().sum()
        return torch.autograd.grad(loss, (weight, y0))

    for got, expected in zip(gradients(inner), gradients("newton"), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


def test_a_guess_that_already_solves_the_equation_still_has_the_right_gradient():
    """At a steady state the inner solver does nothing; backpropagating through its iterations would give zero."""
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(2, dtype=torch.float64)
    solution = proxode.solve(lambda t, y: rate * (1 - y) * y, y0, 0.0, 1.0, method="bdf2", step_size=0.1)
    assert solution.stats.n_inner == 0
    (gradient,) = torch.autograd.grad(solution.ys[-1].sum(), rate)
    assert abs(float(gradient)) < 1e-12
    target = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = proxode.odeint(
        lambda t, y: 2.0 * (target - y), y0, torch.tensor([0.0, 1.0]), method="bdf2", options={"step_size": 0.1}
    )
    (gradient,) = torch.autograd.grad(y[-1].sum(), target)
    assert torch.allclose(gradient, torch.full_like(gradient, 1 - 0.135), atol=0.02)


def test_a_tensor_captured_by_f_gets_its_gradient():
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    attention = torch.softmax(scale * torch.eye(3, dtype=torch.float64), dim=-1)  # computed outside of f

    def run(matrix):
        y0 = torch.arange(3, dtype=torch.float64)
        return proxode.odeint(lambda t, y: matrix @ y - y, y0, torch.tensor([0.0, 2.0]), method="bdf2",
                              options={"step_size": 0.2, "inner_tol": 1e-13})[-1]  # fmt: skip

    (gradient,) = torch.autograd.grad(run(attention)[0], scale)
    up, down = (torch.softmax((0.5 + e) * torch.eye(3, dtype=torch.float64), dim=-1) for e in (1e-6, -1e-6))
    assert float(gradient) == pytest.approx(float((run(up) - run(down))[0]) / 2e-6, rel=1e-5)


def test_the_value_is_not_changed_by_recording_a_gradient():
    weight, y0, t = data()
    for method in METHODS:
        recorded = outputs(weight, y0, t, method)
        with torch.no_grad():
            plain = outputs(weight, y0, t, method)
        assert not plain.requires_grad
        torch.testing.assert_close(recorded.detach(), plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_requires_a_gradient_where_nothing_asks_for_one(method):
    y0 = torch.ones(2, dtype=torch.float64)
    assert not proxode.odeint(lambda t, y: -y, y0, torch.tensor([0.0, 0.5]), rtol=1e-3, method=method).requires_grad


def test_second_derivatives_through_an_explicit_method_are_right():
    def run(y0):
        return proxode.odeint(lambda t, y: -(y**3), y0, torch.tensor([0.0, 1.0]).double(), method="rk4",
                              options={"step_size": 0.1})[-1]  # fmt: skip

    y0 = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(run, (y0,))


def test_backward_counts_every_product_and_can_run_twice():
    weight, y0, t = data()
    with proxode.record() as stats:
        y = outputs(weight, y0, t, "bdf2", step_size=0.1)
    assert stats.nfe_backward == 0
    y[-1].sum().backward(retain_graph=True)
    once, gradient = stats.nfe_backward, weight.grad.clone()
    # For each of ten equations: f again, a dense Jacobian of n = 3 columns, one product to pass the solution on.
    assert once == 10 * (1 + 3 + 1)
    y[-1].sum().backward()
    assert stats.nfe_backward == 2 * once
    torch.testing.assert_close(weight.grad, 2 * gradient)


def test_a_nan_that_reaches_a_transposed_solve_raises_and_says_where():
    weight, y0, t = data()
    y = outputs(weight, y0, t, "bdf2")
    with pytest.raises(proxode.SolverError, match="came into backward"):
        (y[-1] * float("nan")).sum().backward()


def test_the_gradient_of_a_dissipative_problem_is_right_where_the_usual_adjoint_is_noise():
    """Diffusion with |lambda| T = 200: integrating the state backwards would amplify rounding by e^200."""
    n = 16
    laplacian = -2 * torch.eye(n, dtype=torch.float64)
    laplacian += torch.eye(n, dtype=torch.float64).roll(1, 0) + torch.eye(n, dtype=torch.float64).roll(-1, 0)
    conductivity = torch.tensor(50.0, dtype=torch.float64, requires_grad=True)
    y0 = torch.sin(torch.arange(n, dtype=torch.float64)).requires_grad_()
    y = proxode.odeint(lambda t, y: conductivity * (laplacian @ y), y0, torch.tensor([0.0, 1.0]), method="bdf4",
                       options={"step_size": 1 / 200, "inner_tol": 1e-12})  # fmt: skip
    loss = (y[-1] * torch.arange(n)).sum()
    got = torch.autograd.grad(loss, (y0, conductivity))
    exact = (torch.matrix_exp(conductivity * laplacian) @ y0 * torch.arange(n)).sum()
    expected = torch.autograd.grad(exact, (y0, conductivity))
    torch.testing.assert_close(got[0], expected[0], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(got[1], expected[1], rtol=1e-2, atol=1e-6)
