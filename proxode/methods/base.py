"""What a method is: from (t0, t1, history) to a step. It makes equations and never learns who solves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..inner import INNER, ImplicitEquation, InnerResult, Solve, followed, is_lost
from ..interpolation import Interpolant, combine, lagrange_weights
from ..times import Time, beside, number
from ..vector_field import VectorField
from .estimate import local_error


class Neighbour(NamedTuple):
    """What the local error would have been at another order."""

    order: int
    error: Tensor


@dataclass(slots=True)  # one for each step: a frozen one takes microseconds longer to make
class Step:
    """A step from t0 to t1. `error` estimates the local error of y1, where the method has an estimate;
    a second one of lower order (`error_low`) makes the first more careful. `failure` is an equation that
    could not be solved: y1 is then only the best that was found.

    A method of variable order says which one it took, and what it knows of others to which it could change."""

    y1: Tensor
    history: Any
    interpolant: Interpolant
    error: Tensor | None = None
    error_low: Tensor | None = None
    failure: InnerResult | None = None
    retry: Any = None  # the history for another try from t0, where the step has learned something about it
    order: int | None = None
    stretch: float = 1.0  # by which the next step should be longer, where it is to be of another kind
    switch: int | None = None  # the order that the method itself wants for the next step
    neighbours: tuple[Neighbour, ...] = ()
    by: str | None = None  # the name of the method that made it, where there are several


@dataclass(frozen=True)
class Method:
    """`init` makes the history and `step` goes from t0 to t1 with it; nothing is written on the method."""

    implicit: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    steering: ClassVar[str] = "pi"  # the kind of step control that suits it
    settings: ClassVar[tuple[str, ...]] = ()  # its fields that users may give as options

    @property
    def name(self) -> str:
        """What users write to choose it."""
        raise NotImplementedError(f"{type(self).__name__} must have a property name -> str")

    @property
    def order(self) -> int:
        """Of its steps; of the highest, where it varies."""
        raise NotImplementedError(f"{type(self).__name__} must have a property order -> int")

    @property
    def implicit_order(self) -> int:
        """The highest order of its implicit steps."""
        return self.order

    @property
    def error_power(self) -> int:
        """The power of the step that the error estimate follows."""
        return self.order + 1

    def first_power(self, history: Any) -> int:
        """The same for the first step from this history."""
        return self.error_power

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> Any:
        """`span` is how far the solve is to go; `side` = 1 says that f jumps at t0, and is meant from after it."""
        raise NotImplementedError(f"{type(self).__name__} must have init(self, f, t0, y0, span, side) -> history")

    def step(self, f: VectorField, t0: Time, t1: Time, history: Any, solve: Solve, side: int = 0) -> Step:
        """`side` = 1 says that f may jump at t0 and t1 and is meant from inside the step."""
        kind = type(self).__name__
        raise NotImplementedError(f"{kind} must have step(self, f, t0, t1, history, solve, side) -> Step")

    def after_jump(self, history: Any) -> Any:
        """The history without what a jump of f has made void."""
        return history

    def order_of(self, code: int) -> int:
        """The order of a step that a method of variable order calls so; numbers up to zero stand for other kinds."""
        return code

    def power_of(self, code: int) -> int:
        """The power of the step that the error of such a step follows."""
        return code + 1

    def for_tolerance(self, rtol: float) -> Method:
        """The form that suits a relative tolerance."""
        return self

    def with_order(self, history: Any, order: int) -> Any:
        """The history for a next step of this order, in a method of variable order."""
        return history

    def adapting(self) -> Method:
        """The form of the method that estimates its error, for steps as long as that allows."""
        return self

    def stepping(self) -> Method:
        """The form of the method for steps between given times."""
        return self

    def restarting(self) -> Method:
        """The form of the method for solves that start again and again."""
        return self


class History(NamedTuple):
    """The last points of a proximal method, newest first, and f at the newest where it is known; where the order
    varies, that of the next step and the number of steps since it was chosen."""

    ts: tuple[Time, ...]
    ys: tuple[Tensor, ...]
    slope: Tensor | None = None
    order: int = 1
    since: int = 0

    def push(self, t: Time, y: Tensor, slope: Tensor | None, length: int) -> History:
        """With a new point in front, of at most `length` points."""
        return History((t, *self.ts)[:length], (y, *self.ys)[:length], slope, self.order, self.since + 1)

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The tensors in it that depend on the solution."""
        return self.ys if self.slope is None else (*self.ys, self.slope)

    def rebuilt(self, states: Sequence[Tensor], time: Callable[[Time], Time]) -> History:
        """The same with other states, and every time passed through `time`."""
        count = len(self.ys)
        slope = states[count] if self.slope is not None else None
        return self._replace(ts=tuple(map(time, self.ts)), ys=tuple(states[:count]), slope=slope)

    def extrapolate(self, t: Time, points: int) -> Tensor:
        """The polynomial through the newest `points` points, at t: a guess that a stiff f cannot blow up."""
        ts = [number(node) for node in self.ts[:points]]
        return combine(None, lagrange_weights(number(t), ts), self.ys[:points]).detach()


