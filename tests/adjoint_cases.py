"""A small network, a loss of its solution and their gradients, for the tests of `odeint_adjoint`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode

UP = torch.tensor([0.0, 0.4, 0.5, 1.2], dtype=torch.float64)
both_ways = pytest.mark.parametrize("t", [UP, UP.flip(0)], ids=["increasing", "decreasing"])
as_tuple = pytest.mark.parametrize("split", [False, True], ids=["tensor", "tuple"])
TIGHT = {"rtol": 1e-9, "atol": 1e-10}


class Net(nn.Module):
    """On one tensor, or on a tuple of its first row and the rest."""

    def __init__(self, split: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        self.split = split

    def forward(self, t: Tensor, y: Any) -> Any:
        if self.split:
            return tuple(self.slope(t, part) for part in y)
        return self.slope(t, y)

    def slope(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y) * torch.cos(t) - y


def initial(split: bool = False) -> Any:
    rows = torch.tensor([[0.3, -0.8, 1.0], [0.1, 0.6, -0.2]], dtype=torch.float64)
    parts = (rows[0].clone(), rows[1:].clone()) if split else (rows,)
    parts = tuple(part.requires_grad_() for part in parts)
    return parts if split else parts[0]


def loss_of(ys: Any) -> Tensor:
    parts = ys if isinstance(ys, tuple) else (ys,)
    return sum((torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y) * y**2).sum() for y in parts)


def gradients(odeint: Any, t: Tensor = UP, split: bool = False, f: Net | None = None, **kwargs: Any) -> list[Tensor]:
    """With respect to y0, t and the parameters."""
    f, y0, t = f or Net(split), initial(split), t.clone().requires_grad_()
    y = odeint(f, y0, t, **kwargs)
    return list(torch.autograd.grad(loss_of(y), [*(y0 if split else (y0,)), t, *f.parameters()]))


def exact(t: Tensor = UP) -> list[Tensor]:
    return gradients(proxode.odeint, t, method="dopri8", rtol=1e-11, atol=1e-12)


def gap(ours: list[Tensor], theirs: list[Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
