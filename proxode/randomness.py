"""Is f a function? One with dropout, or with noise that is drawn in every call, has no derivative to integrate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .norms import rms_norm, somewhere, two_norm
from .rough import rough_signs

SAME = 1e-6  # relative difference of two values of f that rounding and the order of sums may make
MOVE = 0.01  # of a state, to see how large the terms of f are
ROUNDED = 100.0  # ulp of these
SUSPECT = 16  # rejected steps from where f may be random


def difference(a: Tensor, b: Tensor) -> float:
    """|a - b| relative to the larger of them; 0 where both vanish."""
    apart, *sizes = (float(two_norm(x.reshape(-1))) for x in (a - b, a, b))
    return apart / max(sizes) if max(sizes) > 0 else 0.0


@torch.no_grad()
def randomness(f: Callable[[Any, Tensor], Tensor], t: Any, y: Tensor) -> float:
    """How far two values of f at the same place are apart, relative."""
    y = y.detach()
    return difference(f(t, y).clone(), f(t, y))  # a copy: f may write all its values into one tensor


@torch.no_grad()
def is_random(f: Callable[[Any, Tensor], Tensor], t: Any, y: Tensor) -> bool:
    """Whether two values differ, and f has drawn random numbers for them, or by more than rounding explains. Near an
    equilibrium f is what is left of large terms, and sums in another order change all of that: a third value, a little
    way off, tells how large the terms are."""
    y = y.detach()
    before = drawn(y.device)
    a, b = f(t, y).clone(), f(t, y).clone()
    apart = difference(a, b)
    if apart > 0 and has_drawn(before, y.device):
        return True
    if not apart > SAME:
        return False
    moved = f(t, y + MOVE * (y.abs() + rms_norm(y)) * rough_signs(y, 5))
    apart, terms = (float(two_norm(x.reshape(-1))) for x in (a - b, moved - a))
    return apart > ROUNDED * torch.finfo(y.dtype).eps * terms / MOVE


def drawn(device: torch.device) -> Tensor | None:
    """How far torch's own generator has come; None where there is none to ask."""
    if device.type == "cpu":
        return torch.default_generator.get_state()
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def has_drawn(before: Tensor | None, device: torch.device) -> bool:
    """Whether random numbers were drawn since, in any of the processes."""
    now = drawn(device)
    return somewhere(before is not None and now is not None and not torch.equal(before, now))


def is_noise(f: Any, t: float, y: Tensor, rejected: int) -> bool:
    """Whether f is random, asked at the 16th, 32nd, 64th ... rejected step if random numbers were drawn since the solve
    began: equations of short steps close all the same, and noise looks like error."""
    asked = rejected >= SUSPECT and rejected & (rejected - 1) == 0
    return asked and has_drawn(f.drawn, y.device) and is_random(f, t, y)
