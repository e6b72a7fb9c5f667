"""One gradient of a model's loss, by our solver and by those of other libraries: all see the same formula and data."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ... import SolverError, odeint, record
from .model import Model, Parameters

TIGHT = 1e-6  # the tolerance at which trainings are judged


class Cost(NamedTuple):
    """The loss whose gradient was made, and the evaluations and Jacobian products for it, where they are known."""

    loss: float
    nfe_forward: float
    nfe_backward: float


class Stopped(RuntimeError):
    """A gradient that took longer than it may."""


class Field(nn.Module):
    """The right side for solvers of torch. It counts its calls and the products with them, and ends at a deadline."""

    def __init__(self, model: Model, parameters: Parameters, hold: float, seconds: float, *, count: bool) -> None:
        super().__init__()
        self.model, self.parameters_, self.hold, self.count = model, parameters, hold, count
        self.seconds, self.begin = seconds, time.perf_counter()
        self.calls = self.products = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if time.perf_counter() - self.begin > self.seconds:
            raise Stopped(f"one gradient takes more than {self.seconds:g} s ({self.calls:,} evaluations until then)")
        theta = list(self.parameters_.theta)
        out: Tensor = self.model.rate(torch, theta, t, y, self.model.pieces, self.hold)
        if self.count and out.requires_grad:
            out.register_hook(self._product)
        return out

    def _product(self, grad: Tensor) -> None:
        self.products += 1


@torch.no_grad()
def tight_loss(model: Model, parameters: Parameters) -> float:
    """By a solve at 1e-6, whatever the training was solved with; nan where that fails."""
    field = Field(model, parameters, model.hold(1.0), math.inf, count=False)
    try:
        return float(model.loss(odeint(field, model.y0, model.times, rtol=TIGHT, atol=TIGHT)[1:]))
    except SolverError:
        return math.nan


class Gradient(ABC):
    """Leaves the gradient in the parameters. `prepare` is what is done once, such as compiling."""

    needs: str | None = None  # a package besides our own

    def __init__(self, model: Model) -> None:
        self.model = model

    def missing(self) -> str | None:
        if self.needs is None or find_spec(self.needs) is not None:
            return None
        return f"{self.needs} is not installed: pip install {self.needs}"

    def prepare(self, parameters: Parameters) -> None:  # noqa: B027
        pass

    @abstractmethod
    def __call__(self, parameters: Parameters, hold: float, seconds: float) -> Cost: ...


class Ours(Gradient):
    """`auto`, the default; or a method with one step from each datum to the next."""

    def __init__(self, model: Model, method: str | None = None) -> None:
        super().__init__(model)
        self.method = method

    def __call__(self, parameters: Parameters, hold: float, seconds: float) -> Cost:
        model = self.model
        field = Field(model, parameters, hold, seconds, count=False)
        steps = {} if self.method is None else {"step_size": float(model.times[1] - model.times[0])}
        with record() as stats:
            ys = odeint(field, model.y0, model.times, rtol=model.tol, atol=model.tol, method=self.method, options=steps)
            loss = model.loss(ys[1:])
            loss.backward()
        return Cost(float(loss.detach()), stats.nfe_forward, stats.nfe_backward)


class Torchdiffeq(Gradient):
    """dopri5, with backpropagation through its steps or with the adjoint."""

    needs = "torchdiffeq"

    def __init__(self, model: Model, adjoint: bool) -> None:
        super().__init__(model)
        self.adjoint = adjoint

    def __call__(self, parameters: Parameters, hold: float, seconds: float) -> Cost:
        import torchdiffeq

        model = self.model
        field = Field(model, parameters, hold, seconds, count=True)
        solve: Any = torchdiffeq.odeint_adjoint if self.adjoint else torchdiffeq.odeint
        ys = solve(field, model.y0, model.times, rtol=model.tol, atol=model.tol, method="dopri5")
        forward = field.calls
        loss = model.loss(ys[1:])
        loss.backward()
        return Cost(float(loss.detach()), forward, field.calls - forward + field.products)
