"""`per_sample=True`: independent problems in one batch, each with its own steps, order, end and status."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_problems import MU, Y0, doubles, van_der_pol
from torch import Tensor

import proxode
from proxode import Status
from proxode.controllers import Adaptive, AdaptiveState, Outcome
from proxode.samples import control
from proxode.samples.bdf import Past, Reach


def alone(mu: float) -> Any:
    return lambda t, y: torch.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


# Against one problem at a time


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_every_sample_is_solved_as_it_is_alone(tol: float) -> None:
    """To the tolerance, and with about the steps that it takes alone, which differ by a factor of two."""
    times = torch.linspace(0.0, 3.0, 7, dtype=torch.float64)
    run = proxode.solve(van_der_pol(MU), Y0, 0.0, 3.0, per_sample=True, method="bdf", save_at=times, rtol=tol, atol=tol)
    assert run.ys.shape == (7, 7, 2) and run.status is Status.SUCCESS and run.samples is not None
    for i, mu in enumerate(MU.tolist()):
        single = proxode.solve(alone(mu), Y0[i], 0.0, 3.0, save_at=times, method="bdf", rtol=tol, atol=tol)
        exact = proxode.solve(alone(mu), Y0[i], 0.0, 3.0, save_at=times, method="bdf", rtol=1e-9, atol=1e-9)
        off = (run.ys[:, i] - exact.ys).abs() / (tol + tol * exact.ys.abs())
        assert float(off.square().mean(1).sqrt().max()) < 10
        assert abs(int(run.samples.n_accepted[i]) - single.stats.n_accepted) <= 0.25 * single.stats.n_accepted + 5
    assert run.samples.n_steps.max() > 1.5 * run.samples.n_steps.min()
    assert run.stats.n_steps < 1.3 * int(run.samples.n_steps.max())  # nobody waits for the sum of all
    assert run.stats.nfe_forward < 4 * run.stats.n_steps + 30


def test_a_jacobian_that_is_too_stiff_by_now_does_not_hold_a_component_fast() -> None:
    """Moves with it are tiny, and a solve would seem to have converged: 217 tolerances. Only the residual tells."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        s = torch.sigmoid((1.14983 - t) * 3)
        return torch.stack([-y[:, 1], y[:, 0], -22776.88 * s * y[:, 2] + 0.5e-4 * (1 - s)], 1)

    ours, fine = (proxode.solve(f, doubles([1.0, 0.0, 0.0]), 0.0, 15.0, per_sample=True, rtol=tol, atol=tol).ys[-1]
                  for tol in (1e-4, 1e-9))  # fmt: skip
    assert float((ours - fine).abs().max()) < 10 * 1e-4


