"""Steps that were rejected: how many are too many, where, and whether f jumps there or the solution is steep."""

from __future__ import annotations

import torch

from .steps import Steps

REJECTED = 0.3  # part of the steps that are rejected, from which something is wrong
FAILED = 0.2  # inner solves that fail, for each step, likewise
FEW = 10  # steps, of which parts say nothing
APART = 0.01  # of the way: rejected steps that are closer together are at one time
CROWD = 3  # of them in one place, from which it is worth a word
PLACES = 4  # that are named
FALL = 8.0  # by which steps from one time get shorter before one is accepted, where f jumps
BACK = 0.25  # of the length before, to which they grow again
SOON = 6  # steps, within which they do that after a jump: a front is followed, and its steps stay short
JUMPS = (
    "in t: give the times as `jump_t`; in y, as sign and round do: make it continuous, `tanh(y / e)` for `sign(y)`, or "
    "find the crossing by an event, for a step that crosses it may be wrong"
)


def crowds(steps: Steps) -> list[tuple[float, int]]:
    """The times near which several steps were rejected, and how many there, the largest crowds first. A step that
    crosses a jump is rejected until it ends before it or is short, so the time is where the last of them began."""
    tried = steps.columns()
    refused = tried.of(~tried.accepted)
    if not len(refused.t0):
        return []
    span, starts = _span(steps), refused.t0
    new = torch.cat([torch.ones(1, dtype=torch.bool), (starts[1:] - starts[:-1]).abs() > APART * span])
    groups = new.cumsum(0) - 1
    counts = torch.bincount(groups)
    last = [int((groups == i).nonzero()[-1]) for i in range(len(counts))]
    found = [(float(refused.t0[i]), int(count)) for i, count in zip(last, counts, strict=True) if count >= CROWD]
    return sorted(found, key=lambda crowd: -crowd[1])


def jumps(steps: Steps) -> list[float]:
    """The times where f must be thought to jump: steps are rejected there again and again until one is short enough,
    and the steps are long again right after it. Where a solution gets steep, rejected and accepted steps take turns,
    or the short steps last."""
    tried = steps.columns()
    taken = tried.h[tried.accepted].tolist()
    found, k, first = [], 0, 0.0  # accepted steps before; the length of the first that was rejected from here
    for t, h, accepted in zip(tried.t0.tolist(), tried.h.tolist(), tried.accepted.tolist(), strict=True):
        if not accepted:
            first = first or h
            continue
        k += 1
        if first > FALL * h and max(taken[k : k + SOON], default=0.0) > BACK * first:
            found.append(t)
        first = 0.0
    return found


def reason(steps: Steps) -> str:
    """What may be wrong where steps were rejected, and what to do; it goes on after "were rejected"."""
    found, there = [t for t, _ in crowds(steps)], where(steps)
    sharp = [t for t in jumps(steps) if not found or min(abs(t - crowd) for crowd in found) <= APART * _span(steps)]
    if sharp or not there:
        return (
            f"{there}: f may jump ({JUMPS}), be random (dropout), or be rounded more coarsely than the tolerances ask "
            "for (float64, larger rtol)"
        )
    return (
        f"{there}: there is a jump of f ({JUMPS}) or a steep front of the solution, which has to be followed, and "
        "costs these steps at any rate"
    )


def where(steps: Steps) -> str:
    """In words; nothing where they are all over the way, or at too many places to be named."""
    found = crowds(steps)
    rejected = len(steps.refused_at)
    if not found or len(found) > 5 * PLACES or 2 * sum(count for _, count in found) < rejected:
        return ""
    times = sorted(t for t, _ in found[:PLACES])
    more = f" and {len(found) - PLACES} more places" if len(found) > PLACES else ""
    return f", most of them near t = {', '.join(f'{t:.4g}' for t in times)}{more}"


def _span(steps: Steps) -> float:
    """The length of the way that was gone."""
    return abs(steps.reached - steps.start) or 1.0
