"""Checks of what func does between processes, before a solve whose gradient is recorded."""

from __future__ import annotations

import torch
from torch import Tensor

from ..norms import all_finite, dot, two_norm
from ..problem import Problem
from ..rough import rough_signs
from ..spread import Spread
from ..times import number
from ..vector_field import VectorField
from .captured import captured_by, pull

AGREEMENT = 0.02  # relative, between a product from the left and one from the right
RELIABLE = 0.1  # of that: agreement of two differences, without which they say nothing
SHORTER = 0.1  # the second of them
TINY = 1e-30


def check_transposed(problem: Problem) -> None:
    """Raise unless all processes use as many tensors that want a gradient, and unless `<u, J v> = <J^T u, v>` over all
    of them, J v by a difference and J^T u by autograd: a collective that is not differentiable gives no error of its
    own, but a gradient without what went through it. It is asked at the first time and at the last."""
    f, y = problem.f, problem.y0.detach()
    if f.spread is None or not torch.is_grad_enabled():
        return
    _check_same_tensors(f, f.spread, number(problem.ts[0]), problem.y0)
    wrong = [_is_wrong(f, f.spread, number(t), y) for t in (problem.ts[0], problem.ts[-1])]
    if any(wrong):
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


def _is_wrong(f: VectorField, spread: Spread, t: float, y: Tensor) -> bool:
    """Is `<u, J v> = <J^T u, v>` wrong? For directions over all processes; then for v in every other process and u in
    the ones between, where only what they exchange counts: a stiff part of each would hide it."""
    with torch.enable_grad():
        here = y.clone().requires_grad_()
        value = f.graph(t, here)
    even = float(spread.place % 2 == 0)
    return any(_differ(f, t, here, value, *sides) for sides in ((1.0, 1.0), (even, 1.0 - even), (1.0 - even, even)))


def _differ(f: VectorField, t: float, here: Tensor, value: Tensor, left: float, right: float) -> bool:
    """With u in the processes where `left` is one, and v where `right` is. Directions are smooth and rough (a sum over
    all does not see signs), and u is near J v too: of two that have nothing in common products are small."""
    y = here.detach()
    w, v = left * (rough_signs(y, 11) + 1.0), right * (rough_signs(y, 12) + 1.0)
    differences = (f.difference(t, y, v, value.detach(), part=part) for part in (1.0, SHORTER))
    pushed, shorter = (left * difference for difference in differences)
    f.stats.count("n_jvp", 2)
    f.stats.count("n_vjp")
    length = two_norm(pushed)
    u = pushed + length / two_norm(w).clamp(min=TINY) * w
    found = pull(value, (here,), u)[0] if value.requires_grad else None
    pulled = torch.zeros_like(y) if found is None else found
    if not all_finite(torch.cat([value.detach(), pulled, pushed, shorter])):
        return False  # which the solve will say
    size = two_norm(u) * length
    steady = (dot(u, pushed) - dot(u, shorter)).abs() <= RELIABLE * AGREEMENT * size
    return bool(steady) and not bool((dot(u, pushed) - dot(pulled, v)).abs() <= AGREEMENT * size)
