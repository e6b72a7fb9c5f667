"""`odeint_adjoint`: a gradient that agrees with torchdiffeq's, and is right where theirs is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchdiffeq
from adjoint_cases import UP, Net, as_tuple, both_ways, exact, gap, gradients, initial, loss_of
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.gradients import Continuous, Implicit


@both_ways
@as_tuple
@pytest.mark.parametrize(("method", "tol", "off"), [("dopri5", 1e-8, 1e-6), ("bosh3", 1e-6, 1e-3)])
def test_gradients_agree_with_torchdiffeqs(method: str, tol: float, off: float, split: bool, t: Tensor) -> None:
    """Between its steps their bosh3 has a rough interpolant, which makes most of the difference."""
    ours, theirs = (
        gradients(odeint, t, split, method=method, rtol=tol, atol=tol)
        for odeint in (proxode.odeint_adjoint, torchdiffeq.odeint_adjoint)
    )
    assert gap(ours, theirs) < off


@both_ways
@pytest.mark.parametrize(("method", "tol"), [("dopri5", 1e-8), ("bosh3", 1e-6), ("adaptive_heun", 1e-4)])
def test_gradients_are_as_good_as_the_tolerance(method: str, tol: float, t: Tensor) -> None:
    assert gap(gradients(proxode.odeint_adjoint, t, method=method, rtol=tol, atol=tol), exact(t)) < 20 * tol


@both_ways
@as_tuple
def test_gradients_of_fixed_steps_agree_with_torchdiffeqs_to_the_order(split: bool, t: Tensor) -> None:
    ours, theirs = (
        gradients(odeint, t, split, method="rk4", options={"step_size": 0.02})
        for odeint in (proxode.odeint_adjoint, torchdiffeq.odeint_adjoint)
    )
    assert gap(ours, theirs) < 2e-6


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_scale_of_the_loss_changes_neither_the_error_nor_the_work(scale: float) -> None:
    """The mean over many samples gives each a small gradient, which an absolute tolerance would not see."""
    found = []
    for size in (1.0, scale):
        f, y0 = Net(), initial()
        with proxode.record() as stats:
            y = proxode.odeint_adjoint(f, y0, UP, rtol=1e-4, atol=1e-4)
            grads = torch.autograd.grad(size * loss_of(y), [y0, *f.parameters()])
        found.append([stats.nfe_backward, [g / size for g in grads]])
    assert found[0][0] == found[1][0]
    assert gap(found[1][1], found[0][1]) < 1e-9
    assert gap(found[1][1], [exact()[0], *exact()[2:]]) < 2e-3


# Jumps, checkpoints, and dissipation


@both_ways
@pytest.mark.parametrize(("method", "step"), [("dopri5", None), ("rk4", 0.02), ("bdf3", 0.01)])
def test_a_jump_of_f_is_a_jump_of_the_adjoint(method: str, step: float | None, t: Tensor) -> None:
    rate = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    jump = torch.tensor([0.7], dtype=torch.float64)
    f = lambda t, y: rate * y if t < 0.7 else -(rate**2) * y  # noqa: E731
    options = {"jump_t": jump, **({} if step is None else {"step_size": step})}
    y = proxode.odeint_adjoint(f, y0, t, method=method, rtol=1e-8, options=options)
    found = torch.autograd.grad(y[-1].sum(), (y0, rate))
    way = 1.0 if t[0] < t[-1] else -1.0
    expected = torch.autograd.grad((y0 * torch.exp(way * (0.7 * rate - 0.5 * rate**2))).sum(), (y0, rate))
    assert_close(found, expected, rtol=2e-5, atol=0.0)


@pytest.mark.parametrize("places", [1, 2, 7, 1000])
@pytest.mark.parametrize("method", ["dopri5", "rk4", "bdf2", "bdf4"])
def test_the_replayed_trajectory_gives_the_gradient_of_the_stored_one(method: str, places: int) -> None:
    found = []
    for count in (None, places):
        options = {"gradient": Continuous(checkpoints=count), **({} if method == "dopri5" else {"step_size": 0.05})}
        found.append(gradients(proxode.odeint, method=method, rtol=1e-5, options=options))
    stored, replayed = found
    assert_close(replayed, stored, rtol=1e-12, atol=1e-12)


class Diffusion(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        eye = torch.eye(n, dtype=torch.float64)
        self.laplacian = eye.roll(1, 0) + eye.roll(-1, 0) - 2 * eye
        self.rate = nn.Parameter(torch.tensor(30.0, dtype=torch.float64))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.rate * (self.laplacian @ y)


def dissipated(odeint: Any, **kwargs: Any) -> float:
    """How wrong the gradient is of a loss at t = 1 of a diffusion with |lambda| T = 120, relative."""
    f, y0 = Diffusion(12), torch.sin(torch.arange(12, dtype=torch.float64)).requires_grad_()
    weights = torch.arange(12, dtype=torch.float64)
    y = odeint(f, y0, torch.tensor([0.0, 1.0], dtype=torch.float64), **kwargs)[-1]
    expected = torch.autograd.grad(weights @ torch.matrix_exp(f.rate * f.laplacian) @ y0, (y0, f.rate))
    return gap(list(torch.autograd.grad(weights @ y, (y0, f.rate))), list(expected))


def test_the_adjoint_of_a_dissipative_problem_is_right_where_torchdiffeqs_is_noise() -> None:
    rk4 = {"method": "rk4", "options": {"step_size": 1 / 200}}
    assert not dissipated(torchdiffeq.odeint_adjoint, **rk4) < 0.1  # nan is not either
    assert dissipated(proxode.odeint_adjoint, **rk4) < 1e-3
    assert dissipated(proxode.odeint_adjoint, method="dopri5", rtol=1e-6, atol=1e-9) < 1e-3
    assert dissipated(proxode.odeint_adjoint, method="bdf4", options={"step_size": 1 / 100}) < 1e-2
    assert dissipated(proxode.odeint, method="rk4", options={"step_size": 1 / 200, "gradient": Implicit()}) < 1e-3
