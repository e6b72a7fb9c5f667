"""Runge-Kutta-Chebyshev: its polynomial, its order, its cost on diffusion, and what it knows of the spectral radius."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxode
from proxode.methods.chebyshev import DAMPING, coefficients, spectral_radius, stages_for
from proxode.paper.diffusion import Diffusion, density
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def polynomial(s: int, z: Tensor) -> Tensor:
    """One step of y' = z y from 1, by the coefficients."""
    of = coefficients(s)
    before, y = torch.ones_like(z), 1 + of.first * z
    for mu, nu, mu_f, gamma in zip(of.mu, of.nu, of.mu_f, of.gamma, strict=True):
        before, y = y, (1 - mu - nu) + mu * y + nu * before + z * (mu_f * y + gamma)
    return y


def closed_form(s: int, z: Tensor) -> Tensor:
    """a + b T_s(w0 + w1 z), with the derivatives of T_s from its hyperbolic form."""
    w0 = 1 + DAMPING / s**2
    u = math.acosh(w0)
    t, root = math.cosh(s * u), math.sqrt(w0**2 - 1)
    dt = s * math.sinh(s * u) / root
    ddt = (s**2 * t - w0 * dt) / (w0**2 - 1)
    b = ddt / dt**2
    x = w0 + dt / ddt * z
    beyond = torch.cosh(s * torch.acosh(x.clamp(1)))
    return 1 - b * t + b * torch.where(x.abs() <= 1, torch.cos(s * torch.acos(x.clamp(-1, 1))), beyond)


@pytest.mark.parametrize("s", [2, 3, 5, 20, 150])
def test_stability_polynomial(s: int) -> None:
    reach = 2 / 3 * (s**2 - 1) * (1 - 2 / 15 * DAMPING)
    z = torch.linspace(-reach, 0, 1001, dtype=torch.float64)
    values = polynomial(s, z)
    assert float((values - closed_form(s, z)).abs().max()) < 1e-9 * s**2
    inside = values[(z > -reach) & (z < -2.0)]
    assert len(inside) == 0 or float(inside.abs().max()) < 1 - DAMPING / 4
    assert float(values.abs().max()) <= 1 + 1e-10
    small = doubles(1e-3)
    assert float((polynomial(s, small) - small.exp()).abs()) < 1e-9  # order two: the error is z^3


@given(h_rho=st.floats(0, 1e8))
@settings(max_examples=200, deadline=None)
def test_so_many_stages_are_stable_and_few(h_rho: float) -> None:
    s = stages_for(h_rho)
    assert 0.653 * (s**2 - 1) >= h_rho * (1 - 1e-12)
    assert s == 2 or 0.64 * ((s - 2) ** 2 - 1) <= h_rho


def test_order_two_on_a_nonlinear_problem_with_given_steps() -> None:
    y0 = doubles(1.0, 0.5)
    exact = 1 / (1 / y0 + math.sin(2.0))
    errors = []
    for n in (40, 80, 160):
        run = proxode.solve(lambda t, y: -(y**2) * torch.cos(t), y0, 0.0, 2.0, method="rkc2", step_size=2 / n)
        errors.append(float((run.ys[-1] - exact).abs().max()))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.15)
    assert math.log2(errors[1] / errors[2]) == pytest.approx(2, abs=0.15)


def on_diffusion(points: int, tol: float, **kwargs: Any) -> tuple[float, proxode.Solution]:
    ring, h0 = Diffusion(points), density(points)
    run = proxode.solve(ring.f, h0, 0.0, 1.0, method="rkc2", rtol=tol, atol=tol, **kwargs)
    return float((run.ys[-1] - ring.exact(h0, doubles(1.0))[0]).abs().max()), run


def test_diffusion_for_a_fiftieth_of_the_work_of_dopri5() -> None:
    error, run = on_diffusion(128, 1e-6)
    assert error < 1e-6 and run.stats.nfe_forward <= 2_600  # dopri5: 117,134


def test_its_cost_grows_as_the_number_of_points() -> None:
    few, many = (on_diffusion(points, 1e-3)[1].stats.nfe_forward for points in (128, 512))
    assert math.log(many / few) / math.log(4) < 1.1


def test_a_radius_that_is_given_is_not_estimated() -> None:
    points = 64
    bound = 4.0 * (points - 1) ** 2
    _, estimated = on_diffusion(points, 1e-4)
    for rho in (bound, lambda t: bound):
        error, told = on_diffusion(points, 1e-4, rho=rho)
        assert error < 1e-4 and told.stats.nfe_forward < estimated.stats.nfe_forward


@pytest.mark.parametrize("rho", [0.0, -1.0, math.inf, math.nan, "large"])
def test_a_radius_must_be_positive(rho: Any) -> None:
    with pytest.raises(ValueError, match="`rho`"):
        on_diffusion(8, 1e-3, rho=rho)


@pytest.mark.parametrize("seed", range(3))
def test_the_power_method_finds_the_radius(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))[0]
    matrix = q @ torch.diag(-(10.0 ** torch.linspace(-1, 3, 30, dtype=torch.float64))) @ q.T
    y = torch.randn(30, generator=generator, dtype=torch.float64)
    stats = Stats()
    f = VectorField(lambda t, x: matrix @ x, Structure.of(y), stats)
    rho, direction = spectral_radius(f, 0.0, y, matrix @ y, None)
    assert 1_000 <= rho <= 1_250 and stats.n_f < 30
    before = stats.n_f
    again, _ = spectral_radius(f, 0.0, y, matrix @ y, direction)
    assert 1_000 <= again <= 1_250 and stats.n_f - before == 2  # from there it is found at once


def test_nothing_to_estimate() -> None:
    run = proxode.solve(lambda t, y: torch.ones_like(y), doubles(0, 1), 0.0, 1.0, method="rkc2")
    assert torch.allclose(run.ys[-1], doubles(1, 2))
