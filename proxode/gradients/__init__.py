"""Gradients: how a solve is differentiated. None of them knows which formula made the steps."""

from __future__ import annotations

import difflib
from dataclasses import fields, replace
from typing import Any

from .base import Gradient
from .checkpoint import Checkpoint
from .continuous import Continuous
from .direct import Direct
from .implicit import Implicit
from .tangent import refuse_for_events

GRADIENTS: dict[str, Gradient] = {
    "direct": Direct(), "implicit": Implicit(), "checkpoint": Checkpoint(), "continuous": Continuous(),
}  # fmt: skip
SETTINGS = ("store_graph", "checkpoints")
ELSEWHERE = {"adjoint": "continuous", "backsolve": "continuous", "odeint_adjoint": "continuous"}  # what others call it


def gradient_of(gradient: str | Gradient, **settings: Any) -> Gradient:
    """The gradient that a name (or an object) asks for, with settings of its own."""
    if isinstance(gradient, str):
        if gradient not in GRADIENTS:
            near = difflib.get_close_matches(gradient.lower(), GRADIENTS, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            meant = f" (take {ELSEWHERE[gradient]!r} in its place)" if gradient in ELSEWHERE else meant
            raise ValueError(f"unknown `gradient` {gradient!r}{meant}; known are: {', '.join(GRADIENTS)}")
        chosen = GRADIENTS[gradient]
    elif isinstance(gradient, Gradient):
        chosen = gradient
    else:
        raise TypeError(f"`gradient` must be a name or a gradient object, not {type(gradient).__name__}")
    known = {f.name for f in fields(chosen)}
    for name in settings:
        if name not in known:
            owners = ", ".join(repr(other) for other, g in GRADIENTS.items() if name in {f.name for f in fields(g)})
            raise ValueError(f"`{name}` has no meaning for this gradient: it belongs to {owners}")
    return replace(chosen, **settings)


__all__ = [
    "GRADIENTS",
    "SETTINGS",
    "Checkpoint",
    "Continuous",
    "Direct",
    "Gradient",
    "Implicit",
    "gradient_of",
    "refuse_for_events",
]
