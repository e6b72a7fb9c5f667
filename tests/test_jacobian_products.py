"""Products with the Jacobian of an f that was written without a thought for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from problems import Calls, newton
from torch import Tensor
from torch.autograd.function import once_differentiable

from proxode import solve
from proxode.inner import INNER, ImplicitEquation, Stop, solve_equation
from proxode.solution import Stats
from proxode.status import Status
from proxode.structure import Structure
from proxode.vector_field import VectorField

N = 6
GAMMA = 0.7
EXACT, DIFFERENCE = 1e-12, 1e-6  # what a product may be off

_generator = torch.Generator().manual_seed(3)
_root = torch.randn(N, N, generator=_generator, dtype=torch.float64)
COUPLING = _root @ _root.T
Y = torch.randn(N, generator=_generator, dtype=torch.float64)
V = torch.randn(N, generator=_generator, dtype=torch.float64)
T = torch.zeros((), dtype=torch.float64)


# One gradient flow, f = -grad E, written in many ways


def energy(y: Tensor) -> Tensor:
    return (y**4).sum() / 4 + y @ (COUPLING.to(y) @ y) / 2


def plain(t: Tensor, y: Tensor) -> Tensor:
    return -(y**3) - COUPLING.to(y) @ y


def derivative(y: Tensor) -> Tensor:
    return -3 * torch.diag(y**2) - COUPLING


def grad_inside_with_graph(t: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        y.requires_grad_(True)
        return -torch.autograd.grad(energy(y), y, create_graph=True)[0]


def grad_inside_without_graph(t: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        y.requires_grad_(True)
        return -torch.autograd.grad(energy(y), y)[0]


def grad_of_a_detached_copy(t: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        z = y.detach().requires_grad_(True)
        return -torch.autograd.grad(energy(z), z)[0]


class WithoutForwardMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return plain(T, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return -3 * y**2 * grad - COUPLING.to(y) @ grad


class WithoutDoubleBackward(WithoutForwardMode):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return WithoutForwardMode.backward(ctx, grad)


def without_forward_mode(t: Tensor, y: Tensor) -> Tensor:
    return WithoutForwardMode.apply(y)  # type: ignore[no-any-return]


def without_double_backward(t: Tensor, y: Tensor) -> Tensor:
    return WithoutDoubleBackward.apply(y)  # type: ignore[no-any-return]


def under_no_grad(t: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return plain(t, y)


def in_place_on_a_copy(t: Tensor, y: Tensor) -> Tensor:
    out = y.clone()
    out.mul_(y).mul_(y).neg_()
    out[0] -= 0.0
    return out.sub_(COUPLING.to(y) @ y)


def out_of_numpy(t: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(plain(t, y.detach()).numpy())


WAYS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "plain": (plain, EXACT),
    "grad inside, with a graph": (grad_inside_with_graph, EXACT),
    "grad inside, without a graph": (grad_inside_without_graph, DIFFERENCE),
    "grad of a detached copy": (grad_of_a_detached_copy, DIFFERENCE),
    "custom function without forward mode": (without_forward_mode, EXACT),
    "custom function without double backward": (without_double_backward, DIFFERENCE),
    "under no_grad": (under_no_grad, DIFFERENCE),
    "in place on a copy": (in_place_on_a_copy, EXACT),
    "out of numpy": (out_of_numpy, DIFFERENCE),
}
ways = pytest.mark.parametrize("func, off", WAYS.values(), ids=WAYS.keys())


def field(func: Any, y: Any = Y) -> VectorField:
    return VectorField(func, Structure.of(y), Stats())


@ways
def test_a_product_agrees_with_the_jacobian(func: Any, off: float) -> None:
    f = field(func)
    for _ in range(2):  # the second time, the way is known
        assert torch.allclose(f.jvp(0.0, Y, V), derivative(Y) @ V, rtol=off, atol=off)
    lost = 2 - len(f.ladder)  # ways that f did not admit: each attempt called it
    assert (f.stats.n_jvp, f.stats.n_jac) == (2 + lost, 0)


@ways
def test_the_dense_jacobian_is_right_and_counts_its_columns(func: Any, off: float) -> None:
    f = field(func)
    assert torch.allclose(f.jacobian(0.0, Y), derivative(Y), rtol=off, atol=off)
    differences = off == DIFFERENCE and func is not without_double_backward  # these need f once more
    assert (f.stats.n_jac, f.stats.nfe_forward) == (N, N + 1 + differences)


@ways
def test_a_product_leaves_no_trace_on_its_arguments(func: Any, off: float) -> None:
    y, v = Y.clone(), V.clone()
    product = field(func, y).jvp(0.0, y, v)
    assert not (y.requires_grad or v.requires_grad or product.requires_grad)
    assert torch.equal(y, Y) and torch.equal(v, V)


@ways
@pytest.mark.parametrize("name", ["newton", "newton_krylov", "cg"])
def test_newton_converges(name: str, func: Any, off: float) -> None:
    equation = ImplicitEquation(field(func), 0.0, Y, GAMMA)
    result = solve_equation(INNER[name], equation, Y, Stop(1e-11))
    assert result.status is Status.SUCCESS
    assert torch.allclose(result.z, newton(plain, Y, GAMMA), rtol=0, atol=1e-8)


@ways
def test_products_agree_in_single_precision(func: Any, off: float) -> None:
    product = field(func).jvp(0.0, Y.float(), V.float())
    off = 1e-2 if off == DIFFERENCE else 1e-4
    assert product.dtype == torch.float32
    assert torch.allclose(product.double(), derivative(Y) @ V, rtol=off, atol=off)


@ways
def test_every_call_is_counted_whatever_way_the_products_are_made(func: Any, off: float) -> None:
    f = Calls(func)
    equation = ImplicitEquation(field(f), 0.0, Y, GAMMA)
    solve_equation(INNER["newton_krylov"], equation, Y, Stop(1e-11))
    stats = equation.f.stats
    assert stats.nfe_forward == stats.n_f + stats.n_jvp
    assert f.count - 2 <= stats.nfe_forward <= f.count  # each of two ways may be tried once in vain


def test_a_product_of_a_piecewise_f_takes_the_slope_of_the_piece() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(y > 0, -5 * y, -0.5 * y) + torch.relu(COUPLING @ y)

    slopes = torch.diag(torch.where(Y > 0, -5.0, -0.5)) + ((COUPLING @ Y) > 0).double()[:, None] * COUPLING
    assert torch.allclose(field(f).jvp(0.0, Y, V), slopes @ V, rtol=EXACT)
    assert torch.allclose(field(f).jacobian(0.0, Y), slopes, rtol=EXACT)


def test_an_f_that_does_not_depend_on_the_state_has_no_jacobian() -> None:
    f = field(lambda t, y: torch.ones_like(y))
    assert torch.equal(f.jvp(0.0, Y, V), torch.zeros(N, dtype=Y.dtype))
    assert torch.equal(f.jacobian(0.0, Y), torch.zeros(N, N, dtype=Y.dtype))


def test_products_of_a_tuple_state_are_those_of_its_flat_vector() -> None:
    def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        matrix, scalar = y
        return torch.tanh(matrix) * scalar, matrix.sum() - scalar**2

    y = (Y[:4].reshape(2, 2), Y[4])
    structure = Structure.of(y)
    dense = torch.func.jacrev(lambda z: structure.flatten(f(T, structure.restore(z))))(Y[:5])
    assert torch.allclose(field(f, y).jvp(0.0, Y[:5], V[:5]), dense @ V[:5], rtol=EXACT)
    assert torch.allclose(field(f, y).jacobian(0.0, Y[:5]), dense, rtol=EXACT)


@pytest.mark.parametrize("name", ["newton_krylov", "newton"])
def test_a_term_that_is_hidden_from_autograd_does_not_stop_newton(name: str) -> None:
    """Differentiation sees `-y^3` only: a Newton iteration that believes it would diverge."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -(y**3) - COUPLING @ y.detach()

    equation = ImplicitEquation(field(f), 0.0, Y, GAMMA)
    result = solve_equation(INNER[name], equation, Y, Stop(1e-11))
    assert result.status is Status.SUCCESS
    assert torch.allclose(result.z, newton(plain, Y, GAMMA), rtol=0, atol=1e-8)


