"""Values of f in a graph, whose products in backward are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .eager import eager

Count = Callable[[Tensor], None]


class Counted(torch.autograd.Function):
    """Hands its argument on, and tells `count` of every gradient that comes back through it."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, count: Count) -> Tensor:
        ctx.count = count
        return out.view_as(out)

    @staticmethod
    @eager
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.count(grad)
        return grad, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.view_as(tangent)


def counted(out: Tensor, count: Count) -> Tensor:
    """The same value, with a graph that counts.

    A hook on the tensor would be less to write. But a hook asks for the Python object of a node of the graph, and torch
    (2.13 and 2.15; not 2.4) frees nodes that have one by recursion: a graph of some 40,000 explicit steps overflowed
    the stack, which ends the process. Inside of a transform of torch.func, which wants another kind of Function, a hook
    it is.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        return Counted.apply(out, count)  # type: ignore[no-untyped-call]
    out = out.view_as(out)
    out.register_hook(count)
    return out
