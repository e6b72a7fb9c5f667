"""Runge-Kutta-Chebyshev: an explicit method whose region of stability grows with the square of its stages.

The second-order formulas, the error estimate and the choice of the number of stages are those of RKC (Sommeijer,
Shampine & Verwer, J. Comput. Appl. Math. 88, 1997): for problems whose Jacobian has its eigenvalues near the negative
real axis, such as diffusion, s stages reach 0.65 s^2 where s steps of a common method reach 2 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..inner import Solve
from ..interpolation import Hermite, combine
from ..norms import two_norm
from ..rough import rough_signs
from ..times import Time, beside, number
from ..vector_field import VectorField
from .base import Method, Step

DAMPING = 2.0 / 13.0  # epsilon of the paper: what the stability polynomial stays away from one by
SAFE = 1.2  # the power method estimates from below
LASTS = 25  # accepted steps after which rho is estimated again
MAX_POWERS = 50
SETTLED = 0.01  # relative change of an estimate of rho that ends the power method


class Coefficients(NamedTuple):
    """Of `Y_j = (1 - mu - nu) Y_0 + mu Y_(j-1) + nu Y_(j-2) + h (mu_f F_(j-1) + gamma F_0)`, for j = 2 to s."""

    c: tuple[float, ...]  # of stages 0 to s
    first: float  # Y_1 = Y_0 + first h F_0
    mu: tuple[float, ...]
    nu: tuple[float, ...]
    mu_f: tuple[float, ...]
    gamma: tuple[float, ...]


@lru_cache(maxsize=1024)
def coefficients(s: int) -> Coefficients:
    """From Chebyshev polynomials and their derivatives at w0, by their recurrences."""
    w0 = 1.0 + DAMPING / s**2
    t, dt, ddt = [1.0, w0], [0.0, 1.0], [0.0, 0.0]
    for j in range(2, s + 1):
        t.append(2.0 * w0 * t[-1] - t[-2])
        dt.append(2.0 * w0 * dt[-1] - dt[-2] + 2.0 * t[j - 1])
        ddt.append(2.0 * w0 * ddt[-1] - ddt[-2] + 4.0 * dt[j - 1])
    w1 = dt[s] / ddt[s]
    b = [0.0, 0.0, *(ddt[j] / dt[j] ** 2 for j in range(2, s + 1))]
    b[0] = b[1] = b[2]
    c = [0.0, 0.0, *(w1 * ddt[j] / dt[j] for j in range(2, s + 1))]
    c[1], c[s] = c[2] / dt[2], 1.0
    a = [1.0 - b[j] * t[j] for j in range(s + 1)]
    mu_f = [2.0 * b[j] * w1 / b[j - 1] for j in range(2, s + 1)]
    return Coefficients(
        tuple(c),
        b[1] * w1,
        tuple(2.0 * b[j] * w0 / b[j - 1] for j in range(2, s + 1)),
        tuple(-b[j] / b[j - 2] for j in range(2, s + 1)),
        tuple(mu_f),
        tuple(-a[j - 1] * mu_f[j - 2] for j in range(2, s + 1)),
    )


def stages_for(h_rho: float) -> int:
    """The fewest stages, and no fewer than two, whose region of stability reaches -h_rho."""
    return max(2, 1 + math.floor(math.sqrt(1.54 * max(h_rho, 0.0) + 1.0)))


class ChebyshevHistory(NamedTuple):
    y: Tensor
    slope: Tensor | None  # f at y, where it is known
    rho: float = 0.0
    age: int = LASTS  # accepted steps since rho was estimated
    direction: Tensor | None = None  # to which the power method had come

    @property
    def states(self) -> tuple[Tensor, ...]:
        return (self.y,) if self.slope is None else (self.y, self.slope)

    def rebuilt(self, states: Sequence[Tensor], time: Callable[[Time], Time]) -> ChebyshevHistory:
        return self._replace(y=states[0], slope=states[1] if self.slope is not None else None)


@dataclass(frozen=True)
class Chebyshev(Method):
    """RKC of order two: as many stages as h times the spectral radius of the Jacobian asks for.

    The radius comes from a power method on differences of f, warm from where it ended before, every 25 steps and after
    a step that was rejected. `rho` gives it instead, as a number or as a function of t, if it is known.
    """

    rho: float | Callable[[float], float] | None = None

    implicit: ClassVar[bool] = False
    adaptive: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("rho",)

    def __post_init__(self) -> None:
        rho = self.rho
        if rho is not None and not callable(rho) and not (isinstance(rho, int | float) and 0.0 < rho < math.inf):
            raise ValueError(f"`rho`, a bound of the spectral radius, must be a positive number or rho(t), not {rho!r}")

    @property
    def name(self) -> str:
        return "rkc2"

    @property
    def order(self) -> int:
        return 2

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> ChebyshevHistory:
        return ChebyshevHistory(y0, f(beside(t0, side, y0.dtype), y0))

    def after_jump(self, history: ChebyshevHistory) -> ChebyshevHistory:
        return ChebyshevHistory(history.y, None)

    def step(self, f: VectorField, t0: Time, t1: Time, history: ChebyshevHistory, solve: Solve, side: int = 0) -> Step:
        y0, h = history.y, t1 - t0
        slope = f(beside(t0, side, y0.dtype), y0) if history.slope is None else history.slope
        known = self._with_radius(f, t0, history._replace(slope=slope))
        y1 = self._stages(f, t0, h, y0, slope, stages_for(number(h) * known.rho))
        slope1 = f(beside(t1, -side, y0.dtype), y1)
        with torch.no_grad():
            ends = [k.detach() for k in (y0, y1, slope, slope1)]
            error = combine(None, (0.8, -0.8, 0.4 * number(h), 0.4 * number(h)), ends)
        return Step(
            y1,
            known._replace(y=y1, slope=None if side else slope1, age=known.age + 1),
            Hermite(t0, t1, y0, y1, lambda: slope, lambda: slope1),
            error=error,
            retry=known._replace(age=LASTS if known.age else 0),
        )

    def _stages(self, f: VectorField, t0: Time, h: Time, y0: Tensor, slope: Tensor, s: int) -> Tensor:
        of = coefficients(s)
        before, y = y0, combine(y0, (h * of.first,), (slope,))
        rows = zip(of.c[1:-1], of.mu, of.nu, of.mu_f, of.gamma, strict=True)
        for c, mu, nu, mu_f, gamma in rows:
            weights = (1.0 - mu - nu, mu, nu, h * mu_f, h * gamma)
            before, y = y, combine(None, weights, (y0, y, before, f(t0 + c * h, y), slope))
        return y

    def _with_radius(self, f: VectorField, t0: Time, history: ChebyshevHistory) -> ChebyshevHistory:
        if self.rho is not None:
            rho = self.rho(f.user_time(t0)) if callable(self.rho) else self.rho
            return history._replace(rho=float(rho), age=0)
        if history.age < LASTS or history.slope is None:
            return history
        rho, direction = spectral_radius(f, t0, history.y.detach(), history.slope.detach(), history.direction)
        return history._replace(rho=rho, age=0, direction=direction)


@torch.no_grad()
def spectral_radius(
    f: VectorField, t: Time, y: Tensor, slope: Tensor, direction: Tensor | None
) -> tuple[float, Tensor]:
    """A bound of the largest eigenvalue of df/dy in size, by a power method on differences of f, and its direction."""
    v = rough_signs(y, 1) if direction is None else direction
    size = float(two_norm(y)) or 1.0
    small = math.sqrt(torch.finfo(y.dtype).eps) * size
    rho = 0.0
    for i in range(MAX_POWERS):
        change = f(t, torch.add(y, v, alpha=small / float(two_norm(v)))) - slope
        last, rho = rho, float(two_norm(change)) / small
        if rho == 0.0 or not math.isfinite(rho):
            return (0.0 if rho == 0.0 else last), v
        v = change
        if i >= 1 and abs(rho - last) <= SETTLED * rho:
            break
    return SAFE * rho, v
