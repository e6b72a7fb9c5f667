"""Notices an f that writes where it should not: into a tensor that it has returned before, or into its argument."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .calls import call

SMALL = 2**16  # bytes of a value that may be held: a weak reference takes longer to make


class Returned:
    """The last value that f returned: its memory, where that is, and the number of writes to it so far. Neither a large
    value nor a graph is held."""

    def __init__(self) -> None:
        self.last: tuple[Tensor | StorageWeakRef | None, int, int] = (None, 0, 0)

    def check(self, out: Tensor) -> None:
        try:
            here, version = out.data_ptr(), out._version
        except RuntimeError:  # a tensor of torch.func or of inference mode has none
            return
        held, at, before = self.last
        if here == at and version != before and not (isinstance(held, StorageWeakRef) and held.expired()):
            raise ValueError(
                "func wrote its result into a tensor that it had returned before: it must return a new tensor "
                "each time, for the solver keeps the values of several calls"
            )
        weak = out.requires_grad or out.nbytes > SMALL
        self.last = (StorageWeakRef(out.untyped_storage()) if weak else out, here, version)


class Argument:
    """The state that f is given, which it must leave as it is."""

    def __init__(self) -> None:
        self.left_alone = False  # by f in a call before?

    def call(self, func: Any, y: Tensor, t: Tensor, state: Any) -> Any:
        """`func(t, state)`, where state is y in the user's structure. The first is that of y0, which is the user's own:
        it gets back what it had."""
        copy = None if self.left_alone else y.detach().clone()
        before = _writes(y)
        out = call(func, t, state)
        if _writes(y) != before:
            if copy is not None:
                y.detach().copy_(copy)
            raise ValueError(
                "func has written into its argument y, which it must leave as it is: compute a new tensor, y * a for "
                "y *= a, or change y.clone()"
            )
        self.left_alone = True
        return out


def _writes(y: Tensor) -> int:
    """How often y was written to; a tensor of torch.func or of inference mode does not tell."""
    try:
        return y._version
    except RuntimeError:
        return -1
