"""What moves of z have taught about f: pairs (s, q), where q is by how much the residual changes if z moves by s.

`q = s - gamma J s` for a linear f, so pairs from past equations serve the next, whatever its gamma: the point in their
span with the least residual costs no evaluation. The q are kept orthonormal, so that this point is a projection.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import two_norm

NEW = 1e-7  # part of a change of the residual that must be new, for the pair to tell something


class Secants(NamedTuple):
    """`pairs` of them in the first rows of `s` and `q`, oldest first. The buffers have room for more, which the next
    pair takes without a copy: whoever has seen all that is taken may take it."""

    s: Tensor  # (room, n)
    q: Tensor  # (room, n), orthonormal
    raw: Tensor  # (room, room): row j holds the coefficients of pair j, as it was met, in the rows up to j
    pairs: int
    gamma: float  # of the equation that q belongs to
    taken: Tensor  # how many pairs the buffers hold, those of later ones that share them too
    stiffness: float = 0.0  # the largest |J s| / |s| that was met

    @staticmethod
    def none(z: Tensor, room: int) -> Secants:
        rows = z.new_zeros(2, room, z.shape[-1])
        return Secants(rows[0], rows[1], z.new_zeros(room, room), 0, 1.0, torch.tensor(0))

    def fits(self, z: Tensor) -> bool:
        return self.s.shape[-1:] == z.shape and self.s.dtype == z.dtype and self.s.device == z.device

    def add(self, s: Tensor, q: Tensor) -> Secants:
        """With one pair more; s moves the residual by q."""
        m = self.pairs
        if int(self.taken) != m or m == len(self.s):
            return self._filled(self.s[:m], self.q[:m], m + 1).add(s, q)
        size, length = float(two_norm(q)), float(two_norm(s))
        met = float(two_norm(s - q)) / (abs(self.gamma) * length) if length else 0.0
        stiffness = max(self.stiffness, met)
        known, row = self.q[:m], self.raw[m]
        for _ in range(2):  # twice is enough to be orthogonal
            c = known @ q
            q, s = torch.addmv(q, known.mT, c, alpha=-1), torch.addmv(s, self.s[:m].mT, c, alpha=-1)
            row[:m] += c
        left = float(two_norm(q))
        if not left > NEW * size:
            row.zero_()
            return self._replace(stiffness=stiffness)
        torch.div(s, left, out=self.s[m])
        torch.div(q, left, out=self.q[m])
        row[m] = left
        self.taken.fill_(m + 1)
        return self._replace(pairs=m + 1, stiffness=stiffness)

    def least_residual(self, z: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The point in z + span(s) with the least residual if f were linear, and the residual there."""
        known = self.q[: self.pairs]
        c = known @ r
        return torch.addmv(z, self.s[: self.pairs].mT, c, alpha=-1), torch.addmv(r, known.mT, c, alpha=-1)

    def at(self, gamma: float) -> Secants:
        """The same pairs for an equation with another gamma."""
        if gamma == self.gamma or not self.pairs:
            return self._replace(gamma=gamma)
        s, q = self.s[: self.pairs], self.q[: self.pairs]
        return self._orthonormal(s, torch.lerp(s, q, gamma / self.gamma))._replace(gamma=gamma)

    def newest(self, count: int) -> Secants:
        """Without all but the `count` newest, as they were met."""
        m = self.pairs
        raw = self.raw[m - count : m, :m]
        return self._orthonormal(raw @ self.s[:m], raw @ self.q[:m])

    def compressed(self, count: int) -> Secants:
        """The `count` directions of the span on which I - gamma J is smallest: the slow ones, which take the most
        iterations to find again. Where every q has length one, they are those with the longest s."""
        s, q = self.s[: self.pairs], self.q[: self.pairs]
        _, vectors = torch.linalg.eigh(s @ s.mT)
        w = vectors[:, -count:].mT
        return self._filled(w @ s, w @ q, len(self.s))

    def _orthonormal(self, s: Tensor, q: Tensor) -> Secants:
        basis, r = torch.linalg.qr(q.mT)
        told = r.diagonal().abs() > NEW * two_norm(q).squeeze(-1)
        if not bool(told.all()):
            return self._orthonormal(s[told], q[told]) if bool(told.any()) else self._filled(s[:0], q[:0], len(self.s))
        return self._filled(torch.linalg.solve_triangular(r.mT, s, upper=False), basis.mT, len(self.s))

    def _filled(self, s: Tensor, q: Tensor, room: int) -> Secants:
        """Those pairs in buffers of their own."""
        m = len(s)
        made = Secants.none(self.s[0], max(room, len(self.s)))
        made.s[:m], made.q[:m] = s, q
        made.taken.fill_(m)
        return made._replace(pairs=m, gamma=self.gamma, stiffness=self.stiffness)
