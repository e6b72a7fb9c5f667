"""Stiff problems on which solvers are compared: f for torch tensors, where it starts, when it is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxode.paper.diffusion import OUTPUTS, Diffusion, density

SEED = 0
Field = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """dy/dt = f(t, y) from y0 at t0, looked at at `times`, the last of which is t1."""

    name: str
    title: str
    f: Field
    y0: Tensor
    times: Tensor
    factor: Tensor  # of each component: the absolute tolerance is this times tol
    kind: str = "small"  # "small": only dense linear algebra is of interest; "large": matrix-free too
    exact: Callable[[Tensor], Tensor] | None = None  # the solution at given times, `(len(t), n)`, where it is known
    reference: str = "tight"  # how the reference is made where it is not (see `references.WAYS`)
    t0: float = 0.0

    @property
    def t1(self) -> float:
        return float(self.times[-1])

    @property
    def size(self) -> int:
        return len(self.y0)

    def atol(self, tol: float) -> Tensor:
        return tol * self.factor


def problem(
    name: str, title: str, f: Field, y0: Tensor, times: Tensor, factor: tuple[float, ...] | None = None, **more: Any
) -> Problem:
    """With a factor of one for every component, unless it is given."""
    chosen = torch.ones_like(y0) if factor is None else torch.tensor(factor, dtype=y0.dtype)
    return Problem(name, title, f, y0, times, chosen, **more)


def equal_times(t1: float, count: int = 20) -> Tensor:
    """`count` equal distances, without t0 = 0, where there is nothing to see."""
    return torch.linspace(0.0, t1, count + 1, dtype=torch.float64)[1:]


def state(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Small ones


def van_der_pol(mu: float) -> Field:
    def f(t: Any, y: Tensor) -> Tensor:
        return torch.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    return f


def robertson(t: Any, y: Tensor) -> Tensor:
    """Three reactions whose rates are nine orders of magnitude apart (Robertson 1966)."""
    a, b, c = y.unbind()
    slow, middle, fast = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return torch.stack([middle - slow, slow - middle - fast, fast])


# Large ones


def brusselator(points: int) -> Field:
    """u and v on a line, with diffusion 1/50 and fixed ends (Hairer & Wanner IV.1); the state is all u, then all v."""
    spread = (points + 1) ** 2 / 50
    end_u, end_v = torch.ones(1, dtype=torch.float64), 3 * torch.ones(1, dtype=torch.float64)

    def f(t: Any, y: Tensor) -> Tensor:
        u, v = y[:points], y[points:]
        u_wide, v_wide = torch.cat([end_u, u, end_u]), torch.cat([end_v, v, end_v])
        made = u * u * v
        du = 1 + made - 4 * u + spread * (u_wide[2:] + u_wide[:-2] - 2 * u)
        dv = 3 * u - made + spread * (v_wide[2:] + v_wide[:-2] - 2 * v)
        return torch.cat([du, dv])

    return f


def brusselator_start(points: int) -> Tensor:
    x = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
    return torch.cat([1 + torch.sin(2 * math.pi * x), 3 * torch.ones_like(x)])


def allen_cahn(points: int, eps: float = 0.01) -> Field:
    """u_t = eps^2 u_xx + u - u^3 on a ring of length one."""
    spread = (eps * points) ** 2

    def f(t: Any, u: Tensor) -> Tensor:
        return spread * (torch.roll(u, 1) + torch.roll(u, -1) - 2 * u) + u - u**3

    return f


def noise(points: int, size: float) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return size * torch.randn(points, generator=generator, dtype=torch.float64)


def diffusion(points: int = 128) -> Problem:
    """That of the paper, with its closed solution."""
    ring, h0 = Diffusion(points), density(points)
    return problem("diffusion", f"diffusion, {points} points", ring.f, h0, equal_times(1.0, OUTPUTS), kind="large",
                   exact=lambda t: ring.exact(h0, t))  # fmt: skip


def all_problems() -> tuple[Problem, ...]:
    decades = 10.0 ** torch.linspace(-4, 11, 21, dtype=torch.float64)
    quiet = torch.tensor([t for t in range(100, 2001, 100) if t not in (800, 1600)], dtype=torch.float64)
    return (
        diffusion(),
        # Not at the jumps (t = 807, 1614), where an error of 1e-3 in time is one of 1 in the state.
        problem("van_der_pol", "Van der Pol, μ = 1000", van_der_pol(1e3), state(2, 0), quiet),
        # The tolerances of CVODE's own example, (1e-8, 1e-14, 1e-6) at rtol = 1e-4. With larger ones the first two
        # concentrations may fall below zero, where the equations explode: then it is luck who gets through.
        problem("robertson", "Robertson, t to 1e11", robertson, state(1, 0, 0), decades, (1e-4, 1e-10, 1e-2)),
        problem("brusselator", "Brusselator, 200 unknowns", brusselator(100), brusselator_start(100),
                equal_times(10.0), kind="large"),
        problem("allen_cahn", "Allen-Cahn, 128 points", allen_cahn(128), noise(128, 0.5), equal_times(20.0),
                kind="large"),
    )  # fmt: skip
