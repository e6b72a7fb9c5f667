"""Explicit Runge-Kutta methods, with fixed steps or an embedded error estimate; the data is in the tableaus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, NamedTuple

from torch import Tensor

from ..compiled import serves
from ..inner import Solve
from ..interpolation import Hermite, Interpolant, Linear, combine
from ..recording import without_graph
from ..spares import pays
from ..times import Time, beside, number
from ..vector_field import VectorField
from .base import Method, Step
from .explicit_tableaus import EXPLICIT
from .tableaus import ExplicitTableau

INTERPOLANTS = ("linear", "cubic")


class ExplicitHistory(NamedTuple):
    y: Tensor
    slope: Tensor | None  # f at y, where the last step has evaluated it

    @property
    def states(self) -> tuple[Tensor, ...]:
        return (self.y,) if self.slope is None else (self.y, self.slope)

    def rebuilt(self, states: Sequence[Tensor], time: Callable[[Time], Time]) -> ExplicitHistory:
        return ExplicitHistory(states[0], states[1] if self.slope is not None else None)


@dataclass(frozen=True)
class ExplicitRungeKutta(Method):
    """`k_i = f(t0 + c_i h, y0 + h sum_j a_ij k_j)`, `y1 = y0 + h sum_i b_i k_i`.

    Between the steps it follows the tableau's own continuous extension; `interp` = "linear" or "cubic"
    takes the straight line or the Hermite cubic instead.
    """

    tableau: ExplicitTableau = field(default_factory=lambda: EXPLICIT["dopri5"])
    interp: str | None = None
    perturb: bool = False

    implicit: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ("interp", "perturb")

    def __post_init__(self) -> None:
        if self.interp is not None and self.interp not in INTERPOLANTS:
            raise ValueError(f"unknown interpolation {self.interp!r} (`interp`); known are: {', '.join(INTERPOLANTS)}")

    @property
    def name(self) -> str:
        return self.tableau.name

    @property
    def order(self) -> int:
        return self.tableau.order

    @property
    def error_power(self) -> int:
        """One more than the order of the embedded solution, whose error the estimate is."""
        return self.order + 1 if self.tableau.error_order is None else self.tableau.error_order + 1

    @property
    def adaptive(self) -> bool:  # type: ignore[override]
        return self.tableau.b_error is not None

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> ExplicitHistory:
        # The first step size needs the slope.
        return ExplicitHistory(y0, f(beside(t0, side, y0.dtype), y0) if self.adaptive else None)

    def after_jump(self, history: ExplicitHistory) -> ExplicitHistory:
        return ExplicitHistory(history.y, None)

    def step(
        self, f: VectorField, t0: Time, t1: Time, history: ExplicitHistory, solve: Solve, side: int = 0
    ) -> Step:
        tableau, h = self.tableau, t1 - t0
        y0 = history.y
        inside = 1 if self.perturb else side
        stages = [f(beside(t0, inside, y0.dtype), y0) if history.slope is None else history.slope]
        if f.compiled is not None and serves() and not inside and not isinstance(h, Tensor):
            f.stats.count("n_f", tableau.stages - 1)
            made = f.compiled.step(tableau, f.structure, f.reverse, number(t0), number(t1), y0, stages[0])
            return self._made(f, t0, t1, y0, stages + made[1], made[0], made[2:], inside)
        y, piece = y0, None
        spares = f.spares if pays(y0) else None
        for c, row in zip(tableau.c[1:], tableau.a[1:], strict=True):
            if spares is not None:
                spares.put(piece)
                piece = spares.take(y0)
            y = combine(y0, [h * a for a in row], stages, piece)
            stages.append(f(beside(t1, -inside, y0.dtype) if c == 1.0 else t0 + c * h, y))
        if not tableau.fsal:
            f.spares.put(piece)
        y1 = y if tableau.fsal else combine(y0, [h * b for b in tableau.b], stages)
        errors = [None if w is None else _error(f, h, w, stages) for w in (tableau.b_error, tableau.b_error_low)]
        return self._made(f, t0, t1, y0, stages, y1, errors, inside)

    def _made(
        self, f: VectorField, t0: Time, t1: Time, y0: Tensor, stages: list[Tensor], y1: Tensor,
        errors: Sequence[Tensor | None], inside: int,
    ) -> Step:  # fmt: skip
        slope = stages[-1] if self.tableau.fsal and not inside else None
        return Step(
            y1,
            ExplicitHistory(y1, slope),
            self._interpolant(f, t0, t1, y0, y1, stages, inside),
            error=errors[0],
            error_low=errors[1],
            retry=ExplicitHistory(y0, stages[0]),
        )

    def _interpolant(
        self, f: VectorField, t0: Time, t1: Time, y0: Tensor, y1: Tensor, stages: list[Tensor], inside: int
    ) -> Interpolant:
        if self.interp == "linear":
            return Linear(t0, t1, y0, y1)
        if self.interp == "cubic":
            return Hermite(t0, t1, y0, y1, lambda: stages[0], cache(lambda: f(beside(t1, -inside, y1.dtype), y1)))
        return ContinuousExtension(f, self.tableau, t0, t1, y0, stages)


@without_graph
def _error(f: VectorField, h: Time, weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    """The error estimate steers the step and is not differentiated."""
    h = number(h)
    return combine(None, [h * w for w in weights], stages, f.spares.take(stages[0]))


@dataclass(slots=True)
class ContinuousExtension:
    """`y0 + h sum_i b_i(theta) k_i`, with the extra stages that some tableaus need, evaluated once if at all."""

    f: VectorField
    tableau: ExplicitTableau
    t0: Time
    t1: Time
    y0: Tensor
    stages: list[Tensor]

    def evaluate(self, t: Time) -> Tensor:
        h = self.t1 - self.t0
        known = len(self.stages) - self.tableau.stages
        for c, row in zip(self.tableau.c_dense[known:], self.tableau.a_dense[known:], strict=True):
            y = combine(self.y0, [h * a for a in row], self.stages)
            self.stages.append(self.f(self.t0 + c * h, y))
        theta = (t - self.t0) / h
        dense = self.tableau.dense
        if dense is None:
            raise ValueError(
                f"{self.tableau.name} has no continuous extension for times inside of its steps: give `dense=` in its "
                "tableau or interp='cubic', or choose output times at ends of steps"
            )
        return combine(self.y0, [h * _horner(row, theta) for row in dense], self.stages)


def _horner(row: tuple[float, ...], theta: Time) -> Time:
    """`sum_j row_j theta^(j+1)`."""
    value: Time = 0.0
    for coefficient in reversed(row):
        value = (value + coefficient) * theta
    return value
