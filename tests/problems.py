"""Equations `z = anchor + gamma f(t, z)` with a solution that was found another way, shared by the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from proxode.inner import ImplicitEquation
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField

Func = Callable[[Tensor, Tensor], Tensor]

POINTS = 128
DX = 1.0 / (POINTS - 1)
LAMBDA_MAX = 4.0 / DX**2  # of the periodic Laplacian: the alternating vector is a mode, for POINTS is even


@dataclass(frozen=True)
class Problem:
    """One implicit equation, flat, with its exact solution."""

    name: str
    func: Func  # of the time and the state in the shape of y0
    y0: Tensor  # where the step starts: the guess
    anchor: Tensor  # flat
    gamma: float
    solution: Tensor  # flat
    symmetric: bool
    contraction: float  # of the fixed-point iteration, at the solution: gamma times the spectral radius of J

    @property
    def guess(self) -> Tensor:
        return self.y0.flatten()

    def equation(self, func: Func | None = None) -> ImplicitEquation:
        """The equation with statistics of its own; `func` may be another form of the same f."""
        field = VectorField(func or self.func, Structure.of(self.y0), Stats())
        return ImplicitEquation(field, 0.0, self.anchor, self.gamma)

    def to(self, dtype: torch.dtype) -> Problem:
        y0, anchor, solution = self.y0.to(dtype), self.anchor.to(dtype), self.solution.to(dtype)
        return replace(self, y0=y0, anchor=anchor, solution=solution)


class Calls:
    """f with an honest count of its calls."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.count = 0

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        self.count += 1
        return self.func(t, y)


def laplacian(t: Tensor, y: Tensor) -> Tensor:
    return (torch.roll(y, 1, -1) + torch.roll(y, -1, -1) - 2 * y) / DX**2


def density() -> Tensor:
    x = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    return torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def noise() -> Tensor:
    return torch.randn(POINTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


DATA: dict[str, Callable[[], Tensor]] = {"density": density, "noise": noise}


@cache
def diffusion(data: str, stiffness: float) -> Problem:
    """A backward Euler step of the heat equation on a ring, with `gamma * lambda_max = stiffness`."""
    y0, gamma = DATA[data](), stiffness / LAMBDA_MAX
    eye = torch.eye(POINTS, dtype=y0.dtype)
    solution = torch.linalg.solve(eye - gamma * laplacian(torch.zeros(()), eye), y0)
    return Problem(f"diffusion-{data}-{stiffness:g}", laplacian, y0, y0, gamma, solution, True, stiffness)


def van_der_pol(mu: float, gamma: float, state: tuple[float, float]) -> Problem:
    """A backward Euler step of the oscillator `x'' = mu (1 - x^2) x' - x`."""

    def func(t: Tensor, y: Tensor) -> Tensor:
        x, v = y.unbind(-1)
        return torch.stack([v, mu * (1 - x * x) * v - x], -1)

    return _by_newton(f"vdp-{mu:g}-{gamma:g}-{state}", func, torch.tensor(state, dtype=torch.float64), gamma)


def tanh_network(gamma: float, batch: int | None = None) -> Problem:
    """A backward Euler step of `W2 tanh(W1 y + b)`, 64 wide: a Jacobian that is far from symmetric."""
    generator = torch.Generator().manual_seed(1)
    w1, w2 = torch.randn(2, 64, 64, generator=generator, dtype=torch.float64) / 8
    b = torch.randn(64, generator=generator, dtype=torch.float64)
    y0 = torch.randn(batch or 1, 64, generator=generator, dtype=torch.float64)

    def func(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ w1.T + b) @ w2.T

    return _by_newton(f"tanh-{gamma:g}-{batch or 1}", func, y0 if batch else y0[0], gamma)


def _by_newton(name: str, func: Func, y0: Tensor, gamma: float) -> Problem:
    rows = y0.reshape(-1, y0.shape[-1])
    solved = [newton(func, row, gamma) for row in rows]
    solution = torch.stack(solved).flatten()
    spectra = [torch.linalg.eigvals(gamma * dense_jacobian(func, z)) for z in solved]
    contraction = max(float(spectrum.abs().max()) for spectrum in spectra)
    return Problem(name, func, y0, y0.flatten(), gamma, solution, False, contraction)


def dense_jacobian(func: Func, y: Tensor) -> Tensor:
    t = torch.zeros((), dtype=y.dtype)
    jacobian: Tensor = torch.func.jacrev(lambda z: func(t, z))(y)
    return jacobian.reshape(y.numel(), y.numel())


def newton(func: Func, anchor: Tensor, gamma: float) -> Tensor:
    """The root of `z - anchor - gamma f(z)` nearest along Newton's path from the anchor, by damped steps."""

    def residual(z: Tensor) -> Tensor:
        return z - anchor - gamma * func(torch.zeros((), dtype=z.dtype), z)

    z, eye = anchor, torch.eye(anchor.numel(), dtype=anchor.dtype)
    for _ in range(100):
        r = residual(z)
        direction = torch.linalg.solve(eye - gamma * dense_jacobian(func, z), r)
        length = 1.0
        while length > 1e-6 and residual(z - length * direction).norm() > (1 - 0.1 * length) * r.norm():
            length /= 2
        if direction.norm() <= 1e-15 * z.norm() or length <= 1e-6:
            break
        z = z - length * direction
    assert residual(z).norm() <= 1e-12 * (1 + z.norm()), "the reference itself did not converge"
    return z
