"""Runs an experiment: rows one by one into its report, then tables, pictures and verdicts from that report.

The report is whole after every row, so a run that is killed at any point goes on with `resume`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from .experiment import Experiment, Picture, Report, Task, Watch
from .files import write_atomically
from .report import (
    COMPLETE,
    FAILED,
    FORMAT,
    PARTIAL,
    SKIPPED,
    ReportError,
    finite,
    provenance,
    read_report,
    write_report,
)
from .tables import as_csv

MakeWatch = Callable[[Task, int, int, Path], AbstractContextManager[Watch]]  # of a task, the i-th of so many


class Stopped(KeyboardInterrupt):
    """Ctrl-C, after everything that was there has been written."""

    def __init__(self, experiment: str, done: int, total: int) -> None:
        super().__init__(f"stopped after {done} of {total} rows of {experiment}")


def report_path(out: Path, experiment: Experiment) -> Path:
    return out / f"{experiment.name}.json"


def checkpoints(out: Path, experiment: Experiment) -> Path:
    return out / "checkpoints" / experiment.name


def silent(task: Task, place: int, total: int, checkpoint: Path) -> AbstractContextManager[Watch]:
    return nullcontext(Watch(checkpoint))


def run(
    experiment: Experiment,
    setting: dict[str, Any],
    out: Path,
    *,
    data_dir: Path | None = None,
    resume: bool = False,
    watch: MakeWatch = silent,
) -> Report:
    """Make every row that is not there yet. Data that are missing give a report that says so, without rows."""
    path = report_path(out, experiment)
    missing = experiment.missing(setting, data_dir)
    if missing is not None:
        return _skipped(experiment, setting, path, missing)
    tasks = experiment.tasks(setting, data_dir)
    report = _opened(experiment, setting, path, tasks, resume)
    done = _made(report, tasks)
    try:
        for i, task in enumerate(tasks):
            if i in done:
                continue
            checkpoint = checkpoints(out, experiment) / f"{i}.checkpoint"
            with watch(task, i, len(tasks), checkpoint) as told:
                row = task.key | task.make(told)
            report["rows"].append(finite(row))
            write_report(path, report)
            checkpoint.unlink(missing_ok=True)
        report["status"] = COMPLETE
        return report
    except KeyboardInterrupt:
        raise Stopped(experiment.name, len(report["rows"]), len(tasks)) from None
    except Exception as error:
        report |= {"status": FAILED, "message": f"{type(error).__name__}: {error}"}
        raise
    finally:
        write_report(path, report)
        write_atomically(path.with_suffix(".csv"), as_csv(report["rows"]).encode())
        _tidy(out)


def draw(experiment: Experiment, report: Report, out: Path) -> list[Picture]:
    """The pictures of a report, as far as it goes; none without rows."""
    return experiment.draw(report, out) if report["rows"] else []


def _opened(experiment: Experiment, setting: dict[str, Any], path: Path, tasks: list[Task], resume: bool) -> Report:
    """A new report, or the one that is there if the run goes on."""
    here = provenance(setting["seed"])
    if not resume or not path.exists():
        shutil.rmtree(checkpoints(path.parent, experiment), ignore_errors=True)
        return _empty(experiment, setting, here) | {"expected": len(tasks)}
    report = read_report(path)
    if report["experiment"] != experiment.name:
        raise ReportError(f"{path} is of {report['experiment']!r}, not of {experiment.name!r}: choose another --out")
    same = _plain(setting)
    before, names = report["setting"], same.keys() | report["setting"].keys()
    other = sorted(k for k in names if not _kept(before.get(k), same.get(k), k in experiment.growing))
    if other:
        raise ReportError(
            f"{path} is of a run with other settings ({', '.join(other)}): give the same ones, another --out, "
            "or leave out --resume"
        )
    if None in (made := _made(report, tasks)) or len(set(made)) < len(made):
        raise ReportError(
            f"{path} has rows that this version does not make: leave out --resume, or choose another --out"
        )
    if report["provenance"] != _plain(here):
        report["resumed"] = [*report.get("resumed", []), here]
    here_and_now = {"setting": same, "problem": experiment.problem(setting), "cut": experiment.cut}
    return report | here_and_now | {"status": PARTIAL, "message": "", "expected": len(tasks)}


def _empty(experiment: Experiment, setting: dict[str, Any], here: dict[str, Any]) -> Report:
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "setting": _plain(setting),
        "provenance": here,
        "problem": experiment.problem(setting),
        "cut": experiment.cut,
        "status": PARTIAL,
        "message": "",
        "expected": 0,
        "rows": [],
    }


def _skipped(experiment: Experiment, setting: dict[str, Any], path: Path, missing: str) -> Report:
    """Never in place of rows that somebody waited for."""
    report = _empty(experiment, setting, provenance(setting["seed"])) | {"status": SKIPPED, "message": missing}
    if not path.exists() or not read_report(path)["rows"]:
        write_report(path, report)
    return report


def _made(report: Report, tasks: list[Task]) -> list[int | None]:
    """Which task each row of a report is of."""
    keys = [_plain(task.key) for task in tasks]
    return [
        next((i for i, key in enumerate(keys) if all(name in row and row[name] == key[name] for name in key)), None)
        for row in report["rows"]
    ]


def _kept(before: Any, now: Any, growing: bool) -> bool:
    """Whether what was made with a setting is still right."""
    if growing and isinstance(before, list) and isinstance(now, list):
        return all(item in now for item in before)
    return bool(before == now)


def _plain(value: Any) -> Any:
    """As it would be read from the file again: no tuples."""
    return json.loads(json.dumps(finite(value)))


def _tidy(out: Path) -> None:
    """Folders of checkpoints that hold nothing."""
    for folder in (*(out / "checkpoints").glob("*"), out / "checkpoints"):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
