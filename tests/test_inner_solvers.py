"""Every inner solver of the registry finds the same z, at a bounded price, or says that it cannot."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from problems import DATA, Calls, Problem, diffusion, tanh_network, van_der_pol

from proxode.inner import INNER, InnerResult, Stop, solve_equation
from proxode.solution import Stats
from proxode.status import Status

TOL = 3e-11  # on the residual; an error of 1e-8 in z is allowed
STIFFNESS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)  # gamma * lambda_max
SLOW = ("gd", "nag", "restart")  # asked up to a stiffness of 1e3
DISTINCT = 65  # eigenvalues of the Laplacian: more directions conjugate gradients do not need
OSCILLATORS = (
    (1.0, 0.1, (2.0, 0.0)),
    (1.0, 0.5, (1.0, 1.0)),
    (10.0, 0.1, (2.0, -0.5)),
    (100.0, 0.1, (2.0, 0.0)),
    (100.0, 0.01, (1.0, 5.0)),
    (1000.0, 0.1, (1.5, 1.0)),
    (1000.0, 1.0, (2.0, -0.001)),
)
NETWORKS = tuple((gamma, batch) for batch in (None, 32) for gamma in (0.1, 0.5, 1.0))
STEPS = [("van_der_pol", case) for case in OSCILLATORS] + [("tanh", case) for case in NETWORKS]

# Evaluations on the nonlinear problems: about 1.5 times what each solver took when this was written.
NONLINEAR = {"gd": 1600, "nag": 350, "restart": 250, "fr": 600, "lbfgs": 100, "anderson": 80, "cg": 1000}

solvers = pytest.mark.parametrize("name", INNER)


@cache
def problem(kind: str, *arguments: object) -> Problem:
    return {"diffusion": diffusion, "van_der_pol": van_der_pol, "tanh": tanh_network}[kind](*arguments)  # type: ignore


@cache
def solved(name: str, kind: str, *arguments: object) -> tuple[Problem, InnerResult, Stats]:
    """One solve from the start of the step, with no step length given."""
    p = problem(kind, *arguments)
    equation = p.equation()
    return p, solve_equation(INNER[name], equation, p.guess, Stop(TOL)), equation.f.stats


def expected(name: str, p: Problem) -> set[Status]:
    if name == "fixed_point" and p.contraction >= 1:
        return {Status.INNER_OUTSIDE_RADIUS}
    if name == "cg" and not p.symmetric:
        return {Status.SUCCESS, Status.INNER_NOT_SYMMETRIC}
    return {Status.SUCCESS}


def check(p: Problem, name: str, result: InnerResult) -> None:
    assert result.status in expected(name, p)
    if result.converged:
        assert torch.allclose(result.z, p.solution, rtol=0, atol=1e-8)
        assert result.size <= result.tol
        assert result.residual is not None
        assert torch.allclose(result.residual, p.equation().residual(result.z), rtol=0, atol=TOL)


def skip_if_too_slow(name: str, p: Problem) -> None:
    if name in SLOW and p.contraction > 1e3:
        pytest.skip("needs too many iterations for a problem this stiff")


@solvers
@pytest.mark.parametrize("stiffness", STIFFNESS)
@pytest.mark.parametrize("data", DATA)
def test_finds_the_solution_of_a_diffusion_step(name: str, data: str, stiffness: float) -> None:
    skip_if_too_slow(name, problem("diffusion", data, stiffness))
    p, result, _ = solved(name, "diffusion", data, stiffness)
    check(p, name, result)


@solvers
@pytest.mark.parametrize("case", OSCILLATORS, ids=str)
def test_finds_the_solution_of_a_van_der_pol_step(name: str, case: tuple[object, ...]) -> None:
    skip_if_too_slow(name, problem("van_der_pol", *case))
    p, result, _ = solved(name, "van_der_pol", *case)
    check(p, name, result)


@solvers
@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_finds_the_solution_of_a_step_of_a_tanh_network(name: str, case: tuple[object, ...]) -> None:
    p, result, _ = solved(name, "tanh", *case)
    check(p, name, result)


def diffusion_budget(name: str, p: Problem) -> float:
    """Evaluations that theory allows: condition number L, and the digits to gain on a residual of size r."""
    stiffness = p.contraction
    r = float(p.equation().residual(p.guess).norm()) / p.guess.numel() ** 0.5
    digits, acceleration = math.log(r / TOL), math.sqrt(1 + stiffness)
    if name == "gd":
        return 10 + 0.5 * (1 + stiffness) * digits
    if name == "fixed_point":
        return 10 + digits / math.log(1 / stiffness) if stiffness < 1 else 300
    if name == "newton":
        return p.guess.numel() + 2  # the first residual, one Jacobian, the last residual
    if name in ("fr", "cg"):
        return min(10 + acceleration * digits, 3 * DISTINCT)
    return 10 + 1.6 * acceleration * digits


@solvers
@pytest.mark.parametrize("stiffness", STIFFNESS)
@pytest.mark.parametrize("data", DATA)
def test_a_diffusion_step_stays_within_its_budget(name: str, data: str, stiffness: float) -> None:
    skip_if_too_slow(name, problem("diffusion", data, stiffness))
    p, _, stats = solved(name, "diffusion", data, stiffness)
    assert stats.nfe_forward <= diffusion_budget(name, p)


@solvers
@pytest.mark.parametrize("kind, case", STEPS, ids=str)
def test_a_nonlinear_step_stays_within_its_budget(name: str, kind: str, case: tuple[object, ...]) -> None:
    skip_if_too_slow(name, problem(kind, *case))
    p, _, stats = solved(name, kind, *case)
    budget = 8 * (p.guess.numel() + 1) if name == "newton" else NONLINEAR.get(name, 150)
    assert stats.nfe_forward <= budget


@pytest.mark.parametrize("name", ["fr", "cg", "anderson", "newton_krylov"])
@pytest.mark.parametrize("data", DATA)
def test_evaluations_grow_no_faster_than_the_square_root_of_the_stiffness(name: str, data: str) -> None:
    stiffness = [s for s in STIFFNESS if s >= 1]
    x = torch.tensor(stiffness, dtype=torch.float64).log()
    nfe = [solved(name, "diffusion", data, s)[2].nfe_forward for s in stiffness]
    y = torch.tensor(nfe, dtype=x.dtype).log()
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    assert 0 < slope <= 0.6


@solvers
def test_every_call_of_f_is_counted(name: str) -> None:
    p = problem("diffusion", "noise", 10.0)
    f = Calls(p.func)
    equation = p.equation(f)
    solve_equation(INNER[name], equation, p.guess, Stop(1e-6))
    stats = equation.f.stats
    assert stats.nfe_forward == stats.n_f + stats.n_jvp + stats.n_vjp + stats.n_jac
    assert stats.nfe_backward == 0
    if stats.n_jac == 0:  # a dense Jacobian counts its columns, by whatever means it was made
        assert stats.nfe_forward == f.count


@solvers
def test_the_statistics_hold_the_iterations_and_the_failures(name: str) -> None:
    for stiffness in (0.1, 10.0):
        _, result, stats = solved(name, "diffusion", "density", stiffness)
        assert stats.n_inner == result.iterations > 0
        assert stats.n_inner_failed == (not result.converged)


@solvers
def test_a_guess_that_solves_the_equation_takes_one_evaluation_and_no_iteration(name: str) -> None:
    p = problem("tanh", 0.5, None)
    equation = p.equation()
    result = solve_equation(INNER[name], equation, p.solution, Stop(1e-10))
    assert (result.status, result.iterations, equation.f.stats.nfe_forward) == (Status.SUCCESS, 0, 1)
    assert torch.equal(result.z, p.solution)


@solvers
def test_an_equation_is_solved_alike_whatever_was_solved_before(name: str) -> None:
    """State lives in the solve, not in the solver: the registry's objects are shared by all."""
    p, first, _ = solved(name, "tanh", 0.5, None)
    again = solve_equation(INNER[name], p.equation(), p.guess, Stop(TOL))
    assert torch.equal(first.z, again.z)
    assert first.iterations == again.iterations
