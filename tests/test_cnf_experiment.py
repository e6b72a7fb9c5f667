"""The experiment `cnf`: trainings by every solver and how they are judged, verdicts, and trainings that go on."""

from __future__ import annotations

import copy
import gzip
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from proxode.nn import CNF, vector_flow
from proxode.paper.cnf import training
from proxode.paper.cnf.solvers import BDFS, OURS, REFERENCE, SOLVERS, TIGHTER, Counter, hand_over
from proxode.paper.cnf.sources import Digits, Plane
from proxode.paper.cnf.training import Judge, train
from proxode.paper.experiment import FAILS, HOLDS, PARTLY, UNKNOWN, Report, Watch
from proxode.paper.experiments import experiment_of
from proxode.paper.experiments.cnf import until
from proxode.paper.report import finite
from proxode.paper.runner import run

GIVEN: dict[str, Any] = {
    "hidden": [6], "batch": 16, "iterations": 3, "planned": 3, "judge_every": 2, "held_out": 20, "clip": 10.0,
    "short": {},
}  # fmt: skip
SETTING = {"scale": "quick", "seed": 0, "sources": {"moons": GIVEN}}


@cache
def report() -> Report:
    experiment = experiment_of("cnf")
    rows = [task.key | task.make(Watch()) for task in experiment.tasks(SETTING)]
    made = {"experiment": "cnf", "setting": SETTING, "rows": rows, "problem": experiment.problem(SETTING)}
    return json.loads(json.dumps(finite(made)))


def row_of(label: str) -> dict[str, Any]:
    return next(row for row in report()["rows"] if row["solver"] == label)


# Trainings


def test_every_solver_but_the_printed_one_trains_to_the_same_likelihood() -> None:
    good = [row for row in report()["rows"] if row["solver"] != "bdf2, eta 0.3"]
    assert {row["status"] for row in good} == {"SUCCESS"}
    held_out = [row["held_out"] for row in good]
    assert max(held_out) - min(held_out) < 0.01
    assert all(len(row["history"]["loss"]) == 3 and row["history"]["judged_at"] == [2, 3] for row in good)
    for row in good:  # nothing hides: the orders of magnitude of three steps of rk4, and of an adjoint
        assert row["nfe_forward"] >= 8 and row["nfe_backward"] >= 6
    assert row_of("rk4, h = 1/3")["nfe_forward"] == row_of("rk4, h = 1/3")["nfe_backward"] == 12


def test_errors_follow_the_tolerance_and_the_profile_has_them() -> None:
    assert row_of(TIGHTER)["error"] < row_of(REFERENCE)["error"] < row_of("bdf2")["error"] < 0.05
    profile = row_of(REFERENCE)["profile"]
    dopri5 = [point["error"] for point in profile if point["curve"] == "dopri5"]
    explicit = {"dopri5", "ralston4", "bosh3", "rk4"}
    assert dopri5[-1] < 1e-4 and {point["curve"] for point in profile} == {*explicit, *BDFS}
    assert all(point["nfe"] > 0 for point in profile)


def test_torchdiffeq_solves_the_same_flow() -> None:
    torch.manual_seed(0)
    flow = vector_flow(2, (8,), method="dopri5", rtol=1e-7, atol=1e-7).double()
    x = torch.randn(5, 2, dtype=torch.float64)
    ours = flow.log_prob(x)
    ours.sum().backward()
    gradient = [p.grad.clone() for p in flow.parameters() if p.grad is not None]
    flow.zero_grad()
    counter = Counter()
    hand_over(next(m for m in flow.modules() if isinstance(m, CNF)), 1e-8, counter)
    theirs = flow.log_prob(x)
    forward = counter.calls
    theirs.sum().backward()
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)
    assert 0 < forward < counter.calls
    for mine, parameter in zip(gradient, flow.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, mine, rtol=1e-4, atol=1e-5)
    z, _ = flow(x)
    torch.testing.assert_close(flow(z, reverse=True)[0], x, rtol=1e-5, atol=1e-6)


