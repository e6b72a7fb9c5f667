"""The dense Jacobian of f, by as few products as its zeros allow.

Rows that have no column in common are made by one product, with the sum of their unit vectors (Curtis, Powell & Reid
1974). Where the entries are is not asked of the user: a grid has the same stencil at every point, so three rows tell,
and whatever they tell is checked by one product with a random vector.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEAST = 32  # unknowns from which it is worth looking for zeros
WORTH = 4  # rows that a product must make on average
PROBES = 3  # rows that tell a stencil
CHUNK = 512  # products in one batched backward pass


class Pattern(NamedTuple):
    """Where a Jacobian may be other than zero, and which rows one product can make."""

    entries: Tensor  # (n, n) of bool
    groups: Tensor  # (n,): rows of a group have no column in common
    passes: int  # groups; 0: there would be too many of them, and rows are made one by one


class Rows(NamedTuple):
    matrix: Tensor | None  # None where autograd makes no product
    pattern: Pattern | None
    products: int  # that were made


def jacobian_rows(out: Tensor, z: Tensor, known: Pattern | None, *, look: bool = True) -> Rows:
    """d out / d z, where `known` is what an earlier one was like; else it may be worth to look for a stencil."""
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
        matrix = _by_groups(out, z, known)
        if matrix is not None:
            return Rows(matrix, known, spent)
    matrix = products(out, z, _eye(out))
    if matrix is None:
        return Rows(None, None, 0)
    entries = matrix != 0 if known is None else known.entries | (matrix != 0)
    return Rows(matrix, pattern_of(entries), spent + n)


def price_of(known: Pattern | None, n: int) -> int:
    """The products that the next Jacobian of n rows will take."""
    return known.passes + 1 if known is not None and known.passes else n


def pattern_of(entries: Tensor) -> Pattern:
    """Rows in turn join the first group whose columns are all still free."""
    n = len(entries)
    nothing = Pattern(entries.new_zeros(0, 0), torch.zeros(0, dtype=torch.long, device=entries.device), 0)
    if int(entries.sum()) * WORTH > n * n:  # a group has room for n entries
        return nothing
    taken, groups = [0] * n, [0] * n  # the groups that have a column, as bits; the group of a row
    columns: list[list[int]] = [[] for _ in range(n)]
    for row, column in entries.nonzero().tolist():
        columns[row].append(column)
    for row in range(n):
        used = 0
        for column in columns[row]:
            used |= taken[column]
        free = ~used & (used + 1)  # the lowest bit that is not set
        for column in columns[row]:
            taken[column] |= free
        groups[row] = free.bit_length() - 1
    count = max(groups) + 1
    return Pattern(entries, torch.tensor(groups, device=entries.device), count) if count * WORTH <= n else nothing


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
    rows = products(out, z, _eye(out)[probes])
    if rows is None or not bool(torch.isfinite(rows).all()):
        return None
    offsets = torch.zeros(n, dtype=torch.bool, device=out.device)
    for probe, row in zip(probes, rows, strict=True):
        offsets |= (row != 0).roll(-probe)
    if int(offsets.sum()) * WORTH > n:
        return None
    place = torch.arange(n, device=out.device)
    known = pattern_of(offsets[(place - place[:, None]) % n])
    return known if known.passes else None


def _by_groups(out: Tensor, z: Tensor, known: Pattern) -> Tensor | None:
    """The Jacobian, if it has no entry outside of the pattern: then it has the same product with a random vector."""
    n = out.shape[-1]
    probe = torch.randn(1, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64).to(out)
    sums = torch.zeros(known.passes, n, dtype=out.dtype, device=out.device)
    sums[known.groups, torch.arange(n, device=out.device)] = 1.0
    made = products(out, z, torch.cat((sums, probe)))
    if made is None:
        return None
    matrix = torch.where(known.entries, made[known.groups], torch.zeros((), dtype=out.dtype, device=out.device))
    rounding = torch.finfo(out.dtype).eps ** (2 / 3)
    same = (made[-1:] - probe @ matrix).abs() <= rounding * (probe.abs() @ matrix.abs())
    return matrix if bool(same.all()) else None


def _eye(out: Tensor) -> Tensor:
    return torch.eye(out.shape[-1], dtype=out.dtype, device=out.device)
