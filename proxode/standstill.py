"""A solve that goes on and gets nowhere: its steps are refused because values are not finite, the short ones between
hardly move anything, and they grow back only to be refused again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .norms import anywhere, largest

AGAIN = 8  # times in a row that this may happen
EDGE = 0.85  # power of the largest number: what is larger has no way back, even if it moves between two refusals


@dataclass
class Standstill:
    """Of an explosion that nears the largest number of the dtype this is the end: steps become so short that the state
    stays as it is, to the last bit, and then they need become no shorter. So the length of a step beside the rounding
    of the time, which ends other solves, does not end this one.

    A refusal counts if the state has not moved by a bit since the last one, and the time by no more than a rounding (of
    the state's dtype) of the whole way, whether short steps were accepted in between or not. What moves, even a little,
    may come through: a mode that is unstable decays between two refusals.
    """

    times: int = 0
    t: float = -math.inf  # of the last refusal
    y: Tensor | None = None  # and the state

    def refused(self, t: float, y: Tensor, way: float) -> bool:
        """After a step from (t, y) that had no finite values, the first since one was accepted: is this the end?"""
        y, numbers = y.detach(), torch.finfo(y.dtype)
        near = t - self.t <= numbers.eps * way
        still = near and self.y is not None and (largest(y) > numbers.max**EDGE or not anywhere(self.y != y))
        self.times, self.t, self.y = (self.times + 1 if still else 1), t, y
        return self.times >= AGAIN
