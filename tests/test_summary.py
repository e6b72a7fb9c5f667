"""The record of the steps, and what is made of it: a table in words, and advice where the numbers give it."""

from __future__ import annotations

import math
import re
import time
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
import proxode.run as door
from proxode.solution import Stats
from proxode.steps import Kind, Steps, TriedStep
from proxode.summary import seconds

D = torch.float64
Y0 = torch.tensor([2.0, 0.0], dtype=D)
METHODS = {
    "auto": {}, "bdf": {}, "bdf2": {"step_size": 0.03}, "dopri5": {}, "rk4": {"step_size": 0.01}, "multistage3": {},
    "rkc2": {},
}  # fmt: skip


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[..., 1], 30.0 * (1 - y[..., 0] ** 2) * y[..., 1] - y[..., 0]], -1)


def field(text: str, name: str) -> str:
    """The line of a summary that begins so, without the name."""
    return next(line for line in text.splitlines() if line.startswith(name))[13:]


def numbers(text: str) -> list[int]:
    return [int(word.replace(",", "")) for word in text.split() if word.replace(",", "").isdigit()]


# The record


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ends", [(0.0, 1.5), (1.5, 0.7)])
def test_the_record_is_that_of_the_statistics(method: str, ends: tuple[float, float]) -> None:
    options: dict[str, Any] = METHODS[method]
    run = proxode.solve(van_der_pol, Y0, *ends, method=method, **options)
    steps, stats = list(run.stats.steps), run.stats
    taken = [step for step in steps if step.accepted]
    assert (len(steps), len(taken)) == (stats.n_steps, stats.n_accepted) and len(stats.steps) == len(steps)
    assert len(steps) - len(taken) == stats.n_rejected
    assert math.fsum(step.h for step in taken) == pytest.approx(abs(ends[1] - ends[0]), rel=1e-12)
    assert taken[0].t0 == ends[0] and taken[-1].t1 == pytest.approx(ends[1], rel=1e-14)
    assert all(a.t1 == pytest.approx(b.t0, rel=1e-12) for a, b in pairwise(taken))
    assert all(step.h > 0 and step.h == pytest.approx(abs(step.t1 - step.t0), rel=1e-6) for step in steps)
    columns = stats.steps.columns()
    assert columns.t1.tolist() == pytest.approx([step.t1 for step in steps], rel=1e-14)
    assert columns.accepted.tolist() == [step.accepted for step in steps]


def test_orders_and_methods_are_those_of_a_stepper() -> None:
    stepper = proxode.Stepper(van_der_pol, Y0, 0.0, t1=1.5)
    driven = [(step.t0, step.by, step.order) for step in stepper]
    run = proxode.solve(van_der_pol, Y0, 0.0, 1.5)
    assert [(step.t0, step.method, step.order) for step in run.stats.steps if step.accepted] == driven
    assert len({order for _, _, order in driven}) > 2 and run.stats.n_rejected > 0
    assert [t for t, _ in run.stats.switches] == [driven[0][0], *(b[0] for a, b in pairwise(driven) if a[1] != b[1])]


@pytest.mark.parametrize("gradient", ["direct", "implicit", "checkpoint", "continuous"])
def test_a_backward_pass_adds_no_steps(gradient: str) -> None:
    y0 = Y0.clone().requires_grad_()
    run = proxode.solve(van_der_pol, y0, 0.0, 1.5, gradient=gradient, method="bdf")
    plain = proxode.solve(van_der_pol, Y0, 0.0, 1.5, gradient=gradient, method="bdf")
    before = list(run.stats.steps)
    run.ys[-1].sum().backward()
    assert list(run.stats.steps) == before == list(plain.stats.steps)
    assert len(before) == run.stats.n_steps and run.stats.nfe_backward > 0
    assert y0.grad is not None and bool(torch.isfinite(y0.grad).all())


def test_a_stepper_that_goes_on_counts_every_step_once() -> None:
    whole = proxode.Stepper(van_der_pol, Y0, 0.0, t1=1.5)
    parts = proxode.Stepper(van_der_pol, Y0, 0.0, t1=1.5)
    for _ in range(10):
        parts.step()
    resumed = proxode.Stepper.resume(van_der_pol, parts.state)
    for stepper in (whole, resumed):
        while not stepper.done:
            stepper.step()
    assert list(parts.stats.steps) + list(resumed.stats.steps) == list(whole.stats.steps)
    assert resumed.stats.n_steps == whole.stats.n_steps and torch.equal(resumed.y, whole.y)


