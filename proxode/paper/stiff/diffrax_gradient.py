"""One gradient by diffrax: Kvaerno5, an implicit method of order 5, compiled, with diffrax's own default gradient."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch

from .gradients import Cost, Gradient
from .model import Model, Parameters

MAX_STEPS = 4096


class Diffrax(Gradient):
    """Pieces are solved side by side with steps of their own (vmap). Evaluations inside are not counted by diffrax."""

    needs = "diffrax"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._compiled: Any = None

    def prepare(self, parameters: Parameters) -> None:
        jax: Any = import_module("jax")
        jax.config.update("jax_enable_x64", True)
        jitted = jax.jit(jax.value_and_grad(self._loss(), has_aux=True))
        self._compiled = jitted.lower(self._theta(parameters), self._array(0.0)).compile()

    def __call__(self, parameters: Parameters, hold: float, seconds: float) -> Cost:
        (loss, reached), gradient = self._compiled(self._theta(parameters), self._array(hold))
        for parameter, found in zip(parameters.theta, gradient, strict=True):
            parameter.grad = torch.tensor(_numpy(found))
        if not bool(reached):
            raise RuntimeError(f"diffrax did not reach the end in {MAX_STEPS:,} steps")
        return Cost(float(loss), math.nan, math.nan)

    def _theta(self, parameters: Parameters) -> tuple[Any, ...]:
        return tuple(self._array(parameter.detach().numpy()) for parameter in parameters.theta)

    def _array(self, value: Any) -> Any:
        return import_module("jax.numpy").asarray(value, dtype="float64")

    def _loss(self) -> Any:
        jax, jnp, diffrax = (import_module(name) for name in ("jax", "jax.numpy", "diffrax"))
        model = self.model
        times = self._array(model.times.numpy())
        y0, targets = self._array(model.y0.numpy()), self._array(model.targets().numpy())
        size = self._array(model.size.numpy())
        pieces = None if model.pieces is None else self._array(model.pieces.numpy())

        def solve(y0: Any, piece: Any, theta: Any, hold: Any) -> Any:
            done = diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, y, theta: model.rate(jnp, theta, t, y, piece, hold)), diffrax.Kvaerno5(),
                times[0], times[-1], None, y0, theta, saveat=diffrax.SaveAt(ts=times[1:]), max_steps=MAX_STEPS,
                stepsize_controller=diffrax.PIDController(rtol=model.tol, atol=model.tol), throw=False,
            )  # fmt: skip
            return done.ys, done.result == diffrax.RESULTS.successful

        def loss(theta: Any, hold: Any) -> Any:
            if pieces is None:
                ys, reached = solve(y0, None, theta, hold)
            else:
                ys, reached = jax.vmap(solve, in_axes=(0, 0, None, None), out_axes=(1, 0))(y0, pieces, theta, hold)
            return jnp.mean(((ys - targets) / size) ** 2), jnp.all(reached)

        return loss


def _numpy(value: Any) -> Any:
    return import_module("numpy").array(value)
