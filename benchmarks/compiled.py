"""What `compile=True` gains, and after how many calls it has paid for itself; and what it would do to products.

    python -m benchmarks.compiled --out benchmarks/results
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import proxode
from proxode.paper.report import provenance

from . import shown
from .gradient_rows import Problem, build
from .rows import Row, Task, fill, opened

SEED, TOL, REPEATS = 0, 1e-6, 7
Field = Callable[[Tensor, Tensor], Tensor]
COUNTING = (
    "One thread, no gradient, tolerance 1e-6. Plain and compiled solves take turns, and the best processor time of "
    "each counts. The first call is the wall time of the first compiled solve, with all that the compiler does; "
    "break-even is that over the time saved by one call. Rows of f and of a vector-Jacobian product are one call of "
    "torch.compile(f), which `compile=True` uses for f alone."
)


def decay(n: int) -> tuple[Field, Tensor, float]:
    return lambda t, y: -y, torch.ones(n, dtype=torch.float64), 10.0


def network(n: int) -> tuple[Field, Tensor, float]:
    torch.manual_seed(SEED)
    layers = (nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n))
    net = nn.Sequential(*layers).double()
    return lambda t, y: net(y), torch.randn(n, dtype=torch.float64), 10.0


def brusselator(n: int) -> tuple[Field, Tensor, float]:
    """On a ring of n/2 points; mildly stiff, so that an explicit method takes a few hundred steps."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        u, v = y[: n // 2], y[n // 2 :]
        reaction = u * u * v
        return torch.cat([1.0 - 4.0 * u + reaction + spread(u), 3.0 * u - reaction + spread(v)])

    def spread(w: Tensor) -> Tensor:
        return 10.0 * (torch.roll(w, 1) - 2.0 * w + torch.roll(w, -1))

    x = torch.linspace(0.0, 2.0 * torch.pi, n // 2, dtype=torch.float64)
    return f, torch.cat([1.0 + x.sin(), 3.0 + 0.0 * x]), 5.0


FIELDS = {"decay": decay, "network": network, "brusselator": brusselator}


def grand(data_dir: Path) -> tuple[Field, Tensor, float]:
    warnings.filterwarnings("ignore", message=".*Sparse.*")
    f, u0, _, _ = build(Problem(graph="cora"), data_dir, torch.float32)
    return f, u0.detach(), 2.0


def best(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Processor seconds of each, in turns."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name] = min(times[name], time.process_time() - begin)
    return times


def first_call(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def row(calls: dict[str, Callable[[], Any]], repeats: int) -> Row:
    first = first_call(calls["compiled"])
    calls["plain"]()
    times = best(calls, repeats)
    saved = times["plain"] - times["compiled"]
    return {"plain": times["plain"], "compiled": times["compiled"], "ratio": times["compiled"] / times["plain"],
            "first": first, "break_even": first / saved if saved > 0 else None, "status": "SUCCESS"}  # fmt: skip


def refused(error: Exception) -> Row:
    return {"status": "FAILED", "message": str(error).split(". ")[0]}


def solve_row(given: tuple[Field, Tensor, float], method: str, repeats: int) -> Row:
    torch._dynamo.reset()
    f, y0, end = given
    t = torch.tensor([0.0, end], dtype=torch.float64)

    def run(**options: Any) -> tuple[Tensor, int]:
        with torch.no_grad(), proxode.record() as stats:
            y = proxode.odeint(f, y0, t, rtol=TOL, atol=TOL, method=method, options=options)
        return y[-1], stats.nfe_forward

    try:
        made = row({"plain": run, "compiled": lambda: run(compile=True)}, repeats)
    except RuntimeError as error:
        return refused(error)
    (y, nfe), (z, _) = run(), run(compile=True)
    return made | {"nfe": nfe, "difference": float((y - z).abs().max())}


def product_row(given: tuple[Field, Tensor, float], product: bool, repeats: int) -> Row:
    """f, or f and a vector-Jacobian product, through torch.compile."""
    torch._dynamo.reset()
    f, y0, _ = given
    t = torch.zeros((), dtype=y0.dtype)

    def call(func: Field) -> Any:
        if not product:
            with torch.no_grad():
                return func(t, y0)
        z = y0.detach().requires_grad_()
        out = func(t, z)
        return torch.autograd.grad(out, z, torch.ones_like(out))

    compiled = torch.compile(f, dynamic=False)
    try:
        return row({"plain": lambda: call(f), "compiled": lambda: call(compiled)}, 50 * repeats)
    except RuntimeError as error:
        return refused(error)


def all_tasks(data_dir: Path | None, repeats: int, quick: bool) -> list[Task]:
    solves = [("decay", 10), ("decay", 100_000), ("network", 10), ("network", 1000), ("brusselator", 128),
              ("brusselator", 100_000)]  # fmt: skip
    tasks: list[Task] = []
    for name, n in solves[:1] if quick else solves:
        key = {"what": "solve, dopri5", "problem": name, "size": n}
        tasks.append((key, lambda name=name, n=n: solve_row(FIELDS[name](n), "dopri5", repeats)))
    if not quick:
        tasks.append(({"what": "solve, bdf", "problem": "brusselator", "size": 2000},
                      lambda: solve_row(brusselator(2000), "bdf", repeats)))  # fmt: skip
    if data_dir is not None:
        size = {"problem": "GRAND on Cora", "size": int(grand(data_dir)[1].numel())}
        tasks.append(({"what": "solve, dopri5", **size}, lambda: solve_row(grand(data_dir), "dopri5", repeats)))
        for product in (False, True):
            key = {"what": "f and product" if product else "f", **size}
            tasks.append((key, lambda product=product: product_row(grand(data_dir), product, repeats)))
    for name, n in () if quick else solves[2:]:
        for product in (False, True):
            key = {"what": "f and product" if product else "f", "problem": name, "size": n}
            tasks.append((key, lambda name=name, n=n, product=product: product_row(FIELDS[name](n), product, repeats)))
    return tasks


def main(
    out: Annotated[Path, typer.Option(help="Folder for compiled.json.")] = Path("benchmarks/results"),
    data_dir: Annotated[Path | None, typer.Option(help="Folder with cora.npz, for GRAND.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One small problem.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the report of a run that was killed.")] = False,
) -> None:
    """What `compile=True` gains and costs."""
    torch.set_num_threads(1)
    console = shown.console()
    out.mkdir(parents=True, exist_ok=True)
    header = {"experiment": "compiled", "provenance": provenance(SEED), "tol": TOL, "repeats": REPEATS,
              "counting": COUNTING}  # fmt: skip
    report = opened(out / "compiled.json", header, resume, console)
    fill(report, all_tasks(data_dir, REPEATS, quick), console, lambda key: " ".join(map(str, key.values())))
    report.write()
    for each in report.rows:
        console.print({name: each[name] for name in each if name not in ("status",)}, highlight=False)
    console.print(f"wrote {report.path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
