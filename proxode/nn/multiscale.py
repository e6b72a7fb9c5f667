"""The multiscale flow of images of FFJORD: at every scale half of the components are done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .bijections import Squeeze
from .cnf import CNF
from .time_layers import TimeNet


class Multiscale(nn.Module):
    """Images `(channels, height, width)` to vectors. Every scale but the last is: flows, a squeeze, flows, and half of
    the channels leave; the last one is flows alone.

    Args:
        shape: of an image; its sides must be divisible by 2 for every scale but the last.
        scales: how many there are.
        blocks: flows before a squeeze, and after it. Two scales of one block make three flows.
        hidden: channels of the convolutions in between, 3 x 3 of stride 1 with softplus and the time as a channel.
        t1: as in `CNF`, like all of `cnf`.
    """

    def __init__(
        self, shape: tuple[int, int, int], *, scales: int = 2, blocks: int = 1, hidden: Sequence[int] = (64,) * 4,
        t1: float = 1.0, **cnf: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, height, width = shape
        fold = 2 ** (scales - 1)
        if scales < 1 or blocks < 1 or height % fold or width % fold:
            raise ValueError(f"`shape` {shape} does not admit {scales} scales: sides must be divisible by {fold}")
        self.shape = shape

        def flows(channels: int) -> list[nn.Module]:
            nets = [TimeNet(channels, hidden, layer="conv", activation="softplus") for _ in range(blocks)]
            return [CNF(net, t1, **cnf) for net in nets]

        made: list[list[nn.Module]] = []
        for _ in range(scales - 1):
            made.append([*flows(channels), Squeeze(), *flows(4 * channels)])
            channels *= 2
        made.append(flows(channels))
        self.scales = nn.ModuleList([nn.ModuleList(scale) for scale in made])

    def forward(
        self, x: Tensor, *, reverse: bool = False, generator: Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        if reverse:
            return self._inverse(x, generator)
        done, total = [], x.new_zeros(len(x))
        for i, scale in enumerate(self.scales):
            for layer in _of(scale):
                x, log_det = layer(x, generator=generator)
                total = total + log_det
            if i < len(self.scales) - 1:
                x, half = x.chunk(2, 1)
                done.append(half.flatten(1))
        return torch.cat([*done, x.flatten(1)], 1), total

    def _inverse(self, z: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        shapes, total = self._shapes(), z.new_zeros(len(z))
        parts = [part.unflatten(1, shape) for part, shape in
                 zip(z.split([math.prod(shape) for shape in shapes], 1), shapes, strict=True)]  # fmt: skip
        x = parts.pop()
        for i in reversed(range(len(self.scales))):
            if parts and i < len(self.scales) - 1:
                x = torch.cat([x, parts.pop()], 1)
            for layer in reversed(_of(self.scales[i])):
                x, log_det = layer(x, reverse=True, generator=generator)
                total = total + log_det
        return x, total

    def _shapes(self) -> list[tuple[int, int, int]]:
        """Of what leaves at each scale."""
        channels, height, width = self.shape
        shapes = []
        for _ in range(len(self.scales) - 1):
            channels, height, width = 2 * channels, height // 2, width // 2
            shapes.append((channels, height, width))
        return [*shapes, (channels, height, width)]


def _of(scale: nn.Module) -> list[nn.Module]:
    return list(scale.children())
