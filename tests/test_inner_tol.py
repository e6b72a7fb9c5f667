"""`inner_tol`: a bound of the user's own, which makes no step of what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import Status

N = 128
Y0 = torch.exp(-100 * (torch.linspace(0, 1, N, dtype=torch.float64) - 0.5) ** 2)


def heat(t: Tensor, y: Tensor) -> Tensor:
    return N**2 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1))


def solve(**options: Any) -> proxode.Solution:
    return proxode.solve(heat, Y0, 0.0, 0.1, max_steps=1_000, throw=False, **options)


EXACT = solve(method="bdf", rtol=1e-9, atol=1e-11).ys[-1]


@pytest.mark.parametrize("tol", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("inner", ["auto", "anderson", "newton_krylov"])
@pytest.mark.parametrize("method", ["bdf", "multistage2", "crank_nicolson"])
def test_beside_adaptive_steps_a_loose_one_changes_nothing(method: str, inner: str, tol: float) -> None:
    """The guess met it: 60,000 steps as short as explicit ones, and SUCCESS far off."""
    plain, loose = (solve(method=method, inner=inner, **given) for given in ({}, {"inner_tol": tol}))
    assert loose.status is Status.SUCCESS and loose.stats.n_steps <= 1.1 * plain.stats.n_steps
    assert loose.stats.nfe_forward <= 1.5 * plain.stats.nfe_forward
    assert float((loose.ys[-1] - EXACT).abs().max()) <= 3e-4


def test_and_a_tight_one_is_kept() -> None:
    plain, tight = (solve(method="bdf", inner="newton_krylov", **given) for given in ({}, {"inner_tol": 1e-11}))
    assert plain.stats.nfe_forward < tight.stats.nfe_forward < 10 * plain.stats.nfe_forward
    exact = solve(method="bdf", inner="newton", inner_tol=1e-13)
    assert float((tight.ys[-1] - exact.ys[-1]).abs().max()) <= 1e-3 * float((tight.ys[-1] - EXACT).abs().max())


@pytest.mark.parametrize("tol", [1e-2, 1.0])
@pytest.mark.parametrize("inner", ["fr", "anderson", "auto"])
def test_with_fixed_steps_a_guess_is_no_solution(inner: str, tol: float) -> None:
    """It was off by all of the solution."""
    loose = solve(method="bdf2", step_size=0.01, inner=inner, inner_tol=tol)
    assert loose.status is Status.SUCCESS
    assert float((loose.ys[-1] - EXACT).abs().max()) <= 0.05 * float(EXACT.abs().max())
