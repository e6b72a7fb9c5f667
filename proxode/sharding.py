"""States that are DTensors: how they lie on their mesh, and the local tensors that a solver works on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .spread import Spread


def is_dtensor(x: Any) -> bool:
    """Without importing what takes longer than the rest of torch: who has a DTensor has imported it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def local_part(x: Tensor) -> Tensor:
    """What this process has of x: all, if x is a plain tensor."""
    return x.to_local() if is_dtensor(x) else x  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Sharding:
    """How one tensor is divided."""

    mesh: Any
    placements: tuple[Any, ...]
    shape: torch.Size  # of the whole

    @staticmethod
    def of(name: str, x: Any) -> Sharding:
        if any(placement.is_partial() for placement in x.placements):
            raise ValueError(f"{name} is a sum that is not made yet (Partial): redistribute it to Shard or Replicate")
        return Sharding(x.device_mesh, tuple(x.placements), x.shape)

    @property
    def divided(self) -> tuple[int, ...]:
        """The dimensions of the mesh over which it is divided."""
        return tuple(i for i, placement in enumerate(self.placements) if placement.is_shard())

    def local(self, x: Any) -> Tensor:
        """This process's part of a tensor that is to lie as this one does. Autograd goes through."""
        if not is_dtensor(x):
            raise TypeError(
                f"func must return a DTensor like y0, but it returned a {type(x).__name__}: "
                "DTensor.from_local(part, y.device_mesh, y.placements) makes one of the parts"
            )
        part: Tensor = x.redistribute(self.mesh, self.placements).to_local()
        return part

    def whole(self, part: Tensor, *lead: int) -> Any:
        """The DTensor of which this process has `part`; `lead` are dimensions in front, which are not divided."""
        from torch.distributed.tensor import DTensor, Shard

        placements = [Shard(p.dim + len(lead)) if p.is_shard() else p for p in self.placements]
        shape = torch.Size((*lead, *self.shape))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(part, self.mesh, placements, run_check=False, shape=shape, stride=stride)


def shardings_of(parts: tuple[Any, ...], is_tuple: bool) -> tuple[Sharding, ...] | None:
    """Of the parts of a state; None if they are plain tensors."""
    if not any(map(is_dtensor, parts)):
        return None
    names = [f"`y0[{i}]`" if is_tuple else "`y0`" for i in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        if not is_dtensor(part):
            raise TypeError(f"{name} is no DTensor, but other parts of `y0` are: distribute_tensor makes it one")
    found = tuple(Sharding.of(name, part) for name, part in zip(names, parts, strict=True))
    for name, sharding in zip(names, found, strict=True):
        if sharding.mesh != found[0].mesh or sharding.divided != found[0].divided:
            raise ValueError(f"{name} must be divided over the same dimensions of the same mesh as the first part")
    return found


def group_of(group: Any) -> Any:
    """The process group that was given as one or as a mesh; None, all processes, stays None."""
    if hasattr(group, "get_group"):  # a mesh of one dimension
        group = group.get_group()
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"`group` must be a process group (torch.distributed.group.WORLD is that of all) or a mesh of one "
            f"dimension, not {type(group).__name__}"
        )
    return group


def spread_of(y0: Any, group: Any) -> Spread | None:
    """Over which processes a solve from y0 is to be one solve: those over which y0 is divided, or those of a group that
    the user gives. None: this process is alone."""
    is_tuple = isinstance(y0, tuple)
    parts = y0 if is_tuple else (y0,)
    if not all(isinstance(part, Tensor) for part in parts) or not parts:
        return None  # which is said elsewhere
    shardings = shardings_of(parts, is_tuple)
    if shardings is not None:
        if group is not None:
            raise ValueError("`group` is for plain tensors: that of a DTensor follows from its mesh")
        groups = tuple(shardings[0].mesh.get_group(i) for i in shardings[0].divided)
        own = sum(part.to_local().numel() for part in parts)
        return Spread.of(groups, own, parts[0].to_local().device)
    if group is None:
        return None
    group = group_of(group)
    return Spread.of((group,), sum(part.numel() for part in parts), parts[0].device)
