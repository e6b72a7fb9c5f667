"""A solve that goes on and gets nowhere: its steps are refused because values are not finite, the short ones between
hardly move anything, and they grow back only to be refused again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .norms import tolerance_scale
from .problem import Problem
from .times import Time, number

AGAIN = 8  # times in a row that this may happen


@dataclass
class Standstill:
    """Of an explosion that nears the largest number of the dtype this is the end: steps become so short that the state
    stays as it is, to the last bit, and then they need become no shorter. So the length of a step beside the rounding
    of the time, which ends other solves, does not end this one.

    A step counts if it is no more than a rounding (of the state's dtype) of the whole way, would not move the state by
    more than the tolerance, and has no finite values all the same. A step as long as that which is accepted says that
    the obstacle was passed.
    """

    times: int = 0
    longest: float = 0.0  # of the steps that count

    def refused(self, problem: Problem, t: Time, t1: Time, y: Tensor) -> bool:
        """After a step from (t, y) that had no finite values, the first since one was accepted: is this the end?"""
        h = number(t1) - number(t)
        way = number(t if problem.endless else problem.ts[-1]) - number(problem.ts[0])
        if h > torch.finfo(y.dtype).eps * way or not _moves_little(problem, t, y, h):
            return False
        self.times += 1
        self.longest = max(self.longest, h)
        return self.times >= AGAIN

    def accepted(self, h: float) -> None:
        if self.times and h >= self.longest:
            self.times, self.longest = 0, 0.0


@torch.no_grad()
def _moves_little(problem: Problem, t: Time, y: Tensor, h: float) -> bool:
    move = h * problem.f(number(t), y.detach()).abs()
    scale = tolerance_scale(problem.rtol, problem.atol, y.detach())
    size = problem.norm(move / scale.clamp(min=torch.finfo(scale.dtype).tiny))
    return math.isfinite(float(size.max())) and float(size.max()) <= 1.0
