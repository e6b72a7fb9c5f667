"""Rooted trees, the coefficients of explicit methods, and what is refused in the tableau of any method."""

import importlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
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


def largest(residuals: Iterator[float]) -> float:
    return max(map(abs, residuals))


def embedded(tableau: ExplicitTableau, b_error: Row | None) -> Row:
    assert b_error is not None
    return tuple(weight - error for weight, error in zip(tableau.b, b_error, strict=True))


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
        "ralston4": (5, True),
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


def test_the_estimate_of_ralston4_is_about_the_error_where_steps_of_loose_tolerances_are() -> None:
    """On y' = l y: z^4 (1 / 12 - z / 24) / 10 with z = h l, which has no root on the negative axis."""
    tableau = EXPLICIT["ralston4"]
    b, b_hat = (stability_polynomial(tableau.a, w) for w in (tableau.b, embedded(tableau, tableau.b_error)))
    assert b == pytest.approx([1, 1, 1 / 2, 1 / 6, 1 / 24, 0], abs=1e-14)
    difference = [x - y for x, y in zip(b, b_hat, strict=True)]
    assert difference == pytest.approx([0, 0, 0, 0, -1 / 120, 1 / 240], abs=1e-14)


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
