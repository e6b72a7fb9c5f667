"""Growth of errors and steps for stability in a diagnosis, against what they are known or measured to be."""

from __future__ import annotations

import math

import pytest
import torch
from diagnosis_cases import D, noise, pendulum
from torch import Tensor

from benchmarks.auto_problems import lorenz
from proxode import solve
from proxode.analysis import diagnose
from proxode.analysis.exponential import exp_times


def T(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=D)


def kepler(t: Tensor, y: Tensor) -> Tensor:
    r3 = (y[0] ** 2 + y[1] ** 2) ** 1.5
    return torch.stack([y[2], y[3], -y[0] / r3, -y[1] / r3])


def vinograd(t: Tensor, y: Tensor) -> Tensor:
    """Eigenvalues -1 and -10 at all times, and solutions that grow like exp(2 t)."""
    c, s = torch.cos(6 * t), torch.sin(6 * t)
    rows = [
        [-1 - 9 * c * c + 12 * s * c, 12 * c * c + 9 * s * c],
        [-12 * s * s + 9 * s * c, -1 - 9 * s * s - 12 * s * c],
    ]
    return torch.stack([torch.stack(row) for row in rows]) @ y


def chain(t: Tensor, y: Tensor) -> Tensor:
    """Fermi, Pasta and Ulam's, of 32 masses."""
    q, p = y[:32], y[32:]
    r = torch.diff(torch.cat([y.new_zeros(1), q, y.new_zeros(1)]))
    force = r + r**3
    return torch.cat([p, torch.diff(force)])


def chain_start() -> Tensor:
    q = 2 * torch.sin(math.pi * torch.arange(1, 33, dtype=D) / 33)
    return torch.cat([q, 0 * q])


def grcar(n: int) -> Tensor:
    ones = torch.ones(n, dtype=D)
    return sum((torch.diag(ones[k:], k) for k in range(4)), -torch.diag(ones[1:], -1))


@pytest.mark.parametrize(
    ("func", "y0", "t1", "truth"), [(kepler, T(1, 0, 0, 1), 62.83, 377), (pendulum, T(3.1, 0), 100.0, 914)]
)
def test_growth_of_a_hamiltonian_flow_is_that_of_its_derivative(func, y0: Tensor, t1: float, truth: float) -> None:  # type: ignore[no-untyped-def]
    d = diagnose(func, y0, 0.0, t1, rtol=1e-7, atol=1e-9)
    assert d.growth is not None and d.growth.end == pytest.approx(math.log10(truth), abs=0.3)
    assert d.backward_orders == pytest.approx(math.log10(truth), abs=0.3)  # volume is kept, and lengths with it
    rough = diagnose(func, y0, 0.0, t1)
    assert rough.forward_orders < 4 and "dissipative" not in str(rough)
    assert not any("no solver" in finding for finding in rough.findings)


def test_negative_eigenvalues_do_not_hide_growth() -> None:
    d = diagnose(vinograd, T(1, 1), 0.0, 10.0)
    assert d.right < 0 and d.forward_orders == pytest.approx(20 / math.log(10), abs=0.3)
    assert d.backward_orders == pytest.approx(130 / math.log(10), abs=0.5)  # the trace is -11


def test_what_is_not_normal_grows_more_than_its_eigenvalues_say() -> None:
    matrix = -grcar(100)
    d = diagnose(lambda t, y: matrix @ y, torch.ones(100, dtype=D), 0.0, 20.0)
    forwards, backwards = (float(torch.linalg.matrix_norm(torch.matrix_exp(s * 20 * matrix), 2)) for s in (1, -1))
    assert math.log10(forwards) - 1.5 < d.forward_orders < math.log10(forwards) + 0.3
    assert math.log10(backwards) - 2 < d.backward_orders < math.log10(backwards) + 0.3


def test_chaos_is_told() -> None:
    d = diagnose(lorenz, T(1, 1, 1), 0.0, 40.0)  # exponents 0.906, 0, -14.57
    assert 9 < d.sustained_orders < 17 and any("no solver can follow" in finding for finding in d.findings)


