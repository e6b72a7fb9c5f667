"""A training step of a stiff model: Allen-Cahn's equation whose reaction is a small network (`proxode.paper.stiff`),
T = 1; the loss is the distance to a solution of the true equation at ten times, the error that of dL/dtheta."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxode.paper.stiff.allen_cahn import END, AllenCahn
from proxode.paper.stiff.model import Parameters

from .contest import Answer, Prepare, Run
from .references import CACHE

OUTPUTS, SEED = 10, 0
REFERENCE = 1e-10  # tolerance of the gradient that errors are measured against


class Model(Parameters):
    """Diffusion, and a network of one number at every point: that of the experiment `stiff`."""

    def __init__(self, points: int) -> None:
        self.equation = AllenCahn(points, OUTPUTS)
        super().__init__(self.equation.parameters(SEED))

    def forward(self, t: Any, u: Tensor) -> Tensor:
        return self.equation.rate(torch, list(self.theta), t, u)


@dataclass(frozen=True)
class Training:
    points: int

    @classmethod
    def ready(cls, points: int) -> Training:
        """With its targets and the reference, so that no run makes them."""
        made = cls(points)
        for name in ("u0", "times", "targets", "gradient"):
            getattr(made, name)
        return made

    @cached_property
    def equation(self) -> AllenCahn:
        return AllenCahn(self.points, OUTPUTS)

    @property
    def u0(self) -> Tensor:
        return self.equation.y0

    @property
    def times(self) -> Tensor:
        return self.equation.times

    @property
    def targets(self) -> Tensor:
        return self.equation.targets()

    def loss(self, us: Tensor) -> Tensor:
        return self.equation.loss(us[1:])

    @cached_property
    def gradient(self) -> np.ndarray[Any, Any]:
        """By an explicit method, step by step; made once, then read from the cache."""
        path = CACHE / f"allen_cahn_training_{self.points}.npy"
        if not path.exists():
            import proxode

            model = Model(self.points)
            us = proxode.odeint(model, self.u0, self.times, rtol=REFERENCE, atol=REFERENCE, method="dopri5",
                                options={"gradient": "checkpoint"})  # fmt: skip
            self.loss(us).backward()
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part.npy")
            np.save(part, flat(model))
            part.replace(path)
        return np.load(path)

    def error(self, found: Any) -> float:
        found = np.asarray(found)
        return float(np.linalg.norm(found - self.gradient) / np.linalg.norm(self.gradient))


def flat(model: Model) -> np.ndarray[Any, Any]:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]).numpy()


def ours(points: int) -> Prepare:
    import proxode

    training, model = Training.ready(points), Model(points)

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            model.zero_grad()
            with proxode.record() as stats:
                us = proxode.odeint(model, training.u0, training.times, rtol=tol, atol=tol)
                training.loss(us).backward()
            more = {"nfe_forward": stats.nfe_forward, "nfe_backward": stats.nfe_backward}
            return Answer(training.error(flat(model)), stats.nfe_forward + stats.nfe_backward, more)

        return run

    return prepare


def torchdiffeq_dopri5(points: int, adjoint: bool) -> Prepare:
    import torchdiffeq

    training, model = Training.ready(points), Model(points)
    solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            model.zero_grad()
            us = solve(model, training.u0, training.times, rtol=tol, atol=tol, method="dopri5")
            training.loss(us).backward()
            return Answer(training.error(flat(model)))

        return run

    return prepare


def diffrax_kvaerno5(points: int) -> Prepare:
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    training, model = Training.ready(points), Model(points)
    theta = tuple(jnp.asarray(p.detach().numpy()) for p in model.parameters())
    start, targets = jnp.asarray(training.u0.numpy()), jnp.asarray(training.targets.numpy())
    saved = diffrax.SaveAt(ts=jnp.asarray(training.times[1:].numpy()))

    def f(t: Any, u: Any, theta: Any) -> Any:
        return training.equation.rate(jnp, theta, t, u)

    def prepare(tol: float) -> Run:
        def loss(theta: Any) -> Any:
            done = diffrax.diffeqsolve(
                diffrax.ODETerm(f), diffrax.Kvaerno5(), 0.0, END, None, start, theta, saveat=saved, max_steps=4_096,
                stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol),
            )  # fmt: skip
            return jnp.mean((done.ys - targets) ** 2)

        gradient = jax.jit(jax.grad(loss))

        def run() -> Answer:
            return Answer(training.error(np.concatenate([np.asarray(g).reshape(-1) for g in gradient(theta)])))

        return run

    return prepare
