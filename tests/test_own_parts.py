"""Methods and inner solvers of a user's own, with what people get wrong: each mistake is named, at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import proxode
from proxode import Status
from proxode.inner import ImplicitEquation, InnerSolver
from proxode.interpolation import Linear
from proxode.methods import Proximal, Step

Y0 = torch.tensor([1.0, 0.0], dtype=torch.float64)


def pendulum(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0])])


@dataclass(frozen=True)
class Midpoint(Proximal):
    """The implicit midpoint rule of docs/extending.md, its step then changed by `slip`."""

    slip: Callable[[Step, Any], Any] = lambda step, history: step

    @property
    def name(self) -> str:
        return "midpoint_of_ones_own"

    @property
    def order(self) -> int:
        return 2

    def step(self, f: Any, t0: Any, t1: Any, history: Any, solve: Any, side: int = 0) -> Any:
        history = self.started(f, t0, history, side)
        y0, half = history.ys[0], 0.5 * (t1 - t0)
        result = self.solved(solve, ImplicitEquation(f, t0 + half, y0, half), t0 + half, history, y0)
        y1 = 2 * result.z - y0
        error = self.error_of(t1, y1, history, 1 / 12, history.slope)
        made = Step(y1, history.push(t1, y1, None, self.points), Linear(t0, t1, y0, y1), error)
        return self.slip(made, history)


class NoStep(Proximal):
    name, order = "no_step", 1  # type: ignore[assignment]


class NoOrder(Proximal):
    name = "no_order"  # type: ignore[assignment]


class OrderIsMethod(Proximal):
    name = "order_is_method"  # type: ignore[assignment]

    def order(self) -> int:  # type: ignore[override]
        return 1


def solve(method: Any, **options: Any) -> proxode.Solution:
    return proxode.solve(pendulum, Y0.clone().requires_grad_(), 0.0, 1.0, method=method, **options)


@pytest.mark.parametrize("options", [{}, {"step_size": 0.1}], ids=["adaptive", "fixed"])
def test_a_right_one_passes(options: dict[str, Any]) -> None:
    assert solve(Midpoint(), **options).status is Status.SUCCESS


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (lambda step, history: step.y1, "Midpoint.step must return a proxode.methods.Step, not Tensor"),
        (lambda step, history: None, "Midpoint.step must return a proxode.methods.Step, not NoneType"),
        (lambda step, history: replace(step, y1=step.y1[:1]), r"y1 of shape \(2,\) in torch.float64, not \(1,\)"),
        (lambda step, history: replace(step, y1=step.y1.float()), r"not \(2,\) in torch.float32"),
        (lambda step, history: replace(step, y1=step.y1.detach()), "cut y1 off from y0"),
        (lambda step, history: replace(step, interpolant=None), "no interpolant"),
        (lambda step, history: replace(step, history=history), r"history.push\(t1, y1"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"step_size": 0.1}], ids=["adaptive", "fixed"])
def test_a_step_that_is_none_is_told_by_the_name_of_its_class(slip: Any, says: str, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        solve(Midpoint(slip=slip), **options)


def test_a_step_without_an_error_needs_a_given_length() -> None:
    silent = Midpoint(slip=lambda step, history: replace(step, error=None))
    with pytest.raises(ValueError, match=r"no error estimate .* solve with `step_size`"):
        solve(silent)
    assert solve(silent, step_size=0.1).status is Status.SUCCESS


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (NoStep(), r"NoStep must have step\(self, f, t0"),
        (NoOrder(), "NoOrder must have a property order"),
        (OrderIsMethod(), "OrderIsMethod.order must be a property"),
    ],
)
def test_what_is_missing_is_named(method: Any, says: str) -> None:
    with pytest.raises((TypeError, NotImplementedError), match=says):
        solve(method)


@dataclass(frozen=True)
class Plain(InnerSolver):
    """`z - r`, and what `slip` makes of it."""

    name: ClassVar[str] = "plain"
    slip: Callable[[Tensor, Tensor], Any] = lambda z, r: (z - r, None)

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Any) -> None:
        return None

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: Any) -> Any:
        return self.slip(z, r)


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (lambda z, r: z - r, r"Plain.step must return \(z, state\).*not Tensor"),
        (lambda z, r: None, "not NoneType"),
        (lambda z, r: (z - r, None, None), "not a tuple of 3"),
        (lambda z, r: ((z - r)[None], None), r"z of shape \(2,\) in torch.float64, not \(1, 2\)"),
        (lambda z, r: ((z - r).float(), None), "in torch.float32"),
        (lambda z, r: ([0.0, 0.0], None), "not list"),
        (lambda z, r: (z.sub_(r), None), "written into z or r"),
    ],
)
def test_an_inner_solver_that_returns_something_else_is_told_what(slip: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        proxode.solve(pendulum, Y0, 0.0, 1.0, method="bdf", inner=Plain(slip=slip))


def test_one_that_makes_nan_is_at_fault_soon() -> None:
    with pytest.raises(proxode.SolverError) as caught:
        proxode.solve(pendulum, Y0, 0.0, 1.0, method="bdf", inner=Plain(slip=lambda z, r: (z * torch.nan, None)))
    assert caught.value.status is Status.INNER_AT_FAULT


@pytest.mark.parametrize(("wrong", "right"), [("BDF", "bdf"), ("backward-euler", "backward_euler")])
def test_a_misspelt_method_is_answered_with_what_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{right}'"):
        solve(wrong)
    with pytest.raises(ValueError, match="did you mean 'newton'"):
        solve("bdf", inner="newtn")
