"""What once went wrong with adaptive steps, silently or with an error."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import proxode
from proxode.methods.estimate import difference_weights


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("predictor", ["previous", "extrapolate"])
def test_a_component_that_a_stale_jacobian_holds_fast_is_noticed(predictor: str) -> None:
    """Its moves are tiny because the Jacobian is far too stiff; only the residual shows it."""
    solution = proxode.solve(
        lambda t, y: 1.0 - 30 * y.clamp(min=0) ** 0.5, doubles(1e-12, 1.0), 0.0, 0.1, method="bdf", predictor=predictor,
        save_at=doubles(1e-3, 1e-2, 0.1),
    )  # fmt: skip
    assert torch.allclose(solution.ys[:, 0], doubles(5.07e-4, 1.10e-3, 1.11e-3), rtol=2e-2)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("jump", [4.851, 7.3, 12.0])
def test_a_jacobian_from_before_a_jump_does_not_carry_a_step_across_it(jump: float, told: bool) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t <= jump, -1e4 * (y**3 - (1 + 0.5 * torch.sin(3 * t)) ** 3), -(y - 5))

    y0, later = doubles(1.0), jump + 0.5
    marks = {"jump_t": doubles(jump)} if told else {}
    run = proxode.solve(f, y0, 0.0, later, method="bdf", rtol=1e-4, atol=1e-6, **marks)
    before = 1 + 0.5 * math.sin(3 * jump)
    right = 5 + (before - 5) * math.exp(-0.5)
    assert float((run.ys[-1] - right).abs()) < (2e-3 if told else 2e-2)


def test_moves_that_go_unchecked_are_few_in_a_row() -> None:
    """The third component stops being stiff; with the Jacobian of before its moves are too short and its residual is
    small, and its error grew to 23 tolerances over the steps that an oscillation beside it asks for."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        s = torch.sigmoid((1.14983 - t) * 3)
        return torch.stack([-y[1], y[0], -22776.88 * s * y[2] + 0.5e-4 * (1 - s)])

    ours, fine = (proxode.solve(f, doubles(1, 0, 0), 0.0, 15.0, method="bdf", rtol=tol, atol=tol).ys[-1, 2]
                  for tol in (1e-4, 1e-9))  # fmt: skip
    assert float((ours - fine).abs()) < 5e-4


def test_a_jump_at_the_first_time_is_seen_from_after_it() -> None:
    for method in ("auto", "dopri5", "bdf", "crank_nicolson"):
        run = proxode.solve(
            lambda t, y: torch.where(t <= 0, torch.full_like(y, -1000.0), -y), doubles(1.0), 0.0, 1.0, method=method,
            rtol=1e-4, atol=1e-6, jump_t=doubles(0.0),
        )  # fmt: skip
        assert float(run.ys[-1]) == pytest.approx(math.exp(-1), abs=5e-4), method


@pytest.mark.parametrize("method", ["crank_nicolson", "multistage2", "multistage3", "backward_euler", "bdf"])
def test_a_step_of_1e_12_between_others_is_no_reason_to_stop(method: str) -> None:
    stepper = proxode.Stepper(lambda t, y: -50 * (y - torch.cos(t)), doubles(1, 1), 0.0, t1=3.0, method=method)
    for t in (1.0, 1.0 + 1e-12, 3.0):
        stepper.advance(t)
    assert stepper.status is proxode.Status.SUCCESS
    assert float(stepper.y[0]) == pytest.approx((2500 * math.cos(3) + 50 * math.sin(3)) / 2501, abs=1e-2)


@pytest.mark.parametrize("double", [True, False])
def test_a_divided_difference_of_a_power_is_one_and_of_lower_ones_zero(double: bool) -> None:
    nodes = (1.0, 0.0, *([0.0] if double else []), -0.3, -1.7, -4.0)
    weights = difference_weights(nodes)
    top = len(nodes) - 1
    for power in range(top + 1):
        seen: set[float] = set()
        total = 0.0
        for node, weight in zip(nodes, weights, strict=True):
            value = (power * node ** (power - 1) if power else 0.0) if node in seen else node**power
            total += weight * value
            seen.add(node)
        assert total == pytest.approx(1.0 if power == top else 0.0, abs=1e-12)


def test_without_an_rtol_the_error_keeps_to_atol() -> None:
    def brusselator(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([1 + y[0] ** 2 * y[1] - 4 * y[0], 3 * y[0] - y[0] ** 2 * y[1]])

    def run(rtol: object, tol: float) -> Tensor:
        return proxode.solve(brusselator, doubles(1.5, 3), 0.0, 20.0, method="bdf", rtol=rtol, atol=tol).ys[-1]

    right = run(1e-10, 1e-10)
    for rtol in (1e-6, 0.0, 1e-13, doubles(1e-6, 0.0)):
        assert float((run(rtol, 1e-6) - right).abs().max()) < 2e-5


@pytest.mark.parametrize(("method", "controller"), [("bdf", "pi"), ("auto", "integral"), ("dopri5", "order")])
def test_a_controller_that_does_not_suit_the_method_is_refused(method: str, controller: str) -> None:
    with pytest.raises(ValueError, match="`controller`"):
        proxode.solve(lambda t, y: -y, doubles(1), 0.0, 1.0, method=method, controller=controller)


def test_checkpoint_is_not_alarmed_where_an_unstable_mode_carries_replays_apart() -> None:
    """Allen-Cahn from small data: what inner solves leave grows by e^30 on the way, in the solve as in the replay."""
    x = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)[:-1]
    rate = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return rate * (y - y**3) + 20 * (torch.roll(y, 1) + torch.roll(y, -1) - 2 * y)

    found = []
    for gradient in ("implicit", "checkpoint"):
        y0 = (1e-3 * torch.sin(7 * x)).requires_grad_()
        y = proxode.solve(f, y0, 0.0, 0.5, method="bdf", gradient=gradient, rtol=1e-3, atol=1e-6).ys[-1]
        found.append(torch.autograd.grad(y.square().sum(), rate)[0])
    assert float(found[1]) == pytest.approx(float(found[0]), rel=1e-2)


