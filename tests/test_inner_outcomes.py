"""When an inner solve stops, and how it fails."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from problems import diffusion, tanh_network
from torch import Tensor

import proxode
from proxode.inner import INNER, Anderson, ImplicitEquation, Stop, inner_solvers, solve_equation
from proxode.inner.newton import spectral_radius
from proxode.solution import Stats
from proxode.status import Status
from proxode.structure import Structure
from proxode.vector_field import VectorField

solvers = pytest.mark.parametrize("name", INNER)
stiff_solvers = pytest.mark.parametrize("name", [name for name in INNER if name != "fixed_point"])


def equation_of(func: Callable[[Tensor, Tensor], Tensor], anchor: Tensor, gamma: float) -> ImplicitEquation:
    return ImplicitEquation(VectorField(func, Structure.of(anchor), Stats()), 0.0, anchor, gamma)


def cubic() -> ImplicitEquation:
    """The gradient flow of a quartic: nonlinear, with a symmetric Jacobian."""
    return equation_of(lambda t, y: -(y**3), torch.linspace(0.5, 2.0, 5, dtype=torch.float64), 1.0)


def rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def largest(x: Tensor) -> float:
    return float(x.abs().max())


# When to stop


@stiff_solvers
def test_stopping_by_the_update_reaches_the_solution(name: str) -> None:
    p = diffusion("density", 10.0)
    result = solve_equation(INNER[name], p.equation(), p.guess, Stop(1e-11, kind="update"))
    assert result.converged
    off = largest(result.z - p.solution)
    assert off <= 1e-8


@solvers
def test_the_residual_is_measured_in_units_of_the_scale(name: str) -> None:
    p, scale = tanh_network(0.1), torch.logspace(-2, 2, 64, dtype=torch.float64)
    result = solve_equation(INNER[name], p.equation(), p.guess, Stop(1e-6, scale=scale))
    assert result.converged
    assert rms(p.equation().residual(result.z) / scale) == pytest.approx(result.size, rel=1e-6)
    assert result.size <= 1e-6


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_a_scale_may_be_a_number(scale: float) -> None:
    p = tanh_network(0.1)
    result = solve_equation(INNER["gd"], p.equation(), p.guess, Stop(1e-6, scale=scale))
    assert rms(p.equation().residual(result.z)) / scale == pytest.approx(result.size, rel=1e-6)


@stiff_solvers
@pytest.mark.parametrize("stiffness", [100.0, 1e4])
def test_single_precision_goes_to_the_floor_of_the_residual_and_succeeds(name: str, stiffness: float) -> None:
    if name == "gd" and stiffness > 1e3:
        pytest.skip("needs too many iterations for a problem this stiff")
    p = diffusion("noise", stiffness).to(torch.float32)
    equation = p.equation()
    result = solve_equation(INNER[name], equation, p.guess, Stop(1e-14))
    eps, size = torch.finfo(torch.float32).eps, largest(p.solution)
    assert result.status is Status.SUCCESS
    assert result.z.dtype == torch.float32
    assert result.size <= 4 * eps * (1 + stiffness) * size
    assert equation.f.stats.nfe_forward <= 5000


@pytest.mark.parametrize("name", ["nag", "fr", "lbfgs", "anderson"])
def test_in_single_precision_a_second_solve_is_about_as_accurate_as_the_first(name: str) -> None:
    """What the first solve learned of the noise must not become a licence to stop early in the second."""
    p = diffusion("noise", 1e4).to(torch.float32)
    equation = p.equation()
    first, second = (solve_equation(INNER[name], equation, p.guess, Stop(1e-9)).z for _ in range(2))
    off = largest(second - p.solution)
    assert off <= 5 * largest(first - p.solution) + 1e-5


# How it fails


@solvers
def test_too_few_iterations_are_a_status(name: str) -> None:
    equation = cubic()
    result = solve_equation(INNER[name], equation, equation.anchor, Stop(1e-12, max_iters=1))
    assert (result.status, result.iterations) == (Status.INNER_MAX_ITERATIONS, 1)
    assert (equation.f.stats.n_inner, equation.f.stats.n_inner_failed) == (1, 1)


@pytest.mark.parametrize("name", ["gd", "nag", "restart", "fr"])
def test_a_step_length_beyond_stability_is_divergence(name: str) -> None:
    p = diffusion("noise", 100.0)
    equation = p.equation()
    result = solve_equation(inner_solvers(name, size=128, lr=1.0)[0], equation, p.guess, Stop(1e-10))
    assert result.status is Status.INNER_DIVERGED
    assert result.iterations < 50
    assert torch.isfinite(result.z).all()
    assert equation.f.stats.n_inner_failed == 1


@solvers
def test_an_f_that_is_nan_at_the_guess_is_reported_before_any_iteration(name: str) -> None:
    equation = equation_of(lambda t, y: y * math.nan, torch.ones(4, dtype=torch.float64), 0.5)
    result = solve_equation(INNER[name], equation, equation.anchor, Stop(1e-8))
    assert (result.status, result.iterations) == (Status.INNER_NON_FINITE, 0)
    assert equation.f.stats.n_inner_failed == 1


def test_an_f_that_becomes_nan_on_the_way_leaves_the_last_good_point() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(y.abs() < 100, -50 * y, math.nan)

    equation = equation_of(f, torch.ones(4, dtype=torch.float64), 1.0)
    result = solve_equation(inner_solvers("gd", size=4, lr=1.0)[0], equation, equation.anchor, Stop(1e-8))
    assert result.status is Status.INNER_NON_FINITE
    assert torch.isfinite(result.z).all()


@solvers
def test_an_equation_without_a_root_fails_in_bounded_work(name: str) -> None:
    """z = z^2 + z + 1 has no real root: |r| >= 1."""
    equation = equation_of(lambda t, y: y * y + y + 1, torch.zeros(3, dtype=torch.float64), 1.0)
    result = solve_equation(INNER[name], equation, torch.full((3,), 0.3, dtype=torch.float64), Stop(1e-8))
    assert result.status in set(Status) - {Status.SUCCESS, Status.INNER_NOT_SYMMETRIC}
    assert equation.f.stats.n_inner_failed == 1
    assert equation.f.stats.nfe_forward <= 10_000


def test_a_floor_below_the_noise_of_f_is_stagnation() -> None:
    """An f with noise of its own, far above rounding, cannot be solved to rounding."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -y + 1e-4 * (1 + 0.5 * torch.sign(torch.sin(1e9 * y)))

    equation = equation_of(f, torch.ones(8, dtype=torch.float64), 0.5)
    result = solve_equation(INNER["gd"], equation, equation.anchor, Stop(1e-15))
    assert result.status is Status.INNER_STAGNATED
    assert torch.allclose(result.z, torch.full_like(result.z, 1 / 1.5), atol=1e-3)


