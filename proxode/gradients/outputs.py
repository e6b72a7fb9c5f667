"""The outputs of a whole solve as one function to autograd, for gradients that go back over the solve themselves."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ..autocast import uncasting
from ..eager import eager
from .tangent import refuse_tangents


class Backward(Protocol):
    name: str

    def backward(self, grads: Tensor) -> tuple[Tensor | None, Tensor | None, list[Tensor | None]]:
        """From the gradients of the outputs, `(times, n)`, to those of y0, of the times, of each captured tensor."""
        ...


class Outputs(torch.autograd.Function):
    """The outputs of a solve as a function of the initial state, the times of the steps and what f captures."""

    @staticmethod
    def forward(ctx: Any, back: Backward, ys: Tensor, y0: Tensor, times: Tensor | None, *captured: Tensor) -> Tensor:
        ctx.back = back
        ctx.save_for_backward(*captured)  # refuses to go on if one of them has been changed in place
        return ys

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"second derivatives with gradient={ctx.back.name!r} are not available: use 'implicit' or 'direct'"
            )
        refuse_tangents(ctx.back.name, *grads)
        _ = ctx.saved_tensors
        y0, times, captured = ctx.back.backward(grads[0])
        return None, None, y0, times, *captured

