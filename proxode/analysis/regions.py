"""Linear stability of methods, computed from their coefficients.

On `y' = lambda y` with `z = h lambda` a Runge-Kutta method multiplies by `R(z) = 1 + z b (I - z A)^-1 1` in each step,
a BDF by the roots of `(1 - gamma z) x^k - sum_i w_i x^(k-1-i)`. `Coefficients` is plain data, which a report can keep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..methods import bdf_coefficients
from ..methods.chebyshev import coefficients as chebyshev_coefficients
from ..methods.explicit_tableaus import EXPLICIT
from ..methods.proximal_tableaus import MULTISTAGE, SDIRK4

Coefficients = dict[str, Any]  # of a Runge-Kutta method `a` and `b`; of a BDF `weights` and `gamma`

CHEBYSHEV_STAGES = (2, 5, 10)
ROUNDING = 1e-9  # by which a modulus of one is exceeded in double precision
FARTHEST = 1e8


def all_methods() -> dict[str, tuple[int, Coefficients]]:
    """Order and coefficients by name. `bdf` and `auto` are made of those; `rkc2` has as many stages as it needs."""
    found: dict[str, tuple[int, Coefficients]] = {
        name: (tableau.order, {"a": _square(tableau.a, tableau.stages), "b": list(tableau.b)})
        for name, tableau in EXPLICIT.items()
    }
    found |= {f"rkc2, {s} stages": (2, chebyshev(s)) for s in CHEBYSHEV_STAGES}
    found["backward_euler"] = (1, {"a": [[1.0]], "b": [1.0]})
    found["crank_nicolson"] = (2, {"a": [[0.0, 0.0], [0.5, 0.5]], "b": [0.5, 0.5]})
    for name, scheme in MULTISTAGE.items():
        a, b, _ = scheme.butcher()
        found[name] = (scheme.order, {"a": _square(a, scheme.stages), "b": list(b)})
    found["sdirk4"] = (SDIRK4.order, {"a": _square(SDIRK4.a, SDIRK4.stages), "b": list(SDIRK4.b)})
    return found | {f"bdf{k}": (k, bdf(k)) for k in range(1, 6)}


def _square(a: Iterable[Iterable[float]], stages: int) -> list[list[float]]:
    rows = [list(row) for row in a]
    return [row + [0.0] * (stages - len(row)) for row in rows]


def bdf(k: int) -> Coefficients:
    """On equal steps."""
    weights, gamma = bdf_coefficients(1.0, [float(-i) for i in range(k)])
    return {"weights": [float(w) for w in weights], "gamma": float(gamma)}


def chebyshev(s: int) -> Coefficients:
    """The stages of `rkc2` as a Runge-Kutta method: its recurrence, run on unit vectors in place of slopes."""
    of = chebyshev_coefficients(s)
    slopes = torch.eye(s, dtype=torch.float64)
    y = [torch.zeros(s, dtype=torch.float64), of.first * slopes[0]]
    for j, (mu, nu, mu_f, gamma) in enumerate(zip(of.mu, of.nu, of.mu_f, of.gamma, strict=True), 2):
        y.append(mu * y[-1] + nu * y[-2] + mu_f * slopes[j - 1] + gamma * slopes[0])
    return {"a": [row.tolist() for row in y[:-1]], "b": y[-1].tolist()}


def growth(method: Coefficients, z: Tensor) -> Tensor:
    """The factor per step in size, at each complex z: |R(z)|, or the largest root of a multistep formula."""
    if "weights" in method:
        return _largest_root(method, z)
    a = torch.tensor(method["a"], dtype=torch.complex128)
    b = torch.tensor(method["b"], dtype=torch.complex128)
    flat = z.reshape(-1, 1, 1)
    ones = torch.ones(len(flat), len(b), 1, dtype=a.dtype)
    k = torch.linalg.solve_triangular(torch.eye(len(b), dtype=a.dtype) - flat * a, ones, upper=False)
    return (1 + flat[:, 0, 0] * (b @ k)[:, 0]).abs().reshape(z.shape)


def polynomial(method: Coefficients) -> list[float]:
    """Of an explicit Runge-Kutta method: the coefficients of R(z) = 1 + sum_k b A^(k-1) 1 z^k, the constant first."""
    a = torch.tensor(method["a"], dtype=torch.float64)
    b = torch.tensor(method["b"], dtype=torch.float64)
    found, powers = [1.0], torch.ones_like(b)
    for _ in range(len(b)):
        found.append(float(b @ powers))
        powers = a @ powers
    return found


def _largest_root(method: Coefficients, z: Tensor) -> Tensor:
    weights = torch.tensor(method["weights"], dtype=torch.complex128)
    k = len(weights)
    companion = torch.zeros(z.numel(), k, k, dtype=torch.complex128)
    companion[:, 0] = weights / (1 - method["gamma"] * z.reshape(-1, 1))
    companion[:, range(1, k), range(k - 1)] = 1.0
    return torch.linalg.eigvals(companion).abs().amax(-1).reshape(z.shape)


def locus(method: Coefficients, points: int = 4001) -> Tensor:
    """Where a root of a multistep formula has modulus one: the boundary of its region lies on this curve."""
    x = torch.polar(
        torch.ones(points, dtype=torch.float64), torch.linspace(0, 2 * math.pi, points, dtype=torch.float64)
    )
    k = len(method["weights"])
    lower = sum(w * x ** (k - 1 - i) for i, w in enumerate(method["weights"]))
    return (1 - lower / x**k) / method["gamma"]


def at_infinity(method: Coefficients) -> float:
    """What a step leaves of the stiffest modes: 0 is L-stable (if A-stable), 1 does not damp at all."""
    if "weights" in method:
        return 0.0  # the leading coefficient alone grows with z: all roots go to zero
    value = float(growth(method, torch.tensor(-FARTHEST + 0j, dtype=torch.complex128)))
    return round(value, 6) if value < 1e3 else math.inf


def angle(method: Coefficients, points: int = 1001) -> float | None:
    """The largest alpha in degrees for which all z with |arg(-z)| < alpha are stable, 90 is A-stable; None is nowhere.

    By bisection over rays, each with moduli from 1e-4 to 1e6.
    """
    moduli = torch.logspace(-4, 6, points, dtype=torch.float64)

    def stable(alpha: float) -> bool:
        ray = torch.polar(moduli, torch.full_like(moduli, math.pi - math.radians(alpha)))
        return bool((growth(method, ray) <= 1 + ROUNDING).all())

    if not stable(0.0):
        return None
    low, high = 0.0, 90.0
    if stable(90.0 - 1e-6):
        return high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def real_reach(method: Coefficients, points: int = 4001) -> float:
    """How far the region reaches along the negative axis from the origin; infinity if it does not end."""
    x = torch.logspace(-3, 6, points, dtype=torch.float64)
    unstable = (growth(method, -x + 0j) > 1 + ROUNDING).nonzero()
    if len(unstable) == 0:
        return math.inf
    first = int(unstable[0, 0])
    low, high = float(x[max(first - 1, 0)]), float(x[first])
    for _ in range(40):
        middle = (low + high) / 2
        stable = float(growth(method, torch.tensor(-middle + 0j, dtype=torch.complex128))) <= 1 + ROUNDING
        low, high = (middle, high) if stable else (low, middle)
    return low


def imaginary_peak(method: Coefficients, points: int = 4001) -> float:
    """The largest growth on the imaginary axis up to 1e6: above one, undamped oscillations blow up."""
    y = torch.logspace(-3, 6, points, dtype=torch.float64)
    return float(growth(method, torch.complex(torch.zeros_like(y), y)).max())