def test_a_failed_result_says_the_size_of_the_residual_at_its_point() -> None:
    p = diffusion("noise", 100.0)
    result = solve_equation(INNER["fixed_point"], p.equation(), p.guess, Stop(1e-10))
    assert result.status is Status.INNER_OUTSIDE_RADIUS
    assert rms(p.equation().residual(result.z)) == pytest.approx(result.size)


def mirror_of(n: int) -> Callable[[Tensor], Tensor]:
    """A reflection that leaves no zero in a matrix seen through it."""
    axis = torch.nn.functional.normalize(torch.linspace(1.0, 2.0, n, dtype=torch.float64), dim=0)
    return lambda x: x - 2.0 * axis * (axis @ x)


def test_auto_goes_on_with_newton_krylov_where_anderson_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 components that decay at rates up to 1e3, seen through a mirror, with an anderson that is allowed one
    iteration."""
    rates = torch.logspace(0, 3, 300, dtype=torch.float64)
    mirror = mirror_of(300)
    y0 = mirror(torch.ones(300, dtype=torch.float64))

    def run() -> proxode.Solution:
        return proxode.solve(
            lambda t, y: mirror(-rates * mirror(y)), y0, 0.0, 0.1, method="backward_euler", step_size=0.1
        )

    usual = run()
    assert usual.stats.n_inner_failed == usual.stats.n_jvp == 0
    monkeypatch.setattr(type(INNER["anderson"]), "max_iters", 1)
    rescued = run()
    assert rescued.stats.n_inner_failed == 1 and rescued.stats.n_jvp > 0
    for solution in (usual, rescued):
        assert torch.allclose(mirror(solution.ys[-1]), 1 / (1 + 0.1 * rates), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n", [3, 32, 33, 200])
@pytest.mark.parametrize("kind", ["symmetric", "turning", "none"])
def test_the_spectral_radius_of_a_jacobian(n: int, kind: str) -> None:
    """Within a factor of two also where the largest eigenvalues are a pair, or of a size at which powers overflow."""
    a = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    matrix = {"symmetric": a + a.mT, "turning": a - a.mT, "none": 0 * a}[kind]
    exact = float(torch.linalg.eigvals(matrix).abs().max())
    for scale in (1.0, 1e40):
        assert 0.5 * exact <= spectral_radius(scale * matrix) / scale <= 1.01 * exact + 1e-12


def test_between_small_and_large_the_stiffness_decides() -> None:
    """Components drawn gently never ask for a Jacobian, drawn hard they do, once; a hundred of them, at once. They are
    seen through a mirror, so that no entry of the Jacobian is zero, which three products tell."""

    def run(strength: float, n: int) -> tuple[int, float]:
        pull = torch.linspace(0.1, 1.0, n, dtype=torch.float64) * strength
        mirror = mirror_of(n)
        run = proxode.solve(lambda t, y: mirror(-pull * (mirror(y) - torch.cos(t))), torch.zeros_like(pull), 0.0, 3.0,
                            method="bdf", rtol=1e-4, atol=1e-4)  # fmt: skip
        exact = (pull**2 * math.cos(3) + pull * math.sin(3) - pull**2 * torch.exp(-3 * pull)) / (1 + pull**2)
        return run.stats.n_jac, float((mirror(run.ys[-1]) - exact).abs().max())

    for strength, n, products in ((10.0, 150, 3), (1e5, 150, 153), (10.0, 100, 103), (1e5, 257, 3)):
        found, error = run(strength, n)
        assert found == products, (strength, n)
        assert error < 1e-3


def test_on_a_grid_a_jacobian_of_a_few_products_is_worth_it() -> None:
    """However gently its components are drawn; as a dense matrix, and as a band."""

    def run(n: int) -> int:
        y0 = torch.linspace(0.0, 1.0, n, dtype=torch.float64)
        return proxode.solve(lambda t, y: y.roll(1) - 2.0 * y + y.roll(-1), y0, 0.0, 3.0, method="bdf", rtol=1e-4,
                             atol=1e-4).stats.n_jac  # fmt: skip

    assert 0 < run(256) <= 8
    assert 0 < run(257) <= 9


@pytest.mark.parametrize("sizes", [{"memory": 0}, {"memory": -1}, {"recycle": -1}])
def test_sizes_of_anderson_that_cannot_be(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(sizes))}` of Anderson must be at least"):
        Anderson(**sizes)


@pytest.mark.parametrize(("memory", "recycle"), [(1, 0), (1, 1), (2, 9)])
def test_anderson_with_next_to_no_memory(memory: int, recycle: int) -> None:
    pull = torch.linspace(1.0, 30.0, 300, dtype=torch.float64)
    inner = Anderson(memory=memory, recycle=recycle)
    run = proxode.solve(lambda t, y: -pull * y, torch.ones_like(pull), 0.0, 1.0, method="bdf", inner=inner, rtol=1e-4,
                        atol=1e-4)  # fmt: skip
    assert float((run.ys[-1] - torch.exp(-pull)).abs().max()) < 1e-3


def test_anderson_forgets_its_own_pairs_where_f_bends() -> None:
    """Fast decay, and the energy that it dissipates: the second is quadratic in the first, so early pairs promise a
    residual of nothing wherever the iteration stands, and new ones seem to tell nothing that they did not."""
    matrix = torch.tensor([[-50.0, 3.0], [1.0, -2.0]], dtype=torch.float64)

    def func(t: Tensor, y: Tensor) -> Tensor:
        x = y[:-1].view(-1, 2)
        rate = x @ matrix.mT
        return torch.cat([rate.reshape(-1), 2.0 * (x * rate).sum().view(1)])

    anchor = torch.tensor([1.0, 0.5, -1.0, 2.0, 0.3, -0.7, 6.83], dtype=torch.float64)
    equation = equation_of(func, anchor + 0.025 * func(torch.zeros(()), anchor), 0.025)
    result = solve_equation(INNER["anderson"], equation, anchor, Stop(1e-12))
    assert result.converged and largest(equation.residual(result.z)) < 1e-11
    assert result.iterations <= 20  # 57 where no pair is forgotten
