"""The command line: `proxode reproduce`, `proxode report` and `proxode diagnose`.

No mathematics here: commands show and write what experiments give.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ._version import __version__
from .diagnose_cli import diagnose
from .paper.display import Display, rich_table, verdict_table
from .paper.experiment import FULL, QUICK, Experiment, Report
from .paper.experiments import experiment_of, registered
from .paper.files import why_not_written
from .paper.report import COMPLETE, SKIPPED, ReportError
from .paper.runner import Stopped, draw, report_path, run
from .paper.training import CheckpointError

ALL = "all"
PIPE_WIDTH = 130
INTERRUPTED = 130  # what shells expect of a program that Ctrl-C ended

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(diagnose)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proxode {__version__}")
        raise typer.Exit


@app.callback()
def proxode(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train stiff neural ODEs in PyTorch with proximal implicit solvers."""


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"{', '.join(registered())}, or {ALL}.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's setting, or a small one that takes seconds.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for JSON, CSV and figures; by default reproduce/quick or /full.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data sets, where an experiment needs one.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is random.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that was stopped in this folder.")
    ] = False,
) -> None:
    """Run an experiment of the paper, quickly unless --full is given: table, verdicts, JSON, CSV, figures."""
    if name != ALL and name not in registered():
        raise typer.BadParameter(f"{name!r} is none of {', '.join(registered())}, {ALL}", param_hint="NAME")
    console, scale = _console(), FULL if full else QUICK
    folder = Path("reproduce") / scale if out is None else out
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{folder} is a file, not a folder", param_hint="--out")
    _check_writable(folder, "--out")
    names = registered() if name == ALL else [name]
    outcomes = {}
    try:
        for each in names:
            experiment = experiment_of(each)
            outcomes[each] = _one(
                console, experiment, experiment.setting(scale, seed), folder, data_dir, resume, name == ALL
            )
    except Stopped as stop:
        _say(console, f"[yellow]{stop}[/yellow]; what there is stays in {folder}. Give --resume to go on.")
        raise typer.Exit(INTERRUPTED) from None
    if name == ALL:
        _say(console, "\n".join(f"{each:<10} {status}" for each, status in outcomes.items()))
        _say(console, f"one page with all of it: proxode report {folder}")
    if not all(status.startswith((COMPLETE, SKIPPED)) for status in outcomes.values()) or outcomes.get(
        name, ""
    ).startswith(SKIPPED):
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Where `proxode reproduce` wrote its results.")],
) -> None:
    """Write report.html into the folder: each claim of the paper beside what was measured, in one page."""
    from .paper.page import write_page

    console = _console()
    if folder.is_dir():
        _check_writable(folder, "FOLDER")
    try:
        path = write_page(folder)
    except ReportError as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    _say(console, f"wrote {escape(str(path))}")


def _check_writable(folder: Path, argument: str) -> None:
    """Whether files can be made there, before anything is computed."""
    reason = why_not_written(folder / ".proxode")
    if reason is not None:
        raise typer.BadParameter(f"{folder} cannot be written to ({reason}): choose another", param_hint=argument)


def _one(
    console: Console,
    experiment: Experiment,
    setting: dict[str, Any],
    out: Path,
    data_dir: Path | None,
    resume: bool,
    go_on: bool,
) -> str:
    """Run one experiment and show it; the outcome in words. With `go_on` a failure is one of them."""
    console.print(f"[bold]{experiment.name}[/bold]: {escape(experiment.title)}", highlight=False)
    if setting["scale"] == FULL and experiment.cut:
        _say(console, f"less than the paper's setting: {escape(experiment.cut)}")
    try:
        with Display(console, experiment.name) as display:
            found = run(experiment, setting, out, data_dir=data_dir, resume=resume, watch=display.watch)
    except (ReportError, CheckpointError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except Exception as error:
        if not go_on:
            raise
        console.print(f"[red]failed[/red]: {escape(f'{type(error).__name__}: {error}')}", highlight=False)
        return f"failed: {type(error).__name__}: {error}"
    if found["status"] == SKIPPED:
        _say(console, f"[yellow]skipped[/yellow]: {escape(found['message'])}")
        return f"{SKIPPED}: {found['message']}"
    _show(console, experiment, found, out)
    return f"{found['status']}, {len(found['rows'])} rows"


def _show(console: Console, experiment: Experiment, found: Report, out: Path) -> None:
    for table in experiment.tables(found):
        console.print(rich_table(table))
    console.print(verdict_table(experiment.verdicts(found)))
    path = report_path(out, experiment)
    written = [path.name, path.with_suffix(".csv").name]
    try:
        written += [f"{picture.stem}.{suffix}" for picture in draw(experiment, found, out) for suffix in ("png", "pdf")]
    except ModuleNotFoundError as error:
        _say(console, f"no picture without {error.name}: pip install matplotlib")
    _say(console, f"wrote {', '.join(written)} in {out}\n")


def _console() -> Console:
    """As wide as the terminal; in a pipe or a file wide enough for the tables, if nobody says otherwise."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
