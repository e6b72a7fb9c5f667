"""The gradient of a linear functional of the heat equation on a ring, against its closed form."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

import proxode
from proxode.solution import Recording

N = 128
DX = 1.0 / (N - 1)
TOLERANCES = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
# NFE of backward that each tolerance may take, a tenth above what it took
WORK = {
    "implicit": [470, 520, 620, 730, 910, 1190],
    "checkpoint": [730, 800, 970, 1160, 1480, 1930],
    "continuous": [250, 360, 510, 610, 760, 1040],
}
WORK_OF_PAPER = [1520, 1680, 2150, 2310, 2960, 4440]


def laplacian(y: Tensor) -> Tensor:
    return (torch.roll(y, 1, -1) + torch.roll(y, -1, -1) - 2 * y) / DX**2


def samples(seed: int) -> Tensor:
    return torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@cache
def closed_form(conductivity: float) -> tuple[Tensor, Tensor]:
    """`L = w . exp(k D) y0`: its gradients for y0 and for log k."""
    matrix = conductivity * laplacian(torch.eye(N, dtype=torch.float64))
    flow = torch.matrix_exp(matrix)
    return flow.T @ samples(1), samples(1) @ matrix @ flow @ samples(0)


def gradients(conductivity: float, gradient: str, tol: float) -> tuple[tuple[Tensor, ...], Recording]:
    """By bdf4, with steps whose own error is about the tolerance."""
    log_k = torch.tensor(conductivity, dtype=torch.float64).log().requires_grad_()
    y0 = samples(0).requires_grad_()
    options = {"step_size": 0.02 * (tol / 1e-6) ** 0.25, "gradient": gradient}
    with proxode.record() as stats:
        y = proxode.odeint(
            lambda t, y: log_k.exp() * laplacian(y), y0, torch.tensor([0.0, 1.0]), method="bdf4", rtol=tol, atol=tol,
            options=options,
        )  # fmt: skip
    return torch.autograd.grad(y[-1] @ samples(1), (y0, log_k)), stats


@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
def test_the_error_of_a_gradient_is_within_ten_tolerances(gradient: str, tol: float) -> None:
    """Conductivity 0.01: the smooth half of the modes is still there at the end, the others are stiff."""
    got, stats = gradients(0.01, gradient, tol)
    for ours, exact in zip(got, closed_form(0.01), strict=True):
        assert float((ours - exact).abs().max()) <= 10 * tol
    assert stats.nfe_backward <= WORK[gradient][TOLERANCES.index(tol)]


@pytest.mark.parametrize("tol", TOLERANCES)
def test_so_it_is_on_the_diffusion_equation_of_the_paper(tol: float) -> None:
    """All modes but the mean are gone at the end: integrating the state backwards would multiply them by e^64516."""
    got, stats = gradients(1.0, "implicit", tol)
    for ours, exact in zip(got, closed_form(1.0), strict=True):
        assert float((ours - exact).abs().max()) <= 10 * tol
    assert stats.nfe_backward <= WORK_OF_PAPER[TOLERANCES.index(tol)]


def test_the_exact_gradient_of_explicit_steps_that_stability_limits_is_not_that_of_the_equation() -> None:
    """What docs/gradients.md says: the loss is right all the same, and other ways give the right gradient."""
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    h = 0.01

    def f(t: Tensor, y: Tensor) -> Tensor:
        d = torch.nn.functional.pad(y, (1, 1))
        return 0.1 * (d[2:] - 2 * y + d[:-2]) / h**2 - (d[2:] - d[:-2]) / (2 * h) + y - y**3

    def found(method: str, gradient: str, rtol: float) -> tuple[float, Tensor]:
        y0 = torch.exp(-100 * (x - 0.3) ** 2).requires_grad_()
        loss = proxode.solve(f, y0, 0.0, 1.0, method=method, gradient=gradient, rtol=rtol, atol=0.01 * rtol).ys[-1]
        (grad,) = torch.autograd.grad(loss.square().sum(), y0)
        return float(loss.detach().square().sum()), grad

    exact_loss, exact = found("bdf", "implicit", 1e-8)
    off = {}
    for method, gradient in (("dopri5", "implicit"), ("dopri5", "continuous"), ("auto", "implicit")):
        loss, grad = found(method, gradient, 1e-3)
        assert abs(loss / exact_loss - 1) < 1e-3
        off[method, gradient] = float((grad - exact).abs().max() / exact.abs().max())
    assert off["dopri5", "implicit"] > 1.0
    assert max(off["dopri5", "continuous"], off["auto", "implicit"]) < 1e-2
