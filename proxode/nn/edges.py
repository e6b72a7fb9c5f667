"""The edges of a graph as a sparse matrix whose entries change from call to call, with the derivatives of its products.

`u -> A u` and the inner products of the two ends of every edge are each other's derivatives, so that no derivative of
any order needs more than these two, and nothing of the size edges times columns is ever made. On Coauthor-CS with 80
columns that is several times as fast as the message passing of torch_geometric, which makes it; with 16 they are
close (`python -m benchmarks.message_passing`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sparse import csr


class Edges(nn.Module):
    """Edges from `source` to `target`, in any order and none twice; they are kept sorted by target, then source."""

    target: Tensor
    source: Tensor
    offsets: Tensor
    columns: Tensor  # of A, row by row
    order: Tensor  # of the edges by source
    starts: Tensor
    ends: Tensor  # columns of the transpose
    places: Tensor

    def __init__(self, target: Tensor, source: Tensor, nodes: int) -> None:
        super().__init__()
        if target.shape != source.shape or target.dim() != 1 or target.is_floating_point():
            raise ValueError("`target` and `source` must be one-dimensional tensors of integers, of one length")
        ends = torch.cat([target, source])
        if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
            raise ValueError(f"`target` and `source` must be from 0 to {nodes - 1}, for there are {nodes} nodes")
        keys = (target.long() * nodes + source.long()).sort().values
        if bool((keys.diff() == 0).any()):
            raise ValueError("an edge occurs twice")
        self.nodes = nodes
        target, source = keys // nodes, keys % nodes
        order = torch.argsort(source, stable=True)
        buffers = {
            "target": target, "source": source, "offsets": _offsets(target, nodes), "columns": source.int(),
            "order": order, "starts": _offsets(source, nodes), "ends": target[order].int(),
            "places": torch.arange(len(keys), dtype=torch.int32),
        }  # fmt: skip
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    def __len__(self) -> int:
        return len(self.target)

    def matrix(self, weights: Tensor, *, transposed: bool = False) -> Tensor:
        """A with these entries, nodes by nodes."""
        shape = (self.nodes, self.nodes)
        if transposed:
            return csr(self.starts.int(), self.ends, weights[self.order], shape, check=False)
        return csr(self.offsets.int(), self.columns, weights, shape, check=False)

    def product(self, weights: Tensor, u: Tensor) -> Tensor:
        """A u: over the edges into every node, the sum of weight times u at the source."""
        return _call(_Product, weights, u, self, False)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """On every edge the inner product of a at the target with b at the source."""
        return _call(_Inner, a, b, self)

    def softmax(self, score: Tensor) -> Tensor:
        """`(edges, heads)`: positive, and of sum one over the edges into a node."""
        with torch.no_grad():  # a shift of all scores of a node changes nothing but the range of exp
            top = torch.segment_reduce(score.detach(), "max", offsets=self.offsets, axis=0)
        risen = (score - top.index_select(0, self.target)).exp()
        total = _call(_Collect, risen, self)
        return risen / _call(_Spread, total, self)


def _call(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _offsets(end: Tensor, nodes: int) -> Tensor:
    return F.pad(torch.bincount(end, minlength=nodes).cumsum(0), (1, 0))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, u: Tensor, edges: Edges, transposed: bool) -> Tensor:
        ctx.save_for_backward(weights, u)
        ctx.save_for_forward(weights, u)
        ctx.edges, ctx.transposed = edges, transposed
        return edges.matrix(weights, transposed=transposed) @ u

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        weights, u = ctx.saved_tensors
        ends = (u, grads[0]) if ctx.transposed else (grads[0], u)
        of_weights = ctx.edges.inner(*ends) if ctx.needs_input_grad[0] else None
        of_u = None
        if ctx.needs_input_grad[1]:
            of_u = _call(_Product, weights, grads[0], ctx.edges, not ctx.transposed)
        return of_weights, of_u, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        weights, u = ctx.saved_tensors

        def along(w: Tensor, v: Tensor) -> Tensor:
            return _call(_Product, w, v, ctx.edges, ctx.transposed)

        return _sum_of(along, (tangents[0], u), (weights, tangents[1]))


class _Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)
        ctx.edges = edges
        zeros = edges.matrix(a.new_zeros(len(edges)))
        return torch.sparse.sampled_addmm(zeros, a.contiguous(), b.contiguous().T, beta=0.0).values()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, b = ctx.saved_tensors
        of_a = _call(_Product, grads[0], b, ctx.edges, False) if ctx.needs_input_grad[0] else None
        of_b = _call(_Product, grads[0], a, ctx.edges, True) if ctx.needs_input_grad[1] else None
        return of_a, of_b, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        a, b = ctx.saved_tensors
        return _sum_of(ctx.edges.inner, (tangents[0], b), (a, tangents[1]))


def _sum_of(bilinear: Any, *pairs: tuple[Any, Any]) -> Any:
    """Of those pairs that have both."""
    values = [bilinear(*pair) for pair in pairs if pair[0] is not None and pair[1] is not None]
    return sum(values[1:], values[0]) if values else None


class _Spread(torch.autograd.Function):
    """From nodes to the edges into them. Autograd would differentiate index_select with the slower index_add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        return x.index_select(0, edges.target)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _call(_Collect, grads[0], ctx.edges), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return _call(_Spread, tangents[0], ctx.edges)


class _Collect(torch.autograd.Function):
    """From edges to the nodes that they enter, as sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: Edges) -> Tensor:
        ctx.edges = edges
        ones = x.new_ones(len(edges))
        return csr(edges.offsets.int(), edges.places, ones, (edges.nodes, len(edges)), check=False) @ x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _call(_Spread, grads[0], ctx.edges), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return _call(_Collect, tangents[0], ctx.edges)
