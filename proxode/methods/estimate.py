"""Local errors of one-step methods from the points that they have passed.

On a smooth solution a method of order p makes the local error `constant h^(p+1) y^(p+1)`, exactly so for linear f. The
derivative comes from a divided difference over the new point, the last ones and the slope at the newest of those: no
evaluation, and no inner solve. With fewer points the difference is of lower order, and the step is as careful.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ..interpolation import combine
from .order_conditions import Matrix


def local_error(
    times: Sequence[float], ys: Sequence[Tensor], slope: Tensor | None, power: int, constant: float
) -> Tensor | None:
    """times and ys newest first, the first is the end of the step; `slope` is f at the second."""
    nodes = [times[0], times[1], *([times[1]] if slope is not None else []), *times[2:]]
    order = min(power, len(nodes) - 1)
    if order < 2:
        return None
    h = times[0] - times[1]
    weights = difference_weights(tuple((t - times[1]) / h for t in nodes[: order + 1]))
    if slope is None:
        points, parts = list(ys[: order + 1]), weights
    else:
        points = [ys[0], ys[1], slope, *ys[2:order]]
        parts = [weights[0], weights[1], weights[2] * h, *weights[3:]]
    scale = constant * math.factorial(order) * (1.0 if order == power else EARLY)
    return combine(None, [scale * w for w in parts], [y.detach() for y in points])


EARLY = 0.5  # of a difference of lower order, while there are too few points


def difference_weights(nodes: tuple[float, ...]) -> list[float]:
    """Weights of the divided difference over nodes, of which two neighbours may be the same: then the second of them
    stands for the slope there."""
    double = next((a for a, b in itertools.pairwise(nodes) if a == b), None)
    if double is None:
        return [1.0 / math.prod(a - b for j, b in enumerate(nodes) if j != i) for i, a in enumerate(nodes)]
    others = [node for node in nodes if node != double]
    of_slope = 1.0 / math.prod(double - node for node in others)
    at_double = [-of_slope * sum(1.0 / (double - node) for node in others), of_slope]
    weights = []
    for node in nodes:
        if node == double:
            weights.append(at_double.pop(0))
        else:
            weights.append(1.0 / ((node - double) ** 2 * math.prod(node - b for b in others if b != node)))
    return weights


@cache
def error_constant(a: Matrix, b: tuple[float, ...], order: int) -> float:
    """Of the method (A, b): the coefficient of z^(order+1) in R(z) - e^z."""
    n = len(b)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i, row in enumerate(a):
        matrix[i, : len(row)] = torch.tensor(row, dtype=torch.float64)
    v = torch.ones(n, dtype=torch.float64)
    for _ in range(order):
        v = matrix @ v
    coefficient = float(torch.tensor(b, dtype=torch.float64) @ v)
    return coefficient - 1.0 / math.factorial(order + 1)
