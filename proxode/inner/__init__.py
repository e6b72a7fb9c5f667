"""Inner solvers: each solves one equation `z = anchor + gamma f(t, z)` and knows nothing of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from torch import Tensor

from .anderson import Anderson
from .base import Goal, InnerResult, InnerSolver, Stop, solve_equation
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

Solve = Callable[[ImplicitEquation, Tensor], InnerResult]  # how a method has its equations solved, from a guess

DENSE_LIMIT = 256  # states up to this size get dense Newton from `auto` (benchmarks/dense_threshold.py)


def takes_dense(size: int) -> bool:
    """Does `auto` make a Jacobian for states of this size?"""
    return size <= DENSE_LIMIT


def inner_solvers(inner: str | InnerSolver, *, size: int, lr: float | None = None) -> tuple[InnerSolver, ...]:
    """The solvers that a name (or an object) asks for, to be tried in turn. `auto` is `newton` for small states;
    for larger ones `anderson`, which costs least where it converges, then `newton_krylov` where it does not."""
    if isinstance(inner, str):
        names = [inner] if inner != "auto" else ["newton"] if takes_dense(size) else ["anderson", "newton_krylov"]
        if names[0] not in INNER:
            raise ValueError(f"unknown inner solver {inner!r} (`inner`); known are: auto, {', '.join(INNER)}")
        solvers = tuple(INNER[name] for name in names)
    elif isinstance(inner, InnerSolver):
        solvers = (inner,)
    else:
        raise TypeError(f"`inner` must be a name or an InnerSolver, not {type(inner).__name__}")
    return solvers if lr is None else tuple(_with_lr(solver, lr) for solver in solvers)


def _with_lr(solver: InnerSolver, lr: float) -> InnerSolver:
    if not any(f.name == "lr" for f in fields(solver)):
        raise ValueError(
            f"{type(solver).__name__} has no step length: leave out `inner_lr` and `inner_eta`, or choose one of "
            "gd, nag, restart, fr, lbfgs, anderson"
        )
    return replace(solver, lr=lr)  # type: ignore[call-arg]


__all__ = [
    "INNER",
    "LBFGS",
    "Anderson",
    "FixedPoint",
    "FletcherReeves",
    "Goal",
    "GradientDescent",
    "ImplicitEquation",
    "InnerResult",
    "InnerSolver",
    "Nesterov",
    "Newton",
    "NewtonCG",
    "NewtonKrylov",
    "Restart",
    "Solve",
    "Stop",
    "inner_solvers",
    "solve_equation",
    "takes_dense",
]  # fmt: skip
