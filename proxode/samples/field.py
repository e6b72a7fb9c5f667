"""The user's f on a batch of independent problems: `func(t, y)` with t of shape `(batch,)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..solution import Stats
from ..structure import Structure, check_output
from ..vector_field import count_product


class BatchField:
    """f on states `(batch, n)`, with the Jacobian of every sample. A call for the whole batch counts one."""

    def __init__(self, func: Callable[..., Any], structure: Structure, stats: Stats, sign: Tensor) -> None:
        self.func = func
        self.structure = structure
        self.stats = stats
        self.sign = sign  # (batch,): -1 where time runs backwards, so that the solver's own always grows
        self.wanted = torch.is_grad_enabled()  # may anybody want a gradient?
        self.captures = False  # has f been seen to depend on something that wants one?

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        """f without its graph. Whether it would have had one is noted, for f may depend on a parameter only later."""
        self.stats.count("n_f")
        with torch.set_grad_enabled(self.wanted and not self.captures):
            out = self.evaluate(t, y.detach())
        self.captures |= out.requires_grad
        return out.detach()

    def graph(self, t: Tensor, y: Tensor) -> Tensor:
        """f with its graph, whose products count."""
        self.stats.count("n_f")
        out = self.evaluate(t, y)
        if out.requires_grad:
            out.register_hook(partial(count_product, self.stats))
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
            rows = [self._row(out[:, i].sum(), z) for i in range(n)] if out.requires_grad else []
        if not any(row is not None for row in rows):
            self._check_constant(t, y, out)
        return torch.stack([torch.zeros_like(y) if row is None else row for row in rows or [None] * n], dim=1)

    def _row(self, component: Tensor, z: Tensor) -> Tensor | None:
        row: Tensor | None = torch.autograd.grad(component, z, retain_graph=True, allow_unused=True)[0]
        return row

    def _check_constant(self, t: Tensor, y: Tensor, out: Tensor) -> None:
        """Where autograd sees no dependence on y there must be none."""
        with torch.no_grad():
            moved = self(t, 1.001 * y + 1e-3)
        if not torch.equal(moved, out.detach()):
            raise ValueError("func depends on y, but not in autograd's eyes: `per_sample` needs its derivative")