def test_what_was_not_measured_is_said_to_be_so() -> None:
    y0 = torch.exp(-200 * (torch.arange(1000, dtype=D) / 1000 - 0.5) ** 2)
    d = diagnose(lambda t, y: 500 * (torch.roll(y, 1) - torch.roll(y, -1)) - 50 * y, y0, 0.0, 0.4, max_step=5e-4)
    assert d.growth is None and math.isnan(d.sustained_orders) and "was not measured" in " ".join(str(d).split())


@pytest.mark.parametrize("h", [0.3, -0.3, 40.0])
def test_exponentials_of_products_are_those_of_matrices(h: float) -> None:
    matrix, v = -torch.diag(torch.linspace(0, 1, 60, dtype=D) ** 3) + 0.02 * noise(3600).view(60, 60) / 8, noise(60, 1)
    found, true = exp_times(lambda u: matrix @ u, v, h), torch.matrix_exp(h * matrix) @ v
    assert found is not None and found.settled
    assert found.log == pytest.approx(math.log(float(true.norm() / v.norm())), abs=0.02)
    assert float((found.vector - true / true.norm()).norm()) < 0.05


def test_exponentials_do_not_overflow() -> None:
    rates = -torch.logspace(0, 8, 50, dtype=D)
    found = exp_times(lambda u: rates * u, noise(50), -1e3)
    assert found is not None and found.log == pytest.approx(1e11, rel=1e-6)


# Stability and accuracy


def oscillator(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 50 * (1 - y[0] ** 2) * y[1] - y[0]])


def centred(t: Tensor, y: Tensor) -> Tensor:
    return -len(y) / 2 * (torch.roll(y, -1) - torch.roll(y, 1))


@pytest.mark.parametrize(
    ("func", "y0", "t1"),
    [
        (oscillator, T(2, 0), 250.0),  # whose periods must not alias with the places
        (chain, chain_start(), 200.0),
        (centred, torch.exp(-200 * (torch.arange(1000, dtype=D) / 1000 - 0.5) ** 2), 0.4),
    ],
)
def test_steps_for_stability_are_about_those_that_dopri5_takes(func, y0: Tensor, t1: float) -> None:  # type: ignore[no-untyped-def]
    d = diagnose(func, y0, 0.0, t1)
    taken = solve(func, y0, 0.0, t1, method="dopri5", max_steps=100_000).stats.nfe_forward
    cost = next(cost for cost in d.advice.costs if cost.method == "dopri5")
    assert cost.nfe_forward == pytest.approx(taken, rel=0.1) and "about" in cost.basis


def test_whether_stability_or_accuracy_sets_the_step_is_told_apart() -> None:
    for func, y0, t1, by_stability in (
        (kepler, T(1, 0, 0, 1), 62.83, False),
        (chain, chain_start(), 200.0, True),
        (lambda t, y: (grcar(100) - 3 * torch.eye(100, dtype=D)) @ y, torch.ones(100, dtype=D), 20.0, False),
    ):
        loose, tight = (
            solve(func, y0, 0.0, t1, method="dopri5", rtol=rtol, atol=1e-2 * rtol).stats.nfe_forward
            for rtol in (1e-4, 1e-5)
        )
        assert (tight < 1.2 * loose) == by_stability
        assert diagnose(func, y0, 0.0, t1).advice.stiffness == ("oscillatory" if by_stability else "not stiff")


def test_a_jacobian_with_zeros_makes_backward_cheaper() -> None:
    d, start = diagnose(chain, chain_start(), 0.0, 200.0), chain_start().requires_grad_()
    solution = solve(chain, start, 0.0, 200.0)
    assert d.path.by_bdf > d.steps / 2
    solution.ys[-1].sum().backward()
    assert d.advice.costs[0].nfe_backward == pytest.approx(solution.stats.nfe_backward, rel=0.1)


def test_what_is_symmetric_and_stiff_is_bounded_though_it_has_not_settled() -> None:
    rates = -torch.linspace(0, 1e5, 500, dtype=D)
    found = exp_times(lambda u: rates * u, noise(500), 1.0)
    assert found is not None and found.settled and found.log <= 0


