"""Experiment 3: the inner solvers on one step of diffusion, and what they cost as the step grows. See `..inner`."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from ...inner import INNER, InnerSolver
from ..diffusion import INITIAL_DATA, Diffusion
from ..experiment import UNKNOWN, Claim, Experiment, Picture, Report, Row, Scales, Task, Verdict, Watch, judged
from ..inner import INVERSE_LR, PAPER_STIFFNESS, PRINTED_LR, cost, describe, evaluations_to, path, slope
from ..tables import Table, whole

PAPER_SOLVERS = ("gd", "nag", "restart", "fr", "lbfgs")
PARTS = (1e-3, 1e-6, 1e-9)  # of the first distance to the solution, in the table
CLOSE = 1e-6  # the one that decides
SLOW = 1.5  # exponents of the cost, over that of a square root: what counts as growing in proportion

BEST = Claim("As the iteration goes on, FR performs best among GD, NAG, Restart, FR and L-BFGS.", "Figure 4")
PRINTED = Claim("All of them run with the same step size 0.1.", "section 4.1")
CONSISTENT = Claim("Convergence is consistent with what is expected of each optimiser.", "section 4.1")


class Inner(Experiment):
    name = "inner"
    title = "inner solvers on one implicit step of diffusion"
    claims = (BEST, PRINTED, CONSISTENT)
    scales: ClassVar[Scales] = {
        "quick": {"points": 16, "stiffness": [0.1, 1.0, 10.0, 100.0]},
        "full": {"points": 128, "stiffness": [10.0 ** (k / 2) for k in range(-2, 9)]},
    }

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return describe(setting["points"])

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        tasks = [
            _cost(data, solver, stiffness, setting)
            for data in INITIAL_DATA for solver in INNER.values() for stiffness in setting["stiffness"]
        ]  # fmt: skip
        for data in INITIAL_DATA:
            tasks += [_path(data, solver, None, setting) for solver in INNER.values()]
            tasks += [
                _path(data, INNER[name], lr, setting) for lr in (INVERSE_LR, PRINTED_LR) for name in PAPER_SOLVERS
            ]
        return tasks

    def tables(self, report: Report) -> list[Table]:
        return [_slopes(report["rows"]), _ways(report["rows"])]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.inner import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        if len(report["rows"]) < len(self.tasks(report["setting"])):
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        where = f"{report['setting']['points']} points, gamma * lambda_max = {PAPER_STIFFNESS:.3g}"
        return [_best(report["rows"], where), _printed(report["rows"], where), _consistent(report["rows"])]


def _cost(data: str, solver: InnerSolver, stiffness: float, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        return asdict(cost(Diffusion(setting["points"]), data, solver, stiffness, setting["seed"]))

    return Task({"kind": "cost", "data": data, "solver": solver.name, "stiffness": stiffness}, make)


def _path(data: str, solver: InnerSolver, lr: float | None, setting: dict[str, Any]) -> Task:
    chosen = solver if lr is None else replace(solver, lr=lr)  # type: ignore[call-arg]

    def make(watch: Watch) -> Row:
        return asdict(path(Diffusion(setting["points"]), data, chosen, PAPER_STIFFNESS, setting["seed"]))

    return Task({"kind": "path", "data": data, "solver": solver.name, "lr": lr}, make)


def _slopes(rows: list[Row]) -> Table:
    """Evaluations at each stiffness, and the exponent with which they grow."""
    costs = [row for row in rows if row["kind"] == "cost"]
    sizes = [s for s in dict.fromkeys(row["stiffness"] for row in costs) if math.log10(s).is_integer()]
    cells = []
    for data, solver in dict.fromkeys((row["data"], row["solver"]) for row in costs):
        own = [row for row in costs if (row["data"], row["solver"]) == (data, solver)]
        nfe = {row["stiffness"]: row["nfe"] if row["status"] == "SUCCESS" else None for row in own}
        growth = slope(own)
        cells.append([solver, data, *(whole(nfe.get(s)) for s in sizes), "-" if growth is None else f"{growth:.2f}"])
    title = "NFE against gamma * lambda_max; a dash where the solver says that it cannot"
    return Table(title, ["solver", "data", *(f"{s:g}" for s in sizes), "slope"], cells, words=2)


def _ways(rows: list[Row]) -> Table:
    cells = [
        [row["solver"], row["data"], "found" if row["lr"] is None else f"{row['lr']:.3g}",
         *(whole(evaluations_to(row, part)) for part in PARTS)]
        for row in rows if row["kind"] == "path"
    ]  # fmt: skip
    heads = ["solver", "data", "step length", *(f"to {part:.0e}".replace("e-0", "e-") for part in PARTS)]
    return Table("NFE until the distance to the solution has fallen to a part", heads, cells, words=3)


def _reached(rows: list[Row], lr: float | None) -> dict[tuple[str, str], float]:
    """Evaluations to the distance that decides; infinity where it was not reached."""
    own = [row for row in rows if row["kind"] == "path" and row["lr"] == lr and row["solver"] in PAPER_SOLVERS]
    return {(row["data"], row["solver"]): evaluations_to(row, CLOSE) or math.inf for row in own}


def _best(rows: list[Row], where: str) -> Verdict:
    parts, words = [], []
    for lr, name in ((None, "lengths found"), (INVERSE_LR, f"all {INVERSE_LR:.3g}")):
        found = _reached(rows, lr)
        for data in INITIAL_DATA:
            nfe = {solver: found[data, solver] for solver in PAPER_SOLVERS}
            parts += [nfe["fr"] <= nfe[other] for other in PAPER_SOLVERS if other != "fr"]
            words.append(
                f"{name}, {data}: " + ", ".join(f"{k} {'never' if v == math.inf else int(v)}" for k, v in nfe.items())
            )
    measured = (
        f"FR is ahead in {sum(parts)} of {len(parts)} pairs. NFE to {CLOSE:.0e} of the start: {'; '.join(words)}."
    )
    return Verdict(BEST, where, measured, judged(parts))


def _printed(rows: list[Row], where: str) -> Verdict:
    found = _reached(rows, PRINTED_LR)
    good = sorted({solver for (_, solver), nfe in found.items() if nfe < math.inf})
    bad = [solver for solver in PAPER_SOLVERS if solver not in good]
    limit = 2 / (1 + PAPER_STIFFNESS)
    measured = (
        f"With 0.1 times the residual {', '.join(good) or 'none'} converge, {', '.join(bad) or 'none'} do not: "
        f"gradient descent needs less than 2 / (1 + gamma lambda_max) = {limit:.3f}."
    )
    return Verdict(PRINTED, where, measured, judged([nfe < math.inf for nfe in found.values()]))


def _consistent(rows: list[Row]) -> Verdict:
    """Gradient descent in proportion to the stiffness, the accelerated ones to its square root."""
    costs = [row for row in rows if row["kind"] == "cost"]
    growth = {}
    for solver in PAPER_SOLVERS:
        found = [slope([r for r in costs if (r["data"], r["solver"]) == (data, solver)]) for data in INITIAL_DATA]
        known = [value for value in found if value is not None]
        if not known:
            return Verdict(CONSISTENT, "", "", UNKNOWN)
        growth[solver] = max(known)
    words = ", ".join(f"{solver} {value:.2f}" for solver, value in growth.items())
    parts = [growth["gd"] > 0.5] + [growth[solver] <= 0.5 * SLOW for solver in PAPER_SOLVERS if solver != "gd"]
    where = "evaluations to a residual of 1e-10, step lengths found"
    return Verdict(
        CONSISTENT, where, f"Exponent of NFE over the stiffness: {words} (1 and 1/2 expected).", judged(parts)
    )


EXPERIMENT = Inner()
