"""What moves of z have taught about f: pairs (dz, df), good for every equation with that f, whatever its gamma.

`df = J dz` for a linear f. The residual of an equation then changes by `dz - gamma df`, so pairs from past equations
serve the next: the point in their span with the least residual costs no evaluation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import two_norm

CUT = 1e4  # ulp: what is below this part of a Gram matrix with ones on its diagonal is noise
AGAIN = 100.0  # square roots of an ulp: a residual that has shrunk to less has lost its digits


class Secants(NamedTuple):
    """m pairs, as rows, and the products of all rows with each other; oldest first. The buffers have room for more,
    which the next pair takes without a copy: whoever has seen all that is taken may take it."""

    rows: Tensor  # (2, room, n): dz and df
    gram: Tensor  # (2, room, 2, room), float64, on the host
    pairs: int
    taken: Tensor  # how many pairs the buffers hold, those of later ones that share them too

    @staticmethod
    def none(z: Tensor, room: int) -> Secants:
        gram = torch.zeros(2, room, 2, room, dtype=torch.float64)
        return Secants(z.new_zeros(2, room, z.shape[-1]), gram, 0, torch.tensor(0))

    def fits(self, z: Tensor) -> bool:
        return self.rows.shape[-1:] == z.shape and self.rows.dtype == z.dtype and self.rows.device == z.device

    def add(self, dz: Tensor, df: Tensor) -> Secants:
        """With one pair more, of length one in dz."""
        m = self.pairs
        if int(self.taken) != m or m == self.rows.shape[1]:
            return self._moved(slice(0, m), m + 1).add(dz, df)
        unit = 1.0 / two_norm(dz)
        new = self.rows[:, m]
        torch.mul(dz, unit, out=new[0])
        torch.mul(df, unit, out=new[1])
        products = (self.rows[:, : m + 1] @ new.mT).double().cpu()  # all rows with the new two
        self.gram[:, : m + 1, :, m] = products
        self.gram[:, m, :, : m + 1] = products.permute(2, 0, 1)
        self.taken.fill_(m + 1)
        return self._replace(pairs=m + 1)

    def newest(self, count: int) -> Secants:
        """Without all but the `count` newest."""
        return self._moved(slice(self.pairs - count, self.pairs), self.rows.shape[1])

    def _moved(self, kept: slice, room: int) -> Secants:
        """Those pairs in buffers of their own."""
        return self._filled(self.rows[:, kept], self.gram[:, kept, :, kept], max(room, self.rows.shape[1]))

    def _filled(self, rows: Tensor, gram: Tensor, room: int) -> Secants:
        m = rows.shape[1]
        made = Secants.none(rows[0, 0] if m else self.rows[0, 0], room)
        made.rows[:, :m], made.gram[:, :m, :, :m] = rows, gram
        made.taken.fill_(m)
        return made._replace(pairs=m)

    def residual_gram(self, gamma: float) -> Tensor:
        """Products of the rows `dz - gamma df` with each other."""
        m, g = self.pairs, self.gram
        mixed = g[0, :m, 1, :m]
        return torch.add(g[0, :m, 0, :m], mixed + mixed.mT, alpha=-gamma).add_(g[1, :m, 1, :m], alpha=gamma * gamma)

    def least_residual(self, z: Tensor, r: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """The point in z + span(dz) with the least residual if f were linear, and the residual there."""
        gram = self.residual_gram(gamma)
        unit = gram.diagonal().clamp(min=1e-300).rsqrt()
        scaled = gram.mul_(unit[:, None]).mul_(unit)
        scaled.diagonal().add_(CUT * torch.finfo(z.dtype).eps)
        factor, failed = torch.linalg.cholesky_ex(scaled)
        if int(failed):
            return z, r
        dz, df = self.rows[0, : self.pairs], self.rows[1, : self.pairs]
        size = float(two_norm(r))
        for _ in range(2):
            products = torch.sub(dz @ r, df @ r, alpha=gamma).double().cpu()
            c = torch.cholesky_solve((unit * products).unsqueeze(1), factor).squeeze(1).mul_(unit).to(z)
            move = c @ dz
            z, r = z - move, torch.add(r - move, c @ df, alpha=gamma)
            if float(two_norm(r)) > AGAIN * torch.finfo(z.dtype).eps ** 0.5 * size:
                break  # else once more: the Gram matrix halves the digits
        return z, r

    def compressed(self, gamma: float, count: int) -> Secants:
        """The `count` directions of the span on which I - gamma J is smallest: the slow ones, which take the most
        iterations to find again."""
        m = self.pairs
        values, vectors = torch.linalg.eigh(self.gram[0, :m, 0, :m])
        keep = values > CUT * torch.finfo(self.rows.dtype).eps * values[-1]
        white = vectors[:, keep] / values[keep].sqrt()
        _, slow = torch.linalg.eigh(white.mT @ self.residual_gram(gamma) @ white)
        w = white @ slow[:, :count]
        rows = w.mT.to(self.rows) @ self.rows[:, :m]
        gram = torch.einsum("mk,ambn,nl->akbl", w, self.gram[:, :m, :, :m], w)
        return self._filled(rows, gram, self.rows.shape[1])

    @property
    def stiffness(self) -> float:
        """The largest |df| / |dz|."""
        if not self.pairs:
            return 0.0
        diagonal = self.gram.reshape(2 * self.gram.shape[1], -1).diagonal().reshape(2, -1)[:, : self.pairs]
        return float((diagonal[1] / diagonal[0]).max().sqrt())
