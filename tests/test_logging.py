"""What a solve tells the log: the decisions that were made, each of them, and nothing where nobody listens."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import configure, logs, prepare
from proxode.inner import INNER

Y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[..., 1], 100.0 * (1 - y[..., 0] ** 2) * y[..., 1] - y[..., 0]], -1)


@pytest.fixture
def debug(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="proxode")
    return caplog


def said(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == f"proxode.{name}"]


def test_every_decision_of_a_stiff_solve_is_there(debug: pytest.LogCaptureFixture) -> None:
    solution = proxode.solve(van_der_pol, Y0, 0.0, 90.0, method="auto")
    stats, steps = solution.stats, said(debug, "steps")
    rejected = [line for line in steps if "rejected" in line]
    assert len(rejected) == stats.n_rejected > 5
    for line, step in zip(rejected, (step for step in stats.steps if not step.accepted), strict=True):
        found = re.match(r"t = (\S+): (\S+) of order (\d) rejected, h = (\S+): error (\S+) times", line)
        assert found is not None, line
        assert (found[2], int(found[3])) == (step.method, step.order) and float(found[5]) >= 1.0
        assert [float(found[1]), float(found[4])] == pytest.approx([step.t0, step.h], rel=1e-2)
    taken = [(step.method, step.order) for step in stats.steps if step.accepted]
    pairs = list(pairwise(taken))
    assert sum(": from " in line for line in steps) == len(stats.switches) - 1 > 1
    assert sum(" from order " in line for line in steps) == sum(a[0] == b[0] and a != b for a, b in pairs) > 1
    first, last = said(debug, "solve")
    assert first == "solve with auto from t = 0 to t = 90, 2 unknowns"
    cost = f"SUCCESS with auto: {stats.n_accepted} steps, {stats.n_rejected} rejected, "
    assert last.startswith(cost) and f"{stats.n_inner} inner iterations, {stats.n_inner_failed} inner failures" in last


def test_the_end_says_what_the_solve_cost(debug: pytest.LogCaptureFixture) -> None:
    with torch.no_grad():
        stats = proxode.solve(van_der_pol, Y0, 0.0, 1.0, method="bdf").stats
    assert f"{stats.nfe_forward} NFE" in said(debug, "solve")[-1]


def test_an_equation_that_was_not_solved_is_the_reason(debug: pytest.LogCaptureFixture) -> None:
    solution = proxode.solve(van_der_pol, Y0, 0.0, 0.1, method="bdf", inner="fixed_point", first_step=1.0)
    because = [line for line in said(debug, "steps") if "inner solver fixed_point, INNER_" in line]
    assert 1 <= len(because) <= solution.stats.n_rejected and "tolerance" in because[0]


def test_values_that_are_not_finite_are_the_reason(debug: pytest.LogCaptureFixture) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(y > 0.5 * torch.exp(-t), -y, torch.nan)  # as near as the solution is, it is fine

    proxode.solve(f, torch.tensor([1.0], dtype=torch.float64), 0.0, 10.0, method="dopri5", first_step=10.0)
    assert said(debug, "steps")[0].endswith("h = 10: its values are not finite; next h = 2")


def test_a_second_inner_solver_is_told(debug: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = (INNER["fixed_point"], INNER["newton"])
    monkeypatch.setattr(configure, "inner_solvers", lambda *args, **kwargs: pair)
    solution = proxode.solve(van_der_pol, Y0, 0.0, 1.0, method="bdf2", step_size=0.1)
    lines = said(debug, "inner")
    assert len(lines) == solution.stats.n_inner_failed > 0
    assert re.fullmatch(r"t = 0.1: fixed_point, INNER_\w+ after \d+ iterations: newton is next", lines[0])


def test_a_failure_and_an_exception_end_a_solve(debug: pytest.LogCaptureFixture) -> None:
    proxode.solve(van_der_pol, Y0, 0.0, 200.0, max_steps=5, throw=False)
    assert said(debug, "solve")[-1].startswith("MAX_STEPS with auto")

    def broken(t: Tensor, y: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        proxode.solve(broken, Y0, 0.0, 1.0)
    assert said(debug, "solve")[-1].startswith("an exception with auto")


def test_a_backward_solve_is_one_and_replays_are_none(debug: pytest.LogCaptureFixture) -> None:
    t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    for gradient, expected in (("continuous", 2), ("checkpoint", 0), ("implicit", 0)):
        y = proxode.odeint(van_der_pol, Y0.clone().requires_grad_(), t, rtol=1e-4, options={"gradient": gradient})
        debug.clear()
        y.sum().backward()
        lines = said(debug, "solve")
        assert len(lines) == expected
        if lines:
            assert lines[0].startswith("backward pass with auto from t = 1 to t = 0")
            assert re.match(r"SUCCESS with auto: \d+ NFE", lines[1])


def test_samples_say_how_many_are_stiff(debug: pytest.LogCaptureFixture) -> None:
    y0 = Y0.repeat(3, 1)
    proxode.solve(van_der_pol, y0, 0.0, torch.tensor([1e-3, 200.0, 200.0], dtype=torch.float64), per_sample=True)
    assert said(debug, "steps") == ["2 of 3 samples go on with bdf"] and len(said(debug, "solve")) == 2


def test_a_stepper_tells_its_steps(debug: pytest.LogCaptureFixture) -> None:
    stepper = proxode.Stepper(van_der_pol, Y0, 0.0, t1=5.0)
    for _ in stepper:
        pass
    assert sum("rejected" in line for line in said(debug, "steps")) == stepper.stats.n_rejected > 0


def test_without_listeners_nobody_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(prepare, "listening", lambda: asked.append(1) or logs.listening())

    def not_called(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(logs.Log, "tried", not_called)
    solution = proxode.solve(van_der_pol, Y0, 0.0, 5.0)
    assert len(asked) == 1 and solution.stats.n_rejected > 0


def test_the_library_configures_nothing() -> None:
    logger = logging.getLogger("proxode")
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
    assert all(one.level == logging.NOTSET and one.propagate for one in (logger, logs.SOLVE, logs.STEPS, logs.INNER))
    assert not any(one.handlers for one in (logs.SOLVE, logs.STEPS, logs.INNER))
