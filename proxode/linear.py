"""Krylov solvers of `A x = b` for a matrix that is known by its products only, for batches of rows.

A right side has shape `(n,)` or `(batch, n)`; each row is a system of its own and freezes when it is solved.
Convergence is per row, never a mean. Memory: `cg` four vectors, `gmres` its `restart` length plus three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .norms import dot, products, two_norm

Matvec = Callable[[Tensor], Tensor]

REFINEMENTS = 5
LOST = 1e-3  # of a solution: what is still off by more when it gets no better is not known
ASYMMETRY = 1e-4  # relative; what rounding makes of a symmetric matrix is far below


class LinearResult(NamedTuple):
    x: Tensor
    residual: float  # the largest |b - A x| / |b| of any row, from the recurrence
    iterations: int
    asymmetry: float = 0.0  # how far <A u, v> was from <u, A v>, relative (cg only)
    weights: Tensor | None = None  # of x in the vectors that A was multiplied with (gmres without a restart)
    largest: float = 0.0  # |A v| / |v| of any vector that was met (gmres only)


class Refined(NamedTuple):
    x: Tensor
    left: float  # about what x of any row may be off, relative


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, and zero where a row has nothing left to solve."""
    return torch.where(denominator != 0, numerator / denominator, torch.zeros_like(numerator))


def cg(matvec: Matvec, b: Tensor, *, rtol: float, max_iters: int) -> LinearResult:
    """Conjugate gradients (Hestenes & Stiefel 1952) from x = 0, for a symmetric positive definite A.

    The symmetry is watched for free: `<A p', p> = <p', A p>` for each pair of neighbouring directions.
    """
    x, r = torch.zeros_like(b), b
    p, rr = r, dot(r, r)
    target = rtol * rtol * rr
    asymmetry, worst, previous = 0.0, 1.0, None
    best, best_at = math.inf, 0
    for i in range(1, max_iters + 1):
        ap = matvec(p)
        pap = dot(p, ap)
        if previous is not None:
            defect = (dot(ap, previous[0]) - dot(p, previous[1])).abs()
            size = two_norm(ap) * two_norm(previous[0]) + two_norm(p) * two_norm(previous[1])
            asymmetry = max(asymmetry, float(_ratio(defect, size).max()))
        active = rr > target
        alpha = torch.where(active, _ratio(rr, pap), torch.zeros_like(rr))
        x = x + alpha * p
        r = r - alpha * ap
        rr_next = dot(r, r)
        worst = float(_ratio(rr_next, target).max())
        if not worst > 1.0 or not bool((pap[active] > 0).all()):
            break
        if worst < 0.5 * best:
            best, best_at = worst, i
        if asymmetry > ASYMMETRY and i - best_at >= 20:
            break  # no progress, and no theory that would bring any
        previous = (p, ap)
        p = r + _ratio(rr_next, rr) * p
        rr = rr_next
    return LinearResult(x, rtol * worst**0.5, i, asymmetry)


def gmres(matvec: Matvec, b: Tensor, *, rtol: float, max_iters: int, restart: int = 40) -> LinearResult:
    """Restarted GMRES (Saad & Schultz 1986) from x = 0. Each new vector is orthogonalised twice against the basis
    as one block; the small triangular problem lives on the host, for it is asked for its residual every time."""
    x, r = torch.zeros_like(b), b
    target = rtol * two_norm(b)
    total, largest = 0, 0.0
    while True:
        dx, left, weights, met = _gmres_cycle(matvec, r, target, min(restart, max_iters - total))
        used = weights.shape[-1]
        x = x + dx
        total, largest = total + used, max(largest, met)
        worst = float(_ratio(left, target).max())
        if not worst > 1.0 or total >= max_iters or used < restart:
            return LinearResult(x, rtol * worst, total, weights=weights if total == used else None, largest=largest)
        r = b - matvec(x)


