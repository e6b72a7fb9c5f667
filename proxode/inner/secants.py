"""What moves of z have taught about f: pairs (dz, df), good for every equation with that f, whatever its gamma.

`df = J dz` for a linear f. The residual of an equation then changes by `dz - gamma df`, so pairs from past equations
serve the next: the point in their span with the least residual costs no evaluation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import two_norm

CUT = 1e3  # ulp: eigenvalues of a Gram matrix below this part of the largest are noise


class Secants(NamedTuple):
    """m pairs, as rows, and the products of all rows with each other; oldest first."""

    rows: Tensor  # (2, m, n): dz and df
    gram: Tensor  # (2 m, 2 m), float64, on the host

    @property
    def pairs(self) -> int:
        return self.rows.shape[1]

    @staticmethod
    def none(z: Tensor) -> Secants:
        return Secants(z.new_empty(2, 0, z.shape[-1]), torch.empty(0, 0, dtype=torch.float64))

    def fits(self, z: Tensor) -> bool:
        return self.rows.shape[-1:] == z.shape and self.rows.dtype == z.dtype and self.rows.device == z.device

    def add(self, dz: Tensor, df: Tensor) -> Secants:
        """With one pair more, of length one in dz."""
        size = two_norm(dz)
        new = torch.stack([dz, df]) / size
        m = self.pairs
        rows = torch.cat([self.rows, new.unsqueeze(1)], 1)
        products = (rows.reshape(2 * (m + 1), -1) @ new.mT).double().cpu()  # all rows with the new two
        gram = torch.zeros(2, m + 1, 2, m + 1, dtype=torch.float64)
        gram[:, :m, :, :m] = self.gram.reshape(2, m, 2, m)
        products = products.reshape(2, m + 1, 2)
        gram[:, :, :, m] = products
        gram[:, m, :, :] = products.permute(2, 0, 1)
        return Secants(rows, gram.reshape(2 * (m + 1), 2 * (m + 1)))

    def newest(self, count: int) -> Secants:
        """Without all but the `count` newest."""
        m = self.pairs
        kept = torch.cat([torch.arange(m - count, m), torch.arange(2 * m - count, 2 * m)])
        return Secants(self.rows[:, m - count :], self.gram[kept][:, kept])

    def residual_gram(self, gamma: float) -> Tensor:
        """Products of the rows `dz - gamma df` with each other."""
        ss, sf, fs, ff = self._blocks()
        return ss - gamma * (sf + fs) + gamma * gamma * ff

    def _blocks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        m = self.pairs
        g = self.gram
        return g[:m, :m], g[:m, m:], g[m:, :m], g[m:, m:]

    def least_residual(self, z: Tensor, f: Tensor, r: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """The point in z + span(dz) with the least residual if f were linear; f and the residual there."""
        gram = self.residual_gram(gamma)
        unit = gram.diagonal().clamp(min=1e-300).rsqrt()
        values, vectors = torch.linalg.eigh(unit[:, None] * gram * unit)
        keep = values > CUT * torch.finfo(z.dtype).eps * values[-1]
        vectors = unit[:, None] * vectors[:, keep]
        inverse = (vectors / values[keep]) @ vectors.mT
        m = self.pairs
        flat = self.rows.reshape(2 * m, -1)
        for _ in range(2):  # once more: the Gram matrix halves the digits
            products = (flat @ r).double().cpu()
            c = (inverse @ (products[:m] - gamma * products[m:])).to(z)
            dz, df = c @ self.rows[0], c @ self.rows[1]
            z, f, r = z - dz, f - df, r - (dz - gamma * df)
        return z, f, r

    def compressed(self, gamma: float, count: int) -> Secants:
        """The `count` directions of the span on which I - gamma J is smallest: the slow ones, which take the most
        iterations to find again."""
        ss = self._blocks()[0]
        values, vectors = torch.linalg.eigh(ss)
        keep = values > CUT * torch.finfo(self.rows.dtype).eps * values[-1]
        white = vectors[:, keep] / values[keep].sqrt()
        _, slow = torch.linalg.eigh(white.mT @ self.residual_gram(gamma) @ white)
        w = white @ slow[:, :count]
        rows = torch.einsum("mk,amn->akn", w.to(self.rows), self.rows)
        both = torch.block_diag(w, w)
        return Secants(rows, both.mT @ self.gram @ both)

    @property
    def stiffness(self) -> float:
        """The largest |df| / |dz|."""
        ss, _, _, ff = self._blocks()
        return float((ff.diagonal() / ss.diagonal()).max().sqrt()) if self.pairs else 0.0
