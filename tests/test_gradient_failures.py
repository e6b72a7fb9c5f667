"""What a gradient does where it cannot be right, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.gradients import GRADIENTS, Checkpoint, Continuous, Gradient, Implicit, transposed
from proxode.solution import SolverError, Stats
from proxode.status import Status

KINDS: dict[str, Gradient] = {
    **GRADIENTS,
    "implicit with its graphs": Implicit(store_graph=True),
    "checkpoint with two places": Checkpoint(checkpoints=2),
    "continuous with places": Continuous(checkpoints=3),
}
every_kind = pytest.mark.parametrize("gradient", KINDS.values(), ids=KINDS)
both_methods = pytest.mark.parametrize("method", ["rk4", "bdf2"])
Y0 = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)


class Net(nn.Module):
    """f that counts its calls, and raises when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 3, generator=generator, dtype=torch.float64))
        self.speed = 1.0
        self.calls = 0
        self.left: int | None = None  # calls before the error
        self.error = ZeroDivisionError("from the user's f")

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise self.error
        return self.speed * (torch.tanh(self.weight @ y) - y) + torch.sin(t)


def run(f: Any, gradient: Gradient, method: str = "bdf2", y0: Tensor = Y0, t: Tensor = T, **options: Any) -> Tensor:
    options = {"step_size": 0.1, "gradient": gradient, **options}
    return proxode.odeint(f, y0, t, method=method, options=options)


def slope_of(f: Net, gradient: Gradient, method: str) -> Tensor:
    return torch.autograd.grad(run(f, gradient, method)[-1].sum(), f.weight)[0]


# What cannot be right raises


