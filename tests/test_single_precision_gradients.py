"""Gradients of stiff solves in float32 are those of float64, however they are solved for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode.linear import refined

Func = Callable[[Tensor, Tensor], Tensor]


def exchange(k: Tensor) -> Func:
    """Pairs that exchange fast what only one of the two loses, at a rate k: gamma |J| = 7e4 in steps of 0.05."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        a, b = y.chunk(2, -1)
        flow = 1e6 * (b - a)
        return torch.cat([flow, -flow - k * b], -1)

    return f


def line(k: Tensor) -> Func:
    """Diffusion along a line, by its flows, and growth: for bands."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        flow = torch.nn.functional.pad(1e5 * y.diff(dim=-1), (1, 1))
        return flow.diff(dim=-1) + k * y * (1 - y)

    return f


def chain(k: Tensor) -> Func:
    """Three that exchange at two speeds: entries of the Jacobian are rounded before they are used."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        a, b, c = y.chunk(3, -1)
        first, second = 1e6 * (b - a), 3.1e5 * (c - b)
        return torch.cat([first, second - first, -second], -1) - k * y * y

    return f


def gradients(
    func: Callable[[Tensor], Func], shape: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> list[Tensor]:
    k = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    y0 = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype).requires_grad_()
    y = proxode.solve(func(k), y0, 0.0, 1.0, rtol=1e-5, atol=1e-6, **options).ys[-1]
    y.square().sum().backward()
    assert k.grad is not None and y0.grad is not None
    return [k.grad.double(), y0.grad.double()]


def check(func: Callable[[Tensor], Func], shape: tuple[int, ...], **options: Any) -> None:
    exact = gradients(func, shape, torch.float64, **options)
    found = gradients(func, shape, torch.float32, **options)
    errors = [float((a - b).abs().max() / a.abs().max()) for a, b in zip(exact, found, strict=True)]
    assert max(errors) <= 5e-5, errors


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
@pytest.mark.parametrize("inner", ["auto", "newton", "anderson"])
@pytest.mark.parametrize(("func", "n"), [(exchange, 60), (exchange, 400), (chain, 60), (line, 60), (line, 1_000)])
def test_gradients_keep_what_is_slow_beside_what_is_fast(
    func: Callable[[Tensor], Func], n: int, inner: str, gradient: str
) -> None:
    """A matrix `1 - gamma J` of float32 with entries of 1e5 has lost a hundredth of the one: so had the gradients."""
    if inner == "anderson" and n == 1_000:
        pytest.skip("sees no smooth modes there, and says so")
    check(func, (n,), method="bdf2", step_size=0.05, inner=inner, gradient=gradient)


@pytest.mark.parametrize("func", [exchange, chain, line])
@pytest.mark.parametrize("per_sample", [True, False])
def test_so_do_those_of_adaptive_steps_and_of_each_sample_by_itself(
    func: Callable[[Tensor], Func], per_sample: bool
) -> None:
    check(func, (3, 30), method="bdf", per_sample=per_sample)


def test_refinement_mends_what_rounding_has_made_of_a_matrix() -> None:
    """Rows by themselves: one that nothing is wrong with stays as it is."""
    stiff = torch.tensor([[1e6, -1e6], [-1e6, 1e6]], dtype=torch.float64)
    matrices = torch.stack([torch.eye(2, dtype=torch.float64) + stiff, torch.eye(2, dtype=torch.float64)])
    wrong = matrices.clone()
    wrong[0] += torch.tensor([[0.05, 0.0], [0.0, 0.05]], dtype=torch.float64)
    b = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    products = 0

    def matvec(x: Tensor) -> Tensor:
        nonlocal products
        products += 1
        return (matrices @ x.unsqueeze(-1)).squeeze(-1)

    x, left = refined(lambda r: torch.linalg.solve(wrong, r), matvec, b, rtol=1e-6)
    assert left <= 1e-6
    torch.testing.assert_close(x, torch.linalg.solve(matrices, b), rtol=1e-6, atol=0.0)
    assert products <= 5


def test_refinement_that_does_not_converge_leaves_the_first_solution() -> None:
    b = torch.tensor([1.0, 2.0])
    x, left = refined(lambda r: r.clone(), lambda x: 10.0 * x, b, rtol=1e-6)
    assert x.equal(b) and left > 1.0


@pytest.mark.parametrize("rate", [1e7, 1e8, 2e8, 1e9])
@pytest.mark.parametrize("inner", ["auto", "anderson"])
@pytest.mark.parametrize("options", [{"method": "bdf2", "step_size": 0.05}, {"method": "bdf"}], ids=["fixed", "free"])
@pytest.mark.parametrize("n", [30, 300])
def test_a_gradient_that_float32_does_not_know_is_an_error(
    n: int, options: dict[str, Any], inner: str, rate: float
) -> None:
    """Beyond `gamma |J| = 1 / eps` nothing of the one is left in the matrix, and GMRES believes in a residual without
    it: gradients were off by a factor of 1e4."""

    def fast(k: Tensor) -> Func:
        def f(t: Tensor, y: Tensor) -> Tensor:
            a, b = y.chunk(2, -1)
            flow = rate * (b - a)
            return torch.cat([flow, -flow - k * b], -1)

        return f

    exact = gradients(fast, (n,), torch.float64, **options)
    try:
        found = gradients(fast, (n,), torch.float32, inner=inner, **options)
    except proxode.SolverError as error:
        assert error.status in (proxode.Status.BACKWARD_NOT_CONVERGED, proxode.Status.INNER_STAGNATED) and rate > 1e7
        return
    errors = [float((a - b).abs().max() / a.abs().max()) for a, b in zip(exact, found, strict=True)]
    assert max(errors) <= (5e-5 if rate < 1e8 else 5e-3), errors


def test_of_each_sample_by_itself_too() -> None:
    """Robertson's problem to 1e10, whose matrix is singular in float32: gradients were nan."""
    y0 = torch.tensor([[1.0, 0.0, 0.0]]).repeat(3, 1).requires_grad_()

    def robertson(t: Tensor, y: Tensor) -> Tensor:
        a, b, c = y.unbind(-1)
        first, second, third = 0.04 * a, 1e4 * b * c, 3e7 * b * b
        return torch.stack([second - first, first - second - third, third], -1)

    y = proxode.solve(robertson, y0, 0.0, 1e10, rtol=1e-5, atol=1e-9, method="bdf", per_sample=True).ys[-1]
    with pytest.raises(RuntimeError, match=r"float32 rounds .* a part of 1 of the gradient .* use float64"):
        y[:, 0].sum().backward()
