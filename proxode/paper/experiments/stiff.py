"""Beyond the paper: trainings that are truly stiff, with our solver, torchdiffeq's dopri5 and diffrax's Kvaerno5.

Three models are learned from data: the reaction of Allen-Cahn's equation, Robertson's kinetics over ten decades,
and Van der Pol's oscillator with mu = 1000. All trainings of a model have the same start, data, tolerance and steps of
Adam, and are judged by the same tight solves. An explicit method may take hours for one of these steps: it
gets so many steps, and so many seconds for each, and the row says that it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from ..experiment import UNKNOWN, Claim, Experiment, Picture, Report, Row, Scales, Task, Verdict, Watch, judged
from ..stiff.allen_cahn import AllenCahn
from ..stiff.model import Model
from ..stiff.robertson import Robertson
from ..stiff.training import CLIP, MISSING, STOPPED, WHAT, Limits, train
from ..stiff.van_der_pol import VanDerPol
from ..tables import Table, scientific, whole

PLACE = "ours, not the paper's"
FASTER = Claim("Where torchdiffeq's dopri5 converges at all, ours trains at least 50 times as fast.", PLACE)
ABREAST = Claim("Ours is not behind diffrax's Kvaerno5 in the time to the loss that it comes to.", PLACE)
LEARNED = Claim("Trained through our solver, all three stiff models fit their data to 3 percent.", PLACE)

GOAL, FIT = 50.0, 0.03
ENOUGH = 100  # steps of a training below which nothing is said about how well it fits
SAME = 1.1**2  # losses are equal whose roots, which are errors, differ by a tenth
OURS = ("proxode auto", "proxode bdf2")
EXPLICIT = ("torchdiffeq odeint", "torchdiffeq odeint_adjoint")
DIFFRAX = "diffrax Kvaerno5"

MODELS: dict[str, Callable[..., Model]] = {"allen_cahn": AllenCahn, "robertson": Robertson, "van_der_pol": VanDerPol}


class Stiff(Experiment):
    name = "stiff"
    title = "beyond the paper: training stiff models, beside torchdiffeq and diffrax"
    claims = (FASTER, ABREAST, LEARNED)
    scales: ClassVar[Scales] = {
        "quick": {
            "allen_cahn": {"points": 96, "snapshots": 4},
            "robertson": {"pieces": 5, "length": 2, "width": 8},
            "van_der_pol": {"mu": 100.0, "count": 6, "length": 8},
            "steps": 6, "explicit_steps": 2, "seconds_per_step": 2.0, "seconds": 2.0, "judge_every": 2, "diffrax": [],
        },
        "full": {
            "allen_cahn": {"points": 512, "snapshots": 10},
            "robertson": {"pieces": 20, "length": 4, "width": 16},
            "van_der_pol": {"mu": 1000.0, "count": 32, "length": 12},
            "steps": 400, "explicit_steps": 10, "seconds_per_step": 120.0, "seconds": 300.0, "judge_every": 10,
            "diffrax": list(MODELS),
        },
    }  # fmt: skip
    cut = (
        "torchdiffeq gets 10 of the 400 training steps, and it and diffrax at most 120 seconds for one of them and 300 "
        "for all"
    )

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "models": {name: make(**setting[name]).title for name, make in MODELS.items()},
            "training": f"{setting['steps']} steps of Adam with a cosine schedule, gradients no longer than {CLIP:g}, "
            "float64, one start for all methods",
            "loss": "mean of the squared errors at the data, each in units of the size of its component",
            "tight": "the loss on the way and at the end (tight_loss) by a solve at 1e-6, whatever the training is "
            "solved with",
            "tolerances": {name: MODELS[name].tol for name in MODELS},  # type: ignore[attr-defined]
            "seconds": "of the training steps; compiling (diffrax) is not in them, and is given by itself",
            "NFE": "evaluations of f and Jacobian products, forward and backward; diffrax does not count them",
            "methods": WHAT,
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [_task(name, method, setting) for name in MODELS for method in methods(name, setting)]

    def tables(self, report: Report) -> list[Table]:
        heads = ["model", "method", "", "steps", "first loss", "last loss", "by a tight solve", "NFE per step",
                 "s per step", "s"]  # fmt: skip
        cells = [
            [row["model"], row["method"], row["status"].lower(), str(row["steps"]), scientific(row["first_loss"]),
             scientific(row["last_loss"]), scientific(row.get("tight_loss")), whole(_each(row, "nfe")),
             _seconds(row), f"{row['seconds']:.1f}"]
            for row in report["rows"]
        ]  # fmt: skip
        return [Table("trainings of stiff models", heads, cells, words=3)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.stiff import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        setting = report["setting"]
        rows = {(row["model"], row["method"]): row for row in report["rows"]}
        if len(rows) < sum(len(methods(name, setting)) for name in MODELS):
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        return [_faster(rows, setting), _abreast(rows, setting), _learned(rows, setting)]


def methods(name: str, setting: dict[str, Any]) -> list[str]:
    """Those that train a model: steps from datum to datum make sense where the data were laid out for them."""
    ours = OURS[:1] if name == "allen_cahn" else OURS
    return [*ours, *EXPLICIT, *([DIFFRAX] if name in setting["diffrax"] else [])]


def _task(name: str, method: str, setting: dict[str, Any]) -> Task:
    def make(watch: Watch) -> Row:
        steps = setting["steps"]
        most = min(setting["explicit_steps"], steps) if method in EXPLICIT else steps
        each, total = (math.inf, math.inf) if method in OURS else (setting["seconds_per_step"], setting["seconds"])
        limits = Limits(steps, most, each, total, setting["judge_every"])
        return train(_model(name, tuple(setting[name].items())), method, limits, setting["seed"], watch)

    return Task({"model": name, "method": method}, make)


@cache
def _model(name: str, given: tuple[tuple[str, Any], ...]) -> Model:
    """Its data are made once for all methods."""
    return MODELS[name](**dict(given))


# Verdicts

Rows = dict[tuple[str, str], Row]


def _each(row: Row, name: str) -> int | None:
    return None if row[name] is None or not row["steps"] else round(row[name] / row["steps"])


def _seconds(row: Row) -> str:
    if row["steps"]:
        return f"{row['seconds'] / row['steps']:.3g}"
    return f"> {row['seconds_last']:.3g}" if row["status"] == STOPPED and "seconds_last" in row else "-"


def ratio(rival: Row, ours: Row) -> float | None:
    """Seconds of the rival over ours to the least loss that the rival comes to, both judged by tight solves; a bound
    where it was stopped in its first step. None where it fails, or where ours does not come as deep."""
    if rival["steps"] == 0:
        if rival["status"] != STOPPED or not ours["steps"]:
            return None
        return float(rival["seconds_last"] / ours["history"]["seconds"][0])
    known = [loss for loss in rival["history"]["tight"] if loss is not None]
    if not known:
        return None
    theirs, own = (_until(row, SAME * min(known)) for row in (rival, ours))
    return None if theirs is None or own is None else theirs / own


def _until(row: Row, goal: float) -> float | None:
    """Seconds of a training to a loss."""
    history = row["history"]
    for done, loss in zip(history["judged_at"], history["tight"], strict=True):
        if loss is not None and loss <= goal:
            return float(sum(history["seconds"][:done]))
    return None


def _best(rows: Rows, name: str, rival: Row) -> float | None:
    found = [ratio(rival, rows[name, method]) for method in OURS if (name, method) in rows]
    return max((value for value in found if value is not None), default=None)


def _compared(rows: Rows, rivals: tuple[str, ...], goal: float) -> tuple[list[bool], list[str]]:
    """For every rival that was run: whether ours is ahead by `goal`, and the words for it."""
    parts, words = [], []
    for (name, method), row in rows.items():
        if method not in rivals:
            continue
        if row["status"] == MISSING:
            words.append(f"{name}: {row['message']}")
        elif (value := _best(rows, name, row)) is not None:
            if row["steps"] or value >= goal:  # a bound that is lower says nothing
                parts.append(value >= goal)
            bound = "more than " if not row["steps"] else ""
            words.append(f"{name}, {method.removeprefix('torchdiffeq ')}: {bound}{value:.3g} ({row['steps']} steps)")
        elif row["steps"] or row["status"] == STOPPED:
            parts.append(False)
            words.append(f"{name}, {method}: ours does not come to its loss")
        else:
            words.append(f"{name}, {method}: {row['status'].lower()}")
    return parts, words


def _faster(rows: Rows, setting: dict[str, Any]) -> Verdict:
    parts, words = _compared(rows, EXPLICIT, GOAL)
    if not parts:
        return Verdict(FASTER, _words(setting), "; ".join(words), UNKNOWN)
    return Verdict(FASTER, _words(setting), f"Seconds of dopri5 over ours: {'; '.join(words)}.", judged(parts))


def _abreast(rows: Rows, setting: dict[str, Any]) -> Verdict:
    parts, words = _compared(rows, (DIFFRAX,), 1.0)
    if not parts:
        return Verdict(ABREAST, "", "; ".join(words) or "Compiling takes too long for the quick setting.", UNKNOWN)
    compiled = [f"{row['seconds_prepare']:.0f}" for (_, method), row in rows.items()
                if method == DIFFRAX and row["steps"]]  # fmt: skip
    measured = f"Seconds of diffrax over ours: {'; '.join(words)}."
    if compiled:
        measured += f" It compiles for {', '.join(compiled)} s before, which is not counted."
    return Verdict(ABREAST, _words(setting), measured, judged(parts))


def _learned(rows: Rows, setting: dict[str, Any]) -> Verdict:
    best = {}
    for name in MODELS:
        ends = [rows[name, method] for method in OURS if (name, method) in rows]
        losses = [row["tight_loss"] for row in ends if row.get("tight_loss") is not None]
        best[name] = math.sqrt(min(losses)) if losses else math.inf
    words = ", ".join(f"{name} {100 * error:.2g}%" for name, error in best.items())
    measured = f"Root of the loss by a tight solve, in units of the data: {words}, after {setting['steps']} steps."
    if setting["steps"] < ENOUGH:
        return Verdict(LEARNED, _words(setting), measured + " Too few to say.", UNKNOWN)
    return Verdict(LEARNED, _words(setting), measured, judged([error <= FIT for error in best.values()]))


def _words(setting: dict[str, Any]) -> str:
    return (
        f"{setting['allen_cahn']['points']} points, Robertson up to 1e5, mu = {setting['van_der_pol']['mu']:g}; "
        f"torchdiffeq {setting['explicit_steps']} of {setting['steps']} steps"
    )


EXPERIMENT = Stiff()
