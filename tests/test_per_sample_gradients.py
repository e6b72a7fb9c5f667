"""Gradients of `per_sample=True`: those of single solves, by the implicit function theorem at every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sample_problems import MU, Y0, doubles, van_der_pol
from torch import Tensor

import proxode


@pytest.mark.parametrize("method, tol", [("bdf", 1e-8), ("auto", 1e-9)])
def test_gradients_are_those_of_single_solves(method: str, tol: float) -> None:
    mu, y0 = MU.clone().requires_grad_(), Y0.clone().requires_grad_()
    times = doubles(0.5, 2.0)
    with proxode.record() as stats:
        run = proxode.solve(van_der_pol(mu), y0, 0.0, 2.0, per_sample=True, method=method, save_at=times, rtol=tol,
                            atol=tol)  # fmt: skip
    got = torch.autograd.grad(run.ys.sum(), (mu, y0))
    for i in range(len(MU)):
        m, y = MU[i].clone().requires_grad_(), Y0[i].clone().requires_grad_()
        f = lambda t, y, m=m: torch.stack([y[1], m * (1 - y[0] ** 2) * y[1] - y[0]])  # noqa: E731
        ys = proxode.solve(f, y, 0.0, 2.0, save_at=times, method="bdf", rtol=1e-9, atol=1e-9).ys
        for ours, exact in zip(got, torch.autograd.grad(ys.sum(), (m, y)), strict=True):
            assert torch.allclose(ours[i], exact, rtol=1e-5, atol=1e-7)
    assert stats.nfe_forward + stats.nfe_backward == stats.n_f + stats.n_jac + stats.n_vjp
    each = 4 if method == "bdf" else 7  # two columns, their evaluation and a product for a step; or one for each stage
    assert stats.nfe_backward <= each * stats.n_steps + 5


def test_gradients_of_parameters_that_all_share_and_of_one_that_fails() -> None:
    w = doubles(0.7).requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([-w * y[0], torch.where(t[1:2] < 0.5, -w * y[1], -w * y[1] ** 2 * 1e300)])

    run = proxode.solve(f, torch.ones(2, 1, dtype=torch.float64), 0.0, 1.0, per_sample=True, rtol=1e-8, atol=1e-8,
                        throw=False)  # fmt: skip
    (grad,) = torch.autograd.grad(run.ys[-1, 0].sum(), w)
    assert float(grad) == pytest.approx(-math.exp(-0.7), rel=1e-6)


@pytest.mark.parametrize("method", ["bdf", "auto", "dopri5", "dopri8", "adaptive_heun"])
def test_a_sample_without_a_derivative_does_not_spoil_the_gradient_of_what_all_share(method: str) -> None:
    grads = []
    for second in (-1.0, 1.0):
        p = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        y0 = doubles([1.0], [second])
        run = proxode.solve(lambda t, y, p=p: -p * torch.sqrt(y), y0, 0.0, 0.5, per_sample=True, method=method,
                            throw=False)  # fmt: skip
        grads.append(torch.autograd.grad(run.ys[-1][0].sum(), p)[0])
    assert float(grads[0]) == pytest.approx(float(grads[1]), rel=1e-3)


def test_a_gradient_that_f_does_not_show_at_the_start() -> None:
    """f does not read y, or reads a parameter only later: the gradients are there all the same."""
    y0, w = torch.ones(2, 1, dtype=torch.float64, requires_grad=True), doubles(2.0).requires_grad_()
    run = proxode.solve(lambda t, y: torch.ones_like(y), y0, 0.0, 1.0, per_sample=True)
    assert torch.allclose(torch.autograd.grad(run.ys[-1].sum(), y0)[0], torch.ones(2, 1, dtype=torch.float64))

    def later(t: Tensor, y: Tensor) -> Tensor:
        return -y if float(t.max()) < 0.5 else -w * y

    run = proxode.solve(later, y0.detach(), 0.0, 1.0, per_sample=True, rtol=1e-7, atol=1e-7)
    (grad,) = torch.autograd.grad(run.ys[-1].sum(), w)
    assert float(grad) == pytest.approx(-math.exp(-0.5 - 2 * 0.5), rel=0.05)  # two samples, half a unit of time each


def test_nothing_is_recorded_where_nothing_wants_a_gradient() -> None:
    def cost(**grad: Any) -> int:
        y0 = Y0.clone().requires_grad_(**grad)
        return proxode.solve(van_der_pol(MU), y0, 0.0, 1.0, per_sample=True).stats.nfe_forward

    assert cost(requires_grad=False) < cost(requires_grad=True)
    with torch.no_grad():
        run = proxode.solve(van_der_pol(MU), Y0.clone().requires_grad_(), 0.0, 1.0, per_sample=True)
    assert not run.ys.requires_grad


def test_a_second_derivative_of_implicit_steps_is_refused_and_not_zero() -> None:
    """Also through `torch.autograd.functional.hessian`, which takes no `backward()`."""
    weights = torch.tensor([[-1.0, 0.3], [0.2, -50.0]], dtype=torch.float64)

    def loss(y0: Tensor) -> Tensor:
        ys = proxode.solve(lambda t, y: torch.tanh(y @ weights), y0, 0.0, 1.0, method="bdf", per_sample=True).ys
        return ys[-1].square().sum()

    with pytest.raises(NotImplementedError, match=r"second derivatives .* without `per_sample`"):
        torch.autograd.functional.hessian(loss, torch.ones(2, 2, dtype=torch.float64))
