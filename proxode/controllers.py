"""Where a step ends: on a given grid, or where the error allows. A controller knows no method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .norms import Norm, tolerance_scale
from .times import Time, number
from .vector_field import VectorField


class Decision(NamedTuple):
    accept: bool
    t_next: Time  # where the next step should end
    state: Any
    order: int | None = None  # of the next step, where the method has a choice


class Outcome(NamedTuple):
    """What is known of a step: its error over the tolerance, the power of the step that the error follows, and for a
    method of variable order the order taken, and the ratios that others would have had."""

    ratio: float
    power: int
    order: int | None = None
    switch: int | None = None
    others: tuple[tuple[int, float], ...] = ()
    stretch: float = 1.0  # of the next step, where it is to be of another kind

    def over(self, share: float) -> Outcome:
        """The same for a tolerance of which a step may only use a share."""
        others = tuple((order, ratio / share) for order, ratio in self.others)
        return self._replace(ratio=self.ratio / share, others=others)


@dataclass(frozen=True)
class FixedGrid:
    """Steps between given times. Nothing is rejected: what cannot be solved ends the solve. Where steps of a method of
    variable order are taken again, their orders are given too."""

    grid: tuple[Time, ...]
    orders: tuple[int | None, ...] | None = None

    retries: ClassVar[bool] = False

    def plain(self) -> FixedGrid:
        """The same with times that are numbers."""
        return FixedGrid(tuple(map(number, self.grid)), self.orders)

    def excess(self, outcome: Outcome, h: float) -> float:
        return outcome.ratio

    def start(self, t0: Time, first_step: float) -> Decision:
        return Decision(True, self.grid[1], 1, None if self.orders is None else self.orders[0])

    def next(self, t0: Time, t1: Time, outcome: Outcome, state: int) -> Decision:
        state = min(state + 1, len(self.grid) - 1)
        return Decision(True, self.grid[state], state, None if self.orders is None else self.orders[state - 1])


class AdaptiveState(NamedTuple):
    h: float  # the step that was proposed, before a stop may have cut it
    ratio: float = 1.0  # error ratio of the last accepted step
    rejected: int = 0  # times in a row


ROUNDING = 1e-9
CONTROLLERS = ("pi", "integral", "paper", "order")
BIAS, BIAS_UP = 3.0, 6.0  # by which errors at the present order (or a lower), and at a higher, are taken for larger
TINY = 1e-100
LONG, CONSTANT = 3, 3.0  # power of h in the error from which a first step is a long one; what it divides by, for that
REACH = 0.1  # part of a step by which it becomes longer, if that takes it to the end: safety factors allow for that
STEADY = (1.0, 1.2)  # a multistep method keeps its step where the change would be less
GROWTH = {2: 2.0, 3: 1.6, 4: 1.4, 5: 1.3}  # of the steps of a multistep method


@dataclass(frozen=True)
class Adaptive:
    """Steps as long as the error allows. The error ratio is the norm of error / tolerance; up to 1 is accepted.

    kind "pi" (Gustafsson 1991, with the exponents of Hairer's DOPRI5): the last two ratios steer, which keeps a
    step that stability limits from oscillating. "integral": the last ratio alone, as torchdiffeq does. "paper":
    the Dormand-Prince control of the paper's Appendix A, an error per unit step, `h (tol h / (2 error))^(1/k)`.
    """

    kind: str = "pi"
    safety: float = 0.9
    ifactor: float = 10.0
    dfactor: float = 0.2
    first_step: float | None = None
    min_step: float = 0.0
    max_step: float = math.inf
    share: float = 1.0  # part of the tolerance that the error of one step may be, at the orders above zero

    retries: ClassVar[bool] = True

    def plain(self) -> Adaptive:
        return self

    def __post_init__(self) -> None:
        if self.kind not in CONTROLLERS:
            raise ValueError(f"unknown `controller` {self.kind!r}; known are: {', '.join(CONTROLLERS)}")
        for name in ("safety", "ifactor", "dfactor", "min_step", "max_step", "first_step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise TypeError(f"`{name}` must be a number, not {type(value).__name__}")
        for name, lowest in (("safety", 0.0), ("ifactor", 1.0), ("max_step", 0.0)):
            if not getattr(self, name) > lowest:
                raise ValueError(f"`{name}` must be above {lowest:g}, not {getattr(self, name)}")
        if self.safety > 1.0:
            raise ValueError(f"`safety` must be at most 1, not {self.safety}")
        if not 0.0 < self.dfactor <= 1.0:
            raise ValueError(f"`dfactor` must be in (0, 1], not {self.dfactor}")
        if self.first_step is not None and not self.first_step > 0.0:
            raise ValueError(f"`first_step` must be positive, not {self.first_step}")
        if not 0.0 <= self.min_step <= self.max_step:
            raise ValueError(f"`min_step` must be from 0 to max_step = {self.max_step}, not {self.min_step}")

    def start(self, t0: Time, first_step: float) -> Decision:
        h = min(max(first_step, self.min_step), self.max_step)
        return Decision(True, t0 + h, AdaptiveState(h))

    def excess(self, outcome: Outcome, h: float) -> float:
        """The error of a step of length h over what it may be: up to 1 it is accepted."""
        share = self.share if outcome.order is None or outcome.order > 0 else 1.0
        return outcome.ratio / (share * h if self.kind == "paper" else share)

    def next(self, t0: Time, t1: Time, outcome: Outcome, state: AdaptiveState) -> Decision:
        """After a step from t0 to t1."""
        if outcome.order is None or outcome.order > 0:  # else it is an explicit step of `auto`
            outcome = outcome.over(self.share)
            if self.kind == "order":
                return self._next_with_order(t0, t1, outcome, state)
        h, (ratio, order, *_) = number(t1) - number(t0), outcome
        if not math.isfinite(ratio):
            return self._shorter(t0, self.dfactor * h, outcome, state)
        at_least = h <= self.min_step * (1.0 + ROUNDING)  # such a step is taken whatever its error
        size = ratio * 2.0 / h if self.kind == "paper" else ratio
        accept = (size <= 2.0 if self.kind == "paper" else size <= 1.0) or at_least
        growth = 1.0 if accept and state.rejected else self.ifactor  # right after a rejection a step does not grow
        h_next = h * min(max(self._factor(size, order, state), self.dfactor), growth)
        if accept:
            if h < state.h * (1.0 - ROUNDING):  # a stop had cut the step short: what was proposed before still stands
                h_next = max(h_next, state.h)
            h_next = self._clamp(h_next * outcome.stretch)
            following = outcome.order if outcome.switch is None else outcome.switch
            return Decision(True, t1 + h_next, AdaptiveState(h_next, max(size, 1e-4)), following)
        return self._shorter(t0, min(h_next, (0.5 if state.rejected else self.safety) * h), outcome, state)

    def _shorter(self, t0: Time, h: float, outcome: Outcome, state: AdaptiveState) -> Decision:
        h = self._clamp(h)
        return Decision(False, t0 + h, AdaptiveState(h, state.ratio, state.rejected + 1), outcome.order)

    def _next_with_order(self, t0: Time, t1: Time, outcome: Outcome, state: AdaptiveState) -> Decision:
        """The order, among those whose error is known, that allows the longest next step."""
        h, ratio = number(t1) - number(t0), outcome.ratio
        if not math.isfinite(ratio):
            return self._shorter(t0, self.dfactor * h, outcome, state)
        at_least = h <= self.min_step * (1.0 + ROUNDING)
        own = outcome.power - 1
        choices = [(_multistep_factor(BIAS, ratio, own), own)]
        choices += [(_multistep_factor(BIAS_UP if k > own else BIAS, r, k), k) for k, r in outcome.others]
        factor, order = max(choices)
        if ratio > 1.0 and not at_least:
            factor, order = max(choice for choice in choices if choice[1] <= own)
            if state.rejected >= 2:
                factor, order = min(factor, 0.25), max(1, own - 1)
            shorter = self._shorter(t0, h * min(max(factor, self.dfactor), self.safety), outcome, state)
            return shorter._replace(order=order)
        if STEADY[0] < factor < STEADY[1] or (state.rejected and factor > 1.0):
            factor = 1.0
        h_next = h * min(max(factor, self.dfactor), min(self.ifactor, GROWTH.get(own, self.ifactor)))
        if h < state.h * (1.0 - ROUNDING):  # a stop had cut the step short
            h_next = max(h_next, state.h)
        h_next = self._clamp(h_next)
        order = order if outcome.switch is None else outcome.switch
        return Decision(True, t1 + h_next, AdaptiveState(h_next, max(ratio, 1e-4)), order)

    def _factor(self, size: float, order: int, state: AdaptiveState) -> float:
        if size == 0.0:
            return self.ifactor
        if self.kind == "paper":
            return float(size ** (-1.0 / order))
        if self.kind == "integral" or state.rejected or size > 1.0:
            return float(self.safety * size ** (-1.0 / order))
        return float(self.safety * size ** (-0.85 / order) * state.ratio ** (0.2 / order))

    def _clamp(self, h: float) -> float:
        return min(max(h, self.min_step), self.max_step)


def _multistep_factor(bias: float, ratio: float, order: int) -> float:
    return float((bias * max(ratio, 1e-10)) ** (-1.0 / (order + 1)))


Controller = FixedGrid | Adaptive


@torch.no_grad()
def first_step(
    f: VectorField, t0: Time, y0: Tensor, slope: Tensor, order: int, rtol: Any, atol: Any, norm: Norm, span: float
) -> float:
    """A first step whose error is about the tolerance (Hairer, Norsett & Wanner, II.4). One evaluation."""
    scale = tolerance_scale(rtol, atol, y0)
    d0, d1 = float(norm(y0 / scale).max()), float(norm(slope / scale).max())
    h0 = trial_length(d0, d1, span)
    moved = f(t0 + h0, torch.add(y0, slope, alpha=h0))
    return first_length(h0, d1, float(norm((moved - slope) / scale).max()) / h0, order, span)


def trial_length(d0: float, d1: float, span: float) -> float:
    """A length over which f may be looked at, for a state of size d0 and a slope of size d1."""
    h = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
    return min(h if h > 0.0 else 1e-6, span)  # of a float16 the size may have overflowed


def first_length(h0: float, d1: float, d2: float, order: int, span: float) -> float:
    """The first step, where the slope changed at the rate d2 over the length h0. A step of order two and more costs
    several evaluations: one that is ten times too short is as dear as one that is rejected."""
    steepest = max(d1, d2)
    if steepest <= 1e-15:
        h1 = max(1e-6, h0 * 1e-3)
    elif order < LONG or d1 == 0.0:
        h1 = (0.01 / steepest) ** (1.0 / order)
    else:  # derivatives of all orders grow by this rate; the error of a step is less than that of its power of h
        rate = d2 / d1
        h1 = min((CONSTANT * (order - LONG + 1) * rate / d1) ** (1.0 / order), 1.0) / rate if rate > TINY else math.inf
    h = min(100.0 * h0, h1, span)
    return h if math.isfinite(h) and h > 0.0 else min(1e-6, span)
