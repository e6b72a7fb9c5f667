"""exp(h J) v from products with J: in the space of v, J v, J^2 v ... the matrix is small (Saad 1992)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MOST = 24  # products
SETTLED = 1e-2  # relative size of what the next product would add
EXHAUSTED = 1e-10  # of the size of J v: what is left of it where the space holds all there is
SYMMETRIC = 1e-6


class Moved(NamedTuple):
    """exp(h J) v as a vector of length one and the logarithm of the factor by which v has grown."""

    vector: Tensor
    log: float
    settled: bool  # is it that to SETTLED, or at least bounded by it as J is symmetric?
    products: int


def exp_times(product: Callable[[Tensor], Tensor], v: Tensor, h: float) -> Moved | None:
    """None where a product is not finite."""
    most = min(MOST, v.numel())
    basis = v.new_empty(most + 1, v.numel())
    basis[0] = v / torch.linalg.vector_norm(v)
    hessenberg = torch.zeros(most + 1, most, dtype=torch.float64)
    noise = max(EXHAUSTED, 100 * torch.finfo(v.dtype).eps)
    for k in range(1, most + 1):
        w = product(basis[k - 1])
        size = float(torch.linalg.vector_norm(w))
        if not math.isfinite(size):
            return None
        for _ in range(2):
            parts = basis[:k] @ w
            hessenberg[:k, k - 1] += parts.double().cpu()
            w = w - parts @ basis[:k]
        left = float(torch.linalg.vector_norm(w))
        column, shift = _first_column(h * hessenberg[:k, :k])
        length = float(torch.linalg.vector_norm(column))
        ahead = abs(h) * left * float(column[-1].abs())
        settled = left <= noise * size or ahead <= SETTLED * length
        if settled or k == most:
            break
        hessenberg[k, k - 1] = left
        basis[k] = w / left
    if not length > 0 or not math.isfinite(length):
        return None
    projected = hessenberg[:k, :k]
    even = torch.linalg.matrix_norm(projected - projected.T) <= SYMMETRIC * torch.linalg.matrix_norm(projected)
    return Moved((column / length).to(v) @ basis[:k], shift + math.log(length), settled or bool(even), k)


def _first_column(exponent: Tensor) -> tuple[Tensor, float]:
    """Of the exponential, without a factor whose logarithm is the second value: so that nothing overflows."""
    shift = float(torch.linalg.eigvals(exponent).real.max())
    eye = torch.eye(len(exponent), dtype=exponent.dtype)
    return torch.linalg.matrix_exp(exponent - shift * eye)[:, 0], shift
