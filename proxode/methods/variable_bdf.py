"""BDF with variable step and order, on a history of (t, y) points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..inner import ImplicitEquation, Solve
from ..interpolation import Lagrange, combine, lagrange_weights
from ..times import Time, beside, number
from ..vector_field import VectorField
from .base import History, Neighbour, Proximal, Step
from .bdf import BDF, MAX_ORDER, bdf_coefficients


@dataclass(frozen=True)
class VariableBDF(Proximal):
    """BDF of order 1 to `max_order`, in variable-coefficient form (Brayton, Gustavson & Hachtel 1972): the polynomial
    through the new point and the last k has slope f there, whatever the spacing.

    The predictor is the polynomial through the last k + 1 points; how far it was off gives the local error, and
    divided differences over one point less and one more give those of the neighbouring orders.
    """

    max_order: int = MAX_ORDER

    estimating: bool = True

    steering: ClassVar[str] = "order"

    def __post_init__(self) -> None:
        super().__post_init__()
        BDF(max_order=self.max_order)  # checks the order and the coefficients

    @property
    def name(self) -> str:
        return "bdf" if self.max_order == MAX_ORDER else f"bdf{self.max_order}"

    @property
    def order(self) -> int:
        return self.max_order

    def stepping(self) -> BDF:
        return BDF(self.predictor, max_order=self.max_order)

    @property
    def error_power(self) -> int:
        return 2  # of the first step

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> History:
        return History((t0,), (y0,), f(beside(t0, side, y0.dtype), y0))

    def with_order(self, history: History, order: int) -> History:
        order = min(order, self.max_order)
        return history if order == history.order else history._replace(order=order, since=0)

    def step(self, f: VectorField, t0: Time, t1: Time, history: History, solve: Solve, side: int = 0) -> Step:
        if len(history.ts) == 1 and history.slope is None:
            history = history._replace(slope=f(beside(t0, side, history.ys[0].dtype), history.ys[0]))
        k = min(history.order, len(history.ts))
        weights, gamma = bdf_coefficients(t1, history.ts[:k])
        anchor = combine(None, weights, history.ys[:k])
        times = [number(t) for t in (t1, *history.ts)]
        weight = error_part(times, k)
        equation = ImplicitEquation(f, beside(t1, -side, anchor.dtype), anchor, gamma)
        predicted = self._predicted(t1, history, k)
        result = solve(equation, predicted if self.predictor == "extrapolate" else history.ys[0].detach())
        z = result.z
        ts, ys = (t1, *history.ts), (z, *history.ys)
        kept = min(k + 2, self.max_order + 1)  # what order k + 1 asks for
        following = History(ts[:kept], ys[:kept], None, k, history.since + 1)  # of its slope no later step has a use
        if not result.converged:
            return Step(z, following, Lagrange(ts[: k + 1], ys[: k + 1]), failure=result, retry=history, order=k)
        with torch.no_grad():
            error = weight * (z.detach() - predicted)
            neighbours = tuple(self._neighbours(times, ys, following))
        return Step(
            z, following, Lagrange(ts[: k + 1], ys[: k + 1]), error, retry=history, order=k, neighbours=neighbours
        )

    def _predicted(self, t1: Time, history: History, k: int) -> Tensor:
        """The polynomial of degree k through what is known; from one point along the slope."""
        with torch.no_grad():
            if len(history.ts) == 1 and history.slope is not None:
                h = number(t1) - number(history.ts[0])
                return torch.add(history.ys[0].detach(), history.slope.detach(), alpha=h)
            nodes = [number(t) for t in history.ts[: k + 1]]
            return combine(None, lagrange_weights(number(t1), nodes), [y.detach() for y in history.ys[: k + 1]])

    def _neighbours(self, times: list[float], ys: tuple[Tensor, ...], following: History) -> list[Neighbour]:
        """Only after k + 1 steps at order k: the points must have settled to it."""
        k = following.order
        if following.since <= k:
            return []
        orders = [order for order in (k - 1, k + 1) if 1 <= order <= self.max_order and len(times) >= order + 2]
        return [Neighbour(order, difference_error(times, ys, order)) for order in orders]


def error_part(times: Sequence[float], k: int) -> float:
    """The part of (solution - prediction) that is the local error of the solution, at order k.

    With E = y^(k+1)/(k+1)! prod (t1 - t_i) over the k past points of the formula, the solution is off by gamma E and
    the prediction, through one point t_k more, by -(t1 - t_k) E. From a single point the prediction follows the slope.
    """
    t1, past = times[0], times[1:]
    _, gamma = bdf_coefficients(t1, past[:k])
    reach = t1 - past[min(k, len(past) - 1)]
    return number(gamma) / (reach + number(gamma))


def difference_error(times: Sequence[float], ys: Sequence[Tensor], k: int) -> Tensor:
    """The local error at order k from the divided difference over the k + 2 newest points."""
    t1, past = times[0], times[1 : k + 2]
    _, gamma = bdf_coefficients(t1, past[:k])
    size = number(gamma) * math.prod(t1 - t for t in past[:k])
    nodes = times[: k + 2]
    weights = [size / math.prod(a - b for j, b in enumerate(nodes) if j != i) for i, a in enumerate(nodes)]
    return combine(None, weights, [y.detach() for y in ys[: k + 2]])

