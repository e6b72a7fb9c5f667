"""The only caller of the user's f: it evaluates and counts. f may do nearly anything: call `autograd.grad` on its own
input, be a custom `autograd.Function`, return a graph under no_grad."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .autocast import as_before, autocast_changed, autocast_state
from .compiled import Compiled, serves
from .counted import counted
from .reuse import Argument, Returned
from .solution import Stats
from .spares import Spares
from .spread import Spread, present
from .structure import Structure, check_output
from .times import Time, number


class Function:
    """`f(t, y)` on flat states, for one solve."""

    def __init__(
        self, func: Callable[[Tensor, Any], Any], structure: Structure, stats: Stats, *, reverse: bool = False
    ) -> None:
        self.func = func
        self.structure = structure
        self.stats = stats
        self.reverse = reverse  # time runs backwards: integrate dy/ds = -f(-s, y)
        self.compiled: Compiled | None = None  # func, where the user wants that
        self.spread: Spread | None = present()  # over which processes the states of this solve are spread
        self.spares = Spares()
        self.seconds = 0.0  # inside of func and its products; the clock takes 0.1 us for each
        self.unseen: tuple[float, Tensor] | None = None  # a place where the value of f had no graph, though y had one
        self.drawn: Tensor | None = None  # how far torch's generator was when the first step began
        self._argument = Argument()
        self._returned = Returned()
        self._autocast = autocast_state()  # of the solve; backward may run outside of the block

    def __call__(self, t: Time, y: Tensor) -> Tensor:
        """f at (t, y)."""
        self.stats.count_f()
        if torch.is_grad_enabled():
            # f may set flags on its input: it gets an alias. What counts holds the statistics only, so that neither f
            # nor what it returned is kept alive by it.
            out = self.evaluate(t, y if y.requires_grad else y.view_as(y))
            if y.requires_grad and not out.requires_grad and self.unseen is None:
                self.unseen = (number(t), y.detach())
            return counted(out, self.stats.count_product) if out.requires_grad else out
        if forward_ad._current_level >= 0:  # dual numbers: nothing may be cut off
            return self.evaluate(t, y.view_as(y))
        out = self.evaluate(t, y.detach())
        return out.detach() if out.requires_grad else out  # f may return a graph even now, of which nothing is kept

    def graph(self, t: Time, y: Tensor) -> Tensor:
        """f at (t, y) with its graph. Whoever makes products with that graph counts them."""
        self.stats.count("n_f")
        return self.evaluate(t, y)

    @property
    def size(self) -> int:
        """The unknowns, of all processes."""
        return sum(self.structure.sizes) if self.spread is None else self.spread.unknowns

    def evaluate(self, t: Time, y: Tensor) -> Tensor:
        """f at (t, y), not counted."""
        if autocast_changed(self._autocast):
            with as_before(self._autocast):
                return self.evaluate(t, y)
        func = self.func if self.compiled is None or not serves() else self.compiled.call
        when, state = self.time(t, y), self.structure.restore(y)
        began = perf_counter()
        out = self._argument.call(func, y, when, state)
        self.seconds += perf_counter() - began
        out = self._flat_output(out, y)
        return -out if self.reverse else out

    def user_time(self, t: Time) -> float:
        """t in the user's direction."""
        return (-number(t) if self.reverse else number(t)) + 0.0  # no minus before a zero

    def time(self, t: Time, y: Tensor) -> Tensor:
        """t as the user sees it: 0-dim, in the real dtype of the state, running in the user's direction."""
        dtype = y.dtype.to_real()
        if isinstance(t, Tensor):
            return (-t if self.reverse else t).to(dtype=dtype, device=y.device)
        return torch.scalar_tensor((-t if self.reverse else t) + 0.0, dtype=dtype, device=y.device)

    def _flat_output(self, out: Any, y: Tensor) -> Tensor:
        structure = self.structure
        out = structure.local(out)
        if not structure.is_tuple:
            if not isinstance(out, Tensor) or out.dtype != y.dtype or out.shape != structure.shapes[0]:
                check_output(out, structure, y)
            self._returned.check(out)
            flat: Tensor = out if out.dim() == 1 else out.reshape(-1)
        else:
            check_output(out, structure, y)
            flat = structure.joined(out)
        return flat if flat.dtype == y.dtype else flat.to(y.dtype)
