"""Jacobians with many zeros: the same matrix by fewer products, whatever f turns out to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxode
from proxode import jacobian
from proxode.jacobian import WORTH, Compressed, pattern_of
from proxode.paper.diffusion import Diffusion, density
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField

T = torch.zeros((), dtype=torch.float64)
F = Callable[[Tensor, Tensor], Tensor]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def field(func: F, y: Tensor) -> VectorField:
    return VectorField(func, Structure.of(y), Stats())


def exact(func: F, y: Tensor, t: Tensor = T) -> Tensor:
    return torch.func.jacrev(lambda z: func(t, z))(y)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-12, atol=1e-12 * float(b.abs().max()))


def reaction_diffusion(fields: int, reach: int, periodic: bool, interleaved: bool = False) -> F:
    """Fields on a line that diffuse over `reach` neighbours and react with each other at every point."""
    weights = numbers(fields, 2 * reach + 1, seed=1)
    coupling = numbers(fields, fields, seed=2)

    def f(t: Tensor, y: Tensor) -> Tensor:
        u = y.reshape(-1, fields).mT if interleaved else y.reshape(fields, -1)
        wide = torch.nn.functional.pad(u[None], (reach, reach), mode="circular" if periodic else "constant")[0]
        out = torch.tanh(coupling @ u) + sum(
            weights[:, k, None] * wide[:, k : k + u.shape[1]] for k in range(2 * reach + 1)
        )
        return (out.mT if interleaved else out).reshape(-1)

    return f


@settings(deadline=None)
@given(
    fields=st.integers(1, 3), reach=st.integers(1, 2), periodic=st.booleans(), points=st.integers(36, 60),
    seed=st.integers(0, 100),
)  # fmt: skip
def test_a_stencil_takes_a_few_products(fields: int, reach: int, periodic: bool, points: int, seed: int) -> None:
    """From 36 points on: with fewer, nine groups would not make four rows each."""
    f, y = reaction_diffusion(fields, reach, periodic), numbers(fields * points, seed=seed)
    calls = field(f, y)
    for _ in range(2):
        assert same(calls.jacobian(0.0, y), exact(f, y))
    again = calls.stats.n_jac
    assert same(calls.jacobian(0.0, y), exact(f, y))
    # A line of `reach` neighbours needs 2 reach + 1 groups, a cyclic one up to 2 reach more, and every field its own.
    assert calls.stats.n_jac - again <= fields * (4 * reach + 1) + 1
    if fields == 1 or not periodic:  # fields that close round their own ends are learned from the whole matrix
        assert calls.stats.n_jac <= 3 + 3 * (fields * (4 * reach + 1) + 1)


def test_a_pattern_that_three_rows_do_not_tell_is_learned_from_the_whole_matrix() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:  # neighbours, and for odd points those across
        odd = torch.arange(len(y)) % 2
        return y.roll(1) * y - y + odd * torch.sin(y.roll(24)) + (torch.arange(len(y)) == 5) * y.sum()

    y = numbers(48)
    calls = field(f, y)
    assert same(calls.jacobian(0.0, y), exact(f, y))
    first = calls.stats.n_jac
    assert first >= 48
    assert same(calls.jacobian(0.0, 2 * y), exact(f, 2 * y))
    assert calls.stats.n_jac - first <= 9


def test_a_graph_is_no_stencil_and_that_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have more entries than any stencil: to group them all would take longer than the solve."""
    n, degree = 2_000, 30
    neighbours = torch.randint(0, n, (n, degree), generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(jacobian, "_grouped", lambda columns: pytest.fail("the rows were grouped"))
    calls = field(lambda t, y: y[neighbours].mean(1) - y, numbers(n))
    assert not calls.has_stencil(0.0, numbers(n)) and calls.stats.n_jac == jacobian.PROBES


@pytest.mark.parametrize("row", [0, 17, 63])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_a_single_entry_far_off_is_found(row: int, size: float) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return y.roll(1) - 2 * y + y.roll(-1) + size * (torch.arange(64) == row) * y[(row + 30) % 64]

    y = numbers(64)
    matrix = field(f, y).jacobian(0.0, y)
    assert float((matrix - exact(f, y)).abs().max()) <= 1e-12


def test_entries_that_appear_later_are_found() -> None:
    """A term that is off at first: the zeros of one Jacobian are no promise about the next."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return y.roll(1) - 2 * y + y.roll(-1) + torch.relu(t - 1.0) * y.roll(7) * y

    y = numbers(64)
    calls = field(f, y)
    for t in (0.0, 0.5, 2.0, 3.0, 0.0):
        assert same(calls.jacobian(t, y), exact(f, y, torch.tensor(t, dtype=torch.float64)))
    assert calls.stats.n_jac < 3 * 64  # once in full


def test_a_dense_jacobian_costs_three_products_more_and_only_once() -> None:
    coupling = numbers(40, 40)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(coupling @ y)

    y = numbers(40)
    calls = field(f, y)
    assert same(calls.jacobian(0.0, y), exact(f, y))
    assert calls.stats.n_jac == 43
    assert same(calls.jacobian(0.0, y), exact(f, y))
    assert calls.stats.n_jac == 83


def test_a_backward_that_cannot_be_batched_is_done_row_by_row() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
            ctx.save_for_backward(y)
            return y**2

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
            (y,) = ctx.saved_tensors
            assert float(grad.abs().sum()) >= 0.0  # a number, which a batch does not have
            return 2 * y * grad

    def f(t: Tensor, y: Tensor) -> Tensor:
        return Square.apply(y.roll(1)) - y  # type: ignore[no-untyped-call]

    y = numbers(40)
    calls = field(f, y)
    assert same(calls.jacobian(0.0, y), slopes(y))
    assert calls.stats.n_jac <= 3 + 5


def slopes(y: Tensor) -> Tensor:
    """Of y[i - 1]^2 - y[i]."""
    n = len(y)
    matrix = -torch.eye(n, dtype=y.dtype)
    matrix[torch.arange(n), torch.arange(n) - 1] += 2 * y.roll(1)
    return matrix


def test_a_jacobian_that_is_not_finite_is_not_taken_for_sparse() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.sqrt(y.roll(1)) - y

    y = numbers(40)
    y[3] = -1.0
    assert not bool(torch.isfinite(field(f, y).jacobian(0.0, y)).all())


@settings(deadline=None)
@given(n=st.integers(2, 40), density=st.floats(0.0, 0.3), seed=st.integers(0, 1_000))
def test_rows_of_a_group_share_no_column(n: int, density: float, seed: int) -> None:
    entries = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < density
    known = pattern_of(entries)
    if known.passes:
        assert torch.equal(Compressed(known.columns, torch.ones(known.columns.shape)).dense() != 0, entries)
        for group in range(known.passes):
            members = entries[known.groups == group]
            assert len(members) > 0 and bool((members.sum(0) <= 1).all())
        assert known.passes * WORTH <= n
    elif n >= WORTH:
        assert int(entries.sum()) > 0


@settings(deadline=None)
@given(n=st.integers(4, 40), density=st.floats(0.0, 0.2), seed=st.integers(0, 1_000))
def test_products_with_a_matrix_by_entries(n: int, density: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix *= torch.rand(n, n, generator=generator) < density
    known = pattern_of(matrix != 0)
    if known.passes:
        wide = torch.nn.functional.pad(matrix, (0, 1))
        by_entries, x = Compressed(known.columns, wide.gather(1, known.columns)), numbers(n, seed=seed)
        assert torch.equal(by_entries.dense(), matrix)
        assert same(by_entries.times(x) + 1, matrix @ x + 1) and same(by_entries.times_from_left(x) + 1, x @ matrix + 1)


@pytest.mark.parametrize(("tol", "most"), [(1e-2, 52), (1e-6, 300)])
def test_newton_on_a_grid_pays_for_a_stencil(tol: float, most: int) -> None:
    """Diffusion on 128 points, a Jacobian of which once cost 128 products."""
    problem, y0 = Diffusion(128), density(128)
    sol = proxode.solve(problem.f, y0, 0.0, 1.0, rtol=tol, atol=tol, method="bdf", inner="newton")
    assert sol.stats.nfe_forward <= most
    assert float((sol.ys[-1] - problem.exact(y0, sol.ts[-1:])[0]).abs().max()) <= tol
