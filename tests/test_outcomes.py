"""A solve that cannot go on says where, why and what to try, and keeps what it reached."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode import SolverError, Status

T = torch.linspace(0, 2, 9, dtype=torch.float64)
Y0 = torch.tensor([1.0, 0.5], dtype=torch.float64)
INNER_FAILURES = {
    "fixed_point past its radius": ("fixed_point", {}, 10.0, Status.INNER_OUTSIDE_RADIUS, "anderson"),
    "gd with three iterations": ("gd", {"inner_max_iters": 3}, 10.0, Status.INNER_MAX_ITERATIONS, "inner_max_iters"),
    "fr with one iteration": ("fr", {"inner_max_iters": 1}, 10.0, Status.INNER_MAX_ITERATIONS, "inner_max_iters"),
    "gd with too long a step": ("gd", {"inner_lr": 5.0}, 10.0, Status.INNER_DIVERGED, "inner_lr"),
}
inner_failures = pytest.mark.parametrize(
    ("inner", "options", "rate", "status", "advice"), INNER_FAILURES.values(), ids=INNER_FAILURES
)


def stiff_from(when: float, rate: float) -> Any:
    """y' = -y before that time, then `rate` times as fast."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t <= when, -y, -rate * y * torch.tensor([1.0, 7.0], dtype=y.dtype))

    return f


@inner_failures
@pytest.mark.parametrize("method", ["backward_euler", "crank_nicolson", "bdf2", "bdf4", "multistage2", "multistage3"])
def test_an_inner_solve_that_fails_is_an_error_that_names_everything(
    method: str, inner: str, options: dict[str, Any], rate: float, status: Status, advice: str
) -> None:
    f = stiff_from(-1.0, 100 * rate)
    with pytest.raises(SolverError) as caught:
        proxode.odeint(f, Y0, T, method=method, options={"inner": inner, "step_size": 0.25, **options})
    error, message = caught.value, str(caught.value)
    assert isinstance(error, RuntimeError)
    assert error.status is status
    assert error.t == 0.0
    assert "t = 0," in message and "step 1 of size 0.25" in message
    assert f"inner solver {inner}" in message and "smallest residual" in message and "tolerance" in message
    assert "What to try" in message and advice in message
    assert error.solution.stats.n_inner_failed == 1
    assert torch.equal(error.solution.ts, T[:1])
    assert torch.equal(error.solution.ys, Y0[None])


def test_cg_on_a_jacobian_that_is_not_symmetric_says_so() -> None:
    turn = 200 * torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 2.0], [0.0, -2.0, 0.0]], dtype=torch.float64)
    y0 = torch.tensor([1.0, 0.3, -0.2], dtype=torch.float64)
    with pytest.raises(SolverError, match="not symmetric") as caught:
        options = {"inner": "cg", "step_size": 0.25}
        proxode.odeint(lambda t, y: turn @ y, y0, T, method="backward_euler", options=options)
    assert caught.value.status is Status.INNER_NOT_SYMMETRIC
    assert "inner solver cg" in str(caught.value)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["increasing", "decreasing"])
def test_the_partial_solution_holds_the_right_values(sign: float) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return sign * stiff_from(1.1, 1e4)(sign * t, y)

    options = {"inner": "fixed_point", "step_size": 0.125}
    with pytest.raises(SolverError) as caught:
        proxode.odeint(f, Y0, sign * T, method="bdf2", options=options)
    assert caught.value.t == pytest.approx(sign * 1.0)
    assert f"t = {sign:g}," in str(caught.value) and "size 0.125" in str(caught.value)
    assert_close(caught.value.solution.ts, sign * T[:5])
    good = proxode.odeint(lambda t, y: -sign * y, Y0, sign * T[:5], method="bdf2", options=options)
    assert_close(caught.value.solution.ys, good)


def nan_from(when: float) -> Any:
    def f(t: Tensor, y: Any) -> Any:
        if isinstance(y, tuple):
            return tuple(f(t, part) for part in y)
        return -y if float(t) <= when else math.nan * y

    return f


FAILING = {
    "fixed explicit": ({"method": "rk4", "step_size": 0.125}, {Status.NON_FINITE}),
    "adaptive explicit": ({"method": "dopri5"}, {Status.STEP_UNDERFLOW, Status.NON_FINITE}),
    "adaptive with a least step": ({"method": "dopri5", "min_step": 1e-3}, {Status.STEP_UNDERFLOW, Status.NON_FINITE}),
    "proximal": ({"method": "bdf2", "step_size": 0.125}, {Status.INNER_NON_FINITE, Status.NON_FINITE}),
    "multistage": ({"method": "multistage3", "step_size": 0.125}, {Status.INNER_NON_FINITE, Status.NON_FINITE}),
}
failing = pytest.mark.parametrize(("kwargs", "statuses"), FAILING.values(), ids=FAILING)


