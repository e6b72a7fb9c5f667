"""An explosion that nears the largest number of its dtype ends the solve, and what only looks like one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import Status
from proxode.samples.standing import Standing
from proxode.standstill import AGAIN, Standstill

Field = Callable[[Tensor, Tensor], Tensor]


def explodes(t: Tensor, y: Tensor) -> Tensor:
    return 50 * y


def solved(f: Field, y0: Tensor, t1: float = 5.0, **options: Any) -> proxode.Solution:
    with torch.no_grad():
        return proxode.solve(f, y0, 0.0, t1, throw=False, max_steps=3_000, **options)


@pytest.mark.parametrize("method", ["auto", "dopri5", "bosh3", "dopri8", "bdf"])
def test_a_float32_that_explodes_ends_the_solve_soon(method: str) -> None:
    solution = solved(explodes, torch.ones(2), method=method)
    assert solution.status in (Status.NON_FINITE, Status.STEP_UNDERFLOW)
    assert solution.stats.nfe_forward < 3_000
    assert "largest |y| 6.8" in solution.message and "e+36 from 1: the solution may grow" in solution.message
    assert "float32 ends at 3.4e+38" in solution.message and "What to try: see whether" in solution.message
    assert 1.69 < solution.failure.t < 1.7  # type: ignore[union-attr]


def test_the_door_of_torchdiffeq_has_no_limit_of_steps_and_ends_too() -> None:
    with proxode.record() as stats, pytest.raises(proxode.SolverError, match="grow without bound"):
        proxode.odeint(explodes, torch.ones(2), torch.linspace(0, 5, 6))
    assert stats.nfe_forward < 3_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_so_does_one_of_half_precision(dtype: torch.dtype) -> None:
    solution = solved(explodes, torch.ones(2, dtype=dtype), method="dopri5", rtol=5e-2, atol=1e-2)
    assert solution.status is Status.NON_FINITE and solution.stats.nfe_forward < 3_000


def test_parts_that_go_on_do_not_hide_it_nor_does_an_early_end() -> None:
    def driven(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([50 * y[0], torch.ones_like(y[1]), torch.zeros_like(y[2])])

    for f, y0 in ((driven, torch.tensor([1.0, 0.0, 0.0])), (explodes, torch.full((2,), 6.5e36))):
        solution = solved(f, y0, method="dopri5")
        assert solution.status is Status.NON_FINITE and solution.stats.nfe_forward < 3_000


def explodes_beside_a_stiff_part(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([100 * y[..., 0], 1000 * (1 - y[..., 1])], -1)


def test_near_the_largest_number_a_solve_ends_though_the_state_still_moves() -> None:
    """Steps of BDF between two refusals grow the state by some ulp there, and would do so for ever."""
    solution = solved(explodes_beside_a_stiff_part, torch.tensor([1.0, 0.5]), t1=2.0, method="bdf")
    assert solution.status is Status.NON_FINITE and solution.stats.n_steps < 1_000


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto"])
@pytest.mark.parametrize("f", [explodes, explodes_beside_a_stiff_part])
def test_a_sample_that_explodes_ends_soon_and_leaves_the_others_alone(method: str, f: Field) -> None:
    y0 = torch.tensor([[1.0, 0.5], [0.0, 0.0], [3.0, 0.2]])
    solution = solved(f, y0, method=method, per_sample=True)
    first, second, third = solution.samples.status  # type: ignore[union-attr]
    assert second is Status.SUCCESS
    assert {first, third} <= {Status.NON_FINITE, Status.STEP_UNDERFLOW}
    assert int(solution.samples.n_steps[::2].max()) < 600  # type: ignore[union-attr]
    alone = solved(f, y0[1:2], method=method, per_sample=True)
    torch.testing.assert_close(solution.ys[-1][1], alone.ys[-1][0], rtol=1e-3, atol=1e-3)


HONEST: dict[str, tuple[Field, float, torch.dtype]] = {
    "a singularity that is passed": (lambda t, y: 1 / (t - 1).abs().sqrt() - y, 1.0, torch.float32),
    "jumps": (lambda t, y: torch.sign(torch.sin(7 * t)) - y, 1.0, torch.float32),
    "a state that stays inside of its domain": (lambda t, y: y * torch.log(y), 0.5, torch.float32),
    "a stiff transient": (lambda t, y: -1e4 * (y - torch.cos(t)) ** 3, 100.0, torch.float32),
    "a steep one": (lambda t, y: -torch.exp(y), 30.0, torch.float32),
    "float16 near its end": (lambda t, y: -(y**3), 40.0, torch.float16),
    "float16 with refused steps": (lambda t, y: y * torch.log(y), 0.5, torch.float16),
}


@pytest.mark.parametrize(("f", "start", "dtype"), HONEST.values(), ids=HONEST)
def test_an_honest_problem_comes_through(f: Field, start: float, dtype: torch.dtype) -> None:
    tol = 1e-2 if dtype == torch.float16 else 1e-5
    solution = solved(f, torch.full((2,), start, dtype=dtype), t1=4.0, method="dopri5", rtol=tol, atol=tol)
    assert solution.status.ok


def test_a_refusal_counts_where_neither_state_nor_time_have_moved() -> None:
    y = torch.ones(2)
    for t, other, ends in ((1.0, y, True), (1.0 + 1e-3, y, False), (1.0, y + 1e-6, False)):
        standstill = Standstill(times=AGAIN - 1, t=1.0, y=y)
        assert standstill.refused(t, other, way=10.0) is ends


def test_samples_are_counted_as_one_problem_is() -> None:
    y, t, which = torch.ones(3, 2), torch.tensor([1.0, 1.0 + 1e-3, 1.0]), torch.tensor([True, True, False])
    once = Standing.of(torch.ones(3), y)._replace(times=torch.full((3,), AGAIN - 1), t=torch.ones(3))
    assert once.refused(which, t, y, torch.tensor(10.0)).over.tolist() == [True, False, False]
    moved = y + torch.tensor([[1e-6, 0.0]])
    assert once.refused(which, torch.ones(3), moved, torch.tensor(10.0)).times.tolist() == [1, 1, AGAIN - 1]


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3"])
def test_what_moves_between_refusals_comes_through(method: str) -> None:
    """An unstable mode with a root overshoots below zero, where f is nan, and decays all the same."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([-300 * y[0] * (1 + y[0].sqrt()), 1 - y[1]])

    y0 = torch.tensor([1.0, 0.0], dtype=torch.bfloat16)
    assert proxode.solve(f, y0, 0.0, 1.0, method=method).status.ok


def test_a_burst_at_the_start_of_a_long_way_comes_through() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([-torch.where(t < 1e-3, 1e5, 0.0) * y[0] * (1 + y[0].sqrt()), (1 - y[1]) * 1e-3])

    assert proxode.solve(f, torch.tensor([1.0, 0.0]), 0.0, 1000.0, method="dopri5").status.ok
