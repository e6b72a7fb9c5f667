"""Weights of polynomials through past points, for a batch in which every sample has its own points and its own order.

Times are `(points, batch)`, newest first. The first `count` points of a sample are used, the others get weight zero.
"""

from __future__ import annotations

import torch
from torch import Tensor


def used(times: Tensor, count: Tensor) -> Tensor:
    """Which of the points are among the first `count`, `(points, batch)`."""
    return torch.arange(len(times), device=times.device)[:, None] < count


def lagrange(t: Tensor, times: Tensor, count: Tensor) -> Tensor:
    """Weights of the values at `times` in the polynomial through the first `count` of them, at t."""
    taken = used(times, count)
    return _products(t, times, taken) * taken


def slope(t: Tensor, times: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """For the polynomial through (t, z) and the first `count` points: its slope at t is `own z + sum weights y`."""
    taken = used(times, count)
    away = torch.where(taken, t - times, torch.inf)
    return away.reciprocal().sum(0), -_products(t, times, taken) / away


def difference(times: Tensor, count: Tensor) -> Tensor:
    """Weights of the divided difference over the first `count` points."""
    taken = used(times, count)
    gaps = times[:, None] - times[None]
    apart = taken[None] & ~torch.eye(len(times), dtype=torch.bool, device=times.device)[..., None]
    return torch.where(apart, gaps, 1.0).prod(1).reciprocal() * taken


def _products(t: Tensor, times: Tensor, taken: Tensor) -> Tensor:
    """prod over m of (t - t_m) / (t_j - t_m), for every j."""
    gaps = times[:, None] - times[None]
    apart = taken[None] & ~torch.eye(len(times), dtype=torch.bool, device=times.device)[..., None]
    return torch.where(apart, (t - times)[None] / torch.where(apart, gaps, 1.0), 1.0).prod(1)
