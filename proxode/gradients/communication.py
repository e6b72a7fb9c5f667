"""A check of what func does between processes: does its backward bring the gradient where it belongs?"""

from __future__ import annotations

import torch

from ..norms import dot, two_norm
from ..problem import Problem
from ..rough import rough_signs
from ..vector_field import number
from .captured import pull

AGREEMENT = 0.02  # relative, between the two sides


def check_transposed(problem: Problem) -> None:
    """Raise unless `<u, J v> = <J^T u, v>` over all processes, J v by a difference and J^T u by autograd: a collective
    that is not differentiable gives no error of its own, but a gradient without what went through it."""
    f, t, y = problem.f, number(problem.ts[0]), problem.y0.detach()
    if f.spread is None or not torch.is_grad_enabled():
        return
    u, v = rough_signs(y, 11), rough_signs(y, 12)
    with torch.enable_grad():
        here = y.clone().requires_grad_()
        value = f.graph(t, here)
    f.stats.count("n_vjp")
    found = pull(value, (here,), u)[0] if value.requires_grad else None
    pulled = torch.zeros_like(y) if found is None else found
    f.stats.count("n_jvp")
    pushed = f.difference(t, y, v, value.detach())
    off = (dot(u, pushed) - dot(pulled, v)).abs()
    size = two_norm(u) * two_norm(pushed) + two_norm(pulled) * two_norm(v)
    if not bool(off <= AGREEMENT * size):
        raise RuntimeError(
            "the backward of func is not the transpose of its forward over all processes, so gradients would be "
            "wrong: use collectives that autograd knows (proxode.distributed.halo, torch.distributed.nn.functional, "
            "operations on DTensors), or solve under torch.no_grad()"
        )
