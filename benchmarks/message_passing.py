"""One evaluation of GRAND's right side and one vector-Jacobian product: products with edges beside torch_geometric.

    python -m benchmarks.message_passing --data-dir DATA

They are timed in turns, and the shortest time of each counts; the numbers are in proxode/nn/edges.py. All forms must
agree. It needs torch_geometric (`pip install '.[graph]'`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

from proxode.data import Graph, load_graph
from proxode.nn import Attention, Edges

Form = Callable[[Tensor, Tensor], Tensor]  # of theta and u
SHAPES = ((16, 4), (80, 4), (80, 8), (64, 1))


class Messages(MessagePassing):
    """A(u) u by torch_geometric's own loop."""

    def __init__(self, graph: Graph, heads: int) -> None:
        super().__init__(aggr="add")
        self.edge_index, self.heads = graph.edge_index, heads

    def forward(self, theta: Tensor, u: Tensor) -> Tensor:
        query, key = (u @ matrix.T for matrix in theta)
        query = query / math.sqrt(query.shape[1] // self.heads)
        return self.propagate(self.edge_index, x=u, query=query, key=key, size=(len(u), len(u))) - u

    def message(self, x_j: Tensor, query_i: Tensor, key_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        score = (query_i * key_j).unflatten(1, (self.heads, -1)).sum(2)
        return softmax(score, index, num_nodes=size_i).mean(1, keepdim=True) * x_j


def forms(graph: Graph, heads: int) -> dict[str, Form]:
    edges = Edges(graph.target, graph.source, graph.nodes)

    def products(theta: Tensor, u: Tensor) -> Tensor:
        f = Attention(edges, theta[0].detach(), theta[1].detach(), heads)
        return torch.func.functional_call(f, {"theta": theta}, (torch.zeros(()), u))

    def scattered(theta: Tensor, u: Tensor) -> Tensor:
        query, key = (u @ matrix.T for matrix in theta)
        query = query / math.sqrt(query.shape[1] // heads)
        score = (query[graph.target] * key[graph.source]).unflatten(1, (heads, -1)).sum(2)
        weights = softmax(score, graph.target, num_nodes=graph.nodes).mean(1, keepdim=True)
        return scatter(weights * u[graph.source], graph.target, dim_size=graph.nodes) - u

    return {"products": products, "softmax and scatter": scattered, "MessagePassing": Messages(graph, heads)}


def best_times(made: dict[str, Form], theta: Tensor, u: Tensor, repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of an evaluation and of a product, shortest of several."""
    best = dict.fromkeys(made, (math.inf, math.inf))
    expected: tuple[Tensor, ...] | None = None
    for _ in range(repeats):
        for name, f in made.items():
            start = time.perf_counter()
            value = f(theta, u)
            middle = time.perf_counter()
            found = (value.detach(), *torch.autograd.grad(value, (theta, u), u.detach()))
            best[name] = min(best[name][0], middle - start), min(best[name][1], time.perf_counter() - middle)
            expected = expected or found
            for one, other in zip(found, expected, strict=True):
                assert float((one - other).norm() / other.norm()) < 1e-3, name
    return best


def main(
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the npz file; or PROXODE_DATA.")] = None,
    graph: Annotated[str, typer.Option(help="coauthor_cs, cora, citeseer, photo or computers.")] = "coauthor_cs",
    repeats: Annotated[int, typer.Option(help="Calls of each, of which the shortest counts.")] = 10,
) -> None:
    """Milliseconds of f and of its vector-Jacobian product."""
    torch.set_num_threads(1)
    loaded = load_graph(graph, data_dir)
    for hidden, heads in SHAPES:
        generator = torch.Generator().manual_seed(0)
        theta = (0.2 * torch.randn(2, hidden, hidden, generator=generator)).requires_grad_()
        u = torch.randn(loaded.nodes, hidden, generator=generator).requires_grad_()
        for name, (f, product) in best_times(forms(loaded, heads), theta, u, repeats).items():
            print(f"{hidden} columns, {heads} heads, {name}: f {1e3 * f:.0f} ms, product {1e3 * product:.0f} ms")


if __name__ == "__main__":
    typer.run(main)
