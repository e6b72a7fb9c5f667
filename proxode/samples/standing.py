"""Samples that go on and get nowhere, as `standstill.Standstill` has it for one problem."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..standstill import AGAIN, EDGE


class Standing(NamedTuple):
    """Of every sample."""

    times: Tensor  # in a row that it was refused where it stood
    t: Tensor  # of the last refusal
    y: Tensor  # and the state

    @staticmethod
    def of(t: Tensor, y: Tensor) -> Standing:
        return Standing(torch.zeros_like(t, dtype=torch.long), torch.full_like(t, -torch.inf), y.detach())

    def refused(self, which: Tensor, t: Tensor, y: Tensor, way: Tensor) -> Standing:
        """After steps from (t, y), the first since one was accepted, of which these samples' had no finite values."""
        if not bool(which.any()):
            return self
        y, numbers = y.detach(), torch.finfo(y.dtype)
        near = t - self.t <= numbers.eps * way
        still = near & ((y.abs().amax(-1) > numbers.max**EDGE) | (y == self.y).all(-1))
        times = torch.where(which, torch.where(still, self.times + 1, 1), self.times)
        return Standing(times, torch.where(which, t, self.t), torch.where(which[:, None], y, self.y))

    @property
    def over(self) -> Tensor:
        """For which this is the end."""
        return self.times >= AGAIN
