"""Gradients that once came out wrong without an error, or not at all where they should."""

from __future__ import annotations

import pytest
import torch
import torch.nn.utils.parametrize as parametrize
from torch import Tensor, nn
from torch.testing import assert_close

import proxode

T = torch.linspace(0, 1, 4, dtype=torch.float64)
Y0 = torch.tensor([1.0, -0.4, 0.3], dtype=torch.float64)
METHODS = ["rk4", "bdf2"]
OTHERS = ["implicit", "checkpoint", "continuous"]
methods = pytest.mark.parametrize("method", METHODS)
gradients = pytest.mark.parametrize("gradient", OTHERS)


def run(f, y0=Y0, t=T, method="bdf2", gradient="implicit", h=0.02, **kwargs):
    return proxode.odeint(f, y0, t, method=method, options={"step_size": h, "gradient": gradient}, **kwargs)


def close(gradient: str, ours: Tensor | None, reference: Tensor) -> None:
    tolerance = 3e-2 if gradient == "continuous" else 1e-8
    assert ours is not None
    assert_close(ours, reference, rtol=tolerance, atol=tolerance)


@methods
@gradients
def test_a_hook_on_a_captured_leaf_runs_once(gradient: str, method: str) -> None:
    def gradient_of(name: str, hooked: bool) -> Tensor:
        w = torch.eye(3, dtype=torch.float64).requires_grad_()
        if hooked:
            w.register_hook(lambda g: 2 * g)
        run(lambda t, y: torch.tanh(w @ y) - y, method=method, gradient=name).sum().backward()
        assert w.grad is not None
        return w.grad

    close(gradient, gradient_of(gradient, True), 2 * gradient_of("direct", False))


class Decay:
    def __init__(self) -> None:
        self.rate = 1.0

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        return -self.rate * y


@methods
@pytest.mark.parametrize("gradient", ["checkpoint", "continuous"])
def test_a_function_that_has_changed_since_the_solve_is_refused(gradient: str, method: str) -> None:
    f, y0 = Decay(), Y0.clone().requires_grad_()
    y = run(f, y0, method=method, gradient=gradient)
    f.rate = 3.0
    with pytest.raises(RuntimeError, match="other values in backward"):
        y[-1].sum().backward()
    f.rate = 1.0
    run(f, y0, method=method, gradient=gradient)[-1].sum().backward()
    close("continuous", y0.grad, torch.full_like(Y0, 0.36787944))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_complex_state_has_real_times_and_parameters(dtype: torch.dtype) -> None:
    def gradient_of(name: str) -> tuple[Tensor, ...]:
        w = (torch.eye(2, dtype=dtype) * (0.3 + (0.7j if dtype.is_complex else 0.0))).requires_grad_()
        scale = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
        y0 = torch.tensor([1.0 + 0.5j, -0.3j], dtype=torch.complex128, requires_grad=True)
        t = T.clone().requires_grad_()
        y = proxode.odeint(
            lambda s, y: scale * (w.to(y.dtype) @ y) - s * y, y0, t, method="dopri5", options={"gradient": name}
        )
        return torch.autograd.grad(y[1:].abs().square().sum(), (w, scale, y0, t))

    for ours, reference in zip(gradient_of("continuous"), gradient_of("direct"), strict=True):
        assert ours.dtype == reference.dtype
        assert_close(ours, reference, rtol=1e-4, atol=1e-5)


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


@pytest.mark.parametrize("gradient", ["implicit", "direct"])
def test_what_f_keeps_from_its_first_call_has_a_graph(gradient: str) -> None:
    layer = nn.Linear(3, 3).double()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    original = layer.parametrizations.weight.original

    def run_it(name: str) -> Tensor:
        return run(lambda t, y: torch.tanh(layer(y)) - y, gradient=name).sum()

    with parametrize.cached():
        loss = run_it(gradient)
    close(gradient, torch.autograd.grad(loss, original)[0], torch.autograd.grad(run_it("direct"), original)[0])


