"""The default: explicit where that is cheaper, BDF where it is not, and it says what it did."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode.methods import METHODS
from proxode.methods.pairs import spectral_radius
from proxode.paper.diffusion import Diffusion, density
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def kepler(t: Tensor, y: Tensor) -> Tensor:
    return torch.cat([y[2:], -y[:2] / y[:2].square().sum() ** 1.5])


def van_der_pol(mu: float) -> Any:
    return lambda t, y: torch.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def relaxing(t: Tensor, y: Tensor) -> Tensor:
    return -1e4 * (y - torch.cos(t))


def strength(t: Tensor) -> Tensor:
    """Between 2 and 4; before and after there is only rotation."""
    return 1e4 * (torch.sigmoid(20 * (t - 2)) - torch.sigmoid(20 * (t - 4)))


def sometimes_stiff(t: Tensor, y: Tensor) -> Tensor:
    return -strength(t) * (y - torch.cos(t)) + 5 * torch.stack([y[1], -y[0]])


def network(t: Tensor, y: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(50, 50, generator=generator, dtype=torch.float64) / math.sqrt(50)
    return torch.tanh(weights @ y) - 0.1 * y


# f, y0, the last time, and what should take all or most of the steps
PROBLEMS: dict[str, tuple[Any, Tensor, float, str]] = {
    "kepler": (kepler, doubles(0.4, 0, 0, 2), 20.0, "dopri5"),
    "van der pol, 1": (van_der_pol(1.0), doubles(2, 0), 20.0, "dopri5"),
    "decay": (lambda t, y: -y, doubles(1, 1), 10.0, "dopri5"),
    "network": (network, torch.linspace(-1, 1, 50, dtype=torch.float64), 5.0, "dopri5"),
    "relaxing": (relaxing, doubles(0, 1), 10.0, "bdf"),
    "van der pol, 1000": (van_der_pol(1e3), doubles(2, 0), 1500.0, "bdf"),
}


def solved(name: str, method: str, tol: float, **kwargs: Any) -> proxode.Solution:
    f, y0, end, _ = PROBLEMS[name]
    return proxode.solve(f, y0, 0.0, end, method=method, rtol=tol, atol=tol, **kwargs)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("name", PROBLEMS)
def test_auto_costs_no_more_than_the_better_of_its_two(name: str, tol: float) -> None:
    auto, *others = (solved(name, method, tol) for method in ("auto", "bdf"))
    costs = [run.stats.nfe_forward for run in others]
    if PROBLEMS[name][-1] == "dopri5":
        costs.append(solved(name, "dopri5", tol).stats.nfe_forward)
    assert auto.stats.nfe_forward <= 1.1 * min(costs) + 2
    assert auto.stats.switches[0][0] == 0.0
    if PROBLEMS[name][-1] == "bdf":
        assert auto.stats.switches[0][1] == "bdf"
    else:
        assert all(by != "bdf" for _, by in auto.stats.switches)


def orbit_beside_it(t: Tensor, y: Tensor) -> Tensor:
    """Kepler's problem, which explicit steps solve for less, and a component that is stiff for a while."""
    return torch.cat([kepler(t, y[:4]), -strength(t) * (y[4:] - torch.cos(t))])


def test_auto_moves_both_ways_on_a_rotation_that_is_stiff_for_a_while() -> None:
    y0 = doubles(1, 0)
    auto, dopri5, bdf = (
        proxode.solve(sometimes_stiff, y0, 0.0, 25.0, method=method, rtol=1e-6, atol=1e-6)
        for method in ("auto", "dopri5", "bdf")
    )
    times, names = zip(*auto.stats.switches, strict=True)
    assert names[:3] == ("dopri5", "bdf", "dopri5")
    assert len(names) < 5
    assert times[0] == 0.0 and 1.5 < times[1] < 2.5
    assert auto.stats.nfe_forward <= 1.1 * min(dopri5.stats.nfe_forward, bdf.stats.nfe_forward)
    fine = proxode.solve(sometimes_stiff, y0, 0.0, 25.0, method="bdf", rtol=1e-8, atol=1e-8)
    assert float((auto.ys[-1] - fine.ys[-1]).abs().max()) < 2e-4  # seventeen turns, whose errors add up


