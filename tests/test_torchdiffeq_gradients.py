"""Gradients of the same calls, ours beside torchdiffeq's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.methods import METHODS

UP = torch.tensor([0.0, 0.3, 0.5, 1.1, 2.0], dtype=torch.float64)
times = pytest.mark.parametrize("t", [UP, UP.flip(0)], ids=["increasing", "decreasing"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)).double()

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y) * torch.cos(t) - y


def gradients(odeint: Any, t: Tensor, **kwargs: Any) -> list[Tensor]:
    """With respect to y0, t and the parameters."""
    f = Net()
    y0 = torch.tensor([[0.3, -0.8, 1.0], [0.1, 0.6, -0.2]], dtype=torch.float64, requires_grad=True)
    t = t.clone().requires_grad_()
    y = odeint(f, y0, t, **kwargs)
    weights = torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y)
    return list(torch.autograd.grad((weights * y**2).sum(), [y0, t, *f.parameters()]))


@times
@pytest.mark.parametrize("method", ["euler", "midpoint", "heun2", "rk4"])
def test_gradients_of_fixed_steps_agree_to_rounding(method: str, t: Tensor) -> None:
    ours, theirs = (gradients(odeint, t, method=method) for odeint in (proxode.odeint, torchdiffeq.odeint))
    assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun2", "rk4"])
def test_gradients_between_the_steps_agree_to_rounding(method: str) -> None:
    options = {"step_size": 0.4, "interp": "cubic"}  # no output but the last is on the grid
    t = torch.tensor([0.0, 0.3, 0.5, 1.1, 1.9], dtype=torch.float64)
    ours, theirs = (gradients(o, t, method=method, options=options) for o in (proxode.odeint, torchdiffeq.odeint))
    assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@times
@pytest.mark.parametrize("method", ["bosh3", "dopri5", "dopri8", "tsit5"])
def test_gradients_of_adaptive_methods_agree_to_tolerance(method: str, t: Tensor) -> None:
    ours = gradients(proxode.odeint, t, method=method, rtol=1e-8, atol=1e-9)
    theirs = gradients(torchdiffeq.odeint, t, method="dopri5", rtol=1e-9, atol=1e-10)
    assert_close(ours, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.implicit])
@pytest.mark.parametrize("t", [UP[:3], UP[:3].flip(0)], ids=["increasing", "decreasing"])
def test_gradients_of_proximal_methods_approach_those_of_dopri5(method: str, t: Tensor) -> None:
    options = {"inner_tol": 1e-12} if method == "auto" else {"step_size": 0.05, "inner_tol": 1e-12}
    ours = gradients(proxode.odeint, t, method=method, options=options)
    theirs = gradients(torchdiffeq.odeint, t, method="dopri5", rtol=1e-9, atol=1e-10)
    size = max(float(g.abs().max()) for g in theirs)
    off = {1: 0.1, 2: 0.01}.get(METHODS[method].order, 2e-3)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < off * size


def slope_at_outputs(odeint_kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """dy_i/dt_i as autograd gives it, and f(t_i, y_i), which it should be."""
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([0.7], dtype=torch.float64)
    y = proxode.odeint(lambda t, y: torch.cos(y) * (1 + t), y0, t, **odeint_kwargs)
    slopes = [torch.autograd.grad(y[i, 0], t, retain_graph=True)[0][i] for i in (1, 2)]
    return torch.stack(slopes), (torch.cos(y[1:, 0]) * (1 + t[1:])).detach()


MARK = torch.tensor([0.5], dtype=torch.float64)
GRIDS = {
    "steps of a size": {"method": "rk4", "options": {"step_size": 0.01}},
    "proximal steps of a size": {"method": "bdf3", "options": {"step_size": 0.01}},
    "adaptive": {"method": "dopri5"},
    "adaptive with step_t": {"method": "dopri5", "options": {"step_t": MARK}},
    "adaptive with jump_t": {"method": "dopri5", "options": {"jump_t": MARK}},
    "a grid without gradient": {
        "method": "rk4",
        "options": {"grid_constructor": lambda f, y, t: torch.linspace(0, 1, 101, dtype=t.dtype)},
    },
}


@pytest.mark.parametrize("kwargs", GRIDS.values(), ids=GRIDS)
def test_the_derivative_of_an_output_by_its_own_time_is_f(kwargs: dict[str, Any]) -> None:
    got, expected = slope_at_outputs(kwargs)
    assert_close(got, expected, rtol=1e-2, atol=1e-3)
