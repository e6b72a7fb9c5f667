"""Figure 1: what adaptive solvers and their adjoints cost on GRAND as the tolerance shrinks; ours beside them.

One gradient of the training loss for each tolerance, at the weights of the start and at those after some epochs.
Beside the evaluations stands the error of the gradient that they paid for.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from ...nn import GRAND
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
from ..grand import EQUATIONS, SIZES, Problem, missing, model_of, problem_of
from ..grand_gradients import Gradient, measured, reference
from ..grand_training import GrandTraining
from ..tables import Table, scientific, whole

PEERS = ("adaptive_heun", "dopri5", "dopri8")
METHODS = (*PEERS, "auto")
PLACES = ("start", "trained")

GROWS = Claim(
    "All three adaptive solvers need significant NFE, and these increase very rapidly as the tolerance shrinks.",
    "Figure 1",
)
HIGHER = Claim("The higher-order scheme, DOPRI8, requires more NFE than the lower-order ones.", "Figure 1")
LARGE = Claim("DOPRI5 and DOPRI8 often fail to solve the adjoint equation at a large tolerance.", "section 1.1")
FEWER = Claim(
    "Our aim: a smaller error of the gradient than that of DOPRI5 with the adjoint, with fewer NFE.",
    "an aim of this project",
)


class Tolerance(Experiment):
    name = "tolerance"
    title = "tolerance against NFE, forward and backward, of adaptive solvers on GRAND"
    claims = (GROWS, HIGHER, LARGE, FEWER)
    scales: ClassVar[Scales] = {
        "quick": {
            **SIZES["cora"], "tolerances": [1e-2, 1e-3, 1e-4], "variants": ["printed", "scaled"], "train_epochs": 3,
            "places": ["trained"], "reference_tol": 1e-6, "most_calls": 160,
        },
        "full": {
            **SIZES["coauthor_cs"], "tolerances": [1e-1, 1e-2, 1e-3, 1e-4, 1e-5], "reference_tol": 1e-7,
            "variants": ["printed", "scaled"], "train_epochs": 15, "places": ["start", "trained"], "most_calls": 1000,
        },
    }  # fmt: skip
    cut = "a gradient at the start and one after 15 epochs in place of whole trainings; 1,000 calls of f are the limit"

    def missing(self, setting: dict[str, Any], data_dir: Path | None) -> str | None:
        return missing(setting, data_dir)

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "equations": {name: EQUATIONS[name] for name in setting["variants"]},
            "gradient": "of the training loss without dropout, T = 10, float32; rtol = atol = the tolerance",
            "solvers": "torchdiffeq's odeint_adjoint; auto: ours, with the implicit gradient",
            "weights": f"start: as initialised; trained: after {setting['train_epochs']} epochs with ours",
            "nfe_backward": "vector-Jacobian products, as the paper counts; work_backward: evaluations of f too",
            "errors": "relative, against backpropagation through torchdiffeq's dopri5 in float64 at "
            f"{setting['reference_tol']:g}: theta is the attention, whole is all weights",
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [
            _task(variant, place, method, tol, setting, data_dir)
            for variant in setting["variants"] for place in setting["places"]
            for tol in setting["tolerances"] for method in METHODS
        ]  # fmt: skip

    def tables(self, report: Report) -> list[Table]:
        heads = ["solver", "equation", "weights", "tolerance", "NFE forward", "backward", "all backward", "s",
                 "error of dL/dtheta", "all weights", ""]  # fmt: skip
        cells = [
            [row["method"], row["variant"], row["weights"], f"{row['tol']:.0e}", whole(row["nfe_forward"]),
             whole(row["nfe_backward"]), whole(row["work_backward"]), f"{row['seconds']:.2f}",
             scientific(row["error_theta"]), scientific(row["error_whole"]),
             "ok" if row["status"] == "SUCCESS" else row["status"]]
            for row in sorted(report["rows"], key=lambda row: METHODS.index(row["method"]))
        ]  # fmt: skip
        return [Table("one gradient", heads, cells, words=3)]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.tolerance import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        setting, rows = report["setting"], report["rows"]
        if len(rows) < len(self.tasks(setting)):
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.claims]
        found = {(r["variant"], r["weights"], r["method"], r["tol"]): r for r in rows}
        words = f"{setting['graph']}, tolerances {max(setting['tolerances']):.0e} to {min(setting['tolerances']):.0e}"
        return [judge(found, setting, words) for judge in (_grows, _higher, _large, _fewer)]


def _task(variant: str, place: str, method: str, tol: float, setting: dict[str, Any], data_dir: Path | None) -> Task:
    def make(watch: Watch) -> Row:
        key = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in setting.items())
        model, problem, expected = prepared(variant, place, key, data_dir)
        return measured(method, model, problem, setting, expected, tol)

    return Task({"variant": variant, "weights": place, "method": method, "tol": tol}, make)


@lru_cache(maxsize=2)
def prepared(
    variant: str, place: str, settings: tuple[tuple[str, Any], ...], data_dir: Path | None
) -> tuple[GRAND, Problem, Gradient]:
    """The model at the place, and its gradient."""
    setting = dict(settings)
    seed = setting["seed"]
    problem = problem_of(setting, seed, data_dir)
    model = model_of(setting, variant, seed, problem)
    if place == "trained":
        plain = {"epochs": setting["train_epochs"], "validate_every": 10**9, "checked": (), "check_epochs": ()}
        training = GrandTraining("auto", variant, seed, setting | plain, data_dir)
        for k in range(setting["train_epochs"]):
            training.step(k)
        model.load_state_dict(training.model.state_dict())
    return model, problem, reference(model, problem, setting["reference_tol"])


Found = dict[tuple[str, str, str, float], Row]


def _places(setting: dict[str, Any]) -> list[tuple[str, str]]:
    return [(variant, place) for variant in setting["variants"] for place in setting["places"]]


def _solved(found: Found, setting: dict[str, Any], variant: str, place: str, method: str) -> list[Row]:
    """From the loosest tolerance to the tightest."""
    rows = [found[variant, place, method, tol] for tol in sorted(setting["tolerances"], reverse=True)]
    return [row for row in rows if row["status"] == "SUCCESS"]


def _grows(found: Found, setting: dict[str, Any], words: str) -> Verdict:
    """Rapid is a doubling over the tolerances that could be solved, at least two decades of them."""
    parts, said = [], []
    for variant, place in _places(setting):
        listed = []
        for method in PEERS:
            rows = _solved(found, setting, variant, place, method)
            if len(rows) < 2:
                listed.append(f"{method} solved at {len(rows)} tolerances")
                continue
            first, last = rows[0], rows[-1]
            growth = [last[name] / max(first[name], 1) for name in ("nfe_forward", "nfe_backward")]
            parts += [factor >= 2 for factor in growth]
            listed.append(
                f"{method} {first['nfe_forward']} + {first['nfe_backward']} at {first['tol']:.0e} to "
                f"{last['nfe_forward']} + {last['nfe_backward']} at {last['tol']:.0e}"
            )
        said.append(f"{variant}, {place}: {', '.join(listed)}")
    measured = f"NFE forward + backward, {'; '.join(said)}."
    return Verdict(GROWS, words, measured, judged(parts))


def _higher(found: Found, setting: dict[str, Any], words: str) -> Verdict:
    parts, forward = [], []
    for variant, place in _places(setting):
        for tol in setting["tolerances"]:
            rows = [found[variant, place, method, tol] for method in PEERS]
            if any(row["status"] != "SUCCESS" for row in rows):
                continue
            heun, fifth, eighth = (row["nfe_forward"] + row["nfe_backward"] for row in rows)
            parts += [eighth > fifth, eighth > heun]
            forward.append(f"{variant}, {place}, {tol:.0e}: {heun}, {fifth}, {eighth}")
    if not parts:
        return Verdict(HIGHER, words, "", UNKNOWN)
    measured = f"NFE of Heun, DOPRI5, DOPRI8 where all three ended: {'; '.join(forward)}."
    return Verdict(HIGHER, words, measured, judged(parts))


def _large(found: Found, setting: dict[str, Any], words: str) -> Verdict:
    """Large is 1e-3 and more. A gradient that is wrong by its own size is no solution either."""
    loose = [tol for tol in setting["tolerances"] if tol >= 1e-3]
    rows = [found[v, p, m, tol] for v, p in _places(setting) for m in ("dopri5", "dopri8") for tol in loose]
    if not rows:
        return Verdict(LARGE, words, "", UNKNOWN)
    failed = [row for row in rows if row["status"] != "SUCCESS"]
    wrong = [row for row in rows if row["status"] == "SUCCESS" and row["error_whole"] > 1]
    measured = (
        f"Of {len(rows)} adjoint solves at 1e-3 and above {len(failed)} did not end, and {len(wrong)} ended with a "
        "gradient that is wrong by more than its own size."
    )
    bad = len(failed) + len(wrong)
    return Verdict(LARGE, words, measured, HOLDS if 2 * bad >= len(rows) else PARTLY if bad else FAILS)


def _fewer(found: Found, setting: dict[str, Any], words: str) -> Verdict:
    """The cheapest solve of ours that is as right, counting all that ours evaluates and the products of theirs."""
    parts, said = [], []
    for variant, place in _places(setting):
        ours = _solved(found, setting, variant, place, "auto")
        theirs = _solved(found, setting, variant, place, "dopri5")
        if not ours:
            return Verdict(FEWER, words, f"{variant}, {place}: 0 solves of ours ended.", FAILS)
        wins = 0
        for row in theirs:
            costs = [
                own["nfe_forward"] + own["work_backward"] for own in ours if own["error_whole"] <= row["error_whole"]
            ]
            wins += bool(costs) and min(costs) < row["nfe_forward"] + row["nfe_backward"]
        parts += [True] * wins + [False] * (len(theirs) - wins)
        best = min(row["error_whole"] for row in theirs) if theirs else None
        said.append(
            f"{variant}, {place}: ahead of {wins} of {len(theirs)} solves by DOPRI5 (its best error "
            f"{scientific(best)}); {len(setting['tolerances']) - len(theirs)} of its solves did not end"
        )
        parts += [True] * (len(setting["tolerances"]) - len(theirs))
    return Verdict(FEWER, words, f"{'; '.join(said)}.", judged(parts))


EXPERIMENT = Tolerance()