@pytest.mark.parametrize("loss_at", ["all", "last"])
def test_the_adjoint_of_bdf2_is_of_second_order_with_an_output_at_every_step(loss_at: str) -> None:
    def error(steps: int) -> float:
        t = torch.linspace(0, 1, steps + 1, dtype=torch.float64)

        def gradient_of(**kwargs) -> Tensor:
            y0 = Y0.clone().requires_grad_()
            y = proxode.odeint(lambda s, y: torch.sin(3 * y) - 2 * y + torch.cos(s), y0, t, **kwargs)
            loss = y[-1].square().sum() if loss_at == "last" else y.square().mean(0).sum()
            return torch.autograd.grad(loss, y0)[0]

        ours = gradient_of(method="bdf2", options={"gradient": "continuous", "step_size": 1 / steps})
        return float((ours - gradient_of(method="dopri8", rtol=1e-10, atol=1e-12)).norm())

    assert error(40) < 0.35 * error(20) < 0.05


@methods
@gradients
def test_backward_outside_of_an_autocast_block_differentiates_what_ran_inside(gradient: str, method: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    y0 = torch.randn(5, 8)

    def gradient_of(name: str) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = run(lambda t, y: net(y).float() - y, y0, T.float(), method, name, 0.1, rtol=1e-2, atol=1e-2)
            loss = y.float().square().mean()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])

    ours, reference = gradient_of(gradient), gradient_of("direct")
    assert float((ours - reference).norm()) <= (0.1 if gradient == "continuous" else 0.02) * float(reference.norm())


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c, y):
        ctx.save_for_backward(c, y)
        return c * y

    @staticmethod
    def backward(ctx, g):
        c, y = ctx.saved_tensors
        return g * y, g * c


def hidden(c: Tensor):
    return {
        "an autograd.Function": lambda t, y: -Scale.apply(c, y),
        "also in the open": lambda t, y: -Scale.apply(c, y) + 0.1 * c,
        "returned as it is": lambda t, y: c,
        "another solve": lambda t, y: -proxode.odeint(lambda s, x: -c * x, y, T[:2], method="rk4")[-1],
    }


@methods
@gradients
@pytest.mark.parametrize("case", hidden(Y0))
def test_a_captured_tensor_that_goes_where_no_one_sees_it_passes_its_gradient_on(case, gradient, method) -> None:
    def gradient_of(name: str) -> Tensor:
        w = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True)
        y = run(hidden(w.exp())[case], method=method, gradient=name, h=0.1)
        return torch.autograd.grad(y[-1].sum(), w)[0]

    close(gradient, gradient_of(gradient), gradient_of("direct"))


@gradients
def test_a_captured_parameter_may_have_another_dtype(gradient: str) -> None:
    def gradient_of(name: str) -> Tensor:
        k = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
        y = run(lambda t, y: (-k * y).float(), Y0.float(), T.float(), gradient=name, h=0.1, rtol=1e-5, atol=1e-5)
        grad = torch.autograd.grad(y[-1].sum(), k)[0]
        assert grad.dtype == torch.float64
        return grad

    assert_close(gradient_of(gradient), gradient_of("direct"), rtol=3e-2, atol=1e-3)


@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-5])
def test_a_gradient_that_moves_little_in_each_of_many_steps_does_not_stand_still(tol: float) -> None:
    """A thousand systems, each of which moves it by less than a tolerance: what they leave adds up."""
    rates, n = torch.linspace(-3.0, 3.0, 80, dtype=torch.float64), 1_000
    y0 = torch.ones(80, dtype=torch.float64, requires_grad=True)
    with proxode.record() as stats:
        y = proxode.odeint(
            lambda t, y: -rates * y, y0, torch.tensor([0.0, 1.0]), method="backward_euler", rtol=tol, atol=tol,
            options={"step_size": 1 / n, "inner": "newton"},
        )  # fmt: skip
    (got,) = torch.autograd.grad(y[-1].sum(), y0)
    exact = (1 + rates / n) ** -n
    assert float((got - exact).norm() / exact.norm()) < 10 * tol
    assert stats.nfe_backward < 2.5 * n
