"""Checks of methods that users have written. What is wrong with one is said at its first step, by its name: later it
would be an error from deep inside, or a wrong solution."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ..times import Time, number
from .base import History, Method, Step

SEE = "docs/extending.md shows a whole one"


def check_own(method: Method) -> None:
    """At the door: what a method says of itself."""
    kind = type(method).__name__
    for name, wanted in (("name", str), ("order", int)):
        value = getattr(method, name)
        if inspect.ismethod(value):
            raise TypeError(f"{kind}.{name} must be a property: write @property above it")
        if not isinstance(value, wanted):
            raise TypeError(f"{kind}.{name} must be of type {wanted.__name__}, not {type(value).__name__}")


def check_step(method: Method, step: Any, t1: Time, y0: Tensor, *, adaptive: bool) -> None:
    """Raise unless this is a step from the state y0 to t1."""
    kind = type(method).__name__
    if not isinstance(step, Step):
        raise TypeError(f"{kind}.step must return a proxode.methods.Step, not {type(step).__name__}: {SEE}")
    y1 = step.y1
    if not isinstance(y1, Tensor) or y1.shape != y0.shape or y1.dtype != y0.dtype:
        got = f"{tuple(y1.shape)} in {y1.dtype}" if isinstance(y1, Tensor) else type(y1).__name__
        raise TypeError(f"{kind}.step must return y1 of shape {tuple(y0.shape)} in {y0.dtype}, not {got}")
    if step.failure is not None:
        return
    if adaptive and step.error is None:
        raise ValueError(
            f"{kind}.step gives no error estimate (`error` of Step), which steps of free length need: give one, as "
            "self.error_of does, or solve with `step_size`"
        )
    if not callable(getattr(step.interpolant, "evaluate", None)):
        raise TypeError(f"{kind}.step gives no interpolant for outputs inside of it: Linear(t0, t1, y0, y1) is one")
    if isinstance(step.history, History) and number(step.history.ts[0]) != number(t1):
        raise ValueError(f"{kind}.step must return the history with the new point: history.push(t1, y1, ...)")
    if torch.is_grad_enabled() and y0.requires_grad and not y1.requires_grad:
        raise ValueError(f"{kind}.step has cut y1 off from y0 (by detach or no_grad?): no gradient would pass")
