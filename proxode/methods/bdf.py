"""Backward differentiation formulas on a history of (t, y) points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..inner import ImplicitEquation, Solve
from ..interpolation import Lagrange, combine
from ..times import Time, beside, number
from ..vector_field import VectorField
from .base import History, Method, Proximal, Step, slope_after
from .dirk import BackwardEuler, Sdirk
from .tableaus import TOLERANCE

MAX_ORDER = 5

# Largest ratio of successive steps for which the variable-coefficient formulas are zero-stable whatever the
# sequence (Calvo, Grande & Grigorieff 1990), rounded down.
LARGEST_RATIO = {2: 2.41, 3: 1.47, 4: 1.27, 5: 1.12}


def bdf_coefficients(t1: Time, nodes: Sequence[Time]) -> tuple[list[Time], Time]:
    """Weights and gamma of `z = sum_i weights_i y_i + gamma f(t1, z)`: the polynomial through (t1, z) and the
    points (nodes_i, y_i) has slope f at t1. Any spacing; equal steps give the classical coefficients."""
    leading: Time = 0.0
    for node in nodes:
        leading = leading + 1.0 / (t1 - node)
    weights: list[Time] = []
    for i, node in enumerate(nodes):
        slope = 1.0 / (node - t1)
        for j, other in enumerate(nodes):
            if j != i:
                slope = slope * (t1 - other) / (node - other)
        weights.append(-slope / leading)
    return weights, 1.0 / leading


def stable_order(t1: Time, nodes: Sequence[Time]) -> int:
    """The highest order, up to len(nodes), at which steps that grow as these do are stable."""
    times = [number(t1), *map(number, nodes)]
    steps = [later - earlier for later, earlier in itertools.pairwise(times)]
    for order in range(len(nodes), 1, -1):
        growth = max(newer / older for newer, older in itertools.pairwise(steps[:order]))
        if growth <= LARGEST_RATIO[order]:
            return order
    return 1


@dataclass(frozen=True)
class BDF(Proximal):
    """BDF of order k, 1 to 5, in variable-coefficient form: `z = sum_i alpha_i h_{k-i} + gamma f(t_{k+1}, z)`.

    Order 1 and 2 are L-stable, 3 to 5 A(86.0), A(73.4) and A(51.8) degrees.

    Start: with fewer than k past points, order 2 takes a step of backward Euler, whose one local error of order
    s^2 does not lower the order and whose energy decreases; orders 3 to 5 take steps of the L-stable SDIRK
    method of order 4 (local errors of order s^5). After a jump of f it starts in the same way.

    On a grid whose steps grow faster than the formula stays stable, the order is lowered for as long.
    """

    max_order: int = 2
    accurate_start: bool = False  # start order 2 with the SDIRK method too: for many starts, whose errors add up

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_order <= MAX_ORDER:
            raise ValueError(f"`max_order` of BDF must be from 1 to {MAX_ORDER}, not {self.max_order}")
        _validate(self.max_order)

    @property
    def name(self) -> str:
        return f"bdf{self.max_order}"

    @property
    def order(self) -> int:
        return self.max_order

    @property
    def points(self) -> int:
        return self.max_order + (self.predictor != "previous")

    def adapting(self) -> Method:
        from .variable_bdf import VariableBDF  # which is made of this one's coefficients

        return VariableBDF(self.predictor, max_order=self.max_order)

    def restarting(self) -> BDF:
        return replace(self, accurate_start=True)

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        k = self.max_order
        if len(history.ts) < k:
            starter = BackwardEuler(self.predictor) if k == 2 and not self.accurate_start else Sdirk(self.predictor)
            started = starter.step(f, t0, t1, history, solve, side)
            if started.failure is not None:
                return started
            following = history.push(t1, started.y1, started.history.slope, self.points)
            return Step(started.y1, following, started.interpolant)
        k = stable_order(t1, history.ts[:k])
        weights, gamma = bdf_coefficients(t1, history.ts[:k])
        anchor = combine(None, weights, history.ys[:k])
        equation = ImplicitEquation(f, beside(t1, -side, anchor.dtype), anchor, gamma)
        result = self.solved(solve, equation, t1, history, history.ys[0])
        following = history.push(t1, result.z, slope_after(equation, result), self.points)
        through = Lagrange((t1, *history.ts[:k]), (result.z, *history.ys[:k]))
        return Step(result.z, following, through, failure=None if result.converged else result)


def _validate(k: int) -> None:
    """The order conditions on equal steps: exact for 1, t, ..., t^k."""
    nodes = [float(-i) for i in range(k)]
    weights, gamma = bdf_coefficients(1.0, nodes)
    for power in range(k + 1):
        slope = float(power) if power else 0.0
        residual = 1.0 - gamma * slope - sum(w * node**power for w, node in zip(weights, nodes, strict=True))
        if abs(number(residual)) > TOLERANCE * 5.0**power:
            raise ValueError(f"bdf{k}: the order condition of power {power} fails by {number(residual):.1e}")
