"""Maps of images that are invertible in closed form. Each gives its value and `log |det|` of its Jacobian."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


class Logit(nn.Module):
    """`logit(alpha + (1 - 2 alpha) x)`: from [0, 1] to the line; alpha keeps the ends of the interval finite."""

    def __init__(self, alpha: float = 1e-6) -> None:
        super().__init__()
        if not 0 <= alpha < 0.5:
            raise ValueError(f"`alpha` must be from 0 to below 1/2, not {alpha}")
        self.alpha = alpha

    def forward(self, x: Tensor, *, reverse: bool = False, **unused: Any) -> tuple[Tensor, Tensor]:
        shrunk = x.sigmoid() if reverse else self.alpha + (1 - 2 * self.alpha) * x
        if not reverse and not bool(((shrunk > 0) & (shrunk < 1)).all()):
            low, high = x.detach().aminmax()
            raise ValueError(
                f"pixels must lie in [0, 1] for the logit, but they reach from {float(low):g} to {float(high):g}: "
                "dequantise(pixels) makes them so of whole numbers from 0 to 255"
            )
        slope = math.log(1 - 2 * self.alpha)
        if reverse:
            log_det = F.logsigmoid(x) + F.logsigmoid(-x) - slope
            return (shrunk - self.alpha) / (1 - 2 * self.alpha), log_det.flatten(1).sum(1)
        log_det = slope - shrunk.log() - torch.log1p(-shrunk)
        return torch.logit(shrunk), log_det.flatten(1).sum(1)


class Squeeze(nn.Module):
    """`(c, 2 h, 2 w)` to `(4 c, h, w)`: the four pixels of a square become channels."""

    def forward(self, x: Tensor, *, reverse: bool = False, **unused: Any) -> tuple[Tensor, Tensor]:
        if not reverse and (x.shape[-1] % 2 or x.shape[-2] % 2):
            raise ValueError(f"an image of {x.shape[-2]} x {x.shape[-1]} cannot be squeezed: its sides must be even")
        moved = F.pixel_shuffle(x, 2) if reverse else F.pixel_unshuffle(x, 2)
        return moved, x.new_zeros(len(x))


def dequantise(pixels: Tensor, generator: Generator | None = None, *, levels: int = 256) -> Tensor:
    """Whole numbers from 0 to levels - 1, uniformly spread over their cells of [0, 1]."""
    x = pixels.to(torch.get_default_dtype()) if not pixels.is_floating_point() else pixels
    if not bool(((x >= 0) & (x < levels) & (x == x.floor())).all()):
        raise ValueError(
            f"`pixels` must be whole numbers from 0 to {levels - 1}: of numbers that are scaled to [0, 1] make them by "
            f"(pixels * {levels - 1}).round()"
        )
    noise = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return (x + noise) / levels


def bits_per_dim(log_prob: Tensor, dims: int, *, levels: int = 256) -> Tensor:
    """Bits for each pixel of whole numbers, from the log-density (in nats) of their dequantised images."""
    return (math.log(levels) - log_prob / dims) / math.log(2)
