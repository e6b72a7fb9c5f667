"""The coefficients of implicit methods: orders, stability, their derivation, and shapes that are refused."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from decimal import localcontext
from pathlib import Path
from types import ModuleType

import pytest

from proxode.methods.order_conditions import Row, elementary_weights, order_residuals
from proxode.methods.proximal_tableaus import MULTISTAGE, SDIRK4
from proxode.methods.tableaus import DirkTableau, ExplicitTableau, ProximalTableau

Tableau = ExplicitTableau | ProximalTableau | DirkTableau

implicit = pytest.mark.parametrize("tableau", [*MULTISTAGE.values(), SDIRK4], ids=lambda t: t.name)


def largest(residuals: Iterator[float]) -> float:
    return max(map(abs, residuals))


def butcher(tableau: Tableau) -> tuple[tuple[Row, ...], Row]:
    if isinstance(tableau, ProximalTableau):
        a, b, _ = tableau.butcher()
        return a, b
    return tableau.a, tableau.b


def proximal_stability(tableau: ProximalTableau, z: complex) -> complex:
    """R(z): one step of length one for y' = z y from y = 1."""
    states = [1 + 0j]
    for weights, gamma in zip(tableau.anchor_weights, tableau.gammas, strict=True):
        anchor = sum(weight * state for weight, state in zip(weights, states, strict=True))
        states.append(anchor / (1 - gamma * z))
    return states[-1]


@pytest.fixture(scope="module")
def derivation() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "derive_multistage3.py"
    spec = importlib.util.spec_from_file_location("derive_multistage3", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Orders and stability


@implicit
def test_implicit_weights_have_their_order_and_no_higher(tableau: ProximalTableau | DirkTableau) -> None:
    a, b = butcher(tableau)
    weights = elementary_weights(a, tableau.order + 1)
    assert largest(order_residuals(b, weights, tableau.order)) < 1e-14
    assert largest(order_residuals(b, weights, tableau.order + 1)) > 1e-4


def test_multistage3_satisfies_the_four_conditions_to_1e_14() -> None:
    a, b, c = MULTISTAGE["multistage3"].butcher()
    a_c = [sum(x * y for x, y in zip(row, c, strict=False)) for row in a]
    assert abs(sum(b) - 1) <= 1e-14
    assert abs(sum(x * y for x, y in zip(b, c, strict=True)) - 1 / 2) <= 1e-14
    assert abs(sum(x * y * y for x, y in zip(b, c, strict=True)) - 1 / 3) <= 1e-14
    assert abs(sum(x * y for x, y in zip(b, a_c, strict=True)) - 1 / 6) <= 1e-14


def test_multistage2_has_the_abscissae_and_energy_margins_of_the_paper() -> None:
    tableau = MULTISTAGE["multistage2"]
    assert tableau.c == pytest.approx((0.2, 0.55, 1.0), abs=1e-15)
    assert [round(margin, 2) for margin in tableau.energy_margins] == [1.74, 3.29, 4.5]


def test_multistage3_has_positive_energy_margins_and_ends_at_the_step() -> None:
    tableau = MULTISTAGE["multistage3"]
    assert min(tableau.energy_margins) > 0.3
    assert tableau.c[-1] == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("tableau", MULTISTAGE.values(), ids=lambda t: t.name)
def test_anchor_weights_sum_to_one_and_gammas_are_the_diagonal(tableau: ProximalTableau) -> None:
    a, b, c = tableau.butcher()
    assert [sum(row) for row in tableau.anchor_weights] == pytest.approx([1.0] * tableau.stages, abs=1e-14)
    assert tuple(row[-1] for row in a) == tableau.gammas
    assert b == a[-1]
    assert c == tableau.c


def test_multistage2_is_stable_on_the_imaginary_axis() -> None:
    tableau = MULTISTAGE["multistage2"]
    grid = [1e-3 * 1.02**k for k in range(1200)]
    assert max(abs(proximal_stability(tableau, 1j * y)) for y in grid) <= 1 + 1e-14


def test_multistage3_exceeds_one_on_the_imaginary_axis_up_to_1_33() -> None:
    tableau = MULTISTAGE["multistage3"]
    peak = max(abs(proximal_stability(tableau, 0.05j * k)) for k in range(2000))
    assert peak == pytest.approx(1.33, abs=0.01)


@pytest.mark.parametrize("tableau", MULTISTAGE.values(), ids=lambda t: t.name)
def test_multistage_schemes_damp_the_negative_axis_and_vanish_at_infinity(tableau: ProximalTableau) -> None:
    assert max(abs(proximal_stability(tableau, -(1e-3 * 1.1**k))) for k in range(300)) <= 1
    assert abs(proximal_stability(tableau, -1e12)) < 1e-10
    assert abs(proximal_stability(tableau, 1e12j)) < 1e-10


def test_sdirk4_is_stiffly_accurate_with_one_diagonal_entry() -> None:
    assert SDIRK4.stiffly_accurate
    assert {row[-1] for row in SDIRK4.a} == {1 / 4}


# The derivation of multistage3


def test_the_derivation_reproduces_the_stored_multistage3(
    derivation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, changes = derivation.derive()
    for row, stored in zip(rows, MULTISTAGE["multistage3"].rows, strict=True):
        assert [float(entry) for entry in row] == pytest.approx(stored, rel=1e-15, abs=0)
    assert 0.003 < max(abs(change) for row in changes for change in row) < 0.0032
    assert derivation.main() == 0
    assert "energy margins" in capsys.readouterr().out


def test_the_derivation_is_the_least_change(derivation: ModuleType) -> None:
    """The change lies in the span of the gradients of the conditions: no feasible direction shortens it."""
    rows, changes = derivation.derive()
    with localcontext() as context:
        context.prec = derivation.DIGITS
        gradients = derivation.gradients([entry for row in rows for entry in row])
        change = [entry for row in changes for entry in row]
        gram = [[derivation.dot(p, q) for q in gradients] for p in gradients]
        multipliers = derivation.solve(gram, [derivation.dot(row, change) for row in gradients])
        for entry, column in zip(change, zip(*gradients, strict=True), strict=True):
            assert abs(entry - derivation.dot(multipliers, column)) < 1e-40


def test_the_printed_third_order_matrix_is_refused(derivation: ModuleType) -> None:
    entries = derivation.split([derivation.Decimal(entry) for entry in derivation.PRINTED.split()])
    rows = tuple(tuple(map(float, row)) for row in entries)
    with pytest.raises(ValueError, match=r"printed.*order conditions"):
        ProximalTableau("printed", 3, rows)


# Validation


@pytest.mark.parametrize(
    ("rows", "condition"),
    [
        ((), "at least one stage"),
        (((5.0, 1.0),), "row m"),
        (((-5.0,),), "positive sum"),
        (((5.0,),), "order conditions"),
    ],
)
def test_a_proximal_tableau_of_wrong_shape_is_refused(rows: tuple[Row, ...], condition: str) -> None:
    with pytest.raises(ValueError, match=condition):
        ProximalTableau("wrong", 1, rows)


def test_a_consistent_scheme_without_energy_stability_is_refused() -> None:
    with pytest.raises(ValueError, match="energy margins must be positive"):
        ProximalTableau("unstable", 1, ((1 / 2,), (2.0, 1.0)))


def test_a_dirk_tableau_of_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="one entry per stage"):
        replace(SDIRK4, c=SDIRK4.c[:-1])
    with pytest.raises(ValueError, match="row i of a must have"):
        replace(SDIRK4, a=(*SDIRK4.a[:-1], SDIRK4.a[-1][:-1]))
