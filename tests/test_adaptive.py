"""Proximal methods that choose their steps: errors in proportion to the tolerance, with little work."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from torch import Tensor

import proxode
from proxode.controllers import Adaptive, AdaptiveState, Outcome
from proxode.methods import METHODS, History, VariableBDF
from proxode.methods.variable_bdf import difference_error
from proxode.paper.diffusion import INITIAL_DATA, Diffusion
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField

ONE_STEP = ["backward_euler", "crank_nicolson", "multistage2", "multistage3"]


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def robertson(t: Tensor, y: Tensor) -> Tensor:
    slow, fast, back = 0.04 * y[0], 3e7 * y[1] ** 2, 1e4 * y[1] * y[2]
    return torch.stack([back - slow, slow - back - fast, fast])


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 100 * (1 - y[0] ** 2) * y[1] - y[0]])


def brusselator(t: Tensor, y: Tensor) -> Tensor:
    """100 points, 200 unknowns, between fixed ends."""
    u, v = y.reshape(2, -1)
    one = torch.ones(1, dtype=y.dtype)
    pull = (u.shape[0] + 1) ** 2 / 50
    uu, vv = torch.cat([one, u, one]), torch.cat([3 * one, v, 3 * one])
    return torch.cat([
        1 + u * u * v - 4 * u + pull * (uu[2:] - 2 * u + uu[:-2]),
        3 * u - u * u * v + pull * (vv[2:] - 2 * v + vv[:-2]),
    ])  # fmt: skip


def brusselator_start(points: int = 100) -> Tensor:
    x = torch.linspace(0, 1, points + 2, dtype=torch.float64)[1:-1]
    return torch.cat([1 + torch.sin(2 * math.pi * x), torch.full_like(x, 3.0)])


def stiff_for_a_while(t: Tensor, y: Tensor) -> Tensor:
    """Drawn towards cos t: gently, between 10/3 and 20/3 ten thousand times as hard, then gently again."""
    strength = 1 + 1e4 * (torch.sigmoid(20 * (t - 10 / 3)) - torch.sigmoid(20 * (t - 20 / 3)))
    return -strength * (y - torch.cos(t))


# name: f, y0, last time, absolute tolerance in units of tol, most NFE of bdf at 1e-3 and at 1e-6
PROBLEMS: dict[str, tuple[Any, Tensor, float, Any, tuple[int, int]]] = {
    "robertson": (robertson, doubles(1, 0, 0), 1e11, doubles(1e-4, 1e-10, 1e-2), (850, 2400)),
    "van_der_pol": (van_der_pol, doubles(2, 0), 200.0, 1.0, (850, 2200)),
    "brusselator": (brusselator, brusselator_start(), 10.0, 1.0, (650, 900)),
    "stiff for a while": (stiff_for_a_while, doubles(1, 1, 1), 10.0, 1.0, (350, 900)),
}


@cache
def exact(name: str) -> Tensor:
    """At the last time, by an independent code."""
    f, y0, end, factor, _ = PROBLEMS[name]

    def jacobian(t: float, y: Any) -> Any:
        return torch.func.jacrev(f, argnums=1)(torch.tensor(t), torch.tensor(y)).numpy()

    run = solve_ivp(
        lambda t, y: f(torch.tensor(t), torch.tensor(y)).numpy(), (0, end), y0.numpy(), method="Radau", rtol=1e-9,
        atol=(1e-9 * torch.as_tensor(factor)).numpy(), jac=jacobian,
    )  # fmt: skip
    return torch.tensor(run.y[:, -1])


def run(name: str, tol: float, **kwargs: Any) -> tuple[float, Stats]:
    """The error at the end, in units of the tolerance, and what it cost."""
    f, y0, end, factor, _ = PROBLEMS[name]
    solution = proxode.solve(f, y0, 0.0, end, **{"method": "bdf", "rtol": tol, "atol": tol * factor, **kwargs})
    off = (solution.ys[-1] - exact(name)) / (tol * factor + tol * exact(name).abs())
    return float(off.square().mean().sqrt()), solution.stats


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_error_of_bdf_is_within_ten_tolerances_and_so_is_that_of_auto(name: str, tol: float) -> None:
    most = PROBLEMS[name][-1][0 if tol == 1e-3 else 1]
    for method in ("bdf", "auto"):
        error, stats = run(name, tol, method=method)
        assert error < 10
        assert stats.nfe_forward <= most
        assert stats.n_rejected < 0.25 * stats.n_steps


@pytest.mark.parametrize("data", INITIAL_DATA)
def test_diffusion_without_a_matrix_costs_a_hundredth_of_dopri5(data: str) -> None:
    """DOPRI5 takes 145,700 evaluations for the same."""
    problem, h0 = Diffusion(), INITIAL_DATA[data](128)
    t = torch.linspace(0, 1, 21, dtype=torch.float64)
    with proxode.record() as stats:
        h = proxode.odeint(problem.f, h0, t, rtol=1e-6, atol=1e-6, method="bdf", options={"inner": "anderson"})
    errors = (h - problem.exact(h0, t)).abs().amax(1)
    assert errors[-1] <= 1e-6 and errors.max() <= 1e-5
    assert stats.nfe_forward <= 1_450 and stats.n_jac == stats.n_jvp == 0


@pytest.mark.parametrize("inner", ["newton", "anderson"])
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5])
def test_what_was_learned_while_f_was_stiff_does_not_mislead_when_it_is_no_longer(inner: str, tol: float) -> None:
    """With the Jacobian of the stiff part Newton's moves are tiny, and a solve would seem to have converged."""
    error, _ = run("stiff for a while", tol, inner=inner)
    assert error < 10


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_a_cap_on_the_order_costs_steps(k: int) -> None:
    orders: list[int] = []
    steps = {}
    for cap in (k, 5):
        method = VariableBDF(max_order=cap)
        assert METHODS[f"bdf{k}"].adapting() == VariableBDF(max_order=k)
        seen = _orders(method, 1e-5)
        assert seen[0] == 1 and max(seen) == cap
        steps[cap], orders = len(seen), seen
    assert all(abs(b - a) <= 1 for a, b in itertools.pairwise(orders))
    assert k == 5 or steps[k] > steps[5]


