"""What code written for torchdiffeq relies on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.methods import METHODS

EXPLICIT = [name for name, method in METHODS.items() if not method.implicit]
PROXIMAL = [name for name, method in METHODS.items() if method.implicit]
TRIO = ["rk4", "dopri5", "bdf2"]
every_method = pytest.mark.parametrize("method", METHODS)
trio = pytest.mark.parametrize("method", TRIO)

T = torch.linspace(0, 1, 5, dtype=torch.float64)
Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)


def steps(method: str, size: float = 0.05, **options: Any) -> dict[str, Any]:
    return {**options, **({} if METHODS[method].adaptive else {"step_size": size})}


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -y + torch.sin(t)


@every_method
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 2)])
def test_the_output_has_a_row_for_each_time_and_the_shape_of_y0(method: str, shape: tuple[int, ...]) -> None:
    y0 = torch.full(shape, 0.5, dtype=torch.float64)
    y = proxode.odeint(decay, y0, T, method=method, options=steps(method, 0.25), rtol=1e-3)
    assert y.shape == (5, *shape) and y.dtype == y0.dtype
    assert torch.equal(y[0], y0)


@every_method
def test_all_methods_agree_to_their_accuracy(method: str) -> None:
    y = proxode.odeint(decay, Y0, T, method=method, options=steps(method, 0.01), rtol=1e-5, atol=1e-7)
    exact = 0.5 * (torch.sin(T) - torch.cos(T)).unsqueeze(-1) + torch.exp(-T).unsqueeze(-1) * (Y0 + 0.5)
    error = float((y.detach() - exact).abs().max())
    assert error < (1e-4 if METHODS[method].adaptive else {1: 1e-2, 2: 3e-4}.get(METHODS[method].order, 3e-6))


@every_method
def test_the_output_requires_grad_only_where_something_does(method: str) -> None:
    options, weight = steps(method, 0.5), torch.tensor(1.0, dtype=torch.float64)
    for y_needs, t_needs, w_needs in product((False, True), repeat=3):
        y0, t, w = Y0.clone(), T[::2].clone(), weight.clone()
        for tensor, needs in ((y0, y_needs), (t, t_needs), (w, w_needs)):
            tensor.requires_grad_(needs)
        y = proxode.odeint(lambda t, y, w=w: -w * y, y0, t, method=method, options=options, rtol=1e-3)
        assert y.requires_grad == (y_needs or t_needs or w_needs)


@every_method
def test_parts_of_a_tuple_keep_their_shapes_and_0_dim_ones_stay_so(method: str) -> None:
    seen = set()

    def f(t: Tensor, y: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.add(tuple(part.shape for part in y))
        return -y[0], y[1] * y[0], -y[2]

    y0 = (torch.tensor(1.0), torch.ones(2), torch.ones(2, 2))
    y = proxode.odeint(f, y0, T, method=method, options=steps(method, 0.25), rtol=1e-3, atol=1e-4)
    assert seen == {((), (2,), (2, 2))}
    assert [part.shape for part in y] == [(5,), (5, 2), (5, 2, 2)]


@every_method
def test_a_single_time_returns_y0_alone(method: str) -> None:
    assert torch.equal(proxode.odeint(decay, Y0, T[:1], method=method), Y0[None])
    parts = proxode.odeint(lambda t, y: y, (Y0, Y0[0]), T[:1], method=method)
    assert torch.equal(parts[0], Y0[None]) and torch.equal(parts[1], Y0[:1])


@trio
def test_f_receives_a_0_dim_time_in_the_real_dtype_of_the_state(method: str) -> None:
    seen = set()

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.add((t.dtype, t.shape, t.requires_grad))
        return -y

    for y_dtype, t_dtype in ((torch.float64, torch.float32), (torch.float32, torch.float64)):
        y = proxode.odeint(f, Y0.to(y_dtype), T.to(t_dtype), method=method, options=steps(method), rtol=1e-4)
        assert y.dtype == y_dtype
        assert seen == {(y_dtype, torch.Size([]), False)}
        seen.clear()


class Trace(nn.Module):
    """As FFJORD: it needs a graph of its own inside, and draws its noise at the first call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).double()
        self.noise: Tensor | None = None

    def forward(self, t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        y = state[0]
        if self.noise is None:
            self.noise = torch.randn_like(y)
        assert self.noise.shape == y.shape
        with torch.enable_grad():
            y.requires_grad_(True)
            dy = self.net(y) - y
            (pulled,) = torch.autograd.grad(dy, y, self.noise, create_graph=True)
        return dy, -(pulled * self.noise).sum(-1)


@every_method
def test_f_may_differentiate_itself_whatever_the_grad_mode(method: str) -> None:
    y0 = (torch.tensor([[0.3, -0.4], [1.0, 0.1]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    results, t = [], T[::4]
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        trace = Trace()
        with mode():
            results.append(proxode.odeint(trace, y0, t, method=method, options=steps(method, 0.5), rtol=1e-4))
        assert not any(part.requires_grad for part in y0)
    assert not any(part.requires_grad for result in results[1:] for part in result)
    for result in results[1:]:
        assert_close(result, tuple(part.detach() for part in results[0]), rtol=1e-12, atol=1e-12)


@trio
def test_f_that_differentiates_itself_leaves_a_plain_y0_alone(method: str) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            y.requires_grad_(True)
            return -torch.autograd.grad((y**4).sum() / 4, y, create_graph=True)[0]

    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            y0 = Y0.clone()
            y = proxode.odeint(f, y0, T, method=method, options=steps(method))
        assert not y0.requires_grad
        assert_close(y[-1].detach(), Y0 / (1 + 2 * Y0**2).sqrt(), rtol=1e-2, atol=0.0)


class OwnError(Exception):
    pass


@every_method
def test_an_exception_of_f_comes_out_as_it_is(method: str) -> None:
    error = OwnError("mine")

    def f(t: Tensor, y: Tensor) -> Tensor:
        if float(t) > 0.4:
            raise error
        return -y

    with pytest.raises(OwnError) as caught:
        proxode.odeint(f, Y0, T, method=method, options=steps(method))
    assert caught.value is error


@every_method
def test_an_exception_in_the_backward_of_f_comes_out_as_it_is(method: str) -> None:
    error = OwnError("mine")

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return -x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            raise error

    y0 = Y0.clone().requires_grad_()
    options = steps(method, 0.25, **({"inner": "fr"} if method in PROXIMAL else {}))
    y = proxode.odeint(lambda t, y: Broken.apply(y), y0, T, method=method, options=options, rtol=1e-3)
    with pytest.raises(OwnError) as caught:
        y.sum().backward()
    assert caught.value is error


@every_method
def test_decreasing_times_solve_the_reversed_equation(method: str) -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.sin(y) * t + 0.5

    t, options = torch.tensor([2.0, 1.7, 1.1], dtype=torch.float64), steps(method, 0.1)
    down = proxode.odeint(f, Y0, t, method=method, options=options, rtol=1e-4)
    up = proxode.odeint(lambda s, y: -f(-s, y), Y0, -t, method=method, options=options, rtol=1e-4)
    assert_close(down, up, rtol=1e-13, atol=1e-13)


@every_method
def test_complex_states_turn_with_explicit_methods_and_are_refused_by_proximal_ones(method: str) -> None:
    y0 = torch.tensor([1.0 + 0.0j, 0.0 + 2.0j], dtype=torch.complex128)
    if method in PROXIMAL and method != "auto":  # which is its explicit part for these
        with pytest.raises(TypeError, match=r"`y0` is torch.complex128.*view_as_real"):
            proxode.odeint(lambda t, y: 1j * y, y0, T, method=method, options=steps(method))
        return
    options = {} if method == "auto" else steps(method, 0.01)
    y = proxode.odeint(lambda t, y: 1j * y, y0, T, method=method, options=options, rtol=1e-5, atol=1e-6)
    assert_close(y, torch.exp(1j * T).unsqueeze(-1) * y0, rtol=2e-2 if method == "euler" else 1e-3, atol=1e-4)


@trio
def test_an_f_that_reuses_its_output_buffer_is_refused(method: str) -> None:
    buffer = torch.empty_like(Y0)

    def f(t: Tensor, y: Tensor) -> Tensor:
        buffer.copy_(-y)
        return buffer

    with pytest.raises(ValueError, match="new tensor"):
        proxode.odeint(f, Y0, T, method=method, options=steps(method))


@trio
def test_an_f_that_returns_views_of_one_buffer_is_refused(method: str) -> None:
    """The value itself is not held: only its memory is known."""
    buffer = torch.empty_like(Y0)

    def f(t: Tensor, y: Tensor) -> Tensor:
        buffer.copy_(-y)
        return buffer.view_as(y)

    with pytest.raises(ValueError, match="new tensor"):
        proxode.odeint(f, Y0, T, method=method, options=steps(method))


@trio
def test_a_constant_f_and_an_f_that_returns_its_input_are_fine(method: str) -> None:
    constant = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = proxode.odeint(lambda t, y: constant, Y0, T, method=method, options=steps(method))
    assert_close(y[-1], Y0 + constant)
    assert_close(torch.autograd.grad(y[-1].sum(), constant)[0], torch.ones(2, dtype=torch.float64))
    y = proxode.odeint(lambda t, y: y, Y0, T, method=method, options=steps(method))
    assert_close(y[-1], Y0 * torch.e, rtol=1e-2, atol=0.0)


@trio
def test_func_may_be_a_module_a_lambda_or_a_method(method: str) -> None:
    class Holder(nn.Module):
        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return decay(t, y)

        def alias(self, t: Tensor, y: Tensor) -> Tensor:
            return decay(t, y)

    functions: list[Callable[..., Tensor]] = [Holder(), lambda t, y: decay(t, y), Holder().alias, decay]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = [proxode.odeint(f, Y0, T, method=method, options=steps(method)) for f in functions]
    assert all(torch.equal(result, results[0]) for result in results)
