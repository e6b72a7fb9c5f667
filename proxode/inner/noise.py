"""Residuals that are rounding: how that is told, and what may hide behind them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..linear import gmres
from ..norms import count
from ..rough import rough_signs, rough_sizes
from ..times import number
from .equation import ImplicitEquation

Measure = Callable[[Tensor], float]
Correction = Callable[[Tensor, Tensor, float], tuple[Tensor, bool]]

NOISE = 8.0  # multiples of the rounding noise of the residual, below which it says nothing
EXPLAINED = 0.5  # part of the residual that may be left when the noise is taken off
AS_BEFORE = 2.0  # of a residual that was noise in an equation before: one of that size may be noise too
ROUNDS = 8  # of a search for what hides behind noise
PRODUCTS = 400  # for one of them
LOST = 1e-3  # of the state: what is slow, and rounded by more than that, is not known
FEW = 10.0  # tolerances: a move as short leaves less than one
SHELF = 40  # vectors that a search keeps at least
ROOM = 2_000_000  # numbers in which it may keep more


def noise_is_near(equation: ImplicitEquation, size: float) -> bool:
    """Is a residual of this size likely to be noise, for earlier ones were?"""
    return size <= AS_BEFORE * equation.f.learned.get("noise", 0.0) * abs(number(equation.gamma))


def noise_at(equation: ImplicitEquation, z: Tensor, r: Tensor) -> Tensor:
    """How large, in each component, a residual at z may be for rounding alone. With gamma |J| = 1e4 an ulp of z is 1e4
    ulp of the residual. Two evaluations, some ulp away from that of r, tell."""
    change = torch.zeros_like(r)
    for seed in (1, 2):
        change = torch.maximum(change, (equation.residual(nearby(z, seed)) - r).abs())
    return NOISE * (torch.finfo(z.dtype).eps * z.abs() + change)


def is_noise(r: Tensor, noise: Tensor, measure: Measure, tol: float) -> bool:
    """Is the residual r no more than noise? Most of it must be: a large residual in a component that is not stiff is an
    error, however loud the stiff ones are."""
    return measure((r.abs() - noise).clamp(min=0.0)) <= max(tol, EXPLAINED * measure(r))


def uncovered(
    equation: ImplicitEquation, z: Tensor, r: Tensor, loud: float, measure: Measure, tol: float, correction: Correction
) -> tuple[Tensor, Tensor, bool]:
    """z and its residual, after what hid behind noise has been looked for; and whether nothing is hidden any more.

    Noise is `loud` where the equation is stiff, and in a component that is part of something slow too (a sum that a
    fast exchange leaves as it is, a smooth mode of a grid) it covers an error a million times the tolerance. The move
    that the residual asks for tells: of noise it is some ulp, or as long as that of noise where f rounds what is slow
    too. It must be that of the whole residual, for what is slow shows last.
    """
    least, length = math.inf, math.inf
    for _ in range(ROUNDS):
        size = measure(r)
        if size <= tol:
            return z, r, True
        move, whole = correction(z, r, 0.5 * tol / size)
        length = measure(move)
        if length <= tol:
            return z, r, whole
        if not length < 0.5 * least:
            if length <= min(NOISE * _slow_noise(equation, z, r, measure, tol, correction), LOST * measure(z)):
                return z, r, whole
            if not length < least:
                return z, r, False
        there, least = z - move, length
        r_there = equation.residual(there)
        if not measure(r_there) <= size + loud:  # nan too: the product was wrong
            return z, r, False
        z, r = there, r_there
        if not whole:
            return z, r, False
        if length <= FEW * tol:
            break
    return z, r, length <= FEW * tol


def _slow_noise(
    equation: ImplicitEquation, z: Tensor, r: Tensor, measure: Measure, tol: float, correction: Correction
) -> float:
    """How long a move may be for rounding alone: that of a residual some ulp away."""
    change = equation.residual(nearby(z, 3)) - r
    return measure(correction(z, change, 0.5 * tol / max(measure(change), tol))[0])


def by_products(equation: ImplicitEquation, z: Tensor, r: Tensor, part: float) -> tuple[Tensor, bool]:
    """The move that the residual r asks for at z, up to a part of r; and whether that was found."""
    part = min(max(part, torch.finfo(z.dtype).eps ** 0.75), 0.5)
    restart = max(SHELF, min(PRODUCTS, ROOM // count(r)))
    product = partial(_product, equation, z, r)
    move = gmres(product, r, rtol=part, max_iters=PRODUCTS, restart=restart)
    return move.x, move.residual <= part


def nearby(z: Tensor, seed: int) -> Tensor:
    """Some ulp away. Sizes differ, for components that are coupled and move alike may show nothing."""
    return z * (1.0 + 2.0 * torch.finfo(z.dtype).eps * rough_signs(z, seed) * rough_sizes(z, seed))


def _product(equation: ImplicitEquation, z: Tensor, r: Tensor, v: Tensor) -> Tensor:
    return equation.derivative(z, v, r)
