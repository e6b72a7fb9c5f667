"""Inner solvers: each solves one equation `z = anchor + gamma f(t, z)` and knows nothing of time."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import fields, replace

from torch import Tensor

from ..spread import present
from ..times import number
from .anderson import Anderson
from .base import Goal, InnerSolver, solve_equation
from .conjugate import FletcherReeves
from .continuation import followed, is_lost
from .equation import ImplicitEquation
from .fixed_point import FixedPoint
from .gradient import GradientDescent, Nesterov, Restart
from .lbfgs import LBFGS
from .newton import Newton
from .newton_krylov import NewtonCG, NewtonKrylov
from .stop import InnerResult, Stop

INNER: dict[str, InnerSolver] = {
    solver.name: solver
    for solver in (
        GradientDescent(), Nesterov(), Restart(), FletcherReeves(), LBFGS(), Anderson(), FixedPoint(), Newton(),
        NewtonKrylov(), NewtonCG(),
    )
}  # fmt: skip

BY_BANDS = Newton(full=False)

Solve = Callable[[ImplicitEquation, Tensor], InnerResult]  # how a method has its equations solved, from a guess

# Of `auto` (benchmarks/dense_threshold.py and auto_switching.py):
DENSE_LIMIT = 256  # unknowns up to which it may make a Jacobian
SMALL = 100  # unknowns up to which it does so at once; beyond, where the Jacobian of a grid takes a few products, or
GRID_LIMIT = 65_536  # unknowns up to which three products are spent to learn whether it is a narrow band
BUY = 10.0  # gamma |J| is so large that it is worth its price; once it is there it is used


def inner_solvers(
    inner: str | InnerSolver, *, size: int, lr: float | None = None, equation: ImplicitEquation | None = None
) -> tuple[InnerSolver, ...]:
    """The solvers that a name (or an object) asks for, to be tried in turn. `auto` is `newton` for small states;
    for larger ones `anderson`, which costs least where it converges, then `newton_krylov` where it does not. In between
    the stiffness of the equation decides, as far as it is known."""
    if inner == "auto":
        solvers = _auto(size, equation) if present() is None else (INNER["anderson"], INNER["newton_krylov"])
    elif isinstance(inner, str):
        if inner not in INNER:
            near = difflib.get_close_matches(inner.lower(), INNER, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"unknown inner solver {inner!r}{meant} (`inner`); known are: auto, {', '.join(INNER)}")
        solvers = (INNER[inner],)
    elif isinstance(inner, InnerSolver):
        solvers = (inner,)
    else:
        raise TypeError(f"`inner` must be a name or an InnerSolver, not {type(inner).__name__}")
    if present() is not None and any(isinstance(solver, Newton) for solver in solvers):
        raise ValueError(
            "`inner` 'newton' needs the whole Jacobian, which no process has where the state is divided over several: "
            "choose 'auto', 'anderson' or 'newton_krylov'"
        )
    return solvers if lr is None else tuple(_with_lr(solver, lr) for solver in solvers)


def _auto(size: int, equation: ImplicitEquation | None) -> tuple[InnerSolver, ...]:
    newton, without_matrices = INNER["newton"], (INNER["anderson"], INNER["newton_krylov"])
    if size <= DENSE_LIMIT:
        at_once = size <= SMALL or _worth_a_jacobian(equation)
        return (newton,) if at_once else (INNER["anderson"], newton)
    return (BY_BANDS, *without_matrices) if _has_band(size, equation) else without_matrices


def _has_band(size: int, equation: ImplicitEquation | None) -> bool:
    """Whether the Jacobian is that of a grid on a line, or nearly so."""
    if equation is None or size > GRID_LIMIT:
        return False
    return equation.f.has_stencil(equation.t, equation.anchor) and equation.f.layout is not None


def _worth_a_jacobian(equation: ImplicitEquation | None) -> bool:
    if equation is None:
        return False
    f, rho = equation.f, equation.f.stiffness
    if "newton" in f.learned or (rho is not None and abs(number(equation.gamma)) * rho >= BUY):
        return True
    return f.has_stencil(equation.t, equation.anchor)


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
    "followed",
    "inner_solvers",
    "is_lost",
    "solve_equation",
]  # fmt: skip
