"""Gradients: how the solution of an equation is differentiated. None of them knows which method made it."""

from __future__ import annotations

from .implicit import Implicit

GRADIENTS: dict[str, Implicit] = {"implicit": Implicit()}


def gradient_of(gradient: str | Implicit) -> Implicit:
    if isinstance(gradient, str):
        if gradient not in GRADIENTS:
            raise ValueError(f"unknown `gradient` {gradient!r}; known are: {', '.join(GRADIENTS)}")
        return GRADIENTS[gradient]
    if not isinstance(gradient, Implicit):
        raise TypeError(f"`gradient` must be a name or a gradient object, not {type(gradient).__name__}")
    return gradient


__all__ = ["GRADIENTS", "Implicit", "gradient_of"]
