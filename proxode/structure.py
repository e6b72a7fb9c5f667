"""The user's state and the solver's: a tensor or a tuple of tensors outside, one flat vector inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Structure:
    """Shapes of the user's state; `shapes` has one entry for a plain tensor."""

    shapes: tuple[torch.Size, ...]
    is_tuple: bool

    @classmethod
    def of(cls, y: Tensor | tuple[Tensor, ...]) -> Structure:
        if isinstance(y, Tensor):
            return cls((y.shape,), False)
        return cls(tuple(part.shape for part in y), True)

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    def flatten(self, y: Any) -> Tensor:
        if not self.is_tuple:
            return y if y.dim() == 1 else y.reshape(-1)
        return torch.cat([part.reshape(-1) for part in y])

    def restore(self, flat: Tensor, *lead: int) -> Any:
        """Back to the user's structure; `lead` are dimensions in front, such as the number of output times."""
        if not self.is_tuple:
            shape = (*lead, *self.shapes[0])
            return flat if flat.shape == shape else flat.view(shape)
        parts = flat.split(self.sizes, dim=-1)
        return tuple(part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True))

    def parts(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The flat pieces that belong to the tensors of a tuple."""
        return flat.split(self.sizes, dim=-1)
