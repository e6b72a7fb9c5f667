"""Sums over processes, for a state that is spread over them.

Inside `over(spread)` each process holds a part of every state, and what `norms` reduces is reduced over all of them. So
all processes come to the same numbers, hence to the same decisions, and take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK = 1 << 20  # numbers that are drawn at a time, where most of them belong to others


@dataclass(frozen=True)
class Spread:
    """The processes over which a state is divided: one group, or one for each dimension of a mesh that divides it."""

    groups: tuple[Any, ...]
    before: int  # unknowns of the processes before this one
    unknowns: int  # of them all
    device: torch.device  # on which flags are sent

    @staticmethod
    def of(groups: tuple[Any, ...], own: int, device: torch.device) -> Spread:
        """Of a state of which this process has `own` unknowns. All processes of the groups must come here."""
        before, unknowns = 0, own
        for group in reversed(groups):  # the last dimension of a mesh varies fastest
            counts = torch.zeros(dist.get_world_size(group), dtype=torch.int64, device=device)
            rank = dist.get_rank(group)
            counts[rank] = unknowns
            dist.all_reduce(counts, group=group)
            before, unknowns = before + int(counts[:rank].sum()), int(counts.sum())
        spread = Spread(groups, before, unknowns, device)
        if int(spread.most(torch.tensor(int(not own), device=device))):
            raise ValueError("`y0` has no elements in one of the processes: divide it over fewer")
        return spread

    @property
    def halves(self) -> Iterator[bool]:
        """In which half of the processes this one is, for so many ways to halve them that any two are once apart."""
        for group in self.groups:
            for bit in range((dist.get_world_size(group) - 1).bit_length()):
                yield bool(dist.get_rank(group) >> bit & 1)

    def total(self, x: Tensor) -> Tensor:
        return self._reduced(x, dist.ReduceOp.SUM)

    def most(self, x: Tensor) -> Tensor:
        """The largest; nan may be lost in it."""
        return self._reduced(x, dist.ReduceOp.MAX)

    def _reduced(self, x: Tensor, by: Any) -> Tensor:
        whole = x.detach().clone(memory_format=torch.contiguous_format)
        try:
            for group in self.groups:
                dist.all_reduce(whole, op=by, group=group)
        except RuntimeError as error:
            raise RuntimeError(
                "another process of this solve has ended, or does not answer: look at the error that it gave"
            ) from error
        return whole

    def drawn(self, count: int, draw: Callable[[int], Tensor]) -> Tensor:
        """The numbers of this process, of a sequence that all could draw: so that they are what one process would have
        drawn, if its part of the state is one piece."""
        left = self.before
        while left:
            left -= len(draw(min(left, CHUNK)))
        return draw(count)


_present: ContextVar[Spread | tuple[()] | None] = ContextVar("spread", default=())  # empty: outside of any solve


def present() -> Spread | None:
    """Over which processes states are spread here; None is over none."""
    return _present.get() or None


def is_alone() -> bool:
    """Whether this is inside of a solve of which no other process knows."""
    return _present.get() is None


LOCKSTEP: tuple[()] = ()  # steps that every process takes alike, without a word to each other


@contextmanager
def over(spread: Spread | tuple[()] | None) -> Iterator[None]:
    token = _present.set(spread)
    try:
        yield
    finally:
        _present.reset(token)


def among_processes() -> str:
    """A word for a value of f that nobody can explain, where there are other processes."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return "; if it exchanges values with other processes, give the solve their `group`" if several else ""
