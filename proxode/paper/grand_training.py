"""A training of GRAND with one solver: what each epoch costs and gives, and how wrong gradients are on the way."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..nn import GRAND
from .experiment import Row, Watch
from .grand import SIZES, SOLVERS, cost, layer_of, model_of, problem_of, solved_by
from .grand_gradients import FAILURES, Diverged, failure, in_double, measured, reference
from .peer_layer import PeerLayer
from .training import History, Training

COMPARED = ("dopri5", "auto")  # whose gradients are measured on the way of the trainings that the setting names
COLUMNS = ("nfe_forward", "nfe_backward", "work_backward", "seconds", "loss")
SUMMARY = (*COLUMNS, "validation", "test", "last_validation", "total_seconds", "output_error")


class GrandTraining:
    """Everything that one training needs. Each epoch has a seed of its own: all solvers see the same dropout."""

    def __init__(self, solver: str, variant: str, seed: int, setting: dict[str, Any], data_dir: Path | None) -> None:
        self.solver, self.seed, self.setting = solver, seed, setting
        self.problem = problem_of(setting, seed, data_dir)
        self.model = model_of(setting, variant, seed, self.problem)
        self.model.add_module("ode", layer_of(solver, self.model.attention, setting))
        kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[setting["optimiser"]]
        self.optimiser: torch.optim.Optimizer = kind(
            self.model.parameters(), lr=setting["lr"], weight_decay=setting["decay"]
        )
        named = {"solver": solver, "variant": variant, "seed of training": seed}
        self.training = Training(self.model, self.optimiser, named | setting)

    def epoch(self, k: int) -> dict[str, float]:
        checked = self.solver in self.setting["checked"] and k in self.setting["check_epochs"]
        found = self._gradient_errors() if checked else {}
        found |= self.step(k)
        if (k + 1) % self.setting["validate_every"] == 0 or k + 1 == self.setting["epochs"]:
            found |= self.accuracies()
        return found

    def step(self, k: int) -> dict[str, float]:
        torch.manual_seed(1000 * self.seed + k)
        self.model.train()
        self.optimiser.zero_grad()
        start = time.perf_counter()
        loss = self.problem.loss(self.model)
        loss.backward()
        self.optimiser.step()
        seconds = time.perf_counter() - start
        if not all(bool(torch.isfinite(value).all()) for value in (loss, *self.model.parameters())):
            raise Diverged("the loss or a weight is nan or infinite")
        layer = self.model.get_submodule("ode")
        return cost(layer)._asdict() | {"seconds": seconds, "loss": float(loss.detach())}

    def accuracies(self) -> dict[str, float]:
        """With the solver of the training."""
        split, graph = self.problem.split, self.problem.graph
        self.model.eval()
        with torch.no_grad():
            right = self.model(graph.features).argmax(1) == graph.labels
        return {name: float(right[getattr(split, name)].float().mean()) for name in ("validation", "test")}

    def _gradient_errors(self) -> dict[str, float]:
        expected = reference(self.model, self.problem, self.setting["reference_tol"])
        found = {}
        for name in COMPARED:
            row = measured(name, self.model, self.problem, self.setting, expected)
            for key in ("error_theta", "error_whole"):
                found[f"{key}: {name}"] = float("nan") if row[key] is None else row[key]
        return found


def train(
    solver: str, variant: str, seed: int, setting: dict[str, Any], data_dir: Path | None, watch: Watch
) -> Row:  # fmt: skip
    """A row. A training that fails or diverges has the epochs up to there, and says why it ended."""
    made = GrandTraining(solver, variant, seed, setting, data_dir)
    row: Row = {"group": SOLVERS[solver].group, "what": SOLVERS[solver].what, "status": "SUCCESS", "message": ""}
    row |= dict.fromkeys(SUMMARY)
    try:
        if SOLVERS[solver].group == "paper":
            row["output_error"] = output_error(made, variant, data_dir)
        made.training.run(made.epoch, setting["epochs"], watch.checkpoint, after=lambda h: tell(watch, h, setting))
    except FAILURES as error:
        row |= failure(error)
    return row | summary(made.training.history)


def tell(watch: Watch, history: History, setting: dict[str, Any]) -> None:
    watch.nfe(round(sum(epoch["nfe_forward"] + epoch["nfe_backward"] for epoch in history)))
    watch.loss(history[-1]["loss"])
    watch.part(len(history) / setting["epochs"])


def summary(history: History) -> Row:
    """Means over the epochs, the last loss, the accuracies of the epoch that is best on the validation nodes (as
    GRAND's authors report them) and what each epoch has given."""
    row: Row = {"epochs_done": len(history)}
    names = list(dict.fromkeys(name for epoch in history for name in epoch))
    row["history"] = {name: [epoch.get(name) for epoch in history] for name in names}
    if not history:
        return row
    for name in COLUMNS[:-1]:
        row[name] = sum(epoch[name] for epoch in history) / len(history)
    row |= {"total_seconds": sum(epoch["seconds"] for epoch in history), "loss": history[-1]["loss"]}
    seen = [epoch for epoch in history if "validation" in epoch]
    if not seen:
        return row
    best = max(seen, key=lambda epoch: epoch["validation"])
    return row | {name: best[name] for name in ("validation", "test")} | {"last_validation": seen[-1]["validation"]}


def output_error(made: GrandTraining, variant: str, data_dir: Path | None) -> float:
    """Relative error of u(t1) with the weights of the start: the paper chose its step by it."""
    sizes = tuple((name, made.setting[name]) for name in SIZES["cora"])
    expected = _output(made.seed, variant, sizes, data_dir)
    with torch.no_grad():
        u = made.model.diffuse(made.model.eval().embed(made.problem.graph.features))
    return float((u.double() - expected).norm() / expected.norm())


@lru_cache(maxsize=4)
def _output(seed: int, variant: str, sizes: tuple[tuple[str, Any], ...], data_dir: Path | None) -> Tensor:
    setting = dict(sizes)
    problem = problem_of(setting, seed, data_dir)
    model: GRAND = model_of(setting, variant, seed, problem)
    double, x = in_double(model, problem)
    layer = PeerLayer(double.attention, setting["t1"], "dopri5", 1e-6)
    with torch.no_grad(), solved_by(double, layer):
        return double.diffuse(double.eval().embed(x))
