"""Bad input to `solve`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import inner, methods

Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)
GOOD: dict[str, Any] = {"t0": 0.0, "t1": 1.0, "method": "bdf2", "step_size": 0.25}


def f(t: Tensor, y: Tensor) -> Tensor:
    return -y


CASES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "equal ends": ({"t1": 0.0}, ValueError, "`t0` and `t1` are equal"),
    "a nan t0": ({"t0": math.nan}, ValueError, "`t0` must be one finite number"),
    "an infinite t1": ({"t1": math.inf}, ValueError, "`t1` must be one finite number"),
    "a text as t0": ({"t0": "0"}, TypeError, "`t0` must be a number"),
    "two numbers as t1": ({"t1": torch.ones(2)}, ValueError, "`t1` must be one finite number"),
    "a list as save_at": ({"save_at": [0.5]}, TypeError, "`save_at` must be"),
    "integers as save_at": ({"save_at": torch.tensor([0, 1])}, TypeError, "`save_at` must be"),
    "an empty save_at": ({"save_at": torch.empty(0)}, TypeError, "`save_at` must be"),
    "a 2-D save_at": ({"save_at": torch.ones(1, 1)}, TypeError, "`save_at` must be"),
    "save_at before t0": ({"save_at": torch.tensor([-0.1, 0.5])}, ValueError, "`save_at` must lie between"),
    "save_at after t1": ({"save_at": torch.tensor([0.5, 1.5])}, ValueError, "`save_at` must lie between"),
    "a nan in save_at": ({"save_at": torch.tensor([0.5, math.nan])}, ValueError, "`save_at`"),
    "an unsorted save_at": ({"save_at": torch.tensor([0.5, 0.2])}, ValueError, "`save_at` must be strictly monotone"),
    "a repeated save_at": ({"save_at": torch.tensor([0.5, 0.5])}, ValueError, "`save_at` must be strictly monotone"),
    "save_at against the direction": (
        {"t0": 1.0, "t1": 0.0, "save_at": torch.tensor([0.2, 0.5])}, ValueError, "`save_at` must be strictly monotone",
    ),
    "a fixed method without steps": ({"step_size": None, "method": "rk4"}, ValueError, "give `step_size`"),
    "no steps": ({"max_steps": 0}, ValueError, "`max_steps` must be a positive integer"),
    "half a step": ({"max_steps": 1.5}, ValueError, "`max_steps` must be a positive integer"),
    "samples": ({"per_sample": True}, NotImplementedError, "`per_sample`"),
    "a word as progress": ({"progress": "bar"}, TypeError, "`progress` must be True or False"),
    "a class as method": ({"method": methods.BDF}, TypeError, "`method` must be"),
    "a class as inner": ({"inner": inner.Anderson}, TypeError, "`inner` must be"),
    "a number as gradient": ({"gradient": 1}, TypeError, "`gradient` must be"),
    "two grids": ({"grid_constructor": lambda f, y, t: t}, ValueError, "`step_size` and `grid_constructor`"),
    "the door's max_num_steps": ({"max_num_steps": 5}, TypeError, "max_num_steps.*accepts"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "kind", "message"), CASES.values(), ids=CASES)
def test_a_bad_argument_is_named(wrong: dict[str, Any], kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        proxode.solve(f, Y0, **{**GOOD, **wrong})


@pytest.mark.parametrize("order", [0, 6, -1])
def test_a_bdf_of_no_known_order_is_refused(order: int) -> None:
    with pytest.raises(ValueError, match="`max_order`"):
        methods.BDF(max_order=order)
