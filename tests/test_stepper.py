"""Stepping by hand: the same steps as `solve`, to any time and between the steps, with the same outcomes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from stepper_cases import Y0, assert_same, every_way, rest, settings, through_a_file, van_der_pol
from torch import Tensor

import proxode
from proxode import SolverError, Status, Stepper


@torch.no_grad()
@every_way
@pytest.mark.parametrize("t1", [0.3, -0.02], ids=["forwards", "backwards"])
def test_stepping_is_solving(method: str, step_size: float | None, t1: float) -> None:
    kwargs = settings(method, step_size)
    solution = proxode.solve(van_der_pol, Y0, 0.0, t1, **kwargs)
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=t1, **kwargs)
    assert stepper.status is None and not stepper.done
    ends = [0.0]
    for step in stepper:
        assert step.t0 == ends[-1] and step.failure is None
        ends.append(step.t1)
    assert stepper.t == ends[-1] == t1 and stepper.done and stepper.h == 0.0
    assert torch.equal(stepper.y, solution.ys[-1])
    assert stepper.stats == solution.stats and stepper.status is solution.status
    with pytest.raises(ValueError, match="last time t1"):
        stepper.step()


@torch.no_grad()
@every_way
def test_advance_ends_at_the_very_time(method: str, step_size: float | None) -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, **settings(method, step_size))
    exact = proxode.solve(van_der_pol, Y0, 0.0, 0.3, rtol=1e-9, atol=1e-11, save_at=torch.tensor([0.05, 0.123, 0.3]))
    for t, y in zip((0.05, 0.123, 0.3), exact.ys, strict=True):
        assert torch.allclose(stepper.advance(t), y, rtol=5e-2, atol=5e-3)
        assert stepper.t == t
    assert stepper.done
    if step_size is not None:  # fifteen on the grid, and two that were cut in two
        assert stepper.stats.n_accepted == 17


@torch.no_grad()
def test_advance_to_the_present_and_elsewhere() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
    assert torch.equal(stepper.advance(0.1), stepper.y)
    cost = stepper.stats.nfe_forward
    assert torch.equal(stepper.advance(0.1), stepper.y) and stepper.stats.nfe_forward == cost
    with pytest.raises(ValueError, match=r"`t` = 0.05 is behind the present time 0.1"):
        stepper.advance(0.05)
    with pytest.raises(ValueError, match=r"beyond the last time, t1 = 0.3"):
        stepper.advance(0.4)
    with pytest.raises(TypeError, match="`t` must be a number"):
        stepper.advance("later")


@torch.no_grad()
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(("method", "step_size"), [("auto", None), ("bdf", None), ("rk4", 0.25), ("bdf2", 0.25)])
def test_without_a_last_time(method: str, step_size: float | None, reverse: bool) -> None:
    sign = -1.0 if reverse else 1.0

    def decay(t: Tensor, y: Tensor) -> Tensor:
        return -sign * y

    stepper = Stepper(decay, Y0[:1], 1.0, method=method, step_size=step_size, reverse=reverse)
    y = stepper.advance(1.0 + sign * 2.0)
    assert float(y) == pytest.approx(2 * math.exp(-2.0), rel=0.1 if method == "bdf2" else 1e-2)
    assert stepper.t == 1.0 + sign * 2.0 and not stepper.done
    with pytest.raises(ValueError, match="no end"):
        next(iter(stepper))
    resumed = Stepper.resume(decay, through_a_file(stepper.state))
    assert_same(rest(stepper, 5), rest(resumed, 5))


@torch.no_grad()
@every_way
def test_interpolation_inside_of_the_last_step(method: str, step_size: float | None) -> None:
    def decay(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return -y[0], -2 * y[1]

    y0 = (torch.ones(2, 3, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    stepper = Stepper(decay, y0, 0.0, t1=-1.0 if method == "bdf" else 1.0, **settings(method, step_size))
    with pytest.raises(ValueError, match="call step"):
        stepper.interpolate(0.0)
    stepper.step()
    step = stepper.step()
    t = torch.linspace(step.t0, step.t1, 4, dtype=torch.float64).reshape(2, 2)
    first, second = stepper.interpolate(t)
    assert first.shape == (2, 2, 2, 3) and second.shape == (2, 2)
    assert torch.equal(first[0, 0], step.y0[0]) and torch.equal(first[1, 1], step.y1[0])
    assert torch.allclose(first[..., 0, 0], torch.exp(-t), rtol=0.02)
    assert torch.allclose(second, torch.exp(-2 * t), rtol=0.02)
    one, _ = stepper.interpolate(0.5 * (step.t0 + step.t1))
    assert one.shape == (2, 3)
    with pytest.raises(ValueError, match="outside of the last step, from"):
        stepper.interpolate(step.t1 + (step.t1 - step.t0))


@torch.no_grad()
def test_stops_are_obeyed_and_the_next_step_is_known() -> None:
    stop = torch.tensor([0.1, 0.25], dtype=torch.float64)
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf", step_t=stop, max_step=0.03)
    ends = []
    while not stepper.done:
        h, before = stepper.h, stepper.stats.n_rejected
        step = stepper.step()
        if stepper.stats.n_rejected == before:
            assert step.t1 - step.t0 == pytest.approx(h, rel=1e-12)
        ends.append(step.t1)
    assert {0.1, 0.25, 0.3} <= set(ends)


def nan_after(when: float) -> Any:
    return lambda t, y: -y if float(t) <= when else math.nan * y


@torch.no_grad()
def test_a_step_that_fails_raises_or_says_so() -> None:
    stepper = Stepper(nan_after(0.5), Y0, 0.0, t1=1.0, method="rk4", step_size=0.1)
    with pytest.raises(SolverError) as caught:
        rest(stepper)
    assert caught.value.status is stepper.status is Status.NON_FINITE
    assert caught.value.t == pytest.approx(0.5) and torch.equal(caught.value.solution.ys[0], stepper.y)
    quiet = Stepper(nan_after(0.5), Y0, 0.0, t1=1.0, method="rk4", step_size=0.1, throw=False)
    assert len(list(quiet)) == 5
    cost = quiet.stats.nfe_forward
    failed = quiet.step()
    assert failed.failure is quiet.failure is not None and failed.t0 == failed.t1 == quiet.t
    assert quiet.done and quiet.status is Status.NON_FINITE and quiet.stats.nfe_forward == cost
    assert torch.equal(quiet.advance(1.0), quiet.y)
    quiet.restart(t=0.0)
    assert not quiet.done and quiet.step().failure is None


@torch.no_grad()
def test_a_nan_where_it_begins() -> None:
    with pytest.raises(SolverError):
        Stepper(nan_after(-1.0), Y0, 0.0, t1=1.0, method="bdf")
    stepper = Stepper(nan_after(-1.0), Y0, 0.0, t1=1.0, method="bdf", throw=False)
    assert stepper.done and stepper.status is Status.NON_FINITE and stepper.h == 0.0 and list(stepper) == []
    with pytest.raises(ValueError, match="failed where it began"):
        _ = stepper.state


@torch.no_grad()
def test_limits_and_raised_tolerances() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf", max_steps=5, throw=False)
    assert len(list(stepper)) <= 5 and stepper.status is Status.MAX_STEPS
    rough = Stepper(lambda t, y: -y, Y0.float() + 1, 0.0, t1=0.1, rtol=1e-12, atol=0.0)
    assert len(list(rough)) > 0 and rough.status is Status.TOLERANCE_RAISED
    grown = Stepper(lambda t, y: 1 - y, torch.zeros(2), 0.0, t1=1.0, rtol=1e-12, atol=1e-12)
    assert len(list(grown)) > 0 and grown.status is Status.TOLERANCE_RAISED  # at first there is nothing to be off


def test_record_counts_steps() -> None:
    with torch.no_grad(), proxode.record() as total:
        stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3)
        rest(stepper, 4)
    assert total.nfe_forward == stepper.stats.nfe_forward > 0


BAD = {
    "unknown option": ({"speed": 3}, TypeError, "unknown options: 'speed'"),
    "unknown method": ({"method": "rk5"}, ValueError, "unknown `method`"),
    "no steps": ({"method": "rk4"}, ValueError, "give `step_size`"),
    "checkpoint": ({"gradient": "checkpoint"}, ValueError, "never has"),
    "continuous": ({"gradient": "continuous"}, ValueError, "'implicit' or 'direct'"),
    "unknown gradient": ({"gradient": "none"}, ValueError, "unknown `gradient`"),
    "no time to go": ({"t1": 0.0}, ValueError, "equal"),
    "a direction twice": ({"reverse": True}, ValueError, "tells the direction"),
    "a grid without an end": ({"t1": None, "grid_constructor": list, "method": "rk4"}, ValueError, "give `t1`"),
    "no limit": ({"max_steps": 0}, ValueError, "`max_steps` must be a positive integer"),
    "useless": ({"interp": "cubic", "method": "bdf"}, ValueError, "has no meaning"),
    "tolerance": ({"rtol": -1.0}, ValueError, "`rtol`"),
    "inner": ({"inner": "magic", "method": "bdf"}, ValueError, "unknown inner solver"),
}


@pytest.mark.parametrize(("kwargs", "error", "says"), BAD.values(), ids=BAD)
def test_arguments_are_checked_as_in_solve(kwargs: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Stepper(van_der_pol, Y0, 0.0, **{"t1": 1.0, **kwargs})
