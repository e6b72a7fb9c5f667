"""A solve without a graph, by every kind of method, for the tests of what is out of the ordinary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import proxode

F64 = torch.float64
METHODS = ["bdf", "auto", "backward_euler", "multistage3", "dopri5"]
every_method = pytest.mark.parametrize("method", METHODS)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=F64)


def run(f: Any, y0: Any, t0: float, t1: float, **kwargs: Any) -> proxode.Solution:
    """Without a graph, and with a tolerance that order 1 can meet."""
    first_order = kwargs.get("method") == "backward_euler"
    tolerances = {"rtol": 1e-3, "atol": 1e-5} if first_order else {"rtol": 1e-4, "atol": 1e-6}
    with torch.no_grad():
        return proxode.solve(f, y0, t0, t1, **{"throw": False, "max_steps": 20_000, **tolerances, **kwargs})
