"""Experiment 2: the diffusion equation, proximal schemes beside explicit ones, then ours. Runs are in `..diffusion`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from ..diffusion import (
    EXPLICIT_SCHEMES,
    EXPLICIT_TOL,
    INITIAL_DATA,
    INNER_TOL,
    PAPER_SCHEMES,
    Diffusion,
    Run,
    all_runs,
    describe,
    power,
    run_one,
)
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
    judged,
)
from ..tables import Table, scientific, whole

SAME = 1.25  # NFE that differ by no more are "almost independent" of the tolerance

# The smallest final errors that the paper reports.
PRINTED = {"backward_euler": 4.68e-7, "crank_nicolson": 1.75e-6, "bdf2": 1.36e-6, "bdf3": 5.71e-7, "bdf4": 1.15e-6}

MORE = Claim("Adaptive Heun and DOPRI5 require many more NFE than the proximal solvers.", "Figure 3")
INDEPENDENT = Claim(
    "NFE of the explicit solvers are almost independent of the error: stability sets the step.", "Figure 3"
)
SMALLEST = Claim("Final errors of 5e-7 to 2e-6 with steps of 1/2000 and inner tolerance 5e-9.", "Table 2")
ORDER = Claim("Higher-order BDF schemes require more NFE than lower-order ones.", "section 4.1")
LENGTH = Claim("The inner solver FR runs with step size 0.1.", "appendix D.1")


class DiffusionExperiment(Experiment):
    name = "diffusion"
    title = "the diffusion equation by proximal and explicit methods"
    claims = (MORE, INDEPENDENT, SMALLEST, ORDER, LENGTH)
    scales: ClassVar[Scales] = {
        "quick": {"points": 28, "steps": [100, 60, 20], "inner_tols": [1e-3, INNER_TOL], "tols": [1e-3, EXPLICIT_TOL]},
        "full": {
            "points": 128, "steps": [2000, 500, 200], "inner_tols": [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, INNER_TOL],
            "tols": [1e-3, EXPLICIT_TOL],
        },
    }  # fmt: skip

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return describe(Diffusion(setting["points"]))

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [_task(data, run, setting) for data in INITIAL_DATA for run in all_runs(setting)]

    def tables(self, report: Report) -> list[Table]:
        return [_table(data, report["rows"]) for data in dict.fromkeys(row["data"] for row in report["rows"])]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.diffusion import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        points, steps = report["setting"]["points"], report["setting"]["steps"][0]
        rows, where = report["rows"], f"{points} points, h = 1/{steps}"
        judges = (_more, _independent, _smallest, _order, _length)
        if {row["data"] for row in rows} < set(INITIAL_DATA):
            return [Verdict(claim, where, "", UNKNOWN) for claim in self.claims]
        return [judge(rows, where) for judge in judges]


def _task(data: str, run: Run, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        return asdict(run_one(Diffusion(setting["points"]), data, run, watch.nfe, setting["seed"]))

    return Task({"data": data, "label": run.label}, make)


def _table(data: str, rows: list[Row]) -> Table:
    cells = [
        [row["method"], row["setting"], whole(row["nfe"]), whole(row["n_steps"]), scientific(row["final_error"]),
         scientific(row["max_error"]), f"{row['seconds']:.2f}", "ok" if row["status"] == "SUCCESS" else row["status"]]
        for row in rows if row["data"] == data
    ]  # fmt: skip
    heads = ["method", "setting", "NFE", "steps", "final error", "largest error", "s", ""]
    return Table(f"diffusion, initial data: {data}", heads, cells, words=2)


def _good(rows: list[Row], group: str, main: bool | None = None) -> list[Row]:
    return [r for r in rows if r["group"] == group and r["status"] == "SUCCESS" and main in (None, r["main"])]


def _paper(rows: list[Row]) -> list[Row]:
    """The paper's five schemes as its table has them, without those of a constant inner step."""
    return [row for row in _good(rows, "paper", main=True) if "inner_lr" not in row["options"]]


