"""The record of a solve: every step that was tried, with its length, its method and order, and whether it was accepted.

A step takes 18 bytes (a rejected one 26) and nothing is computed from it before somebody asks. A solve of more than
`LIMIT` steps forgets the older half of its record, so that it takes no more than 20 MB however long the solve.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

LIMIT = 2**20


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
    """All steps at once, in the user's times."""

    t0: Tensor
    t1: Tensor
    h: Tensor
    code: Tensor  # of the kind
    accepted: Tensor

    def of(self, chosen: Tensor) -> Columns:
        return Columns(*(column[chosen] for column in self))


class Steps:
    """The steps of one solve in the order in which they were tried; iterate over it for a `TriedStep` of each."""

    __slots__ = ("codes", "end", "forgotten", "lengths", "limit", "method", "names", "refused", "sign", "start", "t0s")

    def __init__(self, limit: int = LIMIT) -> None:
        self.t0s = array("d")  # in the solver's time, which grows
        self.lengths = array("d")
        self.codes = array("h")  # what `names` calls the kind of each step
        self.refused = array("q")  # the places of those that were rejected
        self.names: dict[int, Kind] = {}
        self.limit = limit
        self.forgotten = 0  # steps that were dropped
        self.method = ""  # that was asked for
        self.sign = 1.0  # -1: the user's time runs backwards
        self.start = self.end = math.nan  # of the solve, in the user's time; no end is inf

    def begin(self, method: str, start: float, end: float, sign: float) -> None:
        self.method, self.end, self.sign = method, end, sign
        if math.isnan(self.start):  # else the solve goes on after a break
            self.start = start

    def add(self, t0: float, h: float, code: int) -> None:
        self.t0s.append(t0)
        self.lengths.append(h)
        self.codes.append(code)
        if len(self.codes) > self.limit:
            self._forget(self.limit // 2)

    def add_rejected(self, t0: float, h: float, code: int) -> None:
        self.add(t0, h, code)
        self.refused.append(len(self.codes) - 1)

    def _forget(self, count: int) -> None:
        self.forgotten += count
        for column in (self.t0s, self.lengths, self.codes):
            del column[:count]
        self.refused = array("q", [place - count for place in self.refused if place >= count])

    @property
    def reached(self) -> float:
        """The end of the last step that was accepted, in the user's time."""
        if not len(self):
            return self.start
        h = 0.0 if self.refused and self.refused[-1] == len(self) - 1 else self.lengths[-1]
        return self.sign * (self.t0s[-1] + h) + 0.0

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[TriedStep]:
        refused = set(self.refused)
        for i, (t0, h, code) in enumerate(zip(self.t0s, self.lengths, self.codes, strict=True)):
            t1 = self.sign * (t0 + h) + 0.0  # no minus before a zero
            yield TriedStep(self.sign * t0 + 0.0, t1, h, *self.names[code], i not in refused)

    def columns(self) -> Columns:
        t0, h = (torch.tensor(column, dtype=torch.float64) for column in (self.t0s, self.lengths))
        accepted = torch.ones(len(self), dtype=torch.bool)
        accepted[torch.tensor(self.refused, dtype=torch.long)] = False
        return Columns(self.sign * t0, self.sign * (t0 + h), h, torch.tensor(self.codes, dtype=torch.long), accepted)

    def __repr__(self) -> str:
        return f"Steps({len(self)} tried, {len(self.refused)} rejected)"
