"""Products with the transposed derivative of a solved equation's move."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..solution import Stats
from .captured import pull

Sums = list[Tensor | None]


@dataclass(frozen=True)
class Products:
    """Products with the transposed derivative of `moved = M(x, inputs)`, along its graph."""

    moved: Tensor
    x: Tensor
    inputs: tuple[Tensor, ...]  # those that want a gradient
    stats: Stats

    def of_x(self, v: Tensor) -> Tensor:
        """M_x^T v."""
        return self.of_all(v, ())[0]

    def of_all(self, v: Tensor, inputs: tuple[Tensor, ...] | None = None) -> tuple[Tensor, Sums]:
        """M_x^T v, and M_input^T v for each input."""
        wanted = self.inputs if inputs is None else inputs
        self.stats.count("n_vjp")
        if not self.moved.requires_grad:  # in this process; in others it may
            return torch.zeros_like(v), [None] * len(wanted)
        found = pull(self.moved, (self.x, *wanted), v)
        return torch.zeros_like(v) if found[0] is None else found[0], list(found[1:])