def test_the_judge_is_tight_and_sees_data_that_no_batch_has() -> None:
    source = Plane("moons", [6])
    torch.manual_seed(0)
    flow = source.flow(method="rk4", step_size=1.0)
    found = Judge(source, 30, 0)(flow)
    exact = source.flow(method="dopri5", rtol=1e-10, atol=1e-10).double()
    exact.load_state_dict(flow.state_dict())
    with torch.no_grad():
        likelihood = float(-exact.log_prob(source.held_out(30).double()).mean())
    assert found["held_out"] == pytest.approx(likelihood, abs=1e-6)
    assert found["error"] > 1e-7
    assert not torch.equal(source.held_out(16), source.batch(16, torch.Generator().manual_seed(0)))


def test_a_training_that_was_stopped_goes_on_with_the_same_history(tmp_path: Path, monkeypatch: Any) -> None:
    source = Plane("moons", [6])
    whole = train(source, "bosh3 1e-2", GIVEN, 0, Watch())

    class Interrupted(Watch):
        def part(self, done: float) -> None:
            if 0 < done < 1:
                raise KeyboardInterrupt

    checkpoint = tmp_path / "a.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        train(source, "bosh3 1e-2", GIVEN, 0, Interrupted(checkpoint))
    drawn, batch = [], source.batch
    monkeypatch.setattr(source, "batch", lambda *given: drawn.append(given) or batch(*given))
    again = train(source, "bosh3 1e-2", GIVEN, 0, Watch(checkpoint))
    assert len(drawn) == 2  # of three: the first was not made again
    for name in ("loss", "held_out", "error", "nfe_forward"):
        assert again["history"][name] == whole["history"][name]
    assert again["density"] == whole["density"]


def test_a_training_that_fails_is_a_row(monkeypatch: Any) -> None:
    printed = row_of("bdf2, eta 0.3")
    assert printed["status"].startswith("INNER") and printed["message"] and printed["held_out"] is None

    class Bad(Plane):
        def cost(self, log_prob: torch.Tensor) -> torch.Tensor:
            return log_prob.sum() * math.nan

    row = train(Bad("moons", [6]), "bosh3 1e-2", GIVEN, 0, Watch())
    assert row["status"] == "FAILED" and "loss of iteration 0" in row["message"] and row["iterations"] == 0
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    row = train(Plane("moons", [6]), REFERENCE, GIVEN, 0, Watch())
    assert row["status"] == "MISSING" and "pip install" in row["message"]


