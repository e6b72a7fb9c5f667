"""What flows are trained on: densities of the plane, and MNIST. Each makes its flow, its batches and its likelihood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from ...data import load_mnist, sample_density
from ...nn import Flow, bits_per_dim, dequantise, image_flow, vector_flow

SPAN, HELD_OUT = 4.0, 10_000_019  # half a side of the pictured square; the seed of data that no training sees


class Source(ABC):
    unit: str
    lr: float
    cooling: bool  # whether the rate of the optimiser falls, along a cosine: to convergence

    @abstractmethod
    def flow(self, **cnf: Any) -> Flow: ...

    @abstractmethod
    def batch(self, size: int, generator: Generator) -> Tensor: ...

    @abstractmethod
    def held_out(self, size: int) -> Tensor: ...

    @abstractmethod
    def cost(self, log_prob: Tensor) -> Tensor:
        """What is minimised, in `unit`, the less the better."""

    @abstractmethod
    def shown(self, judge: Flow) -> dict[str, Any]:
        """What a picture shows of a trained flow."""


class Plane(Source):
    """A density of `proxode.data`; the divergence is exact."""

    unit, lr, cooling = "nats", 5e-3, True

    def __init__(self, name: str, hidden: list[int]) -> None:
        self.name, self.hidden = name, hidden

    def flow(self, **cnf: Any) -> Flow:
        return vector_flow(2, self.hidden, **cnf)

    def batch(self, size: int, generator: Generator) -> Tensor:
        return sample_density(self.name, size, generator)

    def held_out(self, size: int) -> Tensor:
        return sample_density(self.name, size, HELD_OUT)

    def cost(self, log_prob: Tensor) -> Tensor:
        return -log_prob.mean()

    def shown(self, judge: Flow, side: int = 48) -> dict[str, Any]:
        line = torch.linspace(-SPAN, SPAN, side, dtype=torch.float64)
        y, x = torch.meshgrid(line, line, indexing="ij")
        with torch.no_grad():
            density = judge.log_prob(torch.stack([x.flatten(), y.flatten()], 1)).exp()
        return {"density": [[round(value, 4) for value in row] for row in density.view(side, side).tolist()]}


class Digits(Source):
    """MNIST, the first `images` of it; the divergence is estimated. `pool` averages squares of so many pixels."""

    unit, lr, cooling = "bits/dim", 1e-3, False

    def __init__(self, images: int, hidden: list[int], pool: int, data_dir: Path | None) -> None:
        self.hidden, self.pool = hidden, pool
        self.train = self._small(load_mnist("train", data_dir)[0][:images])
        self.test = self._small(load_mnist("test", data_dir)[0])

    def _small(self, pixels: Tensor) -> Tensor:
        small = torch.nn.functional.avg_pool2d(pixels.float(), self.pool) if self.pool > 1 else pixels
        return small.floor().to(torch.uint8)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.shape[1:]
        return channels, height, width

    def flow(self, **cnf: Any) -> Flow:
        return image_flow(self.shape, hidden=self.hidden, **cnf)

    def batch(self, size: int, generator: Generator) -> Tensor:
        chosen = torch.randint(0, len(self.train), (size,), generator=generator)
        return dequantise(self.train[chosen], generator)

    def held_out(self, size: int) -> Tensor:
        return dequantise(self.test[:size], Generator().manual_seed(HELD_OUT))

    def cost(self, log_prob: Tensor) -> Tensor:
        return bits_per_dim(log_prob, self.train[0].numel()).mean()

    def shown(self, judge: Flow) -> dict[str, Any]:
        with torch.no_grad():
            x, _ = judge.sample(8, generator=Generator().manual_seed(0))
        return {"samples": (x.clamp(0, 1) * 255).round().int().squeeze(1).tolist()}


def source_of(name: str, given: dict[str, Any], data_dir: Path | None) -> Source:
    if name == "mnist":
        return Digits(given["images"], given["hidden"], given["pool"], data_dir)
    return Plane(name, given["hidden"])
