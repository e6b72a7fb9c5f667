"""A Jacobian and I - gamma J factorised, kept from one equation for the next."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..banded import Band, Layout, band_of, factorised
from ..jacobian import Compressed
from ..norms import two_norm
from ..rough import rough_signs

EIGENVALUES = 32  # unknowns up to which eigenvalues cost next to nothing
AGE = 0.05  # of an iteration, that every equation counts against a full Jacobian: f may be stiff no longer


class Dense(NamedTuple):
    """LU factors."""

    lu: Tensor
    pivots: Tensor

    @staticmethod
    def of(jacobian: Tensor, gamma: float) -> Dense | None:
        matrix = jacobian * -gamma
        matrix.diagonal().add_(1.0)
        lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
        return Dense(lu, pivots) if bool(info == 0) and bool(torch.isfinite(lu).all()) else None

    def solve(self, r: Tensor) -> Tensor:
        return torch.linalg.lu_solve(self.lu, self.pivots, r.unsqueeze(-1)).squeeze(-1)


class Ordered(NamedTuple):
    """A band, in an order of the unknowns."""

    band: Band
    layout: Layout

    @staticmethod
    def of(jacobian: Compressed, gamma: float, layout: Layout) -> Ordered | None:
        band = band_of(jacobian, layout).mul_(-gamma)
        band[:, layout.width] += 1.0
        made = factorised(band)
        return Ordered(made, layout) if made.is_finite() else None

    def solve(self, r: Tensor) -> Tensor:
        x = torch.empty_like(r)
        x[self.layout.order] = self.band.solve(r[self.layout.order])
        return x


class Factors(NamedTuple):
    jacobian: Tensor | Compressed
    gamma: float
    layout: Layout | None  # of a Jacobian by its entries
    parts: Dense | Ordered | None  # None: to be made again, where it is wanted
    rate: float = 1.0  # by which an iteration with it shrinks the error; 1: not known
    spent: float = 0.0  # iterations that a better Jacobian would have spared, and a little for its age
    unchecked: int = 0  # equations since a move with it was checked

    @staticmethod
    def of(jacobian: Tensor | Compressed, gamma: float, layout: Layout | None, rate: float = 1.0) -> Factors | None:
        """None where the matrix is singular, or not finite. A layout belongs to every matrix by entries."""
        parts: Dense | Ordered | None
        if isinstance(jacobian, Compressed):
            assert layout is not None
            parts = Ordered.of(jacobian, gamma, layout)
        else:
            parts = Dense.of(jacobian, gamma)
        return None if parts is None else Factors(jacobian, gamma, layout, parts, rate)

    def bare(self) -> Factors:
        """To be kept: of a band the factors are many times as large as the Jacobian that they are made from."""
        return self._replace(parts=None)

    def fits(self, z: Tensor) -> bool:
        values = self.jacobian.values if isinstance(self.jacobian, Compressed) else self.jacobian
        return values.shape[0] == z.shape[-1] and values.dtype == z.dtype

    def carried(self, gamma: float, part: float) -> Factors | None:
        """For the next equation; `part` is the price of a Jacobian over that of a full one."""
        usable = gamma == self.gamma and self.parts is not None
        made = self if usable else Factors.of(self.jacobian, gamma, self.layout, self.rate)
        return None if made is None else made._replace(spent=self.spent + AGE * part, unchecked=self.unchecked + 1)

    def used(self, rate: float, spared: bool) -> Factors:
        """After an iteration that had this rate. It is not forgotten at once that the rate was worse."""
        worse = 0.3 * self.rate if self.rate < 1.0 else 0.0
        return self._replace(rate=max(worse, rate), spent=self.spent + spared, unchecked=0)

    def solve(self, r: Tensor) -> Tensor:
        assert self.parts is not None
        return self.parts.solve(r)


def is_finite(matrix: Tensor | Compressed) -> bool:
    return bool(torch.isfinite(matrix.values if isinstance(matrix, Compressed) else matrix).all())


def spectral_radius(matrix: Tensor | Compressed) -> float:
    """Of a small matrix exactly; of a larger one, whose eigenvalues take longer than its factors, by how a vector grows
    over ten products after the first ten: enough to tell an equation that is stiff from one that is not."""
    if isinstance(matrix, Tensor) and len(matrix) <= EIGENVALUES:
        return float(torch.linalg.eigvals(matrix).abs().max())
    v = rough_signs(matrix.values[:, 0] if isinstance(matrix, Compressed) else matrix[0], 1)
    grown = list[float]()
    for _ in range(20):
        v = matrix.times(v) if isinstance(matrix, Compressed) else matrix @ v
        size = float(two_norm(v))
        if not 0.0 < size < math.inf:
            return size
        v, grown = v / size, [*grown, math.log(size)]
    return math.exp(sum(grown[10:]) / 10)
