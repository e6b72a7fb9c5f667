"""Parts of a state that func does not read: the same solution and gradient, with less to solve for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode.methods import METHODS

A = torch.tensor([[-50.0, 3.0], [1.0, -2.0]], dtype=torch.float64)
X0 = torch.tensor([[1.0, 0.5], [-1.0, 2.0], [0.3, -0.7]], dtype=torch.float64)

ADAPTIVE = ["bdf", "crank_nicolson", "multistage2", "multistage3", "auto", "dopri5", "rkc2"]
FIXED = ["backward_euler", "crank_nicolson", "bdf3", "multistage3"]


def flow(t: Any, y: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """A linear flow, its log-density, and the energy that it dissipates."""
    x = y[0]
    rate = x @ A.mT
    return rate, -A.trace().expand(len(x)), 2.0 * (x * rate).sum()


def start() -> tuple[Tensor, Tensor, Tensor]:
    return X0, torch.zeros(3, dtype=torch.float64), X0.square().sum()


@pytest.mark.parametrize("method", ADAPTIVE)
def test_log_density_and_energy(method: str) -> None:
    run = proxode.solve(flow, start(), 0.0, 1.0, method=method, rtol=1e-6, atol=1e-8, quadrature=(1, 2))
    x, logp, energy = (part[-1] for part in run.ys)
    exact = X0 @ torch.linalg.matrix_exp(A).mT
    assert torch.allclose(x, exact, rtol=1e-3, atol=1e-5)
    assert torch.allclose(logp, torch.full_like(logp, 52.0), rtol=1e-6)
    assert float(energy) == pytest.approx(float(exact.square().sum()), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("inner", ["newton", "anderson", "newton_krylov"])
def test_fixed_steps_give_what_they_give_without(method: str, inner: str) -> None:
    runs = [
        proxode.solve(
            flow, start(), 0.0, 0.2, method=method, step_size=0.05, inner=inner, inner_tol=1e-12, quadrature=quadrature
        )
        for quadrature in (None, (1, 2), (2, -2))
    ]
    for run in runs[1:]:
        for one, other in zip(runs[0].ys, run.ys, strict=True):
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-10)
        assert run.stats.n_inner <= runs[0].stats.n_inner


def test_a_jacobian_has_the_rows_that_are_solved_for() -> None:
    run = proxode.solve(flow, start(), 0.0, 1.0, method="bdf", inner="newton", quadrature=(1, 2))
    assert run.stats.n_jac % 6 == 0 < run.stats.n_jac
    whole = proxode.solve(flow, start(), 0.0, 1.0, method="bdf", inner="newton")
    assert whole.stats.n_jac % 10 == 0
    assert run.stats.n_jac < whole.stats.n_jac


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "direct", "continuous"])
@pytest.mark.parametrize("method", ["bdf2", "multistage3", "dopri5"])
def test_gradients_are_those_without(method: str, gradient: str) -> None:
    matrix = A.clone().requires_grad_()
    x0 = X0.clone().requires_grad_()

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rate = torch.tanh(y[0]) @ matrix.mT
        return rate, (rate**2).sum(-1)

    def grads(**options: Any) -> tuple[Tensor, ...]:
        if METHODS[method].implicit:
            options |= {"step_size": 0.02, "inner_tol": 1e-12}
        y0 = (x0, torch.zeros(3, dtype=torch.float64))
        run = proxode.solve(f, y0, 0.0, 0.2, method=method, gradient=gradient, rtol=1e-8, atol=1e-8, **options)
        loss = run.ys[0][-1].sin().sum() + 0.01 * run.ys[1][-1].square().sum()
        return torch.autograd.grad(loss, (matrix, x0))

    for one, other in zip(grads(), grads(quadrature=1), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_gradcheck() -> None:
    def integral(x0: Tensor, rate: Tensor) -> Tensor:
        start = (torch.zeros(2, dtype=torch.float64), x0)
        run = proxode.solve(
            lambda t, y: (y[1] ** 2, -rate * y[1] ** 3), start, 0.0, 1.0, method="bdf2", step_size=0.1,
            inner_tol=1e-13, quadrature=0,
        )  # fmt: skip
        return run.ys[0][-1]

    x0 = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(integral, (x0, rate))


def test_a_running_cost_at_every_time() -> None:
    """The integral of cos^2 along a rotation, at outputs inside steps too."""

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.stack((-y[0][1], y[0][0])), y[0][:1] ** 2

    times = torch.linspace(0, 3, 31, dtype=torch.float64)
    start = (torch.tensor([1.0, 0.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    run = proxode.solve(f, start, 0.0, 3.0, method="bdf", save_at=times, rtol=1e-7, atol=1e-7, quadrature=1)
    exact = times / 2 + torch.sin(2 * times) / 4
    assert float((run.ys[1][:, 0] - exact).abs().max()) <= 1e-5


def test_odeint_takes_it_as_an_option() -> None:
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    y = proxode.odeint(flow, start(), t, method="bdf", options={"quadrature": (1, 2)})
    assert float(y[1][-1, 0]) == pytest.approx(52.0)


def test_a_stepper_takes_it_too() -> None:
    stepper = proxode.Stepper(flow, start(), 0.0, t1=1.0, method="bdf", quadrature=(1, 2))
    stepper.advance(1.0)
    assert float(stepper.y[1][0]) == pytest.approx(52.0, rel=1e-4)


def test_a_norm_sees_the_whole_state() -> None:
    seen = []

    def norm(y: tuple[Tensor, ...]) -> Tensor:
        seen.append([part.shape for part in y])
        return torch.stack([part.abs().max() for part in y]).max()

    proxode.solve(flow, start(), 0.0, 0.1, method="bdf", norm=norm, quadrature=(1, 2))
    assert all(shapes == [(3, 2), (3,), ()] for shapes in seen) and seen


def test_tolerances_of_each_part() -> None:
    run = proxode.solve(flow, start(), 0.0, 1.0, method="bdf", rtol=(1e-6, 1e-3, 1e-3), atol=(1e-8, 1e-3, 1e-3),
                        quadrature=(1, 2))  # fmt: skip
    assert torch.allclose(run.ys[0][-1], X0 @ torch.linalg.matrix_exp(A).mT, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
def test_a_part_that_is_read_is_named(method: str) -> None:
    def f(t: Any, y: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return -y[0], y[0].sum(-1), y[2] + y[0].sum()

    with pytest.raises(ValueError, match=r"`quadrature` names part 2 .* func reads it"):
        proxode.solve(f, start(), 0.0, 1.0, method=method, quadrature=(1, 2))


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
def test_of_a_random_func_it_is_said_that_it_is_random(method: str) -> None:
    """It is no reader of the quadrature."""
    torch.manual_seed(0)

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rate = torch.nn.functional.dropout(-y[0], 0.5)
        return rate, rate.sum(-1)

    run = proxode.solve(f, (X0, X0[:, 0]), 0.0, 1.0, method=method, quadrature=1, throw=False, rtol=1e-1, atol=1e-1)
    assert run.status in (proxode.Status.RANDOM, proxode.Status.NOISY)


def test_of_a_func_whose_sums_are_of_another_order_every_time_it_is_not_said_that_it_reads() -> None:
    calls = iter(range(10**6))

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rate = -y[0] * (1.0 + 1e-15 * (next(calls) % 2))
        return rate, rate.sum(-1)

    run = proxode.solve(f, (X0, X0[:, 0]), 0.0, 1.0, method="bdf", quadrature=1)
    assert torch.allclose(run.ys[0][-1], X0 * math.exp(-1.0), rtol=1e-3)


def test_a_func_that_is_nan_by_itself_is_reported_as_ever() -> None:
    with pytest.raises(proxode.SolverError):
        proxode.solve(lambda t, y: (y[0] * math.nan, y[0].sum(-1)), (X0, X0[:, 0]), 0.0, 1.0, quadrature=1)


@pytest.mark.parametrize(
    ("y0", "quadrature", "kind", "words"),
    [
        (X0, 0, ValueError, "one tensor"),
        ((X0, X0), (0, 1), ValueError, "every part"),
        ((X0, X0), 2, ValueError, "2 parts"),
        ((X0, X0), "logp", TypeError, "index"),
        ((X0, X0), True, TypeError, "index"),
    ],
)
def test_bad_indices(y0: Any, quadrature: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        proxode.solve(lambda t, y: y, y0, 0.0, 1.0, quadrature=quadrature)


def test_independent_samples_refuse_it() -> None:
    with pytest.raises(NotImplementedError, match="`quadrature` is not available with `per_sample`"):
        proxode.solve(lambda t, y: -y, X0, 0.0, 1.0, per_sample=True, quadrature=1)


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous", "direct"])
@pytest.mark.parametrize("method", ["bdf", "auto"])
def test_a_parameter_of_the_rates_alone_counts_once(method: str, gradient: str) -> None:
    """dq/dt = theta x^2 is linear in theta, so dq/dtheta is q / theta."""
    theta = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = y[0].unbind()
        return torch.stack([b, 30 * (1 - a**2) * b - a]), theta * a.square()

    y0 = (torch.tensor([2.0, 0.0], dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    q = proxode.solve(f, y0, 0.0, 10.0, method=method, gradient=gradient, quadrature=1).ys[1][-1]
    (found,) = torch.autograd.grad(q, theta)
    assert float(found) == pytest.approx(float(q.detach() / theta.detach()), rel=1e-3)


@pytest.mark.parametrize("stiff", [1e3, 1e6])
def test_rates_that_are_stiff_in_the_state_are_held_to_the_tolerance(stiff: float) -> None:
    """The rate of q is that of x, so they stay the same; an error of x that no residual has seen is multiplied."""

    def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rate = stiff * (torch.cos(t) - y[0]) * (1 + y[0] ** 2)
        return rate, rate

    zero = torch.zeros(3, dtype=torch.float64)
    run = proxode.solve(f, (zero, zero), 0.0, 3.0, rtol=1e-4, atol=1e-6, method="bdf", quadrature=1)
    assert float((run.ys[0] - run.ys[1]).abs().max()) <= 5e-5
    assert run.stats.nfe_forward <= 320


@pytest.mark.parametrize(
    "read",
    [lambda q: torch.where(q > 0.3, 5.0, 1.0), lambda q: torch.where(q < -0.3, 5.0, 1.0), lambda q: 1 + q.sign().abs(),
     lambda q: 2.0 if bool(q.abs() > 9.0) else 1.0, lambda q: 1 + torch.nan_to_num(q)],
)  # fmt: skip
def test_a_part_that_is_only_compared_is_read_as_well(read: Any) -> None:
    y0 = (torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64))
    with pytest.raises(ValueError, match="names part 1 of the state, but func reads it"):
        proxode.solve(lambda t, y: (-read(y[1]) * y[0], y[0]), y0, 0.0, 2.0, method="bdf", quadrature=1)
