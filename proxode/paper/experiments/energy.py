"""Energy along numerical solutions of a gradient flow with many wells: Allen-Cahn on a ring.

`F(u) = sum_i kappa/2 (u_{i+1} - u_i)^2 + (u_i^2 - 1)^2 / 4`, `u' = -grad F`. Its most negative curvature is -1, so a
step of backward Euler has one solution up to s = 1 and several beyond; a descent method started at `h_k` finds one with
less energy. Each scheme has its own law; how much a step breaks it, beyond rounding, is what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import solve
from ..experiment import (
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
    judged,
)
from ..tables import Table, scientific, whole

SLACK = 1e-8  # of the energy: what inner tolerance and rounding leave
INNER = {"inner": "gd", "predictor": "previous", "inner_tol": 1e-10}

BACKWARD = Claim("Backward Euler decreases F for every step size, non-convex F included.", "Proposition 1")
BDF2 = Claim("BDF2 decreases F(h_{k+1}) + |h_{k+1} - h_k|^2 / (4s).", "section 3.3")
CRANK = Claim("Crank-Nicolson keeps F(h_{k+1}) + <h_{k+1} - h_k, grad F(h_k)> <= F(h_k).", "section 3.3")
STAGES = Claim("The multi-stage schemes are unconditionally energy stable.", "section 2.2")


def energy(u: Tensor, kappa: float) -> Tensor:
    return (0.5 * kappa * (u.roll(-1, -1) - u) ** 2 + 0.25 * (u * u - 1) ** 2).sum(-1)


def force(u: Tensor, kappa: float) -> Tensor:
    return kappa * (u.roll(1, -1) + u.roll(-1, -1) - 2 * u) - (u * u - 1) * u


def _plain(h: Tensor, s: float, kappa: float) -> Tensor:
    f = energy(h, kappa)
    return f[1:] - f[:-1]


def _bdf2(h: Tensor, s: float, kappa: float) -> Tensor:
    modified = energy(h[1:], kappa) + ((h[1:] - h[:-1]) ** 2).sum(-1) / (4 * s)
    return modified[1:] - modified[:-1]


def _crank_nicolson(h: Tensor, s: float, kappa: float) -> Tensor:
    linear = -((h[1:] - h[:-1]) * force(h[:-1], kappa)).sum(-1)
    return energy(h[1:], kappa) + linear - energy(h[:-1], kappa)


# What must not be positive after any step.
LAWS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "backward_euler": _plain, "bdf2": _bdf2, "crank_nicolson": _crank_nicolson, "multistage2": _plain,
    "multistage3": _plain, "euler": _plain,
}  # fmt: skip
CLAIMS = {
    BACKWARD: ("backward_euler",),
    BDF2: ("bdf2",),
    CRANK: ("crank_nicolson",),
    STAGES: ("multistage2", "multistage3"),
}


def run_one(method: str, step: float, setting: dict[str, Any]) -> Row:
    kappa, steps = setting["kappa"], setting["steps"]
    generator = torch.Generator().manual_seed(setting["seed"])
    u0 = 0.7 * torch.randn(setting["points"], generator=generator, dtype=torch.float64)
    t = torch.arange(steps + 1, dtype=torch.float64) * step
    options: dict[str, Any] = {} if method == "euler" else INNER
    with torch.no_grad():
        solution = solve(
            lambda t, u: force(u, kappa), u0, 0.0, float(t[-1]), method=method, step_size=step, save_at=t, throw=False,
            **options,
        )  # fmt: skip
    h = solution.ys[energy(solution.ys, kappa).isfinite()]
    energies = energy(h, kappa)
    broken, rises = LAWS[method](h, step, kappa), _plain(h, step, kappa)
    scale = 1 + float(energies[0])
    return {
        "status": solution.status.name, "nfe": solution.stats.nfe_forward, "steps_done": len(h) - 1,
        "violation": _largest(broken, scale), "rise": _largest(rises, scale),
        "final_energy": float(energies[-1]), "times": t[: len(h)].tolist(), "energies": energies.tolist(),
    }  # fmt: skip


def _largest(changes: Tensor, scale: float) -> float | None:
    """None where no step was made that could be judged."""
    return float(changes.max()) / scale if len(changes) else None


class Energy(Experiment):
    name = "energy"
    title = "energy along a gradient flow with many wells (Allen-Cahn), for a range of step sizes"
    claims = (BACKWARD, BDF2, CRANK, STAGES)
    scales: ClassVar[Scales] = {
        "quick": {"points": 32, "kappa": 1.5, "steps": 12, "step_sizes": [0.01, 0.1, 0.3, 1.0, 10.0, 100.0]},
        "full": {"points": 48, "kappa": 1.5, "steps": 25, "step_sizes": [0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]},
    }

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "equation": "u' = -grad F, F = sum kappa/2 (u_{i+1} - u_i)^2 + (u_i^2 - 1)^2 / 4 on a ring",
            "points": setting["points"],
            "start": "0.7 times Gaussian noise",
            "inner": "gradient descent from h_k to a residual of 1e-10",
            "violation": "largest change of the quantity that must not grow, over 1 + F(h_0)",
            "dtype": "float64",
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [_task(method, step, setting) for method in LAWS for step in setting["step_sizes"]]

    def tables(self, report: Report) -> list[Table]:
        heads = ["method", "step", "NFE", "final energy", "worst of its law", "worst rise of F", ""]
        cells = [
            [row["method"], f"{row['step']:g}", whole(row["nfe"]), _number(row["final_energy"]),
             scientific(row["violation"]), scientific(row["rise"]), _word(row)]
            for row in report["rows"]
        ]  # fmt: skip
        return [Table("energy of Allen-Cahn", heads, cells)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.energy import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        return [_verdict(claim, methods, report) for claim, methods in CLAIMS.items()]


def kept(row: Row) -> bool:
    """Whether the law of its scheme held in all steps that were made."""
    return row["violation"] is not None and row["violation"] <= SLACK


def _task(method: str, step: float, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        return run_one(method, step, setting)

    return Task({"method": method, "step": step}, make)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _word(row: Row) -> str:
    return row["status"] if row["status"] != "SUCCESS" else "ok" if kept(row) else "broken"


def _verdict(claim: Claim, methods: tuple[str, ...], report: Report) -> Verdict:
    rows = [row for row in report["rows"] if row["method"] in methods]
    if len(rows) < len(methods) * len(report["setting"]["step_sizes"]):
        return Verdict(claim, "", "", UNKNOWN)
    good = [row for row in rows if kept(row)]
    bad = [row for row in rows if row["violation"] is not None and not kept(row)]
    measured = f"Holds in all steps for {len(good)} of {len(good) + len(bad)} runs"
    if good:
        measured += f" (its worst step changes it by {max(row['violation'] for row in good):+.0e})"
    if bad:
        worst = ", ".join(f"{row['method']} at s = {row['step']:g}" for row in bad)
        measured += f"; not for {worst} (up to {scientific(max((r['violation'] or 0.0) for r in bad))})"
    if unsolved := [f"{row['method']} at s = {row['step']:g}" for row in rows if row["status"] != "SUCCESS"]:
        measured += f"; equations not solved to the end: {', '.join(unsolved)}"
    if claim is CRANK and (rising := [row["step"] for row in rows if (row["rise"] or 0.0) > SLACK]):
        measured += f"; F itself may rise all the same, and does from s = {min(rising):g}"
    measured += _counterexample(report)
    sizes = report["setting"]["step_sizes"]
    outcome = judged([kept(row) for row in (*good, *bad)])
    return Verdict(claim, f"steps from {min(sizes):g} to {max(sizes):g}", f"{measured}.", outcome)


def _counterexample(report: Report) -> str:
    """Forward Euler breaks the law where the others do not: the law is one of the scheme, not of the problem."""
    rising = [row["step"] for row in report["rows"] if row["method"] == "euler" and not kept(row)]
    return f"; forward Euler breaks it from s = {min(rising):g}" if rising else ""


EXPERIMENT = Energy()
