"""What `auto` costs beside the better of the two methods it chooses from, on problems stiff and not.

    python -m benchmarks.auto_switching --out benchmarks/results
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from proxode.paper.report import provenance

from . import shown
from .auto_problems import auto_problems
from .peers import Limits, Solver, measure, ours
from .references import CACHE, prepare, reference
from .rows import Row, Task, chosen, fill, opened
from .stiff_problems import SEED, Problem

TOLERANCES = (1e-3, 1e-6)
METHODS = ("dopri5", "bdf", "auto")
MOST = 4  # switches that a table has room for
GOOD = 100.0  # tolerances that the error at the end may be, for a method to be compared
LIKE = 3.0  # times the least error of the three that it may be: an orbit of many turns is off by more for everybody
SOLVERS = {name: Solver(name, "proxode", "explicit" if name == "dopri5" else "default", ours(name)) for name in METHODS}


def tasks(problems: list[Problem], cache: Path, limits: Limits) -> list[Task]:
    def make(p: Problem, method: str, tol: float) -> Row:
        return measure(SOLVERS[method], p, reference(p, cache), tol, limits)

    return [({"problem": p.name, "solver": method, "tol": tol}, partial(make, p, method, tol))
            for p in problems for tol in TOLERANCES for method in METHODS]  # fmt: skip


def good(row: Row, those: Iterable[Row]) -> bool:
    """Whether a row may be compared with those of the same problem and tolerance."""
    least = min((other["final_rms_over_tol"] for other in those if other["status"] == "SUCCESS"), default=0.0)
    return row["status"] == "SUCCESS" and row["final_rms_over_tol"] <= max(GOOD, LIKE * least)


def compared(rows: list[Row]) -> list[Row]:
    """For each problem and tolerance: the NFE of the three, and of `auto` over the better of the others."""
    made = []
    for problem, tol in dict.fromkeys((row["problem"], row["tol"]) for row in rows):
        those = {row["solver"]: row for row in rows if (row["problem"], row["tol"]) == (problem, tol)}
        rivals = {name: those[name]["nfe"] for name in METHODS[:2] if name in those
                  and good(those[name], those.values())}  # fmt: skip
        better = min(rivals, key=lambda name: rivals[name], default=None)
        auto = those.get("auto")
        comparable = better is not None and auto is not None and good(auto, those.values())
        ratio = auto["nfe"] / rivals[better] if comparable and auto and better else None
        made.append({"problem": problem, "tol": tol, "better": better, "ratio": ratio, "did": what_auto_did(auto)})
    return made


def what_auto_did(row: Row | None) -> str:
    """The methods in turn, each with the time from which it was used."""
    switches = row["details"].get("switches", []) if row is not None else []
    shown_first = [f"{name} from {t:.3g}" for t, name in switches[:MOST]]
    return ", ".join(shown_first) + (f", {len(switches) - MOST} more" if len(switches) > MOST else "")


def table(rows: list[Row], lines: list[Row]) -> Table:
    caption = f"auto / better: only errors at the end within {GOOD:g} tolerances, or {LIKE:g} times the least"
    title = "NFE (and largest error in tolerances, RMS)"
    made = Table(title=title, box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for name in ("problem", "tol", *METHODS, "auto / better", "better", "auto did"):
        justify: Any = "left" if name in ("problem", "better", "auto did") else "right"
        made.add_column(name, justify=justify, no_wrap=name != "auto did")
    found = {(row["problem"], row["tol"], row["solver"]): row for row in rows}
    for line in lines:
        cells = [_cell(found.get((line["problem"], line["tol"], method))) for method in METHODS]
        ratio = line["ratio"]
        style = "red" if ratio is None or ratio > 2 else "yellow" if ratio > 1.3 else ""
        made.add_row(line["problem"], shown.power(line["tol"]), *cells, "-" if ratio is None else f"{ratio:.2f}",
                     line["better"] or "-", line["did"] or "-", style=style)  # fmt: skip
    return made


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"{row['nfe']:,} ({row['rms_over_tol']:.2g})" if row["status"] == "SUCCESS" else row["status"].lower()


def mean_ratio(lines: list[Row]) -> float | None:
    ratios = [line["ratio"] for line in lines if line["ratio"]]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path("benchmarks/results"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from a report of the same code.")] = False,
    problem: Annotated[str, typer.Option(help="Only problems whose names contain one of these, with commas.")] = "",
    max_nfe: Annotated[int, typer.Option(help="Evaluations of a row.")] = 150_000,
    cache: Annotated[Path, typer.Option(help="Folder for the reference solutions.")] = CACHE,
) -> None:
    """NFE and errors of dopri5, bdf and auto."""
    torch.set_num_threads(1)
    console, limits = shown.console(), Limits(nfe=max_nfe)
    problems = {p.name: p for p in auto_problems()}
    header = {
        "experiment": "auto_switching",
        "provenance": provenance(SEED, "scipy", "numpy"),
        "limits": {"nfe": limits.nfe, "seconds": limits.seconds},
        "good": GOOD,
        "like": LIKE,
        "problems": [{"name": p.name, "title": p.title, "size": p.size, "t": [p.t0, p.t1]} for p in problems.values()],
    }
    report = opened(out / "auto_switching.json", header, resume, console)
    picked = [problems[name] for name in chosen(problem, problems)]
    prepare(picked, cache, console)
    todo = tasks(picked, cache, limits)
    fill(report, todo, console, lambda key: f"{key['problem']}, {key['solver']}, {key['tol']:g}")
    lines = compared(report.rows)
    report.write(compared=lines, mean_ratio=mean_ratio(lines))
    console.print(table(report.rows, lines))
    mean = mean_ratio(lines)
    if mean is not None:
        console.print(f"auto / better, geometric mean: {mean:.2f}", highlight=False)
    console.print(f"written: {report.path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
