"""Equations whose spectrum is known, for the tests of the diagnosis."""

from __future__ import annotations

import torch
from torch import Tensor

D = torch.float64


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])


def robertson(t: Tensor, y: Tensor) -> Tensor:
    slow, back, fast = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return torch.stack([back - slow, slow - back - fast, fast])


def heat(t: Tensor, y: Tensor) -> Tensor:
    """On a ring of n points with steps of 1/(n - 1): eigenvalues -4 (n - 1)^2 sin^2(pi k / n)."""
    return (torch.roll(y, 1) + torch.roll(y, -1) - 2 * y) * (len(y) - 1) ** 2


def pendulum(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0])])


def rotation(t: Tensor, y: Tensor) -> Tensor:
    return 3.0 * torch.stack([y[1], -y[0]])


def noise(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=D)


class Network(torch.nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w1 = torch.nn.Parameter(torch.randn(8, 32, generator=generator) / 3)
        self.w2 = torch.nn.Parameter(torch.randn(32, 8, generator=generator) / 6)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.dropout(torch.tanh(y @ self.w1)) @ self.w2
