"""Linear systems with a banded matrix, by dissection: what the Jacobians of grids on a line become.

The unknowns are cut into pieces, each of them an interior and a separator as wide as the band. The interiors do not see
each other: all are inverted as one batch, and what is left is a banded system of the separators, solved in the same way
(nested dissection, George 1973). A batch of small dense matrices is what torch is fast at; memory and time grow with n.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .jacobian import Compressed, Pattern

BOTTOM = 96  # unknowns of which the whole matrix is inverted
INTERIOR = 3  # times the width, and
SHORTEST = 12  # at least so many unknowns have an interior
WORK = 4_000_000  # n w^2 beyond which a band is too wide to be worth it


class Layout(NamedTuple):
    """An order of the unknowns in which the entries of a pattern lie close to the diagonal."""

    order: Tensor  # (n,): the unknowns in that order
    width: int  # of the band on either side of the diagonal
    places: Tensor  # (n, k): of the entries, in the flat band


class Band(NamedTuple):
    """A matrix factorised; the separators' system is another."""

    inverse: Tensor  # (p, m, m) of the interiors
    from_left: Tensor  # (p, m, w): interiors over the separators before
    from_right: Tensor  # and over their own
    to_own: Tensor  # (p, w, m): of the rows of the separators, over their interiors
    to_next: Tensor  # (p, w, w): and over the first unknowns of the next
    separators: Band | None

    def is_finite(self) -> bool:
        inside = math.isfinite(float(self.inverse.sum()))
        return inside and (self.separators is None or self.separators.is_finite())

    def solve(self, b: Tensor) -> Tensor:
        if self.separators is None:
            return self.inverse[0] @ b
        p, m, w = self.from_left.shape
        rows = torch.nn.functional.pad(b, (0, p * (m + w) - len(b))).view(p, m + w, 1)
        y = self.inverse @ rows[:, :m]
        rest = rows[:, m:] - self.to_own @ y - self.to_next @ y.roll(-1, 0)[:, :w]
        at = self.separators.solve(rest.reshape(-1)).view(p, w, 1)
        inside = y - self.from_left @ at.roll(1, 0) - self.from_right @ at
        return torch.cat((inside, at), 1).reshape(-1)[: len(b)]


def factorised(band: Tensor) -> Band:
    """`band[i, w + d]` is the entry (i, i + d), zero where there is none. Entries that are not finite stay so."""
    n, w = len(band), band.shape[1] // 2
    none = band.new_zeros(0)
    if n <= max(BOTTOM, 4 * w):
        whole, _ = torch.linalg.inv_ex(_window(band[None])[..., w : w + n])
        return Band(whole, none, none, none, none, None)
    m = max(INTERIOR * w, SHORTEST)
    p = -(-n // (m + w))
    padded = torch.nn.functional.pad(band, (0, 0, 0, p * (m + w) - n))
    padded[n:, w] = 1.0
    pieces = _window(padded.view(p, m + w, 2 * w + 1))  # columns: separator before, interior, separator, next interior
    interior, own = pieces[:, :m], pieces[:, m:]
    inverse, _ = torch.linalg.inv_ex(interior[..., w : w + m])
    from_left, from_right = inverse @ interior[..., :w], inverse @ interior[..., w + m : 2 * w + m]
    to_own, to_next = own[..., w : w + m].contiguous(), own[..., 2 * w + m :].contiguous()
    left = -to_own @ from_left
    middle = own[..., w + m : 2 * w + m] - to_own @ from_right - to_next @ from_left.roll(-1, 0)[:, :w]
    right = -to_next @ from_right.roll(-1, 0)[:, :w]
    separators = factorised(_as_band(torch.cat((left, middle, right), 2)))
    return Band(inverse, from_left, from_right, to_own, to_next, separators)


def _window(pieces: Tensor) -> Tensor:
    """Rows of bands, `(p, k, 2w + 1)`, as dense rows from w columns before the piece to w behind it."""
    p, k, wide = pieces.shape
    place = torch.arange(k, device=pieces.device)[:, None] + torch.arange(wide, device=pieces.device)
    return pieces.new_zeros(p, k, k + wide - 1).scatter_(2, place.expand(p, -1, -1), pieces)


def _as_band(blocks: Tensor) -> Tensor:
    """A block tridiagonal matrix `(p, w, 3w)` as a band of width 2w - 1."""
    p, w, _ = blocks.shape
    place = torch.arange(3 * w, device=blocks.device) - torch.arange(w, device=blocks.device)[:, None] + w - 1
    return blocks.new_zeros(p, w, 4 * w - 1).scatter_(2, place.expand(p, -1, -1), blocks).view(p * w, 4 * w - 1)


def band_of(matrix: Compressed, layout: Layout) -> Tensor:
    """The matrix in the order of the layout."""
    n, wide = len(layout.order), 2 * layout.width + 1
    flat = matrix.values.new_zeros(n * wide + 1)
    return flat.scatter_(0, layout.places.reshape(-1), matrix.values.reshape(-1))[:-1].view(n, wide)


def transposed(band: Tensor) -> Tensor:
    n, w = len(band), band.shape[1] // 2
    tall = torch.nn.functional.pad(band, (0, 0, w, w))
    return torch.stack([tall[w + d : w + d + n, w - d] for d in range(-w, w + 1)], 1)


def layout_of(pattern: Pattern) -> Layout | None:
    """The order of the user, or one that goes through the graph of the pattern from one end (Cuthill & McKee 1969),
    whichever has the narrower band; None where that is still too wide."""
    n, columns = pattern.columns.shape[0], pattern.columns
    plain = torch.arange(n, device=columns.device)
    choices = [plain]
    if _width(columns, plain) > 2 * columns.shape[1]:
        choices.append(_from_one_end(columns))
    order = min(choices, key=lambda order: _width(columns, order))
    width = max(1, _width(columns, order))
    if n * width**2 > WORK:
        return None
    position = torch.empty_like(order)
    position[order] = plain
    offset = torch.nn.functional.pad(position, (0, 1))[columns] - position[:, None]
    places = position[:, None] * (2 * width + 1) + width + offset
    return Layout(order, width, torch.where(columns == n, n * (2 * width + 1), places))


def _width(columns: Tensor, order: Tensor) -> int:
    n = len(order)
    position = torch.empty(n + 1, dtype=order.dtype, device=order.device)
    position[order] = torch.arange(n, device=order.device)
    offset = (position[columns] - position[:n, None]).abs()
    return int(torch.where(columns == n, 0, offset).max())


def _from_one_end(columns: Tensor) -> Tensor:
    n = len(columns)
    near: list[set[int]] = [set() for _ in range(n + 1)]
    for row, some in enumerate(columns.tolist()):
        for column in some:
            near[row].add(column)
            near[column].add(row)
    order: list[int] = []
    seen = bytearray(n + 1)
    seen[n] = 1
    for first in range(n):
        if not seen[first]:
            start = _walk(near, _walk(near, first, bytearray(seen))[-1], bytearray(seen))[-1]
            order += _walk(near, start, seen)
    return torch.tensor(order, device=columns.device)


def _walk(near: list[set[int]], start: int, seen: bytearray) -> list[int]:
    """All that can be reached, nearest first; those with few neighbours before others."""
    order = [start]
    seen[start] = 1
    for node in order:
        for other in sorted(near[node], key=lambda k: len(near[k])):
            if not seen[other]:
                seen[other] = 1
                order.append(other)
    return order
