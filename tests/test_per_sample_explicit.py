"""Explicit pairs with `per_sample=True`, and what `auto` does with samples of which some are stiff."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from sample_problems import doubles, van_der_pol
from torch import Tensor

import proxode
from proxode import Status

PAIRS = ["adaptive_heun", "bosh3", "dopri5", "tsit5", "dopri8"]
W = doubles(0.5, 1.0, 3.0)
START = doubles([1.0, 0.0], [0.0, 2.0], [1.0, 1.0])


def turning(w: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda t, y: w[:, None] * torch.stack([-y[:, 1], y[:, 0]], 1)


def turned(times: Tensor) -> Tensor:
    c, s = torch.cos(W * times[:, None]), torch.sin(W * times[:, None])
    return torch.stack([c * START[:, 0] - s * START[:, 1], s * START[:, 0] + c * START[:, 1]], -1)


@pytest.mark.parametrize("name", PAIRS)
def test_every_sample_takes_the_steps_that_it_takes_alone(name: str) -> None:
    """The same to rounding, with outputs between them on the pair's own continuous extension, and the same gradient."""
    times = torch.linspace(0.0, 4.0, 9, dtype=torch.float64)
    w = W.clone().requires_grad_()
    tol = 1e-3 if name == "adaptive_heun" else 1e-5
    kwargs = {"method": name, "save_at": times, "rtol": tol, "atol": 0.1 * tol}
    run = proxode.solve(turning(w), START, 0.0, 4.0, per_sample=True, **kwargs)
    assert run.samples is not None and run.status is Status.SUCCESS
    assert float((run.ys - turned(times)).detach().abs().max()) < 30 * tol
    (got,) = torch.autograd.grad(run.ys.square()[..., 0].sum(), w)
    for i in range(3):
        v = W[i].clone().requires_grad_()
        single = proxode.solve(lambda t, y, v=v: v * torch.stack([-y[1], y[0]]), START[i], 0.0, 4.0, **kwargs)
        assert run.samples.n_steps[i] == single.stats.n_steps
        assert torch.allclose(run.ys[:, i], single.ys, rtol=1e-9, atol=1e-11)
        (exact,) = torch.autograd.grad(single.ys.square()[..., 0].sum(), v)
        assert float(got[i]) == pytest.approx(float(exact), rel=1e-7)
    assert run.samples.n_steps[2] > 2 * run.samples.n_steps[0]
    assert run.stats.n_steps == int(run.samples.n_steps.max())


@pytest.mark.parametrize("name", ["dopri5", "dopri8"])
def test_the_gradient_is_that_of_the_accepted_steps(name: str) -> None:
    def solve(y0: Tensor, w: Tensor) -> Tensor:
        f = lambda t, y: torch.stack([y[:, 1], -w * torch.sin(y[:, 0]) + 0.1 * t], 1)  # noqa: E731
        ends = doubles(1.0, -0.7)
        run = proxode.solve(f, y0, 0.0, ends, per_sample=True, method=name, save_at=doubles([0.3, -0.2], [1.0, -0.7]),
                            rtol=1e-8, atol=1e-8)  # fmt: skip
        return run.ys

    y0, w = doubles([0.5, 0.0], [1.0, 0.3]).requires_grad_(), doubles(1.0, 2.0).requires_grad_()
    assert torch.autograd.gradcheck(solve, (y0, w), eps=1e-4, atol=1e-5)


