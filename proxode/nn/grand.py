"""GRAND: classes of nodes by diffusion on their graph (Chamberlain et al., https://arxiv.org/abs/2106.10934)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sparse import csr
from .attention import Attention
from .edges import Edges
from .neural_ode import NeuralODE


class GRAND(nn.Module):
    """Features to scores of classes: an embedding, `du/dt = A(u) u - u` up to t1, ReLU, an output layer.

    Args:
        edges: of the graph, loops included (`Edges(graph.target, graph.source, graph.nodes)`).
        features: columns of the input.
        classes: columns of the output.
        hidden: columns in between, those of the diffusion.
        heads: of the attention; they share the hidden columns.
        linear: the attention is that of the embedding, fixed during a pass, and the equation is linear in u. Else it
            is computed anew in every evaluation.
        scale: of the right side; None is the learned `sigmoid(alpha)` of the public code of GRAND's authors.
        input_dropout: before the embedding.
        dropout: before the output layer. f itself stays the same function during a solve.
        attention_std: of the weights of query and key at the start; by default that of nn.Linear.
        t1: as in `NeuralODE`, like all of `solver`. The layer is `ode`, its `stats` are those of the last solve.
    """

    def __init__(
        self, edges: Edges, features: int, classes: int, *, hidden: int = 64, heads: int = 4, t1: float = 10.0,
        linear: bool = False, scale: float | None = 1.0, input_dropout: float = 0.0, dropout: float = 0.0,
        attention_std: float | None = None, **solver: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        std = 1 / math.sqrt(3 * hidden) if attention_std is None else attention_std
        query, key = std * torch.randn(2, hidden, hidden)
        self.embedding = nn.Linear(features, hidden)
        self.ode = NeuralODE(Attention(edges, query, key, heads, scale), t1, **solver)
        self.output = nn.Linear(hidden, classes)
        self.linear, self.input_dropout, self.dropout = linear, input_dropout, dropout

    @property
    def attention(self) -> Attention:
        """The right side of the diffusion equation."""
        assert isinstance(self.ode.func, Attention)
        return self.ode.func

    def forward(self, x: Tensor) -> Tensor:
        """Scores `(nodes, classes)` from features `(nodes, features)`, dense or sparse CSR."""
        u = self.diffuse(self.embed(x))
        return self.output(F.dropout(u.relu(), self.dropout, self.training))

    def embed(self, x: Tensor) -> Tensor:
        """u at the start."""
        if x.layout == torch.sparse_csr:
            values = F.dropout(x.values(), self.input_dropout, self.training)
            x = csr(x.crow_indices(), x.col_indices(), values, x.shape, check=False)
            return x @ self.embedding.weight.T + self.embedding.bias
        return self.embedding(F.dropout(x, self.input_dropout, self.training))

    def diffuse(self, u: Tensor) -> Tensor:
        """u at t1."""
        if not self.linear:
            return self.ode(u)
        attention, weights = self.attention, self.attention.weights(u)
        return self.ode.integrate(lambda t, v: attention.rate(weights, v), u)
