"""What no shorter step can mend is said at once: an f that is random, and an inner solver that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from problems import density, laplacian
from torch import Tensor, nn

import proxode
from proxode import Status
from proxode.inner import ImplicitEquation, InnerSolver

RATES = torch.logspace(0, 2, 8)


class Noise:
    """`cos(y) - rates y` plus noise, drawn in every call, or in the first."""

    def __init__(self, once: bool = False, size: float = 0.05) -> None:
        self.once, self.size, self.noise = once, size, torch.zeros(0)

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        if not (self.once and len(self.noise)):
            self.noise = self.size * torch.randn_like(y)
        return torch.cos(y) - RATES * y + self.noise


def solved(f: Any, **options: Any) -> proxode.Solution:
    torch.manual_seed(0)
    with torch.no_grad():
        return proxode.solve(f, torch.ones(4, 8), 0.0, 1.0, throw=False, **options)


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_an_implicit_step_of_a_random_f_is_no_equation_and_the_solve_says_so_soon(tol: float) -> None:
    solution = solved(Noise(), method="bdf", rtol=tol, atol=tol)
    assert solution.status is Status.RANDOM and "eval()" in solution.message
    assert solution.stats.n_steps < 100 and solution.stats.nfe_forward < 2_000


@pytest.mark.parametrize("options", [{}, {"per_sample": True}], ids=["together", "per sample"])
def test_explicit_steps_that_run_out_are_blamed_on_what_is_random(options: dict[str, Any]) -> None:
    solution = solved(Noise(), method="dopri5", rtol=1e-7, atol=1e-7, max_steps=50, **options)
    assert solution.status is Status.RANDOM


@pytest.mark.parametrize("options", [{}, {"per_sample": True}], ids=["together", "per sample"])
def test_a_solve_that_came_through_by_chance_has_a_status_of_its_own(options: dict[str, Any]) -> None:
    solution = solved(Noise(size=1e-3), method="dopri5", rtol=1e-2, atol=1e-2, **options)
    assert solution.status is Status.NOISY and solution.status.ok
    assert "f is random" in solution.summary() and "eval()" in solution.summary()


@pytest.mark.parametrize("method", ["auto", "dopri5", "bdf", "backward_euler"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_noise_that_is_drawn_once_for_a_solve_is_not_random(method: str, per_sample: bool) -> None:
    if per_sample and method == "backward_euler":
        pytest.skip("not there")
    solution = solved(Noise(once=True), method=method, per_sample=per_sample)
    assert solution.status is Status.SUCCESS


def test_dropout_with_fixed_explicit_steps_is_the_users_choice() -> None:
    solution = solved(Noise(), method="rk4", step_size=0.01)
    assert solution.status is Status.SUCCESS and solution.stats.nfe_forward == 400


def test_a_module_with_dropout_in_a_layer() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 8))

    def f(t: Tensor, y: Tensor) -> Tensor:
        return net(y) - RATES * y

    assert solved(f, method="bdf").status is Status.RANDOM
    net.eval()
    assert solved(f, method="bdf").status is Status.SUCCESS


def test_a_deterministic_solve_asks_f_nothing_more() -> None:
    calls = 0

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -y

    solution = solved(f, method="dopri5")
    assert calls == solution.stats.nfe_forward == 2 + 6 * solution.stats.n_steps


@dataclass(frozen=True)
class Descent(InnerSolver):
    """`z - sign lr r`: with a wrong sign it climbs."""

    name: ClassVar[str] = "descent"
    sign: float = 1.0

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Any) -> float:
        return 1.0 / equation.lipschitz(z, r)

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: float) -> tuple[Tensor, float]:
        return z - self.sign * state * r, state


@pytest.mark.parametrize("sign", [-1.0, 0.0], ids=["up", "nowhere"])
@pytest.mark.parametrize("method", ["bdf", "backward_euler"])
def test_an_inner_solver_that_goes_the_wrong_way_is_told_after_a_few_steps(method: str, sign: float) -> None:
    with torch.no_grad(), pytest.raises(proxode.SolverError, match="wrong sign") as caught:
        proxode.solve(laplacian, density(), 0.0, 0.1, method=method, inner=Descent(sign))
    assert caught.value.status is Status.INNER_AT_FAULT
    assert caught.value.solution is not None and caught.value.solution.stats.n_steps < 20


def test_so_is_a_step_length_with_which_no_equation_is_solved() -> None:
    with torch.no_grad(), pytest.raises(proxode.SolverError, match="leave out `inner_lr`"):
        proxode.solve(laplacian, density(), 0.0, 0.1, method="bdf", inner="gd", inner_lr=5.0)


def test_a_solver_that_is_slow_but_right_is_not_blamed() -> None:
    with torch.no_grad():
        solution = proxode.solve(laplacian, density(), 0.0, 0.1, method="bdf", inner=Descent())
        limited = proxode.solve(
            laplacian, density(), 0.0, 0.1, method="bdf", inner="gd", inner_lr=1.0, max_steps=300, throw=False
        )
    assert solution.status is Status.SUCCESS
    assert limited.status is Status.MAX_STEPS and limited.stats.n_inner_failed > 8  # it solves what is not stiff


def test_looking_for_whom_to_blame_gives_no_warning_where_f_has_parameters() -> None:
    k = torch.ones(1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(proxode.SolverError, match="wrong sign"):
        proxode.solve(lambda t, y: k * laplacian(t, y), density(), 0.0, 0.1, method="bdf", inner=Descent(-1.0))


@pytest.mark.parametrize("inner", ["auto", "newton"])
def test_sums_in_another_order_near_an_equilibrium_are_not_random(inner: str) -> None:
    """As on a GPU: f is what is left of large terms, and all of it may be rounding."""
    own = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 40, (2, 400), generator=own)
    weights = 50 * torch.rand(400, generator=own)

    def f(t: Tensor, y: Tensor) -> Tensor:
        order = torch.randperm(400, generator=own)
        (a, b), w = edges[:, order], weights[order]
        flow = w * (y[a] - y[b])
        return torch.zeros_like(y).index_add(0, b, flow).index_add(0, a, -flow)

    y0 = 100 * torch.rand(40, generator=own)
    with torch.no_grad():
        solution = proxode.solve(f, y0, 0.0, 10.0, method="bdf", inner=inner, rtol=1e-5, atol=1e-5, throw=False)
    assert solution.status.ok


def root(t: Tensor, y: Tensor) -> Tensor:
    return torch.sqrt(y) - 0.1 * y


ROOTS: dict[str, dict[str, Any]] = {
    "bdf": {"method": "bdf"}, "euler": {"method": "backward_euler"}, "anderson": {"method": "bdf", "inner": "anderson"},
    "fixed": {"method": "bdf2", "step_size": 0.1}, "fr": {"method": "bdf2", "step_size": 0.1, "inner": "fr"},
    "fixed anderson": {"method": "bdf2", "step_size": 0.1, "inner": "anderson"},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", ROOTS.values(), ids=ROOTS)
def test_a_root_of_what_is_zero_has_no_derivative_and_the_solver_is_not_blamed(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    y0 = torch.tensor([0.0, 1.0], dtype=dtype)
    with torch.no_grad():
        stuck = proxode.solve(root, y0, 0.0, 1.0, throw=False, **options)
        own = {name: value for name, value in options.items() if name != "inner"}
        beside = proxode.solve(lambda t, y: root(t, y + 1e-6), y0, 0.0, 1.0, **own)
        begun = proxode.solve(root, y0 + torch.tensor([1e-6, 0.0], dtype=dtype), 0.0, 1.0, **own)
        explicit = proxode.solve(root, y0, 0.0, 1.0, method="dopri5")
    assert stuck.status is Status.INNER_NO_DERIVATIVE and stuck.stats.n_steps < 20
    assert "torch.sqrt(y + 1e-6)" in stuck.message and "inner_lr" not in stuck.message
    assert "leave out `inner`" not in stuck.summary()
    assert beside.status.ok and begun.status.ok and explicit.status.ok
    assert torch.allclose(beside.ys[-1], begun.ys[-1], atol=1e-2)


@pytest.mark.parametrize("method", ["auto", "bdf"])
@pytest.mark.parametrize("size", [1e-3, 1e-2, 1e-1])
def test_noise_in_what_is_slow_is_not_hidden_by_what_is_fast(size: float, method: str) -> None:
    """It is far below the rounding of the stiff terms times the distance to their rest; that f has drawn it tells."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        x, z = y.unbind(-1)
        return torch.stack([1000 * (torch.cos(z) - x), size * torch.randn_like(z)], -1)

    torch.manual_seed(0)
    y0 = torch.stack([torch.zeros(4), torch.linspace(-2, 2, 4)], -1)
    with torch.no_grad():
        solution = proxode.solve(f, y0, 0.0, 2.0, method=method, max_steps=2_000, throw=False)
    assert solution.status in (Status.RANDOM, Status.NOISY) and "eval()" in solution.summary()
    assert solution.stats.n_steps < 500
