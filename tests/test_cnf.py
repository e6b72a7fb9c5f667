"""Continuous normalising flows: closed determinants, traces, densities that integrate to one, ways back."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode
from proxode.nn import CNF, TimeNet, vector_flow
from proxode.nn.divergence import draw_noise, exact_divergence, hutchinson
from proxode.nn.flow import Flow, standard_normal

A = torch.tensor([[-0.8, 0.5, 0.1], [0.3, 0.4, -0.2], [0.0, 0.7, -1.1]], dtype=torch.float64)
X = torch.tensor([[1.0, -0.5, 0.3], [0.2, 0.7, -1.2]], dtype=torch.float64)


class Linear(nn.Module):
    def __init__(self, matrix: Tensor = A) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix.clone())

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return x @ self.matrix.mT


def net(size: int = 3, seed: int = 0, **options: Any) -> TimeNet:
    torch.manual_seed(seed)
    made = TimeNet(size, (16, 16), **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2.0)
    return made


def jacobians(f: nn.Module, t: Tensor, x: Tensor) -> Tensor:
    """Sample by sample, by autograd's own."""
    return torch.stack([torch.autograd.functional.jacobian(lambda v: f(t, v[None])[0], one) for one in x])


# The divergence


@pytest.mark.parametrize("options", [{"layer": "squash"}, {"layer": "concat", "activation": "softplus"}])
def test_the_exact_divergence_is_the_trace(options: dict[str, Any]) -> None:
    f, t = net(**options), torch.tensor(0.4, dtype=torch.float64)
    x = X.clone().requires_grad_()
    found = exact_divergence(f(t, x), x, create_graph=False)
    traces = jacobians(f, t, X).diagonal(dim1=1, dim2=2).sum(1)
    torch.testing.assert_close(found, traces)
    assert float(traces.abs().min()) > 0.01


def test_a_rate_that_does_not_see_the_state_has_no_divergence() -> None:
    x = X.clone().requires_grad_()
    constant = torch.ones_like(X)
    assert float(exact_divergence(constant, x, create_graph=False).abs().sum()) == 0.0
    shifted = hutchinson(constant.clone().requires_grad_(), x, constant, create_graph=False)
    assert float(shifted.abs().sum()) == 0.0


@pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
def test_the_estimate_has_no_bias(kind: str) -> None:
    f, t, draws = net(), torch.tensor(0.4, dtype=torch.float64), 20_000
    x = X[:1].expand(draws, 3).clone().requires_grad_()
    noise = draw_noise(x, kind, torch.Generator().manual_seed(0))
    estimates = hutchinson(f(t, x), x, noise, create_graph=False)
    trace = float(jacobians(f, t, X[:1])[0].trace())
    error = float(estimates.std()) / math.sqrt(draws)
    assert 0 < error < 0.05
    assert float(estimates.mean()) == pytest.approx(trace, abs=4 * error)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.02) and float(noise.var()) == pytest.approx(1.0, abs=0.02)


def test_signs_are_exact_on_a_diagonal_jacobian() -> None:
    x = X.clone().requires_grad_()
    found = hutchinson(x**3, x, draw_noise(x, "rademacher"), create_graph=False)
    torch.testing.assert_close(found, 3 * X.square().sum(1))


