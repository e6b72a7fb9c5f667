"""The experiment `stiff`: its models and their data, gradients that agree, trainings that go on, verdicts."""

from __future__ import annotations

import copy
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import proxode
from proxode.paper.experiment import FAILS, HOLDS, PARTLY, UNKNOWN, Report, Watch
from proxode.paper.experiments import experiment_of
from proxode.paper.experiments.stiff import DIFFRAX, EXPLICIT, MODELS, OURS, methods
from proxode.paper.runner import run
from proxode.paper.stiff import gradients, training
from proxode.paper.stiff.allen_cahn import AllenCahn, true_reaction
from proxode.paper.stiff.gradients import Field, Ours, Torchdiffeq
from proxode.paper.stiff.grids import cubics, interpolated
from proxode.paper.stiff.model import Model, Parameters
from proxode.paper.stiff.robertson import SIZE, Robertson, kinetics
from proxode.paper.stiff.training import Limits, train
from proxode.paper.stiff.van_der_pol import VanDerPol

TINY: dict[str, Any] = {
    "allen_cahn": {"points": 12, "snapshots": 2}, "robertson": {"pieces": 2, "length": 2, "width": 3},
    "van_der_pol": {"mu": 3.0, "count": 3, "length": 4}, "steps": 3, "explicit_steps": 2, "seconds_per_step": 0.5,
    "seconds": 2.0, "judge_every": 2, "diffrax": [],
}  # fmt: skip
LIMITS = Limits(steps=4, most_steps=4, seconds_per_step=60.0, seconds=60.0)


@cache
def model(name: str) -> Model:
    return MODELS[name](**TINY[name])


def empty_report() -> Report:
    """With a row for every task, not yet made."""
    setting = {"scale": "quick", "seed": 0, **TINY}
    rows = [task.key for task in experiment_of("stiff").tasks(setting)]
    return {"experiment": "stiff", "setting": setting, "rows": rows}


# Models and data


def test_data_of_robertson_are_its_solution() -> None:
    """Which conserves mass, and is quasi-steady at the end: b = 0.04 a / (1e4 c), nearly."""
    data = model("robertson").data * torch.tensor(SIZE)  # type: ignore[attr-defined]
    torch.testing.assert_close(data.sum(1), torch.ones(len(data), dtype=torch.float64), rtol=0, atol=1e-9)
    a, b, c = data[-1]
    assert float(b) == pytest.approx(float(0.04 * a / (1e4 * c)), rel=1e-3)
    assert float(kinetics(0.0, data[-1]).sum()) == pytest.approx(0.0, abs=1e-12)


def test_the_clock_of_the_pieces_is_the_solution_itself() -> None:
    """With the true rates in the place of the network the pieces end where the next ones begin."""
    true = Robertson(pieces=4, length=2)
    size = torch.tensor(SIZE, dtype=torch.float64)
    true.kinetics = lambda xp, theta, y: kinetics(0.0, y * size) / size  # type: ignore[method-assign]
    y = proxode.odeint(
        lambda t, y: true.rate(torch, [], t, y, true.pieces), true.y0, true.times, rtol=1e-7, atol=1e-9, method="bdf"
    )
    torch.testing.assert_close(y[1:], true.targets(), rtol=0, atol=1e-4)


def test_data_of_van_der_pol_crowd_where_x_moves_and_fit_the_true_equation() -> None:
    fast = VanDerPol(100.0, 32, 12)
    when, states = fast.data
    assert when.diff().min() > 0 and float(when.diff().max() / when.diff().min()) > 1000
    assert float(states[:, 0].diff().abs().max()) < 0.35  # of 4 in a jump
    ratio = when.diff()[1:] / when.diff()[:-1]
    assert float(torch.maximum(ratio, 1 / ratio).max()) < 2.41  # beyond which bdf2 is not stable
    fast.oscillator = lambda xp, theta, y: fast.truth(None, y)  # type: ignore[method-assign]
    y = proxode.odeint(
        lambda t, y: fast.rate(torch, [], t, y, fast.pieces), fast.y0, fast.times, method="bdf2", rtol=1e-5, atol=1e-5,
        options={"step_size": 1.0},
    )  # fmt: skip
    assert float(fast.loss(y[1:])) < 1e-4


def test_a_reaction_that_is_the_true_one_has_no_loss() -> None:
    true = AllenCahn(24, 3)
    true.reaction = lambda xp, theta, u: true_reaction(u)  # type: ignore[method-assign]
    y = proxode.odeint(lambda t, u: true.rate(torch, [], t, u), true.y0, true.times, rtol=1e-6, atol=1e-6)
    assert float(true.loss(y[1:])) < 1e-10


