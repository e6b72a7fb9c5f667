"""Checks of what func does between processes, before a solve whose gradient is recorded."""

from __future__ import annotations

import torch
from torch import Tensor

from ..norms import dot, largest
from ..problem import Problem
from ..rough import rough_sizes
from ..spread import Spread
from ..times import number
from ..vector_field import VectorField, step_along
from .captured import captured_by, pull

AGREEMENT = 0.01  # relative, between a product from the left and one from the right
RELIABLE = 0.1  # relative, between two differences: if they are further apart they say nothing
# Pairs of steps, in those of `difference`: one to each side, since at a corner of f they differ. All of these witnesses
# must agree before func is refused: rounding, or a bend of f, may make two differences alike by chance, but not always.
WITNESSES = ((16.0, -4.0), (8.0, -16.0), (32.0, -4.0), (16.0, -16.0))
LONGER = (1.0, 16.0)  # where rounding hides all, as beside a stiff part in single precision


def check_transposed(problem: Problem) -> None:
    """Raise unless all processes use as many tensors that want a gradient, and unless `<u, J v> = <J^T u, v>` over all
    of them, J v by a difference and J^T u by autograd: a collective that is not differentiable gives no error of its
    own, but a gradient without what went through it. It is asked at the first time and at the last."""
    f, y = problem.f, problem.y0.detach()
    if f.spread is None or not torch.is_grad_enabled():
        return
    _check_same_tensors(f, f.spread, number(problem.ts[0]), problem.y0)
    if any(_is_wrong(f, f.spread, number(t), y, end) for end, t in enumerate((problem.ts[0], problem.ts[-1]))):
        raise RuntimeError(
            "the backward of func is not the transpose of its forward over all processes, so gradients would be "
            "wrong: use collectives that autograd knows (proxode.distributed.halo, torch.distributed.nn.functional, "
            "operations on DTensors), or solve under torch.no_grad()"
        )


def _check_same_tensors(f: VectorField, spread: Spread, t: float, y0: Tensor) -> None:
    """Processes that pull different gradients would make different products, and wait for each other."""
    found = captured_by(f, t, y0)
    counts = torch.tensor([len(found.leaves), len(found.inner), int(y0.requires_grad)], device=y0.device)
    if not torch.equal(spread.most(counts), -spread.most(-counts)):
        raise ValueError(
            f"the processes use different tensors that want a gradient ({len(found.all)} besides y0 in this one): let "
            "func use the same ones in each, multiplied by zero where they have no part"
        )


def _is_wrong(f: VectorField, spread: Spread, t: float, y: Tensor, end: int) -> bool:
    """Is `<u, J v> = <J^T u, v>` wrong? For directions over all processes; then for v in one half of them and u in the
    other, where only what they exchange counts: a stiff part of each would hide it."""
    with torch.enable_grad():
        here = y.clone().requires_grad_()
        value = f.graph(t, here)
    sides = [(1.0, 1.0)]
    for half in map(float, spread.halves):
        sides += [(half, 1.0 - half), (1.0 - half, half)]
    witnesses = range(len(WITNESSES) * end, len(WITNESSES) * (end + 1))  # others at the other end
    return any(all(_differ(f, t, here, value, witness, *side) for witness in witnesses) for side in sides)


def _differ(f: VectorField, t: float, here: Tensor, value: Tensor, witness: int, left: float, right: float) -> bool:
    """With u in the processes where `left` is one, and v where `right` is. No component of v is zero, and none is
    negative, since a state may have to be positive."""
    y = here.detach()
    v, rough = right * rough_sizes(y, 2 * witness), rough_sizes(y, 2 * witness + 1).double()
    steps = WITNESSES[witness % len(WITNESSES)]
    for longer in LONGER:
        pushed, off = _pushed(f, t, y, v, value.detach(), [longer * step for step in steps])
        pushed, off = left * pushed, left * off
        size = largest(pushed)
        if size == 0:
            return False
        u, doubt = _weights(pushed / size, off / size, rough)
        if doubt < torch.inf:
            break
    else:
        return False
    f.stats.count("n_vjp")
    found = pull(value, (here,), u.to(y))[0] if value.requires_grad else None
    pulled = torch.zeros_like(y) if found is None else found
    gap = dot(u, pushed / size) - dot(pulled.double(), v.double()) / size
    return bool(torch.isfinite(gap) & (gap.abs() > AGREEMENT + 2.0 * doubt))


def _pushed(f: VectorField, t: float, y: Tensor, v: Tensor, f0: Tensor, steps: list[float]) -> tuple[Tensor, Tensor]:
    """J v by a difference, and how far it may be wrong: how far another one is from it, and what the last digit of f is
    in it. Both are zero where they are not finite, which others say."""
    f.stats.count("n_jvp", 2)
    one, other = (f.difference(t, y, v, f0, part=step).double() for step in steps)
    digit = torch.finfo(y.dtype).eps * f0.double().abs() / (steps[0] * step_along(y, v).double())
    known = torch.isfinite(one) & torch.isfinite(other)
    return one.where(known, 0.0), ((one - other).abs() + digit).where(known, 0.0)


def _weights(pushed: Tensor, off: Tensor, rough: Tensor) -> tuple[Tensor, float]:
    """u with `<u, pushed> = 1`, and how far that may be wrong, `off` being how far each component may be; infinite if
    nothing can be said. Components have no weight against their sign, so that they cannot cancel. They count by
    size, and, if rounding does not forbid it, each like another too: what is strong cannot hide what is weak. Where a
    difference says little there is no weight at all, but it is asked of all together: by chance a few always agree."""
    steady, tiny = off <= RELIABLE * pushed.abs(), torch.finfo(torch.float32).eps ** 2
    by_size, alike = pushed.sign(), pushed / (pushed**2 + (off / RELIABLE) ** 2 + tiny)
    u, doubt, ways = torch.zeros_like(pushed), 0.0, 0
    for way in (rough * by_size, rough * alike):
        if bool(dot(way.abs(), off) <= RELIABLE * dot(way, pushed)):
            way = way * steady
            signal = dot(way, pushed)
            u, doubt, ways = u + way / signal, doubt + float(dot(way.abs(), off) / signal), ways + 1
    return (u / ways, doubt / ways) if ways else (u, torch.inf)