def _more(rows: list[Row], where: str) -> Verdict:
    proximal, explicit = _paper(rows), _good(rows, "explicit", main=True)
    expected = len(INITIAL_DATA)
    if len(proximal) < expected * len(PAPER_SCHEMES) or len(explicit) < expected * len(EXPLICIT_SCHEMES):
        return Verdict(MORE, where, "", UNKNOWN)
    ratios = [e["nfe"] / p["nfe"] for e in explicit for p in proximal if e["data"] == p["data"]]
    words = [f"{name} {_range(explicit, name)}" for name in EXPLICIT_SCHEMES]
    words += [f"proximal {min(r['nfe'] for r in proximal):,} to {max(r['nfe'] for r in proximal):,}"]
    measured = f"NFE: {', '.join(words)}: {min(ratios):.1f} to {max(ratios):.1f} times as many."
    ours = [row for row in rows if row["method"] == "auto" and row["main"] and row["status"] == "SUCCESS"]
    if ours:
        measured += f" Ours, auto: {_range(ours, 'auto')}."
    return Verdict(
        MORE, f"{where}, explicit at {power(EXPLICIT_TOL)}", measured, judged([ratio >= 2 for ratio in ratios])
    )


def _range(rows: list[Row], method: str) -> str:
    nfe = [row["nfe"] for row in rows if row["method"] == method]
    return f"{min(nfe):,}" if min(nfe) == max(nfe) else f"{min(nfe):,} to {max(nfe):,}"


def _independent(rows: list[Row], where: str) -> Verdict:
    parts, words = [], []
    for method in EXPLICIT_SCHEMES:
        for data in INITIAL_DATA:
            own = [r for r in _good(rows, "explicit") if (r["method"], r["data"]) == (method, data)]
            if len(own) < 2:
                return Verdict(INDEPENDENT, where, "", UNKNOWN)
            ratio = max(r["nfe"] for r in own) / min(r["nfe"] for r in own)
            tols = [r["rtol"] for r in own]
            parts.append(ratio <= SAME)
            words.append(f"{method} {ratio:.2f} ({data})")
    measured = f"Most over fewest NFE for tolerances {power(max(tols))} to {power(min(tols))}: {', '.join(words)}."
    return Verdict(INDEPENDENT, where, measured, judged(parts))


def _smallest(rows: list[Row], where: str) -> Verdict:
    own = _paper(rows)
    if len(own) < len(INITIAL_DATA) * len(PAPER_SCHEMES):
        return Verdict(SMALLEST, where, "", UNKNOWN)
    worst = {name: max(r["final_error"] for r in own if r["method"] == name) for name in PAPER_SCHEMES}
    words = ", ".join(f"{name} {worst[name]:.0e} ({PRINTED[name]:.2e})" for name in PAPER_SCHEMES)
    largest = max(row["max_error"] for row in own)
    measured = f"Measured (printed): {words}. Errors on the way are up to {largest:.0e}; at t = 1 all has decayed."
    return Verdict(SMALLEST, where, measured, judged([worst[name] <= PRINTED[name] for name in PAPER_SCHEMES]))


def _order(rows: list[Row], where: str) -> Verdict:
    own = {(row["method"], row["data"]): row["nfe"] for row in _paper(rows)}
    names = ("bdf2", "bdf3", "bdf4")
    if any((name, data) not in own for name in names for data in INITIAL_DATA):
        return Verdict(ORDER, where, "", UNKNOWN)
    found = {data: [own[name, data] for name in names] for data in INITIAL_DATA}
    words = "; ".join(
        f"{data}: {' < '.join(f'{n:,}' for n in nfe) if nfe == sorted(nfe) else nfe}" for data, nfe in found.items()
    )
    return Verdict(
        ORDER, where, f"NFE of BDF2, BDF3, BDF4: {words}.", judged([nfe == sorted(nfe) for nfe in found.values()])
    )


def _length(rows: list[Row], where: str) -> Verdict:
    own = [row for row in rows if row["options"].get("inner_lr") is not None]
    printed = [row for row in own if row["options"]["inner_lr"] == 0.1]
    half = [row for row in own if row["options"]["inner_lr"] == 0.05]
    if len(printed) < len(INITIAL_DATA) or len(half) < len(INITIAL_DATA):
        return Verdict(LENGTH, where, "", UNKNOWN)
    good = [row["status"] == "SUCCESS" for row in printed]
    words = ", ".join(f"{row['data']}: {row['status']}" for row in printed)
    rest = ", ".join(f"{row['data']}: {row['status']}, {row['nfe']:,} NFE" for row in half)
    outcome = HOLDS if all(good) else PARTLY if any(good) else FAILS
    return Verdict(LENGTH, f"{where}, BDF2", f"With 0.1 times the residual: {words}. With 0.05: {rest}.", outcome)


EXPERIMENT = DiffusionExperiment()
