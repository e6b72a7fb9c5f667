"""A stubborn f: nan, jumps, sizes and times out of the ordinary, exceptions. Each with the right outcome."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import Status

F64 = torch.float64
METHODS = ["bdf", "auto", "backward_euler", "multistage3", "dopri5"]
every_method = pytest.mark.parametrize("method", METHODS)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=F64)


def run(f: Any, y0: Any, t0: float, t1: float, **kwargs: Any) -> proxode.Solution:
    """Without a graph, and with a tolerance that order 1 can meet."""
    first_order = kwargs.get("method") == "backward_euler"
    tolerances = {"rtol": 1e-3, "atol": 1e-5} if first_order else {"rtol": 1e-4, "atol": 1e-6}
    with torch.no_grad():
        return proxode.solve(f, y0, t0, t1, **{"throw": False, "max_steps": 20_000, **tolerances, **kwargs})


# Values that are not numbers


@every_method
def test_a_root_that_a_shorter_step_keeps_out_of_the_negative(method: str) -> None:
    """sqrt(y) = 1 - 25 t comes near its end, beyond which f is nan."""
    solution = run(lambda t, y: -50 * torch.sqrt(y), ones(1), 0.0, 0.039, method=method)
    assert solution.status is Status.SUCCESS
    assert float(solution.ys[-1]) == pytest.approx((1 - 25 * 0.039) ** 2, abs=2e-4)


@every_method
def test_a_logarithm_that_a_long_step_would_take_of_a_negative_number(method: str) -> None:
    solution = run(lambda t, y: -1000 * torch.log(y), 5 * ones(1), 0.0, 1.0, method=method)
    assert solution.status is Status.SUCCESS
    assert float(solution.ys[-1]) == pytest.approx(1.0, abs=1e-3)
    assert solution.stats.nfe_forward < 6_000


@every_method
def test_nan_everywhere_is_found_at_once(method: str) -> None:
    solution = run(lambda t, y: math.nan * y, ones(2), 0.0, 1.0, method=method)
    assert solution.status is Status.NON_FINITE and solution.failure is not None and solution.failure.t == 0.0
    assert solution.stats.nfe_forward <= 2
    assert torch.equal(solution.ys, ones(1, 2))


@every_method
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_from_some_time_on_nothing_is_finite(method: str, bad: float) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return -y if float(t) <= 0.5 else torch.full_like(y, bad)

    before = run(f, ones(2), 0.0, 0.49, method=method).stats.nfe_forward
    t = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8], dtype=F64)
    solution = run(f, ones(2), 0.0, 1.0, method=method, save_at=t)
    assert solution.status in (Status.STEP_UNDERFLOW, Status.NON_FINITE, Status.INNER_NON_FINITE)
    assert solution.failure is not None and solution.failure.t == pytest.approx(0.5, abs=1e-3)
    assert torch.equal(solution.ts, t[:3])
    assert torch.allclose(solution.ys[:, 0], torch.exp(-t[:3]), rtol=1e-2)
    assert solution.stats.nfe_forward < 2 * before + 500


# Jumps


JUMP = 1 + (math.exp(-0.5) - 1) * math.exp(-0.5)  # y' = -y, then 1 - y from 0.5 on
RELAY = 0.5 * math.exp(-0.5 * (1 - 0.5 * math.log(2)))  # y' = -2 y while y > 0.5, then -y / 2


@every_method
def test_a_jump_in_time_and_the_mark_that_spares_the_search(method: str) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return -y + (t >= 0.5).to(y)

    blind = run(f, ones(1), 0.0, 1.0, method=method)
    told = run(f, ones(1), 0.0, 1.0, method=method, jump_t=torch.tensor([0.5], dtype=F64))
    assert float(blind.ys[-1]) == pytest.approx(JUMP, abs=2e-3)
    assert float(told.ys[-1]) == pytest.approx(JUMP, abs=1e-3 if method == "backward_euler" else 1e-4)
    assert told.stats.n_steps < blind.stats.n_steps <= 300
    assert told.stats.nfe_forward < blind.stats.nfe_forward


@every_method
def test_a_jump_in_the_state(method: str) -> None:
    solution = run(lambda t, y: torch.where(y > 0.5, -2.0, -0.5) * y, ones(1), 0.0, 1.0, method=method)
    assert solution.status is Status.SUCCESS
    assert float(solution.ys[-1]) == pytest.approx(RELAY, abs=3e-3)
    assert solution.stats.n_steps <= 400


# Stiff problems at a loose tolerance


def robertson(t: Tensor, y: Tensor) -> Tensor:
    slow, fast, square = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return torch.stack([fast - slow, slow - fast - square, square])


@pytest.mark.parametrize("method", ["bdf", "auto", "multistage3"])
def test_robertson_within_a_few_hundredths(method: str) -> None:
    y0 = torch.tensor([1.0, 0.0, 0.0], dtype=F64)
    solution = run(robertson, y0, 0.0, 40.0, method=method, rtol=1e-2, atol=1e-8)
    exact = torch.tensor([0.7158270688, 9.185534764e-6, 0.2841637457], dtype=F64)  # known to ten digits
    assert solution.status is Status.SUCCESS
    assert bool(((solution.ys[-1] - exact).abs() <= 10 * 1e-2 * exact).all())
    assert solution.stats.n_steps <= 400


@pytest.mark.parametrize("method", ["bdf", "auto"])
def test_van_der_pol_within_a_few_hundredths(method: str) -> None:
    """Until before the first jump (at 807), and over it to the other branch, on which y is about -1.9 at 1000."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])

    save_at = torch.tensor([400.0, 1000.0], dtype=F64)
    y0 = torch.tensor([2.0, 0.0], dtype=F64)
    solution = run(f, y0, 0.0, 1000.0, method=method, rtol=1e-2, atol=1e-4, save_at=save_at)
    fine = run(f, y0, 0.0, 1000.0, method="bdf", rtol=1e-7, atol=1e-9, save_at=save_at)
    assert solution.status is Status.SUCCESS
    assert torch.allclose(solution.ys[:, 0], fine.ys[:, 0], rtol=0.1, atol=0.0)
    assert solution.stats.n_steps <= 500


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


