"""The training of a model with one of the gradients: the same start, data and steps of Adam for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ... import SolverError
from ..experiment import Row, Watch
from ..training import CheckpointError, Training
from .diffrax_gradient import Diffrax
from .gradients import Gradient, Ours, Stopped, Torchdiffeq, tight_loss
from .model import Model, Parameters

GRADIENTS: dict[str, Callable[[Model], Gradient]] = {
    "proxode auto": Ours,
    "proxode bdf2": lambda model: Ours(model, "bdf2"),
    "torchdiffeq odeint": lambda model: Torchdiffeq(model, adjoint=False),
    "torchdiffeq odeint_adjoint": lambda model: Torchdiffeq(model, adjoint=True),
    "diffrax Kvaerno5": Diffrax,
}
WHAT = {
    "proxode auto": "ours: nothing chosen, gradient implicit",
    "proxode bdf2": "ours: bdf2 with one step from each datum to the next, gradient implicit",
    "torchdiffeq odeint": "dopri5, backpropagation through its steps",
    "torchdiffeq odeint_adjoint": "dopri5, adjoint",
    "diffrax Kvaerno5": "implicit Runge-Kutta of order 5, compiled; its default gradient",
}
EVERY = 10  # steps from one checkpoint to the next
CLIP = 0.3  # norm of the gradient that goes into a step: where a solution branches off, a gradient may be anything
MISSING, STOPPED, SUCCESS, DIVERGED = "MISSING", "STOPPED", "SUCCESS", "DIVERGED"


class Limits(NamedTuple):
    """Of a training: steps planned (the schedule of rates knows them), and what a rival may use up."""

    steps: int
    most_steps: int
    seconds_per_step: float
    seconds: float
    judge_every: int = 10  # steps from one tight solve to the next


def train(model: Model, method: str, limits: Limits, seed: int, watch: Watch) -> Row:
    """A row with the history of the training, whatever became of it."""
    gradient = GRADIENTS[method](model)
    if (missing := gradient.missing()) is not None:
        return _row([], MISSING, missing, {})
    parameters = Parameters(model.parameters(seed))
    begin = time.perf_counter()
    gradient.prepare(parameters)
    prepared = time.perf_counter() - begin
    training = _training(model, method, limits, seed, parameters)
    begin = time.perf_counter()

    def told(history: list[dict[str, float]]) -> None:
        watch.loss(history[-1]["loss"])
        watch.part(len(history) / limits.most_steps)
        watch.nfe(sum(int(row["nfe_forward"] + row["nfe_backward"]) for row in history if "nfe_forward" in row))

    status, message = SUCCESS, ""
    try:
        step = _step(model, gradient, training, limits)
        training.run(step, limits.most_steps, watch.checkpoint, every=EVERY, after=told)
        if limits.most_steps < limits.steps:
            status, message = STOPPED, f"after {limits.most_steps} of {limits.steps} steps, as planned"
    except CheckpointError:
        raise
    except Stopped as stop:
        status, message = STOPPED, str(stop)
    except _Diverged as error:
        status, message = DIVERGED, str(error)
    except SolverError as error:
        status, message = error.status.name, _first_line(error)
    except (RuntimeError, AssertionError, ArithmeticError) as error:  # what another library raises is its result here
        status, message = "FAILED", _first_line(error)
    more: Row = {"seconds_prepare": prepared}
    if status in (STOPPED, "FAILED") and len(training.history) < limits.most_steps:
        more["seconds_last"] = time.perf_counter() - begin - sum(row["seconds"] for row in training.history)
    shown = training.history and isinstance(gradient, Ours)
    curves = model.curves([value.detach() for value in parameters.theta]) if shown else {}
    if training.history and "tight" not in training.history[-1]:
        training.history[-1]["tight"] = tight_loss(model, parameters)
    return _row(training.history, status, message, more | {"curves": curves})


class _Diverged(RuntimeError):
    pass


def _training(model: Model, method: str, limits: Limits, seed: int, parameters: Parameters) -> Training:
    optimiser = torch.optim.Adam(parameters.parameters(), lr=model.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, limits.steps, eta_min=model.lr / 100)
    settings = {"model": model.title, "method": method, "seed": seed, **limits._asdict()}
    return Training(parameters, optimiser, settings, parts={"schedule": schedule})


def _step(
    model: Model, gradient: Gradient, training: Training, limits: Limits
) -> Callable[[int], dict[str, float]]:
    """One step of Adam. Seconds and evaluations are its own, not those of the tight solves that judge it."""
    parameters: Any = training.model

    def step(i: int) -> dict[str, float]:
        used = sum(row["seconds"] for row in training.history)
        if used > limits.seconds:
            raise Stopped(f"after {i} steps: more than {limits.seconds:g} s")
        begin = time.perf_counter()
        training.optimiser.zero_grad()
        cost = gradient(parameters, model.hold(i / limits.steps), limits.seconds_per_step)
        if not math.isfinite(cost.loss) or not all(bool(p.grad.isfinite().all()) for p in parameters.theta):
            raise _Diverged(f"step {i}: the loss is {cost.loss:g}, or its gradient is not finite")
        torch.nn.utils.clip_grad_norm_(parameters.parameters(), CLIP)
        training.optimiser.step()
        training.parts["schedule"].step()
        row = {"loss": cost.loss, "seconds": time.perf_counter() - begin}
        if math.isfinite(cost.nfe_forward):
            row |= {"nfe_forward": cost.nfe_forward, "nfe_backward": cost.nfe_backward}
        if (i + 1) % limits.judge_every == 0:
            row["tight"] = tight_loss(model, parameters)
        return row

    return step


def _row(history: list[dict[str, float]], status: str, message: str, more: Row) -> Row:
    """Columns of the history, and their sums."""
    columns = {name: [row[name] for row in history if name in row] for name in
               ("loss", "seconds", "nfe_forward", "nfe_backward", "tight")}  # fmt: skip
    columns["judged_at"] = [i + 1 for i, row in enumerate(history) if "tight" in row]
    counted = len(columns["nfe_forward"]) == len(history) > 0
    sums: Row = {
        "status": status, "message": message, "steps": len(history),
        "first_loss": history[0]["loss"] if history else None, "last_loss": history[-1]["loss"] if history else None,
        "tight_loss": columns["tight"][-1] if history else None, "seconds": sum(columns["seconds"]),
        "nfe": int(sum(columns["nfe_forward"]) + sum(columns["nfe_backward"])) if counted else None,
    }  # fmt: skip
    return sums | more | {"history": columns}


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
