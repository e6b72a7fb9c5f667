"""The record of a solve: every step that was tried, with its length, its method and order, and whether it was accepted.

Of an accepted step only its end is written down, 8 bytes; the kind of a step where it changes, 10 bytes; and rejected
steps beside them, 18 bytes each: about 10 MB for a million steps. A record of more than `LIMIT` steps loses its older
half, when a step is rejected or changes its kind; a grid of fixed steps, where neither happens, is there as a whole
anyhow, and takes more.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

LIMIT = 2**20  # steps


class Kind(NamedTuple):
    """How a step was made."""

    method: str
    order: int


class TriedStep(NamedTuple):
    """A step from t0 to t1, in the user's times; h is its length."""

    t0: float
    t1: float
    h: float
    method: str
    order: int
    accepted: bool


class Columns(NamedTuple):
    """All steps at once, in the order in which they were tried and in the user's times."""

    t0: Tensor
    t1: Tensor
    h: Tensor
    code: Tensor  # of the kind
    accepted: Tensor

    def of(self, chosen: Tensor) -> Columns:
        return Columns(*(column[chosen] for column in self))


class Steps:
    """The steps of one solve in the order in which they were tried; iterate over it for a `TriedStep` of each."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.ends = array("d")  # of the accepted steps, in the solver's time, which grows
        self.changed_at, self.changed_to = array("q"), array("h")  # from which accepted step on they are of which kind
        self.begun_at, self.begun_from = array("q"), array("d")  # accepted steps that start where none has ended
        self.refused_at, self.refused_h, self.refused_code = array("q"), array("d"), array("h")  # accepted before it
        self.names: dict[int, Kind] = {}  # what the codes of kinds mean
        self.limit = limit
        self.forgotten = 0  # steps that were dropped
        self.method = ""  # that was asked for
        self.sign = 1.0  # -1: the user's time runs backwards
        self.start = self.end = math.nan  # of the solve, in the user's time; no end is inf
        self.atol: float | Tensor = 0.0

    def begin(self, method: str, start: float, end: float, sign: float, atol: float | Tensor = 0.0) -> None:
        self.method, self.end, self.sign, self.atol = method, end, sign, atol
        if math.isnan(self.start):  # else the solve goes on after a break
            self.start = start
        self.begin_at(sign * start)

    def begin_at(self, t: float) -> None:
        """The next step starts at t, in the solver's time."""
        if self.begun_at and self.begun_at[-1] == len(self.ends):
            self.begun_from[-1] = t
        else:
            self.begun_at.append(len(self.ends))
            self.begun_from.append(t)

    def change(self, code: int) -> None:
        """The step whose end was added last, and those after it, are of this kind."""
        self.changed_at.append(len(self.ends) - 1)
        self.changed_to.append(code)
        self.trim()

    def reject(self, h: float, code: int) -> None:
        """A step from where the last accepted one has ended."""
        self.refused_at.append(len(self.ends))
        self.refused_h.append(h)
        self.refused_code.append(code)
        self.trim()

    def mark(self) -> tuple[int, ...]:
        """How far the record has come, to go back there."""
        return (self.forgotten, *map(len, self._columns()))

    def back_to(self, mark: tuple[int, ...]) -> None:
        """As if what came after had not been tried."""
        if mark[0] == self.forgotten:  # else the older half is gone, and places are others
            for column, length in zip(self._columns(), mark[1:], strict=True):
                del column[length:]

    def _columns(self) -> tuple[array[Any], ...]:
        return (
            self.ends, self.changed_at, self.changed_to, self.begun_at, self.begun_from, self.refused_at,
            self.refused_h, self.refused_code,
        )  # fmt: skip

    def trim(self) -> None:
        """Forget the older half, if there are too many. Whoever steps without end calls it."""
        if len(self) <= self.limit or not self.ends:
            return
        count = max(1, len(self.ends) - len(self.ends) // 2)
        t, dropped = self.ends[count - 1], sum(1 for at in self.refused_at if at < count)
        _drop(self.changed_at, count, self.changed_to, keep_last=True)
        _drop(self.begun_at, count, self.begun_from)
        _drop(self.refused_at, count, self.refused_h, self.refused_code)
        del self.ends[:count]
        self.forgotten += count + dropped
        if not self.begun_at or self.begun_at[0] > 0:
            self.begun_at.insert(0, 0)
            self.begun_from.insert(0, t)

    @property
    def reached(self) -> float:
        """The end of the last step that was accepted, in the user's time."""
        return self.sign * self.ends[-1] + 0.0 if self.ends else self.start

    def __len__(self) -> int:
        return len(self.ends) + len(self.refused_at)

    def __iter__(self) -> Iterator[TriedStep]:
        for t0, t1, h, code, accepted in zip(*(column.tolist() for column in self.columns()), strict=True):
            yield TriedStep(t0, t1, h, *self.names[code], accepted)

    def columns(self) -> Columns:
        ends, count = torch.tensor(self.ends, dtype=torch.float64), len(self.ends)
        starts = torch.cat([ends.new_full((1,), math.nan), ends])  # of each, and of the one that may come
        starts[torch.tensor(self.begun_at, dtype=torch.long)] = torch.tensor(self.begun_from, dtype=torch.float64)
        lasting = torch.diff(torch.tensor([*self.changed_at, count], dtype=torch.long))
        kinds = torch.tensor(self.changed_to, dtype=torch.long).repeat_interleave(lasting)
        at = torch.tensor(self.refused_at, dtype=torch.long)
        refused_h = torch.tensor(self.refused_h, dtype=torch.float64)
        accepted = torch.ones(len(self), dtype=torch.bool)
        accepted[at + torch.arange(len(at))] = False  # after as many accepted ones, and the rejected ones before it

        def merged(taken: Tensor, refused: Tensor) -> Tensor:
            both = taken.new_empty(len(accepted))
            both[accepted], both[~accepted] = taken, refused
            return both

        t0 = merged(starts[:-1], starts[at])
        h = merged(ends - starts[:-1], refused_h)
        t1 = merged(ends, starts[at] + refused_h)
        code = merged(kinds, torch.tensor(self.refused_code, dtype=torch.long))
        return Columns(self.sign * t0 + 0.0, self.sign * t1 + 0.0, h, code, accepted)  # no minus before a zero

    def __repr__(self) -> str:
        return f"Steps({len(self)} tried, {len(self.refused_at)} rejected)"


def _drop(places: array[Any], count: int, *others: array[Any], keep_last: bool = False) -> None:
    """What belongs to the first `count` steps; the last of it may be true of those after them too."""
    first = sum(1 for place in places if place < count)
    if keep_last and first and (first == len(places) or places[first] > count):
        first -= 1
    for column in (places, *others):
        del column[:first]
    for i, place in enumerate(places):
        places[i] = max(place - count, 0)