def _orders(method: VariableBDF, tol: float) -> list[int]:
    from proxode.configure import configure
    from proxode.loop import travel
    from proxode.problem import make_problem

    found: list[int] = []
    problem = make_problem(van_der_pol, doubles(2, 0), doubles(0, 60), tol, tol, Stats())
    plan = configure(problem, method, {})
    with torch.no_grad():
        travel(problem, plan.method, plan.controller, plan.solve, max_steps=10**5,
               on_accept=lambda place: found.append(place.order or 0))  # fmt: skip
    return found


@given(
    k=st.integers(1, 5),
    gaps=st.lists(st.floats(0.2, 2.0), min_size=7, max_size=7),
    coefficients=st.lists(st.floats(-1, 1), min_size=7, max_size=7),
)
@settings(max_examples=60, deadline=None)
def test_the_error_estimates_are_exact_where_the_next_derivative_is_the_last(
    k: int, gaps: list[float], coefficients: list[float]
) -> None:
    """On a polynomial of degree k + 1 in t, any spacing: the estimate of order k is the error to the last digits."""
    def polynomial(t: Tensor) -> Tensor:
        return sum(c * t**i for i, c in enumerate(coefficients[: k + 2]))  # type: ignore[return-value]

    times = [0.0]
    for gap in gaps:
        times.insert(0, times[0] + gap)
    t1, past = times[0], times[1:]
    ys = [polynomial(doubles(t)) for t in past]

    def slope(t: Tensor, y: Tensor) -> Tensor:
        return sum(i * c * t ** (i - 1) for i, c in enumerate(coefficients[: k + 2]) if i).reshape(1)  # type: ignore

    f = VectorField(lambda t, y: slope(t, y) + 0 * y, Structure.of(ys[0]), Stats())
    step = VariableBDF().step(f, past[0], t1, History(tuple(past), tuple(ys), order=k), _exactly)
    off = step.y1 - polynomial(doubles(t1))
    size = 1e-10 * max(1.0, abs(t1)) ** (k + 1) * 100
    assert step.error is not None
    assert float((step.error - off).abs()) <= size
    assert float((difference_error(times, (polynomial(doubles(t1)), *ys), k) - off).abs()) <= size


def _exactly(equation: Any, guess: Tensor) -> Any:
    """An equation whose f does not depend on z."""
    from proxode.inner import InnerResult
    from proxode.status import Status

    return InnerResult("exactly", equation.image(guess), Status.SUCCESS, 1, 0.0, 0.0)


