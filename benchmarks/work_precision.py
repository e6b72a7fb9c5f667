"""Error against work on stiff problems: proxode beside CVODE, SciPy and torchdiffeq, in one run.

    python -m benchmarks.work_precision --out benchmarks/results

Every solver gets the same f, the same tolerances and the same limits, and f itself counts its calls.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from proxode.paper.report import provenance

from . import shown
from .peers import SOLVERS, Limits, Solver, measure
from .references import CACHE, WAYS, prepare, reference
from .rows import Report, Row, Task, chosen, fill, opened, stored
from .stiff_problems import SEED, Problem, all_problems

TOLERANCES = tuple(10.0**-k for k in range(2, 10))
QUICK_TOLERANCES = (1e-3, 1e-6)
FURTHER = (1e-1, 1e-10, 1e-11)  # of CVODE: its curve is to reach all errors that ours has
NO_DIGIT = 1.0  # relative error from which a point is no part of a curve
NEWTON, FREE = "proxode bdf, newton", "proxode bdf, matrix-free"
PAIRS = {
    "dense": (NEWTON, "CVODE dense"), "dense, against sparse": (NEWTON, "CVODE sparse"),
    "matrix-free": (FREE, "CVODE GMRES"), "matrix-free, against 100 vectors": (FREE, "CVODE GMRES, 100 vectors"),
}  # fmt: skip

COUNTING = (
    "NFE: calls of f and products with its Jacobian count one each, a dense Jacobian its columns. proxode counts its "
    "own; for the others f counts its calls, those of difference quotients among them. SciPy is given the Jacobian. "
    "Errors are the largest at the output times: `error` in units of the largest value of each component, "
    "`*_over_tol` in units of atol + rtol |y|."
)


def solvers_for(problem: Problem) -> list[Solver]:
    """Products in place of a matrix, and zeros in it, are for large states."""
    return [s for s in SOLVERS if problem.kind == "large" or s.algebra not in ("matrix-free", "sparse")]


def tasks(problems: list[Problem], report: Report, only: str, tolerances: tuple[float, ...], cache: Path,
          limits: Limits) -> list[Task]:  # fmt: skip
    made: list[Task] = []
    for problem in problems:
        labels = chosen(only, (solver.label for solver in solvers_for(problem)))
        for solver in (solver for solver in solvers_for(problem) if solver.label in labels):
            further = FURTHER if tolerances == TOLERANCES and solver.library == "CVODE" else ()
            for tol in sorted(tolerances + further, reverse=True):
                key = {"problem": problem.name, "solver": solver.label, "tol": tol}
                made.append((key, partial(one, report, solver, problem, tol, cache, limits)))
    return made


def one(report: Report, solver: Solver, problem: Problem, tol: float, cache: Path, limits: Limits) -> Row:
    """A row, unless the solver was stopped at a looser tolerance: it would be stopped again."""
    for row in report.rows:
        if (row["problem"], row["solver"], row["status"]) == (problem.name, solver.label, "STOPPED"):
            message = f"not run: at {row['tol']:g} it was {row['message']}"
            return {"library": solver.library, "algebra": row["algebra"], "status": "NOT_RUN", "message": message}
    return measure(solver, problem, reference(problem, cache), tol, limits)


# The summary


def summary(rows: list[Row]) -> list[Row]:
    """For each problem and kind of algebra: our NFE over CVODE's at each tolerance, and how errors keep to it."""
    found = {(row["problem"], row["solver"], row["tol"]): row for row in rows}
    made = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        for algebra, labels in PAIRS.items():
            ours, theirs = ([row for row in rows if (row["problem"], row["solver"]) == (problem, label)]
                            for label in labels)  # fmt: skip
            if not ours or not theirs:
                continue
            asked = {row["tol"] for row in ours}
            entries = [_compared(row, found.get((problem, labels[1], row["tol"])), theirs) for row in ours]
            made.append({
                "problem": problem, "algebra": algebra, "ours": labels[0], "theirs": labels[1], "ratios": entries,
                "nfe_at_equal_error": _mean([entry["nfe_at_equal_error"] for entry in entries]),
                "worst_at_equal_error": max((e["nfe_at_equal_error"] or 0.0 for e in entries), default=0.0) or None,
                **{f"{whose}_largest_{norm}": _largest([row for row in those if row["tol"] in asked], norm) for
                   whose, those in (("ours", ours), ("theirs", theirs)) for norm in ("rms_over_tol", "max_over_tol")},
            })  # fmt: skip
    return made


def _compared(ours: Row, theirs: Row | None, curve: list[Row]) -> Row:
    done = theirs is not None and ours["status"] == theirs["status"] == "SUCCESS"
    nfe = nfe_at(curve, ours["error"]) if ours["status"] == "SUCCESS" else None
    return {
        "tol": ours["tol"],
        "nfe": ours["nfe"] / theirs["nfe"] if done and theirs is not None else None,
        "nfe_at_equal_error": None if nfe is None else ours["nfe"] / nfe,
        "seconds": ours["seconds"] / theirs["seconds"] if done and theirs is not None else None,
    }


def nfe_at(curve: list[Row], error: float) -> float | None:
    """The NFE at which a curve has this error, between its points by logarithms. Before its first point, those of that
    point, which has a smaller error; None beyond its last."""
    points = [(math.log(row["error"]), math.log(row["nfe"])) for row in curve
              if row["status"] == "SUCCESS" and 0.0 < row["error"] < NO_DIGIT]  # fmt: skip
    if not error or not points:
        return None
    if math.log(error) > max(points)[0]:
        return math.exp(max(points)[1])
    for (e0, n0), (e1, n1) in itertools.pairwise(points):
        if min(e0, e1) <= math.log(error) <= max(e0, e1) and e0 != e1:
            return math.exp(n0 + (n1 - n0) * (math.log(error) - e0) / (e1 - e0))
    return None


