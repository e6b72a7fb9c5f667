"""The linear systems of backward, against dense algebra."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from proxode.gradients.products import Products
from proxode.gradients.transposed import FEW, Transposed
from proxode.solution import Stats

N = 100  # more than is solved densely


@dataclass(frozen=True)
class At:
    t: float = 0.0
    user_t: float = 0.0
    gamma: float = 1.0


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def system(strength: float, stats: Stats) -> tuple[Products, Tensor, Tensor]:
    """M(x, p) = strength * (W tanh(x) + P p) with its derivatives, W orthogonal."""
    w, p = torch.linalg.qr(normal(N, N, seed=0))[0], normal(N, 3, seed=1)
    x, *rest = (normal(size, seed=size).requires_grad_() for size in (N, 3, 2))
    inputs = tuple(rest)
    moved = strength * (w @ torch.tanh(x) + p @ inputs[0])
    slope = strength * w * (1 - torch.tanh(x.detach()) ** 2)
    return Products(moved, x, inputs, stats), slope, strength * p


@pytest.mark.parametrize(("strength", "least", "most"), [(1e-3, 1, FEW), (0.7, FEW + 1, N)])
def test_solution_and_sums_of_a_system(strength: float, least: int, most: int) -> None:
    """Few products: the inputs are served by those of the solve. Many: x is multiplied once more."""
    stats, g = Stats(), normal(N, seed=5)
    products, slope, p = system(strength, stats)
    linear = Transposed(1e-12, stats)
    u, sums = linear.solve(products, g, At())
    exact = torch.linalg.solve(torch.eye(N, dtype=torch.float64) - slope.T, g)
    torch.testing.assert_close(u, exact, rtol=0, atol=1e-10)
    torch.testing.assert_close(sums[0], p.T @ exact, rtol=0, atol=1e-10)
    assert sums[1] is None  # M does not depend on it
    assert least <= stats.n_vjp - 1 - (most == N) <= most  # the guess, and the last one


def test_the_next_systems_start_from_the_last_ones() -> None:
    """The same system again, at an earlier time: its guess is its solution, and one product shows that."""
    stats, g = Stats(), normal(N, seed=5)
    products, _, p = system(0.7, stats)
    linear = Transposed(1e-6, stats)
    first, _ = linear.solve(products, g, At(0.0))
    cost = stats.n_vjp
    again, sums = linear.solve(products, g, At(-1.0))
    assert stats.n_vjp == cost + 1
    torch.testing.assert_close(again, first, rtol=0, atol=1e-5)
    torch.testing.assert_close(sums[0], p.T @ first, rtol=0, atol=1e-5)


def test_inputs_are_pulled_along_only_while_solves_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs time that no count shows: after a long solve they wait for the end of the next."""
    asked: list[bool] = []
    pull = Products.of_all

    def of_all(self: Products, v: Tensor, inputs: tuple[Tensor, ...] | None = None) -> object:
        asked.append(inputs is None)
        return pull(self, v, inputs)

    monkeypatch.setattr(Products, "of_all", of_all)
    linear = Transposed(1e-12, Stats())
    for strength, expected in ((0.7, FEW + 2), (0.7, 2), (1e-3, 2)):
        asked.clear()
        linear.before = []
        linear.solve(system(strength, linear.stats)[0], normal(N, seed=6), At())
        assert sum(asked) == expected  # the guess, those of a solve that might be short, the one at the end
    assert linear.few
