"""The GRAND diffusion equation as the paper prints it: `du/dt = A(u) u - u` with graph attention A(u)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """`f(t, u) = scale (A(u) u - u)`; A(u) is multi-head scaled dot-product attention of each node to its neighbours.

    `target` must be sorted. The heads share the `hidden` columns of query and key, and their weights are averaged.
    """

    def __init__(
        self, target: Tensor, source: Tensor, nodes: int, query: Tensor, key: Tensor, heads: int, scale: float = 1.0
    ) -> None:
        super().__init__()
        if query.shape[0] % heads:
            raise ValueError(f"{heads} heads cannot share {query.shape[0]} columns")
        self.heads, self.scale = heads, scale
        self.to_edges = Incidence(target, nodes)
        self.from_source = Incidence(source, nodes)
        self.target = target
        self.theta = nn.Parameter(torch.stack([query, key]))

    def weights(self, u: Tensor) -> Tensor:
        """The entry of A(u) on every edge; they sum to one over the edges into a node."""
        columns = self.theta.shape[1]
        query, key = (u @ matrix.T for matrix in self.theta)
        product = self.to_edges.gather(query / math.sqrt(columns // self.heads)) * self.from_source.gather(key)
        score = product.unflatten(1, (self.heads, -1)).sum(2)
        with torch.no_grad():  # a shift of all scores of a node changes nothing but the range of exp
            top = torch.segment_reduce(score.detach(), "max", offsets=self.to_edges.offsets, axis=0)
            top = top.index_select(0, self.target)
        risen = (score - top).exp()
        return (risen / self.to_edges.gather(self.to_edges.sum(risen))).mean(1, keepdim=True)

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        change = self.to_edges.sum(self.weights(u) * self.from_source.gather(u)) - u
        return change if self.scale == 1.0 else self.scale * change


class Incidence:
    """One end of every edge, as a linear map from nodes to edges (`gather`) and its transpose (`sum`).

    Each is the other's derivative. Autograd would differentiate index_select with index_add, which is slower: on
    Coauthor-CS with 4 heads, float32, one thread of a busy machine, shortest of 40 calls, f took 23 ms and a
    vector-Jacobian product 36 ms this way, 34 and 49 ms with index_add. F.embedding_bag in the place of the sparse
    matrix is up to a fifth faster in float32, and takes twice as long in float64.
    """

    def __init__(self, end: Tensor, nodes: int) -> None:
        self.end = end
        self.offsets = F.pad(torch.bincount(end, minlength=nodes).cumsum(0), (1, 0))
        self._order = torch.argsort(end, stable=True)
        self._matrices: dict[torch.dtype, Tensor] = {}

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """`sum` as a sparse matrix of ones, nodes by edges."""
        if dtype not in self._matrices:
            shape = (len(self.offsets) - 1, len(self.end))
            ones = torch.ones(len(self.end), dtype=dtype)
            self._matrices[dtype] = torch.sparse_csr_tensor(
                self.offsets.int(), self._order.int(), ones, shape, check_invariants=True
            )
        return self._matrices[dtype]

    def gather(self, x: Tensor) -> Tensor:
        return _Gather.apply(x, self)  # type: ignore[no-untyped-call]

    def sum(self, x: Tensor) -> Tensor:
        return _Sum.apply(x, self)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        return x.index_select(0, incidence.end)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.incidence.sum(grads[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return ctx.incidence.gather(tangents[0])


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        return incidence.matrix(x.dtype) @ x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.incidence.gather(grads[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return ctx.incidence.sum(tangents[0])
