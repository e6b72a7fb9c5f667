"""The command line: `proxode demo` and `proxode inner`.

No mathematics here: commands show and write what experiments give.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from ._version import __version__
from .paper import diffusion
from .paper import inner as inner_experiment
from .paper.report import write_json

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


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
def demo(
    out: Annotated[Path, typer.Option(help="Folder for diffusion.json, .md and .png.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A small problem and few steps.")] = False,
    method: Annotated[
        list[str] | None, typer.Option(help="Run this method only; may be given more than once.")
    ] = None,
) -> None:
    """Solve the diffusion equation with proximal and explicit methods: errors, cost and a picture."""
    console = Console()
    problem = diffusion.Diffusion(diffusion.QUICK_POINTS) if quick else diffusion.Diffusion()
    runs = _selected(diffusion.all_runs(quick), method or [])
    rows = _run_all(console, problem, runs)
    for data in diffusion.INITIAL_DATA:
        console.print(_table(data, [row for row in rows if row.data == data]))
    for row in rows:
        if not row.ok:
            console.print(f"[red]{row.label} on {row.data}[/red]: {row.message}", highlight=False)
    path = out / "diffusion.json"
    write_json(path, "diffusion", diffusion.describe(problem), rows, diffusion.SEED)
    _say_written(console, path)
    report = json.loads(path.read_text())
    _write_table(console, report, path.with_suffix(".md"))
    _draw(console, report, path.with_suffix(".png"))


@app.command()
def inner(
    out: Annotated[Path, typer.Option(help="Folder for inner.json, inner.png and inner_paths.png.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A small problem and few stiffnesses.")] = False,
) -> None:
    """Solve one implicit step with every inner solver: how the cost grows with the stiffness, in pictures."""
    console = Console()
    with console.status("one step of diffusion, every inner solver"):
        rows = inner_experiment.run(out, quick)
    console.print(_slopes(rows))
    for name in ("inner.json", "inner.png", "inner_paths.png"):
        _say_written(console, out / name)


def _slopes(rows: list[dict[str, Any]]) -> Table:
    """Evaluations at each stiffness, and the exponent with which they grow."""
    costs = [row for row in rows if row["kind"] == "cost"]
    stiffnesses = [s for s in dict.fromkeys(row["stiffness"] for row in costs) if math.log10(s).is_integer()]
    title = "NFE against gamma * lambda_max; a dash where the solver says that it cannot"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("solver", no_wrap=True)
    table.add_column("data", no_wrap=True)
    for stiffness in stiffnesses:
        table.add_column(f"{stiffness:g}", justify="right")
    table.add_column("slope", justify="right")
    for data, solver in dict.fromkeys((row["data"], row["solver"]) for row in costs):
        own = [row for row in costs if (row["data"], row["solver"]) == (data, solver)]
        found = {row["stiffness"]: row for row in own}
        cells = [_evaluations(found[stiffness]) for stiffness in stiffnesses]
        slope = inner_experiment.slope(own)
        table.add_row(solver, data, *cells, "-" if slope is None else f"{slope:.2f}")
    return table


def _evaluations(row: dict[str, Any]) -> str:
    return f"{row['nfe']:,}" if row["status"] == "SUCCESS" else "-"


def _selected(runs: list[diffusion.Run], methods: list[str]) -> list[diffusion.Run]:
    known = list(dict.fromkeys(run.method for run in runs))
    unknown = [name for name in methods if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"the demo does not run {', '.join(unknown)}; it runs {', '.join(known)}", param_hint="--method"
        )
    return [run for run in runs if not methods or run.method in methods]


def _run_all(
    console: Console, problem: diffusion.Diffusion, runs: list[diffusion.Run]
) -> list[diffusion.Row]:
    """Every run on every set of initial data, with a bar for the whole and the NFE of the run under way."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    rows = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("diffusion", total=len(runs) * len(diffusion.INITIAL_DATA))
        for data in diffusion.INITIAL_DATA:
            for run in runs:
                shown = f"{data}: {run.label}"

                def report(calls: int, shown: str = shown) -> None:
                    progress.update(task, description=f"{shown}, {calls:,} NFE")

                progress.update(task, description=shown)
                rows.append(diffusion.run_one(problem, data, run, report))
                progress.advance(task)
    return rows


def _table(data: str, rows: list[diffusion.Row]) -> Table:
    title = f"diffusion, initial data: {data}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    for heading in ("NFE", "steps", "final\nerror", "largest\nerror", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    groups = [row.group for row in rows]
    for i, row in enumerate(rows):
        table.add_row(
            row.method,
            row.setting,
            f"{row.nfe:,}",
            f"{row.n_steps:,}",
            _scientific(row.final_error),
            _scientific(row.max_error),
            f"{row.seconds:.2f}",
            "ok" if row.ok else f"[red]{row.status}[/red]",
            end_section=row.group not in groups[i + 1 :],
        )
    return table


def _scientific(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _say_written(console: Console, path: Path) -> None:
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _write_table(console: Console, report: dict[str, Any], path: Path) -> None:
    path.write_text(diffusion.markdown(report["rows"]))
    _say_written(console, path)


def _draw(console: Console, report: dict[str, Any], path: Path) -> None:
    """The picture, from the report only, so that whatever it shows can be looked up."""
    try:
        from .paper.plots import draw_diffusion
    except ModuleNotFoundError as error:
        console.print(f"no picture without {error.name}: pip install 'proxode\\[plot]'")
        return
    draw_diffusion(report, path)
    _say_written(console, path)