def _mean(ratios: list[float | None]) -> float | None:
    """The geometric mean of those that there are."""
    logarithms = [math.log(ratio) for ratio in ratios if ratio]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def _largest(rows: list[Row], norm: str) -> float | None:
    return max((row[norm] for row in rows if row["status"] == "SUCCESS"), default=None)


def summary_table(made: list[Row]) -> Table:
    tolerances = sorted({entry["tol"] for line in made for entry in line["ratios"]}, reverse=True)
    table = Table(title="NFE of proxode bdf over those of CVODE, and the largest error in units of the tolerance (RMS)",
                  box=SIMPLE_HEAD)  # fmt: skip
    table.add_column("problem", no_wrap=True)
    table.add_column("algebra", no_wrap=True)
    for name in (*(shown.power(tol) for tol in tolerances), "equal error", "at worst", "err/tol", "theirs"):
        table.add_column(name, justify="right")
    for line in made:
        ratios = {entry["tol"]: entry["nfe"] for entry in line["ratios"]}
        cells = ["-" if ratios.get(tol) is None else f"{ratios[tol]:.2f}" for tol in tolerances]
        forms = {"nfe_at_equal_error": "{:.2f}", "worst_at_equal_error": "{:.2f}",
                 "ours_largest_rms_over_tol": "{:.1f}", "theirs_largest_rms_over_tol": "{:.1f}"}  # fmt: skip
        table.add_row(line["problem"], line["algebra"], *cells, *shown.cells(line, forms))
    return table


# The console


FORMS = {
    "nfe": "{:,}", "calls": "{:,}", "seconds": "{:.2f}", "error": "{:.1e}", "rms_over_tol": "{:.3g}",
    "max_over_tol": "{:.3g}",
}  # fmt: skip


def table(rows: list[Row]) -> Table:
    made = Table(title="Stiff problems", box=SIMPLE_HEAD, caption=COUNTING, caption_justify="left")
    for name in ("problem", "solver", "tol"):
        made.add_column(name, no_wrap=True)
    for name in ("NFE", "calls of f", "s", "error", "RMS/tol", "max/tol", "status"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        style = "red" if row["status"] != "SUCCESS" else "bold" if row["library"] == "proxode" else ""
        cells = shown.cells(row, FORMS)
        made.add_row(row["problem"], row["solver"], shown.power(row["tol"]), *cells, row["status"], style=style)
    return made


def finish(report: Report, console: Console) -> None:
    made = summary(report.rows)
    report.write(summary=made)
    console.print(table(report.rows))
    for row in report.rows:
        if row["status"] not in ("SUCCESS", "NOT_RUN"):
            where = f"{row['problem']}, {row['solver']}, {row['tol']:g}"
            console.print(f"{where}: {row['status']}, {row['message']}", style="red", highlight=False)
    console.print(summary_table(made))
    from .work_precision_plot import draw

    path = report.path
    draw(json.loads(path.read_text()), path.with_suffix(".png"))
    console.print(f"written: {path} and {path.with_suffix('.png').name}", highlight=False)


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON and the picture.")] = Path("benchmarks/results"),
    quick: Annotated[bool, typer.Option("--quick", help="Two tolerances and low limits: five minutes.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from a report of the same code.")] = False,
    problem: Annotated[str, typer.Option(help="Only problems whose names contain one of these, with commas.")] = "",
    solver: Annotated[str, typer.Option(help="Only solvers whose names contain one of these, with commas.")] = "",
    redraw: Annotated[bool, typer.Option("--redraw", help="Only summary and picture, from the rows there.")] = False,
    max_nfe: Annotated[int | None, typer.Option(help="Evaluations of a row; 300,000, quick 20,000.")] = None,
    max_seconds: Annotated[float, typer.Option(help="Seconds of a run.")] = Limits.seconds,
    cache: Annotated[Path, typer.Option(help="Folder for the reference solutions.")] = CACHE,
) -> None:
    """Error, NFE and time at tolerances from 1e-2 to 1e-9."""
    torch.set_num_threads(1)
    console = shown.console()
    problems = {p.name: p for p in all_problems()}
    limits = Limits(max_nfe or (20_000 if quick else Limits.nfe), max_seconds)
    tolerances = QUICK_TOLERANCES if quick else TOLERANCES
    header = {
        "experiment": "work_precision",
        "provenance": provenance(SEED, "scipy", "scikit-sundae", "torchdiffeq", "numpy"),
        "counting": COUNTING,
        "tolerances": list(tolerances),
        "limits": {"nfe": limits.nfe, "seconds": limits.seconds},
        "reference": asdict(WAYS["tight"]),
        "problems": [{"name": p.name, "title": p.title, "size": p.size, "kind": p.kind, "t": [p.t0, p.t1]}
                     for p in problems.values()],
    }  # fmt: skip
    path = out / f"work_precision{'_quick' if quick else ''}.json"
    if redraw:
        return finish(stored(path, "summary"), console)
    report = opened(path, header, resume, console)
    picked = [problems[name] for name in chosen(problem, problems)]
    prepare(picked, cache, console)
    todo = tasks(picked, report, solver, tolerances, cache, limits)
    fill(report, todo, console, lambda key: f"{key['problem']}, {key['solver']}, {key['tol']:.0e}")
    finish(report, console)


if __name__ == "__main__":
    typer.run(main)