def test_an_old_jacobian_costs_neither_steps_nor_iterations() -> None:
    """Where f becomes ten thousand times as stiff, and gentle again: a solve that fails with the Jacobian of before
    ends at once (371 calls otherwise) and is tried again with the same step (379 otherwise)."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        s = 1 + 1e4 * (torch.sigmoid(20 * (t - 10 / 3)) - torch.sigmoid(20 * (t - 20 / 3)))
        return -s[:, None] * (y - torch.cos(t)[:, None])

    run, fine = (proxode.solve(f, doubles([1.0, 1.0]), 0.0, 10.0, per_sample=True, rtol=tol, atol=tol)
                 for tol in (1e-3, 1e-8))  # fmt: skip
    assert float((run.ys[-1] - fine.ys[-1]).abs().max()) < 10 * 1e-3
    assert run.stats.nfe_forward <= 355


@given(st.integers(1, 5), st.lists(st.floats(0.01, 3.0), min_size=9, max_size=9), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_a_formula_of_order_k_is_exact_for_polynomials_of_degree_k(k: int, gaps: list[float], seed: int) -> None:
    c = torch.randn(k + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def p(t: Tensor) -> Tensor:
        return sum(a * t**i for i, a in enumerate(c))[:, None]  # type: ignore[index, union-attr, return-value]

    def slope(t: Tensor) -> Tensor:
        return sum(i * a * t ** (i - 1) for i, a in enumerate(c) if i)[:, None]  # type: ignore[index, union-attr, return-value]

    t = doubles(0.0)
    past = Past.of(t, p(t))
    for gap in gaps:
        t = t + gap
        past = past._replace(order=torch.full_like(past.order, k))
        reach = Reach.of(t, past)
        if int(past.points) > k:
            size = float(1 + p(t).abs() + slope(t).abs())
            assert float((reach.predicted(past, slope(t)) - p(t)).abs()) < 1e-9 * size * (1 + t.item()) ** k
            solved = reach.anchor + reach.gamma[:, None] * slope(t)
            assert float((solved - p(t)).abs()) < 1e-9 * size * (1 + t.item()) ** k
        past = reach.ended(past, p(t))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_order_is_capped(k: int) -> None:
    few, many = (proxode.solve(van_der_pol(MU), Y0, 0.0, 2.0, per_sample=True, method=method, rtol=1e-3, atol=1e-3)
                 for method in ("bdf", f"bdf{k}"))  # fmt: skip
    assert torch.allclose(few.ys[-1], many.ys[-1], atol=5e-2)
    assert many.stats.n_steps > few.stats.n_steps


@given(order=st.integers(1, 5), ratio=st.floats(0, 100), beside=st.tuples(st.floats(0, 100), st.floats(0, 100)),
       rejected=st.integers(0, 4), h=st.floats(1e-6, 1e6))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_the_control_of_a_sample_is_that_of_one_problem(
    order: int, ratio: float, beside: tuple[float, float], rejected: int, h: float
) -> None:
    others = tuple((k, r) for k, r in zip((order - 1, order + 1), beside, strict=True) if 1 <= k <= 5)
    outcome = Outcome(ratio, order + 1, order, others=others)
    single = Adaptive("order").next(0.0, h, outcome, AdaptiveState(h, 1.0, rejected))
    k, one = torch.tensor([order]), torch.tensor([True])
    choice = control.at_order(doubles(ratio), k)
    for other, found in others:
        allowed = one & (other < order or ratio <= 1.0)
        choice = control.better(choice, doubles(found), torch.tensor([other]), other > order, allowed)
    if single.accept:
        length, then = control.longer(doubles(h), choice, k, torch.tensor([rejected > 0])), choice.order
    else:
        length, then = control.shorter(doubles(h), choice, k, torch.tensor([rejected]))
    assert float(length) == pytest.approx(single.t_next - (h if single.accept else 0.0), rel=1e-9)
    assert int(then) == single.order


# Each with its own


def test_times_directions_tolerances_and_save_times_may_differ() -> None:
    rates, t0, t1 = doubles(1.0, 5.0, 0.3), doubles(0.0, 1.0, 2.0), doubles(1.0, 3.0, -1.0)
    tol = doubles(1e-3, 1e-8, 1e-5)
    saves = t0 + torch.linspace(0.1, 1.0, 4, dtype=torch.float64)[:, None] * (t1 - t0)
    seen: list[Tensor] = []

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.append(t)
        return -rates[:, None] * y

    run = proxode.solve(f, doubles([1.0], [2.0], [3.0]), t0, t1, per_sample=True, save_at=saves, rtol=tol, atol=tol)
    exact = doubles(1.0, 2.0, 3.0) * torch.exp(-rates * (saves - t0))
    off = (run.ys[..., 0] - exact).abs() / (tol * (1 + exact))
    assert float(off.max()) < 10
    assert run.samples is not None and run.samples.n_steps[1] > 2 * run.samples.n_steps[0]
    assert torch.equal(run.samples.t, t1) and run.ts is saves
    times = torch.stack(seen)
    low, high = torch.minimum(t0, t1), torch.maximum(t0, t1)
    assert bool(((times >= low - 1e-9) & (times <= high + 1e-9)).all())  # f is not asked beyond the ends of a sample


def test_a_tuple_and_any_shape() -> None:
    def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        assert t.shape == (3,) and y[0].shape == (3, 2, 2) and y[1].shape == (3,)
        return -100 * (y[0] - torch.cos(t)[:, None, None]), y[0].sum((1, 2)) * 0 + y[1]

    y0 = (torch.zeros(3, 2, 2, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    run = proxode.solve(f, y0, 0.0, 1.0, per_sample=True, rtol=1e-6, atol=1e-6)
    assert run.ys[0].shape == (2, 3, 2, 2) and run.ys[1].shape == (2, 3)
    assert torch.allclose(run.ys[1][-1], torch.full((3,), math.e, dtype=torch.float64), rtol=1e-5)


def test_in_float32_a_tolerance_is_raised_and_said_to_be() -> None:
    run = proxode.solve(lambda t, y: -y, torch.ones(2, 1), 0.0, 1.0, per_sample=True, rtol=doubles(1e-4, 1e-9),
                        atol=1e-8)  # fmt: skip
    assert run.samples is not None and run.samples.status == (Status.SUCCESS, Status.TOLERANCE_RAISED)
    assert run.ys.dtype == torch.float32 and float((run.ys[-1] - math.exp(-1)).abs().max()) < 1e-3


def test_what_a_review_found_about_numbers() -> None:
    """Numbers are not rounded to float32 on their way, an rtol of zero leaves atol, a component may be zero without an
    atol, f may be constant, and a time may be so large that adding one is nothing."""
    one = torch.ones(1, 1, dtype=torch.float64)
    run = proxode.solve(lambda t, y: -y, one, 0.0, 0.7, per_sample=True, rtol=1e-9, atol=1e-9)
    assert float(run.ts[-1]) == 0.7 and float((run.ys[-1] - math.exp(-0.7)).abs()) < 1e-8
    run = proxode.solve(lambda t, y: -y, torch.ones(1, 1), 0.0, 0.3, per_sample=True, save_at=torch.linspace(0, 0.3, 4))
    assert run.ys.shape == (4, 1, 1) and bool(torch.isfinite(run.ys).all())
    turned = proxode.solve(lambda t, y: torch.stack([-y[:, 1], y[:, 0]], 1), doubles([1.0, 0.0]), 0.0, 20.0,
                           per_sample=True, rtol=0.0, atol=1e-5)  # fmt: skip
    assert float((turned.ys[-1] - doubles([math.cos(20), math.sin(20)])).abs().max()) < 2e-4
    flat = proxode.solve(lambda t, y: -y, doubles([1.0, 0.0]), 0.0, 1.0, per_sample=True, rtol=1e-3, atol=0.0)
    assert flat.status.ok and float(flat.ys[-1, 0, 1]) == 0.0
    q = doubles(2.0).requires_grad_()
    for f in (lambda t, y: torch.ones_like(y), lambda t, y: q * torch.ones_like(y)):
        constant = proxode.solve(f, one, 0.0, 1.0, per_sample=True)
        assert float(constant.ys[-1].detach()) == pytest.approx(1 + (2.0 if constant.ys.requires_grad else 1.0))
    y0 = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    rates = doubles([1e-16], [1e-2])
    far = proxode.solve(lambda t, y: -rates * y, y0, 0.0, doubles(1e16, 3e3), per_sample=True)
    far.ys[-1].sum().backward()
    assert y0.grad is not None and bool(torch.isfinite(y0.grad).all())


@pytest.mark.parametrize("rate", [1e9, 1e-7])
def test_float32_at_any_scale_of_time(rate: float) -> None:
    p, y0 = torch.tensor(rate, requires_grad=True), torch.tensor([[2.0, 1.5]], requires_grad=True)
    run = proxode.solve(lambda t, y: -p * (y - 1), y0, 0.0, 1 / rate, per_sample=True, rtol=1e-4, atol=1e-4)
    run.ys[-1].sum().backward()
    assert torch.allclose(run.ys[-1].detach(), 1 + math.exp(-1) * (y0.detach() - 1), atol=1e-3)
    assert y0.grad is not None and torch.allclose(y0.grad, torch.full((1, 2), math.exp(-1)), rtol=1e-2)
    assert p.grad is not None and float(p.grad) * rate == pytest.approx(-1.5 * math.exp(-1), rel=1e-2)


# One that fails


def failing(t: Tensor, y: Tensor) -> Tensor:
    """The second has no derivative beyond t = 0.5, the third explodes at t = 1."""
    lost = torch.where(t < 0.5, -y[:, 0], torch.nan)
    return torch.stack([-1e3 * (y[0] - torch.cos(t[:1])), lost[1:2], y[2] ** 2, -y[3]])


def test_one_that_fails_neither_slows_nor_spoils_the_others() -> None:
    y0 = torch.ones(4, 1, dtype=torch.float64)
    run = proxode.solve(failing, y0, 0.0, 2.0, per_sample=True, save_at=doubles(0.25, 2.0), throw=False)
    good = proxode.solve(lambda t, y: torch.stack([-1e3 * (y[0] - torch.cos(t[:1])), -y[1]]), y0[:2], 0.0, 2.0,
                         per_sample=True, save_at=doubles(0.25, 2.0))  # fmt: skip
    assert run.samples is not None and good.samples is not None
    assert [status.ok for status in run.samples.status] == [True, False, False, True]
    assert torch.allclose(run.ys[:, [0, 3]], good.ys, rtol=1e-4)
    assert run.samples.n_steps[[0, 3]].tolist() == good.samples.n_steps.tolist()
    assert bool(torch.isfinite(run.ys[0]).all()) and bool(torch.isnan(run.ys[1, 1:3]).all())
    assert run.samples.t[1] == pytest.approx(0.5, abs=1e-3) and run.samples.t[2] == pytest.approx(1.0, abs=1e-3)
    assert run.status is run.samples.status[1] and "sample 1, and 1 more of 4" in run.message
    assert run.stats.n_steps < int(run.samples.n_steps.max()) + 30  # of BDF, for the stiff one, after the explicit
    with pytest.raises(proxode.SolverError) as caught:
        proxode.solve(failing, y0, 0.0, 2.0, per_sample=True)
    assert caught.value.solution is not None and caught.value.solution.samples is not None


def test_nan_from_the_start_and_too_many_steps() -> None:
    rates = doubles(1.0, math.nan, 1.0)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return (rates * (torch.cos(20 * t) - y[:, 0]))[:, None]

    run = proxode.solve(f, torch.ones(3, 1, dtype=torch.float64), 0.0, doubles(0.1, 1.0, 300.0), per_sample=True,
                        max_steps=100, throw=False)  # fmt: skip
    assert run.samples is not None
    assert run.samples.status == (Status.SUCCESS, Status.NON_FINITE, Status.MAX_STEPS)
    assert run.samples.n_steps[1:].tolist() == [0, 100] and 0 < run.samples.t[2] < 300


# Bad input

BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "method": ({"method": "rk4"}, ValueError, "`per_sample` takes method"),
    "y0": ({"y0": doubles(1.0)[0]}, ValueError, "dimension 0 of `y0`"),
    "y0 nan": ({"y0": doubles([math.nan])}, ValueError, "`y0` holds nan"),
    "y0 half": ({"y0": torch.ones(2, 1, dtype=torch.float16)}, TypeError, "float32 and float64"),
    "parts": ({"y0": (torch.ones(2, 1), torch.ones(3, 1))}, ValueError, "of one length"),
    "t0": ({"t0": doubles(0.0, 1.0, 2.0)}, ValueError, "`t0` of shape"),
    "t1": ({"t1": "later"}, TypeError, "`t1` must be a number"),
    "equal": ({"t1": doubles(1.0, 0.0)}, ValueError, "are equal in a sample"),
    "gradient of t1": ({"t1": doubles(1.0, 2.0).requires_grad_()}, NotImplementedError, "`t1` requires a gradient"),
    "save_at": ({"save_at": doubles(0.5, 2.0)}, ValueError, "`save_at` must lie between"),
    "save_at order": ({"save_at": doubles(0.5, 0.4)}, ValueError, "strictly monotone"),
    "save_at shape": ({"save_at": torch.ones(2, 3)}, ValueError, r"\(times, 2\)"),
    "rtol": ({"rtol": -1.0}, ValueError, "`rtol` must be finite and not negative"),
    "atol": ({"atol": doubles(1.0, 2.0, 3.0)}, ValueError, "`atol` of shape"),
    "event": ({"event": lambda t, y: y}, NotImplementedError, "`event` is not available with `per_sample`"),
    "inner": ({"inner": "fr"}, NotImplementedError, "`inner` is not available"),
    "detached wide": ({"func": lambda t, y: -y.detach(), "y0": torch.ones(2, 300), "method": "bdf"}, ValueError,
                      "in autograd's eyes"),
    "option": ({"first_step": 0.1}, NotImplementedError, "`first_step` is not available"),
    "detached": ({"func": lambda t, y: -y.detach(), "method": "bdf"}, ValueError, "in autograd's eyes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_the_argument(name: str) -> None:
    kwargs, error, says = BAD[name]
    given = {"func": lambda t, y: -y, "y0": torch.ones(2, 1, dtype=torch.float64), "t0": 0.0, "t1": 1.0, **kwargs}
    with pytest.raises(error, match=says):
        proxode.solve(given.pop("func"), given.pop("y0"), given.pop("t0"), given.pop("t1"), per_sample=True, **given)


def test_no_method_is_the_default_one() -> None:
    f, y0 = (lambda t, y: -y), torch.ones(2, 3, dtype=torch.float64)
    runs = [proxode.solve(f, y0, 0.0, 1.0, per_sample=True, method=method) for method in (None, "auto")]
    assert torch.equal(runs[0].ys, runs[1].ys)
