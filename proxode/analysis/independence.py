"""Of a batch: do the rows of dimension 0 know of each other? `per_sample=True` is right only where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..norms import rms_norm
from ..problem import Problem
from .directions import rough

MOVE = 0.05  # of the size of the state: perturbations by which rows might feel each other
ROUNDING = 16  # ulp of f by which a row may change though nothing in it was moved


class Samples(NamedTuple):
    """Does dimension 0 hold problems that know nothing of each other, and how different are their gains?"""

    number: int
    independent: bool
    spread: float  # largest over least |J v| / |v|


@torch.no_grad()
def samples(problem: Problem, places: Sequence[tuple[float, Tensor]]) -> Samples | None:
    """For states of two dimensions and more, from all of these (t, y). None where there is no such dimension."""
    structure = problem.structure
    shape = structure.shapes[0]
    if structure.is_tuple or len(shape) < 2 or shape[0] < 2:
        return None
    number, gains = shape[0], torch.zeros(shape[0], dtype=torch.float64)
    for k, (t, y) in enumerate(places):
        if _coupled(problem, t, y, number, seed=100 + k):
            return Samples(number, False, 1.0)
        v = rough(y, 200 + k)
        product = problem.f.jvp(t, y, v)
        gain, size = (torch.linalg.vector_norm(x.view(number, -1).abs().double(), dim=1) for x in (product, v))
        gains += (gain / size).cpu()
    least = float(gains.min())
    return Samples(number, True, float(gains.max()) / least if least > 0 else 1.0)


def _coupled(problem: Problem, t: float, y: Tensor, number: int, seed: int) -> bool:
    """Whether a row changes when others are moved. For each bit of the index of a row, those that have it are moved and
    the others looked at, and the other way round: every ordered pair of rows is seen in one of 2 log2(number)
    evaluations. By values of f and not by products, so that a coupling of second order is seen too."""
    f0 = problem.f(t, y).view(number, -1)
    move = (MOVE * (1.0 + rms_norm(y)) * rough(y, seed)).view(number, -1)
    allowed = ROUNDING * torch.finfo(y.dtype).eps * float(f0.abs().max())
    rows = torch.arange(number, device=y.device)
    for bit in range((number - 1).bit_length()):
        has = (rows >> bit) & 1 == 1
        for moved in (has, ~has):
            other = problem.f(t, (y.view(number, -1) + move * moved[:, None]).reshape(-1)).view(number, -1)
            change = (other - f0)[~moved].abs()
            if bool((change > allowed).any()):  # nan is no witness
                return True
    return False
