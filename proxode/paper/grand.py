"""The problem of `grand` and `tolerance`: GRAND on a graph, and the solvers that are compared on it.

Sizes and optimiser are those that GRAND's authors give for Coauthor-CS, to whom the paper refers for all that it does
not say (https://github.com/twitter-research/graph-neural-pde); for Cora, the small graph, the defaults of that code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import Graph, Split, load_graph, random_split
from ..data.files import find
from ..data.graphs import source_of
from ..nn import GRAND, Edges, NeuralODE
from .peer_layer import MISSING, PeerLayer

TOL = 1e-4  # of the adaptive solvers, as in the paper
OURS_TOL = 1e-2  # loose: the gradient is exactly that of the solve that was made, however loose it is
VARIANTS: dict[str, float | None] = {"printed": 1.0, "scaled": None}  # scale of the right side; None: sigmoid(alpha)
EQUATIONS = {
    "printed": "du/dt = A(u) u - u, as in the paper",
    "scaled": "du/dt = sigmoid(alpha) (A(u) u - u) with alpha learned, as in the public code of GRAND's authors",
}
PAPERS: dict[str, Any] = {  # the iteration as printed: constant step length, from z = h_k
    "step_size": 1.25, "inner": "fr", "inner_eta": 0.3, "inner_tol": 1e-4, "inner_stop": "update",
    "predictor": "previous", "gradient": "continuous",
}  # fmt: skip
SIZES: dict[str, Any] = {
    "coauthor_cs": {
        "graph": "coauthor_cs", "per_class": 20, "development": 5000, "hidden": 16, "heads": 4, "t1": 10.0,
        "input_dropout": 0.5275, "dropout": 0.6858, "optimiser": "rmsprop", "lr": 9.343e-4, "decay": 4.738e-3,
    },
    "cora": {
        "graph": "cora", "per_class": 20, "development": 1500, "hidden": 16, "heads": 2, "t1": 10.0,
        "input_dropout": 0.5, "dropout": 0.0, "optimiser": "adam", "lr": 0.01, "decay": 5e-4,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Solver:
    """One way to solve and to differentiate: options of NeuralODE, or of torchdiffeq."""

    group: str  # "adaptive", "paper" or "ours"
    what: str
    options: dict[str, Any] = field(default_factory=dict)
    peer: bool = False


SOLVERS: dict[str, Solver] = {
    "adaptive_heun": Solver("adaptive", "torchdiffeq, odeint_adjoint", {"method": "adaptive_heun"}, True),
    "dopri5": Solver("adaptive", "torchdiffeq, odeint_adjoint", {"method": "dopri5"}, True),
    "dopri8": Solver("adaptive", "torchdiffeq, odeint_adjoint", {"method": "dopri8"}, True),
    "dopri5, backpropagated": Solver(
        "control", "torchdiffeq, odeint: the same solves with the right gradient",
        {"method": "dopri5", "adjoint": False}, True,
    ),
    **{
        name: Solver("paper", "step 1.25, fr, eta 0.3, |z' - z| <= 1e-4", {"method": name} | PAPERS)
        for name in ("backward_euler", "crank_nicolson", "bdf2", "bdf3", "bdf4")
    },
    "bdf2, found": Solver(
        "paper", "step 1.25, fr with a step length that is found, |z' - z| <= 1e-4",
        {"method": "bdf2"} | {name: value for name, value in PAPERS.items() if name != "inner_eta"},
    ),
    "bdf2, mean": Solver(
        "paper", "the same, stopped where the root mean square of the residual is 1e-4",
        {"method": "bdf2"} | PAPERS | {"inner_stop": "residual"},
    ),
    "auto": Solver("ours", f"default method, tolerance {OURS_TOL:g}, implicit gradient"),
    "bdf2, anderson": Solver(
        "ours", "8 steps, inner solver anderson, implicit gradient",
        {"method": "bdf2", "step_size": 1.25, "inner": "anderson"},
    ),
}  # fmt: skip


class Problem(NamedTuple):
    graph: Graph
    edges: Edges
    split: Split

    def loss(self, model: GRAND, x: Tensor | None = None) -> Tensor:
        scores = model(self.graph.features if x is None else x)
        return F.cross_entropy(scores[self.split.train], self.graph.labels[self.split.train])


class Cost(NamedTuple):
    """`nfe_backward` counts vector-Jacobian products, as the paper does; `work_backward` the evaluations of f too."""

    nfe_forward: int
    nfe_backward: int
    work_backward: int


def missing(setting: dict[str, Any], data_dir: Path | None) -> str | None:
    """What the experiments need besides the package."""
    if find_spec("torchdiffeq") is None:
        return MISSING
    if find_spec("numpy") is None:
        return "graphs are in files of numpy, which is not installed: pip install numpy"
    try:
        find(source_of(setting["graph"]).data_file, data_dir)
    except FileNotFoundError as error:
        return str(error)
    return None


def problem_of(setting: dict[str, Any], seed: int, data_dir: Path | None) -> Problem:
    graph, edges = _graph(setting["graph"], data_dir)
    split = random_split(graph.labels, seed, per_class=setting["per_class"], development=setting["development"])
    return Problem(graph, edges, split)


@cache
def _graph(name: str, data_dir: Path | None) -> tuple[Graph, Edges]:
    graph = load_graph(name, data_dir)
    return graph, Edges(graph.target, graph.source, graph.nodes)


def model_of(setting: dict[str, Any], variant: str, seed: int, problem: Problem) -> GRAND:
    """The same weights for every solver."""
    torch.manual_seed(seed)
    return GRAND(
        problem.edges, problem.graph.features.shape[1], problem.graph.classes, hidden=setting["hidden"],
        heads=setting["heads"], t1=setting["t1"], scale=VARIANTS[variant], input_dropout=setting["input_dropout"],
        dropout=setting["dropout"],
    )  # fmt: skip


def layer_of(name: str, func: nn.Module, setting: dict[str, Any], tol: float | None = None) -> nn.Module:
    """The diffusion of a model by a solver of `SOLVERS`."""
    solver = SOLVERS[name]
    if solver.peer:
        limit = setting["most_calls"]
        return PeerLayer(func, setting["t1"], tol=TOL if tol is None else tol, most_calls=limit, **solver.options)
    tol = OURS_TOL if tol is None else tol
    return NeuralODE(func, setting["t1"], **({"rtol": tol, "atol": tol} | solver.options))


@contextmanager
def solved_by(model: GRAND, layer: nn.Module) -> Iterator[GRAND]:
    """The model with another layer for its diffusion, for a while."""
    before = model.ode
    model.add_module("ode", layer)
    try:
        yield model
    finally:
        model.add_module("ode", before)


def cost(layer: nn.Module) -> Cost:
    """Of the last pass, forward and backward."""
    if isinstance(layer, PeerLayer):
        return Cost(layer.calls_forward, layer.products, layer.calls - layer.calls_forward + layer.products)
    assert isinstance(layer, NeuralODE) and layer.stats is not None
    stats = layer.stats
    return Cost(stats.nfe_forward, stats.n_vjp, stats.nfe_backward)
