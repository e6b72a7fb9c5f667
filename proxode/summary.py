"""A solve in a table of plain text: how it ended, what it did, what it cost, and what the numbers advise."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .rejections import FAILED, FEW, REJECTED, reason
from .steps import Columns, Kind, Steps

WIDTH = 13  # of the names in front
LINE = 100  # characters after them
STRETCHES = 8  # of time with one method that are listed
RANDOM = 0.1  # part of the steps that are rejected, from which their length is not that of stability: f may be random
MANY = 200  # steps, from which it is worth to ask what limits them
EVEN = 2.0  # the ratio of the ninth decile of the steps to the first, up to which they are nearly of one length
FINEST = 1e-10  # tolerance: no step that accuracy limits at a larger one moves the solution by less than
FINE = 0.3  # of its power 1 / (order + 1)
OUTPUTS = 20  # from which they tell how much the solution moves
VISIBLE = 1e3  # times atol: what is smaller is moved by the errors of the steps
FAR = 0.1  # of its size: a solution that moves by that between outputs may have gone there and back in between
IMPLICIT = (
    "Try method='auto' or 'bdf'; if f has pulses or jumps in t give `jump_t` or `max_step` too, for longer steps may "
    "cross them"
)

Rows = Iterator[tuple[str, str]]


class Solved(Protocol):
    """What is read of a `Solution`."""

    ts: Tensor
    ys: Any
    stats: Any
    status: Any
    failure: Any
    samples: Any
    dense: Any
    event_ts: tuple[Tensor, ...]

    @property
    def message(self) -> str: ...


class Stretch(NamedTuple):
    """Steps in a row that one method took."""

    method: str
    t0: float
    t1: float
    steps: int


def summarise(solution: Solved) -> str:
    done = _of_steps if solution.samples is None else _of_samples
    rows = [*_outcome(solution), *done(solution), *_cost(solution)]
    rows += [("advice", line) for line in advice(solution)]
    names = [name if i == 0 or rows[i - 1][0] != name else "" for i, (name, _) in enumerate(rows)]
    return "\n".join(_wrapped(name, text) for name, (_, text) in zip(names, rows, strict=True))


def _wrapped(name: str, text: str) -> str:
    if len(text) <= LINE:
        return f"{name:<{WIDTH}}{text}"
    return textwrap.fill(text, WIDTH + LINE, initial_indent=f"{name:<{WIDTH}}", subsequent_indent=" " * WIDTH)


def _outcome(solution: Solved) -> Rows:
    yield "outcome", f"{solution.status.name}: {solution.message}"
    steps: Steps = solution.stats.steps
    if not math.isnan(steps.start):
        asked = "an event" if math.isinf(steps.end) else f"{steps.end:g}"
        there = math.isclose(steps.reached, steps.end, rel_tol=1e-12, abs_tol=1e-300)
        yield "interval", f"t = {steps.start:g} to {asked}" + ("" if there else f", steps as far as {steps.reached:g}")
    parts = parts_of(solution)
    shapes = ", ".join(str(tuple(part.shape[1:])) for part in parts)
    dtypes = ", ".join(dict.fromkeys(str(part.dtype).removeprefix("torch.") for part in parts))
    yield "outputs", f"{len(parts[0]):,}, each of shape {shapes} in {dtypes}"
    for k, ts in enumerate(solution.event_ts):
        found = f"{len(ts):,} times" if len(ts) != 1 else f"at t = {float(ts[0].detach()):g}"
        yield "events", f"event {k}: {found}" if len(solution.event_ts) > 1 else found


def _of_steps(solution: Solved) -> Rows:
    stats, names = solution.stats, solution.stats.steps.names
    tried = stats.steps.columns()
    taken = tried.of(tried.accepted)
    for text in _methods(stats.steps.method, stretches(taken, names)):
        yield "method", text
    yield "steps", _counts(stats)
    if stats.n_steps > len(tried.h) + 1:
        yield "steps", f"what follows is of the last {len(tried.h):,}"
    if len(taken.h):
        low, high = taken.h.min(), taken.h.max()
        yield "step length", f"{float(low):.3g} to {float(high):.3g}, median {float(taken.h.median()):.3g}"
        yield "orders", _orders(taken, names)
    if stats.n_inner or stats.n_inner_failed:
        each = stats.n_inner / max(stats.n_steps, 1)
        yield "inner", f"{stats.n_inner:,} iterations, {each:.3g} a step; {counted(stats.n_inner_failed)} not solved"


def _orders(taken: Columns, names: dict[int, Kind]) -> str:
    """By method, where there were several; parts are of all steps."""
    counts: dict[str, Counter[int]] = {}
    for code, count in zip(*(x.tolist() for x in taken.code.unique(return_counts=True)), strict=True):
        counts.setdefault(names[code].method, Counter())[names[code].order] += count
    said = {
        method: ", ".join(f"{k} ({share(count, len(taken.h))})" for k, count in sorted(orders.items()))
        for method, orders in counts.items()
    }
    return "; ".join(f"{method} {orders}" if len(said) > 1 else orders for method, orders in sorted(said.items()))


def _methods(asked: str, found: Sequence[Stretch]) -> Iterator[str]:
    yield asked
    if {stretch.method for stretch in found} <= {asked}:
        return
    for s in found[:STRETCHES]:
        yield f"  {s.method}, t = {s.t0:.8g} to {s.t1:.8g}, {counted(s.steps, 'step')}"
    if len(found) > STRETCHES:
        yield f"  and {counted(len(found) - STRETCHES, 'more change')}"


def stretches(taken: Columns, names: dict[int, Kind]) -> list[Stretch]:
    """Which method took its steps when."""
    methods = sorted({kind.method for kind in names.values()})
    place = {code: methods.index(kind.method) for code, kind in names.items()}
    which = torch.tensor([place[code] for code in taken.code.tolist()], dtype=torch.long)
    kinds, counts = which.unique_consecutive(return_counts=True)
    found, i = [], 0
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        found.append(Stretch(methods[kind], float(taken.t0[i]), float(taken.t1[i + count - 1]), count))
        i += count
    return found


def _of_samples(solution: Solved) -> Rows:
    stats, samples = solution.stats, solution.samples
    yield "method", f"{stats.steps.method}, {len(samples.status):,} samples, each with steps of its own"
    outcomes = Counter(status.name for status in samples.status)
    if len(outcomes) > 1:
        yield "samples", ", ".join(f"{count:,} {name}" for name, count in outcomes.most_common())
    for name, numbers in (("steps", samples.n_steps), ("rejected", samples.n_rejected)):
        low, middle, high = int(numbers.min()), int(numbers.median()), int(numbers.max())
        yield name, f"{low:,} to {high:,} of a sample, median {middle:,}"
    yield "batch", f"{_counts(stats)} for all samples"
    if stats.n_inner:
        yield "inner", f"{stats.n_inner:,} iterations of the batch, {stats.n_inner / max(stats.n_steps, 1):.3g} a step"


def _counts(stats: Any) -> str:
    rejected = f"{stats.n_rejected:,} rejected ({share(stats.n_rejected, stats.n_steps)})"
    failed = stats.n_steps - stats.n_accepted - stats.n_rejected
    return f"{stats.n_accepted:,} accepted, {rejected}" + (f", {failed} failed" if failed else "")


def _cost(solution: Solved) -> Rows:
    stats = solution.stats
    yield "NFE", f"{stats.nfe_forward:,} forward, {stats.nfe_backward:,} backward"
    kinds = {"n_f": "evaluations of f", "n_jvp": "products J v", "n_vjp": "products v J", "n_jac": "columns of J"}
    yield "NFE", ", ".join(f"{getattr(stats, name):,} {words}" for name, words in kinds.items())
    if stats.seconds > 0.0:
        inside = stats.seconds_in_f
        part = "" if inside is None else f", {100 * inside / stats.seconds:.0f} % of it inside f and its products"
        yield "time", f"{seconds(stats.seconds)} forward{part}"


# What the numbers advise


def advice(solution: Solved) -> Iterator[str]:
    """What to try, where the numbers speak for something."""
    stats = solution.stats
    if solution.status.advice and solution.failure is None:
        yield solution.status.advice  # a failure has said so in its message
    if solution.samples is not None or solution.status.name == "NOISY":
        return  # of a random f nothing else is worth telling
    if stats.n_steps >= FEW:
        counts = solution.status.ok or solution.status.name == "MAX_STEPS"  # else the failure has a better reason
        if counts and stats.n_rejected > REJECTED * stats.n_steps:
            yield f"{share(stats.n_rejected, stats.n_steps)} of the steps were rejected{reason(stats.steps)}"
        failure = solution.failure  # that may have told of f, of the solver, or of the length of steps
        told = failure is not None and (failure.advice or failure.status.final)
        if stats.n_inner_failed > FAILED * stats.n_steps and not told:
            yield (
                f"{counted(stats.n_inner_failed)} not solved, in {stats.n_steps:,} steps: leave out `inner` and "
                "its options, or try inner='newton' (up to some thousand unknowns), else 'newton_krylov'"
            )
    tried = stats.steps.columns()
    taken = tried.of(tried.accepted)
    smooth = stats.n_rejected <= RANDOM * stats.n_steps and stats.steps.method not in ("auto", "bdf")
    if smooth and not (stats.n_inner or stats.n_inner_failed) and len(taken.h) >= MANY:
        yield from _limited_by_stability(solution, taken)


def _limited_by_stability(solution: Solved, taken: Columns) -> Iterator[str]:
    """Explicit steps that are all of about one length, over each of which the solution hardly moves. Both are needed:
    the steps of an accurate solve of an oscillation are of one length too. Fixed steps are the user's choice."""
    later, names = taken.h[len(taken.h) // 2 :], solution.stats.steps.names
    low, middle, high = (float(later.sort().values[int(q * (len(later) - 1))]) for q in (0.1, 0.5, 0.9))
    moved, far = movement(solution, taken) or (0.0, True)
    least = FINE * FINEST ** (1.0 / (max(names[code].order for code in taken.code.unique().tolist()) + 1))
    chosen = float(taken.h[:-1].max()) > 1.001 * float(taken.h[:-1].min())
    if not chosen or high > EVEN * low or moved >= least:
        return
    if far:
        yield (
            f"the explicit steps are nearly of one length, {middle:.2g}: if the solution hardly moves over one of "
            f"them, stability limits them, not accuracy. {IMPLICIT}"
        )
    else:
        yield (
            f"the explicit steps are nearly of one length, {middle:.2g}, over which no component moves by more than "
            f"{moved:.1g} of its size: stability limits them, not accuracy. {IMPLICIT}"
        )


def movement(solution: Solved, taken: Columns) -> tuple[float, bool] | None:
    """By how much the component that moves most does so over a step, in parts of its own size: the median over the
    later intervals between outputs. And whether these are so far apart that it may be more. None where there are too
    few of them to say."""
    parts, sign = [_own(part.detach()) for part in parts_of(solution)], solution.stats.steps.sign
    if len(parts[0]) < OUTPUTS:
        return None
    flat = torch.cat([part.reshape(len(part), -1) for part in parts], 1)[len(parts[0]) // 2 :]
    size = flat.abs().amax(0)
    shown = (size > VISIBLE * solution.stats.steps.atol) & (size > 0)
    if not bool(shown.any()):
        return None
    change = torch.where(shown, (flat[1:] - flat[:-1]).abs() / size, 0.0).amax(1).double().cpu()
    ts = sign * solution.ts.detach().double().cpu()[-len(flat) :]
    before = torch.searchsorted(sign * taken.t0, ts)
    inside = before[1:] - before[:-1]
    rates = (change / inside)[inside > 0]
    return (float(rates.median()), float(change[inside > 0].median()) > FAR) if len(rates) else None


def _own(part: Tensor) -> Tensor:
    """What this process has of it."""
    local: Tensor = part.to_local() if hasattr(part, "to_local") else part
    return local


def parts_of(solution: Solved) -> tuple[Tensor, ...]:
    return solution.ys if isinstance(solution.ys, tuple) else (solution.ys,)


def share(count: int, whole: int) -> str:
    """In percent; what is little is not nothing."""
    if not count or not whole:
        return "0 %"
    percent = 100.0 * count / whole
    return f"{percent:.0f} %" if percent >= 1.0 else f"{percent:.1g} %"


def counted(count: int, word: str = "equation") -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def seconds(time: float) -> str:
    """Two digits, in a unit that suits them."""
    if time < 1.0:
        return f"{1000 * time:.2g} ms" if time < 0.0995 else f"{time:.2f} s"
    return f"{time:.3g} s" if time < 100.0 else f"{time:,.0f} s"
