"""Gradients through the GRAND equation on Coauthor-CS: what they cost and how wrong they are.

`du/dt = A(u) u - u` is dissipative. The usual adjoint integrates it backwards in time, where it is unstable; the
others differentiate the steps that were taken. Every row runs in a process of its own.

    python -m benchmarks.gradients_coauthor --data-dir DATA --out benchmarks/results
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from proxode.data import files, graphs
from proxode.paper.report import provenance, write_report

from . import shown
from .gradient_rows import Problem, Run, reference_path

TOL = 1e-4
STEPS = (8, 12, 16, 24, 32)
PROXIMAL = ("bdf2", "bdf3", "bdf4", "crank_nicolson", "multistage2")
GOAL = 0.05  # relative error of both gradients that counts as right
BACKWARD_GOAL = 1.2  # backward NFE over forward NFE

COUNTING = (
    "An evaluation of f and a Jacobian product count one each. proxode counts its own (proxode.record). For "
    "torchdiffeq's odeint, backward is one product for every evaluation in the graph; for odeint_adjoint every call of "
    "f in backward is one evaluation and one product. Memory is the growth of the resident set during solve and "
    "backward, sampled every 5 ms."
)


FORMS = {
    "nfe_forward": "{:,}", "nfe_backward": "{:,}", "error_state": "{:.1e}", "error_u0": "{:.1e}",
    "error_theta": "{:.1e}", "seconds_forward": "{:.2f}", "seconds_backward": "{:.2f}", "peak_mib": "{:,.0f}",
}  # fmt: skip


def all_runs(quick: bool = False) -> list[Run]:
    steps, methods = ((8, 16), ("bdf2", "bdf3")) if quick else (STEPS, PROXIMAL)
    tols = (TOL,) if quick else (TOL, TOL / 10)
    runs = [Run("torchdiffeq", name, "dopri5", tol) for name in ("odeint", "odeint_adjoint") for tol in tols]
    runs += [Run("proxode", name, None, tol) for name in ("odeint", "odeint_adjoint") for tol in (10 * TOL, TOL)]
    runs.append(Run("proxode", "odeint", None, TOL, gradient="checkpoint"))
    runs += [Run("proxode", "odeint", method, TOL, n, "auto") for method in methods for n in steps]
    if not quick:  # "auto" is "anderson" for a state of this size, unless that fails
        inners = ("fr", "newton_krylov")
        runs += [Run("proxode", "odeint", method, TOL, n, inner) for inner in inners for method in ("bdf2", "bdf4")
                 for n in (8, 16, 32)]  # fmt: skip
        runs += [Run("proxode", "odeint", method, TOL, 16, "auto", store_graph=True) for method in ("bdf2", "bdf4")]
        runs += [Run("proxode", "odeint", "crank_nicolson", TOL, n, "auto", power=2.0) for n in STEPS]
    return runs


def child(task: dict[str, Any], threads: int, timeout: float) -> dict[str, Any]:
    """Run one task in a process of its own. Raises RuntimeError with the last line of what went wrong."""
    here = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), here]))
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
    command = [sys.executable, "-m", "benchmarks.gradient_rows"]
    text = json.dumps(task | {"threads": threads})
    try:
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"stopped after {timeout:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"the process ended with status {done.returncode}"]
        raise RuntimeError(lines[-1][:200])
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_all(console: Console, runs: list[Run], task: dict[str, Any], threads: int, timeout: float) -> Iterator[Any]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(runs))
        for run in runs:
            progress.update(bar, description=f"{run.family}, {run.setting}")
            try:
                row = child(task | {"run": asdict(run)}, threads, timeout)
            except RuntimeError as error:
                row = {"run": asdict(run), "error": str(error)}
            row |= {"family": run.family, "setting": run.setting}
            progress.advance(bar)
            yield row | {"meets_goal": meets_goal(row)}


def meets_goal(row: dict[str, Any]) -> bool:
    errors = (row.get("error_u0"), row.get("error_theta"))
    if row.get("error") or any(error is None or not error <= GOAL for error in errors):
        return False
    return bool(row["nfe_backward"] <= BACKWARD_GOAL * row["nfe_forward"])


def table(report: dict[str, Any]) -> Table:
    title = f"Gradients through GRAND on {report['problem']['title']}, T = {report['problem']['end']:g}"
    made = Table(title=title, box=SIMPLE_HEAD, caption=COUNTING, caption_justify="left")
    made.add_column("solver", no_wrap=True)
    made.add_column("setting", no_wrap=True)
    for name in ("NFE fwd", "NFE bwd", "err u(T)", "err dL/du0", "err dL/dθ", "s fwd", "s bwd", "MiB"):
        made.add_column(name, justify="right")
    for row in report["rows"]:
        style = "bold green" if row["meets_goal"] else "red" if row.get("error") else ""
        made.add_row(row["family"], row["setting"], *shown.cells(row, FORMS), style=style)
    return made


def describe(problem: Problem) -> dict[str, Any]:
    source = graphs.SOURCES[problem.graph]
    counts = {"nodes": source.nodes, "edges": source.edges, "features": source.features, "classes": source.classes}
    return {"title": source.title, **counts, **asdict(problem), "equation": "du/dt = A(u) u - u", "dtype": "float32"}


def main(
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the npz file; or PROXODE_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON and the picture.")] = Path("benchmarks/results"),
    quick: Annotated[bool, typer.Option("--quick", help="Cora and few rows: a minute.")] = False,
    only: Annotated[str, typer.Option(help="Only rows whose solver and setting contain this.")] = "",
    heads: Annotated[int, typer.Option(help="Attention heads.")] = Problem.heads,
    attention_std: Annotated[
        float, typer.Option(help="Standard deviation of query and key weights.")
    ] = Problem.attention_std,
    embedding_std: Annotated[
        float | None, typer.Option(help="Standard deviation of the embedding; by default 1/sqrt(3 fan-in).")
    ] = None,
    end: Annotated[float, typer.Option(help="The last time T.")] = Problem.end,
    seed: Annotated[int, typer.Option(help="Seed of embedding, attention and read-out.")] = Problem.seed,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the references; by default one below the system's for such things.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of every run.")] = 2,
    timeout: Annotated[float, typer.Option(help="Seconds that a row may take.")] = 1800,
    max_calls: Annotated[int | None, typer.Option(help="Calls of f that a row may make; 1000, quick 500.")] = None,
) -> None:
    """Errors and cost of dL/du0 and dL/dtheta, torchdiffeq beside proxode."""
    console = shown.console()
    max_calls = max_calls or (500 if quick else 1000)
    graph = "cora" if quick else "coauthor_cs"
    try:
        files.find(graphs.SOURCES[graph].data_file, data_dir)
    except FileNotFoundError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(2) from None
    problem = Problem(graph, heads=heads, attention_std=attention_std, embedding_std=embedding_std, end=end, seed=seed)
    runs = [run for run in all_runs(quick) if only in f"{run.family}, {run.setting}"]
    reference = reference_path(problem, cache or Path(tempfile.gettempdir()) / "proxode-benchmarks")
    task = {
        "problem": asdict(problem),
        "data_dir": None if data_dir is None else str(data_dir),
        "reference": str(reference),
        "max_calls": max_calls,
        "run": None,
    }
    with console.status("the reference: DOPRI5 at 1e-8 in float64"):
        found = child(task, threads, timeout=4 * timeout)
    path = out / ("gradients_cora.json" if quick else "gradients_coauthor.json")
    report = {
        "experiment": "gradients_coauthor",
        "provenance": provenance(seed, "torchdiffeq", "numpy", threads=threads),
        "problem": describe(problem),
        "reference": found,
        "counting": COUNTING,
        "goal": {"error": GOAL, "backward_over_forward": BACKWARD_GOAL, "max_calls": max_calls},
        "rows": [],
    }
    for row in run_all(console, runs, task, threads, timeout):
        report["rows"].append(row)
        write_report(path, report)  # a killed run keeps what it has
    console.print(table(report))
    for row in report["rows"]:
        if row.get("error"):
            console.print(f"[red]{row['family']}, {row['setting']}[/red]: {row['error']}", highlight=False)
    from .gradients_plot import draw

    draw(json.loads(path.read_text()), path.with_suffix(".png"))
    console.print(f"written: {path} and {path.with_suffix('.png').name}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
