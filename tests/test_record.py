"""Costs, callbacks, dense output and the adjoint's name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.inner import INNER
from proxode.methods import METHODS

COUNTERS = (
    "nfe_forward", "nfe_backward", "n_steps", "n_accepted", "n_rejected", "n_inner", "n_inner_failed", "n_f", "n_jvp",
    "n_vjp", "n_jac",
)  # fmt: skip
EXPLICIT = [name for name, method in METHODS.items() if not method.implicit]
every_method = pytest.mark.parametrize("method", METHODS)
T = torch.linspace(0, 1, 5, dtype=torch.float64)
Y0 = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)


def steps(method: str, size: float = 0.1, **options: Any) -> dict[str, Any]:
    return {**options, **({} if METHODS[method].adaptive else {"step_size": size})}


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3).double()
        self.calls = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(self.linear(y)) - y * t


def total(stats: Any) -> int:
    return stats.n_f + stats.n_jvp + stats.n_vjp + stats.n_jac


@pytest.mark.parametrize("method", EXPLICIT)
def test_the_count_of_f_is_the_number_of_its_calls(method: str) -> None:
    for options in (steps(method), steps(method, 0.3)):  # outputs between the steps cost too
        f = Counted()
        with proxode.record() as stats:
            proxode.odeint(f, Y0, T, method=method, options=options, rtol=1e-4)
        assert stats.n_f == stats.nfe_forward == f.calls > 0
        assert stats.nfe_backward == stats.n_jvp == stats.n_vjp == stats.n_jac == stats.n_inner == 0


COST = {"euler": 1, "midpoint": 2, "heun2": 2, "rk4": 4, "bosh3": 3, "dopri5": 6, "tsit5": 6}


@pytest.mark.parametrize(("method", "each"), COST.items())
def test_an_explicit_step_costs_its_stages_and_reuses_the_last(method: str, each: int) -> None:
    with proxode.record() as stats:
        proxode.odeint(Counted(), Y0, T[[0, 4]], method=method, options=steps(method), rtol=1e-4)
    start = 2 if METHODS[method].adaptive else 0  # f at the start, and one more for the first step size
    assert stats.n_f == start + each * stats.n_steps


@pytest.mark.parametrize("inner", INNER)
def test_no_call_of_f_hides_in_an_inner_solvers(inner: str) -> None:
    f = Counted()
    symmetric = f.linear.weight.data
    symmetric.copy_(symmetric + symmetric.T)
    with torch.no_grad(), proxode.record() as stats:
        proxode.odeint(f, Y0, T, method="backward_euler", options={"step_size": 0.25, "inner": inner})
    assert total(stats) == stats.nfe_forward + stats.nfe_backward
    assert f.calls <= stats.nfe_forward
    assert stats.n_inner > 0 and stats.n_inner_failed == 0


@every_method
def test_forward_and_backward_costs_add_up_and_backward_is_counted_after_the_block(method: str) -> None:
    f, y0 = Counted(), Y0.clone().requires_grad_()
    with proxode.record() as stats:
        y = proxode.odeint(f, y0, T, method=method, options=steps(method, 0.25), rtol=1e-4)
    forward = stats.nfe_forward
    assert stats.nfe_backward == 0 and stats.n_accepted > 0
    assert stats.n_steps == stats.n_accepted + stats.n_rejected
    y.sum().backward()
    assert stats.nfe_forward == forward
    assert stats.nfe_backward > 0
    assert stats.nfe_forward + stats.nfe_backward == total(stats)


def test_blocks_nest_and_sum_over_solves() -> None:
    def run() -> Any:
        return proxode.solve(lambda t, y: -y, Y0, 0.0, 1.0, method="bdf2", step_size=0.1).stats

    with proxode.record() as outer:
        first = run()
        with proxode.record() as inside:
            second, third = run(), run()
        fourth = run()
    run()
    for name in COUNTERS:
        assert getattr(inside, name) == getattr(second, name) + getattr(third, name)
        assert getattr(outer, name) == sum(getattr(s, name) for s in (first, second, third, fourth))
    assert outer.n_steps == 40
    assert all(name in repr(outer) for name in COUNTERS)


class Called:
    """y' = rate (y - cos t), and what the callbacks were told."""

    def __init__(self, split: bool = False, rate: float = -50.0) -> None:
        self.split, self.rate = split, rate
        self.told: dict[str, list[tuple[float, Any, float]]] = {"step": [], "accept": [], "reject": []}

    def __call__(self, t: Tensor, y: Any) -> Any:
        if self.split:
            return tuple(self.rate * (part - torch.cos(t)) for part in y)
        return self.rate * (y - torch.cos(t))

    def callback_step(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["step"].append((float(t0), y0, float(dt)))

    def callback_accept_step(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["accept"].append((float(t0), y0, float(dt)))

    def callback_reject_step(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["reject"].append((float(t0), y0, float(dt)))


@pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
@pytest.mark.parametrize("down", [False, True], ids=["increasing", "decreasing"])
@pytest.mark.parametrize("split", [False, True], ids=["tensor", "tuple"])
def test_callbacks_hear_of_every_step_in_the_users_time_and_structure(method: str, down: bool, split: bool) -> None:
    sign = -1.0 if down else 1.0
    f = Called(split, rate=-50.0 * sign)
    y0 = (Y0[0], Y0[1:]) if split else Y0
    options = steps(method, 0.02, **({"first_step": 0.5} if method == "dopri5" else {}))
    with proxode.record() as stats:
        ys = proxode.odeint(f, y0, sign * T, method=method, options=options, rtol=1e-4)
    tried, accepted, rejected = f.told.values()
    assert (len(tried), len(accepted), len(rejected)) == (stats.n_steps, stats.n_accepted, stats.n_rejected)
    assert (len(rejected) > 0) == (method == "dopri5")
    assert all(dt > 0 for _, _, dt in tried)
    assert accepted[0][0] == 0.0
    for (t0, _, dt), (t1, _, _) in pairwise(accepted):
        assert t1 == pytest.approx(t0 + sign * dt, abs=1e-12)
    assert accepted[-1][0] + sign * accepted[-1][2] == pytest.approx(sign * 1.0)
    outputs = {round(float(t), 9): i for i, t in enumerate(sign * T)}
    at_outputs = [(state, outputs[round(t0, 9)]) for t0, state, _ in accepted if round(t0, 9) in outputs]
    assert len(at_outputs) >= (1 if method == "dopri5" else 2)
    for state, i in at_outputs:
        assert_close(state, tuple(y[i] for y in ys) if split else ys[i])


@pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
def test_callbacks_and_a_gradient_of_t_go_together(method: str) -> None:
    f, t = Called(), T.clone().requires_grad_()
    y = proxode.odeint(f, Y0, t, method=method, options=steps(method, 0.02), rtol=1e-4)
    slope = torch.autograd.grad(y[-1].sum(), t)[0][-1]
    assert_close(slope, f(T[-1], y[-1].detach()).sum(), rtol=0.1, atol=0.05)


@every_method
@pytest.mark.parametrize("ends", [(0.0, 1.0), (1.0, 0.0)], ids=["increasing", "decreasing"])
def test_dense_output_follows_the_solution_between_the_steps(method: str, ends: tuple[float, float]) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return y * torch.cos(t)

    start = torch.exp(torch.sin(torch.tensor(ends[0], dtype=torch.float64))) * Y0
    dense = proxode.odeint_dense(f, start, *ends, method=method, options=steps(method, 0.02), rtol=1e-5, atol=1e-7)
    t = torch.linspace(0, 1, 37, dtype=torch.float64)
    y = dense(t).detach()
    assert y.shape == (37, 3)
    off = {1: 3e-2, 2: 1e-3}.get(METHODS[method].order, 1e-4)
    assert_close(y, torch.exp(torch.sin(t)).unsqueeze(-1) * Y0, rtol=off, atol=0.0)
    assert torch.equal(dense(0.5), dense(torch.tensor([0.5], dtype=torch.float64))[0])
    for outside in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"`t` = .*outside"):
            dense(outside)


@pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
def test_dense_output_of_a_tuple_is_a_tuple(method: str) -> None:
    t1 = torch.tensor(0.3)  # in float32 a little more than 0.3
    y0 = (Y0, Y0[0])
    dense = proxode.odeint_dense(lambda t, y: (-y[0], -y[1]), y0, 0.0, t1, method=method, options=steps(method, 0.01))
    one, many = dense(0.2), dense(torch.tensor([[0.1, 0.2], [0.25, 0.3]]))
    assert [part.shape for part in one] == [(3,), ()]
    assert [part.shape for part in many] == [(2, 2, 3), (2, 2)]
    assert_close(one[0].detach(), Y0 * 0.8187307530779818, rtol=1e-3, atol=0.0)


def test_the_end_of_a_dense_solution_may_be_asked_for_in_float32() -> None:
    dense = proxode.odeint_dense(lambda t, y: -y, Y0, 0.0, 0.3)
    assert_close(dense(torch.tensor(0.3)), Y0 * 0.7408182206817179, rtol=1e-6, atol=0.0)


@every_method
def test_odeint_adjoint_has_the_values_and_the_gradients_of_odeint(method: str) -> None:
    """Its gradients are those of the solution and not of the steps: they agree as well as the steps do with it."""
    results = []
    rtol = 1e-5 if METHODS[method].order > 3 else 1e-4
    for odeint in (proxode.odeint, proxode.odeint_adjoint):
        f, y0, t = Counted(), Y0.clone().requires_grad_(), T.clone().requires_grad_()
        y = odeint(f, y0, t, method=method, options=steps(method, 0.05), rtol=rtol)
        results.append([y.detach(), *torch.autograd.grad(y.square().sum(), [y0, t, *f.parameters()])])
    (y, *gradients), (same, *others) = results
    assert_close(same, y, rtol=1e-12, atol=1e-12)
    off = {1: 0.5, 2: 6e-3, 3: 1.5e-3}.get(METHODS[method].order, 3e-4)
    for ours, exact in zip(others, gradients, strict=True):
        assert_close(ours, exact, rtol=0.0, atol=off * float(exact.abs().max()))


def test_odeint_adjoint_takes_the_arguments_of_the_adjoint() -> None:
    f, y0 = Counted(), Y0.clone().requires_grad_()
    y = proxode.odeint_adjoint(
        f, y0, T, adjoint_rtol=1e-6, adjoint_atol=1e-8, adjoint_method="dopri5",
        adjoint_options={"norm": "seminorm"}, adjoint_params=tuple(f.parameters()),
    )  # fmt: skip
    y.sum().backward()
    assert y0.grad is not None and f.linear.weight.grad is not None
