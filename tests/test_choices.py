"""What a diagnosis recommends, held against what the methods cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diagnosis_cases import D, Network, heat, noise, pendulum, van_der_pol
from torch import Tensor

from benchmarks.auto_problems import lorenz, springs, springs_start
from proxode import solve
from proxode.analysis import Diagnosis, diagnose
from proxode.nn import NeuralODE

Y0 = torch.tensor([2.0, 0.0], dtype=D)


def choice(d: Diagnosis, what: str) -> str:
    return next((choice.reason for choice in d.advice.choices if choice.what == what), "")


# A method that was named


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [("dopri5", {}, "dopri5 would cost about 5"), ("rk4", {"step_size": 0.01}, "rk4 would cost about 4"),
     ("bdf", {}, "bdf would cost about the same"), ("rkc2", {}, "solved with 'auto'")],
)  # fmt: skip
def test_a_diagnosis_does_not_depend_on_the_method_that_is_named(method: str, options: Any, says: str) -> None:
    plain, named = (
        diagnose(van_der_pol, Y0, 0.0, 100.0),
        diagnose(van_der_pol, Y0, 0.0, 100.0, method=method, **options),
    )
    assert (
        named.advice == plain.advice
        and named.path.shares == plain.path.shares
        and named.findings[:-1] == plain.findings
    )
    assert named.findings[-1].startswith(f"you have named method '{method}'") and says in named.findings[-1]


def test_a_method_that_is_named_is_checked_and_auto_is_no_news() -> None:
    with pytest.raises(ValueError, match="unknown `method` 'dopri6'"):
        diagnose(pendulum, Y0, 0.0, 1.0, method="dopri6")
    assert not any("method" in finding for finding in diagnose(pendulum, Y0, 0.0, 1.0, method="auto").findings)
    layer = NeuralODE(Network(), 2.0, method="dopri8")
    found = diagnose(layer, torch.ones(2, 8), method="bdf").findings
    assert "you have named method 'bdf'" in found[-1] and "layer" not in found[-1]


def test_what_a_named_method_costs_is_what_it_costs() -> None:
    y0 = noise(16)
    for method in ("dopri5", "bosh3"):
        d = diagnose(heat, y0, 0.0, 3.0, method=method)
        told = float(d.findings[-1].split("cost about ")[1].split(" NFE")[0].replace(",", ""))
        assert solve(heat, y0, 0.0, 3.0, method=method).stats.nfe_forward == pytest.approx(told, rel=0.25)


# Methods


def grid(n: int, rate: float = 1000.0) -> tuple[Any, Tensor]:
    """A reaction with diffusion on n times n points, which is no gradient field: two fields that act on each other."""

    def laplacian(u: Tensor) -> Tensor:
        return sum(torch.roll(u, s, i) for s in (1, -1) for i in (-1, -2)) - 4 * u  # type: ignore[return-value]

    def f(t: Tensor, y: Tensor) -> Tensor:
        u, v = y
        return torch.stack([rate * laplacian(u) + u - u**3 - v, rate * laplacian(v) + 2 * u - v])

    return f, noise(2 * n * n).view(2, n, n)


def test_diffusion_on_a_large_grid_is_told_of_methods_that_make_no_pairs() -> None:
    f, y0 = grid(40)
    d = diagnose(f, y0, 0.0, 0.5)
    assert d.advice.stiffness == "stiff" and not d.gradient_field and not d.banded
    assert "negative axis" in choice(d, "or method") and "nearly symmetric" in choice(d, "or inner")
    assert (d.advice.method, d.advice.inner) == ("bdf", "anderson")
    fr = solve(f, y0, 0.0, 0.5, method="bdf", inner="fr")
    chebyshev = solve(f, y0, 0.0, 0.5, method="rkc2", rtol=1e-5, atol=1e-7)
    assert fr.stats.n_inner_failed == 0 and float((fr.ys[-1] - chebyshev.ys[-1]).abs().max()) < 1e-3
    assert chebyshev.stats.nfe_forward < 6 * d.stability_steps
    small, start = grid(20)
    assert choice(diagnose(small, start, 0.0, 0.5), "or method") == ""
    assert choice(diagnose(f, y0, 0.0, 0.1, rtol=1e-7), "or method") == ""


def test_undamped_oscillations_are_for_methods_that_reach_along_their_axis() -> None:
    y0 = springs_start().float().to(D)  # rounded, so that the fast modes move a little too
    for rtol, method in ((1e-2, "ralston4"), (1e-4, "ralston4"), (1e-5, "ralston4"), (1e-7, "dopri8")):
        d = diagnose(springs, y0, 0.0, 100.0, rtol=rtol, atol=rtol)
        assert d.advice.stiffness == "oscillatory" and d.advice.method == method and "axis" in choice(d, "method")
        assert d.advice.inner == "" and "costs little" in choice(d, "rtol")
        advised, usual = cost_and_error(y0, method, rtol), cost_and_error(y0, "dopri5", rtol)
        assert advised[0] <= usual[0] and advised[1] < usual[1]


@pytest.mark.parametrize(
    ("rtol", "stiffness", "method"),
    [(1e-2, "oscillatory", "ralston4"), (1e-4, "oscillatory", "ralston4"), (1e-7, "not stiff", "dopri8")],
)
def test_the_method_for_oscillations_is_cheaper_at_equal_error(rtol: float, stiffness: str, method: str) -> None:
    y0 = springs_start() + 1e-3 * noise(64)
    d = diagnose(springs, y0, 0.0, 100.0, rtol=rtol, atol=rtol)
    assert (d.advice.stiffness, d.advice.method) == (stiffness, method)
    nfe, error = cost_and_error(y0, method, rtol)
    assert nfe < 0.7 * dopri5_for(y0, rtol, error)


def cost_and_error(y0: Tensor, method: str, rtol: float) -> tuple[int, float]:
    """Evaluations that the masses on springs take to t = 100, and the error there."""
    exact = solve(springs, y0, 0.0, 100.0, method="dopri8", rtol=1e-11, atol=1e-11).ys[-1]
    solution = solve(springs, y0, 0.0, 100.0, method=method, rtol=rtol, atol=rtol)
    return solution.stats.nfe_forward, float((solution.ys[-1] - exact).abs().max())


def dopri5_for(y0: Tensor, rtol: float, error: float) -> int:
    """What dopri5 takes for as small an error, from that tolerance downward."""
    found = (cost_and_error(y0, "dopri5", rtol / 2**power) for power in range(20))
    return next(nfe for nfe, reached in found if reached <= error)


def test_high_order_is_for_tight_tolerances_and_many_steps() -> None:
    y0 = torch.tensor([1.0, 0.0], dtype=D)
    end = solve(pendulum, y0, 0.0, 20.0, method="dopri8", rtol=1e-12, atol=1e-13).ys[-1]
    assert diagnose(pendulum, y0, 0.0, 20.0, rtol=1e-4, atol=1e-4).advice.method == "dopri5"
    assert diagnose(pendulum, y0, 0.0, 1.0, rtol=1e-6).advice.method == "dopri5"
    d = diagnose(pendulum, y0, 0.0, 20.0, rtol=1e-6, atol=1e-6)
    assert d.advice.method == "dopri8" and "high order pays" in choice(d, "method")
    eighth, fifth = (solve(pendulum, y0, 0.0, 20.0, method=m, rtol=1e-6, atol=1e-6) for m in ("dopri8", "dopri5"))
    assert eighth.stats.nfe_forward < fifth.stats.nfe_forward
    assert (eighth.ys[-1] - end).abs().max() < (fifth.ys[-1] - end).abs().max()


# Tolerances


def test_advice_on_the_tolerance_says_what_to_do() -> None:
    d = diagnose(van_der_pol, Y0, 0.0, 100.0)
    assert "to train take 0.001" in choice(d, "rtol") and "to report take 1e-06" in choice(d, "rtol")
    loose, tight = (
        solve(van_der_pol, Y0, 0.0, 2000.0, method="bdf", rtol=rtol, atol=rtol).stats for rtol in (1e-3, 1e-4)
    )
    assert 0.5 < loose.n_steps / tight.n_steps < 0.8  # a third is saved
    assert "keep it" in choice(diagnose(pendulum, Y0, 0.0, 1.0, rtol=1e-3), "rtol")


def test_where_bdf_took_the_steps_of_a_mild_problem_its_solver_and_tolerance_are_spoken_of() -> None:
    f, y0 = grid(24, rate=100.0)
    d = diagnose(f, y0, 0.0, 0.5)
    assert d.advice.stiffness == "mildly stiff" and d.path.by_bdf > d.steps / 2
    assert d.advice.inner == "anderson" and "to train" in choice(d, "rtol") and "becomes" not in choice(d, "method")


# What cannot be recommended


def test_of_a_random_f_nothing_is_recommended() -> None:
    d = diagnose(Network(0.5), torch.ones(4, 8), 0.0, 1.0)
    assert str(d).startswith("f is random") and d.advice.choices == d.advice.costs == ()
    assert "No recommendation as long as f is random" in str(d) and "dopri5:" not in str(d)


def test_where_errors_grow_a_loose_gradient_is_not_recommended() -> None:
    d = diagnose(lorenz, torch.tensor([1.0, 1.0, 20.0], dtype=D), 0.0, 15.0)
    assert d.forward_orders > 3 and "to train take" not in choice(d, "rtol")
    assert "compare with a solve at 1e-06" in choice(d, "rtol")


def test_single_precision_is_not_asked_for_what_it_does_not_carry() -> None:
    d = diagnose(van_der_pol, Y0.float(), 0.0, 100.0)
    assert "for numbers to report use float64 and 1e-06" in choice(d, "rtol")


def test_the_cost_of_the_method_for_oscillations_is_told_and_is_about_right() -> None:
    y0 = springs_start()
    d = diagnose(springs, y0, 0.0, 100.0, rtol=1e-4, atol=1e-4)
    (told,) = (cost.nfe_forward for cost in d.advice.costs if cost.method == "ralston4")
    spent = solve(springs, y0, 0.0, 100.0, method="ralston4", rtol=1e-4, atol=1e-4).stats.nfe_forward
    assert 0.4 < told / spent < 1.5


@pytest.mark.parametrize("points", [100, 200])
def test_the_cost_of_backward_on_a_grid_is_about_right(points: int) -> None:
    y0 = torch.exp(-20 * (torch.linspace(0, 1, points, dtype=D) - 0.5) ** 2).requires_grad_()
    for rtol in (1e-3, 1e-6):
        d = diagnose(heat, y0.detach(), 0.0, 0.1, rtol=rtol, atol=rtol)
        solution = solve(heat, y0, 0.0, 0.1, rtol=rtol, atol=rtol)
        torch.autograd.grad(solution.ys[-1].square().sum(), y0)
        assert 0.8 < d.advice.costs[0].nfe_backward / solution.stats.nfe_backward < 1.4
