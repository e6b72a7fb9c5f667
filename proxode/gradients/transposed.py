"""The linear systems of backward: `u = g + gamma J^T u`, for the equation `z = anchor + gamma f(t, z)`.

Factorised for small states, and where the Jacobian is that of a grid and takes a few products; else GMRES on products,
started from what the neighbouring equation gave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..interpolation import combine, lagrange_weights
from ..linear import LOST, LinearResult, Matvec, gmres, is_rounded, refined
from ..norms import all_finite, anywhere, count, dot, largest, somewhere, two_norm
from ..solution import Failure, SolverError, Stats
from ..spread import Spread, present
from ..status import Status
from ..vector_field import VectorField
from .direct_systems import Direct
from .products import Products, Sums

MAX_ITERS = 4_000
MEMORY = 2**25  # numbers that the basis of GMRES may hold
OF_MOVE = 1e-3  # part of u - g that the residual may have: errors add up over equations, as moves do
MOVES = 100.0  # times rtol: no larger part of u - g, for the moves of all equations add up to about u
POINTS = 4  # solved systems from which the next guess is extrapolated
FEW = 4  # products of a solve up to which it pays to pull the inputs along in each, instead of once more at the end
ACCEPTED = 0.6  # power of eps: a residual that rounding may leave, whatever was asked for
ULPS = 4.0  # of g: no tolerance is smaller


class Equation(Protocol):
    """Which equation a system belongs to."""

    @property
    def t(self) -> float: ...  # in the solver's direction

    @property
    def user_t(self) -> float: ...  # and in the user's

    @property
    def gamma(self) -> float: ...


class Solved(NamedTuple):
    """A system solved before: where, and `J^T u` there in some unit."""

    t: float
    unit: float
    rate: Tensor


@dataclass
class Transposed:
    """Solves the systems of one backward pass in turn. `rtol` is what a solve may leave of g, relative; what is left
    adds up over `span`, the length of the way."""

    rtol: float
    stats: Stats
    span: float = math.inf
    f: VectorField | None = None  # which remembers where the entries of its Jacobian are
    cost: int = 0  # products of the last solve without matrices
    before: list[Solved] = field(default_factory=list)  # newest first; times decrease in backward
    points: int = 1  # of them that the next guess takes
    spread: Spread | None = field(init=False)  # of the states; backward may run where nobody has said so
    few: bool = True  # whether the last solve took no more products than FEW

    def __post_init__(self) -> None:
        self.direct = Direct(self.stats, self.f)
        self.spread = present() if self.f is None else self.f.spread

    @torch.no_grad()
    def solve(self, products: Products, g: Tensor, at: Equation) -> tuple[Tensor, Sums]:
        """u with `u - M_x^T u = g`, and M_input^T u for each input."""
        if not all_finite(g):
            raise non_finite(at.user_t)
        if not somewhere(products.moved.requires_grad) or not anywhere(g != 0):
            return g, [None] * len(products.inputs)
        u = self.direct.solve(products, g, self.rtol) if self.direct.is_cheaper(g, self.cost) else None
        if u is not None:
            return u, products.of_all(u)[1] if products.inputs else []
        # Gradients of a dissipative problem decay until the squares in a norm underflow: solve for g over its size.
        size, before = largest(g), self.stats.n_vjp
        try:
            u, sums = self._krylov(products, g / size, at, size)
        except SolverError:
            u = self.direct.rescue(products, g, self.rtol, self.stats.n_vjp - before)
            if u is None:
                raise
            return u, products.of_all(u)[1] if products.inputs else []
        self.cost = self.stats.n_vjp - before
        self.direct.look(products, self.cost)
        return u * size, [None if s is None else s * size for s in sums]

    def _krylov(self, products: Products, g: Tensor, at: Equation, unit: float) -> tuple[Tensor, Sums]:
        u = self._guess(g, at, unit)
        move, sums = products.of_all(u)
        image = u - move
        scale = float(dot(image, g)) / (float(dot(image, image)) or 1.0)  # leaves the least residual
        u, r = scale * u, torch.sub(g, image, alpha=scale)
        sums = [None if s is None else scale * s for s in sums]
        size, left = float(two_norm(g)), float(two_norm(r))
        # Where hardly anything moves, an equal share of rtol over the way is enough.
        of_move = min(OF_MOVE, MOVES * self.rtol)
        share = max(of_move * abs(scale) * float(two_norm(move)), self.rtol * size * abs(at.gamma) / self.span)
        tol = min(self.rtol * size, share)
        tol = max(tol, ULPS * torch.finfo(g.dtype).eps * size)
        if not left <= tol:
            if not all_finite(move):
                raise no_derivative(at, move)
            solved, more = self._correction(products, r, tol / left)
            if not solved.residual * left <= max(10 * tol, torch.finfo(g.dtype).eps ** ACCEPTED * size):
                part = f"{solved.iterations} products leave {solved.residual * left / size:.3g} of the gradient"
                raise failed(at, f"{part}, tolerance {tol / size:.3g}")
            u = u + solved.x
            sums = [added(s, m) for s, m in zip(sums, more, strict=True)]
            if is_rounded(solved.largest, g.dtype, self.rtol):
                u, sums = self._refined(products, g, u, tol, at)
        self._remember(Solved(at.t, unit, (u - g) / at.gamma))
        return u, sums

    def _refined(self, products: Products, g: Tensor, u: Tensor, tol: float, at: Equation) -> tuple[Tensor, Sums]:
        """Where what is slow was lost in products with what is fast, which no residual of the same solve can see."""

        def matvec(v: Tensor) -> Tensor:
            return v - products.of_x(v)

        def solve(r: Tensor) -> Tensor:
            return _gmres(matvec, r, tol / max(float(two_norm(r)), tol)).x

        found = refined(solve, matvec, g, rtol=self.rtol, start=u)
        if not found.left <= LOST:
            raise failed(at, f"{g.dtype} rounds it: a part of {min(found.left, 1.0):.1g} of the gradient is not known")
        return found.x, products.of_all(found.x)[1] if somewhere(bool(products.inputs)) else []

    def _correction(self, products: Products, r: Tensor, rtol: float) -> tuple[LinearResult, Sums]:
        """GMRES for `x - M_x^T x = r`, and M_input^T x. While few products are enough, each pulls the inputs along,
        and those of x are a combination of theirs; else x is multiplied once more."""
        parts: list[Sums] = []
        pulls = somewhere(bool(products.inputs))

        def matvec(v: Tensor) -> Tensor:
            if not (self.few and len(parts) < FEW and pulls):
                return v - products.of_x(v)
            move, sums = products.of_all(v)
            parts.append(sums)
            return v - move

        solved = _gmres(matvec, r, rtol)
        self.few = solved.iterations <= FEW
        if not pulls:
            return solved, []
        if solved.weights is None or len(parts) < solved.iterations:
            return solved, products.of_all(solved.x)[1]
        weights = solved.weights.tolist()
        # An input that f does not depend on has no gradient in any of the products.
        return solved, [None if each[0] is None else combine(None, weights, each) for each in zip(*parts, strict=True)]

    def _guess(self, g: Tensor, at: Equation, unit: float) -> Tensor:
        """g plus what the neighbours moved: J^T u is smooth in time where u itself has jumps, from the outputs."""
        known = self.before
        if known and not (at.t <= known[0].t and known[0].rate.shape == g.shape):
            self.before = []  # another backward pass has begun
            self.points = 1
        rate = self._extrapolated(at.t, unit, min(self.points, len(self.before)))
        return g if rate is None else torch.add(g, rate, alpha=at.gamma)

    def _extrapolated(self, t: float, unit: float, points: int) -> Tensor | None:
        """J^T u at t, from so many systems before."""
        known = self.before[:points]
        if not known or any(a.t >= b.t for a, b in pairwise(known)):
            return None
        weights = lagrange_weights(t, [solved.t for solved in known])
        parts = [w * (solved.unit / unit) for w, solved in zip(weights, known, strict=True)]
        if not all(math.isfinite(part) for part in parts):
            return None
        return combine(torch.zeros_like(known[0].rate), parts, [solved.rate for solved in known])

    def _remember(self, solved: Solved) -> None:
        """The next guess takes as many points as would have been best for this one: stages that alternate, or steps
        that change, are not smooth to every order."""
        sizes = [float(two_norm(solved.rate))]
        for points in range(1, len(self.before) + 1):
            rate = self._extrapolated(solved.t, solved.unit, points)
            sizes.append(math.inf if rate is None else float(two_norm(solved.rate - rate)))
        best = min(range(len(sizes)), key=sizes.__getitem__)
        # One point more than was known is worth a trial.
        self.points = best + 1 if best == len(self.before) else best
        self.before = [solved, *self.before[: POINTS - 1]]


def _gmres(matvec: Matvec, r: Tensor, rtol: float) -> LinearResult:
    restart = max(40, min(200, MEMORY // max(count(r), 1)))
    return gmres(matvec, r, rtol=rtol, max_iters=MAX_ITERS, restart=restart)


def added(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum, where None is nothing."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def non_finite(t: float) -> SolverError:
    return SolverError(Failure(Status.BACKWARD_NON_FINITE, t, 0, 0.0), None)


def no_derivative(at: Equation, product: Tensor) -> SolverError:
    """`product`: of a finite vector with the transposed Jacobian."""
    bad = (~torch.isfinite(product)).nonzero().flatten()
    detail = ""
    if present() is None:  # else a process knows only a part
        detail = f"with respect to {len(bad):,} of {product.shape[-1]:,} components of y, first number {int(bad[0])}"
    return SolverError(Failure(Status.BACKWARD_NO_DERIVATIVE, at.user_t, 0, 0.0, detail), None)


def failed(at: Equation, detail: str) -> SolverError:
    return SolverError(Failure(Status.BACKWARD_NOT_CONVERGED, at.user_t, 0, at.gamma, detail), None)