def test_one_that_fails_leaves_the_others_alone() -> None:
    """The second explodes at t = 1, the third has no derivative from the start, the fourth is given up."""
    y0, w = torch.ones(4, 1, dtype=torch.float64), doubles(1.0).requires_grad_()
    fast = doubles([0.0], [0.0], [0.0], [1e4])

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([-w * y[0], y[1] ** 2, math.nan * y[2], -w * y[3]]) - fast * (y - 1)

    run = proxode.solve(f, y0, 0.0, 2.0, per_sample=True, method="dopri5", max_steps=400, throw=False)
    alone = proxode.solve(lambda t, y: -w * y, y0[0], 0.0, 2.0, method="dopri5")
    assert run.samples is not None
    assert run.samples.status == (Status.SUCCESS, Status.STEP_UNDERFLOW, Status.NON_FINITE, Status.MAX_STEPS)
    assert run.samples.n_steps[0] == alone.stats.n_steps and run.stats.n_steps == 400
    assert torch.allclose(run.ys[-1, 0], alone.ys[-1], rtol=1e-12) and bool(torch.isnan(run.ys[-1, 1:]).all())
    (got,), (exact,) = (torch.autograd.grad(ys.sum(), w) for ys in (run.ys[-1, 0], alone.ys[-1]))
    assert float(got) == pytest.approx(float(exact), rel=1e-9)


# auto


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_every_sample_is_within_ten_tolerances_though_some_are_on_their_jump(tol: float) -> None:
    """At t = 10 oscillators with mu about 4 and 11 are: BDF alone leaves 300 tolerances there."""
    mu = torch.logspace(0, 3, 60, dtype=torch.float64)
    y0 = doubles([2.0, 0.0]).repeat(len(mu), 1)
    with torch.no_grad():
        run, fine = (proxode.solve(van_der_pol(mu), y0, 0.0, 10.0, per_sample=True, rtol=x, atol=x)
                     for x in (tol, 1e-8))  # fmt: skip
        dearer = proxode.solve(van_der_pol(mu), y0, 0.0, 10.0, per_sample=True, method="bdf", rtol=tol, atol=tol)
    off = ((run.ys[-1] - fine.ys[-1]) / (tol + tol * fine.ys[-1].abs())).square().mean(1).sqrt()
    assert float(off.max()) < 10
    assert run.stats.n_steps < 400 and run.samples is not None and dearer.samples is not None
    stiff = mu > 40  # their steps are those of BDF from the start
    apart = (run.samples.n_steps - dearer.samples.n_steps)[stiff].abs()
    assert int(apart.max()) <= 3  # not the same: new Jacobians are made for all at once


def test_auto_changes_to_bdf_on_the_way_and_for_the_stiff_only() -> None:
    """The first becomes stiff at t = 1: explicit steps to t = 20 would be a hundred thousand."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        rate = torch.stack([1 + 1e4 * torch.sigmoid(50 * (t[0] - 1)), torch.ones_like(t[1])])
        return -rate[:, None] * (y - torch.cos(t)[:, None])

    y0 = doubles([1.0], [1.0]).requires_grad_()
    run = proxode.solve(f, y0, 0.0, 20.0, per_sample=True, rtol=1e-5, atol=1e-5)
    t = 20.0
    exact = 0.5 * (math.cos(t) + math.sin(t)) + 0.5 * math.exp(-t)
    assert float(run.ys[-1, 1].detach()) == pytest.approx(exact, abs=1e-4)
    assert float(run.ys[-1, 0].detach()) == pytest.approx(math.cos(t), abs=2e-4)
    assert run.samples is not None and run.samples.n_steps.max() < 500 and run.stats.nfe_forward < 4000
    (grad,) = torch.autograd.grad(run.ys[-1].sum(), y0)
    assert torch.allclose(grad, torch.zeros_like(grad), atol=1e-6)


def test_the_reserve_of_auto_is_not_less_than_the_dtype_carries() -> None:
    """3 % of 1e-6 is half an ulp: every step would be rejected, or thousands taken."""
    run = proxode.solve(turning(W.float()), START.float(), 0.0, 4.0, per_sample=True, rtol=2e-6, atol=1e-7)
    assert run.status.ok and run.stats.n_steps < 200
    assert float((run.ys[-1].double() - turned(doubles(4.0))[0]).abs().max()) < 1e-4
