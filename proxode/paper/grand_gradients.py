"""Gradients of GRAND at given weights, by any solver, and their errors.

The reference is backpropagation through torchdiffeq's dopri5 at a tight tolerance in float64.
"""

from __future__ import annotations

import copy
import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import SolverError
from ..nn import GRAND
from ..sparse import csr
from .experiment import Row
from .grand import Problem, cost, layer_of, solved_by
from .peer_layer import PeerLayer, TooManyCalls


class Diverged(RuntimeError):
    """A loss or a gradient that is nan or infinite."""


FAILURES = (SolverError, TooManyCalls, Diverged, AssertionError)  # torchdiffeq asserts


class Gradient(NamedTuple):
    theta: Tensor  # with respect to the parameters of the equation
    whole: Tensor  # with respect to all parameters


def failure(error: Exception) -> Row:
    """How a pass ended, in words for a row."""
    names: dict[type[Exception], str] = {TooManyCalls: "TOO_MANY_CALLS", Diverged: "NON_FINITE"}
    status = error.status.name if isinstance(error, SolverError) else names.get(type(error), "ASSERTION")
    return {"status": status, "message": (str(error).splitlines() or [""])[0][:200]}


def gradient_of(model: GRAND, problem: Problem, x: Tensor | None = None) -> Gradient:
    """dL/dtheta of the training loss without dropout."""
    mode = model.training
    model.eval()
    model.zero_grad()
    try:
        problem.loss(model, x).backward()
        found = Gradient(_flat(model.attention), _flat(model))
    finally:
        model.train(mode)
        model.zero_grad()
    if not bool(torch.isfinite(found.whole).all()):
        raise Diverged("the gradient is nan or infinite")
    return found


def _flat(module: nn.Module) -> Tensor:
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    return torch.cat([grad.flatten() for grad in grads])


def reference(model: GRAND, problem: Problem, tol: float) -> Gradient:
    """f is evaluated again in backward: its graph in float64 is 90 MB a call on Coauthor-CS."""
    double, x = in_double(model, problem)
    layer = PeerLayer(double.attention, float(model.ode.t1), "dopri5", tol, adjoint=False, recompute=True)
    with solved_by(double, layer):
        return gradient_of(double, problem, x)


def in_double(model: GRAND, problem: Problem) -> tuple[GRAND, Tensor]:
    """A copy of the model, and the features for it."""
    double = GRAND(
        problem.edges, model.embedding.in_features, model.output.out_features, hidden=model.embedding.out_features,
        heads=model.attention.heads, scale=None if model.attention.alpha is not None else 1.0,
    ).double()  # fmt: skip
    double.load_state_dict(copy.deepcopy(model.state_dict()))
    x = problem.graph.features
    return double, csr(x.crow_indices(), x.col_indices(), x.values().double(), tuple(x.shape), check=False)


def measured(
    name: str, model: GRAND, problem: Problem, setting: dict[str, Any], expected: Gradient, tol: float | None = None
) -> Row:
    """One gradient by a solver: what it costs, and its relative errors. A pass that fails is a row too."""
    layer = layer_of(name, model.attention, setting, tol)
    row: Row = {"status": "SUCCESS", "message": ""}
    start = time.perf_counter()
    found = None
    try:
        with solved_by(model, layer):
            found = gradient_of(model, problem)
    except FAILURES as error:
        row |= failure(error)
    row["seconds"] = time.perf_counter() - start
    if found is None:
        return row | dict.fromkeys(("nfe_forward", "nfe_backward", "work_backward", "error_theta", "error_whole"))
    errors = {"error_theta": _error(found.theta, expected.theta), "error_whole": _error(found.whole, expected.whole)}
    return row | cost(layer)._asdict() | errors


def _error(value: Tensor, expected: Tensor) -> float:
    size = float(expected.norm())
    return float((value.double() - expected).norm()) / size if size else math.nan
