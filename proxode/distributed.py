"""For several processes: their beginning and end, neighbours' rows, and gradients of what each has a copy of."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .sharding import group_of, is_dtensor
from .spread import is_alone

ENDS = ("zero", "edge", "wrap")

__all__ = ["halo", "process_group", "sum_gradients"]


@contextmanager
def process_group(backend: str | None = None, timeout: float | None = None) -> Iterator[None]:
    """A block in which the processes that torchrun has started can talk to each other; started without torchrun, this
    process is alone. At its end they wait for each other and the group is destroyed.

    Args:
        backend: by default "nccl" where there is a GPU, else "gloo".
        timeout: seconds after which a message that is not answered is an error; by default torch's, half an hour.
    """
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend, timeout=None if timeout is None else timedelta(seconds=timeout))
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    # A thread of the group that is still there when Python ends may abort it: what holds the group, in a cycle of a
    # graph say, must be gone before.
    atexit.register(_let_go)
    try:
        yield
        dist.barrier()
    finally:
        gc.collect()
        dist.destroy_process_group()


def _let_go() -> None:
    """When Python ends: of what the error that ended it still holds, and of cycles."""
    last = getattr(sys, "last_traceback", None)
    if last is not None:
        traceback.clear_frames(last)
    gc.collect()


def halo(x: Tensor, group: Any = None, *, dim: int = 0, width: int = 1, ends: str = "zero") -> Tensor:
    """x, this process's part of a grid divided along `dim`, with the `width` nearest rows of its neighbours around it.

    What is beyond the first and the last process is zero, a copy of the last row there ("edge"), or the other end of
    the grid ("wrap"). Derivatives of any order and forward mode go through.

    Args:
        x: the local tensor, `y.to_local()` of a DTensor.
        group: the processes in the order of the grid: a process group, or a device mesh of one dimension. By default
            all processes.
    """
    if is_dtensor(x):
        raise TypeError("`x` is a DTensor: give `halo` the part of this process, x.to_local()")
    if isinstance(group, int):
        raise TypeError(f"`group` must be a torch process group, not {group}: write halo(x, width={group}) for rows")
    group = group_of(group)
    if ends not in ENDS:
        raise ValueError(f"unknown `ends` {ends!r}; known are: {', '.join(ENDS)}")
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"`width` must be a positive integer, not {width!r}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"`dim` = {dim} is no dimension of x, whose shape is {tuple(x.shape)}")
    if x.shape[dim] < width:
        raise ValueError(
            f"`width` = {width} is more than the {x.shape[dim]} rows of this process: divide over fewer"
        )
    if is_alone() and dist.get_world_size(group) > 1:
        raise RuntimeError(
            "`halo` exchanges rows with other processes, but this solve is one process's own: each would take other "
            "steps, and get rows of other times. Give the solve a DTensor as `y0`, or `group` (solve(..., group=...), "
            "options={'group': ...} of odeint)"
        )
    out: Tensor = Exchange.apply(x, Border(group, dim, width, ends), False)  # type: ignore[no-untyped-call]
    return out


def sum_gradients(parameters: Iterable[Tensor], group: Any = None) -> None:
    """Add up `.grad` over the processes of a group (or of a mesh of one dimension), in place.

    For tensors of which every process of a divided solve has a copy: after backward each holds the share of its part of
    the state. The group is that over which the state is divided: of a mesh with several dimensions the one that
    divides it, `mesh["rows"]`, not one that repeats it. All processes must call this with the same parameters; a
    gradient of None counts as zero, and DTensors, which torch adds up itself, are left alone.
    """
    group = group_of(group)
    wanted = [p for p in parameters if p.requires_grad and not is_dtensor(p)]
    if not wanted:
        return
    with torch.no_grad():
        for p in wanted:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=group)


@dataclass(frozen=True)
class Border:
    """Where a part of a grid meets its neighbours."""

    group: Any
    dim: int
    width: int
    ends: str

    def neighbours(self) -> tuple[int | None, int | None]:
        """The ranks before and after this one, in the group."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.ends == "wrap":
            return (rank - 1) % size, (rank + 1) % size
        return rank - 1 if rank > 0 else None, rank + 1 if rank < size - 1 else None

    def extended(self, x: Tensor) -> Tensor:
        first, last = x.narrow(self.dim, 0, self.width), x.narrow(self.dim, x.shape[self.dim] - self.width, self.width)
        above, below = self._exchanged(first, last)
        if self.ends == "edge":
            above = x.narrow(self.dim, 0, 1).expand_as(first) if above is None else above
            below = x.narrow(self.dim, x.shape[self.dim] - 1, 1).expand_as(last) if below is None else below
        above = torch.zeros_like(first) if above is None else above
        below = torch.zeros_like(last) if below is None else below
        return torch.cat([above, x, below], self.dim)

    def folded(self, x: Tensor) -> Tensor:
        """The transpose: what is around the part goes back to where it came from, and is added there."""
        dim, width, n = self.dim, self.width, x.shape[self.dim] - 2 * self.width
        above, below = x.narrow(dim, 0, width), x.narrow(dim, width + n, width)
        out = x.narrow(dim, width, n).clone(memory_format=torch.contiguous_format)
        for_first, for_last = self._exchanged(above, below)
        if self.ends == "edge":
            before, after = self.neighbours()
            if before is None:
                out.narrow(dim, 0, 1).add_(above.sum(dim, keepdim=True))
            if after is None:
                out.narrow(dim, n - 1, 1).add_(below.sum(dim, keepdim=True))
        if for_first is not None:
            out.narrow(dim, 0, width).add_(for_first)
        if for_last is not None:
            out.narrow(dim, n - width, width).add_(for_last)
        return out

    def _exchanged(self, to_before: Tensor, to_after: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """What the neighbours before and after have sent here. Where both are one process, messages are told by their
        order: each sends backwards first, so what comes from after is received first."""
        before, after = self.neighbours()
        if before is not None and before == after == dist.get_rank(self.group):
            return to_after.clone(), to_before.clone()
        wanted = [(after, to_before), (before, to_after)]
        got = [None if rank is None else torch.empty_like(x.contiguous()) for rank, x in wanted]
        sends = [(before, to_before), (after, to_after)]
        operations = [self._operation(dist.isend, x.contiguous(), rank) for rank, x in sends if rank is not None]
        pairs = zip(got, wanted, strict=True)
        operations += [self._operation(dist.irecv, x, rank) for x, (rank, _) in pairs if x is not None]
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        return got[1], got[0]

    def _operation(self, kind: Any, x: Tensor, rank: int | None) -> Any:
        assert rank is not None
        group: Any = dist.group.WORLD if self.group is None else self.group
        return dist.P2POp(kind, x, dist.get_global_rank(group, rank), group)


class Exchange(torch.autograd.Function):
    """To extend is linear: its derivative is itself, and its transpose to fold, whose transpose is to extend."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, border: Border, fold: bool) -> Tensor:
        ctx.border, ctx.fold = border, fold
        return border.folded(x) if fold else border.extended(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return Exchange.apply(grads[0], ctx.border, not ctx.fold), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return ctx.border.folded(tangents[0]) if ctx.fold else ctx.border.extended(tangents[0])
