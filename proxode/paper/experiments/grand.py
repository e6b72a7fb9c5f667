"""Experiment 6: GRAND trained with adaptive solvers and the adjoint, with the paper's proximal solvers, and with ours.

All solvers start from the same weights and see the same dropout. Beside the costs, loss and accuracy of each training:
how wrong the gradient of the usual adjoint is on the way, and what a training with it loses against one whose solves
are the same and whose gradient is right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ..experiment import Experiment, Picture, Report, Row, Scales, Task, Verdict, Watch
from ..grand import EQUATIONS, SIZES, SOLVERS, missing
from ..grand_training import train
from ..grand_verdicts import CLAIMS, solvers_of, verdicts
from ..tables import Table, scientific, whole

ALL = list(SOLVERS)
REPEATED = ("dopri5", "dopri5, backpropagated", "auto")  # with every seed


class Grand(Experiment):
    name = "grand"
    title = "GRAND trained with adaptive solvers, with the paper's proximal ones and with ours"
    claims = CLAIMS
    growing = ("solvers", "once", "seeds")
    scales: ClassVar[Scales] = {
        "quick": {
            **SIZES["cora"], "epochs": 3, "seeds": [0], "variants": ["printed", "scaled"], "validate_every": 1,
            "solvers": ["dopri5", "dopri5, backpropagated", "bdf2", "auto"], "checked": ["auto"],
            "check_epochs": [0, 2], "reference_tol": 1e-5, "most_calls": 160, "once": [], "short": {},
        },
        "full": {
            **SIZES["coauthor_cs"], "epochs": 50, "seeds": [0, 1, 2], "variants": ["printed", "scaled"],
            "validate_every": 2, "solvers": ALL, "checked": ["dopri5", "auto"], "check_epochs": [0, 5, 15, 30, 49],
            "reference_tol": 1e-7, "most_calls": 1000, "once": [name for name in ALL if name not in REPEATED],
            "short": dict.fromkeys(("backward_euler", "crank_nicolson", "bdf3", "bdf4"), 20),
        },
    }  # fmt: skip
    cut = (
        "three seeds for DOPRI5 with both gradients and for auto, one for the others; twenty epochs for the paper's "
        "schemes but BDF2; accuracy is measured in every second epoch; a pass of torchdiffeq is stopped after 1,000 "
        "calls of f"
    )

    def setting(self, scale: str, seed: int = 0) -> dict[str, Any]:
        """The seeds are a list; `seed` is the first of them."""
        setting = super().setting(scale, seed)
        return setting | {"seeds": [seed + shift for shift in setting["seeds"]]}

    def missing(self, setting: dict[str, Any], data_dir: Path | None) -> str | None:
        return missing(setting, data_dir)

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": "embedding, diffusion with graph attention up to t1, ReLU, output layer; float32",
            "equations": {name: EQUATIONS[name] for name in setting["variants"]},
            "solvers": {name: SOLVERS[name].what for name in setting["solvers"]},
            "nfe_forward": "evaluations of f",
            "nfe_backward": "vector-Jacobian products, as the paper counts",
            "work_backward": "vector-Jacobian products and evaluations of f, one each",
            "validation, test": "accuracies of the epoch that is best on the validation nodes",
            "seconds": "forward, backward and the step of the optimiser; means over the epochs",
            "gradient errors": "relative, without dropout, against backpropagation through torchdiffeq's dopri5 in "
            f"float64 at {setting['reference_tol']:g}; theta is the attention (and alpha), whole is all weights",
            "output_error": "relative error of u(t1) with the weights of the start",
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        return [
            _task(solver, variant, seed, setting, data_dir)
            for seed in setting["seeds"] for variant in setting["variants"] for solver in solvers_of(seed, setting)
        ]  # fmt: skip

    def tables(self, report: Report) -> list[Table]:
        return [_table(report, variant) for variant in report["setting"]["variants"]]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.grand import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        return verdicts(report)


def _task(solver: str, variant: str, seed: int, setting: dict[str, Any], data_dir: Path | None) -> Task:
    def make(watch: Watch) -> Row:
        epochs = setting["short"].get(solver, setting["epochs"])
        return train(solver, variant, seed, setting | {"epochs": epochs}, data_dir, watch)

    return Task({"solver": solver, "variant": variant, "training_seed": seed}, make)


def _table(report: Report, variant: str) -> Table:
    heads = ["solver", "group", "seed", "epochs", "NFE forward", "backward", "all work", "s per epoch", "loss",
             "validation", "test", "output error", ""]  # fmt: skip
    rows = [row for row in report["rows"] if row["variant"] == variant]
    cells = [
        [row["solver"], row["group"], str(row["training_seed"]), str(row["epochs_done"]), _number(row["nfe_forward"]),
         _number(row["nfe_backward"]), _number(_work(row)), _decimals(row["seconds"], 2), _decimals(row["loss"], 3),
         _decimals(row["validation"], 3), _decimals(row["test"], 3), scientific(row["output_error"]),
         "ok" if row["status"] == "SUCCESS" else row["status"]]
        for row in sorted(rows, key=lambda row: (list(SOLVERS).index(row["solver"]), row["training_seed"]))
    ]  # fmt: skip
    return Table(f"{variant}: {EQUATIONS[variant].split(',')[0]}", heads, cells, words=2)


def _work(row: Row) -> float | None:
    return None if row["nfe_forward"] is None else row["nfe_forward"] + row["work_backward"]


def _number(value: float | None) -> str:
    return whole(None if value is None else round(value))


def _decimals(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


EXPERIMENT = Grand()
