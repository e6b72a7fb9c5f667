"""Up to which size dense Newton is the cheaper inner solver of `bdf`: the basis for what `inner="auto"` takes.

    python -m benchmarks.dense_threshold --out benchmarks/results
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

import proxode.inner
from proxode.paper.diffusion import Diffusion, density
from proxode.paper.report import provenance

from . import shown
from .peers import Limits, Solver, measure, ours
from .references import CACHE, prepare, reference
from .rows import Row, Task, chosen, fill, opened
from .stiff_problems import SEED, Field, Problem, brusselator, brusselator_start, equal_times, problem

SIZES = tuple(2**k for k in range(1, 10))
QUICK_SIZES = (4, 16, 64)
TOLERANCES = (1e-3, 1e-6)
MARGIN = 1.1  # costs closer than this are the same
DENSE, FREE = "newton", "matrix-free"
SOLVERS = {
    DENSE: Solver(DENSE, "proxode", "dense", ours("bdf", "newton")),
    FREE: Solver(FREE, "proxode", "matrix-free", ours("bdf", krylov=True)),  # anderson, then newton_krylov
}


def diffusion(size: int) -> Problem:
    ring, h0 = Diffusion(size), density(size)
    return problem(f"diffusion_{size}", f"diffusion, {size}", ring.f, h0, equal_times(1.0),
                   exact=lambda t: ring.exact(h0, t))  # fmt: skip


def reaction(size: int) -> Problem:
    points = size // 2
    return problem(f"brusselator_{size}", f"Brusselator, {size}", brusselator(points), brusselator_start(points),
                   equal_times(10.0), reference="fair")  # fmt: skip


def stiff_network(size: int) -> Field:
    """Units that follow a layer of the others, at rates from 1 to 1e4 that lie close: hard for a Krylov space."""
    generator = torch.Generator().manual_seed(SEED)
    weights = torch.randn(size, size, generator=generator, dtype=torch.float64) / math.sqrt(size)
    phases = torch.rand(size, generator=generator, dtype=torch.float64)
    rates = 10.0 ** torch.linspace(0, 4, size, dtype=torch.float64)
    return lambda t, y: rates * (torch.tanh(weights @ y + torch.cos(t + phases)) - y)


def network(size: int) -> Problem:
    y0 = torch.linspace(-1, 1, size, dtype=torch.float64)
    return problem(f"network_{size}", f"random network, {size}", stiff_network(size), y0, equal_times(10.0),
                   reference="fair")  # fmt: skip


FAMILIES: dict[str, Callable[[int], Problem]] = {"diffusion": diffusion, "brusselator": reaction, "network": network}


def tasks(families: list[str], sizes: tuple[int, ...], cache: Path, limits: Limits) -> list[Task]:
    def make(family: str, size: int, solver: str, tol: float) -> Row:
        p = FAMILIES[family](size)
        return measure(SOLVERS[solver], p, reference(p, cache), tol, limits)

    return [({"family": family, "size": size, "tol": tol, "solver": solver}, partial(make, family, size, solver, tol))
            for family in families for tol in TOLERANCES for size in sizes for solver in SOLVERS]  # fmt: skip


def crossings(rows: list[Row]) -> list[Row]:
    """For each family, tolerance and cost: the largest size up to which dense Newton is nowhere the dearer."""
    made = []
    for family, tol in dict.fromkeys((row["family"], row["tol"]) for row in rows):
        those = [row for row in rows if (row["family"], row["tol"]) == (family, tol)]
        made.append({"family": family, "tol": tol, **{cost: crossing(those, cost) for cost in ("nfe", "seconds")}})
    return made


def crossing(rows: list[Row], cost: str) -> int | None:
    """None where it is the dearer already at the smallest size. A solve that failed costs without end."""
    last = None
    for size in sorted({row["size"] for row in rows}):
        costs = {row["solver"]: row[cost] if row["status"] == "SUCCESS" else math.inf
                 for row in rows if row["size"] == size}  # fmt: skip
        if math.isinf(costs.get(DENSE, math.inf)) or costs[DENSE] > MARGIN * costs.get(FREE, math.inf):
            return last
        last = size
    return last


def table(rows: list[Row]) -> Table:
    sizes = sorted({row["size"] for row in rows})
    made = Table(title="bdf: NFE, and below it milliseconds, of dense Newton / matrix-free", box=SIMPLE_HEAD)
    for name in ("family", "tol", *map(str, sizes)):
        made.add_column(name, justify="left" if name in ("family", "tol") else "right", no_wrap=True)
    found = {(row["family"], row["tol"], row["size"], row["solver"]): row for row in rows}
    for family, tol in dict.fromkeys((row["family"], row["tol"]) for row in rows):
        cells = [[found.get((family, tol, size, solver)) for solver in SOLVERS] for size in sizes]
        for cost in ("nfe", "seconds"):
            names = (family, shown.power(tol)) if cost == "nfe" else ("", "ms")
            made.add_row(*names, *(" / ".join(_cell(row, cost) for row in pair) for pair in cells))
    return made


def _cell(row: Row | None, cost: str) -> str:
    if row is None or row["status"] != "SUCCESS":
        return "-" if row is None or cost != "nfe" else row["status"].lower()
    return f"{row['nfe']:,}" if cost == "nfe" else f"{1e3 * row['seconds']:,.0f}"


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path("benchmarks/results"),
    quick: Annotated[bool, typer.Option("--quick", help="Three sizes.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from a report of the same code.")] = False,
    family: Annotated[str, typer.Option(help="Only families whose names contain one of these, with commas.")] = "",
    max_nfe: Annotated[int, typer.Option(help="Evaluations of a row.")] = 20_000,
    cache: Annotated[Path, typer.Option(help="Folder for the reference solutions.")] = CACHE,
) -> None:
    """NFE and time of bdf with dense Newton and without matrices, for states of 2 to 512 numbers."""
    torch.set_num_threads(1)
    console, limits = shown.console(), Limits(nfe=max_nfe)
    header = {
        "experiment": "dense_threshold",
        "provenance": provenance(SEED, "scipy", "numpy"),
        "limits": {"nfe": limits.nfe, "seconds": limits.seconds},
        "dense_limit": proxode.inner.DENSE_LIMIT,
        "margin": MARGIN,
        "sizes": list(QUICK_SIZES if quick else SIZES),
    }
    report = opened(out / f"dense_threshold{'_quick' if quick else ''}.json", header, resume, console)
    families, sizes = chosen(family, FAMILIES), QUICK_SIZES if quick else SIZES
    prepare((FAMILIES[name](size) for name in families for size in sizes), cache, console)
    todo = tasks(families, sizes, cache, limits)
    fill(report, todo, console, lambda key: f"{key['family']}, n = {key['size']}, {key['solver']}, {key['tol']:g}")
    found = crossings(report.rows)
    report.write(crossings=found)
    console.print(table(report.rows))
    for line in found:
        until = ", ".join(f"{cost} {line[cost] or 'never'}" for cost in ("nfe", "seconds"))
        console.print(f"{line['family']}, {line['tol']:g}: newton is cheaper up to size: {until}", highlight=False)
    console.print(f"now dense up to {proxode.inner.DENSE_LIMIT}; written: {report.path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
