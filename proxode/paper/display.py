"""What is seen in the terminal: progress with evaluations, loss and time left; tables and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from .experiment import FAILS, HOLDS, PARTLY, Task, Verdict, Watch
from .tables import Table

COLOUR = {HOLDS: "green", PARTLY: "yellow", FAILS: "red"}


class LiveWatch(Watch):
    """A watch whose news are shown beside the bar."""

    def __init__(self, progress: Progress, bar: TaskID, task: Task, checkpoint: Path, done: int) -> None:
        super().__init__(checkpoint)
        self._progress, self._bar, self._label, self._done = progress, bar, task.label, done
        self._news: dict[str, str] = {}
        self._show()

    def nfe(self, calls: int) -> None:
        self._news["nfe"] = f"{calls:,} NFE"
        self._show()

    def loss(self, value: float) -> None:
        self._news["loss"] = f"loss {value:.4g}"
        self._show()

    def part(self, done: float) -> None:
        self._progress.update(self._bar, completed=self._done + min(max(done, 0.0), 1.0))

    def _show(self) -> None:
        words = ", ".join((self._label, *self._news.values()))
        self._progress.update(self._bar, description=escape(words))


class Display:
    """The progress of one experiment; `watch` is what the runner asks for."""

    def __init__(self, console: Console, name: str) -> None:
        columns = (
            SpinnerColumn(), TextColumn(f"{name}:"), TextColumn("{task.description}"), BarColumn(bar_width=20),
            TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=console, transient=True)
        self._bar = self._progress.add_task("")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def watch(self, task: Task, place: int, total: int, checkpoint: Path) -> Iterator[Watch]:
        self._progress.update(self._bar, total=total, completed=place)
        yield LiveWatch(self._progress, self._bar, task, checkpoint, place)
        self._progress.update(self._bar, completed=place + 1)


def rich_table(table: Table) -> RichTable:
    shown = RichTable(
        title=escape(table.title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for i, head in enumerate(table.heads):
        shown.add_column(escape(head), justify="left" if i < table.words else "right", no_wrap=i < table.words)
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown


def verdict_table(verdicts: Sequence[Verdict]) -> RichTable:
    shown = RichTable(title="the paper's claims", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head in ("claim", "measured", "verdict"):
        shown.add_column(head)
    for verdict in verdicts:
        tint = COLOUR.get(verdict.outcome, "dim")
        shown.add_row(escape(verdict.claim.text), escape(verdict.measured), f"[{tint}]{verdict.outcome}[/{tint}]")
    return shown
