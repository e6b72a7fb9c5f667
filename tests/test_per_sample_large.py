"""`per_sample=True` on samples of more unknowns than a dense Jacobian is made for: products alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sample_problems import doubles
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import proxode
from proxode import Status

N = 300
D = doubles(1.0, 10.0, 0.1)


def heat(d: Tensor) -> Any:
    """On a ring, with a diffusion constant for each sample, in units of the grid."""
    return lambda t, y: 1e3 * d[:, None] * (y.roll(1, 1) - 2 * y + y.roll(-1, 1))


def waves(n: int = N) -> Tensor:
    """Of a smooth and a rough mode."""
    x = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    return torch.cos(3 * x) + 0.1 * torch.cos((n // 2 - 1) * x)


def cooled(d: Tensor, t: float, n: int = N) -> Tensor:
    x = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    rates = [2e3 * d * (1 - math.cos(2 * math.pi * k / n)) for k in (3, n // 2 - 1)]
    parts = zip((1.0, 0.1), rates, (3, n // 2 - 1), strict=True)
    return torch.stack([a * torch.exp(-rate * t)[:, None] * torch.cos(k * x) for a, rate, k in parts]).sum(0)


def test_heat_and_its_gradients_against_the_closed_solution() -> None:
    d, y0 = D.clone().requires_grad_(), waves().repeat(3, 1).requires_grad_()
    run = proxode.solve(heat(d), y0, 0.0, 0.2, per_sample=True, method="bdf", rtol=1e-6, atol=1e-6)
    e = D.clone().requires_grad_()
    exact = cooled(e, 0.2)
    assert run.status is Status.SUCCESS and float((run.ys[-1] - exact).detach().abs().max()) < 1e-5
    weights = torch.cos(2 * math.pi * 3 * torch.arange(N, dtype=torch.float64) / N)
    got = torch.autograd.grad((run.ys[-1] * weights).sum(), (d, y0))
    (of_d,) = torch.autograd.grad((exact * weights).sum(), e)
    assert torch.allclose(got[0], of_d, rtol=1e-4, atol=1e-3)
    decay = torch.exp(-2e3 * D * (1 - math.cos(6 * math.pi / N)) * 0.2)[:, None]
    assert torch.allclose(got[1], decay * weights, atol=1e-5)
    assert run.stats.n_jac == 0 and run.stats.n_jvp > 0
    assert run.stats.nfe_forward < 4_000


def test_the_matrices_and_the_products_give_the_same() -> None:
    ends, small = [], waves(250)
    for y in (small, torch.cat([small, small[:50]])):  # 250 unknowns by matrices, 300 by products
        y0 = y.repeat(2, 1)
        f = lambda t, y: -doubles([1.0], [300.0]) * (y**3 - torch.cos(t)[:, None])  # noqa: E731
        ends.append(proxode.solve(f, y0, 0.0, 1.0, per_sample=True, method="bdf", rtol=1e-7, atol=1e-7).ys[-1])
    assert torch.allclose(ends[0], ends[1][:, :250], atol=1e-6)


class Largest(TorchDispatchMode):
    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numel = max(self.numel, out.numel())
        return out


def test_nothing_is_as_large_as_a_matrix() -> None:
    n, y0 = 4_000, waves(4_000).repeat(2, 1).requires_grad_()
    with Largest() as seen:
        run = proxode.solve(heat(D[:2]), y0, 0.0, 0.01, per_sample=True, method="bdf", rtol=1e-3, atol=1e-3)
        run.ys[-1].square().sum().backward()
    assert seen.numel <= 41 * 2 * n  # the basis of GMRES


def test_a_sample_without_a_derivative_keeps_nobody_waiting() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return heat(D)(t, y) + torch.where((t > 0.05) & (D == 10.0), math.nan, 0.0)[:, None]

    y0 = waves().repeat(3, 1)
    bad = proxode.solve(f, y0, 0.0, 0.1, per_sample=True, method="bdf", throw=False)
    good = proxode.solve(heat(D), y0, 0.0, 0.1, per_sample=True, method="bdf")
    assert bad.samples is not None and [status.ok for status in bad.samples.status] == [True, False, True]
    assert float((bad.ys[-1] - good.ys[-1])[[0, 2]].abs().max()) < 1e-4
    assert bad.samples.t[1] == pytest.approx(0.05, abs=1e-3)
    assert bad.stats.nfe_forward < 2 * good.stats.nfe_forward
