"""Rows of a long run, written to its report one by one, and a run that goes on where another was killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from proxode.paper.report import write_report

Row = dict[str, Any]
Task = tuple[dict[str, Any], Callable[[], Row]]  # what tells the row from others, and how to make it


class OtherRun(RuntimeError):
    """The report on disk is that of a run with other code, versions or settings."""


class Report:
    """The report at `path`: what is the same for all rows, `header`, and the rows so far."""

    def __init__(self, path: Path, header: dict[str, Any], resume: bool = False) -> None:
        self.path, self.header = path, header
        self.rows: list[Row] = []
        if resume and path.exists():
            self.rows = self._earlier()

    def _earlier(self) -> list[Row]:
        before = json.loads(self.path.read_text())
        here = json.loads(json.dumps(self.header))  # as it would look when read again: no tuples
        other = sorted(name for name in here if before.get(name) != here[name])
        if other:
            raise OtherRun(f"{self.path.name} is from another run ({', '.join(other)} differ): leave out --resume")
        return before["rows"]

    def find(self, key: dict[str, Any]) -> Row | None:
        return next((row for row in self.rows if all(row.get(k) == v for k, v in key.items())), None)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.write()

    def write(self, **more: Any) -> None:
        """In one move: a run that is killed meanwhile leaves the file as it was."""
        part = self.path.with_suffix(".part")
        write_report(part, {**self.header, **more, "rows": self.rows})
        part.replace(self.path)


def stored(path: Path, made: str) -> Report:
    """The report as it is on disk, without the part that is made from its rows."""
    before = json.loads(path.read_text())
    report = Report(path, {name: value for name, value in before.items() if name not in ("rows", made)})
    report.rows = before["rows"]
    return report


def opened(path: Path, header: dict[str, Any], resume: bool, console: Console) -> Report:
    """The report, or the end of the command if there is that of another run."""
    try:
        return Report(path, header, resume)
    except OtherRun as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(2) from None


def fill(report: Report, tasks: Sequence[Task], console: Console, shown: Callable[[dict[str, Any]], str]) -> None:
    """Make every row that the report does not have."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        for key, make in tasks:
            progress.update(bar, description=shown(key))
            if report.find(key) is None:
                report.add(key | make())
            progress.advance(bar)


def chosen(text: str, names: Iterable[str]) -> list[str]:
    """Names that contain one of the words of a list with commas; all of them if it is empty."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [name for name in names if not words or any(word in name for word in words)]
