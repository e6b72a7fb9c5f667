"""Peak memory of a solve and its gradient against the number of steps.

    python -m benchmarks.gradients_memory --out benchmarks/results

A state of 100,000 numbers in float32. Every row runs in a process of its own. What is counted are the bytes in use
(mallinfo2 of the C library), at every call of f and between forward and backward, less those in use before: what the
solve keeps. Beside it stands the growth of the resident memory, which also holds what the allocator could not give
back. `--quick` takes a small state and few steps, to see that it works.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import proxode
from proxode.paper.report import write_json

from . import shown
from .memory_plot import draw

STEPS = (100, 300, 1_000, 3_000, 10_000)
SIZE = 100_000
QUICK_STEPS, QUICK_SIZE = (20, 80), 20_000
LIMIT = 8e9  # bytes: a row that would need more is not run, and says so
SEED = 0
H = 0.5

RUNS = {  # label: (library, method or call, options)
    "implicit": ("proxode", "bdf2", {"gradient": "implicit"}),
    "implicit, tighter inner solves": ("proxode", "bdf2", {"gradient": "implicit", "inner_tol": 1e-7}),
    "implicit, store_graph": ("proxode", "bdf2", {"gradient": "implicit", "store_graph": True}),
    "checkpoint": ("proxode", "bdf2", {"gradient": "checkpoint"}),
    "checkpoint, tighter inner solves": ("proxode", "bdf2", {"gradient": "checkpoint", "inner_tol": 1e-7}),
    "continuous": ("proxode", "bdf2", {"gradient": "continuous"}),
    "continuous, 50 checkpoints": ("proxode", "bdf2", {"gradient": "continuous", "checkpoints": 50}),
    "direct": ("proxode", "bdf2", {"gradient": "direct"}),
    "implicit (rk4)": ("proxode", "rk4", {"gradient": "implicit"}),
    "checkpoint (rk4)": ("proxode", "rk4", {"gradient": "checkpoint"}),
    "continuous (rk4)": ("proxode", "rk4", {"gradient": "continuous"}),
    "torchdiffeq odeint (rk4)": ("torchdiffeq", "odeint", {}),
    "torchdiffeq odeint_adjoint (rk4)": ("torchdiffeq", "odeint_adjoint", {}),
}


@dataclass
class Row:
    label: str
    steps: int
    size: int
    peak: float | None = None  # bytes in use beyond those before the solve
    states: float | None = None  # the same in states
    resident: float | None = None  # growth of the resident memory, in states
    inner: float | None = None  # inner iterations for each step
    seconds: float | None = None
    gradient: float | None = None  # |dL/dy0|: rows of one number of steps should agree
    message: str = "ok"


class Cells(nn.Module):
    """`u' = tanh(a u) - b u + sin t` in every cell; it looks at the memory whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(1.5))
        self.b = nn.Parameter(torch.tensor(1.6))
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, bytes_in_use())

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        self.look()
        return torch.tanh(self.a * u) - self.b * u + torch.sin(t)


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


@cache
def mallinfo() -> Any:
    """The function of the C library; other systems have none, and may still import this."""
    found = ctypes.CDLL(None).mallinfo2
    found.restype = MallInfo
    return found


def bytes_in_use() -> int:
    info = mallinfo()()
    return int(info.uordblks + info.hblkhd)


def run(label: str, steps: int, size: int) -> Row:
    library, call, options = RUNS[label]
    torch.manual_seed(SEED)
    f, y0, t = Cells(), torch.randn(size), torch.tensor([0.0, steps * H])
    _solve(library, call, options, f, y0[:1000].clone(), torch.tensor([0.0, 5 * H]))  # what is loaded once
    row = Row(label, steps, size)
    y0.requires_grad_()
    f.zero_grad()
    reset_peak()
    held, before, start = status("VmRSS"), bytes_in_use(), time.perf_counter()
    f.most = before
    with proxode.record() as stats:
        _solve(library, call, options, f, y0, t)
    row.seconds = time.perf_counter() - start
    row.peak = float(f.most - before)
    row.states = row.peak / (4 * size)
    row.resident = (status("VmHWM") - held) / (4 * size)
    row.inner = stats.n_inner / steps if library == "proxode" else None
    row.gradient = float(y0.grad.norm()) if y0.grad is not None else None
    return row


def _solve(library: str, call: str, options: dict[str, Any], f: Cells, y0: Tensor, t: Tensor) -> None:
    y0 = y0 if y0.requires_grad else y0.requires_grad_()
    if library == "proxode":
        y = proxode.odeint(f, y0, t, rtol=1e-4, atol=1e-4, method=call, options={"step_size": H, **options})
    else:
        import torchdiffeq

        y = getattr(torchdiffeq, call)(f, y0, t, method="rk4", options={"step_size": H})
    f.look()
    y[-1].square().sum().backward()
    f.look()


def status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {name}: the benchmark needs Linux")


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def in_a_process(label: str, steps: int, size: int, environment: dict[str, str] | None = None) -> Row:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    command = [sys.executable, "-m", "benchmarks.gradients_memory", "--row", json.dumps([label, steps, size])]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1_800)
    except subprocess.TimeoutExpired:
        return Row(label, steps, size, message="took more than 30 minutes")
    if done.returncode:
        return Row(label, steps, size, message=(done.stderr.strip().splitlines() or ["failed"])[-1])
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def all_rows(steps: tuple[int, ...], size: int, console: Console) -> Iterator[Row]:
    for label in RUNS:
        last: Row | None = None
        for count in steps:
            need = 0.0 if last is None or last.peak is None else last.peak * count / last.steps
            if need > LIMIT:
                row = Row(label, count, size, message=f"not run: would need about {need / 1e9:.0f} GB")
            else:
                row = last = in_a_process(label, count, size)
            size_text = "-" if row.states is None else f"{row.states:,.0f} states"
            console.print(f"{label}, {count:,} steps: {size_text} ({row.message})", highlight=False)
            yield row


def table(rows: list[Row]) -> Table:
    made = Table(title="Memory in use at the peak, in states (in brackets: growth of the resident memory)")
    made.add_column("gradient")
    steps = sorted({row.steps for row in rows})
    for count in steps:
        made.add_column(f"{count:,} steps", justify="right")
    made.add_column("inner its / step", justify="right")
    for label in dict.fromkeys(row.label for row in rows):
        mine = {row.steps: row for row in rows if row.label == label}
        cells = ["-" if mine[n].states is None else f"{mine[n].states:,.0f} ({mine[n].resident:,.0f})" for n in steps]
        inner = mine[steps[0]].inner
        made.add_row(label, *cells, "-" if inner is None else f"{inner:.1f}")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(json.dumps(asdict(run(*json.loads(given.row)))))
        return
    console = shown.console()
    steps, size = (QUICK_STEPS, QUICK_SIZE) if given.quick else (STEPS, SIZE)
    path = given.out / "gradients_memory.json"
    equation = (Cells.__doc__ or "").strip()
    problem = {"equation": equation, "size": size, "dtype": "float32", "step": H, "tolerance": 1e-4}
    rows: list[Row] = []
    for row in all_rows(steps, size, console):
        rows.append(row)
        write_json(path, "gradients_memory", problem, rows, SEED)  # a run that is killed keeps what it has
    console.print(table(rows))
    draw(json.loads(path.read_text()), path.with_suffix(".png"))
    console.print(f"written: {path} and {path.with_suffix('.png').name}", highlight=False)


if __name__ == "__main__":
    main()
