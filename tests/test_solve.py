"""`solve`: objects in, a Solution out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode import gradients, inner, methods
from proxode.inner import INNER
from proxode.methods import METHODS

Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)
FIXED = [name for name, method in METHODS.items() if not method.adaptive]
fixed = pytest.mark.parametrize("method", FIXED)


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -2 * y + torch.sin(t)


def coupled(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1] - y[0] ** 3, -3 * y[1]])


def test_objects_and_their_names_give_the_same() -> None:
    kwargs: dict[str, Any] = {"step_size": 0.1}
    named = proxode.solve(coupled, Y0, 0.0, 1.0, method="bdf3", inner="anderson", gradient="implicit", **kwargs)
    given = proxode.solve(
        coupled, Y0, 0.0, 1.0, method=methods.BDF(max_order=3), inner=inner.Anderson(), gradient=gradients.Implicit(),
        **kwargs,
    )  # fmt: skip
    assert torch.equal(named.ys, given.ys) and named.stats == given.stats
    for other in ({"method": methods.BDF(max_order=4)}, {"method": "bdf3", "inner": inner.Anderson(lr=0.1)}):
        assert not torch.equal(proxode.solve(coupled, Y0, 0.0, 1.0, **other, **kwargs).ys, given.ys)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_object_is_its_name(method: str) -> None:
    steps = {} if METHODS[method].adaptive else {"step_size": 0.25}
    named, given = (proxode.solve(decay, Y0, 0.0, 1.0, method=m, **steps) for m in (method, METHODS[method]))
    assert torch.equal(named.ys, given.ys) and named.stats == given.stats
    assert METHODS[method].name == method


@pytest.mark.parametrize("name", INNER)
def test_every_inner_object_is_its_name(name: str) -> None:
    runs = [
        proxode.solve(decay, Y0, 0.0, 1.0, method="backward_euler", inner=solver, step_size=0.25)
        for solver in (name, INNER[name])
    ]
    assert torch.equal(runs[0].ys, runs[1].ys) and runs[0].stats == runs[1].stats


def test_without_save_at_both_ends_come_back() -> None:
    for t0, t1 in ((0.0, 1.0), (1, 0), (torch.tensor(0.0), torch.tensor(1.0))):
        solution = proxode.solve(decay, Y0, t0, t1)
        assert solution.status is proxode.Status.SUCCESS and solution.failure is None
        assert_close(solution.ts, torch.tensor([float(t0), float(t1)], dtype=torch.float64))
        assert torch.equal(solution.ys[0], Y0)


GRID = torch.linspace(0, 1, 9, dtype=torch.float64)


@pytest.mark.parametrize("down", [False, True], ids=["increasing", "decreasing"])
@pytest.mark.parametrize("part", [slice(*ends) for ends in ((0, 9), (1, 9), (0, 8), (1, 8), (3, 4), (8, 9))], ids=str)
@pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
def test_save_at_returns_those_times_and_no_others(method: str, part: slice, down: bool) -> None:
    times = GRID.flip(0) if down else GRID
    steps = {} if method == "dopri5" else {"step_size": 0.0625}
    ends = float(times[0]), float(times[-1])
    full = proxode.solve(decay, Y0, *ends, method=method, save_at=times, **steps)
    solution = proxode.solve(decay, Y0, *ends, method=method, save_at=times[part], **steps)
    assert torch.equal(solution.ts, times[part])
    assert_close(solution.ys, full.ys[part], rtol=1e-12, atol=1e-12)
    assert solution.stats.n_steps == full.stats.n_steps


def test_save_at_in_float32_may_name_the_ends() -> None:
    solution = proxode.solve(decay, Y0, 0.1, 0.3, save_at=torch.tensor([0.1, 0.2, 0.3]))
    assert len(solution.ts) == len(solution.ys) == 3
    assert_close(solution.ys[0], Y0, rtol=1e-5, atol=1e-5)


def test_the_ends_may_carry_gradients() -> None:
    t0, t1 = (torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in (0.0, 1.0))
    y = proxode.solve(decay, Y0, t0, t1, rtol=1e-8, atol=1e-8).ys
    (slope,) = torch.autograd.grad(y[-1].sum(), t1)
    assert_close(slope, decay(t1, y[-1]).sum().detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_dense_solution_meets_its_own_outputs(method: str) -> None:
    steps = {} if METHODS[method].adaptive else {"step_size": 0.1}
    solution = proxode.solve(decay, Y0, 0.0, 1.0, method=method, save_at=GRID, dense=True, **steps)
    assert_close(solution.evaluate(GRID), solution.ys, rtol=1e-10, atol=1e-10)
    assert solution.evaluate(0.37).shape == Y0.shape
    sparse = proxode.solve(decay, Y0, 0.0, 1.0, method=method, save_at=GRID, **steps)
    with pytest.raises(ValueError, match="dense=True"):
        sparse.evaluate(0.5)


def test_the_inner_tolerance_is_stated_and_kept() -> None:
    def stiff(t: Tensor, y: Tensor) -> Tensor:
        return -50 * y**3

    exact = proxode.solve(stiff, Y0, 0.0, 1.0, method="backward_euler", step_size=0.1, inner_tol=1e-13)
    for tol in (1e-3, 1e-6, 1e-9):
        run = proxode.solve(stiff, Y0, 0.0, 1.0, method="backward_euler", step_size=0.1, inner="fr", inner_tol=tol)
        assert run.inner_tol == tol
        assert float((run.ys - exact.ys).detach().abs().max()) < 20 * tol
    own = proxode.solve(stiff, Y0, 0.0, 1.0, method="backward_euler", step_size=0.1, rtol=1e-8, atol=1e-8)
    assert own.inner_tol is not None
    assert float((own.ys - exact.ys).detach().abs().max()) < 1e-8
    assert proxode.solve(decay, Y0, 0.0, 1.0, method="dopri5").inner_tol is None


@fixed
@pytest.mark.parametrize("size", [0.1, 0.3, 1 / 7, 0.7, 3.0])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (2.0, 0.5), (1e3, 1e3 + 1)])
def test_fixed_steps_are_counted_exactly(method: str, size: float, ends: tuple[float, float]) -> None:
    solution = proxode.solve(decay, Y0, *ends, method=method, step_size=size)
    expected = math.ceil(abs(ends[1] - ends[0]) / size - 1e-9)
    assert solution.stats.n_steps == solution.stats.n_accepted == expected
    assert solution.stats.n_rejected == 0


@fixed
@pytest.mark.parametrize("count", [1, 3, 7, 10])
def test_times_in_float32_leave_no_tiny_last_step(method: str, count: int) -> None:
    t = torch.tensor([0.1 * i for i in range(count + 1)], dtype=torch.float32)
    with proxode.record() as stats:
        y = proxode.odeint(decay, Y0, t, method=method, options={"step_size": 0.1})
    assert stats.n_steps == count
    on_t = proxode.odeint(decay, Y0, t, method=method, options={"grid_constructor": lambda f, y0, t: t})
    assert torch.equal(y, on_t)  # nothing is interpolated


@fixed
def test_outputs_on_grid_points_are_the_steps_themselves(method: str) -> None:
    """Fewer outputs change nothing: no value between the steps is made up, and none is paid for."""
    coarse = proxode.solve(decay, Y0, 0.0, 1.0, method=method, step_size=0.125)
    fine = proxode.solve(decay, Y0, 0.0, 1.0, method=method, step_size=0.125, save_at=GRID)
    assert fine.stats == coarse.stats
    one = proxode.solve(decay, Y0, 0.0, float(GRID[3]), method=method, step_size=0.125)
    assert torch.equal(one.ys[-1], fine.ys[3])


@pytest.mark.parametrize("name", ["dopri5", "bosh3"])
def test_a_step_size_makes_an_adaptive_method_take_fixed_steps(name: str) -> None:
    solution = proxode.solve(decay, Y0, 0.0, 1.0, method=name, step_size=0.1)
    assert solution.stats.n_steps == 10 and solution.stats.n_rejected == 0


def test_states_of_a_tuple_come_back_as_a_tuple() -> None:
    solution = proxode.solve(lambda t, y: (-y[0], y[0].sum()), (Y0, Y0[0]), 0.0, 1.0, save_at=GRID[2:5])
    assert isinstance(solution.ys, tuple)
    assert [part.shape for part in solution.ys] == [(3, 2), (3,)]
    assert_close(solution.ys[0], torch.exp(-GRID[2:5]).unsqueeze(-1) * Y0, rtol=1e-3, atol=1e-4)
