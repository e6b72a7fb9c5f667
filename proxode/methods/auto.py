"""The default: an explicit pair where the problem allows it, BDF where stability would hold the explicit one back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..inner import Solve
from ..times import Time, number
from ..vector_field import VectorField
from .base import History, Method, Step
from .explicit import ExplicitHistory
from .pairs import (
    COARSE,
    FINE,
    GROWING,
    LOWEST,
    MODERATE,
    PAIRS,
    PAUSE,
    SHORT,
    careful_error,
    first_pair,
    spectral_radius,
    stretch,
    told,
)  # fmt: skip
from .variable_bdf import VariableBDF

EVIDENCE = 60.0  # steps of dopri5 in a row that are longer than accuracy allows, after which the problem is stiff
EASY = 0.5  # h rho below which an explicit step of the length that BDF takes is safe
PATIENCE = 100  # steps in a row of that kind, after which it is not stiff: a change is dear and gains little
LONG = 1_000.0  # rho times the length of the interval, beyond which the first steps are those of BDF


class AutoHistory(NamedTuple):
    """The points of BDF, kept up by explicit steps too, and the steps in a row that spoke for a change."""

    points: History
    evidence: float = 0.0
    wait: int = 0  # steps of dopri5 before the other pair is tried again

    @property
    def slope(self) -> Tensor | None:
        return self.points.slope

    @property
    def states(self) -> tuple[Tensor, ...]:
        return self.points.states

    def rebuilt(self, states: Sequence[Tensor], time: Callable[[Time], Time]) -> AutoHistory:
        return self._replace(points=self.points.rebuilt(states, time))


@dataclass(frozen=True)
class Auto(Method):
    """Explicit pairs (pairs.py) and variable-order BDF, whichever the problem asks for at the time.

    Explicit steps tell the spectral radius rho of the Jacobian from their stages, for nothing: at the limit of
    stability again and again, the problem is stiff. BDF steps know rho from the moves of their inner solver: where an
    explicit step of the same length would be stable, it is not. The points of both are kept, so that BDF goes on at
    the order that the explicit method leaves it.
    """

    implicit_part: VariableBDF = field(default_factory=VariableBDF)
    rtol: float = 0.0  # of the solve: says which pair to start with, and whether others are tried

    implicit: ClassVar[bool] = True
    adaptive: ClassVar[bool] = True
    steering: ClassVar[str] = "order"

    @property
    def name(self) -> str:
        return "auto"

    @property
    def order(self) -> int:
        return self.explicit_part.order

    @property
    def explicit_part(self) -> Method:
        """What takes its steps where nothing can be solved."""
        return PAIRS[FINE]

    def order_of(self, code: int) -> int:
        return code if code > 0 else PAIRS[code].order

    def power_of(self, code: int) -> int:
        return code + 1 if code > 0 else PAIRS[code].error_power

    def for_tolerance(self, rtol: float) -> Auto:
        return replace(self, rtol=rtol)

    def stepping(self) -> Method:
        """BDF: of steps that are given, nobody knows whether an explicit method would be stable."""
        return self.implicit_part.stepping()

    @property
    def error_power(self) -> int:
        return self.explicit_part.error_power

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> AutoHistory:
        """A long way at this stiffness starts with BDF: there is little to lose if it was a mistake."""
        points = self.implicit_part.init(f, t0, y0, side=side)
        rho, enough = 0.0, LONG / span if 0 < span < math.inf else math.inf
        if points.slope is not None:
            with torch.no_grad():
                rho = f.first_gain(t0, y0.detach(), points.slope.detach(), enough)
        long = math.isfinite(span) and rho * span > LONG
        if long:
            f.last_gain = None  # what follows is BDF, as if nobody had looked
        return AutoHistory(points._replace(order=1 if long else first_pair(self.rtol, rho * span)))

    def first_power(self, history: AutoHistory) -> int:
        code = history.points.order
        return PAIRS[code].error_power if code <= 0 else self.implicit_part.error_power

    def after_jump(self, history: AutoHistory) -> AutoHistory:
        order = min(history.points.order, 1)
        return AutoHistory(self.implicit_part.after_jump(history.points)._replace(order=order))

    def with_order(self, history: AutoHistory, order: int) -> AutoHistory:
        points = history.points
        if order == points.order:
            return history
        return history._replace(points=points._replace(order=order, since=0))

    def step(self, f: VectorField, t0: Time, t1: Time, history: AutoHistory, solve: Solve, side: int = 0) -> Step:
        if history.points.order <= 0:
            return self._explicit_step(f, t0, t1, history, solve, side)
        step = self.implicit_part.step(f, t0, t1, history.points, solve, side)
        h, rho = number(t1) - number(t0), f.stiffness
        easy = rho is not None and h * rho < EASY
        evidence = history.evidence + 1 if easy else 0
        switch = FINE if evidence >= PATIENCE else None
        following = AutoHistory(step.history, 0.0 if switch is not None else evidence)
        retry = history._replace(points=step.retry)
        return replace(step, history=following, retry=retry, switch=switch, by=self.implicit_part.name)

    def _explicit_step(
        self, f: VectorField, t0: Time, t1: Time, history: AutoHistory, solve: Solve, side: int
    ) -> Step:
        points = history.points
        y0, code, pair = points.ys[0], points.order, PAIRS[points.order]
        step = pair.step(f, t0, t1, ExplicitHistory(y0, points.slope), solve, side)
        h = number(t1) - number(t0)
        reach = h * spectral_radius(step, pair.tableau, h)
        evidence = max(0.0, history.evidence + told(reach, code))
        count = self.implicit_part.max_order + 2
        points_then = History(
            (t1, *points.ts)[:count], (step.y1, *points.ys)[:count], step.history.slope, code, points.since + 1
        )
        stiff = evidence >= EVIDENCE
        switch = max(1, min(len(points_then.ts) - 2, 3)) if stiff else self._other_pair(reach, h, history)
        following = AutoHistory(points_then, 0.0 if stiff else evidence, _wait(history, switch))
        # A step that is rejected tells as much.
        retry = AutoHistory(
            points._replace(slope=step.retry.slope), max(evidence, history.evidence), history.wait
        )
        longer = 1.0 if switch is None or stiff else stretch(code, switch)
        return replace(
            step, history=following, retry=retry, order=code, switch=switch, stretch=longer, by=pair.name,
            error=careful_error(step, code, h),
        )

    def _other_pair(self, reach: float, h: float, history: AutoHistory) -> int | None:
        points = history.points
        code, growing = points.order, len(points.ts) < 2 or h > GROWING * (number(points.ts[0]) - number(points.ts[1]))
        if code != FINE and reach < SHORT and not growing:
            return FINE
        coarse = self.rtol >= MODERATE and reach > COARSE.get(code, math.inf) and points.since >= history.wait
        return LOWEST if coarse else None


def _wait(history: AutoHistory, switch: int | None) -> int:
    """A trial of the low order that was soon over is not repeated soon."""
    if history.points.order == FINE or switch != FINE:
        return history.wait
    return max(PAUSE, 2 * history.wait) if history.points.since < PAUSE else 0
