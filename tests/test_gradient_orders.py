"""Derivatives of derivatives, and derivatives forward: which there are, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import grad, gradgradcheck
from torch.testing import assert_close

import proxode
from proxode.methods import METHODS

T = torch.tensor([0.0, 0.15, 0.35], dtype=torch.float64)  # between the steps of 0.2, and not a number of them
SMALL, LARGE = 3, 100  # beyond 64 unknowns the linear systems are solved by GMRES
Inputs = tuple[Tensor, ...]


def inputs(n: int = SMALL) -> Inputs:
    """y0, weights, a leaf that f uses itself and in a tensor made of it outside of f, and times."""
    generator = torch.Generator().manual_seed(0)
    y0, weights = torch.randn(2, n, generator=generator, dtype=torch.float64)
    leaf = torch.tensor([0.6], dtype=torch.float64)
    return tuple(x.clone().requires_grad_() for x in (y0, weights, leaf, T))


def run(y0: Tensor, weights: Tensor, leaf: Tensor, t: Tensor, method: str, **options: Any) -> Tensor:
    outside = torch.exp(0.3 * leaf)

    def f(time: Tensor, y: Tensor) -> Tensor:
        mixed = y + 0.5 * y.roll(1, -1) * outside
        return torch.tanh(weights * mixed) - outside * torch.sin(y) + leaf * torch.sin(3 * time)

    if METHODS[method].implicit:
        options = {"inner_tol": 1e-13, **options}
    if not METHODS[method].adaptive:
        options = {"step_size": 0.2, **options}
    tol = {"adaptive_heun": 1e-4, "bosh3": 1e-6}.get(method, 1e-8)
    return proxode.odeint(f, y0, t, method=method, rtol=tol, atol=tol, options=options)


# Second and third derivatives


@pytest.mark.parametrize(
    ("method", "gradient"),
    [*((name, "implicit") for name in ("rk4", "backward_euler", "crank_nicolson", "bdf2", "bdf3", "multistage2")),
     *((name, "direct") for name in ("rk4", "backward_euler", "bdf2"))],
)  # fmt: skip
def test_gradgradcheck_for_the_state_the_weights_what_is_captured_and_the_times(method: str, gradient: str) -> None:
    def solved(*given: Tensor) -> Tensor:
        return run(*given, method, gradient=gradient, step_size=0.1 if method == "bdf3" else 0.2)

    assert gradgradcheck(solved, inputs(), fast_mode=True, nondet_tol=1e-9)


@pytest.mark.parametrize("method", ["backward_euler", "bdf2"])
@pytest.mark.parametrize("store", [False, True], ids=["f again", "its graphs"])
def test_gradgradcheck_where_the_transposed_solves_are_iterative(method: str, store: bool) -> None:
    def solved(*given: Tensor) -> Tensor:
        return run(*given, method, store_graph=store)

    assert gradgradcheck(solved, inputs(LARGE), fast_mode=True, nondet_tol=1e-9)


def second(x: Inputs, way: Tensor, method: str) -> Tensor:
    """The second derivative of a loss along a way in the weights."""
    y0, weights, leaf, t = x
    (first,) = grad(run(y0, weights, leaf, t, method)[-1].sin().sum(), weights, create_graph=True)
    (twice,) = grad(first @ way, weights, create_graph=True)
    return twice @ way


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("method", ["rk4", "backward_euler", "bdf2"])
def test_the_third_derivative_is_the_slope_of_the_second(method: str, n: int) -> None:
    y0, weights, leaf, t = inputs(n)
    way = torch.cos(torch.arange(n, dtype=torch.float64))
    (third,) = grad(second((y0, weights, leaf, t), way, method), weights)
    beside = [(weights + e * way).detach().requires_grad_() for e in (1e-4, -1e-4)]
    up, down = (float(second((y0, w, leaf, t), way, method).detach()) for w in beside)
    assert float(third @ way) == pytest.approx((up - down) / 2e-4, rel=1e-5)


@pytest.mark.parametrize("n", [8, LARGE])
def test_a_product_with_the_hessian_has_its_closed_form_on_a_linear_problem(n: int) -> None:
    """Backward Euler on y' = rate A y: after m steps it is (I - h rate A)^-m y0."""
    generator = torch.Generator().manual_seed(0)
    matrix = -torch.eye(n, dtype=torch.float64) + 0.1 * torch.randn(n, n, generator=generator, dtype=torch.float64) / n
    y0, vy = torch.randn(2, n, generator=generator, dtype=torch.float64)
    rate = torch.tensor(2.0, dtype=torch.float64)
    vr = torch.tensor(0.7, dtype=torch.float64)

    def stepped(y: Tensor, r: Tensor) -> Tensor:
        options = {"step_size": 0.25, "inner_tol": 1e-14}
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        return proxode.odeint(lambda t, x: r * (matrix @ x), y, ends, method="backward_euler", options=options)[-1]

    def closed(y: Tensor, r: Tensor) -> Tensor:
        return torch.linalg.matrix_power(torch.linalg.inv(torch.eye(n, dtype=y.dtype) - 0.25 * r * matrix), 4) @ y

    def product(solution: Callable[[Tensor, Tensor], Tensor]) -> Inputs:
        y, r = y0.clone().requires_grad_(), rate.clone().requires_grad_()
        gy, gr = grad(0.5 * solution(y, r).square().sum(), (y, r), create_graph=True)
        return grad(gy @ vy + gr * vr, (y, r))

    assert_close(product(stepped), product(closed), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@pytest.mark.parametrize("gradient", ["checkpoint", "continuous"])
def test_second_derivatives_that_there_are_not_say_which_gradient_has_them(gradient: str, method: str) -> None:
    y0, weights, leaf, _ = inputs()
    y = run(y0, weights, leaf, T, method, gradient=gradient)
    with pytest.raises(RuntimeError, match=rf"second derivatives with gradient='{gradient}' .* 'implicit'"):
        grad(y[-1].sum(), weights, create_graph=True)


# Forward mode


def ways(n: int) -> Inputs:
    generator = torch.Generator().manual_seed(3)
    vy, vw = torch.randn(2, n, generator=generator, dtype=torch.float64)
    return vy, vw, torch.tensor([0.8], dtype=torch.float64)


def pushed(n: int, method: str, which: tuple[int, ...], **options: Any) -> Tensor:
    """The tangent of the outputs, where some of y0, weights and leaf have one."""
    given = [x.detach() for x in inputs(n)]
    with forward_ad.dual_level():
        for i in which:
            given[i] = forward_ad.make_dual(given[i], ways(n)[i])
        return forward_ad.unpack_dual(run(*given, method, **options)).tangent


def moved(n: int, method: str, which: tuple[int, ...], e: float) -> Tensor:
    given = [x.detach() for x in inputs(n)]
    for i in which:
        given[i] = given[i] + e * ways(n)[i]
    return run(*given, method)


ALL = (0, 1, 2)
CASES = [*((SMALL, name) for name in METHODS), *((LARGE, name) for name in ("rk4", "backward_euler", "bdf3"))]


@pytest.mark.parametrize(("n", "method"), CASES)
def test_the_tangent_of_a_solve_is_its_difference_and_the_transpose_of_its_gradient(n: int, method: str) -> None:
    tangent = pushed(n, method, ALL)
    e, off = (1e-2, 1e-3) if METHODS[method].adaptive else (1e-5, 1e-7)
    assert_close(tangent, (moved(n, method, ALL, e) - moved(n, method, ALL, -e)) / (2 * e), rtol=off, atol=off)
    given = inputs(n)
    share = torch.randn(tangent.shape, generator=torch.Generator().manual_seed(4), dtype=tangent.dtype)
    pulled = grad((share * run(*given, method)).sum(), given[:3])
    backward = sum(float((g * v).sum()) for g, v in zip(pulled, ways(n), strict=True))
    assert float((share * tangent).sum()) == pytest.approx(backward, rel=1e-6)


@pytest.mark.parametrize("which", [(0,), (1,), (2,)], ids=["y0", "weights", "captured"])
@pytest.mark.parametrize("gradient", ["implicit", "direct"])
@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_each_input_may_have_the_only_tangent(n: int, gradient: str, which: tuple[int, ...]) -> None:
    expected = (moved(n, "bdf2", which, 1e-5) - moved(n, "bdf2", which, -1e-5)) / 2e-5
    assert_close(pushed(n, "bdf2", which, gradient=gradient), expected, rtol=1e-5, atol=1e-8)


def test_the_value_of_a_dual_solve_is_that_of_a_plain_one() -> None:
    given = [x.detach() for x in inputs()]
    with forward_ad.dual_level():
        dual = run(forward_ad.make_dual(given[0], ways(SMALL)[0]), *given[1:], "bdf2")
        primal = forward_ad.unpack_dual(dual).primal
    assert torch.equal(primal, run(*given, "bdf2"))


# What is refused


def test_forward_over_backward_is_refused() -> None:
    given = inputs()
    with forward_ad.dual_level():
        y0 = forward_ad.make_dual(given[0], ways(SMALL)[0])
        y = run(y0, *given[1:3], T, "bdf2")
        with pytest.raises(NotImplementedError, match="forward mode over the backward of a proximal step"):
            grad(y[-1].square().sum(), given[1])


def test_reverse_over_a_tangent_is_refused() -> None:
    given = inputs()
    with forward_ad.dual_level():
        y0 = forward_ad.make_dual(given[0], ways(SMALL)[0])
        tangent = forward_ad.unpack_dual(run(y0, *given[1:3], T, "bdf2")).tangent
        with pytest.raises(NotImplementedError, match="reverse mode over the tangent of a proximal step"):
            grad(tangent[-1].sum(), given[1])


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
def test_a_tangent_of_the_times_is_refused(method: str) -> None:
    given = [x.detach() for x in inputs()]
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="with respect to `t`"):
        run(*given[:3], forward_ad.make_dual(T, torch.ones_like(T)), method)


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@pytest.mark.parametrize("gradient", ["checkpoint", "continuous"])
def test_forward_mode_with_a_gradient_that_replays_is_refused(gradient: str, method: str) -> None:
    given = [x.detach() for x in inputs()]
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=f"forward mode with gradient='{gradient}'"):
        run(forward_ad.make_dual(given[0], ways(SMALL)[0]), *given[1:], method, gradient=gradient)