@pytest.mark.parametrize("where", [1, 2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["implicit", "implicit with its graphs", "checkpoint"])
def test_a_gradient_that_comes_in_with_a_nan_raises_and_names_the_time(kind: str, bad: float, where: int) -> None:
    y = run(Net(), KINDS[kind])
    with pytest.raises(SolverError, match=r"holds nan .* look at the loss") as raised:
        (y[where] * bad).sum().backward()
    assert raised.value.status is Status.BACKWARD_NON_FINITE
    assert raised.value.t == pytest.approx(float(T[where]))
    assert raised.value.solution is None


@both_methods
@pytest.mark.parametrize("kind", ["continuous", "continuous with places"])
def test_an_adjoint_solve_that_starts_with_a_nan_raises_and_names_the_time(kind: str, method: str) -> None:
    y = run(Net(), KINDS[kind], method)
    with pytest.raises(SolverError, match="look at the loss") as raised:
        (y[1] * float("nan")).sum().backward()
    assert raised.value.t == pytest.approx(0.5)
    assert raised.value.solution is None


@pytest.mark.parametrize("down", [False, True], ids=["increasing", "decreasing"])
def test_a_transposed_solve_that_does_not_converge_raises_and_says_what_to_try(
    monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    """Rotations of many speeds, strong beside one: GMRES needs about as many products as there are unknowns."""
    n = 100
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix = 20 * (matrix - matrix.T)
    y0 = torch.ones(n, dtype=torch.float64, requires_grad=True)
    t = T.flip(0) if down else T
    options = {"inner": "newton_krylov", "step_size": 0.5, "inner_tol": 1e-4}
    y = run(lambda t, y: matrix @ y, Implicit(), y0=y0, t=t, **options)
    monkeypatch.setattr(transposed, "MAX_ITERS", 5)
    with pytest.raises(SolverError, match=r"5 products leave .*, tolerance .* What to try: take smaller") as raised:
        y[-1].sum().backward()
    assert raised.value.status is Status.BACKWARD_NOT_CONVERGED
    assert raised.value.t == pytest.approx(float(t[-1]))
    monkeypatch.undo()
    run(lambda t, y: matrix @ y, Implicit(), y0=y0, t=t, **options)[-1].sum().backward()
    assert y0.grad is not None and bool(torch.isfinite(y0.grad).all())


def rooted(t: Tensor, y: Tensor) -> Tensor:
    """`-sqrt(y)` as it is written: it has a value where y is not positive, and no derivative."""
    return -torch.where(y > 0, torch.sqrt(y), 0 * y)


@pytest.mark.parametrize("kind", ["implicit", "implicit with its graphs", "checkpoint"])
@pytest.mark.parametrize("n", [1, 100], ids=["dense", "by products"])
def test_a_derivative_that_is_nan_is_called_that(kind: str, n: int) -> None:
    y0 = torch.ones(n, requires_grad=True)
    options: dict[str, Any] = {"method": "bdf", "gradient": KINDS[kind]}
    y = proxode.solve(lambda t, y: torch.cat([rooted(t, y[:1]), -y[1:]]), y0, 0.0, 3.0, **options).ys
    with pytest.raises(SolverError, match=f"derivative of f is nan .* 1 of {n} comp.* number 0.*torch.where") as raised:
        y[-1].sum().backward()
    assert raised.value.status is Status.BACKWARD_NO_DERIVATIVE and raised.value.t == pytest.approx(3.0)


def test_the_advice_about_norms_at_zero_is_true() -> None:
    """torch gives a norm at 0 the derivative 0; written as the root of a sum it has none."""

    def gradient(norm: Callable[[Tensor], Tensor]) -> Tensor:
        y0 = torch.zeros(2, requires_grad=True)
        y = proxode.solve(lambda t, y: -y * (1 + norm(y)), y0, 0.0, 1.0, method="bdf").ys
        return torch.autograd.grad(y[-1].sum(), y0)[0]

    assert bool(torch.isfinite(gradient(torch.linalg.vector_norm)).all())
    with pytest.raises(SolverError, match=r"root of a sum: that of torch\.linalg\.vector_norm is 0 there"):
        gradient(lambda y: y.square().sum().sqrt())


@pytest.mark.parametrize("method", ["bdf", "dopri5"])
def test_an_adjoint_solve_that_meets_one_says_where_to_look(method: str) -> None:
    y0 = torch.ones(1, requires_grad=True)
    y = proxode.solve(rooted, y0, 0.0, 3.0, method=method, gradient="continuous").ys[-1]
    with pytest.raises(SolverError, match=r"made of the derivatives of yours.*torch\.where"):
        y.sum().backward()


def test_so_does_forward_mode() -> None:
    y0 = torch.zeros(1)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(SolverError) as raised:
        dual = torch.autograd.forward_ad.make_dual(y0, torch.ones(1))
        proxode.solve(lambda t, y: torch.sqrt(y), dual, 0.0, 1.0, method="bdf2", step_size=0.1)
    assert raised.value.status is Status.BACKWARD_NO_DERIVATIVE


@pytest.mark.parametrize("equal", [False, True], ids=["components differ", "components equal"])
@pytest.mark.parametrize("kind", ["implicit", "checkpoint", "checkpoint with two places", "continuous"])
def test_an_f_that_is_another_in_backward_is_refused(kind: str, equal: bool) -> None:
    """With equal components the value of f may be orthogonal to whatever it is projected on."""
    rate = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    speed = [1.0]
    y0 = torch.ones(2, dtype=torch.float64) if equal else torch.arange(1.0, 3.0, dtype=torch.float64)
    y = run(lambda t, y: -speed[0] * rate * y, KINDS[kind], y0=y0)
    speed[0] = 1.5
    with pytest.raises(RuntimeError, match=r"other values? in backward|could not be taken again"):
        y[-1].sum().backward()


def test_an_f_that_is_another_in_backward_may_keep_its_graphs() -> None:
    f = Net()
    y = run(f, Implicit(store_graph=True))
    expected = slope_of(f, Implicit(), "bdf2")
    f.speed = 2.0
    assert_close(torch.autograd.grad(y[-1].sum(), f.weight)[0], expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "direct"])
@both_methods
def test_a_parameter_that_was_changed_in_place_is_refused(kind: str, method: str) -> None:
    f, y0 = Net(), Y0.clone().requires_grad_()
    y = run(f, KINDS[kind], method, y0)
    with torch.no_grad():
        f.weight.add_(0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y[-1].sum().backward()


@every_kind
def test_an_f_that_detaches_its_input_is_refused(gradient: Gradient) -> None:
    f = Net()
    with pytest.raises(RuntimeError, match="autograd does not see how func depends on y"):
        run(lambda t, y: f(t, y.detach()), gradient)


# Tensors that f uses only later


class Later(nn.Module):
    """The second half of the way has a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return -y if t < 0.5 else -self.rate * y


LATER_T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
JUMP = {"jump_t": torch.tensor([0.5], dtype=torch.float64), "step_size": 0.025}


def later_slope(rate: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What was found, and d/d rate of exp(-0.5) exp(-0.5 rate) summed over the state."""
    exact = -0.5 * torch.exp(-0.5 * (1 + rate.detach())) * Y0.sum()
    return torch.autograd.grad(y[-1].sum(), rate)[0], exact


@every_kind
def test_a_parameter_of_a_module_may_be_used_only_later(gradient: Gradient) -> None:
    f = Later()
    found, exact = later_slope(f.rate, run(f, gradient, t=LATER_T, **JUMP))
    assert_close(found, exact, rtol=5e-3, atol=0.0)


@pytest.mark.parametrize("kind", ["implicit", "checkpoint", "checkpoint with two places", "continuous"])
def test_a_tensor_that_f_uses_only_later_is_an_error_in_backward(kind: str) -> None:
    """The function hides its module; the state wants a gradient, so that there is one to be wrong."""
    f, y0 = Later(), Y0.clone().requires_grad_()
    y = run(lambda t, y: f(t, y), KINDS[kind], y0=y0, t=LATER_T, **JUMP)
    with pytest.raises(RuntimeError, match=r"did not use where the solve began.*store_graph=True"):
        y[-1].sum().backward()


@pytest.mark.parametrize("wants", [True, False], ids=["beside y0", "alone"])
def test_with_its_graphs_kept_f_may_use_a_tensor_only_later(wants: bool) -> None:
    f, y0 = Later(), Y0.clone().requires_grad_(wants)
    y = run(lambda t, y: f(t, y), Implicit(store_graph=True), y0=y0, t=LATER_T, **JUMP)
    found, exact = later_slope(f.rate, y)
    assert_close(found, exact, rtol=5e-3, atol=0.0)


# Errors of f come out, and leave nothing broken


CALLING = [(kind, method) for kind in KINDS for method in ("rk4", "bdf2")
           if kind not in ("direct", "implicit with its graphs") and (kind, method) != ("implicit", "rk4")]  # fmt: skip


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize(("kind", "method"), CALLING)
def test_an_error_of_f_in_backward_comes_out_unchanged_and_the_next_solve_is_right(
    kind: str, method: str, after: int
) -> None:
    expected = slope_of(Net(), KINDS[kind], method)
    f = Net()
    y = run(f, KINDS[kind], method)
    f.left = after
    with pytest.raises(ZeroDivisionError) as raised:
        y[-1].sum().backward()
    assert raised.value is f.error
    f.left = None
    f.weight.grad = None
    assert_close(slope_of(f, KINDS[kind], method), expected, rtol=0, atol=0)


class Fragile(torch.autograd.Function):
    broken = False

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if Fragile.broken:
            raise ZeroDivisionError("from a backward of the user's")
        return grads[0]


@both_methods
@every_kind
def test_an_error_in_the_backward_of_f_comes_out_and_the_next_solve_is_right(
    gradient: Gradient, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = Net()
    expected = slope_of(f, gradient, method)
    y = run(lambda t, y: Fragile.apply(f(t, y)), gradient, method)
    monkeypatch.setattr(Fragile, "broken", True)
    with pytest.raises(ZeroDivisionError, match="from a backward"):
        y[-1].sum().backward()
    monkeypatch.undo()
    y = run(lambda t, y: Fragile.apply(f(t, y)), gradient, method)
    assert_close(torch.autograd.grad(y[-1].sum(), f.weight)[0], expected, rtol=1e-5, atol=1e-7)


# Costs


def total(stats: Stats) -> int:
    return stats.n_f + stats.n_jvp + stats.n_vjp + stats.n_jac


@pytest.mark.parametrize("inner", ["auto", "anderson"])
@both_methods
@every_kind
def test_backward_counts_every_call_of_f(gradient: Gradient, method: str, inner: str) -> None:
    f = Net()
    options = {"inner": inner} if method == "bdf2" else {}
    with proxode.record() as stats:
        y = run(f, gradient, method, **options)
    before, forward, calls = stats.n_f, stats.nfe_forward, f.calls
    assert stats.nfe_backward == 0 and total(stats) == forward
    y[-1].sum().backward()
    assert stats.nfe_forward == forward
    assert stats.nfe_backward == total(stats) - forward > 0
    if inner == "anderson" or method == "rk4":  # else f is called for dense Jacobians too, which count by column
        assert stats.n_f - before == f.calls - calls
    assert f.calls - calls <= stats.nfe_backward


@both_methods
@every_kind
def test_backward_twice_gives_the_gradient_twice_and_costs_twice(gradient: Gradient, method: str) -> None:
    f, y0 = Net(), Y0.clone().requires_grad_()
    with proxode.record() as stats:
        loss = run(f, gradient, method, y0)[1:].square().sum()
    loss.backward(retain_graph=True)
    once, cost = [x.grad.clone() for x in (y0, f.weight)], stats.nfe_backward
    loss.backward()
    assert_close([y0.grad, f.weight.grad], [2 * g for g in once], rtol=1e-12, atol=1e-12)
    assert cost <= stats.nfe_backward <= 2 * cost  # what was replayed the first time may be at hand
