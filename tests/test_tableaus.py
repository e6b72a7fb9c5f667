"""The coefficients satisfy what they claim, and a wrong coefficient cannot be built."""

import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import localcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proxode.methods.explicit_tableaus import EXPLICIT
from proxode.methods.order_conditions import (
    Row,
    dense_residuals,
    elementary_weights,
    order_residuals,
    rooted_trees,
)
from proxode.methods.proximal_tableaus import MULTISTAGE, SDIRK4
from proxode.methods.tableaus import DirkTableau, ExplicitTableau, ProximalTableau

Tableau = ExplicitTableau | ProximalTableau | DirkTableau
ALL: tuple[Tableau, ...] = (*EXPLICIT.values(), *MULTISTAGE.values(), SDIRK4)
COEFFICIENTS = ("a", "b", "c", "b_error", "b_error_low", "dense", "c_dense", "a_dense", "rows")
FILLED = [(t, field) for t in ALL for field in COEFFICIENTS if field in vars(t) and vars(t)[field]]

explicit = pytest.mark.parametrize("tableau", EXPLICIT.values(), ids=lambda t: t.name)
adaptive = pytest.mark.parametrize("name", [name for name, t in EXPLICIT.items() if t.b_error])
implicit = pytest.mark.parametrize("tableau", [*MULTISTAGE.values(), SDIRK4], ids=lambda t: t.name)


def largest(residuals: Iterator[float]) -> float:
    return max(map(abs, residuals))


def butcher(tableau: Tableau) -> tuple[tuple[Row, ...], Row]:
    if isinstance(tableau, ProximalTableau):
        a, b, _ = tableau.butcher()
        return a, b
    return tableau.a, tableau.b


def embedded(tableau: ExplicitTableau, b_error: Row | None) -> Row:
    assert b_error is not None
    return tuple(weight - error for weight, error in zip(tableau.b, b_error, strict=True))


def proximal_stability(tableau: ProximalTableau, z: complex) -> complex:
    """R(z): one step of length one for y' = z y from y = 1."""
    states = [1 + 0j]
    for weights, gamma in zip(tableau.anchor_weights, tableau.gammas, strict=True):
        anchor = sum(weight * state for weight, state in zip(weights, states, strict=True))
        states.append(anchor / (1 - gamma * z))
    return states[-1]


def stability_polynomial(a: tuple[Row, ...], b: Row) -> list[float]:
    """Coefficients of `1 + sum_r z**r b.A**(r-1).1`."""
    coefficients, power = [1.0], [1.0] * len(b)
    for _ in b:
        coefficients.append(sum(x * y for x, y in zip(b, power, strict=True)))
        power = [sum(x * y for x, y in zip(row, power, strict=False)) for row in a]
    return coefficients