class Refusal(Exception):
    pass


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("allowed", [0, 1, 2, 4])
def test_what_f_raises_comes_out_unchanged(name: str, allowed: int) -> None:
    """Also from within a product, where f is called in unusual ways."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        if calls.count > allowed:
            raise refusal
        return plain(t, y)

    refusal, calls = Refusal("no more"), Calls(f)
    equation = ImplicitEquation(field(calls), 0.0, Y, 0.01)
    with pytest.raises(Refusal) as caught:
        solve_equation(INNER[name], equation, Y, Stop(1e-15))
        pytest.skip("it needed no more")
    assert caught.value is refusal


def test_products_are_doubted_seldom_where_steps_are_merely_too_long() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:  # Van der Pol, which a loose tolerance carries into its jumps
        return torch.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])

    y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)
    stats = solve(f, y0, 0.0, 3000.0, method="bdf", inner="newton", rtol=1e-2, atol=1e-2).stats
    assert stats.n_inner_failed > 16
    assert 0 < stats.n_jvp <= 2 * stats.n_inner_failed.bit_length()


def test_a_term_that_is_hidden_after_many_failures_is_found() -> None:
    """The doubt is rare by then, and the next one that is due tells."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -(y**3) - COUPLING @ y.detach()

    calls = field(f)
    calls.failures = 5
    equation = ImplicitEquation(calls, 0.0, Y, GAMMA)
    outcomes = [solve_equation(INNER["newton"], equation, Y, Stop(1e-11)).status for _ in range(3)]
    assert outcomes[0] is not Status.SUCCESS and outcomes[2] is Status.SUCCESS and calls.failures < 8