def test_checkpoint_still_notices_another_f_in_a_large_state() -> None:
    scale = torch.tensor(1.0, dtype=torch.float64)
    k = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    y0 = torch.linspace(-1, 1, 150, dtype=torch.float64).requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        return scale * k * 100 * (torch.roll(y, 1) + torch.roll(y, -1) - 2 * y) - y**3

    y = proxode.solve(f, y0, 0.0, 0.5, method="bdf", gradient="checkpoint", rtol=1e-5, atol=1e-5).ys[-1]
    scale.mul_(1.1)
    with pytest.raises(RuntimeError, match="backward"):
        y.sum().backward()


def test_a_jacobian_of_many_columns_is_kept_through_slow_solves() -> None:
    """A few iterations more cost less than a new one: it was made six times here, of 200 columns each."""
    points = 100
    x = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
    one, spread = doubles(1), (points + 1) ** 2 / 50

    def brusselator(t: Tensor, y: Tensor) -> Tensor:
        u, v = y[:points], y[points:]
        wide_u, wide_v = torch.cat([one, u, one]), torch.cat([3 * one, v, 3 * one])
        du = 1 + u * u * v - 4 * u + spread * (wide_u[2:] + wide_u[:-2] - 2 * u)
        return torch.cat([du, 3 * u - u * u * v + spread * (wide_v[2:] + wide_v[:-2] - 2 * v)])

    y0 = torch.cat([1 + torch.sin(2 * math.pi * x), 3 * torch.ones_like(x)])
    runs = [
        proxode.solve(brusselator, y0, 0.0, 10.0, method="bdf", inner="newton", rtol=tol, atol=tol)
        for tol in (1e-2, 1e-6)
    ]
    assert runs[0].stats.n_jac <= 400 and runs[0].stats.nfe_forward <= 600
    assert float((runs[0].ys[-1] - runs[1].ys[-1]).abs().max()) < 0.2


def test_a_small_jacobian_is_renewed_when_it_has_cost_as_much_as_a_new_one() -> None:
    """Stiff between 2 and 4, then a rotation: with the Jacobian of 4.3 a solve took an iteration more, 4,274 NFE."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        strength = 1e4 * (torch.sigmoid(20 * (t - 2)) - torch.sigmoid(20 * (t - 4)))
        return -strength * (y - torch.cos(t)) + 5 * torch.stack([y[1], -y[0]])

    run = proxode.solve(f, doubles(1, 0), 0.0, 15.0, method="bdf", rtol=1e-7, atol=1e-7)
    assert run.stats.nfe_forward <= 2_900


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_a_derivative_that_is_nan_beyond_a_boundary_shortens_the_step(tol: float) -> None:
    """A tank that runs empty: the square root has no derivative where a guess is below zero."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        out = -30 * torch.where(y[0] > 0, y[0].sqrt(), torch.zeros_like(y[0]))
        return torch.stack([out, -1000 * (y[1] - torch.cos(t) * y[0])])

    run = proxode.solve(f, doubles(1, 2), 0.0, 3.0, method="bdf", rtol=tol, atol=1e-2 * tol, max_steps=500)
    assert float(run.ys[-1].abs().max()) < tol


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_a_replay_that_ends_at_a_jump_is_not_taken_for_exact(tol: float) -> None:
    """What anderson recycles is dropped at the jump: afterwards nothing seemed to have been recycled before."""
    k = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    rates = torch.linspace(1, 300, 120, dtype=torch.float64)

    def f(t: Tensor, y: Tensor) -> Tensor:
        drive = torch.where(t < 0.5, 1.0, -2.0).to(y)
        return -rates * (y - torch.sin(3 * t)) * (1 + 0.3 * y * y) + k * drive * torch.roll(y, 1)

    found = []
    for settings in ({"gradient": "checkpoint", "checkpoints": 10_000}, {"gradient": "implicit"}):
        given = {"rtol": tol, "atol": 1e-2 * tol, "jump_t": doubles(0.5), **settings}
        run = proxode.solve(f, torch.ones_like(rates), 0.0, 1.0, method="bdf", **given)
        found.append(float(torch.autograd.grad(run.ys[-1].sum(), k)[0]))
    assert found[0] == pytest.approx(found[1], rel=10 * tol)


def test_auto_does_the_same_before_time_zero() -> None:
    """Its first evidence was counted from the time 0."""

    def circle(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[1], -y[0]])

    runs = [
        proxode.solve(circle, doubles(1, 0), start, start + 100 * way, rtol=1e-6, atol=1e-6)
        for start, way in ((0.0, 1), (-100.0, 1), (100.0, -1))
    ]
    assert all([name for _, name in run.stats.switches] == ["dopri5"] for run in runs)
    assert len({run.stats.nfe_forward for run in runs}) == 1
