"""What a gradient must not pass over in silence. Each of these once did."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode import Status
from proxode.gradients import Implicit

T = torch.tensor([0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"method": "bdf2", "options": {"step_size": 0.1}}])
def test_a_func_that_changed_where_it_does_not_show_at_the_start(options: dict) -> None:
    """At y0 = 0 the change makes no difference; further on it does."""
    factor, k = [1.0], torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    y0 = torch.zeros(3, dtype=torch.float64)
    y = proxode.odeint_adjoint(lambda t, y: k - factor[0] * k * y, y0, T, **options)
    factor[0] = 3.0
    with pytest.raises(RuntimeError, match="func gave other values in backward"):
        torch.autograd.grad(y[-1].sum(), k)


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint"])
def test_a_func_that_changed_in_a_component_beside_a_much_larger_one(gradient: str) -> None:
    factor, k = [1.0], torch.tensor(1.0, requires_grad=True)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([1e4 * (1.5 + torch.cos(20 * t)) - y[0], -y[1] + factor[0] * k * torch.sin(y[1])])

    y = proxode.odeint(f, torch.ones(2), torch.linspace(0, 1, 41), method="bdf2", options={"gradient": gradient})
    factor[0] = 2.0
    with pytest.raises(RuntimeError, match="in backward than in the solve"):
        torch.autograd.grad(y[-1, 1], k)


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
@pytest.mark.parametrize(("dtype", "change"), [(torch.float32, 1e-2), (torch.float64, 1e-5)])
def test_a_small_change_of_func_is_noticed(dtype: torch.dtype, change: float, gradient: str) -> None:
    """As small as docs/gradients.md says."""
    factor, k = [1.0], torch.tensor(1.0, dtype=dtype, requires_grad=True)
    y0 = torch.linspace(0.5, 1.5, 5, dtype=dtype)
    options = {"gradient": gradient, "step_size": 0.1}
    y = proxode.odeint(lambda t, y: -factor[0] * k * torch.sin(y), y0, T.to(dtype), method="bdf2", options=options)
    factor[0] += change
    with pytest.raises(RuntimeError, match="in backward than in the solve"):
        torch.autograd.grad(y[-1].sum(), k)


def test_a_gradient_far_below_the_others_needs_a_tighter_tolerance() -> None:
    """Two parts that know nothing of each other: the tolerance is relative to the gradient of both."""
    n, weight = 50, 1e-6
    slopes = torch.randn(2, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / n**0.5
    rates = torch.tensor([3.0, 3.0], dtype=torch.float64, requires_grad=True)
    y0 = torch.linspace(-1, 1, 2 * n, dtype=torch.float64)

    def f(t: Tensor, y: Tensor) -> Tensor:
        parts = y.view(2, n, 1)
        return (torch.tanh(slopes @ parts) - rates.view(2, 1, 1) * parts).reshape(-1)

    def found(rtol: float | None) -> Tensor:
        options = {"step_size": 0.1, "gradient": Implicit(rtol)}
        y = proxode.odeint(f, y0, T, method="bdf2", rtol=1e-3, atol=1e-3, options=options)[-1]
        return torch.autograd.grad(y[:n].sum() + weight * y[n:].sum(), rates)[0]

    exact = found(1e-14)
    loose, tight = ((found(rtol) - exact).abs() / exact.abs() for rtol in (None, 1e-10))
    assert float(loose[0]) < 1e-3 and float(tight.max()) < 1e-3
    assert float(loose[1]) > 10 * float(tight[1])


@pytest.mark.parametrize("method", ["bdf2", "crank_nicolson"])
def test_forward_mode_over_the_backward_of_recorded_iterations(method: str) -> None:
    k = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(k, torch.ones_like(k))
        y = proxode.odeint(
            lambda t, y: -dual[0] * torch.tanh(dual[1] * y) - y**3, torch.ones(2, dtype=torch.float64), T / 10,
            method=method, options={"gradient": "direct"},
        )  # fmt: skip
        with pytest.raises(NotImplementedError, match="create_graph=True twice"):
            torch.autograd.grad(y[-1].sum(), dual)


@pytest.mark.parametrize("scale", [1e-30, 1e-23, 1e20, 1e30])
@pytest.mark.parametrize("method", ["dopri5", "bdf2"])
def test_a_loss_of_a_scale_whose_square_is_out_of_range(method: str, scale: float) -> None:
    k = torch.tensor(0.5, requires_grad=True)
    options = {"step_size": 0.05} if method == "bdf2" else None
    y = proxode.odeint_adjoint(lambda t, y: -k * y, torch.ones(3), T.float(), method=method, options=options)
    found = torch.autograd.grad(y[-1].sum() * scale, k)[0]
    assert_close(found / scale, -3.0 * torch.exp(torch.tensor(-0.5)), rtol=2e-3, atol=0.0)


def test_a_nan_that_comes_into_the_adjoint_says_so() -> None:
    k = torch.tensor(0.5, requires_grad=True)
    y = proxode.odeint_adjoint(lambda t, y: -k * y, torch.ones(3), T.float())
    with pytest.raises(proxode.SolverError, match="look at the loss") as raised:
        torch.autograd.grad(y[-1].sum() * float("inf"), k)
    assert raised.value.status is Status.BACKWARD_NON_FINITE


@pytest.mark.parametrize("gradient", ["implicit", "direct"])
def test_an_explicit_method_with_a_func_that_detaches(gradient: str) -> None:
    y0 = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="autograd does not see how func depends on y"):
        proxode.odeint(lambda t, y: -y.detach(), y0, T.float(), method="rk4", options={"gradient": gradient})
    y = proxode.odeint(lambda t, y: torch.ones(3), y0, T.float(), method="rk4", options={"gradient": gradient})
    assert_close(torch.autograd.grad(y[-1].sum(), y0)[0], torch.ones(3))  # f does not depend on y: that is right


def test_another_gradient_in_the_options_of_odeint_adjoint() -> None:
    with pytest.raises(ValueError, match="call `odeint`"):
        proxode.odeint_adjoint(lambda t, y: -y, torch.ones(3), T.float(), options={"gradient": "implicit"})


def test_store_graph_that_is_not_wanted_goes_with_every_gradient() -> None:
    for gradient in ("checkpoint", "direct", "continuous", "implicit"):
        options = {"gradient": gradient, "store_graph": False}
        proxode.odeint(lambda t, y: -y, torch.ones(3), T.float(), method="rk4", options=options)
    with pytest.raises(ValueError, match="store_graph"):
        proxode.odeint(lambda t, y: -y, torch.ones(3), T.float(), options={"gradient": "direct", "store_graph": True})


def test_a_parameter_that_was_replaced_is_told_as_a_change() -> None:
    class Decay(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = torch.nn.Parameter(torch.tensor([1.0, 500.0]))

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return -self.k * y * y

    f = Decay()
    y = proxode.odeint(f, torch.ones(2), torch.tensor([0.0, 1.0]), rtol=1e-4, atol=1e-5, method="bdf")
    f.k = torch.nn.Parameter(1.1 * f.k.detach())
    with pytest.raises(RuntimeError, match="func gave another value in backward"):
        y[-1].sum().backward()