def test_cubics_go_through_their_values_and_rise_with_them() -> None:
    values = torch.tensor([[0.0], [1.0], [1.0], [4.0], [3.0]], dtype=torch.float64)
    a, b, c, d = cubics(values).unbind(1)
    torch.testing.assert_close(a, values[:-1])
    torch.testing.assert_close(a + b + c + d, values[1:])
    x = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None, None]
    inside = (a + x * (b + x * (c + x * d)))[..., 0]
    assert bool((inside.diff(dim=0)[:, [0, 2]] >= -1e-12).all()) and bool((inside[:, 1] == 1).all())
    torch.testing.assert_close(interpolated(torch.tensor([0.5, 2.5]), torch.arange(3.0), torch.tensor([0.0, 1.0, 4.0])),
                               torch.tensor([0.5, 5.5]))  # fmt: skip


@pytest.mark.parametrize("name", [name for name in MODELS if name != "robertson"])
def test_the_gradients_of_all_solvers_agree(name: str) -> None:
    """And with that of a tight explicit solve, which knows nothing of ours; it does not get through Robertson's."""
    found = {}
    for label, gradient in {"ours": Ours(model(name)), "steps": Torchdiffeq(model(name), adjoint=False)}.items():
        parameters = Parameters(model(name).parameters(0))
        gradient.model = copy.copy(model(name))
        gradient.model.tol = 1e-7  # type: ignore[misc]
        cost = gradient(parameters, 0.5, 60.0)
        assert cost.nfe_forward > 0 and cost.nfe_backward > 0
        found[label] = (cost.loss, torch.cat([p.grad.flatten() for p in parameters.theta if p.grad is not None]))
    assert found["ours"][0] == pytest.approx(found["steps"][0], rel=1e-4)
    size = float(found["steps"][1].norm())
    torch.testing.assert_close(found["ours"][1], found["steps"][1], rtol=2e-3, atol=1e-4 * size)


def test_the_gradient_of_robertsons_loss_is_that_of_differences_by_scipy() -> None:
    """An explicit solve does not get through it; Radau does, piece by piece, and knows nothing of ours."""
    from scipy.integrate import solve_ivp

    tight = copy.copy(model("robertson"))
    tight.tol = 1e-8  # type: ignore[misc]
    parameters = Parameters(tight.parameters(0))
    cost = Ours(tight)(parameters, 0.0, 60.0)
    start = [p.detach().clone() for p in parameters.theta]
    along = [torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=p.dtype) for p in start]

    def loss(shift: float) -> float:
        theta, ends = [p + shift * d for p, d in zip(start, along, strict=True)], []
        for y0, piece in zip(tight.y0, tight.pieces, strict=True):  # type: ignore[arg-type]

            def f(t: float, y: Any, piece: torch.Tensor = piece) -> Any:
                return tight.rate(torch, theta, torch.tensor(t), torch.from_numpy(y), piece, 0.0).numpy()

            found = solve_ivp(f, (0.0, 1.0), y0.numpy(), "Radau", tight.times[1:].numpy(), rtol=1e-9, atol=1e-12)
            ends.append(torch.from_numpy(found.y.T))
        return float(tight.loss(torch.stack(ends, 1)))

    assert cost.loss == pytest.approx(loss(0.0), rel=1e-6)
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters.theta, along, strict=True))  # type: ignore[operator]
    assert slope == pytest.approx((loss(1e-4) - loss(-1e-4)) / 2e-4, rel=1e-4)


def test_a_training_is_judged_by_a_tight_solve_and_not_by_its_own() -> None:
    few = Robertson(pieces=2, length=2, width=3)  # steps of two and a half decades
    row = train(few, "proxode bdf2", LIMITS._replace(most_steps=1), 0, Watch())
    theta = Parameters(few.parameters(0))
    before = gradients.tight_loss(few, theta)
    ys = proxode.odeint(Field(few, theta, 0.0, 60.0, count=False), few.y0, few.times, rtol=1e-9, atol=1e-9)
    assert before == pytest.approx(float(few.loss(ys[1:]).detach()), rel=1e-4)
    assert before != pytest.approx(row["first_loss"], rel=1e-3) and row["tight_loss"] != row["last_loss"]

    few.rate = lambda *_: few.y0 * math.nan  # type: ignore[method-assign]
    assert math.isnan(gradients.tight_loss(few, theta))