@pytest.mark.parametrize("method", ONE_STEP)
def test_one_step_methods_adapt_and_their_steps_grow_as_the_tolerance_says(method: str) -> None:
    errors, steps = [], []
    for tol in (1e-3, 1e-5):
        error, stats = run("van_der_pol" if METHODS[method].order > 1 else "stiff for a while", tol, method=method)
        errors.append(error)
        steps.append(stats.n_steps)
        assert stats.n_rejected < 0.35 * stats.n_steps
    assert max(errors) < 30
    # between tol^(-1/(p+1)), if every step had the tolerance for itself, and as much again for their number
    order = METHODS[method].order
    assert 100 ** (0.5 / (order + 1)) < steps[1] / steps[0] < 100 ** (1.5 / (order + 1))


@pytest.mark.parametrize("method", ONE_STEP)
def test_an_error_estimate_costs_no_evaluation(method: str) -> None:
    """Beyond the first slope: with steps of one length, adaptive or given, the same equations are solved."""
    f, y0 = (lambda t, y: -y), doubles(1, 2)
    free = proxode.solve(f, y0, 0.0, 1.0, method=method, rtol=0.2, first_step=0.05, max_step=0.05, inner_tol=1e-10)
    given_ = proxode.solve(f, y0, 0.0, 1.0, method=method, step_size=0.05, inner_tol=1e-10)
    assert given_.stats.n_steps == 20 and free.stats.n_steps <= 21
    assert free.stats.nfe_forward <= given_.stats.nfe_forward + 6


def test_a_linear_problem_hardly_needs_a_second_jacobian() -> None:
    rates = torch.logspace(0, 5, 20, dtype=torch.float64)
    solution = proxode.solve(lambda t, y: -rates * (y - torch.cos(t)), torch.zeros(20, dtype=torch.float64), 0.0, 10.0,
                             method="bdf", inner="newton", rtol=1e-6, atol=1e-6)  # fmt: skip
    assert solution.stats.n_jac <= 40  # one, and one for its age
    assert solution.stats.n_f <= 1.8 * solution.stats.n_steps


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_a_move_goes_unchecked_where_earlier_ones_have_told_the_rate(tol: float) -> None:
    """With a check of each the diffusion equation takes two evaluations a step."""
    solution = proxode.solve(Diffusion().f, INITIAL_DATA["density"](128), 0.0, 1.0, method="bdf", inner="newton",
                             rtol=tol, atol=tol)  # fmt: skip
    assert solution.stats.n_jac <= 8 + 0.06 * solution.stats.n_steps  # a few products, again after a hundred steps
    assert solution.stats.n_f <= 1.6 * solution.stats.n_steps


def test_what_one_equation_taught_serves_the_next() -> None:
    """On the diffusion equation, matrix-free: without recycling each step pays for its Krylov space again."""
    problem, h0 = Diffusion(), INITIAL_DATA["density"](128)
    ours = proxode.solve(problem.f, h0, 0.0, 1.0, method="bdf", inner="anderson", rtol=1e-4, atol=1e-4)
    forgetful = proxode.solve(problem.f, h0, 0.0, 1.0, method="bdf", inner="newton_krylov", rtol=1e-4, atol=1e-4)
    assert ours.stats.nfe_forward < 0.5 * forgetful.stats.nfe_forward


@given(ratio=st.floats(0, 1e6), order=st.integers(1, 5), h=st.floats(1e-8, 1e8), share=st.floats(1e-3, 1))
@settings(max_examples=200, deadline=None)
def test_the_controller_of_order_grows_and_shrinks_within_its_limits(
    ratio: float, order: int, h: float, share: float
) -> None:
    control = Adaptive("order", share=share)
    accept, t1, state, chosen = control.next(0.0, h, Outcome(ratio, order + 1, order), AdaptiveState(h))
    factor = (t1 - (h if accept else 0.0)) / h
    assert accept == (ratio <= share)
    assert chosen == order
    if accept:
        assert 0.2 - 1e-9 <= factor <= {1: 10.0, 2: 2.0, 3: 1.6, 4: 1.4, 5: 1.3}[order] + 1e-9
    else:
        assert 0.2 - 1e-9 <= factor <= 0.9 + 1e-9 and state.rejected == 1
