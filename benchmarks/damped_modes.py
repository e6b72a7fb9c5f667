"""What strong damping does to the gradient of a rate: `y' = -k (y - cos t)`, y(0) = 2, on [0, 1].

L is half the mean square of y at the ends of the steps; the table has dL/dlog k beside its exact value, as k h grows.

    python -m benchmarks.damped_modes --out benchmarks/results
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

import proxode
from proxode.paper.report import provenance, write_report

from . import shown

STEPS = 20
START = 2.0
RATES = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)
METHODS = ("backward_euler", "bdf2", "crank_nicolson")
TITLES = {
    "exact": "exact",
    "backward_euler": "backward Euler",
    "bdf2": "BDF2",
    "crank_nicolson": "Crank-Nicolson",
    "exact, resolved": "exact, times that crowd",
    "bdf2, resolved": "BDF2, times that crowd",
}


def closed_form(k: Tensor, t: Tensor) -> Tensor:
    """The slow solution, and what is left of the way to it."""
    slow = (k**2 * torch.cos(t) + k * torch.sin(t)) / (k**2 + 1)
    return slow + (START - k**2 / (k**2 + 1)) * torch.exp(-k * t)


def solved(method: str) -> Callable[[Tensor, Tensor], Tensor]:
    def y(k: Tensor, t: Tensor) -> Tensor:
        start = torch.tensor([START], dtype=t.dtype)
        return proxode.odeint(
            lambda s, y: -k * (y - torch.cos(s)), start, t, method=method, rtol=1e-10, atol=1e-12,
            options={"grid_constructor": lambda f, y0, t: t},
        )[:, 0]  # fmt: skip

    return y


def gradient(solution: Callable[[Tensor, Tensor], Tensor], k: float, t: Tensor) -> float:
    """dL/dlog k."""
    rate = torch.tensor(k, dtype=t.dtype, requires_grad=True)
    loss = 0.5 * solution(rate, t)[1:].square().mean()
    return k * float(torch.autograd.grad(loss, rate)[0])


def crowded(k: float) -> Tensor:
    """Times from a tenth of 1/k on, each interval longer than the last."""
    first = min(0.1 / k, 1.0 / STEPS)
    later = torch.logspace(torch.log10(torch.tensor(first)).item(), 0.0, 3 * STEPS, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.float64), later])


def measure(k: float) -> dict[str, float]:
    even = torch.linspace(0.0, 1.0, STEPS + 1, dtype=torch.float64)
    row = {"k": k, "kh": k / STEPS, "exact": gradient(closed_form, k, even)}
    row |= {method: gradient(solved(method), k, even) for method in METHODS}
    row["exact, resolved"] = gradient(closed_form, k, crowded(k))
    return row | {"bdf2, resolved": gradient(solved("bdf2"), k, crowded(k))}


def table(rows: list[dict[str, float]]) -> Table:
    made = Table(title="dL/dlog k of y' = -k (y - cos t), y(0) = 2", box=SIMPLE_HEAD)
    made.add_column("k h", justify="right")
    for title in TITLES.values():
        made.add_column(title, justify="right")
    for row in rows:
        made.add_row(f"{row['kh']:g}", *(f"{row[name]:.1e}" for name in TITLES))
    return made


def draw(report: dict[str, Any], path: Path) -> None:
    styles = {
        "exact": ("#222222", "-"), "backward_euler": ("#CC6677", "o-"), "bdf2": ("#4C9FD0", "s-"),
        "crank_nicolson": ("#999933", "^-"), "exact, resolved": ("#222222", "--"), "bdf2, resolved": ("#117733", "D--"),
    }  # fmt: skip
    figure = Figure(figsize=(7.5, 4.4), dpi=150, layout="constrained")
    panel = figure.subplots()
    for name, (colour, style) in styles.items():
        panel.loglog(
            [row["kh"] for row in report["rows"]], [abs(row[name]) for row in report["rows"]],
            style, color=colour, label=TITLES[name], lw=1.4, ms=5,
        )  # fmt: skip
    panel.set(xlabel="k h", ylabel="|dL/dlog k|")
    panel.set_title("y' = -k (y - cos t): the gradient of a rate that steps do not resolve", loc="left", fontsize=10)
    panel.legend(frameon=False, fontsize=9)
    panel.grid(True, color="#e6e6e6", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON and the picture.")] = Path("benchmarks/results"),
) -> None:
    """dL/dlog k by several methods, on even times and on times that resolve the fast part."""
    console = shown.console()
    report = {
        "experiment": "damped_modes", "provenance": provenance(None), "steps": STEPS,
        "start": START, "rows": [measure(k) for k in RATES],
    }  # fmt: skip
    console.print(table(report["rows"]))
    path = out / "damped_modes.json"
    write_report(path, report)
    draw(report, path.with_suffix(".png"))
    console.print(f"written: {path} and {path.with_suffix('.png').name}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
