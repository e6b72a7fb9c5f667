"""Notices an f that writes its result into a tensor that it has returned before."""

from __future__ import annotations

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class Returned:
    """The last value that f returned: its memory, which is not held, and the number of writes to it so far."""

    def __init__(self) -> None:
        self.last: tuple[StorageWeakRef, int] | None = None

    def check(self, out: Tensor) -> None:
        try:
            here, version = StorageWeakRef(out.untyped_storage()), out._version
        except (RuntimeError, NotImplementedError):  # a tensor of torch.func or of inference mode has none
            return
        last, self.last = self.last, (here, version)
        if last is not None and last[0].cdata == here.cdata and last[1] != version and not last[0].expired():
            raise ValueError(
                "func wrote its result into a tensor that it had returned before: it must return a new tensor "
                "each time, for the solver keeps the values of several calls"
            )
