"""Every gradient of every method against differences, and against each other."""

from __future__ import annotations

from functools import cache
from math import log2
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

import proxode
from proxode.gradients import GRADIENTS, Checkpoint, Continuous, Gradient, Implicit
from proxode.methods import METHODS

EXACT = {  # of the discrete solution
    **{name: gradient for name, gradient in GRADIENTS.items() if name != "continuous"},
    "implicit with its graphs": Implicit(store_graph=True),
    "checkpoint with every place": Checkpoint(checkpoints=100),
    "checkpoint with one place": Checkpoint(checkpoints=1),
}
ADAPTIVE = [name for name, method in METHODS.items() if method.adaptive]
every_method = pytest.mark.parametrize("method", METHODS)
every_exact = pytest.mark.parametrize("gradient", EXACT.values(), ids=EXACT)
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


def inputs(down: bool = False, last: float = 0.9) -> Inputs:
    """y0, weights, a leaf that f uses itself and through a tensor made of it outside of f, and the times."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    y0 = torch.tensor([0.7, -0.4], dtype=torch.float64)
    leaf = torch.tensor([0.6], dtype=torch.float64)
    t = torch.tensor([0.0, 0.3, 0.5, last], dtype=torch.float64)
    made = (y0, weights, leaf, t.flip(0) if down else t)
    return tuple(x.requires_grad_() for x in made)  # type: ignore[return-value]


def run(
    y0: Tensor, weights: Tensor, leaf: Tensor, t: Tensor, method: str, gradient: Gradient, **options: Any
) -> Tensor:  # fmt: skip
    """Fixed steps of any method; the grid of 0.2 meets some of the outputs and not the others."""
    outside = torch.exp(0.3 * leaf) * torch.ones(2, dtype=leaf.dtype)

    def f(time: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(weights @ y) - outside * y + leaf * torch.sin(3 * time)

    options = {"step_size": 0.2, **options}
    if METHODS[method].implicit:
        options = {"inner_tol": 1e-14, **options}
    return proxode.solve(f, y0, t[0], t[-1], save_at=t, method=method, gradient=gradient, **options).ys


def pulled(ys: Tensor, given: Inputs) -> list[Tensor]:
    """The gradient of a loss in which every output has a part of its own."""
    share = torch.linspace(0.5, 1.5, ys.numel(), dtype=ys.dtype).view_as(ys)
    return list(torch.autograd.grad((share * torch.sin(ys)).sum(), given))


def gap(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference of any of the gradients, relative to its own size."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))


@every_exact
@every_method
def test_gradcheck_for_the_state_the_weights_what_is_captured_and_the_times(method: str, gradient: Gradient) -> None:
    assert gradcheck(
        lambda *given: run(*given, method, gradient), inputs(), fast_mode=True, check_undefined_grad=False
    )


@pytest.mark.parametrize("gradient", ["direct", "implicit", "checkpoint"])
@pytest.mark.parametrize("method", ["rk4", "crank_nicolson", "bdf2"])
def test_gradcheck_of_every_entry(method: str, gradient: str) -> None:
    assert gradcheck(lambda *given: run(*given, method, GRADIENTS[gradient]), inputs(last=0.7))


@cache
def reference(method: str, down: bool) -> list[Tensor]:
    given = inputs(down)
    return pulled(run(*given, method, GRADIENTS["direct"]), given)


@every_exact
@every_method
def test_the_exact_gradients_agree_with_each_other(method: str, gradient: Gradient) -> None:
    given = inputs()
    assert_close(pulled(run(*given, method, gradient), given), reference(method, False), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint"])
@every_method
def test_the_exact_gradients_agree_where_the_times_decrease(method: str, gradient: str) -> None:
    given = inputs(down=True)
    found = pulled(run(*given, method, GRADIENTS[gradient]), given)
    assert_close(found, reference(method, True), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("gradient", ["direct", "implicit", "checkpoint"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_gradcheck_where_the_error_chooses_the_steps(method: str, gradient: str) -> None:
    """The steps are held fixed in the derivative and not in the difference: it agrees to the tolerance of the solve."""
    tol = {2: 1e-5, 3: 1e-7}.get(METHODS[method].order, 1e-9)

    def at_the_door(*given: Tensor) -> Tensor:
        y0, weights, leaf, t = given
        outside = torch.exp(0.3 * leaf)
        return proxode.odeint(
            lambda time, y: torch.tanh(weights @ y) - outside * y + leaf * torch.sin(3 * time), y0, t,
            method=method, rtol=tol, atol=tol, options={"gradient": gradient},
        )  # fmt: skip

    assert gradcheck(at_the_door, inputs(last=0.6), eps=1e-2, atol=1e2 * tol + 1e-6, rtol=1e-3, fast_mode=True)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.order <= 4])
def test_the_continuous_gradient_approaches_the_exact_one_with_the_order_of_the_method(method: str) -> None:
    order = METHODS[method].order
    gaps = []
    for h in (0.05, 0.025) if order < 3 else (0.1, 0.05):
        exact, continuous = (
            pulled(run(*given, method, gradient, step_size=h), given)
            for gradient, given in ((Implicit(), inputs(last=1.0)), (Continuous(), inputs(last=1.0)))
        )
        gaps.append(gap(continuous, exact))
    assert gaps[1] < 0.15
    assert order - 0.3 < log2(gaps[0] / gaps[1]) < order + 0.5


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3"])
def test_the_continuous_gradient_is_as_good_as_its_tolerance(method: str, tol: float) -> None:
    exact, found = (
        pulled(solved(given, method, gradient, tol), given)
        for gradient, given, tol in ((Implicit(), inputs(), 1e-11), (Continuous(), inputs(), tol))
    )
    assert gap(found, exact) < 100 * tol
    assert gap(found, exact) > 1e-5 * tol  # it is not the exact one under another name


def solved(given: Inputs, method: str, gradient: Gradient, tol: float) -> Tensor:
    y0, weights, leaf, t = given
    outside = torch.exp(0.3 * leaf)
    return proxode.odeint(
        lambda time, y: torch.tanh(weights @ y) - outside * y + leaf * torch.sin(3 * time), y0, t,
        method=method if tol > 1e-10 else "dopri8", rtol=tol, atol=tol, options={"gradient": gradient},
    )  # fmt: skip


@pytest.mark.parametrize("method", ["rk4", "bdf4"])
def test_the_continuous_gradient_of_decreasing_times(method: str) -> None:
    exact, continuous = (
        pulled(run(*given, method, gradient, step_size=0.01), given)
        for gradient, given in ((Implicit(), inputs(down=True)), (Continuous(), inputs(down=True)))
    )
    assert gap(continuous, exact) < 1e-5
