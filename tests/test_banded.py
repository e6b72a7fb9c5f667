"""Systems with narrow bands, and the grids on a line that lead to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import proxode
from proxode.banded import BOTTOM, WORK, band_of, factorised, layout_of, transposed
from proxode.inner import GRID_LIMIT
from proxode.jacobian import Compressed, Pattern, pattern_of
from proxode.paper.diffusion import Diffusion, density


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grid(n: int, offsets: tuple[int, ...], *, periodic: bool, shuffled: bool = False, seed: int = 0) -> Tensor:
    """A matrix with entries at these distances from the diagonal, some 4 on it; the unknowns in any order."""
    matrix = 4.0 * torch.eye(n, dtype=torch.float64)
    for offset in offsets:
        rows = torch.arange(n)
        columns = rows + offset
        inside = (columns >= 0) & (columns < n) | periodic
        matrix[rows[inside], columns[inside] % n] += numbers(n, seed=seed + offset)[inside] / len(offsets)
    if shuffled:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        matrix = matrix[order][:, order]
    return matrix


def by_entries(matrix: Tensor) -> tuple[Pattern, Compressed]:
    known = pattern_of(matrix != 0)
    assert known.passes
    return known, Compressed(known.columns, torch.nn.functional.pad(matrix, (0, 1)).gather(1, known.columns))


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(60, 700), reach=st.integers(0, 3), periodic=st.booleans(), shuffled=st.booleans(),
    seed=st.integers(0, 1_000),
)  # fmt: skip
def test_a_band_is_solved_and_its_transpose(n: int, reach: int, periodic: bool, shuffled: bool, seed: int) -> None:
    matrix = grid(n, tuple(range(-reach, reach + 1)), periodic=periodic, shuffled=shuffled, seed=seed)
    known, compressed = by_entries(matrix)
    layout = layout_of(known)
    assert layout is not None
    # A line needs no more than its reach; a ring is folded, twice that. The way through the graph is nearly as good.
    assert layout.width <= (3 * reach + 1 if periodic or shuffled else max(1, reach))
    band, b = band_of(compressed, layout), numbers(n, seed=seed)
    for matrix_then, band_then in ((matrix, band), (matrix.mT, transposed(band))):
        x = torch.empty_like(b)
        x[layout.order] = factorised(band_then).solve(b[layout.order])
        assert float((matrix_then @ x - b).abs().max()) <= 1e-12 * float(b.abs().max()) * n**0.5


@pytest.mark.parametrize("n", [BOTTOM, BOTTOM + 1, 1_000, 20_000])
def test_sizes_around_a_change_of_level(n: int) -> None:
    band = numbers(n, 5)
    band[:, 2] += 6.0
    for d in (1, 2):
        band[:d, 2 - d] = band[n - d :, 2 + d] = 0.0
    x = numbers(n, seed=1)
    wide = torch.nn.functional.pad(x, (2, 2))
    b = sum(band[:, k] * wide[k : k + n] for k in range(5))
    assert isinstance(b, Tensor)
    assert torch.allclose(factorised(band).solve(b), x, rtol=1e-10, atol=1e-12)


def test_a_band_that_is_too_wide_has_no_layout() -> None:
    n = 900  # 30 x 30 points: the band is some 60 wide
    matrix = grid(n, (-30, -1, 0, 1, 30), periodic=True)
    layout = layout_of(by_entries(matrix)[0])
    assert layout is None or n * layout.width**2 <= WORK


def test_a_singular_band_is_not_finite() -> None:
    assert not factorised(torch.zeros(300, 3, dtype=torch.float64)).is_finite()
    assert factorised(torch.tensor([0.1, 1.0, 0.1], dtype=torch.float64).repeat(300, 1)).is_finite()


# In a solve


def reaction_diffusion(t: Any, y: Tensor) -> Tensor:
    """Two fields on a line, one after the other."""
    u, v = y.chunk(2)
    points = len(u)

    def spread(w: Tensor) -> Tensor:
        ends = torch.cat((w[:1], w, w[-1:]))
        return 0.002 * points**2 * (ends[2:] - 2 * w + ends[:-2])

    return torch.cat((1 + u**2 * v - 4 * u + spread(u), 3 * u - u**2 * v + spread(v)))


def start(points: int) -> Tensor:
    x = torch.linspace(0, 1, points, dtype=torch.float64)
    return torch.cat((1 + torch.sin(2 * torch.pi * x), torch.full_like(x, 3.0)))


@pytest.mark.parametrize("points", [300, 4_000])
def test_work_on_a_grid_does_not_grow_with_its_points(points: int) -> None:
    run = proxode.solve(reaction_diffusion, start(points), 0.0, 1.0, rtol=1e-4, atol=1e-4)
    assert run.stats.nfe_forward <= 320
    assert run.stats.n_jvp == 0


def test_a_grid_is_solved_as_without_matrices() -> None:
    runs = [
        proxode.solve(reaction_diffusion, start(200), 0.0, 1.0, method="bdf", inner=inner, rtol=1e-7, atol=1e-7)
        for inner in ("auto", "newton", "anderson")
    ]
    for run in runs[:2]:
        assert float((run.ys[-1] - runs[2].ys[-1]).abs().max()) <= 1e-5
        assert run.stats.nfe_forward < 0.8 * runs[2].stats.nfe_forward


@pytest.mark.parametrize("points", [1_024, 8_192])
def test_diffusion_to_its_closed_solution(points: int) -> None:
    problem, y0 = Diffusion(points), density(points)
    run = proxode.solve(problem.f, y0, 0.0, 1.0, rtol=1e-4, atol=1e-4)
    assert run.stats.nfe_forward <= 250
    assert float((run.ys[-1] - problem.exact(y0, run.ts[-1:])[0]).abs().max()) <= 1e-4


def carried(t: Any, y: Tensor) -> Tensor:
    """Diffusion, and a wind that is far from symmetric and depends on the state."""
    n = len(y)
    wide = torch.cat((y[:1], y, y[-1:]))
    return 0.01 * n**2 * (wide[2:] - 2 * y + wide[:-2]) - 2.0 * n * (1 + y**2) * (y - wide[:-2])


@pytest.mark.parametrize("points", [100, 300, 2_000])
def test_gradients_by_bands_are_those_of_krylov_solves(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands and dense matrices with a pattern, of an equation that is not symmetric; no Krylov solve comes first."""
    y0 = start(points)[:points].requires_grad_()

    def gradient() -> tuple[Tensor, proxode.Recording]:
        with proxode.record() as stats:
            y = proxode.solve(carried, y0, 0.0, 0.2, method="bdf2", step_size=0.02, inner="auto", rtol=1e-9).ys[-1]
            (found,) = torch.autograd.grad(y.square().sum(), y0)
        return found, stats

    by_matrix, cheap = gradient()
    assert cheap.nfe_backward <= 140
    monkeypatch.setattr("proxode.gradients.direct_systems.Direct.is_cheaper", lambda *_: False)
    by_products, dear = gradient()
    assert dear.nfe_backward > 4 * cheap.nfe_backward
    assert float((by_matrix - by_products).abs().max()) <= 1e-6 * float(by_products.abs().max())


