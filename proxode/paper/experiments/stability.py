"""Regions of linear stability of all our methods, from their coefficients; the paper's closed forms as checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...analysis.regions import Coefficients, all_methods, angle, at_infinity, growth, imaginary_peak, real_reach
from ...methods.explicit_tableaus import EXPLICIT
from ..experiment import (
    FAILS,
    HOLDS,
    PARTLY,
    UNKNOWN,
    Claim,
    Experiment,
    Picture,
    Report,
    Row,
    Scales,
    Task,
    Verdict,
    Watch,
    judged,
)
from ..tables import Table, scientific

CLOSE = 1e-10
A_STABLE = 90.0

TABLE = Claim("The linear stability domains of forward Euler, backward Euler, Crank-Nicolson and DOPRI5.", "Table 1")
IMPLICIT = Claim("Backward Euler and Crank-Nicolson are both A-stable.", "section 3.1")
ONLY_BDF2 = Claim("Among all BDFs, only BDF2 is A-stable.", "section 3.1")
LARGER = Claim(
    "Implicit solvers can take much larger steps than explicit ones with guaranteed stability.", "section 3.1"
)


def _series(terms: int, *more: float) -> Callable[[Tensor], Tensor]:
    """1 + z + ... + z^(terms - 1) / (terms - 1)!, then terms with these coefficients."""
    coefficients = [1 / math.factorial(r) for r in range(terms)] + list(more)

    def polynomial(z: Tensor) -> Tensor:
        value = torch.zeros_like(z)
        for coefficient in reversed(coefficients):
            value = value * z + coefficient
        return value

    return polynomial


def _embedded() -> Coefficients:
    tableau = EXPLICIT["dopri5"]
    assert tableau.b_error is not None
    b = [weight - error for weight, error in zip(tableau.b, tableau.b_error, strict=True)]
    return all_methods()["dopri5"][1] | {"b": b}


# The entries of the paper's table, and the coefficients that they must follow from.
CLOSED: dict[str, tuple[str, Callable[[Tensor], Tensor], Callable[[], Coefficients]]] = {
    "euler": ("|1 + z|", lambda z: 1 + z, lambda: all_methods()["euler"][1]),
    "backward_euler": ("1 / |1 - z|", lambda z: 1 / (1 - z), lambda: all_methods()["backward_euler"][1]),
    "crank_nicolson": (
        "|(1 + z/2) / (1 - z/2)|", lambda z: (1 + z / 2) / (1 - z / 2), lambda: all_methods()["crank_nicolson"][1],
    ),
    "dopri5": ("|F1(z)|, order 5", _series(6, 1 / 600), lambda: all_methods()["dopri5"][1]),
    "dopri5, embedded": (
        "|F2(z)|, order 4", _series(5, 1097 / 120000, 161 / 120000, 1 / 24000), _embedded,
    ),
}  # fmt: skip


def check(name: str, points: int) -> Row:
    """The largest relative difference of the closed form to the coefficients, on a grid."""
    words, closed, coefficients = CLOSED[name]
    x = torch.linspace(-6, 3, points, dtype=torch.float64)
    y = torch.linspace(0.05, 6, points, dtype=torch.float64)
    z = torch.complex(*torch.meshgrid(x, y, indexing="xy"))
    expected = closed(z).abs()
    difference = ((growth(coefficients(), z) - expected).abs() / expected.clamp(min=1.0)).max()
    return {"closed_form": words, "difference": float(difference)}


def measure(name: str, points: int) -> Row:
    order, coefficients = all_methods()[name]
    reach, far = real_reach(coefficients), at_infinity(coefficients)
    return {
        "order": order, "angle": angle(coefficients, points), "at_infinity": far if math.isfinite(far) else None,
        "real_reach": reach if math.isfinite(reach) else None, "unbounded": math.isinf(reach),
        "imaginary_peak": imaginary_peak(coefficients), "coefficients": coefficients,
    }  # fmt: skip


class Stability(Experiment):
    name = "stability"
    title = "regions of linear stability, from the coefficients of all methods"
    claims = (TABLE, IMPLICIT, ONLY_BDF2, LARGER)
    scales: ClassVar[Scales] = {"quick": {"points": 1001, "grid": 41}, "full": {"points": 8001, "grid": 401}}

    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        return {
            "equation": "y' = lambda y, z = h lambda: the factor per step",
            "runge_kutta": "R(z) = 1 + z b (I - zA)^-1 1",
            "bdf": "the largest root of (1 - gamma z) x^k - sum_i w_i x^(k-1-i), equal steps",
            "angle": "alpha of A(alpha)-stability in degrees, by bisection over rays with |z| from 1e-4 to 1e6",
            "composed": "bdf is made of bdf1 to bdf5, auto of dopri5, bosh3 and bdf; rkc2 has the stages that it needs",
        }

    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        checks = [_task("check", name, check, setting["grid"]) for name in CLOSED]
        return checks + [_task("method", name, measure, setting["points"]) for name in all_methods()]

    def tables(self, report: Report) -> list[Table]:
        heads = ["method", "order", "A(alpha)", "at infinity", "real axis to", "max |R(iy)|", "L-stable"]
        cells = [
            [row["method"], str(row["order"]), _degrees(row["angle"]),
             "unbounded" if row["at_infinity"] is None else f"{row['at_infinity']:g}",
             "-inf" if row["unbounded"] else f"{-row['real_reach']:.2f}",
             f"{row['imaginary_peak']:.3f}" if row["imaginary_peak"] < 10 else "unbounded",
             "yes" if l_stable(row) else "no"]
            for row in _methods(report)
        ]  # fmt: skip
        checks = [
            [r["method"], r["closed_form"], scientific(r["difference"])] for r in report["rows"] if r["kind"] == "check"
        ]
        return [
            Table("stability of all methods", heads, cells),
            Table("the paper's closed forms", ["method", "closed form", "largest difference"], checks, words=2),
        ]

    def draw(self, report: Report, folder: Path) -> list[Picture]:
        from ..figures.stability import draw

        return draw(report, folder)

    def verdicts(self, report: Report) -> list[Verdict]:
        found = {row["method"]: row for row in _methods(report)}
        return [_closed_forms(report), _implicit(found), _only_bdf2(found), _larger(found)]


def l_stable(row: Row) -> bool:
    return row["angle"] == A_STABLE and row["at_infinity"] is not None and row["at_infinity"] < CLOSE


def _task(kind: str, name: str, make: Callable[[str, int], Row], size: int) -> Task:
    def run(watch: Watch) -> Row:
        return make(name, size)

    return Task({"kind": kind, "method": name}, run)


def _methods(report: Report) -> list[Row]:
    return [row for row in report["rows"] if row["kind"] == "method"]


def _degrees(alpha: float | None) -> str:
    return "no" if alpha is None else "90 (A)" if alpha == A_STABLE else f"{alpha:.2f}"


def _closed_forms(report: Report) -> Verdict:
    checks = [row for row in report["rows"] if row["kind"] == "check"]
    if len(checks) < len(CLOSED):
        return Verdict(TABLE, "", "", UNKNOWN)
    words = ", ".join(f"{row['method']} {row['difference']:.0e}" for row in checks)
    outcome = judged([row["difference"] <= CLOSE for row in checks])
    return Verdict(
        TABLE, "closed form against coefficients", f"Largest relative difference on a grid: {words}.", outcome
    )


def _implicit(found: dict[str, Row]) -> Verdict:
    names = ("backward_euler", "crank_nicolson")
    if not found.keys() >= set(names):
        return Verdict(IMPLICIT, "", "", UNKNOWN)
    words = ", ".join(f"{n}: {_degrees(found[n]['angle'])}, {found[n]['at_infinity']:g} at infinity" for n in names)
    return Verdict(IMPLICIT, "angle of A(alpha)", f"{words}.", judged([found[n]["angle"] == A_STABLE for n in names]))


def _only_bdf2(found: dict[str, Row]) -> Verdict:
    names = [f"bdf{k}" for k in range(1, 6)]
    if not found.keys() >= set(names):
        return Verdict(ONLY_BDF2, "", "", UNKNOWN)
    stable = [name for name in names if found[name]["angle"] == A_STABLE]
    words = ", ".join(f"{name} {_degrees(found[name]['angle'])}" for name in names)
    outcome = HOLDS if stable == ["bdf2"] else PARTLY if "bdf2" in stable else FAILS
    remark = " BDF1, which is backward Euler, is A-stable too." if stable == ["bdf1", "bdf2"] else ""
    return Verdict(ONLY_BDF2, "angle of A(alpha) in degrees", f"{words}.{remark}", outcome)


def _larger(found: dict[str, Row]) -> Verdict:
    implicit = ["backward_euler", "crank_nicolson", "bdf2", "bdf3", "bdf4"]
    explicit = ["euler", "adaptive_heun", "dopri5", "dopri8"]
    if not found.keys() >= {*implicit, *explicit}:
        return Verdict(LARGER, "", "", UNKNOWN)
    ends = ", ".join(f"{name} {-found[name]['real_reach']:.2f}" for name in explicit if not found[name]["unbounded"])
    whole = [name for name in implicit if found[name]["unbounded"]]
    measured = f"On the negative axis {', '.join(whole) or 'none'} have no limit; {ends}."
    bounded = all(not found[name]["unbounded"] for name in explicit)
    outcome = HOLDS if whole == implicit and bounded else PARTLY if whole else FAILS
    return Verdict(LARGER, "how far regions reach, z = h lambda", measured, outcome)


EXPERIMENT = Stability()
