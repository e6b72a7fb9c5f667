"""Energy laws of the schemes on non-convex functionals, and the growth of inner errors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxode

torch_double = {"dtype": torch.float64}
DESCENT = ("gd", "fr", "lbfgs")


class DoubleWells:
    """Coupled double wells: F = sum (x^2 - 1)^2 / 4 + coupling."""

    @staticmethod
    def energy(x: Tensor) -> float:
        return float(0.25 * ((x * x - 1) ** 2).sum() + 0.1 * ((x[1:] - x[:-1]) ** 2).sum())

    @staticmethod
    def force(t: Tensor, x: Tensor) -> Tensor:
        coupling = torch.zeros_like(x)
        coupling[1:] += x[1:] - x[:-1]
        coupling[:-1] -= x[1:] - x[:-1]
        return -(x * x - 1) * x - 0.2 * coupling


class Ripples:
    """Many wells: F = sum 1 - cos 3x + x^2 / 20."""

    @staticmethod
    def energy(x: Tensor) -> float:
        return float((1 - torch.cos(3 * x)).sum() + 0.05 * (x * x).sum())

    @staticmethod
    def force(t: Tensor, x: Tensor) -> Tensor:
        return -3 * torch.sin(3 * x) - 0.1 * x


starts = st.lists(st.floats(-3, 3, allow_nan=False), min_size=1, max_size=5)
step_sizes = st.floats(-2, 2).map(lambda exponent: 10.0**exponent)
functionals = st.sampled_from([DoubleWells, Ripples])


def trajectory(functional, start, s, method, inner, steps=4):
    y0 = torch.tensor(start, **torch_double)
    times = torch.arange(steps + 1, **torch_double) * s
    with torch.no_grad():
        solution = proxode.solve(
            functional.force, y0, 0.0, float(times[-1]), method=method, inner=inner, step_size=s,
            predictor="previous", inner_tol=1e-10, save_at=times,
        )  # fmt: skip
    return solution.ys


def falls(after: float, before: float) -> bool:
    return after <= before + 1e-8 * (1 + abs(before))


@pytest.mark.parametrize("inner", DESCENT)
@given(functional=functionals, start=starts, s=step_sizes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_backward_euler_never_raises_the_energy(inner, functional, start, s):
    h = trajectory(functional, start, s, "backward_euler", inner)
    for before, after in itertools.pairwise(h):
        moved = float(((after - before) ** 2).sum()) / (2 * s)
        assert falls(functional.energy(after) + moved, functional.energy(before))


@pytest.mark.parametrize("inner", DESCENT)
@given(functional=functionals, start=starts, s=step_sizes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_bdf2_never_raises_its_modified_energy(inner, functional, start, s):
    h = trajectory(functional, start, s, "bdf2", inner)
    modified = [
        functional.energy(after) + float(((after - before) ** 2).sum()) / (4 * s)
        for before, after in itertools.pairwise(h)
    ]
    assert all(falls(after, before) for before, after in itertools.pairwise(modified))


@pytest.mark.parametrize("inner", DESCENT)
@given(functional=functionals, start=starts, s=step_sizes)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_crank_nicolson_keeps_its_energy_inequality(inner, functional, start, s):
    h = trajectory(functional, start, s, "crank_nicolson", inner)
    for before, after in itertools.pairwise(h):
        gradient = -functional.force(torch.zeros(()), before)
        linear = float(((after - before) * gradient).sum())
        assert falls(functional.energy(after) + linear, functional.energy(before))


@pytest.mark.parametrize("method", ["multistage2", "multistage3"])
@given(start=starts, exponent=st.floats(-2, 0))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_multistage_schemes_never_raise_the_energy(method, start, exponent):
    """Where each stage has one solution: s / G_m below the inverse of the most negative curvature, which is one."""
    h = trajectory(DoubleWells, start, 10.0**exponent, method, "gd")
    energies = [DoubleWells.energy(x) for x in h]
    assert all(falls(after, before) for before, after in itertools.pairwise(energies))


def test_forward_euler_raises_the_energy_where_backward_euler_does_not():
    """The law is one of the scheme: with the same step the explicit method climbs."""
    y0, s = torch.tensor([1.8, -0.4], **torch_double), 2.0
    y1 = y0 + s * DoubleWells.force(torch.zeros(()), y0)
    assert DoubleWells.energy(y1) > DoubleWells.energy(y0)
    h = trajectory(DoubleWells, y0.tolist(), s, "backward_euler", "gd")
    assert DoubleWells.energy(h[1]) < DoubleWells.energy(y0)


def lag(t: Tensor, y: Tensor) -> Tensor:
    """y' = 3 y - 2 cos t - 4 sin t: the paper's scalar problem, y = sin t + cos t."""
    return 3 * y - 2 * torch.cos(t) - 4 * torch.sin(t)


@pytest.mark.parametrize("inner", ["gd", "fr", "anderson", "newton_krylov"])
def test_inner_errors_add_up_at_most_linearly(inner):
    """On a dissipative f each C_k >= 1, so N steps with residuals below eps are within N eps of exact steps."""

    def f(t, y):
        return torch.cos(y) - 1.5 * y + torch.sin(t)  # f' in [-2.5, -0.5]

    y0 = torch.full((8,), 0.7, **torch_double) + torch.arange(8) / 10
    s, steps = 0.1, 200
    times = torch.arange(steps + 1, **torch_double) * s

    def run(tol):
        return proxode.solve(
            f, y0, 0.0, float(times[-1]), method="backward_euler", inner=inner, step_size=s, save_at=times,
            inner_tol=tol,
        ).ys  # fmt: skip

    exact = run(1e-15)
    for eps in (1e-3, 1e-5, 1e-7):
        error = torch.linalg.vector_norm(run(eps) - exact, dim=-1) / math.sqrt(8)
        allowed = eps * torch.arange(steps + 1, **torch_double)
        assert bool((error <= allowed + 1e-13).all())


def test_the_bound_on_inner_errors_holds_on_the_paper_s_growing_problem():
    """There C = |1 - 3 s| < 1 and errors are amplified, by no more than sum_j C^-j eps."""
    s, steps, eps = 0.01, 100, 1e-6
    y0 = torch.ones(1, **torch_double)
    times = torch.arange(steps + 1, **torch_double) * s

    def run(tol):
        return proxode.solve(
            lag, y0, 0.0, 1.0, method="backward_euler", inner="fixed_point", step_size=s, save_at=times, inner_tol=tol,
        ).ys[:, 0]  # fmt: skip

    error = (run(eps) - run(1e-15)).abs()
    growth = 1 / (1 - 3 * s)
    allowed = torch.tensor([eps * sum(growth**j for j in range(1, k + 1)) for k in range(steps + 1)], **torch_double)
    assert bool((error <= allowed + 1e-14).all())
    assert float(error[-1]) > 0.01 * float(allowed[-1])  # the bound is not idle
