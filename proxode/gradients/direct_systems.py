"""Transposed systems `u - M_x^T u = g` solved with the matrix M_x itself: of small states, and of grids, where a few
products make it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..banded import Layout, band_of, factorised, transposed
from ..inner import GRID_LIMIT
from ..jacobian import LEAST, PROBES, Compressed, Pattern, jacobian_rows, stencil
from ..linear import LOST, Matvec, is_rounded, refined
from ..solution import Stats
from ..spread import present
from ..vector_field import VectorField
from .products import Products

SMALL = 64  # unknowns up to which one batched pass with every unit vector is faster than a Krylov solve
DENSE = 256  # unknowns up to which a matrix with a pattern, but no narrow band, is worth solving with
BANDED = 128  # unknowns from which a band is solved faster than a dense matrix
DEAR = 8  # products of a Krylov solve from where it is worth looking for a pattern
AGAIN = 20  # systems after which a Krylov solve is tried again


@dataclass
class Direct:
    stats: Stats
    f: VectorField | None  # which remembers where the entries of its Jacobian are
    since: int = 0  # systems in a row that were solved here

    def is_cheaper(self, g: Tensor, cost: int) -> bool:
        """Than a Krylov solve, the last of which took `cost` products; 0 where there was none."""
        n = g.numel()
        if present() is not None:  # no process has the whole matrix
            return False
        if n <= SMALL:
            return True
        known = self._known(n)
        cheaper = known is not None and (not cost or known.passes + 1 < cost) and self.since < AGAIN
        self.since = self.since + 1 if cheaper else 0
        return cheaper

    def look(self, products: Products, cost: int) -> None:
        """For a pattern, where Krylov solves have become dear."""
        if self.f is None or present() is not None or cost < DEAR or not LEAST <= products.x.numel() <= GRID_LIMIT:
            return
        if "pattern" in self.f.learned or "looked" in self.f.learned:
            return
        self.f.learned["looked"] = True
        self.stats.count("n_jac", PROBES)
        found = stencil(products.moved, products.x)
        if found is not None:
            self.f.remember(found)

    def solve(self, products: Products, g: Tensor, rtol: float) -> Tensor | None:
        """u to rtol, or None where the matrix is singular, or rounded to one that is no help, or has entries where none
        were expected."""
        n = g.numel()
        made = jacobian_rows(products.moved, products.x, self._known(n), look=False, full=n <= SMALL)
        self.stats.count("n_jac", made.products)
        if made.pattern is not None and self.f is not None:
            self.f.remember(made.pattern)
        if made.matrix is None:
            return None
        factors = _factorised(made.matrix, None if self.f is None or n < BANDED else self.f.layout)
        if factors is None:
            return None
        solve, largest = factors
        if not is_rounded(largest, g.dtype, rtol):
            u, left = solve(g), 0.0
        else:
            u, left = refined(solve, lambda v: v - products.of_x(v), g, rtol=rtol)
        return u if left <= LOST and bool(torch.isfinite(u).all()) else None

    def rescue(self, products: Products, g: Tensor, rtol: float, cost: int) -> Tensor | None:
        """u where a Krylov solve has failed, after so many products."""
        self.look(products, cost)
        return None if self._known(g.numel()) is None else self.solve(products, g, rtol)

    def _known(self, n: int) -> Pattern | None:
        """The pattern, if it is that of all n unknowns and a matrix with it can be solved with."""
        known: Pattern | None = None if self.f is None else self.f.learned.get("pattern")
        if self.f is None or known is None or len(known.groups) != n:
            return None
        return known if n <= DENSE or self.f.layout is not None else None


def _factorised(rows: Tensor | Compressed, layout: Layout | None) -> tuple[Matvec, float] | None:
    """What solves with `I - M_x^T`, and the largest of its entries; None where it is singular."""
    if isinstance(rows, Compressed) and layout is not None:
        band = transposed(band_of(rows, layout)).neg_()
        band[:, layout.width] += 1.0
        largest, made = float(band.abs().max()), factorised(band)

        def solve(g: Tensor) -> Tensor:
            u = torch.empty_like(g)
            u[layout.order] = made.solve(g[layout.order])
            return u

        return solve, largest
    matrix = -(rows.dense() if isinstance(rows, Compressed) else rows).mT
    matrix.diagonal().add_(1.0)
    lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
    if int(info) != 0:
        return None
    return lambda g: torch.linalg.lu_solve(lu, pivots, g.unsqueeze(-1)).squeeze(-1), float(matrix.abs().max())
