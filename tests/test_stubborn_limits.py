"""Sizes and times out of the ordinary, limits of the step, other kinds of numbers. Each with the right outcome."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import pytest
import torch
from stubborn_cases import F64, every_method, ones, run
from torch import Tensor

import proxode
from proxode import Status

# Sizes of the state and of the time


@every_method
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_state_of_one_number(method: str, shape: tuple[int, ...]) -> None:
    y0 = torch.full(shape, 2.0, dtype=F64, requires_grad=True)
    solution = proxode.solve(lambda t, y: -3 * y, y0, 0.0, 1.0, method=method, rtol=1e-3, atol=1e-6)
    assert solution.ys.shape == (2, *shape)
    assert float(solution.ys[-1].detach()) == pytest.approx(2 * math.exp(-3), rel=2e-2)
    (gradient,) = torch.autograd.grad(solution.ys[-1].sum(), y0)
    assert gradient.shape == shape and float(gradient) == pytest.approx(math.exp(-3), rel=2e-2)


def test_a_state_of_a_million_numbers() -> None:
    """Decays from 1 to 100 per unit of time, in float32: in seconds, and in some hundred states of memory."""
    n = 10**6
    rates = torch.logspace(0, 2, n)
    before, began = peak_memory(), time.perf_counter()
    solution = run(lambda t, y: rates * (1.0 - y), torch.zeros(n), 0.0, 1.0, method="bdf", rtol=1e-2, atol=1e-3)
    assert solution.status is Status.SUCCESS
    assert torch.allclose(solution.ys[-1], 1 - torch.exp(-rates), atol=2e-2)
    assert solution.stats.nfe_forward < 200
    assert time.perf_counter() - began < 60
    assert peak_memory() - before < 250 * 4 * n


def peak_memory() -> float:
    resource = pytest.importorskip("resource")
    size: float = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize("method", ["bdf", "auto"])
@pytest.mark.parametrize("start", [0.0, 1e6], ids=["from zero", "from a million"])
def test_twelve_decades_of_time(method: str, start: float) -> None:
    """A fast mode follows a slow one: y = 1 / (1 + s), and z -> y at once; s is the time since the start."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([-y[0] ** 2, -1e4 * (y[1] - y[0])])

    s = torch.logspace(-6, 6, 25, dtype=F64)
    y0 = torch.tensor([1.0, 1.0], dtype=F64)
    solution = run(f, y0, start, start + 1.001e6, method=method, save_at=start + s, rtol=1e-5, atol=1e-10)
    assert solution.status is Status.SUCCESS
    assert torch.allclose(solution.ys[:, 0], 1 / (1 + s), rtol=2e-3)
    assert torch.allclose(solution.ys[:, 1], 1 / (1 + s), rtol=2e-3, atol=2e-4)
    assert solution.stats.n_steps <= 1_000
    t = torch.cat([torch.tensor([start], dtype=F64), start + s])
    with torch.no_grad():
        ys = proxode.odeint(f, y0, t, rtol=1e-5, atol=1e-10, method=method)
    assert torch.allclose(ys[1:, 0], 1 / (1 + s), rtol=2e-3)


# Limits of the step


class Watched:
    """f with the steps that were tried and accepted."""

    def __init__(self, f: Any) -> None:
        self.f = f
        self.tried: list[float] = []
        self.accepted: list[tuple[float, float]] = []

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        return self.f(t, y)

    def callback_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        self.tried.append(float(dt))

    def callback_accept_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        self.accepted.append((float(t0), float(dt)))


def wave(t: Tensor, y: Tensor) -> Tensor:
    return torch.cos(10 * t) - y


@every_method
def test_steps_keep_to_what_they_were_told(method: str) -> None:
    f = Watched(wave)
    stops = torch.tensor([0.3, 0.77], dtype=F64)
    solution = run(f, ones(1), 0.0, 1.0, method=method, max_step=0.05, first_step=0.01, step_t=stops)
    assert solution.status is Status.SUCCESS
    assert f.tried[0] == 0.01
    assert max(f.tried) <= 0.05 * (1 + 1e-6)
    ends = [t0 + dt for t0, dt in f.accepted]
    assert all(any(abs(end - stop) < 1e-15 for end in ends) for stop in (0.3, 0.77, 1.0))


@every_method
def test_a_least_step_is_kept(method: str) -> None:
    """A step of the least length is taken whatever its error; one that cannot be taken at all ends the solve."""
    f = Watched(wave)
    solution = run(f, ones(1), 0.0, 1.0, method=method, min_step=0.1, rtol=1e-10, atol=1e-12)
    assert solution.status is Status.SUCCESS
    assert min(dt for t0, dt in f.accepted if t0 + dt < 1.0 - 1e-9) >= 0.1 * (1 - 1e-9)
    broken = run(lambda t, y: -y if float(t) <= 0.5 else math.nan * y, ones(1), 0.0, 1.0, method=method, min_step=0.01)
    assert broken.status in (Status.NON_FINITE, Status.INNER_NON_FINITE)
    assert broken.failure is not None and broken.failure.step_size == pytest.approx(0.01, rel=1e-6)


