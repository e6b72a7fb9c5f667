"""`solve(..., per_sample=True)`: from the arguments of the call to a batch, and from where it ended to a `Solution`."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..autocast import uncast
from ..calls import check_func
from ..gradients.tangent import refuse_transforms, refuse_vmap
from ..norms import rms_norm
from ..observers import Observer, Trip, observed
from ..problem import LEAST_RTOL, check_state
from ..randomness import drawn, has_drawn, is_random
from ..solution import Failure, SampleStats, Solution, SolverError, new_stats
from ..status import Status
from ..structure import Structure
from ..tolerances import relative_tolerance, share_of
from .batch import STATUSES, Batch, Place
from .field import BatchField
from .run import Way, run, way_of

SHARE = 0.03  # of the tolerance for an explicit step of `auto`: errors before a jump come out of it many times larger
DEFAULTS = {"inner": "auto", "gradient": "implicit", "dense": False}


def solve_samples(
    func: Callable[..., Any], y0: Any, t0: Any, t1: Any, *, method: Any, save_at: Any, rtol: Any, atol: Any,
    max_steps: int, throw: bool, observers: tuple[Observer, ...] = (),
) -> Solution:  # fmt: skip
    """Every sample of dimension 0 as a problem of its own."""
    began = perf_counter()
    way = way_of(method)
    refuse_vmap(*(y0 if isinstance(y0, tuple) else (y0,)))
    if way.pair is None:
        refuse_transforms()
    structure, size = check_batch(y0)
    starts, ends = (one_each(name, t, size) for name, t in (("t0", t0), ("t1", t1)))
    if bool((starts == ends).any()):
        raise ValueError("`t0` and `t1` are equal in a sample: there is nothing to integrate")
    sign = torch.sign(ends - starts)
    saves = checked_saves(save_at, starts, ends, sign)
    check_func(func)
    f = BatchField(func, structure, new_stats(), sign)
    flat = f.flatten(y0)
    flat = flat.clone() if flat.is_inference() else flat
    asked, absolute = (tolerance(name, tol, structure, f, flat) for name, tol in (("rtol", rtol), ("atol", atol)))
    relative = asked.clamp(min=LEAST_RTOL * torch.finfo(flat.dtype).eps)
    share, reserve = step_shares(flat.detach(), relative.amax(-1), absolute.amax(-1), way)
    last = torch.cat([saves, (sign * ends)[None]])
    batch = Batch(f, flat, sign * starts, last, relative, absolute, share, reserve, max_steps, observers)
    name = method if isinstance(method, str) else "auto"
    f.stats.steps.method = name
    f.drawn = drawn(flat.device)
    with uncast(), observed(observers, Trip(name, 0.0, 1.0, flat.numel(), f.stats, samples=size)) as ending:
        outputs, place = run(batch, way)
        ending.status = Status.SUCCESS
    noisy = has_drawn(f.drawn, flat.device) and is_random(f, batch.t0, batch.y0)
    statuses = statuses_of(place, raised=(asked < relative).any(-1), noisy=noisy)
    solution = solution_of(f, batch, outputs, place, statuses, starts, ends, save_at)
    f.stats.seconds = perf_counter() - began
    if solution.failure is not None and throw:
        raise SolverError(solution.failure, solution)
    return solution


def refuse_for_samples(options: dict[str, Any]) -> None:
    """Options of `solve` that have no meaning here yet."""
    for name, value in options.items():
        if value is not None and not (isinstance(value, str | bool) and value == DEFAULTS.get(name)):
            raise NotImplementedError(f"`{name}` is not available with `per_sample`: leave one of them out")


def check_batch(y0: Any) -> tuple[Structure, int]:
    structure, _ = check_state(y0, implicit=True)
    lengths = {shape[:1] for shape in structure.shapes}
    if len(lengths) != 1 or not (length := lengths.pop()):
        shapes = ", ".join(str(tuple(shape)) for shape in structure.shapes)
        raise ValueError("`per_sample` takes dimension 0 of `y0` for the samples: it must be there, and of one length "
                         f"in all parts, but the shapes are {shapes}")  # fmt: skip
    return structure, length[0]


def one_each(name: str, value: Any, size: int) -> Tensor:
    """A number, or a tensor with one for each sample, as `(batch,)` float64."""
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise TypeError(f"`{name}` must be a number or a tensor with one for each sample, not {type(value).__name__}")
    each = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if each.requires_grad:
        raise NotImplementedError(f"`{name}` requires a gradient, which `per_sample` does not have: detach it")
    if each.dim() > 1 or each.numel() not in (1, size):
        raise ValueError(f"`{name}` of shape {tuple(each.shape)} does not fit {size} samples: one number for all, or "
                         "one for each; a tolerance may also have the shape of y0")  # fmt: skip
    each = each.to(torch.float64).reshape(-1).expand(size)
    if not bool(torch.isfinite(each).all()):
        raise ValueError(f"`{name}` holds nan or infinite values")
    return each


def checked_saves(save_at: Any, starts: Tensor, ends: Tensor, sign: Tensor) -> Tensor:
    """`(outputs, batch)`, growing; t0 alone where none are given, for t1 is always there."""
    if save_at is None:
        return (sign * starts)[None]
    if not isinstance(save_at, Tensor) or not save_at.is_floating_point() or not save_at.numel():
        raise TypeError("`save_at` must be a floating torch.Tensor of times")
    if save_at.requires_grad:
        raise NotImplementedError("`save_at` requires a gradient, which `per_sample` does not have: detach it")
    if save_at.dim() not in (1, 2) or (save_at.dim() == 2 and save_at.shape[1] != len(starts)):
        raise ValueError(f"`save_at` must have shape (times,) or (times, {len(starts)}), not {tuple(save_at.shape)}")
    ulp = torch.finfo(save_at.dtype).eps
    times = save_at.double().reshape(len(save_at), -1).expand(-1, len(starts))
    for end in (starts, ends):  # an end that was rounded to float32 is still that end
        times = torch.where((times - end).abs() <= ulp * end.abs(), end, times)
    times = sign * times
    if not bool(((times >= sign * starts) & (times <= sign * ends)).all()):
        raise ValueError("`save_at` must lie between t0 and t1 of every sample")
    if not bool((times[1:] > times[:-1]).all()):
        raise ValueError("`save_at` must be strictly monotone, from t0 towards t1")
    return times


def tolerance(name: str, tol: Any, structure: Structure, f: BatchField, flat: Tensor) -> Tensor:
    """`(batch, 1)` from a number or one for each sample, `(batch, n)` from one for each component."""
    like_y0 = isinstance(tol, Tensor) and tol.dim() > 1 and not structure.is_tuple and tol.shape == structure.shapes[0]
    found = f.flatten(tol) if like_y0 else one_each(name, tol, len(flat))[:, None]
    if not bool(torch.isfinite(found).all()) or bool((found < 0).any()):
        raise ValueError(f"`{name}` must be finite and not negative")
    return found.to(flat)


def step_shares(y0: Tensor, rtol: Tensor, atol: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """The part of the tolerance that one step of each sample may use, of BDF and of an explicit pair."""
    sizes, least = rms_norm(y0).squeeze(-1), LEAST_RTOL * torch.finfo(y0.dtype).eps
    rows = zip(rtol.tolist(), atol.tolist(), sizes.tolist(), strict=True)
    tolerances = [relative_tolerance(relative, absolute, size or 1.0) for relative, absolute, size in rows]
    shares = [share_of(tol, way.max_order, y0.dtype) for tol in tolerances]
    early = [min(1.0, max(SHARE, least / tol)) if way.adapts else 1.0 for tol in tolerances]
    shares_of_both = torch.tensor([shares, early], dtype=torch.float64, device=y0.device)
    return shares_of_both[0], shares_of_both[1]


def statuses_of(place: Place, raised: Tensor, noisy: bool) -> list[Status]:
    """How each sample ended. Of a random f nothing else is worth telling."""
    found = [STATUSES[code] for code in place.code.tolist()]
    if noisy:
        return [Status.NOISY if status.ok else Status.RANDOM for status in found]
    high = zip(found, raised.tolist(), strict=True)
    return [Status.TOLERANCE_RAISED if raised and status is Status.SUCCESS else status for status, raised in high]


def solution_of(
    f: BatchField, batch: Batch, outputs: list[Tensor], place: Place, statuses: list[Status], starts: Tensor,
    ends: Tensor, save_at: Any,
) -> Solution:  # fmt: skip
    steps, accepted = place.counts
    samples = SampleStats(tuple(statuses), (batch.f.sign * place.t), steps, accepted)
    kept = outputs if save_at is None else outputs[:-1]
    ts = torch.stack([starts, ends]) if save_at is None else save_at
    ys = f.restore(torch.stack(kept), len(kept))
    bad = [i for i, status in enumerate(statuses) if not status.ok]
    failure = None
    if bad:
        i = bad[0]
        others = f"sample {i}" if len(bad) == 1 else f"sample {i}, and {len(bad) - 1} more of {len(statuses)}"
        failure = Failure(statuses[i], float(samples.t[i]), int(steps[i]), float(place.h[i]), others)
    status = statuses[bad[0]] if bad else next((s for s in statuses if s is not Status.SUCCESS), Status.SUCCESS)
    return Solution(ts, ys, f.stats, status, failure, samples=samples)
