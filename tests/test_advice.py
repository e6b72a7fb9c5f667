"""What is said to somebody whose solve is slow or who has misspelt a name, where it is easy to say something wrong."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from problems import density, laplacian
from torch import Tensor, nn

import proxode
from proxode.analysis import diagnose
from proxode.rejections import crowds, jumps

FINE = torch.linspace(0, 10, 50, dtype=torch.float64)
ONE = torch.ones(1, dtype=torch.float64)


def square_wave(t: Tensor, y: Tensor) -> Tensor:
    return torch.sign(torch.sin(t)) - y


def test_steps_that_a_jump_rejects_are_told_with_its_times() -> None:
    solution = proxode.solve(square_wave, ONE, 0.5, 10.0, save_at=FINE[3:], rtol=1e-6, atol=1e-8)
    found = sorted(t for t, _ in crowds(solution.stats.steps))
    assert len(found) == 3
    assert all(abs(t - k * math.pi) < 0.01 for k, t in enumerate(found, 1))
    assert "near t = 3.14" in solution.summary() and "jump_t" in solution.summary()
    coarse = diagnose(square_wave, ONE, 0.5, 10.0)  # sees fewer of them, and less exactly
    assert any("steps were rejected" in finding and "jump_t" in finding for finding in coarse.findings)
    told = proxode.solve(
        square_wave, ONE, 0.5, 10.0, rtol=1e-6, atol=1e-8,
        jump_t=torch.tensor([math.pi, 2 * math.pi, 3 * math.pi], dtype=torch.float64),
    )  # fmt: skip
    assert told.stats.n_rejected < 0.3 * solution.stats.n_rejected  # and the advice is good


def test_a_steep_front_is_not_called_a_jump() -> None:
    start = torch.tensor([1e-4], dtype=torch.float64)
    flame = proxode.solve(lambda t, y: y**2 - y**3, start, 0.0, 2e4)
    assert flame.stats.n_rejected > 0.3 * flame.stats.n_steps and jumps(flame.stats.steps) == []
    said = " ".join(flame.summary().split())
    assert "a steep front of the solution" in said and "f may jump" not in said
    found = diagnose(lambda t, y: y**2 - y**3, start, 0.0, 2e4).findings
    assert any("a steep front" in finding for finding in found) and not any("f may jump" in each for each in found)
    wave = proxode.solve(square_wave, ONE, 0.5, 10.0, rtol=1e-6, atol=1e-8)
    assert "f may jump" in wave.summary() and "front" not in wave.summary()
    assert {round(t / math.pi) for t in jumps(wave.stats.steps)} == {1, 2, 3}


def test_a_smooth_solve_has_no_crowds() -> None:
    solution = proxode.solve(lambda t, y: torch.cos(t) - y, ONE, 0.0, 10.0, save_at=FINE)
    assert crowds(solution.stats.steps) == [] and "advice" not in solution.summary()


def test_dropout_is_not_taken_for_stiffness() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3)).double()
    y0, times = torch.randn(3, dtype=torch.float64), torch.linspace(0, 0.3, 40, dtype=torch.float64)
    with torch.no_grad():
        solution = proxode.solve(lambda t, y: net(y), y0, 0.0, 0.3, save_at=times, max_steps=2_000, throw=False)
        found = diagnose(lambda t, y: net(y), y0, 0.0, 0.3)
    assert "stability" not in solution.summary() and "Try method='auto'" not in solution.summary()
    assert "f is random" in found.findings[0] and "max_num_steps" not in str(found) and not found.advice.costs


def test_an_explicit_method_that_stability_stops_is_told_of_others() -> None:
    with torch.no_grad():
        stopped = proxode.solve(
            lambda t, y: -1e5 * (y - torch.cos(t)), ONE, 0.0, 10.0, method="dopri5", max_steps=2_000, throw=False
        )
    assert stopped.status is proxode.Status.MAX_STEPS
    assert "Try method='auto' or 'bdf'" in stopped.summary()


def test_an_inner_solver_that_fails_all_the_time_is_named_when_the_steps_run_out() -> None:
    with torch.no_grad(), pytest.raises(proxode.SolverError, match="inner solves failed: look at `inner` first"):
        proxode.solve(laplacian, density(), 0.0, 0.1, method="bdf", inner="gd", inner_lr=1.0, max_steps=300)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: proxode.solve(f, ONE, 0.0, 1.0, step_sise=0.1), "did you mean 'step_size'"),
        (lambda f: proxode.solve(f, ONE, 0.0, 1.0, options={"step_size": 0.1}), "takes options as keywords"),
        (lambda f: proxode.Stepper(f, ONE, 0.0, methode="bdf"), "did you mean 'method'"),
        (lambda f: proxode.nn.NeuralODE(f, 1.0, rtoll=1e-3), "did you mean 'rtol'"),
        (lambda f: proxode.solve(nn.Sequential(nn.Linear(1, 1)), ONE, 0.0, 1.0), r"forward\(self, t, y\)"),
        (lambda f: proxode.nn.NeuralODE(nn.Sequential(nn.Linear(1, 1)), 1.0), r"forward\(self, t, y\)"),
        (lambda f: proxode.solve(nn.Linear(1, 1), ONE, 0.0, 1.0), r"Linear.forward\(input.*lambda t, y: net\(y\)"),
        (lambda f: proxode.nn.NeuralODE(nn.Linear(1, 1), 1.0), r"lambda t, y: net\(y\)"),
        (lambda f: proxode.solve(lambda y: -y, ONE[None], 0.0, 1.0, per_sample=True), r"write lambda t, y: func\(y\)"),
        (lambda f: proxode.odeint(lambda t, y, k: -k * y, ONE, FINE), r"lambda t, y: func\(t, y, \.\.\.\)"),
        (lambda f: proxode.odeint(lambda y, t: t - y, ONE, FINE), r"\(y, t\): exchange its arguments"),
        (lambda f: proxode.nn.NeuralODE(f, times=torch.arange(3)), "`times` must be a one-dimensional floating"),
        (lambda f: proxode.solve(f, [1.0], 0.0, 1.0), r"torch.tensor\(\[1.0"),
        (lambda f: proxode.record().__enter__().switches, r"`\.solves` has the statistics of each solve"),
        (lambda f: proxode.odeint(f, ONE, FINE, method="heun3"), "take 'rk4' or 'heun2' in its place"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(call, says: str) -> None:  # type: ignore[no-untyped-def]
    import proxode.nn  # noqa: F401

    with pytest.raises((TypeError, ValueError, AttributeError), match=says):
        call(lambda t, y: -y)


def test_an_option_of_solve_at_the_other_door_is_told_as_such() -> None:
    with pytest.warns(UserWarning, match="'per_sample' \\(of `proxode.solve` only\\)"):
        proxode.odeint(lambda t, y: -y, ONE, FINE, options={"per_sample": True})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: proxode.solve(f, ONE, 0.0, 1.0, adjoint_rtol=1e-3), r"gradient=proxode.gradients.Continuous\("),
        (lambda f: proxode.solve(f, ONE, 0.0, 1.0, max_num_steps=9), "it is called max_steps here"),
        (lambda f: proxode.Stepper(f, ONE, 0.0, save_at=FINE), r"here interpolate\(t\) gives the state"),
        (lambda f: proxode.odeint(f, [ONE], FINE), r"tuple\(y0\)"),
        (lambda f: proxode.odeint(f, ONE.numpy(), FINE), r"torch.from_numpy\(y0\)"),
        (lambda f: proxode.odeint(f, ONE, FINE.numpy()), r"torch.from_numpy\(t\)"),
        (lambda f: proxode.odeint(f, ONE, FINE[[0, 1, 3, 3, 4]]), r"t\[2\] = 0.612245 and t\[3\] = 0.612245"),
        (lambda f: proxode.odeint(f, ONE, FINE[[0, 1, 3, 2]]), r"t\[2\] = 0.612245 and t\[3\] = 0.408163"),
        (lambda f: proxode.odeint(f, ONE, FINE[[0, 0]]), r"t\[0\] = 0 and t\[1\] = 0"),
    ],
)
def test_what_stands_in_a_wrong_place_is_told_where_it_belongs(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((TypeError, ValueError), match=says):
        call(lambda t, y: -y)


def test_an_option_of_an_older_torchdiffeq_is_told_what_takes_its_place() -> None:
    with pytest.warns(UserWarning, match="'grid_points' \\(times that no step crosses are `step_t`"):
        proxode.odeint(lambda t, y: -y, ONE, FINE, options={"grid_points": FINE[:2]})


def test_a_stepper_says_where_it_stands_and_does_not_go_back() -> None:
    stepper = proxode.Stepper(lambda t, y: -y, ONE, 0.0, t1=10.0, method="bdf")
    stepper.advance(5.0)
    assert repr(stepper) == f"Stepper(bdf, t = 5 of 10, {stepper.stats.n_steps} steps)"
    with pytest.raises(ValueError, match="`t1` = 2 is behind the time at which the solve stands, 5"):
        proxode.Stepper.resume(lambda t, y: -y, stepper.state, t1=2.0)


def test_a_float16_whose_slope_overflows_has_a_first_step() -> None:
    y0 = torch.ones(3, dtype=torch.float16)
    solution = proxode.solve(lambda t, y: -2000.0 * y, y0, 0.0, 0.01, method="dopri5", rtol=1e-2, atol=1e-2)
    assert solution.status.ok and float(solution.ys[-1].abs().max()) < 0.02


def test_the_first_dual_number_gives_no_warning() -> None:
    code = (
        "import warnings; warnings.simplefilter('error'); import torch, proxode\n"
        "t, y = proxode.odeint_event(lambda t, y: -torch.ones_like(y), torch.ones(1), torch.tensor(0.0),"
        " event_fn=lambda t, y: y[0] - 0.5)\n"
        "proxode.solve(lambda t, y: -1000 * y, torch.ones(200), 0.0, 1.0, method='bdf', inner='newton_krylov')\n"
        "print(round(float(t), 4))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0.5", done.stderr[-800:]


def test_what_can_be_called_is_not_refused() -> None:
    import functools

    from proxode.nn import NeuralODE

    def three(t: Tensor, y: Tensor, k: float) -> Tensor:
        return -k * y

    @functools.wraps(three)
    def two(t: Tensor, y: Tensor) -> Tensor:
        return three(t, y, 2.0)

    class Called(nn.Module):
        def __call__(self, t: Tensor, y: Tensor) -> Tensor:
            return -y

        def forward(self, y: Tensor) -> Tensor:
            return -y

    assert NeuralODE(two)(ONE).shape == NeuralODE(Called())(ONE).shape == ONE.shape
    each = NeuralODE(lambda t, y: -y, torch.tensor([1.0, 2.0]), per_sample=True)
    assert each(torch.ones(2, 1)).shape == (2, 1) and "t1=2.0" in repr(each)
