"""Proximal one-step methods: backward Euler, Crank-Nicolson, multi-stage, and the SDIRK that starts BDF."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from torch import Tensor

from ..inner import ImplicitEquation, Solve
from ..interpolation import Hermite, Interpolant, Linear, combine
from ..times import Time, beside
from ..vector_field import VectorField
from .base import History, Proximal, Step, slope_after
from .estimate import error_constant
from .proximal_tableaus import MULTISTAGE, SDIRK4
from .tableaus import DirkTableau, ProximalTableau


@dataclass(frozen=True)
class BackwardEuler(Proximal):
    """`h_{k+1} = h_k + s f(t_{k+1}, h_{k+1})`. Order 1, L-stable, decreases F for every step size."""

    @property
    def name(self) -> str:
        return "backward_euler"

    @property
    def order(self) -> int:
        return 1

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        y0 = history.ys[0]
        history = self.started(f, t0, history, side)
        equation = ImplicitEquation(f, beside(t1, -side, y0.dtype), y0, t1 - t0)
        result = self.solved(solve, equation, t1, history, y0)
        following = history.push(t1, result.z, slope_after(equation, result), self.points)
        return Step(
            result.z,
            following,
            Linear(t0, t1, y0, result.z),
            self.error_of(t1, result.z, history, 0.5, history.slope),
            failure=None if result.converged else result,
            retry=history,
        )


@dataclass(frozen=True)
class CrankNicolson(Proximal):
    """`h_{k+1} = h_k + s/2 (f(t_k, h_k) + f(t_{k+1}, h_{k+1}))`. Order 2, A-stable.

    f at the start of a step is what the last solve evaluated at its solution: one evaluation per solve, not two.
    """

    @property
    def name(self) -> str:
        return "crank_nicolson"

    @property
    def order(self) -> int:
        return 2

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        y0, half = history.ys[0], 0.5 * (t1 - t0)
        slope0 = f(beside(t0, side, y0.dtype), y0) if history.slope is None else history.slope
        anchor = combine(y0, [half], [slope0])
        equation = ImplicitEquation(f, beside(t1, -side, y0.dtype), anchor, half)
        result = self.solved(solve, equation, t1, history, y0)
        slope1 = slope_after(equation, result)
        return Step(
            result.z,
            history.push(t1, result.z, slope1, self.points),
            hermite(f, t0, t1, y0, result.z, slope0, slope1, side),
            self.error_of(t1, result.z, history, 1.0 / 12.0, slope0),
            failure=None if result.converged else result,
            retry=history._replace(slope=slope0),
        )


@dataclass(frozen=True)
class MultiStage(Proximal):
    """The multi-stage schemes of Zaitzeff, Esedoglu & Garikipati: stage m solves
    `z^m = sum_i gamma_{m,i} z^i / G_m + (s / G_m) f(t_k + c_m s, z^m)`, `z^0 = h_k`, `h_{k+1} = z^M`.

    Order 2 with three stages or 3 with six; both decrease F for every step size. The second-order one is stable
    in the whole left half plane; the third-order one is for gradient flows (|R(iy)| reaches 1.33).
    """

    tableau: ProximalTableau = field(default_factory=lambda: MULTISTAGE["multistage2"])

    @property
    def name(self) -> str:
        return self.tableau.name

    @property
    def order(self) -> int:
        return self.tableau.order

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        history = self.started(f, t0, history, side)
        h, y0 = t1 - t0, history.ys[0]
        z, slope = [y0], history.slope
        for weights, gamma, c in zip(
            self.tableau.anchor_weights, self.tableau.gammas, self.tableau.c, strict=True
        ):
            t = beside(t1, -side, y0.dtype) if c == 1.0 else t0 + c * h
            equation = ImplicitEquation(f, t, combine(None, weights, z), gamma * h)
            result = self.solved(solve, equation, t, history, z[-1])
            z.append(result.z)
            slope = slope_after(equation, result)
            if not result.converged:
                return Step(result.z, history, Linear(t0, t1, y0, result.z), failure=result, retry=history)
        following = history.push(t1, z[-1], slope, self.points)
        a, b, _ = self.tableau.butcher()
        return Step(
            z[-1],
            following,
            hermite(f, t0, t1, y0, z[-1], history.slope, slope, side),
            self.error_of(t1, z[-1], history, abs(error_constant(a, b, self.order)), history.slope),
            retry=history,
        )


@dataclass(frozen=True)
class Sdirk(Proximal):
    """A diagonally implicit Runge-Kutta method whose last stage is the step:
    `z_i = h_k + s sum_{j<i} a_ij f_j + s a_ii f(t_k + c_i s, z_i)`. Starts the higher BDF."""

    tableau: DirkTableau = SDIRK4

    @property
    def name(self) -> str:
        return self.tableau.name

    @property
    def order(self) -> int:
        return self.tableau.order

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        h, y0 = t1 - t0, history.ys[0]
        slopes: list[Tensor] = []
        z = y0
        for row, c in zip(self.tableau.a, self.tableau.c, strict=True):
            t = beside(t1, -side, y0.dtype) if c == 1.0 else t0 + c * h
            equation = ImplicitEquation(f, t, combine(y0, [h * a for a in row[:-1]], slopes), row[-1] * h)
            result = self.solved(solve, equation, t, history, z)
            if not result.converged:
                return Step(result.z, history, Linear(t0, t1, y0, result.z), failure=result)
            z = result.z
            slopes.append(equation.velocity(z, result.residual))
        following = history.push(t1, z, slopes[-1], self.points)
        return Step(z, following, hermite(f, t0, t1, y0, z, history.slope, slopes[-1], side))


def hermite(
    f: VectorField, t0: Time, t1: Time, y0: Tensor, y1: Tensor, slope0: Tensor | None, slope1: Tensor | None, side: int
) -> Interpolant:
    """The Hermite cubic, evaluating f at an end only where the slope there is not known and only if asked."""
    inside0, inside1 = beside(t0, side, y0.dtype), beside(t1, -side, y0.dtype)
    return Hermite(
        t0, t1, y0, y1,
        cache(lambda: f(inside0, y0) if slope0 is None else slope0),
        cache(lambda: f(inside1, y1) if slope1 is None else slope1),
    )  # fmt: skip
