"""Experiment 1: inner errors of proximal backward Euler on `h' = 3h - 2 cos t - 4 sin t`, `h(0) = 1`.

The solution is `sin t + cos t`, but solutions beside it grow like exp(3t): an error that was made once is multiplied by
`1/C` in every step, `C = |1 - 3s| < 1`. So a companion is solved too, `h' = -3h + 4 cos t + 2 sin t`, with the same
solution and `C = 1 + 3s`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import odeint, record
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

INNER = {"inner": "gd", "inner_lr": 0.5, "inner_stop": "update", "predictor": "previous"}
ROUNDING = 1e-13

APPROACHES = Claim(
    "As the error of the inner solver decreases, proximal backward Euler approaches backward Euler.", "Figure 2 (a)"
)
SLOWER = Claim(
    "With an appropriate inner tolerance, proximal backward Euler accumulates error more slowly than forward Euler.",
    "Figure 2 (b)",
)
LINEAR = Claim(
    "The distance to exact backward Euler is bounded by a sum over the steps that grows linearly with their number.",
    "section 3.2",
)


def growing(t: Tensor, h: Tensor) -> Tensor:
    return 3 * h - 2 * torch.cos(t) - 4 * torch.sin(t)


def damped(t: Tensor, h: Tensor) -> Tensor:
    return -3 * h + 4 * torch.cos(t) + 2 * torch.sin(t)


PROBLEMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "growing": (growing, 3.0),
    "damped": (damped, -3.0),
}


def exact_steps(rate: float, t: Tensor) -> Tensor:
    """Backward Euler without any inner error: the equation of a step is linear."""
    f = PROBLEMS["growing" if rate > 0 else "damped"][0]
    h, zero = [torch.ones((), dtype=t.dtype)], torch.zeros((), dtype=t.dtype)
    for t0, t1 in pairwise(t):
        h.append((h[-1] + (t1 - t0) * f(t1, zero)) / (1 - (t1 - t0) * rate))
    return torch.stack(h)


def run_one(problem: str, method: str, tol: float | None, step: float, end: float) -> Row:
    """Error to the solution and distance to exact backward Euler at every step."""
    f, rate = PROBLEMS[problem]
    t = torch.arange(round(end / step) + 1, dtype=torch.float64) * step
    options: dict[str, Any] = {"step_size": step} | ({} if tol is None else INNER | {"inner_tol": tol})
    with torch.no_grad(), record() as stats:
        if method == "exact":
            h = exact_steps(rate, t)
        else:
            h = odeint(f, torch.ones(1, dtype=torch.float64), t, method=method, options=options)[:, 0]
    error, distance = (h - torch.sin(t) - torch.cos(t)).abs(), (h - exact_steps(rate, t)).abs()
    residual = (h[1:] - h[:-1] - step * f(t[1:], h[1:])).abs().max()
    return {
        "nfe": stats.nfe_forward, "final_error": float(error[-1]), "max_error": float(error.max()),
        "final_distance": float(distance[-1]), "residual": None if method == "euler" else float(residual),
        "amplification": 1 / (1 - step * rate), "times": t.tolist(), "errors": error.tolist(),
        "distances": distance.tolist(),
    }  # fmt: skip


def bounds(row: Row) -> tuple[list[float], list[float]]:
    """Of the distance after each step: the residual times `sum_j C^-j`, and the residual times the steps."""
    geometric, sums = [0.0], 0.0
    for _ in row["times"][1:]:
        sums = (sums + 1.0) * row["amplification"]
        geometric.append(row["residual"] * sums)
    return geometric, [row["residual"] * k for k in range(len(row["times"]))]


def within(distances: list[float], bound: list[float]) -> bool:
    return all(distance <= limit + ROUNDING for distance, limit in zip(distances, bound, strict=True))


class Scalar(Experiment):
    name = "scalar"
    title = "inner tolerance of proximal backward Euler on a scalar equation"
    claims = (APPROACHES, SLOWER, LINEAR)
    scales: ClassVar[Scales] = {
        "quick": {"step": 0.01, "end": 2.0, "tolerances": [1e-2, 1e-3, 1e-4, 1e-6, 1e-8]},
        "full": {"step": 0.01, "end": 2.0, "tolerances": [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10]},
    }

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "equation": "h' = 3h - 2 cos t - 4 sin t (growing), h' = -3h + 4 cos t + 2 sin t (damped), h(0) = 1",
            "solution": "sin t + cos t",
            "step": setting["step"],
            "t": [0.0, setting["end"]],
            "inner": "gradient descent, residual times 0.5, from z = h_k until |z^{i+1} - z^i| <= tolerance",
            "dtype": "float64",
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        runs: list[tuple[str, float | None]] = [("euler", None), ("exact", None)]
        runs += [("backward_euler", tol) for tol in setting["tolerances"]]
        return [_task(problem, *run, setting) for problem in PROBLEMS for run in runs]

    def tables(self, report: Report) -> list[Table]:
        heads = ["problem", "method", "inner tol", "NFE", "final error", "largest error", "to exact steps"]
        cells = [
            [row["problem"], "exact steps" if row["method"] == "exact" else row["method"],
             "-" if row["tol"] is None else f"{row['tol']:.0e}", whole(row["nfe"]), scientific(row["final_error"]),
             scientific(row["max_error"]), scientific(row["final_distance"])]
            for row in report["rows"]
        ]  # fmt: skip
        return [Table("scalar equation, step 0.01", heads, cells, words=3)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.scalar import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        rows = report["rows"]
        if len(rows) < len(self.tasks(report["setting"])):
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        return [_approaches(rows), _slower(rows), _linear(rows)]


def _task(problem: str, method: str, tol: float | None, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        return run_one(problem, method, tol, setting["step"], setting["end"])

    return Task({"problem": problem, "method": method, "tol": tol}, make)


def _proximal(rows: list[Row], problem: str) -> list[Row]:
    return sorted((r for r in rows if r["problem"] == problem and r["tol"] is not None), key=lambda r: -r["tol"])


def _approaches(rows: list[Row]) -> Verdict:
    own = _proximal(rows, "growing")
    distances = [row["final_distance"] for row in own]
    falling = all(b <= a for a, b in pairwise(distances))
    proportional = distances[-1] <= distances[0] * max(1e3 * own[-1]["tol"] / own[0]["tol"], ROUNDING)
    words = ", ".join(f"{row['final_distance']:.0e} at {row['tol']:.0e}" for row in own)
    outcome = HOLDS if falling and proportional else PARTLY if distances[-1] < distances[0] else FAILS
    return Verdict(APPROACHES, _where(own[0]), f"Distance to exact steps at the end: {words}.", outcome)


def _slower(rows: list[Row]) -> Verdict:
    """Slower at the end, and for most of the time; a tolerance counts if it does not undo the method's accuracy."""
    found = {row["method"]: row for row in rows if row["problem"] == "growing" and row["tol"] is None}
    forward, exact, own = found["euler"], found["exact"], _proximal(rows, "growing")
    ahead = [row for row in own if row["final_error"] < forward["final_error"]]
    tight = exact["final_error"] < forward["final_error"]
    best = min(own, key=lambda row: row["final_error"])
    measured = (
        f"Error at the end: forward Euler {forward['final_error']:.2e}, exact backward Euler "
        f"{exact['final_error']:.2e}; smallest of the proximal runs {best['final_error']:.2e} at inner tolerance "
        f"{best['tol']:.0e}."
    )
    pairs = list(zip(exact["errors"][1:], forward["errors"][1:], strict=True))
    measured += f" Exact backward Euler is ahead at {sum(b < f for b, f in pairs) / len(pairs):.0%} of the times."
    if not tight:
        measured += " It is itself behind forward Euler at the end"
        measured += ": only inner errors of the right sign make it look better." if ahead else "."
    outcome = HOLDS if tight and own[-1] in ahead else PARTLY if ahead else FAILS
    return Verdict(SLOWER, _where(forward), measured, outcome)


def _linear(rows: list[Row]) -> Verdict:
    own = {problem: _proximal(rows, problem) for problem in PROBLEMS}
    everything = [row for each in own.values() for row in each]
    kept = [within(row["distances"], bounds(row)[0]) for row in everything]
    straight = {problem: [within(row["distances"], bounds(row)[1]) for row in each] for problem, each in own.items()}
    words = [f"{sum(each)} of {len(each)} runs on the {problem} problem (1/C = {own[problem][0]['amplification']:.3f})"
             for problem, each in straight.items()]  # fmt: skip
    measured = (
        f"The sum bounds {sum(kept)} of {len(kept)} runs. Steps times residual, a line, bounds {', '.join(words)}."
    )
    lines = [ok for each in straight.values() for ok in each]
    outcome = FAILS if not all(kept) else HOLDS if all(lines) else PARTLY
    return Verdict(LINEAR, "step 0.01, residuals as measured", measured, outcome)


def _where(row: Row) -> str:
    return f"step {row['times'][1]:g}, t up to {row['times'][-1]:g}"


EXPERIMENT = Scalar()
