"""The solvers that are compared, ours and others', behind one call: problem and tolerance in, a row out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torchdiffeq
from scipy.integrate import solve_ivp
from torch import Tensor

import proxode
import proxode.inner
from proxode.solution import COUNTERS

from .counted import Array, Counted, Stopped
from .references import errors
from .stiff_problems import Problem

MANY_STEPS = 10_000_000  # no solver stops by its own limit: that of evaluations is the same for all
LOST = 10.0  # a relative error beyond which an answer is none, whatever the solver says of it
REPEATS = ((1.0, 3), (5.0, 2))  # the best of so many runs where one takes less than so many seconds


@dataclass(frozen=True)
class Limits:
    """What a row may use up before it is stopped and kept as a failure."""

    nfe: int = 300_000
    seconds: float = 300.0


@dataclass
class Outcome:
    """Values at the output times (those that were reached), and what the library itself counted."""

    ys: Array
    status: str = "SUCCESS"
    message: str = ""
    nfe: int | None = None  # where the library counts more than calls of f, such as Jacobian products
    details: dict[str, Any] = field(default_factory=dict)


Run = Callable[[Problem, Counted, float], Outcome]


@dataclass(frozen=True)
class Solver:
    """A curve of the picture. `algebra` is "dense", "sparse", "matrix-free" or "explicit"."""

    label: str
    library: str
    algebra: str
    run: Run


@contextmanager
def matrix_free() -> Iterator[None]:
    """`inner="auto"` as it is for large states, whatever the size: the size decides, and only there."""
    limits = proxode.inner.DENSE_LIMIT, proxode.inner.GRID_LIMIT
    proxode.inner.DENSE_LIMIT = proxode.inner.GRID_LIMIT = 0
    try:
        yield
    finally:
        proxode.inner.DENSE_LIMIT, proxode.inner.GRID_LIMIT = limits


def ours(method: str, inner: str = "auto", *, krylov: bool = False) -> Run:
    def run(problem: Problem, f: Counted, tol: float) -> Outcome:
        with matrix_free() if krylov else nullcontext():
            return _proxode(problem, f, tol, method=method, inner=inner)

    return run


@torch.no_grad()
def _proxode(problem: Problem, f: Counted, tol: float, method: str, inner: str) -> Outcome:
    with proxode.record() as stats:
        try:
            ys = proxode.odeint(
                f, problem.y0, all_times(problem), rtol=tol, atol=problem.atol(tol), method=method,
                options={"inner": inner},
            )  # fmt: skip
            outcome = Outcome(ys[1:].numpy())
        except proxode.SolverError as error:
            outcome = Outcome(np.empty((0, problem.size)), error.status.name, str(error))
        except Stopped as stop:
            outcome = Outcome(np.empty((0, problem.size)), "STOPPED", str(stop))
    outcome.nfe, outcome.details = stats.nfe_forward, {name: getattr(stats, name) for name in COUNTERS}
    outcome.details["switches"] = [list(switch) for solve in stats.solves for switch in solve.switches]
    return outcome


def all_times(problem: Problem) -> Tensor:
    """Those of the outputs, with t0 before them."""
    return torch.cat([torch.tensor([problem.t0], dtype=torch.float64), problem.times])


def scipy(method: str) -> Run:
    def run(problem: Problem, f: Counted, tol: float) -> Outcome:
        done = solve_ivp(
            f.numpy, (problem.t0, problem.t1), problem.y0.numpy(), method=method, rtol=tol,
            atol=problem.atol(tol).numpy(), t_eval=problem.times.numpy(), jac=f.jacobian,
        )  # fmt: skip
        details = {"nfev": done.nfev, "njev": done.njev, "nlu": done.nlu}
        return Outcome(done.y.T, "SUCCESS" if done.success else "FAILED", done.message, details=details)

    return run


def cvode(linear: str, **more: Any) -> Run:
    """With `sparse` it is told where the entries of the Jacobian are; nobody tells ours."""

    def run(problem: Problem, f: Counted, tol: float) -> Outcome:
        from sksundae.cvode import CVODE

        told = {"sparsity": pattern(problem)} if linear == "sparse" else {}
        solver = CVODE(f.into, rtol=tol, atol=problem.atol(tol).numpy(), method="BDF", linsolver=linear,
                       max_num_steps=MANY_STEPS, **told, **more)  # fmt: skip
        done = solver.solve(all_times(problem).numpy(), problem.y0.numpy())
        details = {"nfev": int(done.nfev), "njev": int(done.njev)}
        return Outcome(done.y[1:], "SUCCESS" if done.success else "FAILED", str(done.message), details=details)

    return run


def pattern(problem: Problem) -> Array:
    """Ones where the Jacobian has entries, at a state where none of them is zero by chance."""
    off = torch.rand(problem.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (Counted(problem.f).jacobian(problem.t0, (problem.y0 + off).numpy()) != 0).astype(float)


@torch.no_grad()
def dopri5(problem: Problem, f: Counted, tol: float) -> Outcome:
    ys = torchdiffeq.odeint(f, problem.y0, all_times(problem), rtol=tol, atol=problem.atol(tol), method="dopri5")
    return Outcome(ys[1:].numpy())


SOLVERS = (
    Solver("proxode bdf, newton", "proxode", "dense", ours("bdf", "newton")),
    Solver("proxode bdf, matrix-free", "proxode", "matrix-free", ours("bdf", krylov=True)),
    Solver("proxode auto", "proxode", "default", ours("auto")),
    Solver("proxode multistage3", "proxode", "default", ours("multistage3")),
    Solver("CVODE dense", "CVODE", "dense", cvode("dense")),
    Solver("CVODE sparse", "CVODE", "sparse", cvode("sparse")),
    Solver("CVODE GMRES", "CVODE", "matrix-free", cvode("gmres")),  # restarts after 5 vectors, its default
    Solver("CVODE GMRES, 100 vectors", "CVODE", "matrix-free", cvode("gmres", krylov_dim=100)),
    Solver("SciPy BDF", "SciPy", "dense", scipy("BDF")),
    Solver("SciPy Radau", "SciPy", "dense", scipy("Radau")),
    Solver("torchdiffeq dopri5", "torchdiffeq", "explicit", dopri5),
)


def algebra(solver: Solver, problem: Problem) -> str:
    """What the solver does on this problem: with `default`, its size decides."""
    if solver.algebra != "default":
        return solver.algebra
    return "dense" if problem.size <= proxode.inner.DENSE_LIMIT else "matrix-free"


def measure(solver: Solver, problem: Problem, exact: Array, tol: float, limits: Limits) -> dict[str, Any]:
    """One row: cost and errors. A solve that fails is a row as well."""
    outcome, f, seconds, repeats = _best(solver, problem, tol, limits)
    row: dict[str, Any] = {
        "problem": problem.name, "solver": solver.label, "library": solver.library,
        "algebra": algebra(solver, problem), "tol": tol, "status": outcome.status, "message": outcome.message,
        "nfe": f.nfe if outcome.nfe is None else outcome.nfe, "calls": f.calls, "seconds": seconds,
        "repeats": repeats, "details": outcome.details,
    }  # fmt: skip
    if outcome.status == "SUCCESS":
        row |= {"message": ""} | errors(problem, outcome.ys, exact, tol)
        if not row["error"] <= LOST:
            row |= {"status": "LOST", "message": "said to be a success, but far from the solution"}
    return row


def _best(solver: Solver, problem: Problem, tol: float, limits: Limits) -> tuple[Outcome, Counted, float, int]:
    """The shortest time of several runs; all of them do the same."""
    best, runs, wanted = float("inf"), 0, 1
    while runs < wanted:
        f = Counted(problem.f, limits.nfe, limits.seconds)
        begin = time.perf_counter()
        outcome = _tried(solver, problem, f, tol)
        seconds = time.perf_counter() - begin
        best, runs = min(best, seconds), runs + 1
        if runs == 1 and outcome.status == "SUCCESS":
            wanted = next((count for bound, count in REPEATS if seconds < bound), 1)
    return outcome, f, best, runs


def _tried(solver: Solver, problem: Problem, f: Counted, tol: float) -> Outcome:
    nothing = np.empty((0, problem.size))
    try:
        return solver.run(problem, f, tol)
    except Stopped as stop:
        return Outcome(nothing, "STOPPED", str(stop))
    except Exception as error:  # whatever a library raises is its result here
        first = (str(error).splitlines() or [""])[0]
        return Outcome(nothing, "FAILED", f"{type(error).__name__}: {first[:200]}")
