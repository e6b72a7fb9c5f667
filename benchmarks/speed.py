"""Time, evaluations and memory beside other libraries, to the same error, in one run and in turns.

    python -m benchmarks.speed --out benchmarks/results
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from proxode.paper.report import provenance

from . import shown
from .contest import contest
from .rows import Report, Row, chosen, opened, stored
from .speed_plot import draw
from .speed_works import OURS, Work, all_works, quick_works

PACKAGES = ("torchdiffeq", "torchode", "diffrax", "jax", "scikit-sundae", "scipy", "numpy")
SLOPE = 1.0  # of NFE against the number of points; explicit methods have 2
COUNTING = (
    "Each solver runs in a process of its own at the loosest tolerance whose error is small enough; then all take "
    "turns, and the best time of each counts, after one run that is not timed (a turn is up to ten runs where they are "
    "short). NFE are calls of f and products with "
    "its Jacobian; diffrax does not tell them. Memory is the growth of the resident set during the first run."
)


def run(works: list[Work], report: Report, console: Console) -> None:
    """Every contest that the report does not have; each is written when it is over."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(works))
        for work in works:
            if report.find({"work": work.name}) is None:
                rows = contest(work.entries, work.rules, lambda text, work=work: progress.update(
                    bar, description=f"{work.title}: {text}"))  # fmt: skip
                report.rows += [_row(work, row) for row in rows]
                report.write()
            progress.advance(bar)


def with_threads(work: Work, count: int) -> Work:
    return replace(work, entries=tuple(replace(entry, threads=count) for entry in work.entries))


def _row(work: Work, row: Row) -> Row:
    per_nfe = row["seconds"] / row["nfe"] if row.get("seconds") and row.get("nfe") else None
    return {"work": work.name, "title": work.title, "size": work.size, **row, "seconds_per_nfe": per_nfe}


def judged(works: list[Work], rows: list[Row]) -> list[Row]:
    """Every bound, with what was measured: ours over theirs. None where one of the two has no number."""
    found = {(row["work"], row["solver"]): row for row in rows}
    made = []
    for work in works:
        ours = found.get((work.name, OURS), {})
        for bound in work.bounds:
            theirs = found.get((work.name, bound.against), {}) if bound.against else {bound.what: 1.0, "status": ""}
            mine, other = ours.get(bound.what), theirs.get(bound.what)
            ratio = mine / other if mine and other else None
            made.append({"work": work.name, "title": work.title, **asdict(bound), "ours": mine, "theirs": other,
                         "ratio": ratio, "met": None if ratio is None else ratio <= bound.at_most,
                         "status": theirs.get("status", "NOT_RUN")})  # fmt: skip
    slope = nfe_slope(rows)
    if slope is not None:
        made.append({"work": "scaling", "title": "NFE against N, diffusion", "against": "", "what": "slope",
                     "at_most": SLOPE, "ours": None, "theirs": None, "ratio": slope, "met": slope <= SLOPE,
                     "status": ""})  # fmt: skip
    return made


def nfe_slope(rows: list[Row]) -> float | None:
    """Of log NFE against log N, by least squares."""
    points = [(math.log(row["size"]), math.log(row["nfe"])) for row in rows
              if row["work"].startswith("scaling_") and row["status"] == "SUCCESS"]  # fmt: skip
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def finish(works: list[Work], report: Report, console: Console) -> None:
    """Judge and draw what there is: works without a row were not run."""
    ran = {row["work"] for row in report.rows}
    made = judged([work for work in works if work.name in ran], report.rows)
    report.write(bounds=made)
    draw(json.loads(report.path.read_text()), report.path.with_suffix(".png"))
    console.print(bounds_table(made))
    console.print(rows_table(report.rows))
    for row in report.rows:
        if row["status"] != "SUCCESS":
            console.print(f"{row['title']}, {row['solver']}: {row['message']}", style="red", highlight=False)
    for work in works:
        if work.name not in ran:
            console.print(f"{work.title}: not run", style="red", highlight=False)
    console.print(f"written: {report.path}", highlight=False)


def bounds_table(made: list[Row]) -> Table:
    table = Table(title="Ours over theirs", box=SIMPLE_HEAD)
    for name in ("work", "against", "of"):
        table.add_column(name, no_wrap=True)
    for name in ("ratio", "at most", ""):
        table.add_column(name, justify="right")
    for line in made:
        ratio = line["status"].lower() if line["ratio"] is None else f"{line['ratio']:.3g}"
        met = {True: "met", False: "not met", None: ""}[line["met"]]
        names = line["title"], line["against"] or "", line["what"]
        table.add_row(*names, ratio, f"{line['at_most']:.3g}", met, style="" if line["met"] else "red")
    return table


FORMS = {"tol": "{:.0e}", "error": "{:.1e}", "nfe": "{:,}", "seconds": "{:.4g}", "peak_mib": "{:,.0f}"}


def rows_table(rows: list[Row]) -> Table:
    table = Table(title="All rows", box=SIMPLE_HEAD, caption=COUNTING, caption_justify="left")
    table.add_column("work", no_wrap=True)
    table.add_column("solver", no_wrap=True)
    for name in (*FORMS, "status"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        style = "red" if row["status"] != "SUCCESS" else "bold" if row["solver"] == OURS else ""
        table.add_row(row["title"], row["solver"], *shown.cells(row, FORMS), row["status"], style=style)
    return table


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path("benchmarks/results"),
    quick: Annotated[bool, typer.Option("--quick", help="Small works, for the shape of the report.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from a report of the same code.")] = False,
    work: Annotated[str, typer.Option(help="Only works whose names contain one of these, with commas.")] = "",
    data_dir: Annotated[Path | None, typer.Option(help="Folder with Coauthor-CS, for the works on it.")] = None,
    threads: Annotated[int, typer.Option(help="Cores that each library may use, one process at a time.")] = 2,
    redraw: Annotated[bool, typer.Option("--redraw", help="Only bounds and picture, from the rows there.")] = False,
) -> None:
    """Where we stand beside torchdiffeq, torchode, diffrax, CVODE and SciPy."""
    console = shown.console()
    everything = {w.name: w for w in (quick_works() if quick else all_works(data_dir and str(data_dir)))}
    works = [with_threads(everything[name], threads) for name in chosen(work, everything)]
    os.environ["OMP_NUM_THREADS"] = str(threads)
    header: dict[str, Any] = {
        "experiment": "speed", "counting": COUNTING,
        "provenance": provenance(0, *PACKAGES, threads=threads),
        "works": [{"name": w.name, "title": w.title, "error": w.rules.error, "seconds": w.rules.seconds}
                  for w in everything.values()],
    }  # fmt: skip
    path = out / f"speed{'_quick' if quick else ''}.json"
    if redraw:
        return finish(works, stored(path, "bounds"), console)
    report = opened(path, header, resume, console)
    run(works, report, console)
    finish(works, report, console)


if __name__ == "__main__":
    typer.run(main)