# One flow


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto"])
def test_a_linear_flow_has_the_determinant_of_its_exponential(method: str) -> None:
    cnf = CNF(Linear(), 0.8, method=method, rtol=1e-7, atol=1e-9)
    z, log_det = cnf(X)
    moved = torch.linalg.matrix_exp(0.8 * A)
    torch.testing.assert_close(z, X @ moved.mT, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(log_det, moved.det().log().expand(2), rtol=1e-6, atol=1e-7)
    density = Flow([cnf], (3,)).log_prob(X)
    torch.testing.assert_close(density, standard_normal(X @ moved.mT) + 0.8 * A.trace(), rtol=1e-5, atol=1e-6)


def test_change_of_variables_on_a_network() -> None:
    """log |det dz/dx| against the Jacobian of the solved map."""
    cnf = CNF(net(), 1.0, method="dopri5", rtol=1e-10, atol=1e-12)
    _, log_det = cnf(X)
    for i, x in enumerate(X):
        jacobian = torch.autograd.functional.jacobian(lambda v: cnf.transport(v[None])[0], x)
        assert float(log_det[i].detach()) == pytest.approx(float(jacobian.det().log()), abs=1e-7)
    assert float(log_det.detach().abs().min()) > 0.01


def test_the_noise_is_fixed_during_a_solve_and_new_for_the_next() -> None:
    """On a linear flow the estimate is noise^T A noise, all along the way."""
    cnf = CNF(Linear(), 0.8, divergence="hutchinson", noise="gaussian", rtol=1e-8, atol=1e-10, method="dopri5")
    noise = draw_noise(X, "gaussian", torch.Generator().manual_seed(5))
    expected = 0.8 * torch.einsum("bi,ij,bj->b", noise, A, noise)
    torch.testing.assert_close(cnf(X, noise=noise)[1], expected)
    torch.testing.assert_close(cnf(X, generator=torch.Generator().manual_seed(5))[1], expected)
    assert cnf.stats is not None and cnf.stats.nfe_forward < 200  # it is smooth for the solver
    torch.manual_seed(1)
    first, second = cnf(X)[1], cnf(X)[1]
    torch.manual_seed(1)
    assert torch.equal(cnf(X)[1], first) and not torch.equal(first, second)
    torch.testing.assert_close(cnf(X, noise=noise)[0], CNF(Linear(), 0.8).transport(X), rtol=1e-3, atol=1e-4)


def test_small_samples_are_exact_unless_said_otherwise() -> None:
    cnf = CNF(Linear(), 0.5)
    assert torch.equal(cnf(X)[1], cnf(X)[1])
    large = CNF(lambda t, x: torch.tanh(x.roll(1, 1) + x), 0.5)
    wide = torch.ones(4, 5, dtype=torch.float64)
    assert not torch.equal(large(wide)[1], large(wide)[1])
    large.divergence = "exact"
    assert torch.equal(large(wide)[1], large(wide)[1])


def test_the_way_back_returns_the_sample_and_takes_the_logarithm_away() -> None:
    cnf = CNF(net(), 1.0, method="dopri5", rtol=1e-9, atol=1e-11)
    z, log_det = cnf(X)
    x, back = cnf(z, reverse=True)
    torch.testing.assert_close(x, X, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(back, -log_det, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(cnf.transport(z, reverse=True), X, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("divergence", ["exact", "hutchinson"])
@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
@pytest.mark.parametrize("method", ["dopri5", "bdf3"])
def test_gradients_agree_with_plain_backpropagation(method: str, gradient: str, divergence: str) -> None:
    solver: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
    if method == "bdf3":
        fine = gradient == "continuous"  # that is the gradient of the equation, not of the steps
        solver |= {"step_size": 0.02 if fine else 0.1, "inner_tol": 1e-13, "inner": "newton_krylov"}

    def gradients(kind: str) -> list[Tensor]:
        cnf = CNF(net(2, layer="concat"), 0.4, method=method, gradient=kind, divergence=divergence, **solver)
        x = X[:, :2].clone().requires_grad_()
        z, log_det = cnf(x, generator=torch.Generator().manual_seed(3))
        loss = -(standard_normal(z) + log_det).sum()
        found = torch.autograd.grad(loss, [x, *cnf.parameters()])
        assert cnf.stats is not None and (kind == "direct" or cnf.stats.nfe_backward > 0)
        return list(found)

    close = 3e-3 if (gradient, method) == ("continuous", "bdf3") else 1e-5
    for one, other in zip(gradients(gradient), gradients("direct"), strict=True):
        assert float((one - other).norm()) <= close * max(float(other.norm()), 0.1)


def test_gradcheck() -> None:
    cnf = CNF(Linear(0.5 * A[:2, :2]), 0.5, method="bdf2", step_size=0.25, inner_tol=1e-13)

    def loss(x: Tensor, matrix: Tensor) -> Tensor:
        f = lambda t, v: torch.tanh(v) @ matrix.mT  # noqa: E731
        cnf.func = f
        return torch.cat([part.flatten() for part in cnf(x)])

    del cnf.func
    x = X[:, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (x, (0.5 * A[:2, :2]).requires_grad_()))


def test_a_pass_before_backward_of_another_changes_nothing() -> None:
    cnf = CNF(net(), 0.5, divergence="hutchinson", method="bdf2", step_size=0.1)
    weights = list(cnf.parameters())
    seeded = lambda: cnf(X, generator=torch.Generator().manual_seed(0))[1].sum()  # noqa: E731
    expected = torch.autograd.grad(seeded(), weights)
    first = seeded()
    cnf(X + 1)
    for one, other in zip(torch.autograd.grad(first, weights), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_logarithm_is_not_solved_for() -> None:
    cnf = CNF(Linear(30 * A), 1.0, method="bdf", inner="newton")
    cnf(X)
    assert cnf.stats is not None and cnf.stats.n_jac % 6 == 0 < cnf.stats.n_jac


def test_an_explicit_method_pays_for_nothing_but_its_stages() -> None:
    calls = []

    def f(t: Tensor, x: Tensor) -> Tensor:
        calls.append(t)
        return x @ A.mT

    cnf = CNF(f, 1.0, method="rk4", step_size=0.25)
    cnf(X)
    assert cnf.stats is not None and cnf.stats.nfe_forward == len(calls) == 16


def test_no_graph_is_kept_under_no_grad() -> None:
    with torch.no_grad():
        z, log_det = CNF(net(), 0.5)(X)
    assert not z.requires_grad and not log_det.requires_grad and not X.requires_grad


# Densities


def test_the_density_integrates_to_one() -> None:
    flow = Flow([CNF(net(2), 1.5, method="dopri5", rtol=1e-4, atol=1e-6)], (2,))
    side = torch.linspace(-10, 10, 101, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        density = flow.log_prob(grid).exp()
    assert float(density.sum() * (side[1] - side[0]) ** 2) == pytest.approx(1.0, abs=1e-3)
    assert float((density - standard_normal(grid).exp()).abs().max()) > 0.05  # and it is not the base itself


def test_samples_know_their_density() -> None:
    flow = Flow([CNF(net(2, seed), 0.4, method="dopri5", rtol=1e-8, atol=1e-10) for seed in (0, 1)], (2,))
    with torch.no_grad():
        x, log_prob = flow.sample(50, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(flow.log_prob(x), log_prob, rtol=1e-5, atol=1e-6)
        again, _ = flow.sample(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x, again) and x.dtype == torch.float64
    assert flow.stats.nfe_forward == sum(layer.stats.nfe_forward for layer in flow.layers) > 0  # type: ignore[union-attr]


def test_a_flow_learns_two_gaussians() -> None:
    """Two narrow ones: the entropy of each, and one bit for which."""
    torch.manual_seed(0)
    flow = vector_flow(2, (32, 32), rtol=1e-3, atol=1e-3)
    optimiser = torch.optim.Adam(flow.parameters(), lr=0.05)

    def draw(n: int) -> Tensor:
        return 0.3 * torch.randn(n, 2) + torch.tensor([1.5, 0.0]) * torch.randint(0, 2, (n, 1)).mul(2).sub(1)

    with proxode.record() as stats:
        for _ in range(30):
            optimiser.zero_grad()
            loss = -flow.log_prob(draw(128)).mean()
            loss.backward()
            optimiser.step()
    entropy = math.log(2 * math.pi * math.e * 0.3**2) + math.log(2)
    with torch.no_grad():
        held = -float(flow.log_prob(draw(1000)).mean())
    assert held - entropy < 0.5 < 3.0 - entropy  # at the start it is about 3.1
    assert stats.nfe_forward / 30 < 60 and stats.nfe_backward / 30 < 120


def test_what_is_wrong_is_said_at_once() -> None:
    for wrong, message in (({"divergence": "none"}, "`divergence`"), ({"noise": "white"}, "`noise`")):
        with pytest.raises(ValueError, match=message):
            CNF(Linear(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`quadrature`"):
        CNF(Linear(), quadrature=1)
    with pytest.raises(ValueError, match="`layer` must be one of"):
        TimeNet(2, layer="square")
