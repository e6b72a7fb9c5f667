"""Stiff equations in float32, whose residual soon is rounding: solves stop there, and wait for nothing more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode.inner import Goal, ImplicitEquation, InnerSolver, Stop, solve_equation
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField

TIMES = torch.tensor([0.0, 0.1], dtype=torch.float64)


def ring(t: Tensor, y: Tensor) -> Tensor:
    """Diffusion on a ring of points, and growth: |J| = 16,000 to 1.6 million."""
    return 0.01 * y.numel() ** 2 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1)) + y * (1 - y)


def torus(t: Tensor, y: Tensor) -> Tensor:
    """The same in two dimensions, |J| = 80,000: for solvers without matrices."""
    around = torch.roll(y, 1, 0) + torch.roll(y, -1, 0) + torch.roll(y, 1, 1) + torch.roll(y, -1, 1)
    return 1e4 * (around - 4 * y) + y * (1 - y)


def solved(func: Any, y0: Tensor, dtype: torch.dtype, method: str, **options: Any) -> tuple[Tensor, int]:
    with proxode.record() as stats:
        y = proxode.odeint(func, y0.to(dtype), TIMES, method=method, options=options)
    assert stats.n_inner_failed == 0
    return y[-1].double(), stats.nfe_forward


def bump(n: int) -> Tensor:
    return torch.exp(-100 * (torch.linspace(0, 1, n, dtype=torch.float64) - 0.5) ** 2)


def check(func: Any, y0: Tensor, most: float, off: float, method: str = "bdf2", **options: Any) -> None:
    """At the default tolerances, which float32 does not carry."""
    double, cost = solved(func, y0, torch.float64, method, **options)
    single, single_cost = solved(func, y0, torch.float32, method, **options)
    assert single_cost <= most * cost
    assert float((single - double).abs().max()) <= off


@pytest.mark.parametrize(("n", "off"), [(1_000, 5e-6), (10_000, 1e-5)])
@pytest.mark.parametrize("method", ["backward_euler", "bdf2", "bdf4", "crank_nicolson", "multistage2"])
def test_fixed_steps_with_newton_cost_little_more_than_in_double_precision(method: str, n: int, off: float) -> None:
    check(ring, bump(n), 3.5, off, method, step_size=0.005)


@pytest.mark.parametrize("inner", ["anderson", "newton_krylov", "cg", "fr", "lbfgs"])
def test_fixed_steps_without_matrices_cost_about_what_they_cost_in_double_precision(inner: str) -> None:
    y0 = bump(48) * bump(48)[:, None]
    check(torus, y0, 1.5, 5e-7, step_size=0.005, inner=inner)


@pytest.mark.parametrize(("inner", "most"), [("anderson", 2.5), ("newton_krylov", 1.2), ("fr", 1.3)])
def test_adaptive_steps_without_matrices_end_at_the_noise(inner: str, most: float) -> None:
    y0 = bump(48) * bump(48)[:, None]
    check(torus, y0, most, 2e-6, "bdf", inner=inner)


class Resting(InnerSolver):
    """Gets no further for some iterations, and is done in the next: for `f = -100 y` and a gamma of one."""

    name = "resting"

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> int:
        return 0

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: int) -> tuple[Tensor, int]:
        return (z if state < 2 * self.noise_doubt else z - r / 101.0), state + 1


def test_noise_that_was_met_is_no_licence_to_stop_where_f_is_quiet() -> None:
    """A size of residual that was noise only says when to ask: what counts is the noise of this equation."""
    y0 = torch.linspace(1, 2, 8, dtype=torch.float64)
    f = VectorField(lambda t, y: -100.0 * y, Structure.of(y0), Stats())
    f.learned["noise"] = 1e6  # of another equation, by far louder
    result = solve_equation(Resting(), ImplicitEquation(f, 0.0, y0, 1.0), y0, Stop(1e-10))
    assert result.converged
    torch.testing.assert_close(result.z, y0 / 101.0)


def exchange(t: Tensor, y: Tensor) -> Tensor:
    """Pairs that exchange fast what only one of the two loses: their sum decays by `exp(-t / 4)`."""
    a, b = y.chunk(2)
    flow = 1e6 * (b - a)
    return torch.cat([flow, -flow - 0.5 * b])


def chain(t: Tensor, y: Tensor) -> Tensor:
    """Three that exchange, at two speeds, and decay: nonlinear, and not symmetric."""
    a, b, c = y.chunk(3)
    first, second = 1e6 * (b - a), 3e5 * (c - b)
    return torch.cat([first, second - first, -second]) - 0.3 * y * y


def long_ring(t: Tensor, y: Tensor) -> Tensor:
    """Diffusion on a ring: what is slow is smooth."""
    return 1e6 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1)) + y * (1 - y)


@pytest.mark.parametrize("inner", ["newton", "anderson", "newton_krylov", "fr", "lbfgs"])
@pytest.mark.parametrize(("func", "n"), [(exchange, 100), (chain, 99), (long_ring, 100)])
@pytest.mark.parametrize("fixed", [True, False])
def test_what_is_slow_does_not_hide_behind_the_noise_of_what_is_fast(
    func: Any, n: int, fixed: bool, inner: str
) -> None:
    """There gamma |J| = 2e5, and the noise of a residual a million times the tolerance: errors of 10 to 80 % were
    taken for noise."""
    y0 = torch.rand(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    options = {"step_size": 0.05} if fixed else {}
    method, ts = "bdf2" if fixed else "bdf", torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    exact = proxode.odeint(func, y0, ts, method=method, options={"inner": "newton", **options}, rtol=1e-9, atol=1e-11)
    options["inner"] = inner
    with proxode.record() as stats:
        y = proxode.odeint(func, y0.float(), ts, method=method, options=options, rtol=1e-5, atol=1e-6)
    assert float((y - exact).abs().max() / exact.abs().max()) <= 2e-5
    assert stats.n_inner_failed == 0 or not fixed
    assert stats.nfe_forward <= (25_000 if inner == "newton_krylov" else 6_000)  # GMRES restarts


def test_noise_behind_which_nothing_can_be_seen_is_a_failure() -> None:
    """On a longer ring no solver without matrices sees the smooth modes in float32: adaptive steps become shorter,
    given ones end, where the mean of the state was off by half."""
    y0 = torch.rand(2_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64).float()
    options = {"step_size": 0.05, "inner": "anderson"}
    with pytest.raises(proxode.SolverError, match="'newton'") as caught:
        proxode.odeint(long_ring, y0, TIMES, method="bdf2", options=options, rtol=1e-5, atol=1e-6)
    assert caught.value.status is proxode.Status.INNER_STAGNATED
    assert caught.value.solution.stats.nfe_forward <= 2_000


def right_or_failed(func: Any, y0: Tensor, exact: Tensor, off: float, **options: Any) -> bool:
    """Whether the solve went through; if it did, it must be right."""
    solution = proxode.solve(func, y0, 0.0, 1.0, rtol=1e-5, atol=1e-6, throw=False, **options)
    if solution.status.ok:
        assert float((solution.ys[-1].double() - exact).abs().max()) <= off
    else:
        assert solution.status is proxode.Status.INNER_STAGNATED
    return solution.status.ok


@pytest.mark.parametrize("method", ["backward_euler", "bdf2"])
@pytest.mark.parametrize("rate", [1e7, 1e8, 1e10])
def test_a_matrix_in_which_the_one_is_lost_solves_nothing(method: str, rate: float) -> None:
    """Beyond `gamma |J| = 1 / eps` all of `1 - gamma J` is rounding: what is slow was off by any factor (5e14)."""
    y0 = torch.rand(64, generator=torch.Generator().manual_seed(0))

    def ring(t: Tensor, y: Tensor) -> Tensor:
        return rate * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1))

    def pair(t: Tensor, y: Tensor) -> Tensor:
        flow = rate * y[1] - 0.7 * rate * y[0]
        return torch.stack([flow, -flow])

    options: dict[str, Any] = {"method": method, "step_size": 0.1}
    assert right_or_failed(ring, y0, y0.double().mean().expand(64), 3e-5, **options)
    ends = torch.tensor([1.3 / 1.7, 0.7 * 1.3 / 1.7], dtype=torch.float64)
    assert right_or_failed(pair, torch.tensor([1.0, 0.3]), ends, 3e-5, **options)


@pytest.mark.parametrize("inner", ["newton", "anderson", "newton_krylov", "fr", "lbfgs"])
def test_a_search_behind_noise_that_has_not_come_to_its_end_is_no_success(inner: str) -> None:
    """What is slow is nonlinear here: moves of Newton's method that shrink slowly are not noise."""

    def func(t: Tensor, y: Tensor) -> Tensor:
        a, b = y.chunk(2)
        flow, mean = 1e7 * (b - a), (a + b) / 2
        return torch.cat([flow, -flow + 2 * (1 - torch.exp(8 * mean))])

    y0 = 1.0 + 0.05 * torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options = {"method": "backward_euler", "step_size": 0.05}
    exact = proxode.solve(func, y0, 0.0, 1.0, inner="newton", rtol=1e-9, atol=1e-11, **options).ys[-1]
    solved = right_or_failed(func, y0.float(), exact, 1e-4, inner=inner, **options)
    assert solved or inner == "fr"


