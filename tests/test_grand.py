"""Diffusion on graphs: products with edges against dense matrices, and GRAND against closed solutions."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proxode.nn import GRAND, Attention, Edges
from proxode.sparse import csr

NODES, HIDDEN = 9, 4


@pytest.fixture
def adjacency() -> Tensor:
    """A connected graph without direction, with loops."""
    generator = torch.Generator().manual_seed(1)
    upper = torch.rand(NODES, NODES, generator=generator) < 0.3
    ring = torch.eye(NODES, dtype=torch.bool).roll(1, 0)
    return upper | upper.T | ring | ring.T | torch.eye(NODES, dtype=torch.bool)


@pytest.fixture
def edges(adjacency: Tensor) -> Edges:
    target, source = adjacency.nonzero().unbind(1)
    shuffled = torch.randperm(len(target), generator=torch.Generator().manual_seed(0))
    return Edges(target[shuffled], source[shuffled], NODES)


def random(*shape: int, seed: int = 0, **options: Any) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, **options)


def dense(edges: Edges, weights: Tensor) -> Tensor:
    return torch.zeros(NODES, NODES, dtype=weights.dtype).index_put((edges.target, edges.source), weights)


# Edges


def test_products_are_those_of_the_matrix(edges: Edges) -> None:
    weights, a, b = random(len(edges)), random(NODES, 3, seed=1), random(NODES, 3, seed=2)
    torch.testing.assert_close(edges.product(weights, a), dense(edges, weights) @ a)
    torch.testing.assert_close(edges.matrix(weights, transposed=True) @ a, dense(edges, weights).T @ a)
    torch.testing.assert_close(edges.inner(a, b), (a @ b.T)[edges.target, edges.source])


def test_softmax_is_that_of_the_rows(edges: Edges, adjacency: Tensor) -> None:
    score = 200 * random(len(edges), 2)  # exp of it would overflow
    found = edges.softmax(score)
    for head in range(2):
        rows = dense(edges, score[:, head]).masked_fill(~adjacency, -math.inf).softmax(1)
        torch.testing.assert_close(dense(edges, found[:, head]), rows)


def test_derivatives_of_every_kind(edges: Edges) -> None:
    weights, a = random(len(edges), requires_grad=True), random(NODES, 2, seed=1, requires_grad=True)
    b, score = random(NODES, 2, seed=2, requires_grad=True), random(len(edges), 2, seed=3, requires_grad=True)
    for function, inputs in ((edges.product, (weights, a)), (edges.inner, (a, b)), (edges.softmax, (score,))):
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_wrong_edges_are_refused() -> None:
    one, two = torch.tensor([0, 1]), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="from 0 to 1"):
        Edges(one, two, 2)
    with pytest.raises(ValueError, match="occurs twice"):
        Edges(torch.tensor([0, 0]), torch.tensor([1, 1]), 3)
    with pytest.raises(ValueError, match="of one length"):
        Edges(one, two[:1], 3)


def test_a_node_that_nothing_enters_decays(edges: Edges) -> None:
    lonely = Edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 3)
    f = Attention(lonely, torch.eye(2), torch.eye(2), 1)
    u = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    torch.testing.assert_close(f(torch.tensor(0.0), u), torch.tensor([[2.0, 2.0], [-2.0, -2.0], [-5.0, -6.0]]))


# Attention


def attention_by_hand(f: Attention, adjacency: Tensor, u: Tensor) -> Tensor:
    """A(u), node by node and head by head."""
    columns = HIDDEN // f.heads
    total = torch.zeros(NODES, NODES, dtype=u.dtype)
    for head in range(f.heads):
        rows = slice(head * columns, (head + 1) * columns)
        query, key = (u @ matrix[rows].T for matrix in f.theta.detach())
        score = query @ key.T / math.sqrt(columns)
        total += score.masked_fill(~adjacency, -math.inf).softmax(1) / f.heads
    return total


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_is_what_it_says(edges: Edges, adjacency: Tensor, heads: int) -> None:
    f = Attention(edges, random(HIDDEN, HIDDEN, seed=1), random(HIDDEN, HIDDEN, seed=2), heads)
    u = random(NODES, HIDDEN, seed=3)
    matrix = attention_by_hand(f, adjacency, u)
    torch.testing.assert_close(dense(edges, f.weights(u).detach()), matrix)
    torch.testing.assert_close(f(torch.tensor(0.0), u).detach(), matrix @ u - u)


def test_heads_must_share_the_columns(edges: Edges) -> None:
    with pytest.raises(ValueError, match="3 heads cannot share 4 columns"):
        Attention(edges, torch.eye(4), torch.eye(4), 3)


def test_a_learned_scale_is_a_half_at_first(edges: Edges) -> None:
    query, key, u = random(HIDDEN, HIDDEN, seed=1), random(HIDDEN, HIDDEN, seed=2), random(NODES, HIDDEN)
    plain, learned = Attention(edges, query, key, 2), Attention(edges, query, key, 2, None)
    torch.testing.assert_close(learned(torch.tensor(0.0), u), 0.5 * plain(torch.tensor(0.0), u))
    assert [name for name, _ in learned.named_parameters()] == ["theta", "alpha"]
    assert [name for name, _ in plain.named_parameters()] == ["theta"]
    learned(torch.tensor(0.0), u).sum().backward()
    expected = 0.25 * plain(torch.tensor(0.0), u).sum()  # sigmoid' at 0
    torch.testing.assert_close(learned.alpha.grad, expected.detach())  # type: ignore[union-attr]


def test_message_passing_of_torch_geometric_gives_the_same(edges: Edges) -> None:
    utils = pytest.importorskip("torch_geometric.utils")
    f = Attention(edges, random(HIDDEN, HIDDEN, seed=1), random(HIDDEN, HIDDEN, seed=2), 2)
    u = random(NODES, HIDDEN, seed=3)
    query, key = (u @ matrix.T for matrix in f.theta.detach())
    score = (query[edges.target] * key[edges.source]).view(-1, 2, HIDDEN // 2).sum(2) / math.sqrt(HIDDEN // 2)
    weights = utils.softmax(score, edges.target, num_nodes=NODES).mean(1, keepdim=True)
    moved = utils.scatter(weights * u[edges.source], edges.target, dim_size=NODES)
    torch.testing.assert_close(f(torch.tensor(0.0), u).detach(), moved - u)


# GRAND


def model(edges: Edges, **options: Any) -> GRAND:
    torch.manual_seed(0)
    settings = {"hidden": HIDDEN, "heads": 2, "t1": 2.0, "attention_std": 0.7, "rtol": 1e-8, "atol": 1e-10} | options
    return GRAND(edges, 5, 3, **settings).double()


def test_the_linear_variant_is_a_matrix_exponential(edges: Edges, adjacency: Tensor) -> None:
    grand = model(edges, linear=True)
    u = random(NODES, HIDDEN)
    generator = attention_by_hand(grand.attention, adjacency, u) - torch.eye(NODES, dtype=u.dtype)
    torch.testing.assert_close(
        grand.diffuse(u).detach(), torch.linalg.matrix_exp(2.0 * generator) @ u, rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("scale", [1.0, None])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("method", ["dopri5", "bdf3"])
def test_gradients_agree_with_plain_backpropagation(
    edges: Edges, method: str, linear: bool, scale: float | None
) -> None:
    solver: dict[str, Any] = {"method": method, "linear": linear, "scale": scale}
    if method == "bdf3":
        solver |= {"step_size": 0.5, "inner_tol": 1e-13}
    x = random(NODES, 5, seed=7)

    def gradients(gradient: str) -> list[Tensor]:
        grand = model(edges, gradient=gradient, **solver)
        loss = F.cross_entropy(grand(x), torch.arange(NODES) % 3)
        assert len(list(grand.parameters())) == (5 if scale else 6)
        return list(torch.autograd.grad(loss, list(grand.parameters())))

    for one, other in zip(gradients("implicit"), gradients("direct"), strict=True):
        assert float(one.abs().max()) > 0
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_a_pass_before_backward_of_another_changes_nothing(edges: Edges) -> None:
    """Each pass of the linear variant has its own attention."""
    grand, x, y = model(edges, linear=True, method="bdf2", step_size=0.25), random(NODES, 5), random(NODES, 5, seed=1)
    expected = torch.autograd.grad(grand(x).square().sum(), grand.attention.theta)[0]
    first = grand(x).square().sum()
    grand(y)
    torch.testing.assert_close(torch.autograd.grad(first, grand.attention.theta)[0], expected)


def test_sparse_features_are_as_good_as_dense_ones(edges: Edges) -> None:
    x = (random(NODES, 5) > 0).double()
    sparse = csr(*_csr(x), x.shape)
    runs = []
    for features in (x, sparse):
        grand = model(edges)
        out = grand(features)
        runs.append((out, *torch.autograd.grad(out.square().sum(), list(grand.parameters()))))
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one, other)
    dropped = model(edges, input_dropout=0.9)
    assert not torch.equal(dropped.embed(sparse), dropped.embed(sparse))
    dropped.eval()
    torch.testing.assert_close(dropped.embed(sparse), dropped.embed(x))


def _csr(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = x.nonzero().unbind(1)
    return F.pad(rows.bincount(minlength=len(x)).cumsum(0), (1, 0)), columns, x[rows, columns]


def test_it_learns_with_dropout_and_counts_its_cost(edges: Edges) -> None:
    """Labels that the features tell."""
    x = random(NODES, 5)
    labels = x[:, :3].argmax(1)
    grand = model(edges, t1=1.0, input_dropout=0.1, dropout=0.2, rtol=1e-3, atol=1e-3)
    optimiser = torch.optim.Adam(grand.parameters(), lr=0.05)

    def error() -> float:
        held = copy.deepcopy(grand).eval()
        return float(F.cross_entropy(held(x), labels).detach())

    before = error()
    for _ in range(40):
        optimiser.zero_grad()
        F.cross_entropy(grand(x), labels).backward()
        optimiser.step()
        assert grand.ode.stats is not None and 0 < grand.ode.stats.nfe_forward < 60
        assert 0 < grand.ode.stats.nfe_backward < 120
    assert error() < 0.75 * before
