"""The user's f on a batch of independent problems: `func(t, y)` with t of shape `(batch,)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..autocast import as_before, autocast_changed, autocast_state
from ..counted import counted
from ..reuse import Argument
from ..solution import Stats
from ..structure import Structure, check_output


class Pullback:
    """Products with the transposed Jacobians at a point of each sample, by one graph for all; with `twice` also with
    the Jacobians: the product before is linear in its vector, and its derivative is the one that is asked for."""

    def __init__(self, out: Tensor, z: Tensor, stats: Stats, twice: bool) -> None:
        self.out, self.z, self.stats = out, z, stats
        self.dual = torch.zeros_like(out, requires_grad=True) if twice else None
        if self.dual is not None:
            stats.count("n_vjp")
            with torch.enable_grad():
                self.linear = torch.autograd.grad(out, z, self.dual, create_graph=True)[0]

    def __call__(self, v: Tensor) -> Tensor:
        self.stats.count("n_vjp")
        return torch.autograd.grad(self.out, self.z, v, retain_graph=True)[0]

    def forward(self, v: Tensor) -> Tensor:
        self.stats.count("n_jvp")
        assert self.dual is not None
        if not self.linear.requires_grad:
            return torch.zeros_like(v)
        found: Tensor | None = torch.autograd.grad(self.linear, self.dual, v, retain_graph=True, allow_unused=True)[0]
        return torch.zeros_like(v) if found is None else found


class BatchField:
    """f on states `(batch, n)`, with the Jacobian of every sample. A call for the whole batch counts one."""

    def __init__(self, func: Callable[..., Any], structure: Structure, stats: Stats, sign: Tensor) -> None:
        self.func = func
        self.structure = structure
        self.stats = stats
        self.sign = sign  # (batch,): -1 where time runs backwards, so that the solver's own always grows
        self.onward = bool((sign > 0).all())
        self.plain = not structure.is_tuple and len(structure.shapes[0]) == 2
        self.wanted = torch.is_grad_enabled()  # may anybody want a gradient?
        self._argument = Argument()
        self._autocast = autocast_state()  # of the solve, as in function.py
        self.drawn: Tensor | None = None  # how far torch's generator was when the solve began
        self.captures = False  # has f been seen to depend on something that wants one?

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        """f without its graph. Whether it would have had one is noted, for f may depend on a parameter only later."""
        self.stats.count("n_f")
        if not self.wanted:
            return self.evaluate(t, y)
        with torch.set_grad_enabled(not self.captures):
            out = self.evaluate(t, y.detach())
        self.captures |= out.requires_grad
        return out.detach()

    def graph(self, t: Tensor, y: Tensor) -> Tensor:
        """f with its graph, whose products count."""
        self.stats.count("n_f")
        out = self.evaluate(t, y)
        return counted(out, self.stats.count_product) if out.requires_grad else out

    def evaluate(self, t: Tensor, y: Tensor) -> Tensor:
        if autocast_changed(self._autocast):
            with as_before(self._autocast):
                return self.evaluate(t, y)
        when = (t if self.onward else self.sign * t).to(y.dtype)
        out = self._argument.call(self.func, y, when, y if self.plain else self.restore(y))
        check_output(out, self.structure, y)
        flat = self.flatten(out).to(y.dtype)
        return flat if self.onward else flat * self.sign[:, None].to(y.dtype)

    def flatten(self, y: Any) -> Tensor:
        if self.plain:
            return y
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
        self.stats.count("n_f")
        with torch.enable_grad():
            z = y.detach().requires_grad_()
            out = self.evaluate(t, z)
            rows = [self._row(out[:, i].sum(), z) for i in range(n)] if out.requires_grad else []
        if not any(row is not None for row in rows):
            self._check_constant(t, y, out)
        return torch.stack([torch.zeros_like(y) if row is None else row for row in rows or [None] * n], dim=1)

    def pullback(self, t: Tensor, y: Tensor, twice: bool = False) -> Pullback:
        """f's derivative without a matrix. Costs an evaluation, and with `twice` a product."""
        self.stats.count("n_f")
        with torch.enable_grad():
            z = y.detach().requires_grad_()
            out = self.evaluate(t, z)
            if not out.requires_grad:
                self._check_constant(t, y, out)
            return Pullback(out if out.requires_grad else out + 0.0 * z, z, self.stats, twice)

    def _row(self, component: Tensor, z: Tensor) -> Tensor | None:
        row: Tensor | None = torch.autograd.grad(component, z, retain_graph=True, allow_unused=True)[0]
        return row

    def _check_constant(self, t: Tensor, y: Tensor, out: Tensor) -> None:
        """Where autograd sees no dependence on y there must be none."""
        with torch.no_grad():
            moved = self(t, 1.001 * y + 1e-3)
        if not torch.equal(moved, out.detach()):
            raise ValueError("func depends on y, but not in autograd's eyes: `per_sample` needs its derivative")