def test_digits_are_read_made_smaller_and_trained_on(tmp_path: Path, monkeypatch: Any) -> None:
    pixels = torch.randint(0, 256, (12, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    monkeypatch.setattr("proxode.paper.cnf.sources.load_mnist", lambda part, folder: (pixels, pixels[:, 0, 0, 0]))
    source = Digits(8, [2], pool=7, data_dir=tmp_path)
    assert source.train.shape == (8, 1, 4, 4) and source.shape == (1, 4, 4)
    assert int(source.test[0, 0, 0, 0]) == int(pixels[0, 0, :7, :7].float().mean())
    row = train(source, "rk4, h = 1/3", GIVEN | {"held_out": 4, "batch": 4, "iterations": 2}, 0, Watch())
    assert row["status"] == "SUCCESS" and row["unit"] == "bits/dim" and 6 < row["held_out"] < 12
    assert torch.tensor(row["samples"]).shape == (8, 4, 4)


def test_missing_digits_are_said_before_anything_is_run(tmp_path: Path) -> None:
    experiment = experiment_of("cnf")
    said = experiment.missing(experiment.setting("full"), tmp_path)
    assert said is not None and "train-images-idx3-ubyte.gz" in said and "--data-dir" in said
    quick = experiment.setting("quick")
    assert experiment.missing(quick, tmp_path) is None  # which does without them
    assert {task.key["data"] for task in experiment.tasks(quick, tmp_path)} == {"pinwheel"}
    for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                 "t10k-labels-idx1-ubyte.gz"):  # fmt: skip
        (tmp_path / name).write_bytes(gzip.compress(b""))
    assert experiment.missing(experiment.setting("full"), tmp_path) is None
    assert {task.key["data"] for task in experiment.tasks(quick, tmp_path)} == {"pinwheel", "mnist"}


def test_verdicts_are_from_the_data_all_of_whose_trainings_are_there() -> None:
    setting = {**SETTING, "sources": {"moons": GIVEN, "mnist": GIVEN | {"if there": True}}}
    begun = [{**row_of("bdf2"), "data": "mnist"}]
    for more in ([], begun):
        verdicts = experiment_of("cnf").verdicts({**report(), "setting": setting, "rows": [*report()["rows"], *more]})
        assert UNKNOWN not in {verdict.outcome for verdict in verdicts} and verdicts[0].setting == "moons"
    nothing = experiment_of("cnf").verdicts({**report(), "setting": setting, "rows": begun})
    assert {verdict.outcome for verdict in nothing} == {UNKNOWN}


# Reports


def test_settings_are_plain_and_rows_have_keys_of_their_own() -> None:
    experiment = experiment_of("cnf")
    for scale in ("quick", "full"):
        setting = experiment.setting(scale, 2)
        assert json.loads(json.dumps(setting)) == setting
        keys = [json.dumps(task.key) for task in experiment.tasks(setting)]
        assert len(set(keys)) == len(keys) and len(keys) % len(SOLVERS) == 0


def test_every_part_of_a_report_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    experiment, made = experiment_of("cnf"), report()
    for stop in (1, 5, len(made["rows"])):
        part = {**made, "rows": made["rows"][:stop]}
        assert all(len(row) == len(table.heads) for table in experiment.tables(part) for row in table.rows)
        pictures = experiment.draw(part, tmp_path)
        assert all((tmp_path / f"{picture.stem}.png").stat().st_size > 5_000 for picture in pictures)
        verdicts = experiment.verdicts(part)
        assert [verdict.claim for verdict in verdicts] == list(experiment.claims)
        assert ({verdict.outcome for verdict in verdicts} == {UNKNOWN}) == (stop < len(made["rows"]))
    assert all(verdict.setting and any(c.isdigit() for c in verdict.measured) for verdict in verdicts)


def test_the_runner_goes_on_with_a_report(tmp_path: Path, monkeypatch: Any) -> None:
    few = {name: SOLVERS[name] for name in ("bosh3 1e-2", "rk4, h = 1/3")}
    monkeypatch.setattr("proxode.paper.experiments.cnf.SOLVERS", few)
    experiment = experiment_of("cnf")
    made = run(experiment, SETTING, tmp_path)
    assert made["status"] == "complete" and len(made["rows"]) == 2
    monkeypatch.setattr("proxode.paper.experiments.cnf.train", lambda *_: pytest.fail("made twice"))
    assert run(experiment, SETTING, tmp_path, resume=True)["rows"] == json.loads(json.dumps(finite(made["rows"])))


def outcomes(**changed: dict[str, Any]) -> list[str]:
    """Of made-up trainings: every one spends 100 + 100 NFE and one second an iteration, and ends at 1 nat at once."""
    rows = []
    for label, solver in SOLVERS.items():
        history = {"nfe_forward": [100] * 4, "nfe_backward": [100] * 4, "seconds": [1.0] * 4, "judged_at": [2, 4],
                   "held_out": [2.0, 1.0], "error": [0.1, 0.1]}  # fmt: skip
        row = {"data": "moons", "solver": label, "group": solver.group, "unit": "nats", "status": "SUCCESS",
               "iterations": 4, "nfe_forward": 100, "nfe_backward": 100, "held_out": 1.0, "error": 1e-4, "seconds": 4.0,
               "history": history}  # fmt: skip
        for names, values in changed.items():
            if names in (solver.group, label.split(",")[0].replace(" ", "_").replace("-", "")):
                row |= copy.deepcopy(values)
        rows.append(row)
    return [v.outcome for v in experiment_of("cnf").verdicts({"setting": SETTING, "rows": rows})]


def test_verdicts() -> None:
    assert outcomes() == [FAILS, HOLDS, HOLDS, FAILS]
    assert outcomes(paper=spent(50, 50))[0] == HOLDS
    assert outcomes(paper=spent(50, 100))[0] == FAILS  # backward too
    assert outcomes(bdf3=spent(50, 50))[0] == PARTLY
    never = spent(50, 50)["history"] | {"judged_at": [], "error": []}
    assert outcomes(bdf3={"status": "INNER_DIVERGED", "history": never})[:2] == [FAILS, PARTLY]
    assert outcomes(paper=spent(100, 100, error=1.0))[1] == FAILS
    assert outcomes(bdf2={"status": "INNER_DIVERGED"})[2] == FAILS
    assert outcomes(ours=half(2))[3] == HOLDS
    assert outcomes(ours=half(1.5))[3] == FAILS
    assert outcomes(ours=half(2) | {"history": half(2)["history"] | {"held_out": [2.0, 1.5]}})[3] == FAILS


def spent(forward: float, backward: float, error: float = 0.1) -> dict[str, Any]:
    return {"history": {"nfe_forward": [forward] * 4, "nfe_backward": [backward] * 4, "seconds": [1.0] * 4,
                        "judged_at": [2, 4], "held_out": [2.0, 1.0], "error": [error, error]}}  # fmt: skip


def test_a_shorter_training_is_compared_over_its_own_iterations() -> None:
    """Evaluations and errors grow as a flow learns."""
    grown = spent(100, 100)["history"] | {"nfe_forward": [100, 100, 900, 900], "error": [0.1, 9.0]}
    short = {name: values[: 1 if name in ("judged_at", "held_out", "error") else 2]
             for name, values in spent(80, 50, 0.2)["history"].items()}  # fmt: skip
    brief = {"iterations": 2, "history": short}
    assert outcomes(rival={"history": grown}, paper=brief)[:2] == [FAILS, HOLDS]
    assert outcomes(rival={"history": grown}, paper=brief | {"history": short | {"error": [0.4]}})[1] == FAILS


def test_some_solvers_train_for_fewer_iterations() -> None:
    setting = {**SETTING, "sources": {"moons": GIVEN | {"short": {"bosh3 1e-2": 1}}}}
    task = next(task for task in experiment_of("cnf").tasks(setting) if task.key["solver"] == "bosh3 1e-2")
    assert task.make(Watch())["iterations"] == 1


def half(by: float) -> dict[str, Any]:
    return {"history": {"nfe_forward": [100 / by] * 4, "nfe_backward": [100 / by] * 4, "seconds": [1 / by] * 4,
                        "judged_at": [2, 4], "held_out": [2.0, 1.0], "error": [0.1, 0.1]}}  # fmt: skip


def test_costs_until_a_likelihood_is_reached() -> None:
    row = half(1)
    assert until(row, 2.5) == (400, 2.0) and until(row, 1.0) == (800, 4.0) and until(row, 0.5) is None


def test_ours_are_exact_gradients_of_our_own_solves() -> None:
    own = [solver for solver in SOLVERS.values() if solver.group == OURS]
    assert own and all(solver.adjoint is None and "gradient" not in solver.settings for solver in own)


def test_the_rate_falls_on_the_plane_to_the_planned_end_and_is_constant_on_mnist() -> None:
    """A training that is cut short has the rates of the whole one."""
    plane = Plane("moons", GIVEN["hidden"])

    def losses(**given: int) -> list[float]:
        return train(plane, "bosh3 1e-2", GIVEN | given, 0, Watch())["history"]["loss"]

    whole = losses(iterations=4, planned=4)
    assert losses(iterations=3, planned=4) == whole[:3]
    slower = losses(iterations=4, planned=1000)
    assert slower[:2] == whole[:2] and slower[3] != whole[3]  # the first step has the full rate, the third has not
    assert Plane.cooling and not Digits.cooling