def transforms(method: str) -> dict[str, Callable[[Tensor], Any]]:
    _, weights, leaf, _ = (x.detach() for x in inputs())

    def last(y0: Tensor) -> Tensor:
        return run(y0, weights, leaf, T, method)[-1]

    return {
        "grad": torch.func.grad(lambda y0: last(y0).sum()),
        "jvp": lambda y0: torch.func.jvp(last, (y0,), (torch.ones_like(y0),))[1],
        "jacrev": torch.func.jacrev(last),
        "vmap": lambda y0: torch.func.vmap(last)(torch.stack([y0, 2 * y0])),
    }


@pytest.mark.parametrize("name", ["grad", "jvp", "jacrev"])
@pytest.mark.parametrize("method", ["backward_euler", "bdf2"])
def test_transforms_of_torch_func_over_a_proximal_method_are_refused(method: str, name: str) -> None:
    with pytest.raises(NotImplementedError, match=r"torch.func .* over a proximal method"):
        transforms(method)[name](inputs()[0].detach())


@pytest.mark.parametrize("method", ["rk4", "dopri5", "rkc2", "bdf2"])
def test_vmap_over_any_method_is_refused_and_what_it_is_for_is_told(method: str) -> None:
    y0 = inputs()[0].detach()
    mapped_parameter = torch.func.vmap(lambda k: proxode.odeint(lambda t, y: -k * y, y0, T, method=method))
    for call in (
        lambda: transforms(method)["vmap"](y0),
        lambda: torch.func.vmap(transforms(method)["grad"])(y0[None]),
        lambda: mapped_parameter(torch.ones(3, dtype=torch.float64)),
    ):
        with pytest.raises(NotImplementedError, match=r"vmap over a solve .* batch as y0 .* per_sample=True.* a loop"):
            call()