def test_growth_that_would_take_too_many_products_is_given_up() -> None:
    def inflow(t: Tensor, y: Tensor) -> Tensor:
        return -1000 * (y - torch.cat([y.new_zeros(1), y[:-1]]))

    d = diagnose(inflow, torch.exp(-200 * (torch.arange(1000, dtype=D) / 1000 - 0.5) ** 2), 0.0, 0.4)
    assert d.nfe_probes < 1_300 and d.growth is None and "was not measured" in " ".join(str(d).split())


def test_growth_forwards_is_told_alone_if_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from proxode.analysis import growth

    carried = growth._carried
    monkeypatch.setattr(growth, "_carried", lambda *args: carried(*args) if args[3] > 0 else None)
    d = diagnose(lambda t, y: -3 * y, noise(40), 0.0, 10.0)
    assert d.growth is not None and d.growth.end == pytest.approx(-30 / math.log(10), rel=1e-3)
    assert d.to_dict()["growth"]["back"] is None
    assert "multiplies errors by at least 10^13" in " ".join(str(d).split())  # what comes together runs apart backwards
    assert d.backward_orders == pytest.approx(30 / math.log(10), rel=1e-3)  # by the eigenvalues


def test_of_many_unknowns_no_growth_is_told_that_two_resolutions_do_not_agree_on() -> None:
    """Five orbits side by side grow as one does: like t, and not by 10^53."""

    def orbits(t: Tensor, y: Tensor) -> Tensor:
        q, p = y.view(5, 4)[:, :2], y.view(5, 4)[:, 2:]
        return torch.cat([p, -q / q.square().sum(1, keepdim=True) ** 1.5], 1).reshape(-1)

    y0 = torch.tensor([0.4, 0.0, 0.0, 2.0], dtype=torch.float64).repeat(5)
    d = diagnose(orbits, y0, 0.0, 40.0)
    assert d.growth is None or d.growth.peak < 4.0
    assert not any("no solver can follow" in finding for finding in d.findings)


@pytest.mark.parametrize("t1", [3.0, 6.0])
def test_growth_of_many_unknowns_is_measured_where_their_jacobian_turns(t1: float) -> None:
    """Five orbits side by side, for less than a revolution: beside a perturbed solve of the same direction."""
    from proxode.analysis.directions import rough

    def orbits(t: Tensor, y: Tensor) -> Tensor:
        q, p = y.view(5, 4)[:, :2], y.view(5, 4)[:, 2:]
        return torch.cat([p, -q / q.square().sum(1, keepdim=True) ** 1.5], 1).reshape(-1)

    y0 = torch.tensor([0.4, 0.0, 0.0, 2.0], dtype=torch.float64).repeat(5)
    d = diagnose(orbits, y0, 0.0, t1)
    move = 1e-7 * rough(y0, 11)
    tight = {"method": "dopri8", "rtol": 1e-12, "atol": 1e-12}
    ends = [solve(orbits, start, 0.0, t1, **tight).ys[-1] for start in (y0, y0 + move)]
    truth = float((ends[1] - ends[0]).norm() / move.norm())
    assert d.growth is not None and d.growth.end == pytest.approx(math.log10(truth), abs=0.3)


def test_what_was_not_measured_is_not_told_in_numbers() -> None:
    """Frozen eigenvalues of an orbit speak of 10^50; the backward growth of what is stiff they do tell."""

    def orbits(t: Tensor, y: Tensor) -> Tensor:
        q, p = y.view(5, 4)[:, :2], y.view(5, 4)[:, 2:]
        return torch.cat([p, -q / q.square().sum(1, keepdim=True) ** 1.5], 1).reshape(-1)

    d = diagnose(orbits, torch.tensor([0.4, 0.0, 0.0, 2.0], dtype=torch.float64).repeat(5), 0.0, 40.0)
    said = " ".join(str(d).split())
    assert d.growth is None and d.forward_orders > 20 and "was not measured" in said and "10^" not in said
