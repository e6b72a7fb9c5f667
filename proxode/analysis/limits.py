"""How long a step the stability region of an explicit method allows, for eigenvalues anywhere in the plane."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from .regions import ROUNDING, all_methods, polynomial

ANGLES = 361  # from the imaginary axis to the negative one
MODULI = 1_600  # along each of these rays
FARTHEST = 16.0  # no explicit method here reaches further
LEEWAY = 5e-3  # growth in a step that error control does not notice for a while: on the imaginary axis dopri5 is run so


@cache
def reach(method: str, leeway: float = ROUNDING) -> Tensor:
    """How far from the origin the region reaches along rays from the imaginary axis (first) to the negative one (last):
    up to where |R(z)| is above one by more than the leeway for the first time."""
    coefficients = polynomial(all_methods()[method][1])
    angles = torch.linspace(math.pi / 2, math.pi, ANGLES, dtype=torch.float64)
    moduli = torch.linspace(0, FARTHEST, MODULI + 1, dtype=torch.float64)[1:]
    unstable = _modulus(coefficients, angles[:, None], moduli) > 1 + leeway
    first = torch.where(unstable.any(1), unstable.double().argmax(1), MODULI - 1)
    high, low = moduli[first], moduli[first] - FARTHEST / MODULI
    for _ in range(30):
        middle = (low + high) / 2
        stable = _modulus(coefficients, angles, middle) <= 1 + leeway
        low, high = torch.where(stable, middle, low), torch.where(stable, high, middle)
    return low


def _modulus(coefficients: list[float], angles: Tensor, moduli: Tensor) -> Tensor:
    return horner(coefficients, moduli * torch.polar(torch.ones_like(angles), angles)).abs()


def horner(coefficients: list[float], z: Tensor) -> Tensor:
    """The polynomial with these coefficients, the constant first, at z."""
    value = torch.full_like(z, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * z + c
    return value


def step_limit(eigenvalues: Tensor, method: str = "dopri5", leeway: float = ROUNDING) -> float:
    """The longest step h for which every h lambda lies in the region of stability; infinity if none sets a limit.

    A growing mode (Re lambda > 0) sets none by its growth, which is the solution's own and a matter of accuracy, but it
    does by its imaginary part.
    """
    return float(step_limits(eigenvalues[None], method, leeway))


def step_limits(eigenvalues: Tensor, method: str = "dopri5", leeway: float = ROUNDING) -> Tensor:
    """The same for each row of eigenvalues."""
    damped = torch.complex(eigenvalues.real.clamp(max=0.0), eigenvalues.imag.abs()).to(torch.complex128)
    place = (damped.angle() - math.pi / 2) / (math.pi / 2) * (ANGLES - 1)
    low = place.floor().clamp(0, ANGLES - 2).long()
    part, table = (place - low).clamp(0.0, 1.0), reach(method, leeway)
    reached = (1 - part) * table[low] + part * table[low + 1]
    return (reached / damped.abs()).amin(-1)  # a zero sets no limit: infinity
