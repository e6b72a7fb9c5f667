"""The next step and order of every sample, as `controllers.Adaptive` decides for one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..controllers import BIAS, BIAS_UP, GROWTH, STEADY, Adaptive

LARGEST, LEAST, SAFETY = Adaptive.ifactor, Adaptive.dfactor, Adaptive.safety
TINY = 1e-10  # ratio of an error that is none


class Choice(NamedTuple):
    """By how much the error allows the step to change, at the order that allows most."""

    factor: Tensor
    order: Tensor


def at_order(ratio: Tensor, order: Tensor) -> Choice:
    return Choice(_factor(BIAS, ratio, order), order)


def better(choice: Choice, ratio: Tensor, order: Tensor, higher: bool, allowed: Tensor) -> Choice:
    """With a neighbouring order where it allows a longer step."""
    factor = _factor(BIAS_UP if higher else BIAS, ratio, order)
    take = allowed & (factor > choice.factor)
    return Choice(torch.where(take, factor, choice.factor), torch.where(take, order, choice.order))


def longer(h: Tensor, choice: Choice, order: Tensor, rejected: Tensor) -> Tensor:
    """The next step after one that was accepted, at `order`."""
    limits = torch.tensor([LARGEST, LARGEST, *GROWTH.values()], dtype=h.dtype, device=h.device)
    factor = choice.factor
    steady = ((factor > STEADY[0]) & (factor < STEADY[1])) | (rejected & (factor > 1.0))
    factor = torch.where(steady, 1.0, factor)
    return h * torch.minimum(factor.clamp(min=LEAST), limits[order])


def shorter(h: Tensor, choice: Choice, order: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
    """The next step after one that was rejected, at `order`, and its order; `rejected` is how often before."""
    again = rejected >= 2
    factor = torch.where(again, choice.factor.clamp(max=0.25), choice.factor)
    return h * factor.clamp(LEAST, SAFETY), torch.where(again, (order - 1).clamp(min=1), choice.order)


def _factor(bias: float, ratio: Tensor, order: Tensor) -> Tensor:
    return (bias * ratio.clamp(min=TINY)) ** (-1.0 / (order + 1).to(ratio.dtype))
