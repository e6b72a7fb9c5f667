"""Densities: invertible layers, from data to a standard normal variable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .. import Recording
from .bijections import Logit
from .cnf import CNF
from .multiscale import Multiscale
from .neural_ode import NeuralODE
from .time_layers import TimeNet


class Flow(nn.Module):
    """A density of data x: `z = layers(x)` is a standard normal variable.

    Args:
        layers: called in turn as `layer(x, reverse=..., generator=...)`, each gives its value and the logarithms
            `(batch,)` of the determinants of its Jacobian: `CNF`, `Multiscale`, `Logit`, `Squeeze`.
        shape: of z of one sample.
    """

    def __init__(self, layers: Sequence[nn.Module], shape: Sequence[int]) -> None:
        super().__init__()
        self.layers, self.shape = nn.ModuleList(layers), tuple(shape)

    def forward(
        self, x: Tensor, *, reverse: bool = False, generator: Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """z and `log |det dz/dx|`; with `reverse` x and `log |det dx/dz|` of a z."""
        total = x.new_zeros(len(x))
        for layer in reversed(self.layers) if reverse else self.layers:
            x, log_det = layer(x, reverse=reverse, generator=generator)
            total = total + log_det
        return x, total

    def log_prob(self, x: Tensor, *, generator: Generator | None = None) -> Tensor:
        """The log-density at every sample, in nats; where the divergence is estimated, an estimate without bias."""
        z, log_det = self(x, generator=generator)
        return standard_normal(z) + log_det

    def sample(self, n: int, *, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """n samples, by the way back in time, and their log-densities."""
        weight = next((p for p in self.parameters() if p.is_floating_point()), torch.zeros(()))
        z = torch.randn(n, *self.shape, generator=generator, dtype=weight.dtype, device=weight.device)
        x, log_det = self(z, reverse=True, generator=generator)
        return x, standard_normal(z) - log_det

    @property
    def stats(self) -> Recording:
        """The sum of what the last solve of every layer has cost."""
        recording = Recording()
        solvers = [module for module in self.modules() if isinstance(module, NeuralODE)]
        recording.solves = [module.stats for module in solvers if module.stats is not None]
        return recording


def standard_normal(z: Tensor) -> Tensor:
    """The log-density of every sample."""
    z = z.flatten(1)
    return -0.5 * (z.square().sum(1) + z.shape[1] * math.log(2 * math.pi))


def vector_flow(
    size: int = 2, hidden: Sequence[int] = (64, 64, 64), *, blocks: int = 1, layer: str = "squash",
    activation: str = "tanh", t1: float = 1.0, **cnf: Any,
) -> Flow:  # fmt: skip
    """A density of vectors by fully connected networks; `cnf` as in `CNF`."""
    nets = [TimeNet(size, hidden, layer=layer, activation=activation) for _ in range(blocks)]
    return Flow([CNF(net, t1, **cnf) for net in nets], (size,))


def image_flow(shape: tuple[int, int, int] = (1, 28, 28), *, alpha: float = 1e-6, **multiscale: Any) -> Flow:
    """A density of images in [0, 1] (`dequantise`), by the logit transform and `Multiscale`, which has the options."""
    return Flow([Logit(alpha), Multiscale(shape, **multiscale)], (math.prod(shape),))