def test_a_band_answers_where_products_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxode.gradients.transposed.MAX_ITERS", 20)
    y0 = start(1_000)[:1_000].requires_grad_()
    y = proxode.solve(carried, y0, 0.0, 0.2, method="bdf2", step_size=0.02, inner="anderson", rtol=1e-9).ys[-1]
    (found,) = torch.autograd.grad(y.square().sum(), y0)
    monkeypatch.undo()
    y = proxode.solve(carried, y0, 0.0, 0.2, method="bdf2", step_size=0.02, inner="auto", rtol=1e-9).ys[-1]
    (expected,) = torch.autograd.grad(y.square().sum(), y0)
    assert float((found - expected).abs().max()) <= 1e-6 * float(expected.abs().max())


def test_a_jacobian_that_is_zero_at_first_is_no_obstacle() -> None:
    def f(t: Any, y: Tensor) -> Tensor:
        return 1 - 50 * y.roll(1) * y

    run = proxode.solve(f, torch.zeros(300, dtype=torch.float64), 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-6)
    assert float((run.ys[-1] - 50**-0.5 * torch.tanh(torch.tensor(50**0.5))).abs().max()) <= 1e-5


@pytest.mark.parametrize("inner", ["auto", "anderson"])
@pytest.mark.parametrize("points", [120, 300])
def test_gradients_through_a_grid_are_those_of_an_explicit_method(inner: str, points: int) -> None:
    rate = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    y0 = start(points // 2).requires_grad_()

    def f(t: Any, y: Tensor) -> Tensor:
        return reaction_diffusion(t, y) - rate * y

    def gradient(**options: Any) -> tuple[Tensor, Tensor, int]:
        with proxode.record() as stats:
            y = proxode.solve(f, y0, 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-6, inner=inner, **options).ys[-1]
            found = torch.autograd.grad(y.square().sum(), (rate, y0))
        return *found, stats.nfe_backward

    of_rate, of_y0, products = gradient()
    expected_rate, expected_y0 = torch.autograd.grad(
        proxode.solve(f, y0, 0.0, 1.0, method="dopri5", rtol=1e-9, atol=1e-9).ys[-1].square().sum(), (rate, y0)
    )
    assert float((of_rate - expected_rate).abs()) <= 1e-4 * float(expected_rate.abs())
    assert float((of_y0 - expected_y0).abs().max()) <= 1e-4 * float(expected_y0.abs().max())
    assert products <= 2_500


def test_a_graph_is_not_taken_for_a_grid() -> None:
    """Its rows have few entries, at distances of their own: the pattern of three rows fails its check, and no matrix of
    this size is made."""
    n = 400
    links = torch.randint(0, n, (n, 3), generator=torch.Generator().manual_seed(0))

    def f(t: Any, y: Tensor) -> Tensor:
        return 20.0 * (y[links].mean(1) - y)

    y0 = numbers(n)
    run = proxode.solve(f, y0, 0.0, 2.0, method="bdf", rtol=1e-5, atol=1e-5)
    dense = torch.func.jacrev(lambda y: f(0.0, y))(y0)
    assert torch.allclose(run.ys[-1], torch.linalg.matrix_exp(2.0 * dense) @ y0, atol=1e-4)
    assert run.stats.n_jac <= 100


def test_a_term_that_breaks_the_pattern_midway_is_survived() -> None:
    """From t = 0.5 on every point follows the mean as well: the grid is none any more."""
    problem, y0 = Diffusion(400), density(400)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return problem.f(t, y) / 100 - torch.relu(t - 0.5) * (y - y.mean())

    run = proxode.solve(f, y0, 0.0, 1.0, method="bdf", rtol=1e-5, atol=1e-5)
    # Modes of the mean stay, others decay by exp(-0.125) more than by diffusion.
    spread = problem.exact(y0, torch.tensor([0.01], dtype=torch.float64))[0]
    exact = spread.mean() + (spread - spread.mean()) * torch.exp(torch.tensor(-0.125, dtype=torch.float64))
    assert float((run.ys[-1] - exact).abs().max()) <= 1e-4
    assert run.stats.n_jac <= 200


def test_nobody_looks_for_a_grid_in_a_large_state() -> None:
    n = GRID_LIMIT + 1
    rates = torch.linspace(1.0, 50.0, n, dtype=torch.float64)
    run = proxode.solve(lambda t, y: -rates * y, torch.ones_like(rates), 0.0, 0.5, method="bdf", rtol=1e-3, atol=1e-3)
    assert run.stats.n_jac == 0


def test_a_saved_state_goes_on_with_its_band() -> None:
    whole = proxode.Stepper(reaction_diffusion, start(200), 0.0, t1=1.0, rtol=1e-5, atol=1e-5)
    whole.advance(0.3)
    resumed = proxode.Stepper.resume(reaction_diffusion, whole.state)
    for stepper in (whole, resumed):
        stepper.advance(1.0)
    assert whole.stats.n_jac > 0 and torch.equal(resumed.y, whole.y)
