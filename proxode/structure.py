"""The user's state and the solver's: a tensor or a tuple of tensors outside, one flat vector inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .sharding import Sharding, local_part, shardings_of


@dataclass(frozen=True)
class Structure:
    """Shapes of the user's state; `shapes` has one entry for a plain tensor."""

    shapes: tuple[torch.Size, ...]  # of what this process has
    is_tuple: bool
    shardings: tuple[Sharding, ...] | None = None  # where the user's tensors are DTensors

    @classmethod
    def of(cls, y: Tensor | tuple[Tensor, ...]) -> Structure:
        is_tuple = not isinstance(y, Tensor)
        parts = tuple(y) if is_tuple else (y,)
        return cls(tuple(local_part(part).shape for part in parts), is_tuple, shardings_of(parts, is_tuple))

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    def local(self, y: Any) -> Any:
        """y without its DTensors, if it has the structure that it should have."""
        if self.shardings is None:
            return y
        if not self.is_tuple:
            return self.shardings[0].local(y)
        if not isinstance(y, tuple | list) or len(y) != len(self.shapes):
            return y
        return tuple(sharding.local(part) for sharding, part in zip(self.shardings, y, strict=True))

    def flatten(self, y: Any) -> Tensor:
        return self.joined(self.local(y))

    def joined(self, y: Any) -> Tensor:
        """One vector of the parts that this process has."""
        if not self.is_tuple:
            return y if y.dim() == 1 else y.reshape(-1)
        return torch.cat([part.reshape(-1) for part in y])

    def restore(self, flat: Tensor, *lead: int) -> Any:
        """Back to the user's structure; `lead` are dimensions in front, such as the number of output times."""
        if not self.is_tuple:
            shape = (*lead, *self.shapes[0])
            made: Any = (flat if flat.shape == shape else flat.view(shape),)
        else:
            parts = flat.split(self.sizes, dim=-1)
            made = tuple(part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True))
        if self.shardings is not None:
            made = tuple(sharding.whole(part, *lead) for sharding, part in zip(self.shardings, made, strict=True))
        return made if self.is_tuple else made[0]

    def parts(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The flat pieces that belong to the tensors of a tuple."""
        return flat.split(self.sizes, dim=-1)


def check_output(out: Any, structure: Structure, y: Tensor) -> None:
    """Raise if what func returned is not a derivative of the state."""
    if structure.is_tuple:
        if not isinstance(out, tuple | list) or len(out) != len(structure.shapes):
            got = f"{len(out)} parts" if isinstance(out, tuple | list) else type(out).__name__
            count = len(structure.shapes)
            raise TypeError(f"func must return a tuple of {count} tensors, like y0, but it returned {got}")
        parts = tuple(out)
    else:
        parts = (out,)
    for i, (part, shape) in enumerate(zip(parts, structure.shapes, strict=True)):
        where = f" in part {i}" if structure.is_tuple else ""
        if not isinstance(part, Tensor):
            hint = ": torch.stack([...]) makes one of its entries" if isinstance(part, list | tuple | float) else ""
            raise TypeError(f"func must return a tensor{where}, but it returned {type(part).__name__}{hint}")
        if part.shape != shape:
            raise ValueError(
                f"func returned shape {tuple(part.shape)}{where} for a state of shape {tuple(shape)}: "
                "it must return dy/dt in the shape of y0 (which comes before the times: odeint(func, y0, t))"
            )
        if not (part.is_floating_point() or part.is_complex()) or (part.is_complex() and not y.is_complex()):
            raise TypeError(
                f"func returned {part.dtype}{where} for a state of {y.dtype}: it must return dy/dt in y0's dtype"
            )
