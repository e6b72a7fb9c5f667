"""Experiment 5: continuous normalising flows (FFJORD), trained with the paper's BDFs, DOPRI5 and the adjoint, and ours.

First the paper's setting as given: evaluations forward and backward, and the error of each solver along the training.
Then the measure that counts: the likelihood of data that no training saw, by a solve at 1e-7, against all evaluations
that the training has spent. Flows are not stiff: their evaluations pay for accuracy, and a loose solve with its exact
gradient needs few.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from ...data.files import find
from ...data.mnist import PARTS
from ..cnf.solvers import BDFS, OURS, REFERENCE, SOLVERS, TIGHTER
from ..cnf.sources import Source, source_of
from ..cnf.training import train
from ..experiment import FAILS, UNKNOWN, Claim, Experiment, Picture, Report, Row, Scales, Task, Verdict, Watch, judged
from ..tables import Table, scientific, whole

HALF = Claim("Proximal BDF2, BDF3 and BDF4 require about half of the NFE of DOPRI5.", "section 5.2, Figure 6 (b), (c)")
CONSISTENT = Claim("The BDFs have an error profile consistent with that of DOPRI5.", "section 5.2, Figure 6 (a)")
PRINTED = Claim("The inner solver FR runs with step size 0.3 at integration steps of 0.2.", "section 5.2")
LIKELY = Claim(
    "Ours reaches the likelihood of DOPRI5 with the adjoint in at most half of its NFE and of its time.",
    "ours, not the paper's",
)

COSTS_ONLY = (TIGHTER, "bdf2, eta 0.3", "bdf2, lr 0.3", "bdf3", "bdf4")  # trained for a part of the way
ABOUT_HALF = 0.6
LIKE = 3.0  # errors of solvers whose profiles are consistent differ by no more than this factor
MARGIN = {"nats": 0.02, "bits/dim": 0.02}  # likelihoods that differ by less are equal


class CNFs(Experiment):
    name = "cnf"
    title = "continuous normalising flows: the paper's BDFs, DOPRI5 with the adjoint, and ours"
    claims = (HALF, CONSISTENT, PRINTED, LIKELY)
    scales: ClassVar[Scales] = {
        "quick": {"sources": {
            "pinwheel": {"hidden": [32, 32], "batch": 128, "iterations": 8, "judge_every": 4, "held_out": 200,
                         "clip": 10.0, "short": {}},
            "mnist": {"hidden": [8, 8], "images": 300, "pool": 2, "batch": 16, "iterations": 3, "judge_every": 3,
                      "held_out": 16, "clip": 10.0, "short": {}, "if there": True},
        }},
        "full": {"sources": {
            "pinwheel": {"hidden": [64, 64, 64], "batch": 512, "iterations": 1000, "judge_every": 50,
                         "held_out": 4000, "clip": 10.0, "short": dict.fromkeys(COSTS_ONLY, 200)},
            "checkerboard": {"hidden": [64, 64, 64], "batch": 512, "iterations": 1000, "judge_every": 50,
                             "held_out": 4000, "clip": 10.0, "short": dict.fromkeys((*COSTS_ONLY, "bdf2"), 200)},
            "mnist": {"hidden": [64, 64, 64, 64], "images": 60_000, "pool": 1, "batch": 16, "iterations": 60,
                      "judge_every": 10, "held_out": 32, "clip": 10.0,
                      "short": dict.fromkeys((*COSTS_ONLY, "bdf2"), 10)},
        }},
    }  # fmt: skip
    cut = (
        "MNIST: 60 iterations of 16 images in place of 10 epochs, 32 held-out images; DOPRI5 at 1e-7 and the paper's "
        "BDFs, but BDF2 on the pinwheel, for a part of the iterations"
    )

    def missing(self, setting: dict[str, Any], data_dir: Path | None) -> str | None:
        """Digits; the quick setting does without them."""
        return None if _optional(setting, "mnist") else _missing_digits(data_dir)

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "sources": setting["sources"],
            "model": "FFJORD: fully connected on the plane; multiscale with convolutions and softplus on MNIST",
            "training": "Adam, 5e-3 falling to 5e-5 along a cosine on the plane, 1e-3 on MNIST; gradients are clipped; "
            "float32",
            "held out": "likelihood of data that no training saw, in float64 by dopri5 at 1e-7",
            "error": "of z, relative, of the training's own solver against that at 1e-7",
            "NFE": "evaluations of the net with its divergence, and products with their Jacobian, one each; "
            "a call in the adjoint's backward is one evaluation and one product",
            "solvers": {name: f"{solver.group}: {solver.what}" for name, solver in SOLVERS.items()},
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        left_out = "mnist" if _optional(setting, "mnist") and _missing_digits(data_dir) else None
        names = [name for name in setting["sources"] if name != left_out]
        return [_task(name, label, setting, data_dir) for name in names for label in SOLVERS]

    def tables(self, report: Report) -> list[Table]:
        heads = ["data", "solver", "", "NFE forward", "backward", "s each", "error of z", "held out", "total NFE"]
        cells = [
            [row["data"], row["solver"], row["status"].lower(), _mean(row, "nfe_forward"), _mean(row, "nfe_backward"),
             f"{row['seconds'] / row['iterations']:.3g}" if row["iterations"] else "-", scientific(row["error"]),
             "-" if row["held_out"] is None else f"{row['held_out']:.3f} {row['unit']}", whole(round(spent(row)))]
            for row in report["rows"]
        ]  # fmt: skip
        return [Table("trainings of flows, means of an iteration", heads, cells, words=3)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.cnf import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        """From the data all of whose trainings are there, so that a long run says something on the way."""
        setting, rows = report["setting"], {(row["data"], row["solver"]): row for row in report["rows"]}
        names = [name for name in setting["sources"] if all((name, label) in rows for label in SOLVERS)]
        if not names:
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        return [_half(rows, names), _consistent(rows, names), _printed(rows, names), _likely(rows, names)]


def _optional(setting: dict[str, Any], name: str) -> bool:
    """Whether there may be no data of this name; or none is wanted."""
    return bool(setting["sources"].get(name, {"if there": True}).get("if there"))


def _missing_digits(data_dir: Path | None) -> str | None:
    try:
        for part in ("train", "test"):
            find(PARTS[part][0].data_file, data_dir)
    except FileNotFoundError as error:
        return str(error)
    return None


def _task(name: str, label: str, setting: dict[str, Any], data_dir: Path | None) -> Task:
    def make(watch: Watch) -> Row:
        given = setting["sources"][name]
        whole_way = given["iterations"]
        given = given | {"planned": whole_way, "iterations": given["short"].get(label, whole_way)}
        return train(_source(name, _frozen(given), data_dir), label, given, setting["seed"], watch)

    return Task({"data": name, "solver": label}, make)


def _frozen(given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """What the data and the flow depend on."""
    used = {key: given[key] for key in ("hidden", "images", "pool") if key in given}
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in used.items())


@cache
def _source(name: str, given: tuple[tuple[str, Any], ...], data_dir: Path | None) -> Source:
    """Its data are read once for all solvers."""
    return source_of(name, dict(given), data_dir)


# Verdicts

Rows = dict[tuple[str, str], Row]


def _mean(row: Row, name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:.0f}"


def spent(row: Row) -> float:
    """All evaluations and products of a training."""
    return float(sum(row["history"]["nfe_forward"]) + sum(row["history"]["nfe_backward"]))


def until(row: Row, goal: float) -> tuple[float, float] | None:
    """Evaluations and seconds after which the held-out likelihood is at its goal for the first time."""
    history = row["history"]
    nfe = list(accumulate(a + b for a, b in zip(history["nfe_forward"], history["nfe_backward"], strict=True)))
    seconds = list(accumulate(history["seconds"]))
    for i, value in zip(history["judged_at"], history["held_out"], strict=True):
        if value is not None and value <= goal:
            return nfe[i - 1], seconds[i - 1]
    return None


def _over(row: Row, base: Row, name: str) -> float:
    """Of a training over that of another, in the iterations that both have."""
    n = min(row["iterations"], base["iterations"])
    return float(sum(row["history"][name][:n]) / sum(base["history"][name][:n]))


def _errors(row: Row, base: Row) -> tuple[float | None, float | None]:
    """Of both, after the last iteration at which both were judged."""
    own, theirs = (dict(zip(r["history"]["judged_at"], r["history"]["error"], strict=True)) for r in (row, base))
    last = max((at for at in own if at in theirs), default=None)
    return (None, None) if last is None else (own[last], theirs[last])


def _half(rows: Rows, names: list[str]) -> Verdict:
    parts, words = [], []
    for name in names:
        base = rows[name, REFERENCE]
        for label in BDFS:
            row = rows[name, label]
            if row["status"] != "SUCCESS" or base["status"] != "SUCCESS":
                parts.append(False)
                words.append(f"{name} {label}: {row['status'].lower()} after {row['iterations']} iterations")
                continue
            ways = [_over(row, base, f"nfe_{way}") for way in ("forward", "backward")]
            parts.append(max(ways) <= ABOUT_HALF)
            words.append(f"{name} {label}: {ways[0]:.2f} and {ways[1]:.2f}")
    measured = f"NFE over those of DOPRI5 at 1e-5, forward and backward: {'; '.join(words)}."
    tighter = [rows[name, TIGHTER] for name in names if rows[name, TIGHTER]["status"] == "SUCCESS"]
    if tighter:
        means = ", ".join(f"{row['nfe_forward']:.0f} and {row['nfe_backward']:.0f}" for row in tighter)
        measured += f" DOPRI5 at 1e-7 needs {means}."
    return Verdict(HALF, _words(names), measured, judged(parts))


def _consistent(rows: Rows, names: list[str]) -> Verdict:
    parts, words = [], []
    for name in names:
        for label in BDFS:
            error, base = _errors(rows[name, label], rows[name, REFERENCE])
            parts.append(error is not None and base is not None and error <= LIKE * base)
            words.append(f"{name} {label} {scientific(error)} ({scientific(base)})")
    measured = f"Error of z at the end of training (that of DOPRI5 at 1e-5): {', '.join(words)}."
    for name in names:
        cheapest = _cheapest(rows[name, REFERENCE].get("profile"), rows[name, "bdf2"]["error"])
        if cheapest:
            measured += f" {name}: to bdf2's error it takes {cheapest} forward."
    return Verdict(CONSISTENT, _words(names), measured, judged(parts))


def _cheapest(profile: list[Row] | None, error: float | None) -> str:
    """The fewest forward evaluations to an error, by curve, on the flow that DOPRI5 trained."""
    if not profile or error is None:
        return ""
    best: dict[str, int] = {}
    for row in profile:
        if row["error"] is not None and row["error"] <= error:
            best[row["curve"]] = min(best.get(row["curve"], row["nfe"]), row["nfe"])
    return ", ".join(f"{curve} {nfe}" for curve, nfe in sorted(best.items(), key=lambda item: item[1]))


def _printed(rows: Rows, names: list[str]) -> Verdict:
    """In both readings: times the gradient of the proximal functional, which is `residual / gamma`, or the residual."""
    found = [rows[name, label] for label in ("bdf2, eta 0.3", "bdf2, lr 0.3") for name in names]
    words = ", ".join(f"{row['data']} {row['solver'].removeprefix('bdf2, ')} {row['status'].lower()} after "
                      f"{row['iterations']} iterations" for row in found)  # fmt: skip
    measured = f"0.3 times the gradient (eta), or times the residual (lr): {words}."
    return Verdict(PRINTED, f"BDF2, {_words(names)}", measured, judged([row["status"] == "SUCCESS" for row in found]))


def _likely(rows: Rows, names: list[str]) -> Verdict:
    """The best of ours for each source. What its own training ended with is DOPRI5's goal."""
    parts, words = [], []
    for name in names:
        base = rows[name, REFERENCE]
        if base["held_out"] is None:
            words.append(f"{name}: DOPRI5 {base['status'].lower()}")
            continue
        goal = base["held_out"] + MARGIN[base["unit"]]
        theirs = until(base, goal)
        found = {label: until(rows[name, label], goal) for label, solver in SOLVERS.items() if solver.group == OURS}
        reached = {label: value for label, value in found.items() if value is not None}
        if theirs is None or not reached:
            parts.append(False)
            words.append(f"{name}: none of ours comes to {goal:.3f}")
            continue
        ratios = {label: (nfe / theirs[0], seconds / theirs[1]) for label, (nfe, seconds) in reached.items()}
        best = min(ratios, key=lambda label: max(ratios[label]))
        parts.append(max(ratios[best]) <= 0.5)
        words.append(f"{name}, {best}: {ratios[best][0]:.2f} of the NFE, {ratios[best][1]:.2f} of the time to "
                     f"{goal:.3f} {base['unit']}")  # fmt: skip
    return Verdict(LIKELY, _words(names), f"{'; '.join(words)}.", judged(parts) if parts else FAILS)


def _words(names: list[str]) -> str:
    return ", ".join(names)


EXPERIMENT = CNFs()
