"""Krylov solvers against a direct one, and where they must give up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxode.linear import ASYMMETRY, LinearResult, cg, gmres

Solver = Callable[..., LinearResult]

solvers = pytest.mark.parametrize("solver", [cg, gmres], ids=["cg", "gmres"])


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spd(n: int, condition: float, seed: int = 0) -> Tensor:
    """Symmetric, with eigenvalues from 1 to `condition`."""
    q, _ = torch.linalg.qr(randn(n, n, seed=seed))
    return q @ torch.diag(torch.linspace(1, condition, n, dtype=q.dtype)) @ q.T


def product(a: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda v: (a @ v.unsqueeze(-1)).squeeze(-1)


class Counted:
    def __init__(self, a: Tensor) -> None:
        self.matvec, self.count = product(a), 0

    def __call__(self, v: Tensor) -> Tensor:
        self.count += 1
        return self.matvec(v)


def relative_residual(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    return (b - product(a)(x)).norm(dim=-1) / b.norm(dim=-1)


@solvers
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 30), condition=st.floats(1, 1e4), seed=st.integers(0, 2**31))
def test_solves_a_positive_definite_system(solver: Solver, n: int, condition: float, seed: int) -> None:
    a, b = spd(n, condition, seed), randn(n, seed=seed + 1)
    result = solver(product(a), b, rtol=1e-10, max_iters=1000)
    assert result.residual <= 1e-10
    assert float(relative_residual(a, b, result.x)) <= 2e-10
    assert torch.allclose(result.x, torch.linalg.solve(a, b), rtol=0, atol=1e-9 * float(b.norm()))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 30), seed=st.integers(0, 2**31))
def test_gmres_solves_a_system_that_is_not_symmetric_in_at_most_n_products(n: int, seed: int) -> None:
    a, b = torch.eye(n, dtype=torch.float64) + randn(n, n, seed=seed) / (2 * n**0.5), randn(n, seed=seed + 1)
    matvec = Counted(a)
    result = gmres(matvec, b, rtol=1e-10, max_iters=200)
    assert matvec.count == result.iterations <= n
    assert torch.allclose(result.x, torch.linalg.solve(a, b), rtol=0, atol=1e-8 * float(b.norm()))


def test_gmres_tells_its_solution_in_the_vectors_that_it_multiplied() -> None:
    a, b, vectors = torch.eye(40, dtype=torch.float64) + 0.4 * randn(40, 40) / 40**0.5, randn(40, seed=1), []

    def matvec(v: torch.Tensor) -> torch.Tensor:
        vectors.append(v.clone())
        return a @ v

    result = gmres(matvec, b, rtol=1e-9, max_iters=500)
    assert result.weights is not None
    torch.testing.assert_close(result.weights @ torch.stack(vectors), result.x)
    assert gmres(matvec, b, rtol=1e-9, max_iters=500, restart=4).weights is None  # of the last cycle only


def test_gmres_goes_on_after_a_restart() -> None:
    a, b = torch.eye(40, dtype=torch.float64) + 0.4 * randn(40, 40) / 40**0.5, randn(40, seed=1)
    matvec = Counted(a)
    whole, restarted = (gmres(matvec, b, rtol=1e-9, max_iters=500, restart=r) for r in (40, 4))
    assert restarted.residual <= 1e-9
    assert float(relative_residual(a, b, restarted.x)) <= 2e-9
    assert whole.iterations <= restarted.iterations <= 5 * whole.iterations
    assert matvec.count == whole.iterations + restarted.iterations + (restarted.iterations - 1) // 4


@solvers
def test_rows_of_a_batch_are_systems_of_their_own(solver: Solver) -> None:
    a = torch.stack([spd(40, condition, seed) for seed, condition in enumerate((1e3, 10.0, 1.0))])
    b = randn(3, 40) * torch.tensor([[1e-6], [1.0], [1e6]], dtype=torch.float64)
    result = solver(product(a), b, rtol=1e-9, max_iters=500)
    assert result.residual <= 1e-9
    assert relative_residual(a, b, result.x).max() <= 2e-9
    for row in range(3):
        alone = solver(product(a[row]), b[row], rtol=1e-9, max_iters=500)
        assert alone.iterations <= result.iterations
        assert torch.allclose(alone.x, result.x[row], rtol=0, atol=1e-8 * float(b[row].norm()))


@solvers
@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-5])
def test_each_row_converges_and_not_their_mean(solver: Solver, rtol: float) -> None:
    a = torch.stack([*[spd(40, 1.0)] * 29, spd(40, 1e3)])
    b = randn(30, 40)
    result = solver(product(a), b, rtol=rtol, max_iters=500)
    assert relative_residual(a, b, result.x).max() <= 1.01 * rtol


@solvers
def test_an_easy_row_does_not_hide_a_hard_one_that_failed(solver: Solver) -> None:
    a = torch.stack([spd(40, 1.0), spd(40, 1e6)])
    result = solver(product(a), randn(2, 40), rtol=1e-9, max_iters=5)
    assert result.residual > 1e-3


@solvers
@pytest.mark.parametrize("shape", [(7,), (3, 7)], ids=str)
def test_a_right_side_of_zero_has_the_solution_zero(solver: Solver, shape: tuple[int, ...]) -> None:
    result = solver(product(spd(7, 10.0)), torch.zeros(shape, dtype=torch.float64), rtol=1e-9, max_iters=50)
    assert torch.equal(result.x, torch.zeros(shape, dtype=torch.float64))
    assert result.residual == 0.0
    assert result.iterations <= 1


@solvers
def test_a_row_of_zeros_leaves_the_others_alone(solver: Solver) -> None:
    a, b = spd(7, 10.0), torch.stack([torch.zeros(7, dtype=torch.float64), randn(7)])
    result = solver(product(a), b, rtol=1e-10, max_iters=50)
    assert torch.equal(result.x[0], b[0])
    assert torch.allclose(result.x[1], torch.linalg.solve(a, b[1]), rtol=1e-8)
    assert result.residual <= 1e-10


@solvers
@pytest.mark.parametrize("batch", [False, True])
def test_an_eigenvector_takes_one_product(solver: Solver, batch: bool) -> None:
    """The Krylov space is complete at once: the next direction is zero, and nothing may be divided by it."""
    a = torch.diag(torch.arange(1.0, 7.0, dtype=torch.float64))
    b = 3 * torch.eye(6, dtype=torch.float64)
    b = b if batch else b[4]
    result = solver(product(a), b, rtol=1e-12, max_iters=50)
    assert result.iterations == 1
    assert torch.allclose(result.x, b / (b @ a).norm(dim=-1, keepdim=True) * b.norm(dim=-1, keepdim=True))


@solvers
@pytest.mark.parametrize("limit", [1, 3, 17])
def test_the_limit_on_products_is_kept_and_the_rest_is_told(solver: Solver, limit: int) -> None:
    a, b = spd(60, 1e6), randn(60)
    matvec = Counted(a)
    result = solver(matvec, b, rtol=1e-12, max_iters=limit)
    assert matvec.count == result.iterations == limit
    assert result.residual == pytest.approx(float(relative_residual(a, b, result.x)), rel=1e-6)
    assert result.residual > 1e-12


def test_cg_tells_a_matrix_that_is_not_symmetric() -> None:
    a = torch.eye(20, dtype=torch.float64) + 0.1 * randn(20, 20)
    assert cg(product(a), randn(20, seed=1), rtol=1e-8, max_iters=40).asymmetry > ASYMMETRY
    assert cg(product(a + a.T), randn(20, seed=1), rtol=1e-8, max_iters=40).asymmetry < 1e-12


@pytest.mark.parametrize("angle", [0.5, 1.0, 1.5])
def test_cg_gives_up_soon_on_a_rotation(angle: float) -> None:
    """In two dimensions there is nothing to be found after a few directions."""
    cos, sin = torch.cos(torch.tensor(angle)), torch.sin(torch.tensor(angle))
    a = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    result = cg(product(a), randn(2), rtol=1e-8, max_iters=2000)
    assert result.residual <= 1e-8 or (result.asymmetry > ASYMMETRY and result.iterations <= 200)


@pytest.mark.parametrize("signs", [(1.0, -1.0), (-1.0, -2.0), (1.0, 0.0)], ids=str)
def test_cg_returns_from_a_matrix_that_is_not_positive(signs: tuple[float, ...]) -> None:
    matvec = Counted(torch.diag(torch.tensor(signs, dtype=torch.float64)))
    result = cg(matvec, torch.ones(2, dtype=torch.float64), rtol=1e-10, max_iters=1000)
    assert matvec.count <= 3
    assert torch.isfinite(result.x).all()
    x_solves = float((torch.tensor(signs, dtype=torch.float64) * result.x - 1).norm()) <= 1e-8
    assert x_solves or result.residual > 1e-10


def test_gmres_returns_from_a_singular_matrix() -> None:
    a = torch.diag(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    result = gmres(product(a), torch.ones(3, dtype=torch.float64), rtol=1e-10, max_iters=100)
    assert torch.isfinite(result.x).all()
    assert result.residual == pytest.approx(3**-0.5)  # the part of b that A cannot reach


@solvers
def test_nan_in_a_product_ends_the_iteration(solver: Solver) -> None:
    result = solver(lambda v: v * torch.nan, randn(5), rtol=1e-8, max_iters=1000)
    assert result.iterations <= 2
    assert not result.residual <= 1e-8


@solvers
def test_single_precision_stays_single(solver: Solver) -> None:
    a, b = spd(20, 10.0).float(), randn(20).float()
    result = solver(product(a), b, rtol=1e-5, max_iters=100)
    assert result.x.dtype == torch.float32
    assert torch.allclose(result.x, torch.linalg.solve(a, b), atol=1e-3)
