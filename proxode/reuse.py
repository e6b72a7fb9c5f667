"""Notices an f that writes its result into a tensor that it has returned before."""

from __future__ import annotations

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

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
