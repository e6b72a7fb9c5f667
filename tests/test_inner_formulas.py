"""With a given step length the inner solvers are the paper's formulas, at one evaluation an iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from problems import diffusion, tanh_network
from torch import Tensor

from proxode.inner import INNER, Goal, ImplicitEquation, InnerSolver, Stop, inner_solvers, solve_equation

WITH_LR = [name for name, solver in INNER.items() if any(f.name == "lr" for f in fields(solver))]

Residual = Callable[[Tensor], Tensor]
Formula = Callable[[Residual, Tensor, float, int], list[Tensor]]


def iterates(solver: InnerSolver, equation: ImplicitEquation, z: Tensor, count: int) -> list[Tensor]:
    r = equation.residual(z)
    state = solver.init(equation, z, r, Goal(1e-12, 1e-12, lambda x: float(x.norm())))
    path = []
    for _ in range(count):
        z, state = solver.step(equation, z, r, state)
        r = equation.residual(z)
        path.append(z)
    return path


def gd(residual: Residual, z: Tensor, lr: float, count: int) -> list[Tensor]:
    path = []
    for _ in range(count):
        z = z - lr * residual(z)
        path.append(z)
    return path


def momentum(residual: Residual, z: Tensor, lr: float, count: int, restart: bool) -> list[Tensor]:
    """Nesterov: descend from the extrapolated point, extrapolate by (theta - 1) / theta_next."""
    path, x, theta, last = [], z, 1.0, torch.full_like(z, math.inf)
    for _ in range(count):
        r = residual(z)
        x_next = z - lr * r
        if restart and (r @ (x_next - x) > 0 or r.norm() > last.norm()):
            theta = 1.0
        theta_next = (1 + math.sqrt(1 + 4 * theta**2)) / 2
        z = x_next + (theta - 1) / theta_next * (x_next - x)
        x, theta, last = x_next, theta_next, r
        path.append(z)
    return path


def fr(residual: Residual, z: Tensor, lr: float, count: int) -> list[Tensor]:
    path, p, before = [], torch.zeros_like(z), math.inf
    for _ in range(count):
        r = residual(z)
        p = r + float(r @ r) / before * p
        z, before = z - lr * p, float(r @ r)
        path.append(z)
    return path


BY_HAND: dict[str, Formula] = {
    "gd": gd,
    "nag": lambda *a: momentum(*a, restart=False),
    "restart": lambda *a: momentum(*a, restart=True),
    "fr": fr,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_with_a_given_step_length_the_iterates_are_those_of_the_formula(name: str) -> None:
    p = diffusion("noise", 10.0)
    equation, lr = p.equation(), 0.05
    path = iterates(inner_solvers(name, size=128, lr=lr)[0], equation, p.guess, 40)
    by_hand = BY_HAND[name](p.equation().residual, p.guess, lr, 40)
    for ours, theirs in zip(path, by_hand, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-13)
    assert equation.f.stats.nfe_forward == 41


@pytest.mark.parametrize("name", WITH_LR)
def test_the_first_step_of_a_given_length_goes_along_the_residual(name: str) -> None:
    p = tanh_network(0.5)
    (first,) = iterates(inner_solvers(name, size=64, lr=0.3)[0], p.equation(), p.guess, 1)
    assert torch.allclose(first, p.guess - 0.3 * p.equation().residual(p.guess), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", [*WITH_LR, "fixed_point"])
def test_stopping_by_the_update_costs_one_evaluation_an_iteration(name: str) -> None:
    p, tol = diffusion("noise", 0.5), 1e-6
    solver = inner_solvers(name, size=128, lr=0.4 if name in WITH_LR else None)[0]
    equation = p.equation()
    result = solve_equation(solver, equation, p.guess, Stop(tol, kind="update"))
    assert result.converged
    assert equation.f.stats.nfe_forward == equation.f.stats.n_f == result.iterations
    if name == "lbfgs":
        return  # a point of which the residual is not known yet is not an iterate: it is one evaluation behind
    path = [p.guess, *iterates(solver, p.equation(), p.guess, result.iterations)]
    updates = [float((b - a).norm()) for a, b in pairwise(path)]
    assert updates[-1] == pytest.approx(result.size) and updates[-1] <= tol < min(updates[:-1])
    assert torch.equal(result.z, path[-1])
