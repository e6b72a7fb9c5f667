"""The experiment on the inner solvers, in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from proxode.inner import INNER
from proxode.paper import diffusion, inner
from proxode.paper.diffusion import INITIAL_DATA

PNG = b"\x89PNG\r\n\x1a\n"

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    out = tmp_path_factory.mktemp("inner")
    return out, inner.run(out, quick=True)


def of_kind(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["kind"] == kind]


def test_every_solver_has_a_row_for_every_stiffness(quick: tuple[Path, Rows]) -> None:
    found = [(row["data"], row["solver"], row["stiffness"]) for row in of_kind(quick[1], "cost")]
    assert found == [(d, s, x) for d in INITIAL_DATA for s in INNER for x in inner.QUICK_STIFFNESS]


def test_what_converged_is_right_and_only_the_fixed_point_did_not(quick: tuple[Path, Rows]) -> None:
    for row in of_kind(quick[1], "cost"):
        assert (row["status"] == "SUCCESS") == (row["solver"] != "fixed_point" or row["stiffness"] < 1)
        assert row["error"] <= 1e-8 or row["status"] == "INNER_OUTSIDE_RADIUS"


def test_every_solver_has_a_path_and_it_leads_to_the_solution(quick: tuple[Path, Rows]) -> None:
    paths = of_kind(quick[1], "path")
    assert [(row["data"], row["solver"]) for row in paths] == [(d, s) for d in INITIAL_DATA for s in INNER]
    for row in paths:
        assert len(row["nfe"]) == len(row["updates"]) == len(row["errors"]) > 0
        assert row["nfe"] == sorted(row["nfe"])
        assert row["errors"][-1] <= 1e-8
        assert row["updates"][-1] <= row["updates"][0]


def test_the_report_holds_the_rows_and_where_they_come_from(quick: tuple[Path, Rows]) -> None:
    out, rows = quick
    report = json.loads((out / "inner.json").read_text())
    assert report["rows"] == rows
    assert report["experiment"] == "inner"
    assert {"proxode", "torch", "commit", "seed"} <= set(report["provenance"])


@pytest.mark.parametrize("name", ["inner.png", "inner_paths.png"])
def test_the_pictures_are_drawn(quick: tuple[Path, Rows], name: str) -> None:
    assert (quick[0] / name).read_bytes().startswith(PNG)


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
