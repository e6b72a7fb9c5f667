"""NeuralODE: a solve as a module."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode
from proxode.nn import NeuralODE

A = torch.tensor([[-1.0, 2.0], [0.5, -30.0]], dtype=torch.float64)
Y0 = torch.tensor([[1.0, -0.5], [0.2, 0.7], [2.0, 1.0]], dtype=torch.float64)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(A.clone())

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return y @ self.matrix.mT


def exact(t: float) -> Tensor:
    return Y0 @ torch.linalg.matrix_exp(A * t).mT


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
def test_the_state_at_the_end(method: str) -> None:
    layer = NeuralODE(Linear(), 0.7, method=method, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(layer(Y0), exact(0.7), rtol=1e-4, atol=1e-6)
    assert layer.stats is not None and 0 < layer.stats.nfe_forward < 1_500


def test_states_at_times_and_back() -> None:
    times = torch.tensor([0.0, 0.1, 0.4], dtype=torch.float64)
    layer = NeuralODE(Linear(), times=times, rtol=1e-9, atol=1e-11, method="dopri5")
    ys = layer(Y0)
    torch.testing.assert_close(ys, torch.stack([exact(t) for t in times.tolist()]), rtol=1e-6, atol=1e-8)
    there = NeuralODE(Linear(), 0.1, rtol=1e-10, atol=1e-12, method="dopri5")
    torch.testing.assert_close(there(there(Y0), reverse=True), Y0, rtol=1e-6, atol=1e-6)
    back = layer(exact(0.4), reverse=True)
    assert back.shape == (3, 3, 2)
    torch.testing.assert_close(back[1], exact(0.1), rtol=1e-3, atol=1e-3)  # exp(9) times what the solve misses


def test_parameters_are_registered_once_and_get_their_gradient() -> None:
    func = Linear()
    layer = NeuralODE(func, 0.3, method="bdf2", step_size=0.05, inner_tol=1e-13)
    assert [name for name, _ in layer.named_parameters()] == ["func.matrix"]
    assert list(layer.state_dict()) == ["func.matrix"]
    layer(Y0).square().sum().backward()
    found = func.matrix.grad
    plain = copy.deepcopy(func)
    run = proxode.solve(
        plain, Y0, 0.0, 0.3, method="bdf2", step_size=0.05, inner_tol=1e-13, gradient="direct", inner="newton"
    )  # fmt: skip
    run.ys[-1].square().sum().backward()
    torch.testing.assert_close(found, plain.matrix.grad, rtol=1e-8, atol=1e-10)
    assert layer.stats is not None and layer.stats.nfe_backward > 0


def test_the_end_may_be_learned() -> None:
    end = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    layer = NeuralODE(Linear(), end, rtol=1e-8, atol=1e-10, method="dopri5")
    assert {name for name, _ in layer.named_parameters()} == {"func.matrix", "t1"}
    layer(Y0)[0, 0].backward()
    expected = (exact(0.5) @ A.mT)[0, 0]
    assert end.grad is not None and float(end.grad) == pytest.approx(float(expected), rel=1e-5)


def test_tuples_and_quadrature() -> None:
    """The divergence of a linear flow is its trace."""

    def f(t: Any, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return y[0] @ A.mT, A.trace().expand(len(y[0]))

    layer = NeuralODE(f, 0.5, method="bdf", inner="newton", rtol=1e-6, atol=1e-8, quadrature=1)
    y, integral = layer((Y0, torch.zeros(3, dtype=torch.float64)))
    torch.testing.assert_close(y, exact(0.5), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(integral, torch.full_like(integral, -15.5))
    assert layer.stats is not None and layer.stats.n_jac % 6 == 0 < layer.stats.n_jac  # and not the nine rows of all
    assert list(layer.parameters()) == []


def test_it_trains_inside_a_network() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = x.square().sum(1, keepdim=True).sqrt()
    body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    class Rate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, t: Tensor, h: Tensor) -> Tensor:
            return self.body(h)

    model = nn.Sequential(NeuralODE(Rate(), 1.0), nn.Linear(3, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]


def test_it_is_copied_saved_and_shown() -> None:
    layer = NeuralODE(Linear(), 2.0, method="bdf2", step_size=0.1)
    layer(Y0)
    assert copy.deepcopy(layer).stats == layer.stats
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    layer.load_state_dict(torch.load(file, weights_only=True))
    assert "t1=2.0, method='bdf2'" in repr(layer)
    few, many = (proxode.nn.NeuralODE(layer.func, times=torch.linspace(0, 1, n)) for n in (6, 50))
    assert "times=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]" in repr(few) and "0.0408163, ..., 1.0]" in repr(many)


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(TypeError, match="`func` must be callable"):
        NeuralODE(3.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'save_at' \(a layer calls it times"):
        NeuralODE(Linear(), save_at=torch.tensor([0.0, 1.0]))
    with pytest.raises(TypeError, match="unknown options: 'toleranec'"):
        NeuralODE(Linear(), toleranec=1)
    with pytest.raises(ValueError, match="method"):
        NeuralODE(Linear(), method="dopri6")
    with pytest.raises(TypeError, match="`times`"):
        NeuralODE(Linear(), times=[0.0, 1.0])  # type: ignore[arg-type]


def test_a_failed_solve_says_what_it_cost() -> None:
    layer = NeuralODE(Linear(), 1.0, method="dopri5", max_steps=3)
    with pytest.raises(proxode.SolverError, match="number of steps"):
        layer(Y0)
    assert layer.stats is not None and layer.stats.n_steps >= 3 and math.isfinite(layer.stats.nfe_forward)


def test_the_solve_of_a_layer_with_its_own_times_and_tolerances_or_others() -> None:
    times = torch.linspace(0, 3, 7, dtype=torch.float64)
    layer = NeuralODE(lambda t, y: -100 * (y - torch.cos(t)), times=times, rtol=1e-3, atol=1e-3)
    y0 = torch.ones(2, dtype=torch.float64)
    assert (layer.t0, layer.t1) == (0.0, 3.0)
    solution = layer.solve(y0)
    assert torch.equal(solution.ys, layer(y0)) and torch.equal(solution.ts, times)
    assert "t = 0 to 3" in solution.summary()
    tight = layer.solve(y0, rtol=1e-8, atol=1e-8)
    assert tight.stats.n_steps > 2 * solution.stats.n_steps and layer.settings["rtol"] == 1e-3
    assert torch.equal(layer.solve(y0, method="dopri5", save_at=None).ts, times[[0, -1]])


@pytest.mark.parametrize("name", ["t1", "t0", "times", "func"])
def test_what_a_layer_has_is_not_given_to_one_of_its_solves(name: str) -> None:
    with pytest.raises(TypeError, match=rf"does not take `{name}`.*NeuralODE\(layer.func, t1=...\)"):
        NeuralODE(Linear()).solve(Y0, **{name: 2.0})


def test_times_in_the_place_of_the_last_one_are_told_where_they_belong() -> None:
    times = torch.linspace(0, 3, 7)
    with pytest.raises(TypeError, match=r"give several as NeuralODE\(func, times=...\)"):
        NeuralODE(lambda t, y: -y, times)
    with pytest.raises(TypeError, match="`t1` and `times` exclude each other"):
        NeuralODE(lambda t, y: -y, 2.0, times=times)


@pytest.mark.parametrize("name", ["rtol", "atol", "method", "inner", "gradient", "step_size"])
def test_a_setting_that_would_change_no_solve_is_refused(name: str) -> None:
    layer = NeuralODE(lambda t, y: -y, 2.0)
    with pytest.raises(AttributeError, match=rf"layer.settings\['{name}'\] = .*layer.solve\(y0, {name}="):
        setattr(layer, name, 1e-6)


@pytest.mark.parametrize("trained", [True, False])
def test_ends_are_those_of_the_times_where_there_are_such(trained: bool) -> None:
    times = torch.linspace(0.0, 1.0, 3)
    layer = NeuralODE(lambda t, y: -y, times=nn.Parameter(times) if trained else times)
    with pytest.raises(AttributeError, match="`t1` of this NeuralODE is that of its `times`"):
        layer.t1 = 3.0
    free = NeuralODE(lambda t, y: -y)
    free.t1 = 3.0
    free.settings |= {"rtol": 1e-7, "atol": 1e-9}
    assert float(free(torch.ones(1))) == pytest.approx(math.exp(-3.0), rel=1e-5)
