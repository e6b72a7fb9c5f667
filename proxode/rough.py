"""Rough directions, in which nothing that is stiff can hide."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .spread import present


def rough_signs(y: Tensor, seed: int) -> Tensor:
    """Plus and minus ones at random, the same at every call: a direction in which every stiff mode shows."""
    return _drawn(y, seed, lambda number, by: torch.randint(0, 2, (number,), generator=by, device="cpu")) * 2 - 1


def rough_sizes(y: Tensor, seed: int) -> Tensor:
    """From a half to one and a half at random, the same at every call: no component is missing, none like another, and
    a sum over all is not small."""
    return _drawn(y, seed, lambda number, by: torch.rand(number, generator=by, device="cpu", dtype=torch.float64)) + 0.5


def _drawn(y: Tensor, seed: int, draw: Callable[[int, torch.Generator], Tensor]) -> Tensor:
    generator = torch.Generator(device="cpu").manual_seed(seed)
    spread, count = present(), y.shape[-1]
    return (draw(count, generator) if spread is None else spread.drawn(count, lambda n: draw(n, generator))).to(y)