def perturbations(entries: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Every copy of nested tuples with one number moved by 1e-6."""
    for i, entry in enumerate(entries):
        copies = perturbations(entry) if isinstance(entry, tuple) else iter((entry + 1e-6,))
        for copy in copies:
            yield (*entries[:i], copy, *entries[i + 1 :])


@pytest.fixture(scope="module")
def derivation() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "derive_multistage3.py"
    spec = importlib.util.spec_from_file_location("derive_multistage3", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Rooted trees


def test_there_are_1_1_2_4_9_20_48_115_rooted_trees() -> None:
    counts = Counter(tree.order for tree in rooted_trees(8))
    assert [counts[order] for order in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


def test_densities_of_the_trees_of_order_four_are_those_of_the_table() -> None:
    assert sorted(tree.density for tree in rooted_trees(4) if tree.order == 4) == [4, 8, 12, 24]


def test_bushy_and_tall_trees_have_the_extreme_densities() -> None:
    for order in range(2, 9):
        densities = [tree.density for tree in rooted_trees(order) if tree.order == order]
        assert min(densities) == order
        assert max(densities) == math.factorial(order)


# Explicit methods


@explicit
def test_explicit_weights_have_their_order_and_no_higher(tableau: ExplicitTableau) -> None:
    weights = elementary_weights(tableau.a, tableau.order + 1)
    assert largest(order_residuals(tableau.b, weights, tableau.order)) < 2e-14
    assert largest(order_residuals(tableau.b, weights, tableau.order + 1)) > 1e-6


@adaptive
def test_embedded_weights_have_their_order_and_no_higher(name: str) -> None:
    tableau = EXPLICIT[name]
    b_hat, order = embedded(tableau, tableau.b_error), tableau.error_order
    assert order is not None
    weights = elementary_weights(tableau.a, order + 1)
    assert largest(order_residuals(b_hat, weights, order)) < 2e-14
    assert largest(order_residuals(b_hat, weights, order + 1)) > 1e-4


def test_second_embedded_solution_of_dopri8_has_order_three() -> None:
    tableau = EXPLICIT["dopri8"]
    weights = elementary_weights(tableau.a, 4)
    b_hat = embedded(tableau, tableau.b_error_low)
    assert largest(order_residuals(b_hat, weights, 3)) < 2e-14
    assert largest(order_residuals(b_hat, weights, 4)) > 1e-3


@explicit
def test_dense_output_has_its_order_and_ends_at_the_step(tableau: ExplicitTableau) -> None:
    assert tableau.dense is not None
    assert tableau.dense_order is not None
    weights = elementary_weights(tableau.a + tableau.a_dense, tableau.dense_order)
    scale = max(abs(entry) for row in tableau.dense for entry in row)
    assert largest(dense_residuals(tableau.dense, weights, tableau.dense_order)) < 2e-14 * scale
    b = tableau.b + (0.0,) * len(tableau.c_dense)
    assert [sum(row) for row in tableau.dense] == pytest.approx(b, abs=1e-15 * max(1.0, scale))


@pytest.mark.parametrize("name", ["bosh3", "dopri5", "tsit5", "dopri8"])
def test_dense_output_of_fsal_methods_has_the_slopes_of_f_at_both_ends(name: str) -> None:
    tableau = EXPLICIT[name]
    assert tableau.fsal
    assert tableau.dense is not None
    start = [row[0] for row in tableau.dense]
    end = [sum(power * entry for power, entry in enumerate(row, 1)) for row in tableau.dense]
    stages = range(len(tableau.dense))
    assert start == [float(i == 0) for i in stages]
    assert end == pytest.approx([float(i == tableau.stages - 1) for i in stages], abs=1e-12)


def test_stage_counts_and_fsal_are_those_of_the_literature() -> None:
    found = {name: (tableau.stages, tableau.fsal) for name, tableau in EXPLICIT.items()}
    assert found == {
        "euler": (1, False),
        "midpoint": (2, False),
        "heun2": (2, False),
        "rk4": (4, False),
        "adaptive_heun": (2, False),
        "bosh3": (4, True),
        "dopri5": (7, True),
        "tsit5": (7, True),
        "dopri8": (13, True),
    }


def test_dopri5_has_the_stability_polynomials_of_the_paper() -> None:
    tableau = EXPLICIT["dopri5"]
    taylor = [1 / math.factorial(power) for power in range(6)]
    fifth = stability_polynomial(tableau.a, tableau.b)
    fourth = stability_polynomial(tableau.a, embedded(tableau, tableau.b_error))
    assert fifth == pytest.approx([*taylor, 1 / 600, 0], abs=1e-15)
    assert fourth == pytest.approx([*taylor[:5], 1097 / 120000, 161 / 120000, 1 / 24000], abs=1e-15)


@pytest.mark.parametrize(
    ("name", "peer_name", "ratio"),
    [
        ("adaptive_heun", "_ADAPTIVE_HEUN_TABLEAU", -1.0),
        ("bosh3", "_BOGACKI_SHAMPINE_TABLEAU", 1.0),
        ("dopri5", "_DORMAND_PRINCE_SHAMPINE_TABLEAU", 2 / 3),
    ],
)
def test_torchdiffeq_runs_the_same_method_up_to_a_factor_of_the_error(
    name: str, peer_name: str, ratio: float
) -> None:
    pytest.importorskip("torchdiffeq")
    peer = getattr(importlib.import_module(f"torchdiffeq._impl.{name}"), peer_name)
    tableau = EXPLICIT[name]
    assert tableau.b_error is not None
    assert peer.c_sol.tolist() == pytest.approx(tableau.b, abs=1e-15)
    assert peer.c_error.tolist() == pytest.approx([ratio * error for error in tableau.b_error], abs=1e-15)
    for row, peer_row in zip(tableau.a[1:], peer.beta, strict=True):
        assert peer_row.tolist() == pytest.approx(row, abs=1e-15)


# Implicit methods


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


# Validation


@pytest.mark.parametrize(("tableau", "field"), FILLED, ids=lambda value: getattr(value, "name", value))
def test_moving_any_entry_by_1e_6_is_refused(tableau: Any, field: str) -> None:
    for entries in perturbations(getattr(tableau, field)):
        with pytest.raises(ValueError, match=f"tableau '{tableau.name}'"):
            replace(tableau, **{field: entries})


@pytest.mark.parametrize("tableau", ALL, ids=lambda t: t.name)
def test_claiming_a_higher_order_is_refused(tableau: Tableau) -> None:
    with pytest.raises(ValueError, match=f"order conditions .*up to order {tableau.order + 1}"):
        replace(tableau, order=tableau.order + 1)


@adaptive
def test_claiming_a_higher_embedded_order_is_refused(name: str) -> None:
    tableau = EXPLICIT[name]
    assert tableau.error_order is not None
    with pytest.raises(ValueError, match="b - b_error must satisfy"):
        replace(tableau, error_order=tableau.error_order + 1)


@explicit
def test_claiming_a_higher_dense_order_is_refused(tableau: ExplicitTableau) -> None:
    assert tableau.dense_order is not None
    with pytest.raises(ValueError, match="dense must satisfy"):
        replace(tableau, dense_order=tableau.dense_order + 1)


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"c": (0.0,)}, "one entry per stage"),
        ({"a": ((), (1.0, 0.0))}, "row i of a must have i entries"),
        ({"c_dense": (0.5,)}, "one entry per extra stage"),
        ({"b_error": (0.0,)}, "b_error must have one entry per stage"),
        ({"error_order": None}, "b_error and its order belong together"),
        ({"error_order_low": 1}, "b_error_low and its order belong together"),
        ({"dense_order": None}, "dense and its order belong together"),
        ({"dense": ((1.0, -1 / 2),)}, "one row per stage"),
        ({"dense": ((1.0, -1 / 2), (0.0,))}, "equal lengths"),
        (
            {"dense": None, "dense_order": None, "c_dense": (0.0,), "a_dense": ((0.0, 0.0),)},
            "extra stages need dense",
        ),
        ({"dense": ((1.0, -0.4), (0.0, 0.4)), "dense_order": 1}, "dense must equal b at theta = 1"),
    ],
)
def test_an_explicit_tableau_of_wrong_shape_is_refused(changes: dict[str, Any], condition: str) -> None:
    with pytest.raises(ValueError, match=f"tableau 'adaptive_heun': .*{condition}"):
        replace(EXPLICIT["adaptive_heun"], **changes)


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