def _gmres_cycle(matvec: Matvec, r: Tensor, target: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """Up to `length` Arnoldi steps: the correction, the norm of what it leaves, its weights in the basis, and the
    largest image of a vector of that."""
    beta = two_norm(r)
    basis = r.new_empty(*r.shape[:-1], length + 1, r.shape[-1])
    basis[..., 0, :] = _ratio(r, beta.expand_as(r))
    triangles = [Triangle(first) for first in beta.flatten().tolist()]
    targets = target.flatten().tolist()
    for k in range(1, length + 1):
        w, v = matvec(basis[..., k - 1, :]).unsqueeze(-1), basis[..., :k, :]
        c = products(v, w)
        w = w - v.mT @ c
        again = products(v, w)
        w = (w - v.mT @ again).squeeze(-1)
        size = two_norm(w)
        basis[..., k, :] = _ratio(w, size.expand_as(w))
        columns = torch.cat([(c + again).squeeze(-1), size], -1).reshape(-1, k + 1).tolist()
        for triangle, column in zip(triangles, columns, strict=True):
            triangle.add(column)
        if all(triangle.done(goal) for triangle, goal in zip(triangles, targets, strict=True)):
            break
    c = r.new_tensor([triangle.solve() for triangle in triangles]).reshape(*r.shape[:-1], k, 1)
    left = r.new_tensor([triangle.residual for triangle in triangles]).reshape(beta.shape)
    largest = max(triangle.largest for triangle in triangles)
    return (basis[..., :k, :].mT @ c).squeeze(-1), left, c.squeeze(-1), largest


def is_rounded(largest: float, dtype: torch.dtype, rtol: float) -> bool:
    """Does a matrix with entries up to `largest`, and eigenvalues down to one, lose more than rtol by rounding?"""
    return torch.finfo(dtype).eps * largest > rtol


def refined(solve: Matvec, matvec: Matvec, b: Tensor, *, rtol: float, start: Tensor | None = None) -> Refined:
    """`A x = b` by a `solve` that is rough, with residuals from products (iterative refinement: Higham 2002, Accuracy
    and Stability of Numerical Algorithms, chapter 12), from what it gave first.

    In float32 the one of `1 - gamma J` is lost in entries of 1e5, and with it what is slow in a stiff system; a product
    with what is slow has no large numbers in it. Rows are systems of their own: one that gets no better stays.
    """
    x = solve(b) if start is None else start
    before, off = two_norm(x), torch.zeros_like(two_norm(x))
    for _ in range(REFINEMENTS):
        dx, size = solve(b - matvec(x)), two_norm(x)
        moved = two_norm(dx)
        better = moved < 0.5 * before
        x = torch.where(better, x + dx, x)
        following = torch.where(better, moved * _ratio(moved, before), moved)  # what the next one would be
        off = _ratio(following, size)
        if not bool((better & (off > rtol)).any()):
            break
        before = moved
    return Refined(x, float(torch.nan_to_num(off, nan=math.inf).max()))


class Triangle:
    """The least-squares problem of one Arnoldi process, kept triangular by Givens rotations, in plain floats."""

    def __init__(self, beta: float) -> None:
        self.columns: list[list[float]] = []
        self.rotations: list[tuple[float, float]] = []
        self.rhs = [beta]
        self.broken = beta == 0.0
        self.largest = 0.0

    @property
    def residual(self) -> float:
        return abs(self.rhs[-1])

    def done(self, target: float) -> bool:
        return self.broken or not self.residual > target

    def add(self, column: list[float]) -> None:
        size = math.hypot(*column)
        self.largest = max(self.largest, size)
        for i, (cos, sin) in enumerate(self.rotations):
            upper, lower = column[i], column[i + 1]
            column[i], column[i + 1] = cos * upper + sin * lower, cos * lower - sin * upper
        length = math.hypot(column[-2], column[-1])
        singular = not length > 1e-14 * size  # nothing new, or nan: the residual stays what it was
        length = 0.0 if singular else length
        cos, sin = (0.0, 1.0) if singular else (column[-2] / length, column[-1] / length)
        self.broken = self.broken or not abs(column[-1]) > 1e-14 * size  # the space is complete
        self.rotations.append((cos, sin))
        self.columns.append([*column[:-2], length])
        self.rhs[-1:] = [cos * self.rhs[-1], -sin * self.rhs[-1]]

    def solve(self) -> list[float]:
        x: list[float] = [0.0] * len(self.columns)
        for i in reversed(range(len(x))):
            known = sum(self.columns[j][i] * x[j] for j in range(i + 1, len(x)))
            diagonal = self.columns[i][i]
            x[i] = (self.rhs[i] - known) / diagonal if diagonal != 0.0 else 0.0
        return x