@pytest.mark.parametrize("tol", [1e-5, 1e-7])
def test_auto_moves_both_ways_and_says_when(tol: float) -> None:
    y0 = doubles(0.4, 0, 0, 2, 1)
    auto, bdf = (  # dopri5 would take some 40,000 evaluations
        proxode.solve(orbit_beside_it, y0, 0.0, 40.0, method=method, rtol=tol, atol=tol) for method in ("auto", "bdf")
    )
    times, names = zip(*[(t, name) for t, name in auto.stats.switches if name != "bosh3"], strict=True)
    assert names == ("dopri5", "bdf", "dopri5")
    assert times[0] == 0.0 and 1.5 < times[1] < 2.5 and 4.0 < times[2] < 20.0
    assert auto.stats.nfe_forward <= 0.9 * bdf.stats.nfe_forward


def test_auto_stays_with_bdf_where_explicit_steps_gain_nothing() -> None:
    y0 = doubles(1, 0)
    auto, bdf = (
        proxode.solve(sometimes_stiff, y0, 0.0, 15.0, method=method, rtol=1e-6, atol=1e-6) for method in ("auto", "bdf")
    )
    assert auto.stats.switches[1][1] == "bdf" and len(auto.stats.switches) < 5
    assert auto.stats.nfe_forward <= 1.1 * bdf.stats.nfe_forward
    fine = proxode.solve(sometimes_stiff, y0, 0.0, 15.0, method="bdf", rtol=1e-8, atol=1e-8)
    assert float((auto.ys[-1] - fine.ys[-1]).abs().max()) < 2e-4  # nine turns, whose errors add up


@pytest.mark.parametrize("tol", [1e-4, 1e-5])
def test_a_start_with_bdf_that_was_a_mistake_is_mended(tol: float) -> None:
    """A long way at a moderate stiffness looks stiff; Kepler's problem is not."""
    auto, dopri5 = (
        proxode.solve(kepler, doubles(0.4, 0, 0, 2), 0.0, 300.0, method=method, rtol=tol, atol=tol)
        for method in ("auto", "dopri5")
    )
    assert [name for _, name in auto.stats.switches][:2] == ["bdf", "dopri5"]
    assert len(auto.stats.switches) <= 2 or tol == 1e-4  # a trial of the other pair
    assert auto.stats.nfe_forward <= 1.1 * dopri5.stats.nfe_forward


def test_explicit_steps_do_not_creep_along_the_limit_of_stability() -> None:
    """At 1e-9 their errors hold them just below it; the estimate of rho alone would let them for 2,000 steps."""

    def robertson(t: Tensor, y: Tensor) -> Tensor:
        a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return torch.stack([b - a, a - b - c, c])

    y0, atol = doubles(1, 0, 0), doubles(1e-13, 1e-19, 1e-11)
    auto, bdf = (
        proxode.solve(robertson, y0, 0.0, 10.0, method=method, rtol=1e-9, atol=atol)
        for method in ("auto", "bdf")
    )
    assert auto.stats.nfe_forward <= 1.25 * bdf.stats.nfe_forward


def test_auto_that_starts_with_bdf_is_bdf() -> None:
    """After its look at f, of two evaluations: what a matrix-free solve learns is its own."""
    ring, y0 = Diffusion(128), density(128)
    auto, bdf = (proxode.solve(ring.f, y0, 0.0, 1.0, method=method, rtol=1e-6, atol=1e-6) for method in ("auto", "bdf"))
    assert auto.stats.nfe_forward == bdf.stats.nfe_forward + 2 and torch.equal(auto.ys, bdf.ys)


def test_times_of_switches_run_with_the_users_time() -> None:
    back = proxode.solve(lambda t, y: -sometimes_stiff(-t, y), doubles(1, 0), 0.0, -3.0, rtol=1e-6, atol=1e-6)
    assert back.stats.switches[0] == (0.0, "dopri5") and -2.5 < back.stats.switches[1][0] < -1.5


def test_auto_is_the_default_everywhere() -> None:
    t = torch.tensor([0.0, 10.0], dtype=torch.float64)
    with proxode.record() as stats:
        for method in (None, "auto"):
            proxode.odeint(relaxing, doubles(0, 1), t, method=method)
        proxode.solve(relaxing, doubles(0, 1), 0.0, 10.0)
    assert all(one.switches[0] == (0.0, "bdf") and one.switches[-1][1] == "bdf" for one in stats.solves)
    assert "auto" in METHODS


def test_methods_that_have_no_choice_record_no_switches() -> None:
    for method in ("dopri5", "bdf"):
        stats: Stats = solved("decay", method, 1e-3).stats
        assert stats.switches == []


def fading(t: Tensor, y: Tensor) -> Tensor:
    return -torch.linspace(0.05, 3.0, len(y), dtype=torch.float64) * y


