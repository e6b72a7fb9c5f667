"""Spectra, limits of stability and the questions to f, against what is known of each equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from diagnosis_cases import D, heat, noise, pendulum, robertson, rotation, van_der_pol
from problems import Calls, dense_jacobian
from torch import Tensor

from proxode import solve
from proxode.analysis.krylov import arnoldi
from proxode.analysis.limits import reach, step_limit
from proxode.analysis.probes import disagreement, graph
from proxode.analysis.regions import all_methods, growth, polynomial, real_reach
from proxode.analysis.spectrum import asymmetry_of, spectrum
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField, rough_signs


def field(func: object, y: Tensor) -> VectorField:
    return VectorField(func, Structure.of(y), Stats())  # type: ignore[arg-type]


def probes(n: int) -> Tensor:
    return torch.stack([rough_signs(torch.zeros(n, dtype=D), seed) for seed in range(1, 5)])


# Limits of stability


def test_dopri5_reaches_to_3_3066_on_the_negative_axis_and_to_about_one_on_the_imaginary() -> None:
    table = reach("dopri5")
    assert float(table[-1]) == pytest.approx(3.3066, abs=1e-4)
    assert float(table[-1]) == pytest.approx(real_reach(all_methods()["dopri5"][1]), rel=1e-6)
    assert 0.9 < float(table[0]) < 1.1


def test_stability_polynomials_are_those_of_the_paper_and_of_the_order() -> None:
    coefficients = polynomial(all_methods()["dopri5"][1])
    expected = [1 / math.factorial(k) for k in range(6)] + [1 / 600, 0.0]
    assert coefficients == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("angle", [95.0, 120.0, 150.0, 179.0])
@pytest.mark.parametrize("method", ["dopri5", "bosh3", "rk4"])
def test_the_limit_is_where_the_method_begins_to_grow(method: str, angle: float) -> None:
    eigenvalue = 40.0 * torch.polar(torch.ones(1, dtype=D), torch.full((1,), math.radians(angle), dtype=D))
    h = step_limit(eigenvalue, method)
    method_growth = [float(growth(all_methods()[method][1], factor * h * eigenvalue)) for factor in (0.99, 1.01)]
    assert method_growth[0] <= 1.0 < method_growth[1]


def test_growing_modes_and_zeros_set_no_limit_but_their_oscillation_does() -> None:
    assert step_limit(torch.tensor([0.0, 5.0]) + 0j) == math.inf
    assert step_limit(torch.tensor([1.0 + 10j])) == pytest.approx(step_limit(torch.tensor([10j])), rel=1e-6)


def test_the_steps_that_stability_asks_for_are_those_that_dopri5_takes() -> None:
    y0 = noise(32)
    eigenvalue = torch.tensor([-4.0 * 31**2 + 0j])
    taken = solve(heat, y0, 0.0, 0.3, method="dopri5", rtol=1e-4, atol=1e-4).stats.n_steps
    assert 0.3 / step_limit(eigenvalue) == pytest.approx(taken, rel=0.2)


# Spectra


@pytest.mark.parametrize(
    ("func", "y"), [(van_der_pol, [1.5, -0.2]), (robertson, [0.7, 1e-5, 0.3]), (pendulum, [0.4, 1.0])]
)
def test_small_spectra_are_those_of_the_dense_jacobian(func: object, y: list[float]) -> None:
    state = torch.tensor(y, dtype=D)
    found = spectrum(field(func, state), 0.0, state, 10, probes(len(y)))
    assert found is not None and found.exact
    expected = np.linalg.eigvals(dense_jacobian(func, state).numpy())  # type: ignore[arg-type]
    assert np.sort_complex(found.values.numpy()) == pytest.approx(np.sort_complex(expected), rel=1e-9, abs=1e-9)


def test_rotation_has_an_imaginary_spectrum_and_no_stiffness_ratio() -> None:
    y = torch.tensor([1.0, 0.0], dtype=D)
    found = spectrum(field(rotation, y), 0.0, y, 10, probes(2))
    assert found is not None
    assert found.imaginary == pytest.approx(3.0) and found.radius == pytest.approx(3.0)
    assert found.asymmetry == pytest.approx(2.0) and found.ratio is None and found.zeros == 2


def test_the_stiffness_ratio_leaves_out_zeros() -> None:
    rates = torch.tensor([0.0, -1.0, -50.0, -2000.0], dtype=D)
    found = spectrum(field(lambda t, y: rates * y, rates), 0.0, torch.ones(4, dtype=D), 10, probes(4))
    assert found is not None
    assert found.ratio == pytest.approx(2000.0) and found.zeros == 1 and found.symmetric
    assert (found.left, found.right) == (-2000.0, 0.0)


def test_the_zero_jacobian_is_no_trouble() -> None:
    y = torch.zeros(150, dtype=D)
    f = field(lambda t, y: torch.ones_like(y), y)
    found = spectrum(f, 0.0, y, 20, probes(150))
    assert found is not None
    assert (found.radius, found.ratio, found.asymmetry) == (0.0, None, 0.0)


def test_arnoldi_finds_the_rim_of_a_laplacian_with_2000_points_within_one_percent() -> None:
    n = 2000
    f = field(heat, torch.zeros(n, dtype=D))
    found = spectrum(f, 0.0, noise(n), 60, probes(n))
    assert found is not None and not found.exact and found.symmetric
    assert found.left == pytest.approx(-4.0 * (n - 1) ** 2, rel=0.01)
    assert found.right <= 1e-6 and -found.right < 0.01 * found.radius
    assert f.stats.nfe_forward <= 60 + 3


def test_arnoldi_finds_the_rim_of_an_advection_with_2000_points_within_one_percent() -> None:
    """Central differences on a ring, with damping: -100 + i c sin(2 pi k / n), of which c is the rim."""
    n, c, y = 2000, 3000.0, noise(2000)

    def func(t: Tensor, y: Tensor) -> Tensor:
        return c / 2 * (torch.roll(y, -1) - torch.roll(y, 1)) - 100 * y

    f = field(func, y)
    found = spectrum(f, 0.0, y, 60, probes(n))
    assert found is not None and not found.symmetric
    assert found.imaginary == pytest.approx(c, rel=0.01)
    assert found.left == pytest.approx(-100, rel=0.01) and found.right == pytest.approx(-100, rel=0.01)
    assert f.stats.nfe_forward <= 63


def test_arnoldi_stops_where_the_space_holds_everything() -> None:
    """Three different eigenvalues: three products are all there is."""
    rates = torch.tensor([-1.0, -5.0, -9.0], dtype=D).repeat(100)
    found = arnoldi(lambda v: rates * v, noise(300), 40)
    assert found.products == 3
    assert sorted(found.values.real.tolist()) == pytest.approx([-9.0, -5.0, -1.0])


def test_arnoldi_says_nan_where_a_product_is() -> None:
    found = arnoldi(lambda v: v * math.nan, noise(30), 10)
    assert bool(found.values.isnan().all()) and found.products == 1


@pytest.mark.parametrize(("skew", "expected"), [(0.0, 0.0), (1.0, 2.0)])
def test_asymmetry_from_products_is_that_of_the_matrix(skew: float, expected: float) -> None:
    a = torch.randn(400, 400, generator=torch.Generator().manual_seed(2), dtype=D)
    matrix = skew * (a - a.T) + (1 - skew) * (a + a.T)
    signs = probes(400)
    assert asymmetry_of([matrix @ v for v in signs], signs) == pytest.approx(expected, abs=1e-10, rel=0.5)


def test_a_little_asymmetry_is_seen() -> None:
    a = torch.randn(400, 400, generator=torch.Generator().manual_seed(2), dtype=D)
    matrix, signs = a + a.T + 0.02 * (a - a.T), probes(400)
    true = float((matrix - matrix.T).norm() / matrix.norm())
    assert asymmetry_of([matrix @ v for v in signs], signs) == pytest.approx(true, rel=0.8)
    assert true > 1e-2


# Questions to f


def test_a_product_that_misses_a_part_is_noticed_and_one_that_bends_is_not() -> None:
    y = noise(6)
    partly = field(lambda t, y: -3 * y.detach() - y, y)
    assert disagreement(partly, 0.0, y, probes(6)[0]) > 0.5
    start = torch.tensor([1.0, 0.0, 0.0], dtype=D)  # where a difference of Robertson's is dominated by its curvature
    assert disagreement(field(robertson, start), 0.0, start, probes(3)[0]) == 0.0


def test_what_a_graph_keeps_is_counted_without_parameters() -> None:
    y, w = noise(1000), torch.ones(1000, dtype=D, requires_grad=True)
    found = graph(field(lambda t, y: torch.sin(y) * w, y), 0.0, y)
    assert found.of_state and found.of_others
    assert found.bytes == 2 * 8000  # y and sin y; not w
    assert not graph(field(lambda t, y: -y.detach(), y), 0.0, y).of_state


def test_every_call_is_counted() -> None:
    y, calls = noise(300), Calls(heat)
    f = field(calls, y)
    assert spectrum(f, 0.0, y, 25, probes(300)) is not None
    assert f.stats.nfe_forward == calls.count
