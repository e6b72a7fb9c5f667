"""The experiments of the paper in small: their rows, and verdicts, tables and pictures from reports of every kind."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import proxode
from proxode.analysis.regions import all_methods, angle, growth, locus
from proxode.methods import METHODS
from proxode.paper.experiment import FAILS, HOLDS, PARTLY, UNKNOWN, Report, Watch
from proxode.paper.experiments import NAMES, experiment_of, registered
from proxode.paper.experiments.energy import energy, force
from proxode.paper.experiments.nonlinear import SOLVERS
from proxode.paper.experiments.scalar import PROBLEMS, exact_steps
from proxode.paper.report import finite

TINY: dict[str, dict[str, Any]] = {
    "scalar": {"step": 0.05, "end": 1.0, "tolerances": [1e-2, 1e-4, 1e-8]},
    "diffusion": {"points": 10, "steps": [60, 40, 20], "inner_tols": [1e-3, 5e-9], "tols": [1e-3, 1e-6]},
    "inner": {"points": 8, "stiffness": [0.1, 1.0, 10.0, 100.0]},
    "nonlinear": {"points": [8, 16, 64], "steps": 3, "repeats": 1, "most_steps": 40},
    "stability": {"points": 201, "grid": 5},
    "energy": {"points": 8, "kappa": 1.5, "steps": 4, "step_sizes": [0.1, 10.0]},
}


@cache
def report_of(name: str) -> Report:
    """Made once, as it would be read from its file."""
    experiment, setting = experiment_of(name), {"scale": "quick", "seed": 0, **TINY[name]}

    rows = [task.key | task.make(Watch()) for task in experiment.tasks(setting)]
    report = {"experiment": name, "setting": setting, "rows": rows, "problem": experiment.problem(setting)}
    return json.loads(json.dumps(finite(report)))


def outcomes(name: str, change: Callable[[list[dict[str, Any]]], Any] = lambda rows: None) -> list[str]:
    report = copy.deepcopy(report_of(name))
    change(report["rows"])
    return [verdict.outcome for verdict in experiment_of(name).verdicts(report)]


def test_the_light_experiments_are_registered_in_the_order_of_the_paper() -> None:
    assert set(TINY) <= set(registered()) <= set(NAMES)
    assert registered() == sorted(registered(), key=NAMES.index)
    with pytest.raises(ValueError, match="unknown experiment 'magic'; known are: scalar"):
        experiment_of("magic")


@pytest.mark.parametrize("name", TINY)
def test_settings_are_plain_data_and_rows_have_keys_of_their_own(name: str) -> None:
    experiment = experiment_of(name)
    assert set(experiment.scales) == {"quick", "full"}
    for scale in experiment.scales:
        setting = experiment.setting(scale, seed=3)
        assert json.loads(json.dumps(setting)) == setting and setting["seed"] == 3
        keys = [json.dumps(task.key) for task in experiment.tasks(setting)]
        assert len(set(keys)) == len(keys) > 0
        assert all(task.label for task in experiment.tasks(setting))


@pytest.mark.parametrize("name", TINY)
def test_a_verdict_for_every_claim_with_numbers(name: str) -> None:
    experiment, report = experiment_of(name), report_of(name)
    verdicts = experiment.verdicts(report)
    assert [verdict.claim for verdict in verdicts] == list(experiment.claims)
    for verdict in verdicts:
        assert verdict.outcome != UNKNOWN and verdict.setting and any(c.isdigit() for c in verdict.measured)


@pytest.mark.parametrize("name", TINY)
def test_a_report_cut_short_gives_no_verdict_on_what_is_missing(name: str) -> None:
    experiment, report = experiment_of(name), report_of(name)
    count = len(report["rows"])
    for stop in sorted({0, 1, 2, *range(0, count, max(count // 12, 1)), count - 1}):
        part = {**report, "rows": report["rows"][:stop]}
        verdicts = experiment.verdicts(part)
        assert [verdict.claim for verdict in verdicts] == list(experiment.claims)
        assert all(len(row) == len(table.heads) for table in experiment.tables(part) for row in table.rows)
        if stop == 0:
            assert {verdict.outcome for verdict in verdicts} == {UNKNOWN}
    assert UNKNOWN in {verdict.outcome for verdict in experiment.verdicts({**report, "rows": report["rows"][:-1]})} or (
        name == "energy"  # whose last row is of the counterexample
    )


@pytest.mark.parametrize("part", [0.02, 0.6, 1.0])
@pytest.mark.parametrize("name", TINY)
def test_pictures_are_drawn_from_a_report_as_far_as_it_goes(tmp_path: Path, name: str, part: float) -> None:
    pytest.importorskip("matplotlib")
    report = report_of(name)
    rows = report["rows"][: max(math.ceil(part * len(report["rows"])), 1)]
    pictures = experiment_of(name).draw({**report, "rows": rows}, tmp_path)
    assert pictures and all(picture.caption for picture in pictures)
    for picture in pictures:
        assert (tmp_path / f"{picture.stem}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{picture.stem}.pdf").read_bytes().startswith(b"%PDF")


# Verdicts on made-up numbers


def each(rows: list[dict[str, Any]], values: dict[str, Any], **where: Any) -> None:
    found = [row for row in rows if all(row.get(k) == v for k, v in where.items())]
    assert found
    for row in found:
        row.update(values)


def test_verdicts_of_scalar() -> None:
    assert outcomes("scalar") == [HOLDS, FAILS, PARTLY]
    assert outcomes("scalar", lambda r: each(r, {"final_distance": r[2]["final_distance"] / 2}, tol=1e-8))[0] == PARTLY
    assert outcomes("scalar", lambda r: each(r, {"final_distance": 9e9}, tol=1e-8))[0] == FAILS
    assert outcomes("scalar", lambda r: each(r, {"final_error": 9e9}, method="euler"))[1] == HOLDS
    assert outcomes("scalar", lambda r: each(r, {"final_error": 0.0}, tol=1e-2))[1] == PARTLY
    ahead = lambda r: (each(r, {"final_error": 0.0}, method="exact"), each(r, {"final_error": 0.0}, tol=1e-8))  # noqa: E731
    assert outcomes("scalar", ahead)[1] == HOLDS
    assert outcomes("scalar", lambda r: each(r, {"residual": 0.0}, tol=1e-4))[2] == FAILS
    assert (
        outcomes("scalar", lambda r: each(r, {"amplification": 1.0, "residual": 1e9}, method="backward_euler"))[2]
        == HOLDS
    )


def test_verdicts_of_diffusion() -> None:
    assert outcomes("diffusion", lambda r: each(r, {"nfe": 10**9}, group="explicit"))[:2] == [HOLDS, HOLDS]
    assert outcomes("diffusion", lambda r: each(r, {"nfe": 1}, group="explicit"))[0] == FAILS
    assert outcomes("diffusion", lambda r: each(r, {"nfe": 10**9}, method="dopri5"))[0] in (HOLDS, PARTLY)
    assert outcomes("diffusion", lambda r: each(r, {"nfe": 10**9}, rtol=1e-3, group="explicit"))[1] == FAILS
    assert outcomes("diffusion", lambda r: each(r, {"final_error": 1e-9}, group="paper"))[2] == HOLDS
    assert outcomes("diffusion", lambda r: each(r, {"final_error": 1.0}, group="paper"))[2] == FAILS
    assert outcomes("diffusion", lambda r: each(r, {"nfe": 1}, method="bdf4", group="paper"))[3] == FAILS
    assert outcomes("diffusion", lambda r: each(r, {"status": "INNER_DIVERGED"}, setting="h=1/60, lr=0.1"))[4] == FAILS
    assert outcomes("diffusion", lambda r: each(r, {"status": "SUCCESS"}, setting="h=1/60, lr=0.1"))[4] == HOLDS


def test_verdicts_of_inner() -> None:
    quick = {"nfe": [1, 2], "errors": [1.0, 1e-12], "start": 1.0}
    never = {"nfe": [1, 2], "errors": [1.0, None], "start": 1.0}
    assert outcomes("inner", lambda r: each(r, quick, kind="path", solver="fr"))[0] == HOLDS
    assert outcomes("inner", lambda r: each(r, never, kind="path", solver="fr"))[0] in (FAILS, PARTLY)
    assert (
        outcomes("inner", lambda r: (each(r, quick, kind="path"), each(r, never, kind="path", solver="fr")))[0] == FAILS
    )
    assert outcomes("inner", lambda r: each(r, quick, kind="path", lr=0.1))[1] == HOLDS
    assert outcomes("inner", lambda r: each(r, never, kind="path", lr=0.1))[1] == FAILS


def test_verdicts_of_nonlinear() -> None:
    def times(**seconds: float) -> Callable[[list[dict[str, Any]]], None]:
        def change(rows: list[dict[str, Any]]) -> None:
            for row in rows:
                row.update(status="SUCCESS", nfe=row["points"], error=0.0)
                row["seconds"] = seconds.get(row["solver"].replace(", ", "_").replace(" ", "_"), 1.0) * row["points"]
                if row["solver"] == "newton, dense":
                    row["seconds"] *= row["points"]

        return change

    assert outcomes("nonlinear", times(fr=0.1, newton=9.0)) == [HOLDS, HOLDS, HOLDS]
    assert outcomes("nonlinear", times(fr=0.1, newton=0.01)) == [HOLDS, PARTLY, HOLDS]
    assert outcomes("nonlinear", times(fr=1e9))[:2] == [FAILS, FAILS]
    assert outcomes("nonlinear", times(fr=2.0, newton_dense=1e9))[0] == PARTLY


def test_verdicts_of_stability() -> None:
    assert outcomes("stability") == [HOLDS, HOLDS, PARTLY, HOLDS]
    assert outcomes("stability", lambda r: each(r, {"difference": 1.0}, method="euler", kind="check"))[0] == PARTLY
    assert (
        outcomes("stability", lambda r: each(r, {"angle": 89.0}, method="backward_euler", kind="method"))[1] == PARTLY
    )
    assert outcomes("stability", lambda r: each(r, {"angle": 80.0}, method="bdf1"))[2] == HOLDS
    assert outcomes("stability", lambda r: each(r, {"angle": 80.0}, method="bdf2"))[2] == FAILS
    assert outcomes("stability", lambda r: each(r, {"unbounded": False, "real_reach": 2.0}, kind="method"))[3] == FAILS


def test_verdicts_of_energy() -> None:
    assert outcomes("energy") == [HOLDS] * 4
    assert outcomes("energy", lambda r: each(r, {"violation": 0.1}, method="bdf2", step=10.0))[1] == PARTLY
    assert outcomes("energy", lambda r: each(r, {"violation": 0.1}, method="bdf2"))[1] == FAILS
    assert outcomes("energy", lambda r: each(r, {"violation": 0.1}, method="multistage3"))[3] == PARTLY
    unsolved = {"status": "INNER_STAGNATED", "violation": None}  # says nothing about the law
    assert outcomes("energy", lambda r: each(r, unsolved, method="bdf2"))[1] == UNKNOWN
    assert outcomes("energy", lambda r: each(r, unsolved, method="bdf2", step=10.0))[1] == HOLDS


# The mathematics of the rows


def test_exact_steps_are_those_of_a_tight_solve() -> None:
    t = torch.arange(11, dtype=torch.float64) * 0.1
    for rate, f in ((3.0, "growing"), (-3.0, "damped")):
        options = {"step_size": 0.1, "inner_tol": 1e-14}
        h = proxode.odeint(
            PROBLEMS[f][0], torch.ones(1, dtype=torch.float64), t, method="backward_euler", options=options
        )
        torch.testing.assert_close(exact_steps(rate, t), h[:, 0], rtol=0, atol=1e-11)


def test_the_force_is_minus_the_gradient_of_the_energy() -> None:
    u = torch.randn(7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(energy(u, 1.5), u)
    torch.testing.assert_close(force(u, 1.5).detach(), -slope)


def test_all_solvers_of_a_step_agree() -> None:
    rows = [row for row in report_of("nonlinear")["rows"] if row["status"] == "SUCCESS"]
    assert {row["solver"] for row in rows} == set(SOLVERS)
    assert max(row["error"] for row in rows) < 1e-5
    failed = [row for row in report_of("nonlinear")["rows"] if row["solver"] == "fixed_point" and row["stiffness"] > 1]
    assert failed and all(
        row["status"] == "INNER_OUTSIDE_RADIUS" or row["status"].startswith("INNER") for row in failed
    )


@pytest.mark.parametrize("z", [-0.7 + 0.4j, -2.0 + 1.5j, 0.2 + 0.3j])
@pytest.mark.parametrize("name", sorted(set(METHODS) & set(all_methods())))
def test_growth_from_coefficients_is_that_of_the_method_itself(name: str, z: complex) -> None:
    """Steps of the method on a rotation and decay in the plane; for many steps of BDF the ratio settles."""
    matrix = torch.tensor([[z.real, -z.imag], [z.imag, z.real]], dtype=torch.float64)
    steps = 400 if name.startswith("bdf") else 3
    t = torch.tensor([0.0, steps - 1.0, float(steps)], dtype=torch.float64)
    options: dict[str, Any] = {"step_size": 1.0}
    if METHODS[name].implicit:
        options |= {"inner": "newton", "inner_tol": 1e-300, "predictor": "previous"}
    elif METHODS[name].adaptive:
        options = {"first_step": 1.0, "min_step": 1.0, "max_step": 1.0}
    expected = float(growth(all_methods()[name][1], torch.tensor(z, dtype=torch.complex128)))
    if name.startswith("bdf") and not 0.3 < expected < 1.2:
        pytest.skip("the state would under- or overflow")
    y0 = torch.tensor([1.0, 0.3], dtype=torch.float64)
    tols = {} if METHODS[name].implicit else {"rtol": 1e9, "atol": 1e9}
    with torch.no_grad():
        y = proxode.odeint(lambda t, y: matrix @ y, y0, t, method=name, options=options, **tols)
    measured = float(y[2].norm() / y[1].norm())
    assert measured == pytest.approx(expected, rel=1e-6 if name[:3] != "bdf" else 0.02)


@pytest.mark.parametrize("k", range(1, 6))
def test_the_boundary_locus_and_the_roots_agree(k: int) -> None:
    method = all_methods()[f"bdf{k}"][1]
    z = locus(method, 101)[1:-1]
    assert float((growth(method, z) - 1).min()) > -1e-7  # a root of modulus one, or a larger one
    left = z[z.real < -1e-3]
    narrowest = min(
        (math.degrees(math.atan2(abs(w.imag), -w.real)) for w in locus(method).tolist() if w.real < -1e-9), default=90.0
    )
    assert angle(method) == pytest.approx(narrowest, abs=0.05) and (k > 2) == bool(len(left))