def ring(t: Tensor, y: Tensor) -> Tensor:
    """Points that each follow their neighbours: mildly stiff, with modes of many rates."""
    return 0.5 * (y.roll(1) + y.roll(-1)) - y


@pytest.mark.parametrize("tol", [1e-2, 3e-3])
def test_where_stability_has_a_say_the_low_order_goes_further(tol: float) -> None:
    y0 = torch.sign(torch.sin(torch.arange(200, dtype=torch.float64)))
    auto, dopri5 = (
        proxode.solve(ring, y0, 0.0, 10.0, method=method, rtol=tol, atol=tol) for method in ("auto", "dopri5")
    )
    assert {name for _, name in auto.stats.switches} == {"bosh3"}
    assert auto.stats.nfe_forward <= 0.75 * dopri5.stats.nfe_forward
    rates = torch.cos(2 * math.pi * torch.arange(101) / 200) - 1
    exact = torch.fft.irfft(torch.fft.rfft(y0) * torch.exp(10.0 * rates), n=200)
    assert float((auto.ys[-1] - exact).abs().max()) <= 2 * tol


@pytest.mark.parametrize("name", ["dopri5", "ralston4", "bosh3"])
@pytest.mark.parametrize("rate", [0.3, 5.0])
def test_all_pairs_tell_the_rate_of_a_linear_problem(name: str, rate: float) -> None:
    """Exactly, where there is one; where there are many, that of a fast one."""
    pair, y0 = METHODS[name], doubles(1.0, -2.0)
    h = 0.4

    def f(t: Any, y: Tensor) -> Tensor:
        return -rate * y

    field = VectorField(f, Structure.of(y0), Stats())
    step = pair.step(field, 0.0, h, pair.init(field, 0.0, y0), lambda *_: None)
    assert spectral_radius(step, pair.tableau, h) == pytest.approx(rate, rel=1e-6)
    y = torch.ones(30, dtype=torch.float64)
    many = VectorField(fading, Structure.of(y), Stats())
    step = pair.step(many, 0.0, h, pair.init(many, 0.0, y), lambda *_: None)
    assert 2.0 < spectral_radius(step, pair.tableau, h) <= 3.0


def test_a_step_by_hand_says_its_order() -> None:
    stepper = proxode.Stepper(fading, torch.ones(30, dtype=torch.float64), 0.0, t1=6.0, rtol=1e-3, atol=1e-3)
    step = stepper.step()
    assert (step.order, step.by) == (4, "ralston4")


@pytest.mark.parametrize(("rate", "frequency", "tol"), [(10.0, 8.0, 1e-3), (10.0, 3.0, 1e-4), (5.0, 3.0, 1e-3)])
def test_the_low_order_is_not_blind_where_it_is_used(rate: float, frequency: float, tol: float) -> None:
    """On y' = l y the estimate of bosh3 vanishes at h l = -1, in the middle of the steps that it takes here."""
    t = torch.linspace(0, 10, 101, dtype=torch.float64)

    def exact(t: Tensor) -> Tensor:
        wave = rate**2 * torch.sin(frequency * t) - rate * frequency * torch.cos(frequency * t)
        return (wave + rate * frequency * torch.exp(-rate * t)) / (rate**2 + frequency**2)

    with proxode.record() as stats:
        forced = lambda t, y: -rate * (y - torch.sin(frequency * t))  # noqa: E731
        y = proxode.odeint(forced, doubles(0.0), t, rtol=tol, atol=tol)
    assert "bosh3" in [name for _, name in stats.solves[0].switches]
    assert float((y[:, 0] - exact(t)).abs().max()) <= 5 * tol
    assert stats.nfe_forward <= 720


def test_a_stiffness_of_frequencies_is_not_that_of_their_squares() -> None:
    """`q'' = -K q` has |J| of the size of K and frequencies of the size of its root: not stiff, and not for BDF."""
    stiffness = torch.linspace(100, 200, 200, dtype=torch.float64)
    start = torch.cat([torch.ones(200, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)])

    def springs(t: Tensor, y: Tensor) -> Tensor:
        return torch.cat([y[200:], -stiffness * y[:200]])

    found, explicit = (
        proxode.solve(springs, start, 0.0, 20.0, rtol=1e-3, atol=1e-3, method=method) for method in ("auto", "dopri5")
    )
    assert not any(method == "bdf" for _, method in found.stats.switches)
    assert found.stats.nfe_forward < 1.1 * explicit.stats.nfe_forward
