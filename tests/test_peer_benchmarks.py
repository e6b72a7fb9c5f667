"""The benchmarks beside other solvers, in small: what they count, how they measure, and what a killed run leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proxode.inner
from benchmarks import auto_switching, dense_threshold, peers, references, rows, shown, stiff_problems, work_precision
from benchmarks import work_precision_plot as plot
from benchmarks.counted import Counted, Stopped
from benchmarks.peers import SOLVERS, Limits, Solver
from benchmarks.stiff_problems import Problem, equal_times, problem, state

ROOT = Path(__file__).resolve().parents[1]
TOL = 1e-4


def pulled(t: Any, y: torch.Tensor) -> torch.Tensor:
    """Stiff, with a closed solution: both components relax to one, the second a thousand times faster."""
    return torch.tensor([1.0, 1e3], dtype=y.dtype) * (1 - y)


def relaxed(t: torch.Tensor) -> torch.Tensor:
    return 1 - torch.exp(-t[:, None] * torch.tensor([1.0, 1e3], dtype=t.dtype))


@pytest.fixture
def small() -> Problem:
    return problem("small", "small", pulled, state(0, 0), equal_times(2.0, 4), exact=relaxed)


# Counting


def test_f_counts_its_calls_and_the_columns_of_its_jacobian() -> None:
    f = Counted(pulled)
    f.numpy(0.0, np.zeros(2))
    slope = np.empty(2)
    f.into(0.0, np.zeros(2), slope)
    assert slope.tolist() == [1.0, 1e3]
    assert f.jacobian(0.0, np.zeros(2)).tolist() == [[-1.0, 0.0], [0.0, -1e3]]
    assert (f.calls, f.columns, f.nfe) == (2, 2, 4)


def test_f_stops_a_solve_that_uses_too_much() -> None:
    f = Counted(pulled, max_nfe=3)
    with pytest.raises(Stopped, match="after 3 evaluations"):
        for _ in range(5):
            f(0.0, state(0, 0))
    with pytest.raises(Stopped, match="after 0 s"):
        Counted(pulled, max_seconds=0.0)(0.0, state(0, 0))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.label)
def test_every_solver_makes_a_row_that_is_right(small: Problem, solver: Solver) -> None:
    if solver.library == "CVODE":
        pytest.importorskip("sksundae")
    row = peers.measure(solver, small, references.reference(small), TOL, Limits())
    assert row["status"] == "SUCCESS", row["message"]
    assert 0 < row["error"] < 20 * TOL
    assert row["rms_over_tol"] <= row["max_over_tol"] and row["final_error"] <= row["error"]
    assert row["nfe"] >= row["calls"] > 0 and row["seconds"] > 0
    if solver.library == "proxode":
        counted = row["details"]
        assert row["calls"] == counted["n_f"] + counted["n_jvp"]
    elif solver.library != "SciPy":
        assert row["nfe"] == row["calls"]


def test_a_row_that_is_stopped_or_raises_is_kept(small: Problem) -> None:
    exact = references.reference(small)
    stopped = peers.measure(SOLVERS[-1], small, exact, TOL, Limits(nfe=20))
    assert stopped["status"] == "STOPPED" and "error" not in stopped

    def fails(problem: Problem, f: Counted, tol: float) -> Any:
        raise ValueError("no such thing")

    failed = peers.measure(Solver("x", "x", "dense", fails), small, exact, TOL, Limits())
    assert (failed["status"], failed["message"]) == ("FAILED", "ValueError: no such thing")


def test_an_answer_far_from_the_solution_is_lost_whatever_its_solver_says(small: Problem) -> None:
    for value in (1e3, math.nan):
        solver = Solver("x", "x", "dense", lambda p, f, tol, value=value: peers.Outcome(np.full((4, 2), value)))
        assert peers.measure(solver, small, references.reference(small), TOL, Limits())["status"] == "LOST"


def test_the_matrix_free_solver_makes_no_matrix_and_leaves_the_limit_as_it_was(small: Problem) -> None:
    before = proxode.inner.DENSE_LIMIT
    outcome = peers.ours("bdf", krylov=True)(small, Counted(small.f), TOL)
    assert outcome.details["n_jac"] == 0
    assert before == proxode.inner.DENSE_LIMIT


# Errors and references


def test_errors_are_measured_in_units_of_the_tolerance(small: Problem) -> None:
    exact = np.array([[2.0, 4.0], [1.0, 8.0]])
    ys = exact + np.array([[0.0, 0.8], [0.2, 0.0]])
    found = references.errors(small, ys, exact, 0.1)
    assert found["error"] == pytest.approx(0.1) and found["final_error"] == pytest.approx(0.1)
    assert found["max_over_tol"] == pytest.approx(0.8 / 0.5)
    assert found["rms_over_tol"] == pytest.approx(0.8 / 0.5 / math.sqrt(2))
    assert found["final_max_over_tol"] == pytest.approx(1.0)


def test_a_reference_is_made_once_and_again_when_f_changes(tmp_path: Path) -> None:
    def made(rate: float) -> Problem:
        return problem("decay", "decay", lambda t, y: -rate * y, state(1, 1), equal_times(1.0, 2))

    values = references.reference(made(1.0), tmp_path)
    np.testing.assert_allclose(values, np.exp([[-0.5, -0.5], [-1.0, -1.0]]), rtol=1e-10)
    (path,) = tmp_path.iterdir()
    stamp = path.stat().st_mtime_ns
    references.reference(made(1.0), tmp_path)
    assert [p.stat().st_mtime_ns for p in tmp_path.iterdir()] == [stamp]
    references.reference(made(2.0), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_reference_that_its_check_does_not_confirm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(references.WAYS, "tight", references.Way("Radau", 1e-6, 1e-3, 1e-12))
    with pytest.raises(references.BadReference, match="differ by"):
        references.reference(problem("x", "x", pulled, state(0, 0), equal_times(1.0, 2)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_closed_solution_of_diffusion_starts_where_the_problem_does() -> None:
    ring = stiff_problems.diffusion(16)
    assert ring.exact is not None
    torch.testing.assert_close(ring.exact(torch.zeros(1, dtype=torch.float64))[0], ring.y0)


# A run that is killed


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path, header, made = tmp_path / "x.json", {"experiment": "x", "tolerances": [0.1]}, []

    def task(i: int, fails: bool = False) -> rows.Task:
        def make() -> dict[str, Any]:
            if fails:
                raise KeyboardInterrupt
            made.append(i)
            return {"value": float(i)}

        return {"i": i}, make

    first = rows.Report(path, header)
    with pytest.raises(KeyboardInterrupt):
        rows.fill(first, [task(0), task(1, fails=True), task(2)], shown.console(), str)
    again = rows.Report(path, header, resume=True)
    rows.fill(again, [task(0), task(1), task(2)], shown.console(), str)
    assert made == [0, 1, 2]
    assert [row["i"] for row in json.loads(path.read_text())["rows"]] == [0, 1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    with pytest.raises(rows.OtherRun, match="tolerances differ"):
        rows.Report(path, {**header, "tolerances": [0.2]}, resume=True)


def test_a_solver_that_was_stopped_is_not_tried_at_tighter_tolerances(tmp_path: Path, small: Problem) -> None:
    report = rows.Report(tmp_path / "x.json", {})
    todo = work_precision.tasks([small], report, "dopri5", (1e-3, 1e-6), tmp_path, Limits(nfe=20))
    rows.fill(report, todo, shown.console(), str)
    assert [row["status"] for row in report.rows] == ["STOPPED", "NOT_RUN"]


# The summaries and the picture


def curve(solver: str, scale: float, **more: Any) -> list[dict[str, Any]]:
    """Rows whose NFE grow by ten for two digits."""
    library, algebra = ("proxode" if solver.startswith("proxode") else "CVODE"), "dense"
    return [{"problem": "small", "solver": solver, "library": library, "algebra": algebra, "tol": tol, "nfe": nfe,
             "seconds": nfe / 1e3, "error": 2 * tol, "rms_over_tol": scale, "max_over_tol": 2 * scale,
             "status": "SUCCESS", **more} for tol, nfe in ((1e-2, 100 * scale), (1e-4, 1000 * scale))]  # fmt: skip


def test_the_summary_compares_with_cvode_at_equal_tolerance_and_at_equal_error() -> None:
    made = work_precision.summary(curve("proxode bdf, newton", 0.5) + curve("CVODE dense", 1.0))
    (line,) = made
    assert [entry["nfe"] for entry in line["ratios"]] == [0.5, 0.5]
    assert line["nfe_at_equal_error"] == pytest.approx(0.5) == line["worst_at_equal_error"]
    assert (line["ours_largest_rms_over_tol"], line["theirs_largest_max_over_tol"]) == (0.5, 2.0)
    assert work_precision.nfe_at(curve("CVODE dense", 1.0), 2e-3) == pytest.approx(100 * math.sqrt(10))
    assert work_precision.nfe_at(curve("CVODE dense", 1.0), 1e-9) is None
    wrong = {"status": "SUCCESS", "error": 2.0, "nfe": 5}  # no digit is right: it is no part of the curve
    assert work_precision.nfe_at([wrong, *curve("CVODE dense", 1.0)], 0.1) == pytest.approx(100)
    work_precision.summary_table(made)


def test_what_failed_has_no_ratio() -> None:
    (line,) = work_precision.summary(curve("proxode bdf, newton", 0.5, status="LOST") + curve("CVODE dense", 1.0))
    assert {entry["nfe"] for entry in line["ratios"]} == {None} and line["nfe_at_equal_error"] is None


def test_auto_is_compared_with_the_better_of_those_that_are_right() -> None:
    def row(solver: str, nfe: int, off: float) -> dict[str, Any]:
        return {"problem": "p", "tol": 1e-3, "solver": solver, "nfe": nfe, "final_rms_over_tol": off,
                "rms_over_tol": off, "status": "SUCCESS",
                "details": {"switches": [[0.0, "dopri5"], [0.125, "bdf"]]}}  # fmt: skip

    found = [row("dopri5", 10, 1e6), row("bdf", 50, 3.0), row("auto", 60, 1.0)]
    (line,) = auto_switching.compared(found)
    assert (line["better"], line["ratio"], line["did"]) == ("bdf", 1.2, "dopri5 from 0, bdf from 0.125")
    auto_switching.table(found, [line])
    far = [row("dopri5", 10, 900.0), row("bdf", 5, 1000.0), row("auto", 11, 300.0)]  # an orbit: all are off
    assert [(line["better"], line["ratio"]) for line in auto_switching.compared(far)] == [("dopri5", 1.1)]


def test_the_crossing_is_the_last_size_of_an_unbroken_row() -> None:
    costs = {2: (1, 2), 4: (3, 3), 8: (9, 5), 16: (1, 2)}
    found = [{"family": "f", "tol": 1e-3, "size": size, "solver": solver, "nfe": nfe, "seconds": -nfe,
              "status": "SUCCESS"} for size, pair in costs.items()
             for solver, nfe in zip(dense_threshold.SOLVERS, pair, strict=True)]  # fmt: skip
    assert dense_threshold.crossings(found) == [{"family": "f", "tol": 1e-3, "nfe": 4, "seconds": None}]
    dense_threshold.table(found)


def report_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    titles = [{"name": "small", "title": "a small one"}]
    return {"problems": titles, "tolerances": [1e-2, 1e-4], "rows": found, "summary": work_precision.summary(found)}


def test_the_picture_is_drawn_from_the_report_alone(tmp_path: Path) -> None:
    failed = {"problem": "small", "solver": "torchdiffeq dopri5", "library": "torchdiffeq", "algebra": "explicit",
              "tol": 1e-2, "status": "STOPPED", "message": "stopped"}  # fmt: skip
    found = curve("proxode bdf, newton", 0.5) + curve("CVODE dense", 1.0) + [failed]
    plot.draw(json.loads(json.dumps(report_of(found))), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_every_solver_has_a_style_of_its_own() -> None:
    assert set(plot.STYLES) == {solver.label for solver in SOLVERS}
    assert len(set(plot.STYLES.values())) == len(SOLVERS)


def test_the_tables_find_their_places_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import paste_work_precision as paste
    import pasting

    found = curve("proxode bdf, newton", 0.5) + curve("CVODE dense", 1.0)
    (tmp_path / "work_precision.json").write_text(json.dumps(report_of(found)))
    monkeypatch.setattr(pasting, "RESULTS", tmp_path)
    assert list(paste.available(tmp_path)) == ["work_precision"]
    page = paste.pasted((ROOT / "docs/adaptive.md").read_text(), paste.available(tmp_path))
    assert "| a small one | dense | 0.50 | 0.50 | 0.50 | 0.5 | 1.0 |" in page
    assert page.count("<!-- table:") == len(paste.TABLES) == page.count("<!-- end -->")