@failing
@pytest.mark.parametrize("split", [False, True], ids=["tensor", "tuple"])
def test_without_throw_the_part_before_a_nan_comes_back_with_its_status(
    kwargs: dict[str, Any], statuses: set[Status], split: bool
) -> None:
    y0 = (Y0, Y0[0]) if split else Y0
    solution = proxode.solve(
        nan_from(1.1), y0, 0.0, 2.0, save_at=T, throw=False, max_steps=1000, rtol=1e-6, atol=1e-8, **kwargs
    )
    assert solution.status in statuses and not solution.status.ok
    assert solution.failure is not None and 0.99 < solution.failure.t < 1.11
    assert "nan" in solution.message or "non-finite" in solution.message
    assert_close(solution.ts, T[:5])
    parts = solution.ys if split else (solution.ys,)
    for part, start in zip(parts, y0 if split else (y0,), strict=True):
        assert part.shape == (5, *start.shape)
        assert_close(part.detach(), torch.exp(-T[:5]).view(-1, *(1 for _ in start.shape)) * start, rtol=3e-2, atol=0.0)


@failing
def test_a_nan_at_the_start_is_found_at_once(kwargs: dict[str, Any], statuses: set[Status]) -> None:
    solution = proxode.solve(nan_from(-1.0), Y0, 0.0, 2.0, throw=False, max_steps=1000, **kwargs)
    assert solution.status in statuses
    assert solution.failure is not None and solution.failure.t == 0.0
    assert torch.equal(solution.ys, Y0[None]) and len(solution.ts) == 1


@pytest.mark.parametrize("save_at", [T[1:], T[1:-1], T[:-1], T[2:3], T[-2:]], ids=lambda t: f"{t[0]} to {t[-1]}")
def test_a_partial_solution_keeps_only_what_save_at_asked_for(save_at: Tensor) -> None:
    kwargs: dict[str, Any] = {"method": "bdf2", "step_size": 0.125, "save_at": save_at}
    solution = proxode.solve(nan_from(1.1), Y0, 0.0, 2.0, throw=False, **kwargs)
    assert_close(solution.ts, save_at[save_at < 1.1])
    assert solution.ys.shape == (len(solution.ts), 2)
    with pytest.raises(SolverError) as caught:
        proxode.solve(nan_from(1.1), Y0, 0.0, 2.0, **kwargs)
    assert_close(caught.value.solution.ts, solution.ts)
    assert_close(caught.value.solution.ys, solution.ys)


@pytest.mark.parametrize("method", ["euler", "rk4", "dopri5", "tsit5", "dopri8", "backward_euler", "bdf3"])
def test_a_solution_that_blows_up_ends_near_its_pole(method: str) -> None:
    steps = {} if proxode.methods.METHODS[method].adaptive else {"step_size": 0.005}
    with pytest.raises(SolverError) as caught:
        proxode.solve(lambda t, y: y * y, Y0[:1], 0.0, 2.0, method=method, save_at=T, max_steps=2000, **steps)
    assert caught.value.status is not Status.MAX_STEPS
    assert 0.9 < caught.value.t < 1.3
    assert "largest |y|" in str(caught.value)
    before = caught.value.solution
    assert len(before.ts) >= 4
    assert_close(before.ys[:4, 0].detach(), 1 / (1 - T[:4]), rtol=0.1, atol=0.0)


@pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
def test_too_many_steps_end_the_solve(method: str) -> None:
    steps = {} if method == "dopri5" else {"step_size": 0.01}
    solution = proxode.solve(
        lambda t, y: torch.cos(40 * t) * y, Y0, 0.0, 2.0, method=method, save_at=T, max_steps=10, throw=False, **steps
    )
    assert solution.status is Status.MAX_STEPS
    assert solution.stats.n_steps == 10
    assert len(solution.ts) == len(solution.ys) < 9
    assert "max_num_steps" in solution.message and "`max_steps`" in solution.message