PREDICTORS = ("extrapolate", "previous")


@dataclass(frozen=True)
class Proximal(Method):
    """A method whose steps are equations `z = anchor + gamma f(t, z)`.

    `predictor` makes the first guess of each: "extrapolate" through past points, or "previous", the last known
    state, as in the paper.
    """

    predictor: str = "extrapolate"
    estimating: bool = False  # whether steps come with an error, for adaptive ones

    implicit: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("predictor",)

    @property
    def adaptive(self) -> bool:  # type: ignore[override]
        return self.estimating

    def adapting(self) -> Method:
        return replace(self, estimating=True)

    def __post_init__(self) -> None:
        if self.predictor not in PREDICTORS:
            raise ValueError(f"unknown `predictor` {self.predictor!r}; known are: {', '.join(PREDICTORS)}")

    @property
    def points(self) -> int:
        """How many past points the method or its predictor uses."""
        wanted = 1 if self.predictor == "previous" else min(self.order + 1, 4)
        return max(wanted, self.order + 1) if self.estimating else wanted

    def init(self, f: VectorField, t0: Time, y0: Tensor, span: float = 0.0, side: int = 0) -> History:
        return History((t0,), (y0,), f(beside(t0, side, y0.dtype), y0) if self.estimating else None)

    def started(self, f: VectorField, t0: Time, history: History, side: int) -> History:
        """With the slope at t0, which an error estimate from few points needs; later ones do without."""
        if not self.estimating or history.slope is not None or len(history.ts) > self.order:
            return history
        return history._replace(slope=f(beside(t0, side, history.ys[0].dtype), history.ys[0]))

    def error_of(self, t1: Time, y1: Tensor, history: History, constant: float, slope: Tensor | None) -> Tensor | None:
        """The local error of a step to (t1, y1), where one is wanted; `slope` is f at the start of the step."""
        if not self.estimating:
            return None
        times = [number(t) for t in (t1, *history.ts)]
        with torch.no_grad():
            return local_error(times, (y1, *history.ys), slope, self.error_power, constant)

    def after_jump(self, history: History) -> History:
        return History(history.ts[:1], history.ys[:1])

    def guess(self, t: Time, history: History, previous: Tensor) -> Tensor:
        """Where the inner solver starts for the equation of time t."""
        if self.predictor == "previous" or len(history.ts) == 1:
            return previous.detach()
        return history.extrapolate(t, self.points)

    def solved(
        self, solve: Solve, equation: ImplicitEquation, t: Time, history: History, previous: Tensor
    ) -> InnerResult:
        """The equation of time t. A step of given length has no shorter one to fall back to. Past a transient its
        extrapolation may be worse than no guess at all: then it is tried from the last state too; and what a Newton
        iteration does not find from there is followed from a step without length."""
        result = solve(equation, self.guess(t, history, previous))
        if result.converged or self.estimating or not is_lost(result, solver := INNER.get(result.solver)):
            return result
        if self.predictor != "previous" and len(history.ts) > 1:
            result = solve(equation, previous.detach())
        if result.converged or solver is None or not solver.local:
            return result
        with torch.no_grad():
            z = followed(equation, previous, solve)
        return result if z is None else solve(equation, z)


def slope_after(equation: ImplicitEquation, result: InnerResult) -> Tensor | None:
    """f at the solution, from the residual that closed the solve; None where that was not evaluated."""
    return None if result.residual is None else equation.velocity(result.z, result.residual)
