"""The user's f on a batch of independent problems: `func(t, y)` with t of shape `(batch,)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..solution import Stats
from ..structure import Structure, check_output


class BatchField:
    """f on states `(batch, n)`, with the Jacobian of every sample. A call for the whole batch counts one."""

    def __init__(self, func: Callable[..., Any], structure: Structure, stats: Stats, sign: Tensor) -> None:
        self.func = func
        self.structure = structure
        self.stats = stats
        self.sign = sign  # (batch,): -1 where time runs backwards, so that the solver's own always grows

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        self.stats.count("n_f")
        out = self.evaluate(t, y)
        if out.requires_grad:
            if not torch.is_grad_enabled():
                return out.detach()
            out.register_hook(partial(_count_product, self.stats))
        return out

    def evaluate(self, t: Tensor, y: Tensor) -> Tensor:
        out = self.func((self.sign * t).to(y.dtype), self.restore(y))
        check_output(out, self.structure, y)
        return self.flatten(out).to(y.dtype) * self.sign[:, None].to(y.dtype)

    def flatten(self, y: Any) -> Tensor:
        parts = y if self.structure.is_tuple else (y,)
        return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)

    def restore(self, flat: Tensor, *lead: int) -> Any:
        sizes = [shape[1:].numel() for shape in self.structure.shapes]
        parts = [part.reshape(*lead, *shape) for part, shape in
                 zip(flat.split(sizes, dim=-1), self.structure.shapes, strict=True)]  # fmt: skip
        return tuple(parts) if self.structure.is_tuple else parts[0]

    def jacobian(self, t: Tensor, y: Tensor) -> Tensor:
        """df/dy of each sample, `(batch, n, n)`: one backward pass for each component, of all samples at once."""
        n = y.shape[-1]
        self.stats.count("n_jac", n)
        with torch.enable_grad():
            z = y.detach().requires_grad_()
            out = self.evaluate(t, z)
            if not out.requires_grad:
                raise ValueError("func does not depend on y in autograd's eyes: `per_sample` needs its derivative")
            rows = [torch.autograd.grad(out[:, i].sum(), z, retain_graph=i < n - 1)[0] for i in range(n)]
        return torch.stack(rows, dim=1)


def _count_product(stats: Stats, grad: Tensor) -> None:
    with stats.counting_backward():
        stats.count("n_vjp")
