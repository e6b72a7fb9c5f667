"""The runner of experiments: rows that survive a kill, resume, and reports that are refused."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proxode.paper.experiment import (
    HOLDS,
    UNKNOWN,
    Claim,
    Experiment,
    Picture,
    Report,
    Row,
    Task,
    Verdict,
    Watch,
    judged,
)
from proxode.paper.files import write_atomically
from proxode.paper.report import ReportError, read_report
from proxode.paper.runner import Stopped, run
from proxode.paper.tables import Table, as_csv, markdown

CLAIM = Claim("Squares are not negative.", "nowhere")


class Squares(Experiment):
    """Rows i^2; `fails` and `stops` say at which row it raises."""

    name = "squares"
    title = "squares of whole numbers"
    claims = (CLAIM,)
    scales: ClassVar[dict[str, dict[str, Any]]] = {"quick": {"count": 4}, "full": {"count": 9}}

    def __init__(self, fails: int = -1, stops: int = -1, absent: str | None = None) -> None:
        self.fails, self.stops, self.absent = fails, stops, absent
        self.made: list[int] = []

    def missing(self, setting: dict[str, Any], data_dir: Path | None) -> str | None:
        return self.absent

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {"equation": "i^2"}

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [
            Task({"i": i, "kind": "square"}, lambda watch, i=i: self._row(i, watch)) for i in range(setting["count"])
        ]

    def _row(self, i: int, watch: Watch) -> Row:
        if i == self.fails:
            raise ZeroDivisionError("no such square")
        if i == self.stops:
            raise KeyboardInterrupt
        self.made.append(i)
        return {"square": i * i, "curve": [0.0, float("nan")]}

    def tables(self, report: Report) -> list[Table]:
        return [Table("squares", ["i", "square"], [[str(r["i"]), str(r["square"])] for r in report["rows"]])]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        return []

    def verdicts(self, report: Report) -> list[Verdict]:
        return [Verdict(CLAIM, "", str(len(report["rows"])), HOLDS if report["rows"] else UNKNOWN)]


def setting(count: int = 4) -> dict[str, Any]:
    return {"scale": "quick", "seed": 0, "count": count}


def stored(out: Path) -> dict[str, Any]:
    return json.loads((out / "squares.json").read_text())


def test_a_run_writes_rows_provenance_and_csv(tmp_path: Path) -> None:
    report = run(Squares(), setting(), tmp_path)
    assert report == read_report(tmp_path / "squares.json")
    assert report["status"] == "complete" and [row["square"] for row in report["rows"]] == [0, 1, 4, 9]
    assert report["rows"][0]["curve"] == [0.0, None]  # JSON has no nan
    assert {"proxode", "torch", "commit", "seed"} <= report["provenance"].keys()
    table = list(csv.DictReader((tmp_path / "squares.csv").read_text().splitlines()))
    assert [row["square"] for row in table] == ["0", "1", "4", "9"] and "curve" not in table[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["squares.csv", "squares.json"]


@pytest.mark.parametrize("stops", range(4))
def test_a_run_that_was_stopped_goes_on_without_making_a_row_twice(tmp_path: Path, stops: int) -> None:
    with pytest.raises(Stopped, match=f"{stops} of 4"):
        run(Squares(stops=stops), setting(), tmp_path)
    part = stored(tmp_path)
    assert part["status"] == "partial" and len(part["rows"]) == stops
    second = Squares()
    whole = run(second, setting(), tmp_path, resume=True)
    assert second.made == list(range(stops, 4))
    fresh = run(Squares(), setting(), tmp_path / "fresh")
    assert {**whole, "provenance": 0} == {**fresh, "provenance": 0} and whole["status"] == "complete"


def test_a_row_that_fails_leaves_those_before_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(Squares(fails=2), setting(), tmp_path)
    part = stored(tmp_path)
    assert part["status"] == "failed" and "no such square" in part["message"] and len(part["rows"]) == 2
    assert run(Squares(), setting(), tmp_path, resume=True)["status"] == "complete"


def test_without_resume_a_run_begins_anew(tmp_path: Path) -> None:
    run(Squares(), setting(), tmp_path)
    again = Squares()
    run(again, setting(), tmp_path)
    assert again.made == [0, 1, 2, 3]


def test_a_run_by_other_code_says_so(tmp_path: Path) -> None:
    run(Squares(), setting(), tmp_path)
    before = stored(tmp_path)
    before["provenance"]["commit"], before["rows"] = "elsewhere", before["rows"][:2]
    (tmp_path / "squares.json").write_text(json.dumps(before))
    after = run(Squares(), setting(), tmp_path, resume=True)
    assert after["provenance"]["commit"] == "elsewhere" and len(after["resumed"]) == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda r: r["setting"].update(seed=1), "other settings \\(seed\\)"),
        (lambda r: r["setting"].update(count=9), "other settings \\(count\\)"),
        (lambda r: r.update(experiment="cubes"), "is of 'cubes'"),
        (lambda r: r.update(format=99), "format 99"),
        (lambda r: r.pop("provenance"), "no provenance"),
        (lambda r: r.update(rows=[1]), "rows that are none"),
        (lambda r: r["rows"][0].update(i=77), "does not make"),
        (lambda r: r["rows"].append(r["rows"][0]), "does not make"),
    ],
)
def test_resume_refuses_a_report_of_another_run(tmp_path: Path, damage: Any, words: str) -> None:
    run(Squares(), setting(), tmp_path)
    report = stored(tmp_path)
    damage(report)
    text = json.dumps(report)
    (tmp_path / "squares.json").write_text(text)
    with pytest.raises(ReportError, match=words):
        run(Squares(), setting(), tmp_path, resume=True)
    assert (tmp_path / "squares.json").read_text() == text  # and leaves it alone


def test_resume_makes_what_has_been_added_to_a_list_of_rows(tmp_path: Path) -> None:
    """But only where the experiment says that the list is one; and nothing may have gone from it."""

    class Chosen(Squares):
        growing = ("chosen",)

        def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
            return [task for task in super().tasks(setting) if task.key["i"] in setting["chosen"]]

    few, more = ({**setting(), "chosen": chosen, "sizes": [1]} for chosen in ([0, 2], [0, 1, 2, 3]))
    run(Chosen(), few, tmp_path)
    second = Chosen()
    report = run(second, more, tmp_path, resume=True)
    assert second.made == [1, 3] and report["status"] == "complete" and report["setting"]["chosen"] == [0, 1, 2, 3]
    assert report["expected"] == 4 and len(report["rows"]) == 4
    for other in (few, {**more, "sizes": [1, 2]}):
        with pytest.raises(ReportError, match="other settings"):
            run(Chosen(), other, tmp_path, resume=True)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"rows": []}'])
def test_resume_refuses_what_is_not_a_report(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "squares.json").write_bytes(content)
    with pytest.raises(ReportError, match=r"squares\.json"):
        run(Squares(), setting(), tmp_path, resume=True)


def test_missing_data_are_said_and_never_take_the_place_of_rows(tmp_path: Path) -> None:
    absent = Squares(absent="squares.npz is missing: put it into --data-dir")
    assert run(absent, setting(), tmp_path)["status"] == "skipped" == stored(tmp_path)["status"]
    run(Squares(), setting(), tmp_path)
    assert run(absent, setting(), tmp_path)["status"] == "skipped"
    assert len(stored(tmp_path)["rows"]) == 4


def test_a_process_that_is_killed_leaves_a_whole_report(tmp_path: Path) -> None:
    """SIGKILL in the middle of a row; the rows before it are there."""
    code = (
        "import os, signal, sys; sys.path.insert(0, 'tests'); from pathlib import Path\n"
        "from test_reproduce import Squares, setting; from proxode.paper.runner import run\n"
        "class Killed(Squares):\n"
        "    def _row(self, i, watch):\n"
        "        if i == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super()._row(i, watch)\n"
        f"run(Killed(), setting(), Path({str(tmp_path)!r}))\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == -signal.SIGKILL
    assert [row["i"] for row in read_report(tmp_path / "squares.json")["rows"]] == [0, 1]
    rest = Squares()
    assert run(rest, setting(), tmp_path, resume=True)["status"] == "complete" and rest.made == [2, 3]


def test_a_file_is_replaced_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"before")

    def broken(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"after, which is longer")
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_is_offered_to_its_row_and_gone_after_it(tmp_path: Path) -> None:
    class Kept(Squares):
        def _row(self, i: int, watch: Watch) -> Row:
            assert watch.checkpoint is not None and watch.checkpoint.name == f"{i}.checkpoint"
            known = watch.checkpoint.exists()
            write_atomically(watch.checkpoint, b"half")
            return super()._row(i, watch) | {"known": known}

    with pytest.raises(Stopped):
        run(Kept(stops=1), setting(2), tmp_path)
    assert [path.name for path in (tmp_path / "checkpoints/squares").iterdir()] == ["1.checkpoint"]
    rows = run(Kept(), setting(2), tmp_path, resume=True)["rows"]
    assert [row["known"] for row in rows] == [False, True] and not (tmp_path / "checkpoints").exists()
    with pytest.raises(Stopped):
        run(Kept(stops=1), setting(2), tmp_path)
    assert [row["known"] for row in run(Kept(), setting(2), tmp_path)["rows"]] == [False, False]


def test_outcomes_of_claims_with_parts() -> None:
    assert [judged(p) for p in ([True, True], [True, False], [False], [])] == [
        "holds", "holds in part", "does not hold", "not measured",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="outcome"):
        Verdict(CLAIM, "", "", "perhaps")


def test_tables_as_text() -> None:
    assert markdown(Table("", ["a", "n"], [["x|y", "1"]])) == "| a | n |\n| --- | ---: |\n| x\\|y | 1 |\n"
    assert as_csv([{"a": 1, "c": [1]}, {"a": 2, "b": "x,y"}]) == 'a,b\n1,\n2,"x,y"\n'
