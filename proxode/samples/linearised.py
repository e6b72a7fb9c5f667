"""The linear systems of a batch, `(I - gamma J) x = r`: small ones by their matrices, larger ones by products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ..inner import DENSE_LIMIT
from ..linear import LOST, Refined, gmres, is_rounded, refined
from .field import BatchField, Pullback

LINEAR_RTOL = 0.02  # of what an inexact Newton step may leave
MAX_ITERS, RESTART = 400, 40
INVERSE_LIMIT = 16  # unknowns up to which an inverse is less work than two triangular solves

Systems = Callable[[Tensor, Tensor], Tensor]


class Linearised(Protocol):
    """f near a point of each sample."""

    def systems(self, gamma: Tensor) -> Systems:
        """What solves `(I - gamma J) x = r` for x, given r and which samples need no x."""
        ...


class Dense:
    """By the Jacobian of each sample."""

    def __init__(self, jacobian: Tensor) -> None:
        self.jacobian = jacobian

    def systems(self, gamma: Tensor) -> Systems:
        n = self.jacobian.shape[-1]
        matrix = torch.eye(n, dtype=gamma.dtype, device=gamma.device) - gamma[:, None, None] * self.jacobian
        if n <= INVERSE_LIMIT:
            inverse = torch.linalg.inv_ex(matrix).inverse
            return lambda r, idle: torch.bmm(inverse, r.unsqueeze(-1)).squeeze(-1)
        lu, pivots, _ = torch.linalg.lu_factor_ex(matrix)
        return lambda r, idle: torch.linalg.lu_solve(lu, pivots, r.unsqueeze(-1)).squeeze(-1)


class Products:
    """By products with the Jacobians, one for the whole batch at a time, and GMRES: a basis of RESTART states."""

    def __init__(self, f: BatchField, t: Tensor, y: Tensor) -> None:
        self.pull = f.pullback(t, y, twice=True)

    def systems(self, gamma: Tensor) -> Systems:
        column = gamma[:, None]

        def solve(r: Tensor, idle: Tensor) -> Tensor:
            r = torch.where((torch.isfinite(r).all(-1) & ~idle)[:, None], r, 0.0)
            return gmres(lambda v: v - _sane(column * self.pull.forward(v)), r, rtol=LINEAR_RTOL, max_iters=MAX_ITERS,
                         restart=RESTART).x  # fmt: skip

        return solve


def linearised(f: BatchField, t: Tensor, y: Tensor) -> Linearised:
    return Dense(f.jacobian(t, y)) if y.shape[-1] <= DENSE_LIMIT else Products(f, t, y)


def transposed(f: BatchField, t: Tensor, z: Tensor, gamma: Tensor, g: Tensor, rtol: float) -> Tensor:
    """u with `(I - gamma J)^T u = g`, for every sample."""
    column = gamma[:, None]
    if z.shape[-1] <= DENSE_LIMIT:
        jacobian = f.jacobian(t, z)
        matrix = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device) - gamma[:, None, None] * jacobian
        lu, pivots, _ = torch.linalg.lu_factor_ex(matrix.mT)

        def solve(b: Tensor) -> Tensor:
            return torch.linalg.lu_solve(lu, pivots, b.unsqueeze(-1)).squeeze(-1)

        if not is_rounded(float(matrix.abs().max()), z.dtype, rtol):
            return solve(g)
        back: Pullback = f.pullback(t, z)
        return _checked(refined(solve, lambda v: v - _sane(column * back(v)), g, rtol=rtol), g)
    pull: Pullback = f.pullback(t, z)

    def matvec(v: Tensor) -> Tensor:
        return v - _sane(column * pull(v))

    done = gmres(matvec, g, rtol=rtol, max_iters=MAX_ITERS, restart=RESTART)
    if not done.residual <= 10.0 * rtol:
        raise RuntimeError(f"`per_sample`, backward: a transposed system of {z.shape[-1]} unknowns was solved to "
                           f"{done.residual:.1e} of its right side only: smaller tolerances make shorter steps, and "
                           "systems that are easier")  # fmt: skip
    if not is_rounded(done.largest, z.dtype, rtol):
        return done.x

    def solve_again(b: Tensor) -> Tensor:
        part = rtol / max(float(_largest_part(b, g)), rtol)
        return gmres(matvec, b, rtol=part, max_iters=MAX_ITERS, restart=RESTART).x

    return _checked(refined(solve_again, matvec, g, rtol=rtol, start=done.x), g)


def _checked(found: Refined, g: Tensor) -> Tensor:
    if not found.left <= LOST:
        raise RuntimeError(f"`per_sample`, backward: {g.dtype} rounds a transposed system of {g.shape[-1]} unknowns, "
                           f"and a part of {min(found.left, 1.0):.1g} of the gradient is not known: use float64, or "
                           "smaller tolerances, whose steps are shorter")  # fmt: skip
    return found.x


def _largest_part(b: Tensor, g: Tensor) -> Tensor:
    """|b| / |g| of the sample in which it is largest."""
    sizes = torch.linalg.vector_norm(g, dim=-1)
    parts = torch.linalg.vector_norm(b, dim=-1) / torch.where(sizes > 0, sizes, 1.0)
    return torch.nan_to_num(parts, nan=1.0).max()


def _sane(product: Tensor) -> Tensor:
    """A sample without a derivative has none: it must not keep the others waiting, and its residual tells."""
    return torch.where(torch.isfinite(product), product, 0.0)
