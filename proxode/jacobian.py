"""The Jacobian of f, by as few products as its zeros allow.

Rows that have no column in common are made by one product, with the sum of their unit vectors (Curtis, Powell & Reid
1974). Where the entries are is not asked of the user: a grid has the same stencil at every point, so three rows tell,
and whatever they tell is checked by one product with a random vector. Nothing but a full Jacobian has the size n^2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEAST = 32  # unknowns from which it is worth looking for zeros
WORTH = 4  # rows that a product must make on average
PROBES = 3  # rows that tell a stencil
MOST = 64  # entries up to which they may be one: three rows of a graph have more, and tell nothing of the others
CHUNK = 512  # products in one batched backward pass


class Pattern(NamedTuple):
    """Where a Jacobian may be other than zero, and which rows one product can make."""

    columns: Tensor  # (n, k): of the entries of each row; n where a row has fewer than k
    groups: Tensor  # (n,): rows of a group have no column in common
    passes: int  # groups; 0: there would be too many of them, and rows are made one by one


class Compressed(NamedTuple):
    """A matrix by its entries."""

    columns: Tensor  # as in the pattern
    values: Tensor  # (n, k)

    def dense(self) -> Tensor:
        n = len(self.columns)
        return self.values.new_zeros(n, n + 1).scatter_(1, self.columns, self.values)[:, :n]

    def times(self, x: Tensor) -> Tensor:
        return (self.values * torch.nn.functional.pad(x, (0, 1))[self.columns]).sum(1)

    def times_from_left(self, x: Tensor) -> Tensor:
        sums = x.new_zeros(len(x) + 1)
        return sums.index_add_(0, self.columns.reshape(-1), (x[:, None] * self.values).reshape(-1))[:-1]


class Rows(NamedTuple):
    matrix: Tensor | Compressed | None  # None where autograd makes no product
    pattern: Pattern | None
    products: int  # that were made


def jacobian_rows(out: Tensor, z: Tensor, known: Pattern | None, *, look: bool = True, full: bool = True) -> Rows:
    """d out / d z, where `known` is what an earlier one was like; else it may be worth to look for a stencil. Without
    `full` it is made by a pattern or not at all."""
    n = out.shape[-1]
    if known is not None and known.passes and len(known.groups) != n:  # it is that of another equation
        known = None
    if n < LEAST or (known is not None and not known.passes):
        return Rows(products(out, z, _eye(out)), known, n)
    spent = 0
    if known is None and look:
        known, spent = stencil(out, z), PROBES
    if known is not None:
        spent += price_of(known, n)
        compressed = _by_groups(out, z, known)
        if compressed is not None:
            return Rows(compressed, known, spent)
    matrix = products(out, z, _eye(out)) if full else None
    if matrix is None:
        return Rows(None, None if full else _none(out), 0 if full else spent)
    entries = matrix != 0 if known is None else (_dense(known) | (matrix != 0))
    return Rows(matrix, pattern_of(entries), spent + n)


def price_of(known: Pattern | None, n: int) -> int:
    """The products that the next Jacobian of n rows will take."""
    return known.passes + 1 if known is not None and known.passes else n


def pattern_of(entries: Tensor) -> Pattern:
    """That of a matrix of bool."""
    n = len(entries)
    if int(entries.sum()) * WORTH > n * n:  # a group has room for n entries
        return _none(entries)
    rows: list[list[int]] = [[] for _ in range(n)]
    for row, column in entries.nonzero().tolist():
        rows[row].append(column)
    most = max(1, *map(len, rows))
    columns = torch.tensor([[*row, *[n] * (most - len(row))] for row in rows], device=entries.device)
    return _grouped(columns)


def products(out: Tensor, z: Tensor, rows: Tensor) -> Tensor | None:
    """rows @ J, by batched backward passes, or by single ones where f has a step that cannot be batched."""
    try:
        chunks = [
            torch.autograd.grad(out, z, part, retain_graph=True, is_grads_batched=True)[0] for part in rows.split(CHUNK)
        ]
        return torch.cat(chunks).detach()
    except Exception:  # a backward without a batching rule
        pass
    try:
        return torch.stack([torch.autograd.grad(out, z, row, retain_graph=True)[0] for row in rows]).detach()
    except RuntimeError:  # out does not depend on z in autograd's eyes
        return None


def stencil(out: Tensor, z: Tensor) -> Pattern | None:
    """The pattern of a grid whose every row has the entries that three rows have, counted from the diagonal and round
    the ends: periodic or not, of one field or of up to three one after another. None where that is no help."""
    n = out.shape[-1]
    probes = [n // 6, n // 2, 5 * n // 6]
    units = torch.zeros(PROBES, n, dtype=out.dtype, device=out.device)
    units[range(PROBES), probes] = 1.0
    rows = products(out, z, units)
    if rows is None or not bool(torch.isfinite(rows).all()):
        return None
    offsets = torch.zeros(n, dtype=torch.bool, device=out.device)
    for probe, row in zip(probes, rows, strict=True):
        offsets |= (row != 0).roll(-probe)
    offsets[0] = True  # all may be zero here and now
    if int(offsets.sum()) > min(MOST, n // WORTH):
        return None
    place = torch.arange(n, device=out.device)
    known = _grouped((place[:, None] + offsets.nonzero().reshape(1, -1)) % n)
    return known if known.passes else None


def _grouped(columns: Tensor) -> Pattern:
    """Rows in turn join the first group whose columns are all still free."""
    n = len(columns)
    taken = [0] * (n + 1)  # the groups that have a column, as bits
    groups = []
    for row in columns.tolist():
        used = 0
        for column in row:
            used |= taken[column]
        free = ~used & (used + 1)  # the lowest bit that is not set
        for column in row:
            taken[column] |= free
        taken[n] = 0  # which is no column
        groups.append(free.bit_length() - 1)
    passes = max(groups) + 1
    if passes * WORTH > n:
        return _none(columns)
    return Pattern(columns, torch.tensor(groups, device=columns.device), passes)


def _none(like: Tensor) -> Pattern:
    nothing = torch.zeros(0, dtype=torch.long, device=like.device)
    return Pattern(nothing, nothing, 0)


def _dense(known: Pattern) -> Tensor:
    ones = torch.ones(known.columns.shape, dtype=torch.bool, device=known.columns.device)
    return Compressed(known.columns, ones).dense()


def _by_groups(out: Tensor, z: Tensor, known: Pattern) -> Compressed | None:
    """The Jacobian, if it has no entry outside of the pattern: then it has the same product with a random vector."""
    n = out.shape[-1]
    probe = torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64).to(out)
    sums = torch.zeros(known.passes + 1, n, dtype=out.dtype, device=out.device)
    sums[known.groups, torch.arange(n, device=out.device)] = 1.0
    sums[-1] = probe
    made = products(out, z, sums)
    if made is None:
        return None
    wide = torch.nn.functional.pad(made, (0, 1))
    matrix = Compressed(known.columns, wide[known.groups[:, None], known.columns])
    rounding = max(64 * torch.finfo(out.dtype).eps, 1e-12)
    size = Compressed(known.columns, matrix.values.abs()).times_from_left(probe.abs())
    same = (made[-1] - matrix.times_from_left(probe)).abs() <= rounding * size
    return matrix if bool(same.all()) else None


def _eye(out: Tensor) -> Tensor:
    return torch.eye(out.shape[-1], dtype=out.dtype, device=out.device)