def test_diffrax_gives_the_same_gradient() -> None:
    """Of the model with pieces, which it solves one by one; compiling takes seconds."""
    pytest.importorskip("diffrax")
    name = "van_der_pol"
    from proxode.paper.stiff.diffrax_gradient import Diffrax

    ours, theirs = (Parameters(model(name).parameters(0)) for _ in range(2))
    gradient = Diffrax(model(name))
    gradient.prepare(theirs)
    cost = gradient(theirs, 0.5, 60.0)
    assert cost.loss == pytest.approx(Ours(model(name))(ours, 0.5, 60.0).loss, rel=1e-2)
    assert math.isnan(cost.nfe_forward)  # which diffrax does not tell
    for mine, other in zip(ours.theta, theirs.theta, strict=True):
        assert float((mine.grad - other.grad).norm()) < 0.1 * float(other.grad.norm()) + 1e-3


# Trainings


def test_a_training_that_was_stopped_goes_on_with_the_same_history(tmp_path: Path, monkeypatch: Any) -> None:
    whole = train(model("allen_cahn"), "proxode auto", LIMITS, 0, Watch())
    assert whole["status"] == "SUCCESS" and whole["steps"] == 4 and whole["nfe"] > 0

    class Interrupted(Watch):
        def part(self, done: float) -> None:
            if done == 0.5:
                raise KeyboardInterrupt

    checkpoint = tmp_path / "a.checkpoint"
    monkeypatch.setattr(training, "EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        train(model("allen_cahn"), "proxode auto", LIMITS, 0, Interrupted(checkpoint))
    made, gradient = [], Ours.__call__
    monkeypatch.setattr(Ours, "__call__", lambda *given: made.append(given) or gradient(*given))
    again = train(model("allen_cahn"), "proxode auto", LIMITS, 0, Watch(checkpoint))
    assert len(made) == 2  # of four: the others were not made again
    assert again["history"]["loss"] == whole["history"]["loss"] and again["curves"] == whole["curves"]


def test_a_rival_that_takes_too_long_is_stopped_and_a_failure_is_a_row() -> None:
    short = LIMITS._replace(seconds_per_step=0.0)
    row = train(model("allen_cahn"), "torchdiffeq odeint", short, 0, Watch())
    assert (row["status"], row["steps"], row["last_loss"]) == ("STOPPED", 0, None) and row["seconds_last"] >= 0
    row = train(model("allen_cahn"), "torchdiffeq odeint_adjoint", LIMITS._replace(seconds=0.0), 0, Watch())
    assert (row["status"], row["steps"]) == ("STOPPED", 1) and "more than 0 s" in row["message"]


def test_diverging_and_failing_trainings_end_with_their_status(monkeypatch: Any) -> None:
    bad = AllenCahn(12, 2)
    monkeypatch.setattr(bad, "loss", lambda ys: ys.sum() * math.nan)
    assert train(bad, "proxode auto", LIMITS, 0, Watch())["status"] == "DIVERGED"
    explodes = AllenCahn(12, 2)
    monkeypatch.setattr(explodes, "rate", lambda xp, theta, t, y, piece, hold: theta[0].sum() ** 2 * y**3 * 1e3)
    row = train(explodes, "proxode auto", LIMITS, 0, Watch())
    assert row["status"] not in ("SUCCESS", "DIVERGED", "STOPPED") and row["message"] and row["curves"] == {}
    monkeypatch.setattr(Field, "forward", lambda self, t, y: 1 / 0)
    assert train(bad, "torchdiffeq odeint", LIMITS, 0, Watch())["status"] == "FAILED"


def test_a_library_that_is_missing_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(gradients, "find_spec", lambda name: None)
    row = train(model("allen_cahn"), DIFFRAX, LIMITS, 0, Watch())
    assert row["status"] == "MISSING" and "pip install " in row["message"]


# Reports


def test_rows_have_keys_of_their_own_and_settings_are_plain() -> None:
    experiment = experiment_of("stiff")
    for scale in ("quick", "full"):
        setting = experiment.setting(scale, 1)
        assert json.loads(json.dumps(setting)) == setting
        keys = [json.dumps(task.key) for task in experiment.tasks(setting)]
        assert len(set(keys)) == len(keys) > 8
    assert methods("van_der_pol", experiment.setting("full")) == [*OURS, *EXPLICIT, DIFFRAX]


def test_the_runner_makes_the_report_and_every_part_of_it_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    experiment = experiment_of("stiff")
    setting = {"scale": "quick", "seed": 0, **TINY, "steps": 1, "explicit_steps": 1, "seconds_per_step": 0.01}
    made = run(experiment, setting, tmp_path)
    assert made["status"] == "complete" and len(made["rows"]) == 11
    for stop in (1, 5, 10):
        part = {**made, "rows": made["rows"][:stop]}
        assert all(len(row) == len(table.heads) for table in experiment.tables(part) for row in table.rows)
        assert (tmp_path / f"{experiment.draw(part, tmp_path)[0].stem}.png").stat().st_size > 10_000
        assert [verdict.claim for verdict in experiment.verdicts(part)] == list(experiment.claims)
    assert {verdict.outcome for verdict in experiment.verdicts({**made, "rows": made["rows"][:-1]})} == {UNKNOWN}


def outcomes(steps: int = 3, diffrax: float | None = None, **rivals: Any) -> list[str]:
    """Of made-up trainings, ours of one second a step, torchdiffeq's of so many, or None: stopped in the first one."""
    made = empty_report()
    made["setting"] |= {"steps": steps, "diffrax": list(MODELS) if diffrax else []}
    if diffrax:
        made["rows"] += [{"model": name, "method": DIFFRAX, "seconds_prepare": 9.0} for name in MODELS]
    for row in made["rows"]:
        each = 1.0 if row["method"] in OURS else diffrax if row["method"] == DIFFRAX else rivals.get(row["model"], 60.0)
        count = 0 if each is None else 3 if row["method"] in OURS else 2
        tight = [1.0, *(rivals.get("ours", [1e-4, 1e-4]) if row["method"] in OURS else [1e-4])][:count]
        row |= {"status": "SUCCESS" if count else "STOPPED", "steps": count, "message": "",
                "first_loss": 1.0 if count else None, "last_loss": 1e-4 if count else None,
                "tight_loss": tight[-1] if count else None,
                "seconds": (each or 0.0) * count, "seconds_last": rivals.get("seconds_last", 70.0),
                "history": {"loss": [1.0, 1e-4, 1e-4][:count], "seconds": [each] * count, "tight": tight,
                            "judged_at": list(range(1, count + 1))}}  # fmt: skip
    return [verdict.outcome for verdict in experiment_of("stiff").verdicts(made)]


def test_verdicts() -> None:
    assert outcomes() == [HOLDS, UNKNOWN, UNKNOWN]
    assert outcomes(steps=100)[2] == HOLDS
    assert outcomes(steps=100, ours=[0.01, 0.01])[2] == FAILS  # small only in the eyes of its own solver
    assert outcomes(steps=100, ours=[None, None])[2] == FAILS
    assert outcomes(robertson=40.0)[0] == PARTLY
    assert outcomes(robertson=40.0, allen_cahn=40.0, van_der_pol=40.0)[0] == FAILS
    assert outcomes(robertson=None)[0] == HOLDS  # stopped in its first step, after 70 seconds
    assert outcomes(robertson=None, seconds_last=7.0)[0] == HOLDS  # a bound that says nothing
    assert outcomes(**dict.fromkeys(MODELS), seconds_last=7.0)[0] == UNKNOWN
    assert outcomes(ours=[0.5, 0.5])[0] == FAILS  # fast, but not to the same loss
    assert outcomes(diffrax=1.5)[1] == HOLDS and outcomes(diffrax=0.5)[1] == FAILS
    assert outcomes(diffrax=1.4, ours=[1.2e-4, 1e-4])[1] == HOLDS  # an error that is a tenth larger is as good
    assert outcomes(diffrax=1.4, ours=[1.3e-4, 1e-4])[1] == FAILS  # it takes a step more to be as good


def test_gradients_that_explode_are_clipped_for_every_method(monkeypatch: Any) -> None:
    """Adam goes by the size of its last gradients: one that is a million times as long would stop the training."""
    steady, gradient = train(model("allen_cahn"), "proxode auto", LIMITS, 0, Watch()), Ours.__call__

    def explodes(self: Ours, parameters: Parameters, hold: float, seconds: float) -> Any:
        cost = gradient(self, parameters, hold, seconds)
        for p in parameters.theta:
            p.grad *= 1e6  # type: ignore[operator]
        return cost

    monkeypatch.setattr(Ours, "__call__", explodes)
    longest: list[float] = []
    step = torch.optim.Adam.step

    def watched(self: torch.optim.Adam, *args: Any) -> Any:
        longest.append(math.sqrt(sum(float(p.grad.square().sum()) for p in self.param_groups[0]["params"])))
        return step(self, *args)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    row = train(model("allen_cahn"), "proxode auto", LIMITS, 0, Watch())
    assert row["status"] == "SUCCESS" and max(longest) == pytest.approx(training.CLIP, rel=1e-3)
    assert row["steps"] == steady["steps"]


def test_tight_losses_are_taken_on_the_way_and_at_the_end() -> None:
    row = train(model("allen_cahn"), "proxode auto", LIMITS._replace(steps=5, most_steps=5, judge_every=2), 0, Watch())
    assert row["history"]["judged_at"] == [2, 4, 5] and len(row["history"]["tight"]) == 3
    assert row["tight_loss"] == row["history"]["tight"][-1]
    few = train(model("allen_cahn"), "proxode auto", LIMITS._replace(judge_every=3), 0, Watch())
    assert few["history"]["judged_at"] == [3, 4]
