"""Room for the states that a gradient keeps, many to a block.

Allocated one by one between the short-lived tensors of the inner solves, they would pin the allocator's heap: measured,
four times their size stayed resident.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 40 * 2**20  # bytes: more than glibc takes from its heap (32 MiB); pages that are not touched cost nothing
WORTH = 2**16  # bytes: smaller states are left where they are


@dataclass
class Shelf:
    rows: int | None = None  # of a block, where it is known how many states will come
    block: Tensor | None = None
    used: int = 0

    def clear(self, rows: int) -> None:
        """Begin a new block for `rows` states: a block lives as long as one of its states, and as it is filled."""
        self.rows, self.block = rows, None

    @torch.no_grad()
    def put(self, z: Tensor) -> Tensor:
        """z, or a copy of it that lives on the shelf."""
        size = z.numel() * z.element_size()
        if size < WORTH or z.device.type != "cpu":
            return z
        if self.block is None or self.used == len(self.block) or self.block.shape[1:] != z.shape:
            most = -(-BLOCK // size)
            self.block, self.used = z.new_empty(min(self.rows or most, most), *z.shape), 0
        row = self.block.data[self.used]  # with a version of its own: autograd watches each state by itself
        row.copy_(z)
        self.used += 1
        return row
