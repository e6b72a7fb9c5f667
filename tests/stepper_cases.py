"""Problems and helpers for the tests of `Stepper`: every method, the steps that are left, a state through a file."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor

from proxode import Stepper
from proxode.methods import METHODS

Y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)
WAYS = [
    pytest.param(name, step, id=f"{name}-{'adaptive' if step is None else 'fixed'}")
    for name, method in METHODS.items()
    for step in (None, 0.02)
    if step is not None or method.adapting().adaptive
]
every_way = pytest.mark.parametrize(("method", "step_size"), WAYS)


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 20 * (1 - y[0] ** 2) * y[1] - y[0]])


def settings(method: str, step_size: float | None) -> dict[str, Any]:
    loose = step_size is None and METHODS[method].order == 1
    return {"method": method, "step_size": step_size, "rtol": 1e-2 if loose else 1e-4, "atol": 1e-3 if loose else 1e-6}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def rest(stepper: Stepper, most: int = 100) -> list[tuple[float, Tensor]]:
    steps = []
    while not stepper.done and len(steps) < most:
        step = stepper.step()
        steps.append((step.t1, step.y1))
    return steps


def assert_same(a: list[tuple[float, Tensor]], b: list[tuple[float, Tensor]]) -> None:
    assert len(a) == len(b) > 0
    assert all(s == t and torch.equal(x, y) for (s, x), (t, y) in zip(a, b, strict=True))
