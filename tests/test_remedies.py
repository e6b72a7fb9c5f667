"""What a failure blames and advises: f where it has no value, its parameters, and no solver or step that was in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode
from proxode import Status
from proxode.methods import ExplicitRungeKutta
from proxode.methods.tableaus import ExplicitTableau

ROOT: Callable[[Tensor, Tensor], Tensor] = lambda t, y: -torch.sqrt(y)  # noqa: E731
POWER: Callable[[Tensor, Tensor], Tensor] = lambda t, y: -(y**1.5) - 1  # noqa: E731


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])


def failed(f: Any, y0: Tensor, t1: float, **options: Any) -> proxode.Solution:
    with torch.no_grad():
        solution = proxode.solve(f, y0, 0.0, t1, throw=False, **options)
    assert not solution.status.ok
    return solution


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("f", "end"), [(ROOT, 2.0), (POWER, 0.747)], ids=["root", "power"])
@pytest.mark.parametrize("options", [{"method": "bdf"}, {"method": "bdf2", "step_size": 0.1}], ids=["bdf", "fixed"])
def test_an_f_without_a_value_just_ahead_is_blamed_and_not_the_inner_solver(
    options: dict[str, Any], f: Any, end: float, dtype: torch.dtype
) -> None:
    solution = failed(f, torch.ones(1, dtype=dtype), 3.0, **options)
    assert solution.failure is not None and solution.failure.t == pytest.approx(end, abs=0.1)
    said = "f is nan or infinite for states near this one, in 1 of 1 components, first in number 0, at t = "
    assert said in solution.message and "look at f near there (a root" in solution.message
    assert "look at `inner`" not in solution.message and "newton_krylov" not in solution.message
    assert "newton_krylov" not in solution.summary()


def test_numbers_that_overflow_far_off_are_not_called_near() -> None:
    """Steps of the wrong length lead `gd` off, until f overflows."""
    y0, options = torch.ones(2, dtype=torch.float64), {"inner": "gd", "inner_lr": 50.0}
    solution = failed(lambda t, y: -torch.exp(y), y0, 1.0, method="backward_euler", step_size=0.5, **options)
    assert solution.status is Status.INNER_NON_FINITE
    assert "near this one" not in solution.message and "lower `inner_lr`" in solution.message


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.net(y)
        return out


STEPS: dict[str, dict[str, Any]] = {
    "auto": {}, "bdf": {"method": "bdf"}, "rk4": {"method": "rk4", "step_size": 0.1},
    "bdf2": {"method": "bdf2", "step_size": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
def test_a_parameter_that_is_nan_is_named_and_else_thought_of(options: dict[str, Any]) -> None:
    f = Net()
    with torch.no_grad():
        f.net[2].weight[0, 0] = torch.nan  # type: ignore[index]
    solution = failed(f, torch.ones(4), 1.0, **options)
    assert "the parameter 'net.2.weight' of f holds nan" in solution.message and "optimiser" in solution.message
    hidden = failed(lambda t, y: f(t, y), torch.ones(4), 1.0, **options)
    assert "its parameters: a loss that overflowed before" in hidden.message


@pytest.mark.parametrize(
    ("inner", "never", "others"),
    [
        ("auto", "newton", ""),
        ("newton", "newton", ""),
        ("newton_krylov", "choose 'newton_krylov", "choose 'newton'"),
        ("anderson", "choose 'anderson", "choose 'newton'"),
    ],
)
def test_fixed_steps_that_are_too_long_are_told_to_adapt_and_not_to_do_the_same(
    inner: str, never: str, others: str
) -> None:
    y0 = torch.tensor([2.0, 0.0])
    solution = failed(van_der_pol, y0, 2000.0, method="bdf2", step_size=50.0, inner=inner)
    advice = solution.message.split("What to try: ")[1]
    assert advice.startswith("take smaller steps, or leave out `step_size`: steps then adapt")
    assert never not in advice and others in advice


@pytest.mark.parametrize("inner", ["fr", "anderson"])
def test_what_no_solver_without_matrices_sees_is_left_to_one_with_a_matrix(inner: str) -> None:
    """Rounding of a fast exchange in float32 hides what is slow; what is advised solves it."""

    def ring(t: Tensor, y: Tensor) -> Tensor:
        return 1e6 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1))

    y0 = torch.rand(1_024, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"method": "bdf2", "step_size": 0.1, "rtol": 1e-4, "atol": 1e-5}
    solution = failed(ring, y0, 0.5, inner=inner, inner_max_iters=100, **options)
    assert solution.message.endswith("choose 'newton'.")
    assert proxode.solve(ring, y0, 0.0, 0.5, inner="newton", **options).status is Status.SUCCESS


def test_no_matrix_is_advised_of_what_is_too_large_for_one() -> None:
    y0 = torch.full((5_000,), 0.3)
    options: dict[str, Any] = {"method": "bdf2", "step_size": 0.5, "inner_max_iters": 3, "rtol": 1e-6, "atol": 1e-6}
    solution = failed(lambda t, y: 1e3 * torch.sin(40 * y), y0, 1.0, inner="nag", **options)
    assert solution.message.endswith("choose 'newton_krylov', or leave out `inner`.")


@pytest.mark.parametrize("inner", ["newton", "gd"])
def test_a_least_step_that_forbids_a_shorter_one_is_what_to_lower(inner: str) -> None:
    solution = failed(van_der_pol, torch.tensor([2.0, 0.0]), 2000.0, method="bdf", min_step=20.0, inner=inner)
    assert solution.status is Status.INNER_MAX_ITERATIONS
    assert "What to try: lower `min_step`" in solution.message and "inner_max_iters" not in solution.message


LONGER = "try: raise `max_step`, which keeps the steps short; or raise `max_num_steps` (`max_steps` in `solve`)."


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto"])
def test_a_longest_step_that_asks_for_too_many_is_what_to_raise(method: str) -> None:
    y0 = torch.ones(2)
    held = failed(lambda t, y: -y, y0, 1.0, method=method, max_step=1e-3, max_steps=100)
    assert held.status is Status.MAX_STEPS and LONGER in held.message
    stiff = failed(van_der_pol, torch.tensor([2.0, 0.0]), 10.0, method="dopri5", max_step=10.0, max_steps=100)
    assert stiff.status is Status.MAX_STEPS and "max_step`" not in stiff.message and "'bdf'" in stiff.message


@pytest.mark.parametrize(("method", "adapt"), [("rk4", ""), ("bdf2", ", or leave out `step_size`: steps then adapt")])
def test_a_step_size_that_asks_for_too_many_steps_is_what_to_raise(method: str, adapt: str) -> None:
    held = failed(lambda t, y: -y, torch.ones(2), 1.0, method=method, step_size=1e-3, max_steps=100)
    assert f"try: raise `step_size`, which makes 1,000 steps of the whole way{adapt}; or raise `max_" in held.message
    endless = {"options": {"step_size": 0.1, "max_num_steps": 20}, "event_fn": lambda t, y: y[0] + 1.0}
    with pytest.raises(proxode.SolverError, match=f"try: raise `step_size`{adapt}; or raise `max_") as caught:
        proxode.odeint_event(lambda t, y: -y, torch.ones(2), torch.tensor(0.0), method=method, **endless)
    assert "has event_fn a change of sign?" in str(caught.value)


def robertson(t: Tensor, y: Tensor) -> Tensor:
    a, b, c = y
    return torch.stack([-0.04 * a + 1e4 * b * c, 0.04 * a - 1e4 * b * c - 3e7 * b * b, 3e7 * b * b])


@pytest.mark.parametrize("tol", [1e-3, 1e-2])
def test_a_solution_that_ran_away_asks_for_a_tighter_atol_which_keeps_it(tol: float) -> None:
    y0 = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    advice = failed(robertson, y0, 1e5, rtol=tol, atol=tol).message.split("What to try: ")[1]
    assert "should grow without bound" in advice and "tighten atol, below the size of every component" in advice
    assert not any(word in advice for word in ("loosen", "float64", "'bdf'"))
    with torch.no_grad():
        kept = proxode.solve(robertson, y0, 0.0, 1e5, rtol=tol, atol=1e-6)
    assert kept.status is Status.SUCCESS and kept.ys[-1].sum().item() == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize("inner", ["newton", "gd"])
def test_equations_follow_rtol_and_atol_and_no_tolerance_of_their_own_is_to_be_loosened(inner: str) -> None:
    y0 = torch.ones(2, dtype=torch.float64)
    options: dict[str, Any] = {"method": "bdf2", "step_size": 0.02, "inner": inner, "inner_max_iters": 5}
    cubic: Callable[[Tensor, Tensor], Tensor] = lambda t, y: -20 * torch.sin(y) ** 3  # noqa: E731
    for tight in ({"rtol": 1e-8, "atol": 1e-8}, {"inner_tol": 1e-12}):
        said = failed(cubic, y0, 0.2, **tight, **options)
        assert said.status is Status.INNER_MAX_ITERATIONS and "loosen `inner_tol`" not in said.message
        assert "loosen rtol and atol, which the tolerance of equations follows without `inner_tol`" in said.message
    assert proxode.solve(cubic, y0, 0.0, 0.2, rtol=1e-4, atol=1e-4, **options).status is Status.SUCCESS
    assert not any("loosen `inner_tol`" in status.advice for status in Status)


# What is refused at the door


KUTTA3: dict[str, Any] = {
    "name": "kutta3", "order": 3, "c": (0.0, 0.5, 1.0), "a": ((), (0.5,), (-1.0, 2.0)), "b": (1 / 6, 2 / 3, 1 / 6),
}  # fmt: skip


def test_a_tableau_without_an_error_estimate_is_called_by_its_name() -> None:
    kutta3 = ExplicitRungeKutta(ExplicitTableau(**KUTTA3))
    with pytest.raises(ValueError, match=r"^method 'kutta3' takes fixed steps \(its tableau has no `b_error`\)"):
        proxode.solve(ROOT, torch.ones(1), 0.0, 1.0, method=kutta3)
    with pytest.raises(ValueError, match=r"^method 'kutta3' takes fixed steps: give"):
        proxode.odeint_dense(ROOT, torch.ones(1), 0.0, 1.0, method=kutta3)
    with pytest.raises(ValueError, match=r"^method 'rk4' takes fixed steps: give"):
        proxode.solve(ROOT, torch.ones(1), 0.0, 1.0, method="rk4")


def test_one_without_a_continuous_extension_says_what_else_there_is() -> None:
    kutta3, inside = ExplicitRungeKutta(ExplicitTableau(**KUTTA3)), torch.tensor([0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match=r"give `dense=` in its tableau or interp='cubic', or choose output times at"):
        proxode.solve(ROOT, torch.ones(1), 0.0, 1.0, method=kutta3, step_size=0.3, save_at=inside)
    cubic = proxode.solve(ROOT, torch.ones(1), 0.0, 1.0, method=kutta3, step_size=0.3, save_at=inside, interp="cubic")
    assert cubic.ys[1] == pytest.approx(0.75**2, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("adjoint", "take 'continuous' in its place"),
        ("Implicit", "did you mean 'implicit'"),
        ("checkpoints", "did you mean 'checkpoint'"),
    ],
)
def test_a_gradient_of_another_name_is_told_what_it_may_be(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=meant):
        proxode.solve(ROOT, torch.ones(1), 0.0, 1.0, gradient=name)


def test_a_parameter_that_is_infinite_by_intention_is_not_blamed() -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.nn.Parameter(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), requires_grad=False)
            self.unused = torch.nn.LazyLinear(2)

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return torch.softmax(self.mask, -1) @ y * 50

    with pytest.raises(proxode.SolverError, match="max_steps") as caught:
        proxode.solve(Masked(), torch.ones(2), 0.0, 5.0, method="dopri5", max_steps=10)
    assert "parameter" not in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_noise_in_a_part_of_the_state_ends_a_solve_that_no_equation_complains_of(seed: int) -> None:
    mask = (torch.arange(12) < 6).double()
    torch.manual_seed(seed)
    solution = proxode.solve(
        lambda t, u: -u + 0.1 * mask * torch.randn_like(u), torch.linspace(0.1, 1, 12, dtype=torch.float64), 0.0, 1.0,
        method="bdf", inner="anderson", rtol=1e-6, atol=1e-6, max_steps=3_000, throw=False,
    )  # fmt: skip
    assert solution.status is proxode.Status.RANDOM and solution.stats.n_steps < 300