@pytest.mark.parametrize("method", ["dopri5", "bdf"])
def test_vmap_over_solves_of_samples_is_refused(method: str) -> None:
    with pytest.raises(NotImplementedError, match="vmap over a solve"):
        torch.func.vmap(
            lambda y: proxode.solve(lambda t, y: -y, y, 0.0, 1.0, method=method, per_sample=True).ys
        )(torch.ones(2, 3, 4))  # fmt: skip


def test_transforms_over_bdf_of_samples_are_refused() -> None:
    def total(y: Tensor) -> Tensor:
        return proxode.solve(lambda t, y: -y, y, 0.0, 1.0, method="bdf", per_sample=True).ys[-1].sum()

    with pytest.raises(NotImplementedError, match="over a proximal method"):
        torch.func.grad(total)(torch.ones(3, 4))


@pytest.mark.parametrize("gradient", ["checkpoint", "continuous"])
def test_transforms_of_torch_func_with_a_gradient_that_replays_are_refused(gradient: str) -> None:
    y0, weights, leaf, _ = (x.detach() for x in inputs())
    with pytest.raises(NotImplementedError, match=f"torch.func with gradient='{gradient}' .* 'implicit'"):
        torch.func.grad(lambda y: run(y, weights, leaf, T, "rk4", gradient=gradient)[-1].sum())(y0)


@pytest.mark.parametrize("method", ["rk4", "dopri5", "rkc2"])
def test_transforms_of_torch_func_over_an_explicit_method_are_right(method: str) -> None:
    y0, weights, leaf, _ = inputs()
    rows = torch.autograd.functional.jacobian(lambda y: run(y, weights, leaf, T, method)[-1], y0)
    assert_close(transforms(method)["grad"](y0.detach()), rows.sum(0))
    assert_close(transforms(method)["jacrev"](y0.detach()), rows)
    assert_close(transforms(method)["jvp"](y0.detach()), rows.sum(1))
    if method != "rkc2":  # which draws a direction, as vmap over a tangent does not want it
        assert_close(torch.func.jacfwd(lambda y: run(y, weights, leaf, T, method)[-1])(y0.detach()), rows)


@pytest.mark.parametrize("method", ["dopri5", "bdf"])
def test_inside_of_f_torch_func_works(method: str) -> None:
    net = torch.nn.Linear(3, 3).double()
    parameters = dict(net.named_parameters())

    def called(t: Tensor, y: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: torch.func.functional_call(net, parameters, (row,)))(y)

    start = torch.ones(2, 3, dtype=torch.float64)
    found, known = (
        grad(proxode.odeint(f, start, T, method=method)[-1].sum(), list(parameters.values()))
        for f in (called, lambda t, y: net(y))
    )
    assert_close(found, known, rtol=1e-6, atol=1e-9)
