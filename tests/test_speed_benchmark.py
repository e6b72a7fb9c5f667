"""The benchmark of speed, in small: to the same error, in turns, with failures as rows. Never how fast."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import contest, solve_allen_cahn, speed, speed_works
from benchmarks.contest import Entry, Rules
from benchmarks.speed_works import OURS, Bound, Work

TOLERANCES = (1e-1, 1e-2, 1e-3)


def entry(name: str, **arguments: Any) -> Entry:
    return Entry(name, "none", f"contest_cases:{name}", arguments, threads=1)


def test_each_is_brought_to_the_error_and_takes_its_turns_and_failures_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "STARTING", 120.0)  # a busy machine imports torch slowly
    said: list[str] = []
    entries = [entry("quick"), entry("broken"), entry("missing"), entry("quick", order=0.1)]
    first, broken, missing, worse = contest.contest(entries, Rules(2e-2, 10.0, 2, TOLERANCES), said.append)
    assert (first["tol"], first["error"], first["nfe"], first["steps"]) == (1e-2, 1e-2, 100, 3)
    assert first["status"] == "SUCCESS" and first["repeats"] == 2 and first["seconds"] > 0
    assert (broken["status"], broken["message"]) == ("FAILED", "ArithmeticError: no such luck")
    assert missing["status"] == "FAILED" and "a_library_that_nobody_has" in missing["message"]
    assert worse["status"] == "FAILED" and "down to 0.001 has an error of 0.02: the best was 0.5" in worse["message"]
    assert [text for text in said if "turn" in text] == ["quick: turn 1 of 2", "quick: turn 2 of 2"]


def test_one_that_follows_has_no_larger_an_error_than_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "STARTING", 120.0)
    fixed = replace(entry("quick"), tolerances=(1e-2,))
    follower = replace(entry("quick"), follows=True)
    rows = contest.contest([fixed, entry("broken"), follower], Rules(None, 10.0, 1, TOLERANCES))
    assert [row.get("tol") for row in rows] == [1e-2, None, 1e-2]


def test_one_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "STARTING", 0.5)
    (row,) = contest.contest([entry("asleep")], Rules(1.0, 0.5, 2, TOLERANCES))
    assert (row["status"], row["message"], row["seconds"]) == ("STOPPED", "stopped after 1 s", None)


def rows() -> list[dict[str, Any]]:
    def row(work: str, solver: str, **more: Any) -> dict[str, Any]:
        return {"work": work, "title": work, "solver": solver, "status": "SUCCESS", "message": "", **more}

    scaling = [row(f"scaling_{n}", OURS, size=n, nfe=3 * n**1.5) for n in (16, 64, 256)]
    return [row("a", OURS, seconds=1.0, nfe=50), row("a", "peer", seconds=4.0, nfe=None),
            row("a", "lost", status="STOPPED"), *scaling]  # fmt: skip


def test_bounds_are_judged_as_ours_over_theirs() -> None:
    bounds = (Bound("peer", "seconds", 0.5), Bound("peer", "seconds", 0.2), Bound("peer", "nfe", 1.0),
              Bound("lost", "seconds", 1.0), Bound("nobody", "seconds", 1.0))  # fmt: skip
    made = speed.judged([Work("a", "a", (), Rules(None), bounds)], rows())
    assert [line["ratio"] for line in made[:-1]] == [0.25, 0.25, None, None, None]
    assert [line["met"] for line in made[:-1]] == [True, False, None, None, None]
    assert [line["status"] for line in made[:-1]] == ["SUCCESS"] * 3 + ["STOPPED", "NOT_RUN"]
    assert made[-1]["what"] == "slope" and made[-1]["ratio"] == pytest.approx(1.5) and not made[-1]["met"]
    speed.bounds_table(made)
    speed.rows_table(rows())
    assert speed.nfe_slope(rows()[:3]) is None


def test_every_bound_has_its_contestants_and_every_entry_its_function() -> None:
    for work in speed_works.all_works("data") + speed_works.quick_works():
        solvers = {entry.solver for entry in work.entries}
        assert OURS in solvers and {bound.against for bound in work.bounds} <= {*solvers, None}
        for each in work.entries:
            module, name = each.where.split(":")
            assert callable(getattr(__import__(module, fromlist=[name]), name))


def test_a_quick_run_leaves_a_report_and_goes_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = "decay_10,scaling_16,heat_20"
    speed.main(out=tmp_path, quick=True, resume=False, work=works)
    report = json.loads((tmp_path / "speed_quick.json").read_text())
    assert {row["work"] for row in report["rows"]} == {"decay_10", "scaling_16", "heat_20"}
    ours = next(row for row in report["rows"] if row["solver"] == OURS)
    assert ours["status"] == "SUCCESS" and ours["error"] < 1e-6 and ours["seconds_per_nfe"] > 0
    assert report["provenance"]["threads"] == 2 and report["bounds"][0]["what"] == "seconds_per_nfe"
    warm = next(row for row in report["rows"] if row["work"] == "heat_20" and row["solver"] == OURS)
    assert warm["error"] <= 1e-2 and warm["n_jvp"] <= 2 and "states" in warm  # a look, whether it is a band
    assert "Ours over theirs" in capsys.readouterr().out

    def nobody(*_: Any) -> None:
        raise AssertionError("everything was there")

    monkeypatch.setattr(speed, "contest", nobody)
    speed.main(out=tmp_path, quick=True, resume=True, work=works)
    (tmp_path / "speed_quick.png").unlink()
    report["rows"] = [row for row in report["rows"] if row["work"] != "heat_20"]  # as if the run had been ended there
    (tmp_path / "speed_quick.json").write_text(json.dumps(report))
    speed.main(out=tmp_path, quick=True, resume=False, work=works, redraw=True)
    again = json.loads((tmp_path / "speed_quick.json").read_text())
    assert again["bounds"] == [line for line in report["bounds"] if line["work"] != "heat_20"]
    assert (tmp_path / "speed_quick.png").exists() and "heat, 20 x 20 points: not run" in capsys.readouterr().out


def test_the_gradient_of_a_training_step_is_that_of_an_explicit_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve_allen_cahn, "CACHE", tmp_path)
    for tol, error in ((1e-3, 1e-2), (1e-6, 1e-5)):
        answer = solve_allen_cahn.ours(points=16)(tol)()
        assert 0 < answer.error < error
    assert list(tmp_path.glob("*.npy"))