@pytest.mark.parametrize("rate", [1e5, 1e6])
@pytest.mark.parametrize("inner", ["newton", "auto"])
def test_newton_with_a_jacobian_that_lacks_what_is_stiff_is_not_believed(inner: str, rate: float) -> None:
    """For f has detached it: the iteration diverges, and the noise of what is large is large."""

    def func(t: Tensor, y: Tensor) -> Tensor:
        a, b = y.chunk(2)
        flow = rate * (b - a).detach()
        return torch.cat([flow, -flow - 0.5 * b])

    y0 = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options = {"method": "bdf2", "step_size": 0.05}
    exact = proxode.solve(func, y0, 0.0, 1.0, inner="newton_krylov", rtol=1e-8, atol=1e-9, **options).ys[-1]
    right_or_failed(func, y0.float(), exact, 1e-4, inner=inner, **options)


def test_a_residual_of_nothing_is_a_solution() -> None:
    """Beyond 1 / eps a state that is even leaves none at all: there was a division by it."""
    y0 = torch.rand(512, generator=torch.Generator().manual_seed(0))
    even = y0.double().mean().expand(512)

    def ring(t: Tensor, y: Tensor) -> Tensor:
        return 1e8 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1))

    right_or_failed(ring, y0, even, 1e-4, method="bdf2", step_size=0.1, inner="anderson")
