"""Rough directions: of plus and minus ones, in which nothing that is stiff can hide."""

from __future__ import annotations

import torch
from torch import Tensor

from .spread import present


def rough_signs(y: Tensor, seed: int) -> Tensor:
    """Plus and minus ones at random, the same at every call: a direction in which every stiff mode shows."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    spread, count = present(), y.shape[-1]

    def draw(number: int) -> Tensor:
        return torch.randint(0, 2, (number,), generator=generator, device="cpu")

    return (draw(count) if spread is None else spread.drawn(count, draw)).to(y) * 2 - 1
