"""The experiment on the inner solvers, in small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxode.inner import INNER
from proxode.paper import diffusion, inner
from proxode.paper.diffusion import INITIAL_DATA
from proxode.paper.experiments import experiment_of
from proxode.paper.runner import run

Rows = list[dict[str, Any]]
STIFFNESS = [0.1, 1.0, 10.0, 100.0]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    setting = {"scale": "quick", "seed": 0, "points": 16, "stiffness": STIFFNESS}
    return run(experiment_of("inner"), setting, tmp_path_factory.mktemp("inner"))["rows"]


def of_kind(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["kind"] == kind]


def test_every_solver_has_a_row_for_every_stiffness(quick: Rows) -> None:
    found = [(row["data"], row["solver"], row["stiffness"]) for row in of_kind(quick, "cost")]
    assert found == [(d, s, x) for d in INITIAL_DATA for s in INNER for x in STIFFNESS]


def test_what_converged_is_right_and_only_the_fixed_point_did_not(quick: Rows) -> None:
    for row in of_kind(quick, "cost"):
        assert (row["status"] == "SUCCESS") == (row["solver"] != "fixed_point" or row["stiffness"] < 1)
        assert row["error"] <= 1e-8 or row["status"] == "INNER_OUTSIDE_RADIUS"


def test_every_solver_has_a_path_and_it_leads_to_the_solution(quick: Rows) -> None:
    paths = [row for row in of_kind(quick, "path") if row["lr"] is None]
    assert [(row["data"], row["solver"]) for row in paths] == [(d, s) for d in INITIAL_DATA for s in INNER]
    for row in paths:
        assert len(row["nfe"]) == len(row["updates"]) == len(row["errors"]) > 0
        assert row["nfe"] == sorted(row["nfe"])
        if row["solver"] == "fixed_point":  # which the paper's step sends off
            assert row["errors"][-1] > row["start"] and inner.evaluations_to(row, 1e-6) is None
        else:
            assert row["errors"][-1] <= 1e-8 and inner.evaluations_to(row, 1e-6) <= row["nfe"][-1]
            assert row["updates"][-1] <= row["updates"][0]


def test_a_given_step_length_is_the_one_that_is_used(quick: Rows) -> None:
    given = [row for row in of_kind(quick, "path") if row["lr"] is not None]
    assert {row["solver"] for row in given} == {"gd", "nag", "restart", "fr", "lbfgs"}
    for row in given:
        assert (inner.evaluations_to(row, 1e-6) is not None) == (row["lr"] < 0.06 or row["solver"] == "lbfgs")


def test_a_distance_counts_when_it_is_reached_for_good() -> None:
    row = {"nfe": [1, 2, 3, 4, 5], "errors": [1.0, 1e-7, 1e-3, 1e-7, 1e-8], "start": 1.0}
    assert inner.evaluations_to(row, 1e-6) == 4 and inner.evaluations_to(row, 1e-9) is None


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_slope_is_the_exponent_of_a_power(exponent: float) -> None:
    rows = [{"status": "SUCCESS", "stiffness": 10.0**k, "nfe": 7 * 10.0 ** (exponent * k)} for k in range(5)]
    small = {"status": "SUCCESS", "stiffness": 0.01, "nfe": 1000}
    failed = {"status": "INNER_DIVERGED", "stiffness": 1e6, "nfe": 3}
    assert inner.slope([small, *rows, failed]) == pytest.approx(exponent, abs=1e-12)
    assert inner.slope(rows[:2]) is None


def test_the_step_length_that_the_paper_prints_diverges_and_half_of_it_does_not() -> None:
    """As the README says of the row with lr=0.05."""
    problem, run = diffusion.Diffusion(), diffusion.printed_run("bdf2", 2000)
    printed = replace(run, options={**run.options, "inner_lr": 0.1})
    assert diffusion.run_one(problem, "density", printed).status == "INNER_DIVERGED"
    assert diffusion.run_one(problem, "density", run).status == "SUCCESS"
