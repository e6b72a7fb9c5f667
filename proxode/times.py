"""A time: a float, or a tensor where its gradient is wanted. The same arithmetic serves both."""

from __future__ import annotations

import math

import torch
from torch import Tensor

Time = float | Tensor  # a float64 0-dim tensor where the gradient with respect to t is wanted


def number(t: Time) -> float:
    """t as a plain float, off any graph."""
    return float(t.detach()) if isinstance(t, Tensor) else t


def beside(t: Time, side: int, dtype: torch.dtype) -> Time:
    """The next time after t (`side` = 1) or before it (-1) that f can tell from t: for an f that jumps at t."""
    if not side:
        return t
    here = torch.tensor(number(t), dtype=dtype.to_real())
    ulp = float(torch.nextafter(here, torch.full_like(here, side * math.inf)).double() - here.double())
    return t + ulp
