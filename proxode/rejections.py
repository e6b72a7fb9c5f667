"""Steps that were rejected: how many are too many, and where. If at a few times again and again, f jumps there."""

from __future__ import annotations

import torch

from .steps import Steps

REJECTED = 0.3  # part of the steps that are rejected, from which something is wrong
FAILED = 0.2  # inner solves that fail, for each step, likewise
FEW = 10  # steps, of which parts say nothing
APART = 0.01  # of the way: rejected steps that are closer together are at one time
CROWD = 3  # of them in one place, from which it is worth a word
PLACES = 4  # that are named


def crowds(steps: Steps) -> list[tuple[float, int]]:
    """The times near which several steps were rejected, and how many there, the largest crowds first. A step that
    crosses a jump is rejected until it ends before it or is short, so the time is where the last of them began."""
    tried = steps.columns()
    refused = tried.of(~tried.accepted)
    if not len(refused.t0):
        return []
    span = float((tried.t1[-1] - tried.t0[0]).abs()) or 1.0
    starts = refused.t0
    new = torch.cat([torch.ones(1, dtype=torch.bool), (starts[1:] - starts[:-1]).abs() > APART * span])
    groups = new.cumsum(0) - 1
    counts = torch.bincount(groups)
    last = [int((groups == i).nonzero()[-1]) for i in range(len(counts))]
    found = [(float(refused.t0[i]), int(count)) for i, count in zip(last, counts, strict=True) if count >= CROWD]
    return sorted(found, key=lambda crowd: -crowd[1])


def where(steps: Steps) -> str:
    """In words; nothing where they are all over the way, or at too many places to be named."""
    found = crowds(steps)
    rejected = len(steps.refused_at)
    if not found or len(found) > 5 * PLACES or 2 * sum(count for _, count in found) < rejected:
        return ""
    times = sorted(t for t, _ in found[:PLACES])
    more = f" and {len(found) - PLACES} more places" if len(found) > PLACES else ""
    return f", most of them near t = {', '.join(f'{t:.4g}' for t in times)}{more}"
