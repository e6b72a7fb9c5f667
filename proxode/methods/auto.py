"""The default: an explicit pair where the problem allows it, BDF where stability would hold the explicit one back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..inner import Solve
from ..interpolation import combine
from ..norms import two_norm
from ..vector_field import Time, VectorField, number
from .base import History, Method, Step
from .explicit import ContinuousExtension, ExplicitHistory, ExplicitRungeKutta
from .variable_bdf import VariableBDF

EXPLICIT = 0  # what the order of an explicit step is called
LIMIT = 2.2  # h rho near the end of the stability region of DOPRI5 (3.3)
SUSPECT = 1.2  # h rho that an accurate explicit step rarely has; rho is often told too small
EVIDENCE = 60  # steps in a row of that kind, after which the problem is stiff; one at the limit counts for many
AT_LIMIT = 20
EASY = 0.5  # h rho below which an explicit step of the length that BDF takes is safe
PATIENCE = 100  # steps in a row of that kind, after which it is not stiff: a change is dear and gains little
LONG = 1_000.0  # rho times the length of the interval, beyond which the first steps are those of BDF


class AutoHistory(NamedTuple):
    """The points of BDF, kept up by explicit steps too, and the steps in a row that spoke for a change."""

    points: History
    evidence: int = 0

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
    """DOPRI5 and variable-order BDF, whichever the problem asks for at the time.

    Explicit steps tell the spectral radius rho of the Jacobian from their last two stages (Hairer & Wanner IV.2), for
    nothing: at the limit of stability again and again, the problem is stiff. BDF steps know rho from the moves of their
    inner solver: where an explicit step of the same length would be stable, it is not. The points of both are kept, so
    that BDF goes on at the order that the explicit method leaves it.
    """

    explicit: ExplicitRungeKutta = field(default_factory=ExplicitRungeKutta)
    implicit_part: VariableBDF = field(default_factory=VariableBDF)

    implicit: ClassVar[bool] = True
    adaptive: ClassVar[bool] = True
    steering: ClassVar[str] = "order"

    @property
    def name(self) -> str:
        return "auto"

    @property
    def order(self) -> int:
        return self.explicit.order

    def stepping(self) -> Method:
        """BDF: of steps that are given, nobody knows whether an explicit method would be stable."""
        return self.implicit_part.stepping()

    @property
    def error_power(self) -> int:
        return self.explicit.error_power

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> AutoHistory:
        """A long way at this stiffness starts with BDF: there is little to lose if it was a mistake."""
        points = self.implicit_part.init(f, t0, y0, side=side)
        with torch.no_grad():
            rho = f.gain(t0, y0.detach(), points.slope.detach()) if points.slope is not None else 0.0
        long = math.isfinite(span) and rho * span > LONG
        if long:
            f.last_gain = None  # what follows is BDF, as if nobody had looked
        return AutoHistory(points._replace(order=1 if long else EXPLICIT))

    def first_power(self, history: AutoHistory) -> int:
        return (self.explicit if history.points.order == EXPLICIT else self.implicit_part).error_power

    def after_jump(self, history: AutoHistory) -> AutoHistory:
        order = min(history.points.order, 1)
        return AutoHistory(self.implicit_part.after_jump(history.points)._replace(order=order))

    def with_order(self, history: AutoHistory, order: int) -> AutoHistory:
        points = history.points
        if order == points.order:
            return history
        return history._replace(points=points._replace(order=order, since=0))

    def step(self, f: VectorField, t0: Time, t1: Time, history: AutoHistory, solve: Solve, side: int = 0) -> Step:
        if history.points.order == EXPLICIT:
            return self._explicit_step(f, t0, t1, history, solve, side)
        step = self.implicit_part.step(f, t0, t1, history.points, solve, side)
        h, rho = number(t1) - number(t0), f.stiffness
        easy = rho is not None and h * rho < EASY
        evidence = history.evidence + 1 if easy else 0
        switch = EXPLICIT if evidence >= PATIENCE else None
        following = AutoHistory(step.history, 0 if switch is not None else evidence)
        retry = history._replace(points=step.retry)
        return replace(step, history=following, retry=retry, switch=switch, by=self.implicit_part.name)

    def _explicit_step(
        self, f: VectorField, t0: Time, t1: Time, history: AutoHistory, solve: Solve, side: int
    ) -> Step:
        points = history.points
        y0 = points.ys[0]
        step = self.explicit.step(f, t0, t1, ExplicitHistory(y0, points.slope), solve, side)
        h = number(t1) - number(t0)
        rho = self._radius(step, y0, h)
        told = AT_LIMIT if h * rho > LIMIT else 1 if h * rho > SUSPECT else -AT_LIMIT
        evidence = max(0, history.evidence + told)
        count = self.implicit_part.max_order + 2
        points_then = History(
            (t1, *points.ts)[:count], (step.y1, *points.ys)[:count], step.history.slope, EXPLICIT, points.since + 1
        )
        switch = max(1, min(len(points_then.ts) - 2, 3)) if evidence >= EVIDENCE else None
        following = AutoHistory(points_then, 0 if switch is not None else evidence)
        retry = history._replace(points=points._replace(slope=step.retry.slope))
        return replace(step, history=following, retry=retry, order=EXPLICIT, switch=switch, by=self.explicit.name)

    @torch.no_grad()
    def _radius(self, step: Step, y0: Tensor, h: float) -> float:
        """|k7 - k6| / |y7 - y6|: both stages are at the end of the step."""
        extension = step.interpolant
        if not isinstance(extension, ContinuousExtension):
            return 0.0
        stages = [k.detach() for k in extension.stages]
        row = self.explicit.tableau.a[5]
        before = combine(y0.detach(), [h * a for a in row], stages[: len(row)])
        apart = float(two_norm(step.y1.detach() - before).max())
        return float(two_norm(stages[6] - stages[5]).max()) / apart if apart > 0.0 else 0.0
