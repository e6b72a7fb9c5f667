"""`compile=True`: the same solution, steps, NFE and gradients, compiled once. Here by a backend that only traces."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import proxode
import proxode.compiled

TIMES = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
METHODS = ("dopri5", "bosh3", "dopri8", "rk4", "bdf", "auto")
CASES = [*((method, TIMES) for method in METHODS), *((method, TIMES.flip(0)) for method in ("dopri5", "bdf"))]


@pytest.fixture(autouse=True)
def tracing(monkeypatch: pytest.MonkeyPatch):
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(proxode.compiled, "BACKEND", "eager")
    yield
    torch._dynamo.reset()


def pendulum(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0]) - 0.1 * t * y[1]])


def run(f, y0, method: str, t: Tensor = TIMES, **options):
    with torch.no_grad(), proxode.record() as stats:
        y = proxode.odeint(f, y0, t, rtol=1e-6, atol=1e-8, method=method, options=options)
    return y, stats


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(("method", "t"), CASES)
def test_solution_steps_and_nfe_are_those_of_the_plain_solve(method: str, t: Tensor) -> None:
    y0 = torch.tensor([[1.0, 0.5], [0.2, -0.3]], dtype=torch.float64)
    plain, cost = run(pendulum, y0, method, t)
    compiled, own = run(pendulum, y0, method, t, compile=True)
    assert graphs() > 0
    assert torch.allclose(plain, compiled, rtol=1e-9, atol=1e-11)
    assert (own.nfe_forward, own.n_steps, own.n_f) == (cost.nfe_forward, cost.n_steps, cost.n_f)


@pytest.mark.parametrize("method", ["dopri5", "bdf"])
def test_a_tuple_and_float32(method: str) -> None:
    y0 = torch.rand(3, 2), torch.tensor(0.5)

    def f(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        assert t.dtype == torch.float32 and t.dim() == 0
        return -y[0] * y[1], y[0].mean() * torch.ones_like(y[1])

    for plain, compiled in zip(run(f, y0, method)[0], run(f, y0, method, compile=True)[0], strict=True):
        assert torch.allclose(plain, compiled, rtol=1e-4)


def test_a_second_solve_compiles_nothing_also_through_a_new_function_of_the_same_code() -> None:
    net = nn.Linear(2, 2).double()

    def made():
        return lambda t, y: net(y)

    y0 = torch.ones(2, dtype=torch.float64)
    run(made(), y0, "dopri5", compile=True)
    before = graphs()
    assert before == 2  # f and the step
    expected = run(made(), 2 * y0, "dopri5")[0]
    assert torch.allclose(run(made(), 2 * y0, "dopri5", compile=True)[0], expected)
    with torch.no_grad():
        net.weight.mul_(0.5)
    expected = run(made(), y0, "dopri5")[0]
    assert torch.allclose(run(made(), y0, "dopri5", TIMES + 0.25, compile=True)[0], expected)
    assert graphs() == before


@pytest.mark.parametrize("method", ["dopri5", "bdf2"])
@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
def test_gradients_are_those_of_the_plain_solve(method: str, gradient: str) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    grads = []
    for compiling in (False, True):
        y0 = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
        solution = proxode.solve(
            lambda t, y: net(y) - y, y0, 0.0, 1.0, method=method, gradient=gradient, rtol=1e-4, atol=1e-5,
            compile=compiling,
        )
        grads.append(torch.autograd.grad(solution.ys[-1].square().sum(), [y0, *net.parameters()]))
    for plain, compiled in zip(*grads, strict=True):
        assert torch.allclose(plain, compiled, rtol=1e-3, atol=1e-5)


def test_second_derivatives_are_right() -> None:
    y0 = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    y = proxode.odeint(lambda t, y: -y * y, y0, TIMES, method="dopri5", options={"compile": True})[-1]
    (first,) = torch.autograd.grad(y, y0, create_graph=True)
    (second,) = torch.autograd.grad(first, y0)
    assert torch.allclose(first.detach(), 1.0 / (1.0 + y0.detach()) ** 2, rtol=1e-6)  # y = y0 / (1 + y0 t)
    assert torch.allclose(second, -2.0 / (1.0 + y0.detach()) ** 3, rtol=1e-6)


def test_events_dense_output_and_the_stepper_go_along() -> None:
    y0 = torch.tensor([1.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        for given in ({"event": lambda t, y: y[0]}, {"dense": True}):
            plain, compiled = (
                proxode.solve(pendulum, y0, 0.0, 3.0, method="dopri5", rtol=1e-8, compile=compiling, **given)
                for compiling in (False, True)
            )
            assert torch.allclose(plain.ys, compiled.ys, rtol=1e-8)
        assert torch.allclose(plain.evaluate(1.234), compiled.evaluate(1.234), rtol=1e-8)
        stepper = proxode.Stepper(pendulum, y0, 0.0, t1=3.0, method="dopri5", rtol=1e-8, compile=True)
        while not stepper.done:
            stepper.step()
        assert torch.equal(stepper.y, compiled.ys[-1])


def test_what_cannot_be_compiled_is_an_error_that_names_the_option() -> None:
    def branching(t: Tensor, y: Tensor) -> Tensor:
        return -y if bool(y.sum() > 0) else y

    y0 = torch.ones(2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"`compile`.*leave `compile` out"):
        run(branching, y0, "dopri5", compile=True)
    with pytest.raises(TypeError, match="`compile`"):
        run(pendulum, y0, "dopri5", compile="yes")
    with pytest.raises(NotImplementedError, match="`compile`"):
        proxode.solve(pendulum, torch.ones(2, 1), 0.0, 1.0, per_sample=True, compile=True)


def test_a_backend_without_a_compiler_is_an_error_that_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(graph, inputs):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(proxode.compiled, "BACKEND", backend)
    with pytest.raises(RuntimeError, match=r"`compile`.*no C\+\+ compiler"):
        run(pendulum, torch.ones(2, dtype=torch.float64), "dopri5", compile=True)
