"""Checks of inner solvers that users have written: what they return is looked at, and told by their name."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .equation import ImplicitEquation


def is_own(part: object) -> bool:
    """Whether a solver (or a method) is none of the package."""
    return not type(part).__module__.startswith("proxode.")


def checked_step(solver: Any, equation: ImplicitEquation, z: Tensor, r: Tensor, state: Any) -> tuple[Tensor, Any]:
    """`solver.step`, with an error where that did not return what it should, or wrote into what it was given."""
    kind, before = type(solver).__name__, (z._version, r._version)
    made = solver.step(equation, z, r, state)
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise TypeError(f"{kind}.step must return (z, state), the next point and the next state, not {got}")
    following = made[0]
    if not isinstance(following, Tensor) or following.shape != r.shape or following.dtype != r.dtype:
        plain = isinstance(following, Tensor)
        got = f"{tuple(following.shape)} in {following.dtype}" if plain else type(following).__name__
        raise TypeError(f"{kind}.step must return a point z of shape {tuple(r.shape)} in {r.dtype}, not {got}")
    if (z._version, r._version) != before:
        raise ValueError(f"{kind}.step has written into z or r, which it must leave as they are: make a new tensor")
    return made