def test_max_num_steps_of_odeint_counts_between_two_outputs() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.cos(40 * t) * y

    with proxode.record() as stats:
        proxode.odeint(f, Y0, T, method="dopri5", rtol=1e-5)
    each = stats.n_steps // 8
    proxode.odeint(f, Y0, T, method="dopri5", rtol=1e-5, options={"max_num_steps": 3 * each})
    with pytest.raises(SolverError, match="number of steps"):
        proxode.odeint(f, Y0, T, method="dopri5", rtol=1e-5, options={"max_num_steps": each // 3})


def test_a_step_below_the_rounding_of_the_time_is_an_underflow() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t < 1.1, y, y / (t - 1.1))

    with pytest.raises(SolverError, match="underflow in dt") as caught:
        proxode.odeint(f, Y0, T, method="dopri5", options={"max_num_steps": 2000})
    assert caught.value.status is Status.STEP_UNDERFLOW
    assert caught.value.t == pytest.approx(1.1, abs=1e-6)


@failing
def test_after_a_failure_the_next_solve_works(kwargs: dict[str, Any], statuses: set[Status]) -> None:
    fresh = proxode.solve(nan_from(9.0), Y0, 0.0, 2.0, **kwargs)
    with pytest.raises(SolverError):
        proxode.solve(nan_from(1.1), Y0, 0.0, 2.0, max_steps=1000, **kwargs)
    again = proxode.solve(nan_from(9.0), Y0, 0.0, 2.0, **kwargs)
    assert torch.equal(again.ys, fresh.ys) and again.stats == fresh.stats


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["increasing", "decreasing"])
def test_a_failure_in_backward_names_the_users_time(sign: float) -> None:
    y0 = Y0.clone().requires_grad_()
    y = proxode.odeint(lambda t, y: -sign * y, y0, sign * T, method="backward_euler", options={"step_size": 0.25})
    with pytest.raises(SolverError, match="gradient") as caught:
        (y[-1] * math.nan).sum().backward()
    assert caught.value.status is Status.BACKWARD_NON_FINITE
    assert caught.value.solution is None
    assert caught.value.t == pytest.approx(sign * 2.0)


def test_a_failure_at_time_zero_of_a_decreasing_solve_says_zero() -> None:
    with pytest.raises(SolverError) as caught:
        proxode.odeint(nan_from(-9.0), Y0, -T, method="rk4")
    assert "t = 0," in str(caught.value)


def test_every_status_but_success_carries_advice() -> None:
    good = (Status.SUCCESS, Status.EVENT, Status.TOLERANCE_RAISED, Status.NOISY)
    for status in Status:
        assert status.ok == (status in good)
        assert status.message and bool(status.advice) != (status in good[:2])


@pytest.mark.parametrize("method", ["euler", "rk4", "backward_euler"])
def test_a_large_state_whose_sum_overflows_is_still_finite(method: str) -> None:
    y0 = torch.full((8,), 1e38)
    y = proxode.odeint(lambda t, y: -y, y0, torch.tensor([0.0, 0.1]), method=method)
    assert_close(y[-1].detach() / 1e38, torch.full((8,), math.exp(-0.1)), rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("outputs", [2, 4, 101])
def test_a_limit_at_torchdiffeqs_door_is_that_of_the_first_interval_too(outputs: int) -> None:
    t = torch.linspace(0, 1, outputs, dtype=torch.float64)
    with pytest.raises(SolverError, match="limit 50 between two outputs") as caught:
        proxode.odeint(lambda t, y: -1e5 * (y - torch.cos(t)), Y0, t, method="dopri5", options={"max_num_steps": 50})
    assert caught.value.solution is not None and caught.value.solution.stats.n_steps == 50


@pytest.mark.parametrize("options", [{}, {"method": "bdf"}, {"per_sample": True}, {"method": "rk4", "step_size": 0.1}])
@pytest.mark.parametrize("grad", [False, True])
def test_an_f_that_writes_into_its_argument_is_told_so_and_leaves_y0_alone(grad: bool, options: dict[str, Any]) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        y *= -1.0
        return y

    y0 = torch.ones(3, 2, dtype=torch.float64)
    with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="written into its argument y"):
        proxode.solve(f, y0, 0.0, 1.0, **options)
    assert_close(y0, torch.ones_like(y0))


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto"])
def test_a_failure_says_where_f_has_no_value_and_that_a_solution_grows(method: str) -> None:
    def no_start(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[0], torch.log(-y[1] ** 2)])

    def ends(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[0], torch.log(0.5 - t)])

    y0 = torch.ones(2, dtype=torch.float64)
    which = "f is nan or infinite in 1 of 2 components, first in number 1"
    with pytest.raises(SolverError, match=f"at the first time {which}"):
        proxode.solve(no_start, y0, 0.0, 1.0, method=method)
    with pytest.raises(SolverError, match=rf"at t = 0.5\d* {which}"):
        proxode.solve(ends, y0, 0.0, 1.0, method=method)
    with pytest.raises(SolverError, match="from 1: the solution may grow without bound"):
        proxode.solve(lambda t, y: y**2, y0, 0.0, 2.0, method=method)
