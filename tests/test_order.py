"""The measured order of every method, on problems with a closed solution."""

from __future__ import annotations

import math

import pytest
import torch

import proxode
from proxode.methods import BDF, METHODS, bdf_coefficients

PROXIMAL = [name for name, method in METHODS.items() if method.implicit]
STEPS = {1: (160, 320), 2: (80, 160), 3: (60, 120), 4: (40, 80), 5: (40, 80), 8: (4, 8)}
# where the first terms of the error are still of one size, or the last digits are reached
FIFTH = ("bdf5", "bdf", "auto")  # which are the same with given steps
SPECIAL = {
    **{(name, "logistic"): (200, 400) for name in FIFTH},
    **{(name, "swinging"): (50, 100) for name in FIFTH},
    ("tsit5", "swinging"): (60, 120),
    ("ralston4", "logistic"): (400, 800),
}


def logistic_in_time(t, y):
    """y' = -2 t y^2, y = 1 / (1 + t^2): nonlinear and non-autonomous."""
    return -2 * t * y * y


def swinging(t, y):
    """y = (sin t, 1 + cos(t) / 2), with a nonlinear attraction to it."""
    exact = torch.stack([torch.sin(t), 1 + torch.cos(t) / 2])
    slope = torch.stack([torch.cos(t), -torch.sin(t) / 2])
    off = y - exact
    return slope - torch.stack([off[0] + off[1] ** 3, 2 * off[1] - off[0] * off[1]]) - 0.5 * torch.sin(off)


PROBLEMS = {
    "logistic": (logistic_in_time, torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)),
    "swinging": (
        swinging,
        torch.tensor([0.0, 1.5], dtype=torch.float64),
        torch.tensor([math.sin(1.0), 1 + math.cos(1.0) / 2], dtype=torch.float64),
    ),
}


def measured_order(name: str, problem: str, steps: tuple[int, ...], **options) -> float:
    f, y0, exact = PROBLEMS[problem]
    if METHODS[name].implicit:
        options = {"inner": "newton", "inner_tol": 1e-15, **options}
    errors = []
    for n in steps:
        solution = proxode.solve(f, y0, 0.0, 1.0, method=name, step_size=1 / n, **options)
        errors.append(float((solution.ys[-1] - exact).abs().max()))
    return math.log(errors[-2] / errors[-1]) / math.log(steps[-1] / steps[-2])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_order(name, problem):
    order = METHODS[name].order
    steps = SPECIAL.get((name, problem), STEPS[order])
    assert measured_order(name, problem, steps) == pytest.approx(order, abs=0.15 if order < 8 else 0.6)


@pytest.mark.parametrize("name", ["bdf3", "bdf4", "bdf5"])
def test_a_start_with_backward_euler_would_lower_the_order(name, monkeypatch):
    """What the start-up is for: the same measurement with a first-order start falls to second order."""
    from proxode.methods import bdf
    from proxode.methods.dirk import BackwardEuler

    monkeypatch.setattr(bdf, "Sdirk", BackwardEuler)
    assert measured_order(name, "swinging", (100, 200)) < 2.3


@pytest.mark.parametrize("name", ["bdf2", "bdf3", "bdf4", "bdf5"])
def test_bdf_keeps_its_order_on_a_grid_of_unequal_steps(name):
    order = METHODS[name].order
    f, y0, exact = PROBLEMS["logistic"]
    errors = []
    for n in (60, 120):
        u = torch.linspace(0, 1, n + 1, dtype=torch.float64)
        grid = u + 0.1 * torch.sin(math.pi * u) ** 2 / math.pi  # smoothly varying steps
        y = proxode.odeint(f, y0, grid, method=name, options={
            "grid_constructor": lambda f, y0, t: t, "inner": "newton", "inner_tol": 1e-15,
        })  # fmt: skip
        errors.append(float((y[-1] - exact).abs().max()))
    assert math.log2(errors[0] / errors[1]) > order - 0.3


@pytest.mark.parametrize("name", METHODS)
def test_output_between_steps_has_the_order_of_the_method(name):
    """The largest error over times that no step ends at, from the second step on."""
    order = min(METHODS[name].order, 5)
    f, y0, _ = PROBLEMS["logistic"]
    options = {"inner": "newton", "inner_tol": 1e-15} if METHODS[name].implicit else {}
    errors = []
    for n in (20, 40):
        off_grid = torch.arange(0.37, n - 0.5, 1.0, dtype=torch.float64) / n
        t = torch.cat([torch.zeros(1, dtype=torch.float64), off_grid, torch.ones(1, dtype=torch.float64)])
        y = proxode.solve(f, y0, 0.0, 1.0, method=name, step_size=1 / n, save_at=t, **options).ys
        errors.append(float((y[1:-1, 0] - 1 / (1 + off_grid**2)).abs().max()))
    assert math.log2(errors[0] / errors[1]) > order - 0.45


def test_equal_steps_give_the_classical_bdf_coefficients():
    table = {
        1: ([1.0], 1.0),
        2: ([4 / 3, -1 / 3], 2 / 3),
        3: ([18 / 11, -9 / 11, 2 / 11], 6 / 11),
        4: ([48 / 25, -36 / 25, 16 / 25, -3 / 25], 12 / 25),
        5: ([300 / 137, -300 / 137, 200 / 137, -75 / 137, 12 / 137], 60 / 137),
    }
    for k, (weights, gamma) in table.items():
        got, factor = bdf_coefficients(1.0, [0.0 - i for i in range(k)])
        assert got == pytest.approx(weights, abs=1e-14)
        assert factor == pytest.approx(gamma, abs=1e-14)


def test_bdf_refuses_an_order_that_is_unstable_or_none():
    for order in (0, 6):
        with pytest.raises(ValueError, match="max_order"):
            BDF(max_order=order)


@pytest.mark.parametrize("name", PROXIMAL)
def test_a_stiff_linear_problem_is_damped_with_large_steps(name):
    """y' = -1e4 (y - cos t) with steps 250 times too large for an explicit method."""

    def f(t, y):
        return -1e4 * (y - torch.cos(t))

    y0 = torch.ones(1, dtype=torch.float64)
    y = proxode.solve(f, y0, 0.0, 2.0, method=name, step_size=0.05, inner="newton", inner_tol=1e-12).ys[-1]
    exact = math.cos(2.0)  # to 1e-4, the distance of the slow manifold
    assert float((y - exact).abs()) < 2e-3


@pytest.mark.parametrize("name", PROXIMAL)
def test_the_work_of_a_linear_problem_is_one_newton_iteration_a_stage(name):
    stages = {"multistage2": 3, "multistage3": 6}.get(name, 1)

    def f(t, y):
        return -3.0 * y

    y0 = torch.ones(4, dtype=torch.float64)
    solution = proxode.solve(f, y0, 0.0, 1.0, method=name, step_size=1 / 20, inner="newton", inner_tol=1e-10)
    assert solution.stats.n_steps == solution.stats.n_accepted == 20
    starting = 4 * 5 if name in ("bdf3", "bdf4", *FIFTH) else 0
    assert solution.stats.n_inner <= 20 * stages + starting
