"""A solve of torchdiffeq as a layer that counts what it costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

MISSING = "torchdiffeq, which is compared with, is not installed: pip install torchdiffeq"


class TooManyCalls(RuntimeError):
    """A pass, forward and backward, that was stopped: adjoints that are solved backwards in time may never end."""


class PeerLayer(nn.Module):
    """`forward(u)` is the state at t1. With `adjoint` its gradient is that of `odeint_adjoint`, which integrates the
    state backwards; else autograd goes through the steps, and with `recompute` evaluates func again on the way."""

    def __init__(
        self, func: nn.Module, t1: float, method: str, tol: float, *, adjoint: bool = True, most_calls: int = 10**9,
        recompute: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.func, self.t1, self.method, self.tol = func, t1, method, tol
        self.adjoint, self.most_calls, self.recompute = adjoint, most_calls, recompute
        self.calls = self.calls_forward = self.products = 0

    def forward(self, u: Tensor) -> Tensor:
        import torchdiffeq

        self.calls = self.calls_forward = self.products = 0
        options: dict[str, Any] = {"rtol": self.tol, "atol": self.tol, "method": self.method}
        if self.adjoint:
            options["adjoint_params"] = tuple(self.func.parameters())
        odeint = torchdiffeq.odeint_adjoint if self.adjoint else torchdiffeq.odeint
        u1: Tensor = odeint(self._counted, u, torch.tensor([0.0, self.t1], dtype=u.dtype), **options)[-1]
        self.calls_forward = self.calls
        return u1

    def _counted(self, t: Tensor, u: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.most_calls:
            raise TooManyCalls(f"stopped after {self.most_calls:,} calls of f in one pass")
        rate: Tensor = checkpoint(self.func, t, u, use_reentrant=False) if self.recompute else self.func(t, u)
        if rate.requires_grad:
            rate.register_hook(self._product)
        return rate

    def _product(self, grad: Tensor) -> None:
        self.products += 1
