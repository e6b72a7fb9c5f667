"""Experiment 3 of the paper, and the question behind it: what does an inner solver cost as the step grows?

One backward Euler step of the diffusion problem, `z = h - gamma A z`, solved by every inner solver of the
registry with no step length given. All that matters is the stiffness `gamma * lambda_max`: gradient descent
needs evaluations in proportion to it, the accelerated ones in proportion to its square root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..inner import Goal, ImplicitEquation, InnerSolver, Stop, solve_equation
from ..solution import Stats
from ..structure import Structure
from ..vector_field import VectorField
from .diffusion import INITIAL_DATA, Diffusion

TOL = 1e-10  # on the root mean square of the residual
FIT_FROM = 1.0  # below, every solver needs a handful of evaluations and there is no growth to fit
PAPER_STIFFNESS = 64516 / 2000  # of the paper's experiment: 128 points and a step of 1/2000
PRINTED_LR = 0.1
INVERSE_LR = 1 / (1 + PAPER_STIFFNESS)  # one over the Lipschitz constant of the residual
PATH_LIMIT = 400  # evaluations


@dataclass(frozen=True)
class Cost:
    """One solver on one equation."""

    kind: str
    data: str
    solver: str
    stiffness: float
    gamma: float
    status: str
    nfe: int
    iterations: int
    residual: float
    error: float  # max norm of z minus the exact solution


@dataclass(frozen=True)
class Path3:
    """The way of one solver: distance of each iterate to the one before and to the solution, in the 2-norm."""

    kind: str
    data: str
    solver: str
    stiffness: float
    lr: float | None  # None where the solver finds its own
    start: float  # distance of the guess to the solution
    nfe: list[int] = field(default_factory=list)  # spent when the iterate was known
    updates: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)


def exact_step(problem: Diffusion, h: Tensor, gamma: float) -> Tensor:
    """The backward Euler step by Fourier: each mode is divided by `1 + gamma * rate`."""
    k = torch.arange(problem.points // 2 + 1, dtype=h.dtype)
    rate = 4.0 / problem.dx**2 * torch.sin(math.pi * k / problem.points) ** 2
    z: Tensor = torch.fft.irfft(torch.fft.rfft(h) / (1 + gamma * rate), n=problem.points)
    return z


def step_equation(problem: Diffusion, h: Tensor, gamma: float) -> ImplicitEquation:
    return ImplicitEquation(VectorField(problem.f, Structure.of(h), Stats()), 0.0, h, gamma)


def cost(problem: Diffusion, data: str, solver: InnerSolver, stiffness: float, seed: int = 0) -> Cost:
    h, gamma = INITIAL_DATA[data](problem.points, seed), stiffness / abs(problem.stiffest)
    equation = step_equation(problem, h, gamma)
    result = solve_equation(solver, equation, h, Stop(TOL))
    return Cost(
        kind="cost",
        data=data,
        solver=solver.name,
        stiffness=stiffness,
        gamma=gamma,
        status=result.status.name,
        nfe=equation.f.stats.nfe_forward,
        iterations=result.iterations,
        residual=result.size,
        error=float((result.z - exact_step(problem, h, gamma)).abs().max()),
    )


@torch.no_grad()
def path(problem: Diffusion, data: str, solver: InnerSolver, stiffness: float, seed: int = 0) -> Path3:
    """Iterate for `PATH_LIMIT` evaluations, until nothing moves or until the iteration explodes."""
    h, gamma = INITIAL_DATA[data](problem.points, seed), stiffness / abs(problem.stiffest)
    equation, exact = step_equation(problem, h, gamma), exact_step(problem, h, gamma)
    row, before = Path3("path", data, solver.name, stiffness, getattr(solver, "lr", None), float((h - exact).norm())), h
    for nfe, z in _iterates(solver, equation, h):
        update, error = float((z - before).norm()), float((z - exact).norm())
        if update == 0.0:
            continue
        row.nfe.append(nfe)
        row.updates.append(update)
        row.errors.append(error)
        if update < 1e-13 or not error < 1e3 or nfe >= PATH_LIMIT:
            break
        before = z
    return row


def _iterates(solver: InnerSolver, equation: ImplicitEquation, z: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The iterates, each with the evaluations spent on it. `fr` evaluates trial points in between, and says so."""
    r = equation.residual(z)
    goal = Goal(TOL / float(r.norm()), TOL, lambda x: float(x.norm()))
    state = solver.init(equation, z, r, goal)
    for _ in range(PATH_LIMIT):
        z, state = solver.step(equation, z, r, state)
        yield equation.f.stats.nfe_forward, solver.iterate(z, state)
        r = equation.residual(z)


def slope(rows: Sequence[dict[str, Any]]) -> float | None:
    """The growth exponent of the evaluations: the least-squares slope of log NFE over log stiffness."""
    fitted = [row for row in rows if row["status"] == "SUCCESS" and row["stiffness"] >= FIT_FROM]
    if len(fitted) < 3:
        return None
    x = torch.tensor([row["stiffness"] for row in fitted], dtype=torch.float64).log()
    y = torch.tensor([row["nfe"] for row in fitted], dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / (x @ x))


def evaluations_to(row: dict[str, Any], part: float) -> int | None:
    """Evaluations until the distance to the solution is this part of the first guess's, for good; None is never."""
    reached: int | None = None
    for nfe, error in zip(row["nfe"], row["errors"], strict=True):
        if error is None or error > part * row["start"]:
            reached = None
        elif reached is None:
            reached = nfe
    return reached


def describe(points: int) -> dict[str, Any]:
    return {
        "equation": "one backward Euler step of h_t = h_xx, z = h + gamma f(z), from the guess z = h",
        "points": points,
        "lambda_max": abs(Diffusion(points).stiffest),
        "tolerance": f"root mean square of the residual at most {TOL:g}",
        "paths": f"gamma * lambda_max = {PAPER_STIFFNESS:.4g} as in the paper; lengths found, {PRINTED_LR:g}, or 1/L",
        "dtype": "float64",
        "nfe": "evaluations of f and products with its Jacobian; a dense Jacobian counts its columns",
        "fit_from": FIT_FROM,
    }
