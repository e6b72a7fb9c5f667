"""Diffusion on a graph, `du/dt = A(u) u - u`, with graph attention A(u)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .edges import Edges


class Attention(nn.Module):
    """`f(t, u) = scale (A(u) u - u)`; A(u) is multi-head scaled dot-product attention of each node to its neighbours.

    The heads share the columns of query and key, and their weights are averaged. A `scale` of None is learned: it is
    `sigmoid(alpha)`, 1/2 at the start, as in the public code of GRAND's authors.
    """

    def __init__(self, edges: Edges, query: Tensor, key: Tensor, heads: int, scale: float | None = 1.0) -> None:
        super().__init__()
        if query.shape[0] % heads:
            raise ValueError(f"{heads} heads cannot share {query.shape[0]} columns")
        self.edges, self.heads = edges, heads
        self.theta = nn.Parameter(torch.stack([query, key]))
        self.alpha = nn.Parameter(query.new_zeros(())) if scale is None else None
        self._scale = scale

    @property
    def scale(self) -> float | Tensor:
        """The factor of the right side: the one that was given, or the sigmoid of a learned number."""
        if self._scale is not None:
            return self._scale
        assert self.alpha is not None
        return self.alpha.sigmoid()

    def weights(self, u: Tensor) -> Tensor:
        """The entry of A(u) on every edge; they sum to one over the edges into a node."""
        query, key = (u @ matrix.T for matrix in self.theta)
        query = query / math.sqrt(query.shape[1] // self.heads)
        heads = zip(query.chunk(self.heads, 1), key.chunk(self.heads, 1), strict=True)
        score = torch.stack([self.edges.inner(*head) for head in heads], 1)
        return self.edges.softmax(score).mean(1)

    def rate(self, weights: Tensor, u: Tensor) -> Tensor:
        """du/dt where the attention is known."""
        change = self.edges.product(weights, u) - u
        scale = self.scale
        return change if isinstance(scale, float) and scale == 1.0 else scale * change

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        return self.rate(self.weights(u), u)
