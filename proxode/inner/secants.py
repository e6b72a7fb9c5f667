"""What moves of z have taught about f: pairs (s, q), where q is by how much the residual changes if z moves by s.

`q = s - gamma J s` for a linear f, so pairs from past equations serve the next, whatever its gamma: the point in their
span with the least residual costs no evaluation. The q are kept orthonormal, so that this point is a projection.

The buffers are changed in place, for they are all the memory that a large state can afford: whoever has made new pairs
of old ones holds the only ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import dot, products, two_norm

NEW = 1e-7  # part of a change of the residual that must be new, for the pair to tell something
AGAIN = 0.5  # part that an orthogonalisation may leave without another (Daniel et al. 1976)
COLUMNS = 1 << 16  # that are worked on at a time: what a product makes is never as large as the buffers
CLOSE = 1e-3  # smallest part of a pair that is new, from which one orthogonalisation is as good as two


class Secants(NamedTuple):
    """`pairs` of them in the first rows of `s` and `q`, oldest first."""

    s: Tensor  # (room, n)
    q: Tensor  # (room, n), orthonormal
    raw: Tensor  # (room, room): row j holds the coefficients of pair j, as it was met, in the rows up to j
    pairs: int
    gamma: float  # of the equation that q belongs to
    stiffness: float = 0.0  # the largest |J s| / |s| that was met

    @staticmethod
    def none(z: Tensor, room: int) -> Secants:
        rows = z.new_zeros(2, room, z.shape[-1])
        return Secants(rows[0], rows[1], z.new_zeros(room, room), 0, 1.0)

    def fits(self, z: Tensor, room: int) -> bool:
        return self.s.shape == (room, *z.shape) and self.s.dtype == z.dtype and self.s.device == z.device

    def leave(self, z: Tensor, r: Tensor) -> int:
        """A move begins here: the point and its residual are written into the first free row, so that nobody else needs
        to hold them. Which row that is."""
        self.s[self.pairs].copy_(z)
        self.q[self.pairs].copy_(r)
        return self.pairs

    def add(self, left: int, z: Tensor, r: Tensor) -> Secants:
        """With the pair of a move from what was left in that row to z, with the residual r. Nothing is allocated."""
        m = self.pairs
        known, row = self.q[:m], self.raw[m]
        s, q = (torch.sub(x, rows[left], out=rows[m]) for x, rows in ((z, self.s), (r, self.q)))
        size, length = float(two_norm(q)), float(two_norm(s))
        apart = max(size**2 + length**2 - 2 * float(dot(s, q)), 0.0) ** 0.5  # |s - q| = |gamma J s|
        met = apart / (abs(self.gamma) * length) if length else 0.0
        row.zero_()
        new, earlier = size, float("inf") if m else 0.0
        while new < AGAIN * earlier:  # where most is taken away, rounding leaves a part of it: once more is enough
            c = products(known, q)
            q.addmv_(known.mT, c, alpha=-1)
            s.addmv_(self.s[:m].mT, c, alpha=-1)
            row[:m] += c
            new, earlier = float(two_norm(q)), new
        made = self._replace(stiffness=max(self.stiffness, met))
        if not new > NEW * size:
            return made
        s.div_(new)
        q.div_(new)
        row[m] = new
        return made._replace(pairs=m + 1)

    def least_residual(self, z: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The point in z + span(s) with the least residual if f were linear, and the residual there."""
        known = self.q[: self.pairs]
        c = products(known, r)
        return torch.addmv(z, self.s[: self.pairs].mT, c, alpha=-1), torch.addmv(r, known.mT, c, alpha=-1)

    def at(self, gamma: float) -> Secants:
        """The same pairs for an equation with another gamma."""
        if gamma == self.gamma or not self.pairs:
            return self._replace(gamma=gamma)
        s, q = self.s[: self.pairs], self.q[: self.pairs]
        torch.lerp(s, q, gamma / self.gamma, out=q)
        return self._replace(gamma=gamma)._orthonormal()

    def newest(self, count: int) -> Secants:
        """Without all but the `count` newest, as they were met."""
        m = self.pairs
        return self._combined(self.raw[m - count : m, :m].clone())._orthonormal()

    def compressed(self, count: int) -> Secants:
        """The `count` directions of the span on which I - gamma J is smallest: the slow ones, which take the most
        iterations to find again. Where every q has length one, they are those with the longest s."""
        s = self.s[: self.pairs]
        _, vectors = torch.linalg.eigh(products(s, s.mT))
        return self._combined(vectors[:, -count:].mT) if count else self._replace(pairs=0)

    def _orthonormal(self) -> Secants:
        """By the eigenvectors of the products of all q, scaled to length one, without those that tell nothing new; once
        more where they were nearly dependent."""
        made, smallest = self, 0.0
        while made.pairs and smallest < CLOSE**2:
            gram = products(made.q[: made.pairs], made.q[: made.pairs].mT)
            lengths = gram.diagonal().sqrt().clamp(min=torch.finfo(gram.dtype).tiny)
            values, vectors = torch.linalg.eigh(gram / torch.outer(lengths, lengths))
            told = values > torch.finfo(gram.dtype).eps ** (2 / 3)
            made = made._combined((vectors[:, told] / values[told].sqrt()).mT / lengths)
            smallest = float(values[told].min()) if made.pairs else 1.0
        return made

    def _combined(self, weights: Tensor) -> Secants:
        """Each new pair is the sum of the present ones with a row of weights."""
        for rows in (self.s, self.q):
            for columns in rows[: self.pairs].split(COLUMNS, dim=-1):
                columns[: len(weights)] = weights @ columns
        return self._replace(pairs=len(weights))
