"""Do the samples know of each other? Each would be right on its own steps, and all of them wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from ..norms import rms_norm
from ..randomness import SAME
from .batch import Batch

ROUNDING = 16.0  # ulp of f by which a sample may change though nothing in it was moved
MOVE = 1e-3  # of a state, beyond that of another sample
AHEAD = 0.01  # of the way, for times


@torch.no_grad()
def check_apart(batch: Batch, slope: Tensor) -> None:
    """`slope` is f at the start. With every second sample at the state of its neighbour the others must stay as they
    are. One evaluation: what it does not see is a coupling among the odd or among the even samples alone."""
    f, t, y = batch.f, batch.t0, batch.y0.detach()
    if len(y) < 2:
        return
    moved = torch.arange(len(y), device=y.device) % 2 == 1
    other = y.roll(1, 0) + MOVE * (1.0 + rms_norm(y))
    later = t + AHEAD * (batch.saves[-1] - t)
    out = f(torch.where(moved, later, t), torch.where(moved[:, None], other, y))
    allowed = max(SAME, ROUNDING * torch.finfo(y.dtype).eps) * slope.abs().max()
    changed = ((out - slope).abs() > allowed).any(-1) & ~moved  # nan is no witness
    if not bool(changed.any()):
        return
    if bool(((f(t, y) - slope).abs() > allowed).any()):
        return  # f is random, and the solve will say so
    raise ValueError(
        "`per_sample` takes dimension 0 for problems that know nothing of each other, but f of sample "
        f"{int(changed.nonzero()[0])} changes when others are moved: put a batch norm to eval(), write `t[:, None]` "
        "beside a state of shape (batch, n), take no mean over dimension 0; what is coupled (a graph, a grid) is one "
        "problem: leave `per_sample` out"
    )