# Exceptions


class Mine(Exception):
    pass


class Fragile(torch.nn.Module):
    """Raises at its k-th call, once."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor([3.0, 40.0], dtype=F64))
        self.calls, self.at, self.error = 0, 0, Mine("not today")

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return -self.rate * y + torch.sin(t)


CALLS = 200
WAYS = {"bdf": {}, "auto": {}, "dopri5": {}, "bdf2": {"step_size": 0.02}}


@pytest.mark.parametrize("gradient", ["implicit", "direct", "checkpoint", "continuous"])
@pytest.mark.parametrize("method", WAYS)
def test_an_exception_at_any_call_comes_out_and_leaves_nothing_behind(method: str, gradient: str) -> None:
    f = Fragile()

    def loss_and_gradient(at: int) -> tuple[Tensor, Tensor, int]:
        f.calls, f.at = 0, at
        f.rate.grad = None
        y0 = ones(2).requires_grad_()
        options = {"method": method, "gradient": gradient, "rtol": 1e-3, "atol": 1e-5, **WAYS[method]}
        with proxode.record() as total:
            loss = proxode.solve(f, y0, 0.0, 0.1, **options).ys[-1].square().sum()
            loss.backward()
        assert y0.grad is not None
        return loss.detach(), y0.grad, total.nfe_forward + total.nfe_backward

    clean = loss_and_gradient(0)
    calls = f.calls
    assert calls > 10
    for k in range(1, min(calls, CALLS) + 1):
        with pytest.raises(Mine) as caught:
            loss_and_gradient(k)
        assert caught.value is f.error, k
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        if k % 5 == 0 or k < 5:
            again = loss_and_gradient(0)
            assert torch.equal(again[0], clean[0]) and torch.equal(again[1], clean[1]) and again[2] == clean[2], k
    assert f.calls >= 1 and isinstance(f.rate, torch.nn.Parameter)


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
