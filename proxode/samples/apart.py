"""Do the samples know of each other? Each would be right on its own steps, and all of them wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from ..randomness import SAME
from .batch import Batch

ROUNDING = 16.0  # ulp of f by which a sample may change though nothing in it was moved
MOVE = 1e-3  # of a component, where that of another sample is the same
AHEAD = 0.01  # of the way, for times


@torch.no_grad()
def check_apart(batch: Batch, slope: Tensor) -> None:
    """`slope` is f at the start. With every second sample and the last in the states of others, the rest must stay as
    it is. One evaluation: what it does not see is a coupling among those that stay, or among those that do not."""
    f, t, y = batch.f, batch.t0, batch.y0.detach()
    rows = torch.arange(len(y), device=y.device)
    moved = (rows % 2 == 0) | ((rows == len(y) - 1) & (len(y) > 2))
    if len(y) < 2:
        return
    neighbour = y.roll(1, 0)  # for f has a value there, which it may not have anywhere else
    other = torch.where(neighbour == y, y + MOVE * (1.0 + y.abs()), neighbour)
    later = t + AHEAD * (batch.saves[-1] - t)
    try:
        out = f(torch.where(moved, later, t), torch.where(moved[:, None], other, y))
    except Exception:  # where some f may not be asked: that is no witness
        return
    change = (out - slope).abs()  # of what was moved it tells how large the terms of f are
    allowed = max(SAME, ROUNDING * torch.finfo(y.dtype).eps) * torch.maximum(slope.abs().max(), change[moved].max())
    changed = (change > allowed).any(-1) & ~moved  # nan is no witness
    if not bool(changed.any()):
        return
    if bool(((f(t, y) - slope).abs() > allowed).any()):
        return  # f is random, and the solve will say so
    raise ValueError(
        "`per_sample` takes dimension 0 for problems that know nothing of each other, but f of sample "
        f"{int(changed.nonzero()[0])} changes when others are moved: put a batch norm to eval(), write `t[:, None]` "
        "beside a state of shape (batch, n), not `t[0]`, take no mean over dimension 0; what is coupled (a graph, a "
        "grid) is one problem: leave `per_sample` out"
    )
