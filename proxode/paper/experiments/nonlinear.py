"""Experiment 4: proximal backward Euler beside the fixed point and Newton-Raphson, over the number of grid points.

All solve the same equations, steps of the diffusion problem with `s = 1/2000`, to the same residual. The fixed point
converges only where `s lambda_max < 1`, so it is also run with steps short enough, over the same time. Newton-Raphson
as the paper means it makes a dense Jacobian by n products and factorises it in every iteration; beside it stands our
`newton`, which keeps its Jacobian and finds that it is a band of three entries per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import solve
from ..diffusion import Diffusion, density
from ..experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    UNKNOWN,
    Claim,
    Experiment,
    Picture,
    Report,
    Row,
    Scales,
    Task,
    Verdict,
    Watch,
)
from ..tables import Table, scientific, whole

STEP = 1 / 2000
TOL = 1e-8  # on the root mean square of the residual
CONTRACTION = 0.5  # s lambda_max of the fixed point's own steps

BEATS = Claim("The proximal solver beats fixed-point iteration and Newton-Raphson in time.", "Figure 5 (a)")
SCALES = Claim("Newton-Raphson does not scale to high dimension, since it evaluates the Jacobian.", "section 4.1")
LINEAR = Claim("The time of the proximal solver is almost linear in its NFE.", "Figure 5 (b)")

# name: inner solver, whether it takes its own short steps, what it is
SOLVERS: dict[str, tuple[str, str]] = {
    "fr": ("proximal", "Fletcher-Reeves, matrix-free"),
    "anderson": ("proximal", "Anderson acceleration, matrix-free"),
    "fixed_point": ("fixed point", "s = 1/2000"),
    "fixed_point, short steps": ("fixed point", f"steps of {CONTRACTION:g} / lambda_max over the same time"),
    "newton, dense": ("Newton-Raphson", "dense Jacobian by n products and LU in every iteration"),
    "newton": ("Newton-Raphson", "ours: Jacobian kept, its band found and solved as such"),
}


def run_one(solver: str, points: int, steps: int, repeats: int, most_steps: int = 20_000) -> Row:
    """The shortest of several times; evaluations are the same each time."""
    problem, h0 = Diffusion(points), density(points)
    stiffness = STEP * abs(problem.stiffest)
    row: Row = {"kind": SOLVERS[solver][0], "what": SOLVERS[solver][1], "stiffness": stiffness, "span": steps * STEP}
    run = _dense_newton if solver == "newton, dense" else _by_proxode
    step = STEP if solver != "fixed_point, short steps" else min(STEP, CONTRACTION / abs(problem.stiffest))
    if steps * STEP / step > most_steps:
        return row | {
            "status": "NOT_RUN",
            "nfe": None,
            "n_steps": round(steps * STEP / step),
            "seconds": None,
            "error": None,
        }
    best, found, h = float("inf"), row, h0
    for _ in range(repeats):
        start = time.perf_counter()
        h, found = run(solver, problem, h0, step, steps * STEP)
        best = min(best, time.perf_counter() - start)
    error = (
        float((h - reference(problem, h0, step, steps * STEP)).abs().max()) if found["status"] == "SUCCESS" else None
    )
    return row | found | {"seconds": best, "error": error}


def reference(problem: Diffusion, h0: Tensor, step: float, span: float) -> Tensor:
    """The same steps of backward Euler by Fourier."""
    k = torch.arange(problem.points // 2 + 1, dtype=h0.dtype)
    rate = 4.0 / problem.dx**2 * torch.sin(torch.pi * k / problem.points) ** 2
    count = max(round(span / step), 1)
    h: Tensor = torch.fft.irfft(torch.fft.rfft(h0) / (1 + span / count * rate) ** count, n=problem.points)
    return h


@torch.no_grad()
def _by_proxode(solver: str, problem: Diffusion, h0: Tensor, step: float, span: float) -> tuple[Tensor, Row]:
    count = max(round(span / step), 1)
    solution = solve(
        problem.f, h0, 0.0, span, method="backward_euler", inner=solver.split(",")[0], step_size=span / count,
        inner_tol=TOL, predictor="previous", throw=False,
    )  # fmt: skip
    return solution.ys[-1], {
        "status": solution.status.name, "nfe": solution.stats.nfe_forward, "n_steps": solution.stats.n_accepted,
    }  # fmt: skip


def _dense_newton(solver: str, problem: Diffusion, h0: Tensor, step: float, span: float) -> tuple[Tensor, Row]:
    """Newton-Raphson as in a textbook; each column of the Jacobian counts one evaluation."""
    n, count = len(h0), round(span / step)
    h, nfe, now = h0, 0, torch.zeros((), dtype=h0.dtype)
    eye = torch.eye(n, dtype=h0.dtype)
    jacobian: Callable[[Tensor], Tensor] = torch.func.jacfwd(lambda z: problem.f(now, z))
    for _ in range(count):
        z = h
        while True:
            with torch.no_grad():
                r = z - h - step * problem.f(now, z)
            nfe += 1
            if float(r.square().mean().sqrt()) <= TOL:
                break
            z = z - torch.linalg.solve(eye - step * jacobian(z).detach(), r)
            nfe += n
        h = z
    return h, {"status": "SUCCESS", "nfe": nfe, "n_steps": count}


class Nonlinear(Experiment):
    name = "nonlinear"
    title = "proximal solver beside fixed point and Newton-Raphson, over the number of grid points"
    claims = (BEATS, SCALES, LINEAR)
    scales: ClassVar[Scales] = {
        "quick": {"points": [16, 64, 128, 256, 512], "steps": 20, "repeats": 1, "most_steps": 1500},
        "full": {"points": [16, 32, 64, 128, 256, 512, 1024, 2048], "steps": 20, "repeats": 3, "most_steps": 10_000},
    }
    cut = "the paper does not say how long it integrates: 20 steps of 1/2000"

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "equation": "backward Euler on h_t = h_xx, periodic, from the Gaussian density",
            "step": STEP,
            "steps": setting["steps"],
            "tolerance": f"root mean square of the residual at most {TOL:g}, first guess z = h_k",
            "seconds": f"the shortest of {setting['repeats']} runs",
            "error": "max norm of the difference to the same steps by Fourier",
            "solvers": {name: f"{kind}: {what}" for name, (kind, what) in SOLVERS.items()},
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [_task(solver, points, setting) for points in setting["points"] for solver in SOLVERS]

    def tables(self, report: Report) -> list[Table]:
        heads = ["solver", "points", "stiffness", "steps", "NFE", "ms", "error", ""]
        cells = [
            [row["solver"], str(row["points"]), f"{row['stiffness']:.3g}", whole(row["n_steps"]), whole(row["nfe"]),
             "-" if row["seconds"] is None else f"{1e3 * row['seconds']:.1f}", scientific(row["error"]),
             "ok" if row["status"] == "SUCCESS" else row["status"]]
            for row in sorted(report["rows"], key=lambda row: list(SOLVERS).index(row["solver"]))
        ]  # fmt: skip
        return [Table("backward Euler steps of diffusion", heads, cells)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.nonlinear import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        good = {(r["solver"], r["points"]): r for r in report["rows"] if r["status"] == "SUCCESS"}
        sizes = report["setting"]["points"]
        whole_run = len(report["rows"]) == len(sizes) * len(SOLVERS)
        if not whole_run:
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        return [_beats(good, sizes), _scales(good, sizes), _linear(good, sizes)]


def _task(solver: str, points: int, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        return run_one(solver, points, setting["steps"], setting["repeats"], setting["most_steps"])

    return Task({"solver": solver, "points": points}, make)


Rows = dict[tuple[str, int], Row]


def _ahead(good: Rows, first: str, second: str, sizes: list[int]) -> list[int]:
    """Sizes where `first` took less time than `second`, or where only the second failed."""
    found = []
    for n in sizes:
        one, two = good.get((first, n)), good.get((second, n))
        if one is not None and (two is None or one["seconds"] < two["seconds"]):
            found.append(n)
    return found


def _beats(good: Rows, sizes: list[int]) -> Verdict:
    rivals = ("fixed_point", "fixed_point, short steps", "newton, dense", "newton")
    ahead = {rival: _ahead(good, "fr", rival, sizes) for rival in rivals}
    words = [f"{rival} at {_sizes(won, sizes)} points" for rival, won in ahead.items()]
    failing = [n for n in sizes if ("fixed_point", n) not in good]
    measured = f"fr is faster than {', than '.join(words)}."
    if failing:
        measured += f" The fixed point diverges with s = 1/2000 from {failing[0]} points on."
    named = [won for rival, won in ahead.items() if rival != "newton"]  # the paper's rivals; ours is not one of them
    outcome = HOLDS if all(won == sizes for won in named) else PARTLY if any(named) else FAILS
    return Verdict(BEATS, f"{sizes[0]} to {sizes[-1]} points, 20 steps", measured, outcome)


def _sizes(won: list[int], sizes: list[int]) -> str:
    return "all" if won == sizes else "no" if not won else ", ".join(map(str, won))


def _scales(good: Rows, sizes: list[int]) -> Verdict:
    """From the smallest size that is no longer all overhead to the largest."""
    low, high = sizes[len(sizes) // 2], sizes[-1]
    growth = {name: _exponent(good, name, low, high) for name in ("newton, dense", "newton", "fr")}
    if any(value is None for value in growth.values()):
        return Verdict(SCALES, "", "", UNKNOWN)
    slowest = good["newton, dense", high]["seconds"] / good["fr", high]["seconds"]
    words = ", ".join(f"{name} n^{value:.1f}" for name, value in growth.items())
    measured = (
        f"Time from {low} to {high} points: {words}; dense Newton at {high} takes {slowest:.1f} times as long as fr."
    )
    ours = good["fr", high]["seconds"] / good["newton", high]["seconds"]
    measured += f" With the band of the Jacobian Newton does scale: {ours:.1f} times as fast as fr."
    dense_fails = slowest > 1 and (growth["newton, dense"] or 0.0) > (growth["fr"] or 0.0)
    outcome = FAILS if not dense_fails else PARTLY if ours > 1 else HOLDS
    return Verdict(SCALES, f"{low} to {high} points, dense as a textbook has it, and banded", measured, outcome)


def _exponent(good: Rows, solver: str, low: int, high: int) -> float | None:
    first, last = good.get((solver, low)), good.get((solver, high))
    if first is None or last is None or low == high:
        return None
    return float(torch.tensor(last["seconds"] / first["seconds"]).log() / torch.tensor(high / low).log())


def _linear(good: Rows, sizes: list[int]) -> Verdict:
    """The time of one evaluation, over sizes whose NFE differ."""
    own = [good["fr", n] for n in sizes if ("fr", n) in good]
    if len(own) < 3:
        return Verdict(LINEAR, "", "", UNKNOWN)
    each = [1e6 * row["seconds"] / row["nfe"] for row in own]
    nfe = [row["nfe"] for row in own]
    measured = (
        f"NFE from {min(nfe):,} to {max(nfe):,}, {min(each):.0f} to {max(each):.0f} microseconds each: "
        f"a factor of {max(each) / min(each):.1f} where NFE differ by {max(nfe) / min(nfe):.0f}."
    )
    outcome = HOLDS if max(each) <= 2 * min(each) else PARTLY if max(each) / min(each) < max(nfe) / min(nfe) else FAILS
    return Verdict(LINEAR, f"{sizes[0]} to {sizes[-1]} points", measured, outcome)


EXPERIMENT = Nonlinear()
