"""Inner solvers: each solves one equation `z = anchor + gamma f(t, z)` and knows nothing of time."""

from __future__ import annotations

from dataclasses import fields, replace

from .anderson import Anderson
from .base import InnerResult, InnerSolver, Stop, solve_equation
from .conjugate import FletcherReeves
from .equation import ImplicitEquation
from .fixed_point import FixedPoint
from .gradient import GradientDescent, Nesterov, Restart
from .lbfgs import LBFGS
from .newton import Newton, NewtonCG, NewtonKrylov

INNER: dict[str, InnerSolver] = {
    solver.name: solver
    for solver in (
        GradientDescent(), Nesterov(), Restart(), FletcherReeves(), LBFGS(), Anderson(), FixedPoint(), Newton(),
        NewtonKrylov(), NewtonCG(),
    )
}  # fmt: skip

DENSE_LIMIT = 64  # states up to this size get dense Newton from `auto`


def inner_solver(inner: str | InnerSolver, *, size: int, lr: float | None = None) -> InnerSolver:
    """The solver that a name (or an object) asks for. `auto` is `newton` for small states, else `anderson`."""
    if isinstance(inner, str):
        if inner == "auto":
            inner = "newton" if size <= DENSE_LIMIT else "anderson"
        if inner not in INNER:
            raise ValueError(f"unknown inner solver {inner!r} (`inner`); known are: auto, {', '.join(INNER)}")
        inner = INNER[inner]
    if not isinstance(inner, InnerSolver):
        raise TypeError(f"`inner` must be a name or an InnerSolver, not {type(inner).__name__}")
    if lr is None:
        return inner
    if not any(f.name == "lr" for f in fields(inner)):
        raise ValueError(
            f"{type(inner).__name__} has no step length: leave out `inner_lr` and `inner_eta`, or choose one of "
            "gd, nag, restart, fr, lbfgs, anderson"
        )
    return replace(inner, lr=lr)  # type: ignore[call-arg]


__all__ = [
    "INNER",
    "LBFGS",
    "Anderson",
    "FixedPoint",
    "FletcherReeves",
    "GradientDescent",
    "ImplicitEquation",
    "InnerResult",
    "InnerSolver",
    "Nesterov",
    "Newton",
    "NewtonCG",
    "NewtonKrylov",
    "Restart",
    "Stop",
    "inner_solver",
    "solve_equation",
]  # fmt: skip
