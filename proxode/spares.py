"""Memory of large states, written again where nobody holds it any more.

An allocator returns a large piece to the system when it is freed and asks for every page of it again, which takes
longer than to write it: ten times as long for 100,000 numbers.
"""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

LARGE = 2**16  # bytes from which it pays
MOST = 4  # pieces that are kept


def _holders(x: Tensor) -> int:
    """Of its memory: tensors, views of them, arrays."""
    return int(torch._C._storage_Use_Count(x.untyped_storage()._cdata))


ALONE = _holders(torch.empty(1)) if hasattr(torch._C, "_storage_Use_Count") else 0


def pays(x: Tensor) -> bool:
    """Whether memory of this size is worth to be kept, here and now."""
    if x.nbytes < LARGE or torch.is_grad_enabled() or not ALONE:
        return False
    return forward_ad._current_level < 0 and torch._C._functorch.peek_interpreter_stack() is None


class Spares:
    """What was taken belongs to the taker, who puts it back when it has no more use for it. f may have kept the state
    that it was given: then the piece is not taken again."""

    def __init__(self) -> None:
        self.pieces: list[Tensor] = []

    def take(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor | None:
        """A piece to be written, of the shape of `like`; None where it does not pay, or nothing may be written."""
        if not pays(like):
            return None
        dtype = like.dtype if dtype is None else dtype
        for i, piece in enumerate(self.pieces):
            if piece.dtype == dtype and piece.shape == like.shape:
                return self.pieces.pop(i)
        return torch.empty(like.shape, dtype=dtype, device=like.device)

    def put(self, piece: Tensor | None) -> None:
        """Not to be used by the caller any more."""
        if piece is not None and pays(piece) and len(self.pieces) < MOST and _holders(piece) == ALONE:
            self.pieces.append(piece)