@every_method
def test_a_limit_to_the_number_of_steps(method: str) -> None:
    solution = run(wave, ones(1), 0.0, 100.0, method=method, max_steps=20)
    assert solution.status is Status.MAX_STEPS and solution.stats.n_steps == 20
    t = torch.tensor([0.0, 100.0], dtype=F64)
    with pytest.raises(proxode.SolverError, match="max_num_steps"):
        proxode.odeint(wave, ones(1), t, method=method, rtol=1e-3, atol=1e-5, options={"max_num_steps": 20})


# Other numbers


@pytest.mark.parametrize("method", ["bdf", "auto", "dopri5", "multistage3"])
def test_float32_cannot_be_asked_for_nine_digits(method: str) -> None:
    y0 = torch.tensor([1.0, 3.0])
    solution = run(lambda t, y: -y, y0, 0.0, 1.0, method=method, rtol=1e-9, atol=1e-12)
    assert solution.status is Status.TOLERANCE_RAISED
    assert torch.allclose(solution.ys[-1], y0 * math.exp(-1), rtol=1e-4)
    assert solution.stats.n_steps <= 1_000
    grown = run(lambda t, y: 1 - y, torch.zeros(2), 0.0, 1.0, method=method, rtol=1e-9, atol=1e-12)
    assert grown.status is Status.TOLERANCE_RAISED  # at first the state is zero, and nothing is too much
    modest = run(lambda t, y: 1 - y, torch.zeros(2), 0.0, 1.0, method=method, rtol=1e-9, atol=1e-4)
    assert modest.status is Status.SUCCESS


@pytest.mark.parametrize("method", ["bdf", "auto", "dopri5", "multistage3"])
def test_a_component_that_stays_zero_needs_no_absolute_tolerance(method: str) -> None:
    y0 = torch.tensor([1.0, 0.0], dtype=F64)
    solution = run(lambda t, y: -y, y0, 0.0, 1.0, method=method, rtol=1e-4, atol=0.0)
    assert solution.status is Status.SUCCESS and solution.stats.n_steps <= 200
    assert float(solution.ys[-1, 0]) == pytest.approx(math.exp(-1), rel=1e-3) and float(solution.ys[-1, 1]) == 0.0


COMPLEX = {torch.complex64: 1e-3, torch.complex128: 1e-3}


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("method", ["dopri5", "auto", "tsit5"])
def test_a_complex_state_turns(method: str, dtype: torch.dtype) -> None:
    """`auto` leaves out its proximal part, for which there are no complex equations."""
    y0 = torch.tensor([1.0, 1j], dtype=dtype, requires_grad=True)
    solution = proxode.solve(lambda t, y: 2j * y, y0, 0.0, 1.0, method=method)
    assert solution.status is Status.SUCCESS and solution.ys.dtype == dtype
    turn = complex(math.cos(2), math.sin(2))
    assert torch.allclose(solution.ys[-1].detach(), turn * y0.detach(), atol=COMPLEX[dtype])
    (gradient,) = torch.autograd.grad(solution.ys[-1].real.sum(), y0)
    assert torch.allclose(gradient, torch.full_like(gradient, turn).conj(), atol=COMPLEX[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["dopri5", "auto"])
def test_half_precision_is_as_good_as_it_can_be(method: str, dtype: torch.dtype) -> None:
    y0 = torch.tensor([1.0, 2.0], dtype=dtype)
    solution = run(lambda t, y: -y, y0, 0.0, 1.0, method=method, rtol=1e-2, atol=1e-2)
    assert solution.status.ok and solution.ys.dtype == dtype
    assert torch.allclose(solution.ys[-1].double(), y0.double() * math.exp(-1), atol=0.05)
    assert solution.stats.n_steps <= 200


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["bdf", "backward_euler", "multistage3"])
def test_proximal_methods_say_which_numbers_they_take(method: str, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="float32 and float64"):
        proxode.solve(lambda t, y: -y, torch.ones(2, dtype=dtype), 0.0, 1.0, method=method)


def test_auto_on_a_mixed_tuple_goes_by_what_the_whole_becomes() -> None:
    y0 = (torch.ones(2, dtype=F64), torch.ones(1, dtype=torch.complex128))
    first, second = proxode.odeint(lambda t, y: (-y[0], 1j * y[1]), y0, torch.tensor([0.0, 1.0], dtype=F64))
    assert torch.allclose(second[-1], torch.tensor([complex(math.cos(1), math.sin(1))], dtype=torch.complex128))
    assert torch.allclose(first[-1].real, torch.full((2,), math.exp(-1), dtype=F64))
