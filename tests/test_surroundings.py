"""Solves inside of autocast and of inference mode, and an f that takes a derivative of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode
from proxode import Status

SOLVES: dict[str, dict[str, Any]] = {
    "auto": {}, "bdf": {"method": "bdf"}, "dopri5": {"method": "dopri5"},
    "anderson": {"method": "bdf", "inner": "anderson"},
    "bdf2": {"method": "bdf2", "step_size": 0.25}, "per sample": {"method": "bdf", "per_sample": True},
    "checkpoint": {"method": "bdf", "gradient": "checkpoint"},
    "continuous": {"method": "bdf", "gradient": "continuous"},
}  # fmt: skip


def layer() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("outside", [True, False], ids=["backward outside", "backward inside"])
def test_autocast_is_for_f_and_not_for_the_solver(name: str, outside: bool) -> None:
    """Its sums of vectors were of two dtypes, an error, or of three digits."""
    y0, grads = torch.rand(64, 8, generator=torch.Generator().manual_seed(1)), []
    for cast in (False, True):
        net, seen = layer(), set()

        def f(t: Tensor, y: Tensor, net: nn.Module = net, seen: set[torch.dtype] = seen) -> Tensor:
            out: Tensor = net(y)
            seen.add(out.dtype)
            return out - 20 * y

        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            solution = proxode.solve(f, y0, 0.0, 1.0, rtol=1e-2, atol=1e-2, throw=False, **SOLVES[name])
            assert solution.status is Status.SUCCESS and solution.ys.dtype is torch.float32
            loss = (solution.ys[-1] * 30).square().mean()
            if not outside:
                loss.backward()
        if outside:
            loss.backward()
        assert seen == {torch.bfloat16 if cast else torch.float32}
        weight = net[2].weight.grad
        assert weight is not None
        grads.append(weight)
    assert float((grads[0] - grads[1]).norm()) <= 0.2 * float(grads[0].norm())


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
@pytest.mark.parametrize("per_sample", [True, False])
def test_inference_mode(method: str, per_sample: bool) -> None:
    with torch.inference_mode():
        y0 = torch.ones(3, 2)
        ys = [proxode.solve(lambda t, y: -y, y0, 0.0, 1.0, method=method, per_sample=per_sample).ys]
    ys.append(proxode.solve(lambda t, y: -y, y0, 0.0, 1.0, method=method, per_sample=per_sample).ys)
    assert all(torch.allclose(y[-1], torch.exp(torch.tensor(-1.0)), atol=1e-3) for y in ys)


@pytest.mark.parametrize("options", [{}, {"method": "bdf2", "step_size": 0.1}, {"gradient": "continuous"}], ids=str)
@pytest.mark.parametrize("wanted", [True, False])
def test_an_f_with_a_derivative_of_its_own_is_told_how(options: dict[str, Any], wanted: bool) -> None:
    """A Hamiltonian network; and what is told works."""
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    y0 = torch.ones(4, 2, requires_grad=wanted)

    def plain(t: Tensor, y: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(net(y).sum(), y, create_graph=True)
        return torch.stack([g[:, 1], -g[:, 0]], 1)

    def enabled(t: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            return plain(t, y.requires_grad_())

    with pytest.raises(RuntimeError, match=r"with torch.enable_grad\(\):.*y = y.requires_grad_\(\)"):
        proxode.solve(plain, y0, 0.0, 1.0, **options)
    ys = proxode.solve(enabled, y0, 0.0, 1.0, **options).ys
    exact = proxode.solve(enabled, y0, 0.0, 1.0, method="rk4", step_size=0.01).ys
    assert torch.allclose(ys[-1], exact[-1], atol=2e-2)
    ys[-1].square().sum().backward()
    first = net[0].weight.grad
    assert first is not None and bool(torch.isfinite(first).all()) and (y0.grad is not None) == wanted
