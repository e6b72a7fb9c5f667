"""The solutions that errors are measured against: closed ones, or SciPy's at a tolerance that no row comes near."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from scipy.integrate import solve_ivp

from .counted import Array, Counted
from .stiff_problems import Problem

CACHE = Path(__file__).resolve().parents[1] / "build" / "references"


@dataclass(frozen=True)
class Way:
    """How a reference is made: at `tol`, checked against the solution at a looser tolerance."""

    method: str
    tol: float
    looser: float
    bound: float  # on the relative difference of the two; the reference is better than that


WAYS = {
    "tight": Way("Radau", 1e-12, 1e-10, 1e-9),
    "explicit": Way("DOP853", 1e-13, 1e-12, 1e-9),
    "fair": Way("Radau", 1e-9, 1e-8, 1e-6),  # for rows at 1e-6, of large systems
}


class BadReference(RuntimeError):
    """A reference that its own check does not confirm."""


def prepare(problems: Iterable[Problem], cache: Path, console: Console) -> None:
    """All references before the first row: one that cannot be made must not end a run in its middle."""
    for problem in problems:
        with console.status(f"the reference of {problem.title}"):
            reference(problem, cache)


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
    digest = hashlib.sha256(f"{WAYS[problem.reference]} {problem.t0}".encode())
    for value in (problem.y0, problem.times, problem.factor, *values):
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def _make(problem: Problem) -> dict[str, Any]:
    way = WAYS[problem.reference]
    ys, looser = (_solve(problem, way.method, tol) for tol in (way.tol, way.looser))
    off = float(relative_error(looser, ys).max())
    if not off <= way.bound:
        raise BadReference(f"{problem.name}: at {way.looser:g} and {way.tol:g} the solutions differ by {off:.1e}")
    return {"ys": ys, "off": off}


def _solve(problem: Problem, method: str, tol: float) -> Array:
    f = Counted(problem.f)
    stiff = {"jac": f.jacobian} if method == "Radau" else {}
    done = solve_ivp(
        f.numpy, (problem.t0, problem.t1), problem.y0.numpy(), method=method, rtol=tol,
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
