"""The outer eigenvalues of a matrix that is known by its products: Arnoldi's process.

Ritz values are the eigenvalues of the matrix projected on the space of v, J v, J^2 v ...; those at the rim of the
spectrum settle first (Saad, Numerical Methods for Large Eigenvalue Problems, 2011, chapter 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

SETTLED = 3e-3  # of the radius: a rim that has moved less than this
OVER = 6  # in so many products has settled
LEAST = 18  # products before that is asked
EXHAUSTED = 1e-10  # of the size of J v (1e-5 in float32): what is left of it, where the space holds all there is


class Ritz(NamedTuple):
    """Ritz values, and how far the rim of them moved over the last products, relative to the radius."""

    values: Tensor  # complex128
    moved: float
    products: int
    skew: float = 0.0  # |H - H^T| / |H| of the projected matrix H, which is symmetric if the matrix is


def arnoldi(product: Callable[[Tensor], Tensor], start: Tensor, most: int, *, even: float = 0.0) -> Ritz:
    """Ritz values from at most `most` products, fewer where the rim of the spectrum has settled before; nan where a
    product was not finite. They are real where the projected matrix is symmetric to `even`."""
    n = start.numel()
    most = min(most, n)
    basis = start.new_empty(most + 1, n)
    basis[0] = start / torch.linalg.vector_norm(start)
    hessenberg = torch.zeros(most + 1, most, dtype=torch.float64)
    rims: list[Tensor] = []
    noise = max(EXHAUSTED, 100 * torch.finfo(start.dtype).eps)
    for k in range(1, most + 1):
        w = product(basis[k - 1])
        size = float(torch.linalg.vector_norm(w))
        if not math.isfinite(size):
            return Ritz(torch.full((1,), complex(math.nan, math.nan), dtype=torch.complex128), math.inf, k)
        for _ in range(2):  # once is not enough where most of w cancels
            parts = basis[:k] @ w
            hessenberg[:k, k - 1] += parts.double().cpu()
            w = w - parts @ basis[:k]
        left = float(torch.linalg.vector_norm(w))
        if left <= noise * size:  # an invariant space: its Ritz values are eigenvalues
            return _ritz(hessenberg[:k, :k], 0.0, even)
        hessenberg[k, k - 1] = left
        basis[k] = w / left
        rims.append(rim(_values(hessenberg[:k, :k], even)))
        if k >= LEAST and _moved(rims) <= SETTLED:
            break
    return _ritz(hessenberg[:k, :k], _moved(rims), even)


def _ritz(h: Tensor, moved: float, even: float) -> Ritz:
    return Ritz(_values(h, even), moved, len(h), skew_part(h))


def skew_part(matrix: Tensor) -> float:
    """|A - A^T| / |A| in the norm of Frobenius: 0 symmetric, 2 antisymmetric; 0 of the zero matrix."""
    size = float(torch.linalg.matrix_norm(matrix))
    return float(torch.linalg.matrix_norm(matrix - matrix.T)) / size if size > 0 else 0.0


def _values(h: Tensor, even: float) -> Tensor:
    if skew_part(h) <= even:
        return torch.linalg.eigvalsh((h + h.T) / 2).to(torch.complex128)
    return torch.linalg.eigvals(h)


def rim(values: Tensor) -> Tensor:
    """Largest modulus, least and largest real part, largest imaginary part."""
    return torch.stack([values.abs().max(), values.real.min(), values.real.max(), values.imag.max()])


def _moved(rims: list[Tensor]) -> float:
    if len(rims) <= OVER:
        return 1.0
    radius = float(rims[-1][0])
    return float((rims[-1] - rims[-1 - OVER]).abs().max()) / radius if radius > 0 else 0.0
