"""Networks of a state and a time: what the right side of a flow is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Smooth, for the divergence is differentiated too.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": F.softplus, "tanh": torch.tanh}


class ConcatLinear(nn.Module):
    """A linear layer of the state and the time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs + 1, outputs)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.linear(torch.cat([x, t.expand(*x.shape[:-1], 1)], -1))


class ConcatSquashLinear(nn.Module):
    """`(W x + b) sigmoid(t g + c) + t d`: the time opens and shuts what a linear layer gives (FFJORD's name for it)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gate = nn.Linear(1, outputs)
        self.shift = nn.Linear(1, outputs, bias=False)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        t = t.reshape(1)
        return self.linear(x) * self.gate(t).sigmoid() + self.shift(t)


class ConcatConv2d(nn.Module):
    """A convolution of 3 x 3 and stride 1 of an image and the time, which is one more channel."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs + 1, outputs, 3, padding=1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.convolution(torch.cat([x, t.expand_as(x[:, :1])], 1))


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "concat": ConcatLinear, "squash": ConcatSquashLinear, "conv": ConcatConv2d,
}  # fmt: skip


class TimeNet(nn.Module):
    """`net(t, x)` of the shape of x: layers with an activation between, the first and the last of `size` columns."""

    def __init__(
        self, size: int, hidden: Sequence[int] = (64, 64, 64), *, layer: str = "squash", activation: str = "tanh"
    ) -> None:
        super().__init__()
        for name, given, known in (("layer", layer, LAYERS), ("activation", activation, ACTIVATIONS)):
            if given not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}, not {given!r}")
        made = LAYERS[layer]
        self.layers = nn.ModuleList([made(a, b) for a, b in pairwise((size, *hidden, size))])
        self.activation = activation

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        between = ACTIVATIONS[self.activation]
        for i, layer in enumerate(self.layers):
            x = layer(t, between(x) if i else x)
        return x
