"""The solutions that errors are measured against: closed ones, or SciPy's at a tolerance that no row comes near."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp

from .counted import Array, Counted
from .stiff_problems import Problem

CACHE = Path(__file__).resolve().parents[1] / "build" / "references"
TOL, LOOSER = 1e-12, 1e-10
BOUND = 1e-9  # how far the solution at the looser tolerance may be from the reference


class BadReference(RuntimeError):
    """A reference that its own check does not confirm."""


def reference(problem: Problem, cache: Path = CACHE) -> Array:
    """The solution at the output times, `(len(times), n)`; computed once, then read from the cache."""
    if problem.exact is not None:
        return problem.exact(problem.times).numpy()
    path = cache / f"{problem.name}-{fingerprint(problem)}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")  # a killed run must not leave half a file under the name
        np.savez(part, **_make(problem))
        part.replace(path)
    with np.load(path) as stored:
        return stored["ys"]


def fingerprint(problem: Problem) -> str:
    """What the reference depends on; f is told by its values near the start."""
    states = [problem.y0, problem.y0 + 0.1, 1.3 * problem.y0 - 0.2]
    times = [torch.tensor(t, dtype=torch.float64) for t in (problem.t0, (problem.t0 + problem.t1) / 2, problem.t1)]
    values = [problem.f(t, y) for t, y in zip(times, states, strict=True)]
    digest = hashlib.sha256(f"{problem.reference} {TOL} {LOOSER} {problem.t0}".encode())
    for value in (problem.y0, problem.times, problem.factor, *values):
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def _make(problem: Problem) -> dict[str, Any]:
    ys, looser = _solve(problem, TOL), _solve(problem, LOOSER)
    off = float(relative_error(looser, ys).max())
    if not off <= BOUND:
        raise BadReference(f"{problem.name}: at {LOOSER:g} and {TOL:g} the solutions differ by {off:.1e}")
    return {"ys": ys, "off": off}


def _solve(problem: Problem, tol: float) -> Array:
    f = Counted(problem.f)
    stiff = {"jac": f.jacobian} if problem.reference in ("Radau", "BDF") else {}
    done = solve_ivp(
        f.numpy, (problem.t0, problem.t1), problem.y0.numpy(), method=problem.reference, rtol=tol,
        atol=problem.atol(tol).numpy(), t_eval=problem.times.numpy(), **stiff,
    )  # fmt: skip
    if not done.success:
        raise BadReference(f"{problem.name}: {done.message}")
    return done.y.T


def relative_error(ys: Array, exact: Array) -> Array:
    """At each time and component, in units of the largest that the component becomes."""
    size = np.abs(exact).max(axis=0)
    return np.abs(ys - exact) / np.where(size > 0, size, 1.0)


def errors(problem: Problem, ys: Array, exact: Array, tol: float) -> dict[str, float]:
    """How far a solution is off, at the last time and at the worst; `*_over_tol` in units of what was asked for."""
    plain = relative_error(ys, exact).max(axis=1)
    weighted = np.abs(ys - exact) / (problem.atol(tol).numpy() + tol * np.abs(exact))
    rms, largest = np.sqrt((weighted**2).mean(axis=1)), weighted.max(axis=1)
    return {
        "error": float(plain.max()), "final_error": float(plain[-1]),
        "rms_over_tol": float(rms.max()), "final_rms_over_tol": float(rms[-1]),
        "max_over_tol": float(largest.max()), "final_max_over_tol": float(largest[-1]),
    }  # fmt: skip
