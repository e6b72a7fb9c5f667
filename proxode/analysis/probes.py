"""Questions to f at one place, each for a few evaluations: does autograd see it, does it know t?"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import rms_norm
from ..randomness import difference
from ..vector_field import VectorField

SHORTER = 8.0  # the second of two differences


@torch.no_grad()
def drift(f: VectorField, t: float, elsewhere: float, y: Tensor, f0: Tensor) -> float:
    """What another time changes in f at the same state, relative; infinite where f is not finite then."""
    there = f(elsewhere, y)
    return difference(f0, there) if bool(torch.isfinite(there).all()) else math.inf


@torch.no_grad()
def disagreement(f: VectorField, t: float, y: Tensor, probe: Tensor) -> float:
    """How far a product with the Jacobian is from differences of f, relative. 0 where f admits differences only, and
    where two differences of different lengths do not agree either: then f bends too much for them to tell."""
    product = f.jvp(t, y, probe)
    if not f.ladder:
        return 0.0
    f0 = f(t, y)
    length = torch.finfo(y.dtype).eps ** 0.5 * (1.0 + float(rms_norm(y)))
    long, short = ((f(t, y + e * probe) - f0) / e for e in (length, length / SHORTER))
    off = difference(product, long)
    return off if off > 2 * difference(long, short) else 0.0


class Graph(NamedTuple):
    """What autograd would keep of one evaluation."""

    bytes: int
    of_state: bool  # does f's value depend on y, as autograd sees it?
    of_others: bool  # and on other tensors that want a gradient, such as parameters?


def graph(f: VectorField, t: float, y: Tensor) -> Graph:
    """Evaluate f twice with its graph, once as a function of y."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not (tensor.is_leaf and tensor.requires_grad):  # parameters are there anyway
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad():
        alone = f.graph(t, y.detach())
        z = y.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = f.graph(t, z * 1.0)  # not a leaf, as in a solve
        of_state = value.requires_grad and torch.autograd.grad(value.sum(), z, allow_unused=True)[0] is not None
    return Graph(sum(kept.values()), of_state, alone.requires_grad)