def test_a_record_takes_little_and_has_a_limit() -> None:
    steps = Steps(limit=1000)
    steps.names.update({order: Kind("bdf", order) for order in range(1, 6)})
    steps.begin("bdf", 0.0, 2600.0, 1.0)
    written = []
    for i in range(2600):
        if i % 10 == 9:
            steps.reject(2.0, 3)
            written.append(TriedStep(float(i), i + 2.0, 2.0, "bdf", 3, False))
        steps.ends.append(i + 1.0)
        if i % 300 == 0:
            steps.change(1 + i // 300 % 5)
        written.append(TriedStep(float(i), i + 1.0, 1.0, "bdf", 1 + i // 300 % 5, True))
    assert len(steps) + steps.forgotten == len(written) and 450 <= len(steps) <= 1000
    assert list(steps) == written[steps.forgotten :] and steps.reached == 2600.0
    columns = [getattr(steps, name) for name in vars(steps) if hasattr(getattr(steps, name), "itemsize")]
    assert len(columns) == 8 and sum(column.itemsize * len(column) for column in columns) <= 12 * len(steps)


def test_a_solve_forgets_its_oldest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(proxode.solve(van_der_pol, Y0, 0.0, 1.5).stats.steps)
    stats = Stats(steps=Steps(limit=12))
    monkeypatch.setattr(door, "new_stats", lambda: stats)
    run = proxode.solve(van_der_pol, Y0, 0.0, 1.5)
    assert 0 < len(stats.steps) < len(whole) - 10 and len(stats.steps) + stats.steps.forgotten == len(whole)
    assert stats.steps.names and list(stats.steps) == whole[stats.steps.forgotten :]
    assert f"what follows is of the last {len(stats.steps)}" in run.summary()


# The table


def test_the_numbers_of_the_table_are_those_of_the_statistics() -> None:
    y0 = Y0.clone().requires_grad_()
    run = proxode.solve(van_der_pol, y0, 0.0, 60.0, save_at=torch.linspace(0, 60, 31, dtype=D))
    run.ys[-1].sum().backward()
    text, stats = run.summary(), run.stats
    assert field(text, "outcome") == "SUCCESS: the solve reached the last time"
    assert field(text, "interval") == "t = 0 to 60"
    assert field(text, "outputs") == "31, each of shape (2,) in float64"
    assert numbers(field(text, "steps"))[:2] == [stats.n_accepted, stats.n_rejected]
    assert numbers(field(text, "NFE")) == [stats.nfe_forward, stats.nfe_backward] and stats.nfe_backward > 0
    assert f"{stats.n_f:,} evaluations of f, {stats.n_jvp:,} products J v, {stats.n_vjp:,} products v J" in text
    lengths = sorted(step.h for step in stats.steps if step.accepted)
    low, _, high, _, middle = field(text, "step length").replace(",", "").split()
    expected = [lengths[0], lengths[(len(lengths) - 1) // 2], lengths[-1]]
    assert [float(low), float(middle), float(high)] == pytest.approx(expected, rel=1e-2)
    assert f"{stats.n_inner:,} iterations, {stats.n_inner / stats.n_steps:.3g} a step" in text
    lines = [line.strip() for line in text.splitlines() if "  bdf, t = " in line or "  dopri5, t = " in line]
    assert len(lines) >= 2 and sum(numbers(line.split(",")[-1])[0] for line in lines) <= stats.n_accepted
    assert "advice" not in text and max(map(len, text.splitlines())) <= 113


def test_times_of_a_method_meet() -> None:
    run = proxode.solve(van_der_pol, Y0, 0.0, 30.0)
    lines = [line.split(", ") for line in run.summary().splitlines() if ", t = " in line]
    times = [line[1].removeprefix("t = ").split(" to ") for line in lines]
    assert len(times) == len(run.stats.switches) > 1
    assert times[0][0] == "0" and times[-1][1] == "30" and all(a[1] == b[0] for a, b in pairwise(times))
    assert sum(int(line[2].split()[0]) for line in lines) == run.stats.n_accepted


def test_a_failure_is_told_with_where_it_came_to() -> None:
    run = proxode.solve(lambda t, y: y * y, torch.ones(1, dtype=D), 0.0, 2.0, method="dopri5", throw=False)
    text = run.summary()
    assert text.startswith("outcome      STEP_UNDERFLOW: ") and "What to try" in text
    assert field(text, "interval") == "t = 0 to 2, steps as far as 1.00001" and "advice" not in text
    none = proxode.solve(lambda t, y: y / 0.0, torch.ones(1, dtype=D), 0.0, 2.0, throw=False).summary()
    assert none.startswith("outcome      NON_FINITE") and "steps        0 accepted, 0 rejected (0 %)" in none
    fixed = proxode.solve(
        lambda t, y: torch.where(y < 0.5, torch.nan, -y), torch.ones(1, dtype=D), 0.0, 2.0, method="rk4", step_size=0.1,
        throw=False,
    )  # fmt: skip
    assert f"{fixed.stats.n_accepted} accepted, 0 rejected (0 %), 1 failed" in fixed.summary()


def test_events_tuples_and_time_that_runs_backwards_are_told() -> None:
    def f(t: Tensor, y: Any) -> Any:
        return y[1], -y[0]

    y0 = (torch.ones(2, dtype=D), torch.zeros(2, dtype=D))
    text = proxode.solve(f, y0, 0.0, -9.0, event=lambda t, y: y[0][0]).summary()
    assert float(field(text, "events").removeprefix("at t = ")) == pytest.approx(-math.pi / 2, rel=1e-4)
    assert "of shape (2,), (2,) in float64" in text
    assert field(text, "interval").startswith("t = 0 to -9, steps as far as -2.0")
    many = proxode.solve(f, y0, 0.0, 9.0, event=[proxode.Event(lambda t, y: y[0][:1], terminal=False)]).summary()
    assert field(many, "events") == "3 times"


def test_samples_tell_what_they_know() -> None:
    mus = torch.tensor([1.0, 5.0, 300.0], dtype=D)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[:, 1], mus * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)

    run = proxode.solve(f, Y0.repeat(3, 1), 0.0, 3.0, per_sample=True)
    text, samples = run.summary(), run.samples
    assert samples is not None and field(text, "method") == "auto, 3 samples, each with steps of its own"
    low, high, middle = numbers(field(text, "steps"))
    assert (low, high) == (int(samples.n_steps.min()), int(samples.n_steps.max())) and low <= middle <= high
    y0 = torch.tensor([[1.0], [0.1]], dtype=D)
    bad = proxode.solve(lambda t, y: y * y, y0, 0.0, 2.0, per_sample=True, throw=False)
    assert field(bad.summary(), "samples") in ("1 STEP_UNDERFLOW, 1 SUCCESS", "1 SUCCESS, 1 STEP_UNDERFLOW")


# Advice


def heat(t: Tensor, y: Tensor) -> Tensor:
    return 2_000.0 * (torch.roll(y, 1, -1) + torch.roll(y, -1, -1) - 2 * y) + torch.sin(t)


def oscillation(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([20.0 * y[1], -20.0 * y[0]])


def test_stability_is_told_from_accuracy() -> None:
    t = torch.linspace(0.0, 1.0, 30, dtype=D)
    stiff = proxode.solve(heat, torch.linspace(0, 1, 8, dtype=D), 0.0, 1.0, method="dopri5", save_at=t)
    assert "of one length" in field(stiff.summary(), "advice") and "stability limits them" in stiff.summary()
    assert stiff.stats.n_steps > 1_000
    accurate = proxode.solve(oscillation, Y0, 0.0, 10.0, method="dopri5", rtol=1e-8, save_at=10 * t)
    assert accurate.stats.n_steps > 500 and "stability" not in accurate.summary()
    assert "stability" not in proxode.solve(heat, torch.linspace(0, 1, 8, dtype=D), 0.0, 1.0, save_at=t).summary()
    fixed = proxode.solve(heat, torch.linspace(0, 1, 8, dtype=D), 0.0, 1.0, method="rk4", step_size=2e-4, save_at=t)
    assert "stability" not in fixed.summary()


def test_many_rejected_steps_are_a_reason_for_advice() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(torch.sin(40.0 * t) > 0, 1.0, -1.0) + 0 * y

    run = proxode.solve(f, Y0, 0.0, 2.0, method="dopri5")
    assert run.stats.n_rejected > 0.3 * run.stats.n_steps and "`jump_t`" in field(run.summary(), "advice")


def test_equations_that_are_not_solved_are_a_reason_for_advice() -> None:
    run = proxode.solve(heat, torch.linspace(0, 1, 8, dtype=D), 0.0, 0.1, method="bdf", inner="gd", inner_max_iters=2)
    assert run.stats.n_inner_failed > 0.3 * run.stats.n_steps
    assert f"{run.stats.n_inner_failed:,} equations not solved" in run.summary() and "'newton_krylov'" in run.summary()


def beside_a_constant(t: Tensor, y: Tensor) -> Tensor:
    return torch.cat([0 * y[:1], oscillation(t, y[1:])])


def test_an_oscillation_beside_a_large_constant_moves() -> None:
    y0, t = torch.tensor([1000.0, 1.0, 0.0], dtype=D), torch.linspace(0.0, 5.0, 200, dtype=D)
    run = proxode.solve(beside_a_constant, y0, 0.0, 5.0, method="dopri5", rtol=1e-8, atol=1e-8, save_at=t)
    assert run.stats.n_steps > 500 and "advice" not in run.summary()
    sparse = torch.linspace(0.0, 100.0, 21, dtype=D)  # 16 turns from one to the next: who knows what happens between
    run = proxode.solve(oscillation, Y0, 0.0, 100.0, method="dopri5", rtol=1e-6, atol=1e-6, save_at=sparse)
    assert "if the solution hardly moves" in " ".join(run.summary().split())


def test_who_is_sent_to_long_steps_is_warned_of_pulses() -> None:
    t = torch.linspace(0.0, 1.0, 30, dtype=D)
    for save_at in (t, None):
        run = proxode.solve(heat, torch.linspace(0, 1, 8, dtype=D), 0.0, 1.0, method="dopri5", save_at=save_at)
        assert "if f has pulses or jumps in t give `jump_t` or `max_step`" in " ".join(run.summary().split())


def test_orders_are_told_by_method() -> None:
    run = proxode.solve(van_der_pol, Y0, 0.0, 60.0)
    line = field(run.summary(), "orders")
    parts = dict(part.split(" ", 1) for part in line.split("; "))
    assert {"bdf", "dopri5"} <= set(parts) and parts["dopri5"].startswith("5 (") and parts["bdf"].startswith("1 (")
    assert field(proxode.solve(van_der_pol, Y0, 0.0, 1.0, method="dopri5").summary(), "orders") == "5 (100 %)"


# Time


def test_seconds_are_those_of_the_solve_and_of_f() -> None:
    def slow(t: Tensor, y: Tensor) -> Tensor:
        time.sleep(0.002)
        return -y

    y0 = torch.ones(2, dtype=D, requires_grad=True)
    for method in ("dopri5", "bdf"):
        began = time.perf_counter()
        run = proxode.solve(slow, y0, 0.0, 0.1, method=method)
        passed, stats = time.perf_counter() - began, run.stats
        assert stats.seconds_in_f is not None and 0.002 * stats.n_f < stats.seconds_in_f < stats.seconds < passed
        before = stats.seconds, stats.seconds_in_f
        run.ys[-1].sum().backward()
        assert before == (stats.seconds, stats.seconds_in_f)
        row = r"[\d.]+ m?s forward, (\d+) % of it inside f and its products"
        words = re.fullmatch(row, field(run.summary(), "time"))
        assert words is not None and abs(int(words[1]) - 100 * stats.seconds_in_f / stats.seconds) < 1
    with proxode.record() as recorded:
        proxode.solve(slow, y0, 0.0, 0.1)
    assert recorded.seconds == recorded.solves[0].seconds > 0.0


def test_seconds_of_samples_are_those_of_the_solve() -> None:
    run = proxode.solve(lambda t, y: -y, torch.ones(3, 2), 0.0, 1.0, per_sample=True)
    assert run.stats.seconds > 0.0 and run.stats.seconds_in_f is None
    assert re.fullmatch(r"[\d.]+ m?s forward", field(run.summary(), "time"))
    assert [seconds(x) for x in (0.00123, 0.0996, 0.73, 12.34)] == ["1.2 ms", "0.10 s", "0.73 s", "12.3 s"]
