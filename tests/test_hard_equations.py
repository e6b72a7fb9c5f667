"""Equations whose roots are hard to find: valleys that bend, guesses that mislead, several roots."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import SolverError, odeint, record
from proxode.inner import INNER, ImplicitEquation, InnerResult, Stop, followed, solve_equation
from proxode.inner.continuation import TRIES
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField


def equation(f: Any, values: list[float], gamma: float = 1.0) -> ImplicitEquation:
    anchor = torch.tensor(values, dtype=torch.float64)
    return ImplicitEquation(VectorField(f, Structure.of(anchor), Stats()), 0.0, anchor, gamma)


# Damping


@pytest.mark.parametrize("fast", [1.0, 1e4, 1e8])
def test_newton_goes_along_a_bent_valley_however_steep_it_is(fast: float) -> None:
    """Rosenbrock's: y2 follows y1^2 at once, and y1 moves. A full step leaves the valley, whose residual is then as
    large as the valley is steep; the way to the root is as long as ever."""

    def f(t: object, y: Tensor) -> Tensor:
        return torch.stack([10.0 * (1.0 - y[0]) - torch.exp(y[0]), fast * (y[0] ** 2 - y[1])])

    made = equation(f, [-3.0, 9.0])
    result = solve_equation(INNER["newton"], made, made.anchor, Stop(1e-6, given=True))
    assert result.converged and result.iterations <= 14
    y1, y2 = result.z.tolist()
    assert y2 == pytest.approx((9.0 + fast * y1**2) / (1.0 + fast), rel=1e-6)


def test_newton_still_gets_out_of_where_full_steps_run_away() -> None:
    """From 5 a full step for the root of arctan leads to -30, and on to infinity."""
    made = equation(lambda t, y: -1e6 * torch.arctan(y), [5.0])
    result = solve_equation(INNER["newton"], made, made.anchor, Stop(1e-4, given=True))
    assert result.converged and result.iterations <= 25 and abs(float(result.z)) < 1e-4


@pytest.mark.parametrize("power, a", [(9, 1.5), (15, 1.5), (15, 2.0), (25, 2.0)])
def test_lengths_do_not_swing_where_f_is_flat_and_then_steep(power: int, a: float) -> None:
    """From zero f looks constant; a whole step ends where it is enormous."""
    made = equation(lambda t, y: -(y**power), [a])
    made_at_zero = torch.zeros_like(made.anchor)
    result = solve_equation(INNER["newton"], made, made_at_zero, Stop(1e-6, given=True))
    assert result.converged and result.iterations <= 60


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("inner", "tol"), [("newton", 1.05), ("newton_krylov", 1.3)])
def test_an_update_that_was_cut_short_does_not_end_a_solve(inner: str, tol: float, given: bool) -> None:
    """From zero the first move is 1000, and about a thousandth of it is taken; but the root is 2.15 away."""
    made = equation(lambda t, y: 1000.0 - y**9, [0.0])
    result = solve_equation(INNER[inner], made, made.anchor, Stop(tol, "update", given=given))
    if result.converged:
        assert float(result.z) == pytest.approx(2.15, abs=0.8)
    assert result.converged or not given


@pytest.mark.parametrize("beyond", [torch.inf, torch.nan])
def test_the_jacobian_of_an_attempt_that_failed_does_not_end_the_next(beyond: float) -> None:
    """A move with it may lead anywhere: then it goes back to the start, and makes a Jacobian there."""

    def f(t: object, y: Tensor) -> Tensor:
        return 1000.0 - torch.where(y > 5.0, beyond, torch.exp(20.0 * y.clamp(max=5.0)))

    made = equation(f, [0.0])
    away = torch.full_like(made.anchor, -1.0)  # where f is flat
    newton = INNER["newton"]
    solve_equation(newton, made, away, Stop(1e-12, max_iters=1, given=True))
    assert "newton" in made.f.learned
    result = solve_equation(newton, made, made.anchor, Stop(1e-6, given=True))
    assert result.converged and float(result.z) == pytest.approx(0.345, abs=0.01)


# Guesses


@pytest.mark.parametrize("method", ["backward_euler", "crank_nicolson", "bdf2", "bdf3", "multistage2"])
def test_a_given_step_is_tried_from_the_last_state_where_extrapolation_leads_astray(method: str) -> None:
    """Past the transient of the first step a straight line leads below zero, where f is not defined."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -1e3 * torch.log(y) * torch.where(y > 0, 1.0, torch.nan)

    y0, t = torch.tensor([50.0], dtype=torch.float64), torch.linspace(0, 1, 9, dtype=torch.float64)
    with record() as stats:
        y = odeint(f, y0, t, method=method, rtol=1e-6, atol=1e-6, options={"step_size": 0.125})
    assert float(y.min()) > 0 and stats.nfe_forward < 600
    if method in ("backward_euler", "bdf2"):
        assert stats.n_inner_failed >= 1  # or the test tests nothing
        assert float(y[-1]) == pytest.approx(1.0, abs=1e-3)


def test_an_adaptive_step_that_fails_is_made_shorter_and_not_tried_twice() -> None:
    tried: list[float] = []

    def f(t: Tensor, y: Tensor) -> Tensor:
        tried.append(float(t))
        return torch.full_like(y, torch.nan) if float(t) > 0.5 else -y

    with pytest.raises(SolverError):
        odeint(f, torch.ones(1), torch.tensor([0.0, 1.0]), method="backward_euler", options={"min_step": 1e-3})
    beyond = [t for t in tried if t > 0.5]
    assert len(beyond) == len(set(beyond))


def test_the_tolerance_of_a_second_start_is_not_that_of_the_guess_that_misled() -> None:
    """The size of the state is in the tolerance: a guess that is a billion times too large would make anything do."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -(y**3) * torch.where(y > 0, 1.0, torch.nan)

    t = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    for size in (1e3, 1e6, 1e9, 1e12):
        y0 = torch.tensor([size], dtype=torch.float64)
        y = odeint(f, y0, t, method="backward_euler", rtol=1e-3, atol=1e-6, options={"step_size": 1.0})
        for before, after in pairwise(y.flatten().tolist()):
            assert after + after**3 == pytest.approx(before, rel=1e-3)


def test_the_chances_of_a_step_come_in_their_order_and_a_limit_ends_them(monkeypatch: Any) -> None:
    """The guess, the last state, then the way from a step without length."""
    guesses: list[float] = []
    alone = proxode.configure.solve_equation

    def watched(solver: Any, made: ImplicitEquation, guess: Tensor, stop: Stop) -> InnerResult:
        guesses.append(float(guess))
        return alone(solver, made, guess, stop)

    monkeypatch.setattr("proxode.configure.solve_equation", watched)
    y0, t = torch.tensor([3.5], dtype=torch.float64), torch.tensor([0.0, 1e-3, 1.0], dtype=torch.float64)
    options: dict[str, Any] = {"grid_constructor": lambda func, y0, t: t}
    y = odeint(inhibited, y0, t, method="backward_euler", options=options)
    y1 = float(y[1])
    assert guesses[0] == 3.5 and guesses[1] != y1 and guesses[2] == guesses[3] == y1  # the way begins there too
    assert float(y[2]) < 0.01
    guesses.clear()
    with pytest.raises(SolverError):
        odeint(inhibited, y0, t, method="backward_euler", options=options | {"inner_max_iters": 2})
    assert len(guesses) <= 2


# Several roots


def inhibited(t: object, y: Tensor) -> Tensor:
    """A substrate that slows down its own decay (Haldane's kinetics): the equation of a long step bends twice."""
    return -1000.0 * y * torch.exp(-y)


def test_a_given_step_finds_the_root_that_belongs_to_the_solution() -> None:
    """Newton alone runs away to large y; followed from gamma = 0, the root goes down to zero as the solution does."""
    y0, t = torch.tensor([3.5], dtype=torch.float64), torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    alone = equation(inhibited, [3.5])
    assert not solve_equation(INNER["newton"], alone, alone.anchor, Stop(1e-8, given=True)).converged
    with record() as stats:
        y = odeint(inhibited, y0, t, method="backward_euler", rtol=1e-8, atol=1e-8, options={"step_size": 1.0})
    z = float(y[1])
    assert 0 < z < 0.01 and z - 3.5 - float(inhibited(0, y[1])) == pytest.approx(0.0, abs=1e-6)
    assert stats.n_inner_failed >= 1 and stats.nfe_forward <= 1200


def test_its_gradient_is_that_of_the_equation() -> None:
    y0 = torch.tensor([3.5], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    z = odeint(inhibited, y0, t, method="backward_euler", options={"step_size": 1.0})[1]
    (found,) = torch.autograd.grad(z, y0)
    z = z.detach()
    slope = -1000.0 * (1.0 - z) * torch.exp(-z)
    assert float(found) == pytest.approx(1.0 / float(1.0 - slope), rel=1e-6)


def test_an_equation_without_a_root_is_not_followed_beyond_its_last() -> None:
    """`z = 1 + gamma z^2` has none beyond gamma = 1/4: the two that there are meet and vanish."""
    made, gammas = equation(lambda t, y: y * y, [1.0]), list[float]()

    def solve(part: ImplicitEquation, guess: Tensor) -> InnerResult:
        gammas.append(float(part.gamma))
        return solve_equation(INNER["newton"], part, guess, Stop(1e-8, given=True))

    assert followed(made, made.anchor, solve) is None
    assert len(gammas) < TRIES and max(gammas) == 1.0 and any(0.2 < gamma <= 0.25 for gamma in gammas)


def test_where_even_the_shortest_way_fails_it_is_given_up_soon() -> None:
    made, calls = equation(lambda t, y: y * torch.nan, [1.0]), list[float]()

    def solve(part: ImplicitEquation, guess: Tensor) -> InnerResult:
        calls.append(float(part.gamma))
        return solve_equation(INNER["newton"], part, guess, Stop(1e-8, given=True))

    assert followed(made, made.anchor, solve) is None and len(calls) < 12


def test_the_way_is_that_of_the_same_step_of_other_lengths() -> None:
    """Both parts of the equation grow with the length: the anchor from the last state, and gamma from zero."""
    made, previous = equation(lambda t, y: -y, [5.0], 4.0), torch.tensor([1.0], dtype=torch.float64)
    seen: list[ImplicitEquation] = []

    def solve(part: ImplicitEquation, guess: Tensor) -> InnerResult:
        seen.append(part)
        return solve_equation(INNER["newton"], part, guess, Stop(1e-10, given=True))

    z = followed(made, previous, solve)
    assert z is not None and float(z) == pytest.approx(1.0) and len(seen) > 1
    for part in seen:
        assert float(part.anchor - 1.0) / 4.0 == pytest.approx(float(part.gamma) / 4.0)


def test_an_anchor_that_is_no_state_of_the_solution_does_no_harm() -> None:
    """That of Crank-Nicolson: here f overflows there."""

    def f(t: object, y: Tensor) -> Tensor:
        return 1000.0 - torch.exp(20.0 * y)

    y0, t = torch.tensor([0.0], dtype=torch.float64), torch.linspace(0, 3, 4, dtype=torch.float64)
    y = odeint(f, y0, t, method="crank_nicolson", rtol=1e-6, atol=1e-8, options={"step_size": 1.0})
    steps = pairwise(y)
    assert all(float(b - a - 0.5 * (f(0, a) + f(0, b))) == pytest.approx(0.0, abs=1e-3) for a, b in steps)


@pytest.mark.parametrize("inner", ["fr", "anderson", "fixed_point"])
def test_iterations_that_are_not_newtons_are_left_as_they_are(inner: str) -> None:
    """The paper's are to fail where they fail."""
    y0, t = torch.tensor([3.5], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    with record() as stats:
        try:
            odeint(inhibited, y0, t, method="backward_euler", options={"step_size": 1.0, "inner": inner})
        except SolverError as error:
            assert isinstance(error.status, proxode.Status)
    assert stats.n_inner_failed <= 1
