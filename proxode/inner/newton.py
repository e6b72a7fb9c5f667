"""Newton's method with a dense Jacobian, or a band."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..jacobian import Compressed
from ..norms import two_norm
from ..times import number
from .base import Believed, Goal, InnerSolver
from .equation import ImplicitEquation
from .factors import Factors, is_finite, spectral_radius
from .newton_krylov import SHORTEST

BANDED = 128  # unknowns from which a band is solved faster than a dense matrix
LARGEST_CHANGE = 10.0  # of a length, from one try to the next: curvature at one place tells little of another
SLOW = 0.5  # rate of convergence at which a kept Jacobian is given up, where a new one costs little
DEAR = 25  # products, for which a new one is worth some iterations more
STIFF = 1.0  # gamma times the spectral radius, from where a first move may go unchecked
UNCHECKED = 4  # equations in a row that may end so
MISSED = 0.05  # part of the residual that counts as error while a move is not checked
TINY = 1e-300
NOISE = 10.0  # ulp of the state, times the stiffness: a residual of that size tells nothing


class ChordState(NamedTuple):
    goal: Goal
    z: Tensor  # where the last move was made, and the residual there
    r: Tensor
    start: tuple[Tensor, Tensor]
    factors: Factors | None
    move: Tensor | None = None
    size: float = 0.0  # of the move, in the norm of errors
    length: float = 1.0  # part of the move that was taken
    taken: float = 1.0  # part of the move before, which led to z
    here: bool = False  # is the Jacobian that of z?
    ahead: Tensor | None = None  # the move that it would make from where the last one led
    due: bool = False  # is a new Jacobian wanted?
    trusted: bool = False  # may the first move go unchecked?
    moves: int = 0  # with this Jacobian
    rate: float = 1.0


@dataclass(frozen=True)
class Newton(InnerSolver):
    """Newton's method with a dense Jacobian and its LU factorisation: for small states.

    The Jacobian is kept while iterations with it converge fast, from one equation to the next too, and until those that
    it was short of have cost as much as a new one. Their rate tells when to stop. With a new one, a step that does not
    lead nearer to the root is taken again, shorter. Without `full` the Jacobian must be a band by a few products.

    How near a point is to the root is what the same Jacobian would move next, and lengths follow the curvature that was
    met: the iteration is the same in all units of the residual (Deuflhard 2004, Newton Methods for Nonlinear Problems,
    section 3.3). Where a shorter step of time is the alternative to a long search, residual and halving will do.
    """

    full: bool = True

    name: ClassVar[str] = "newton"
    max_iters: ClassVar[int] = 100
    patience: ClassVar[int] = 15
    local: ClassVar[bool] = True
    noise_doubt: ClassVar[int] = 1
    tries: ClassVar[int] = 4

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> ChordState:
        known: Factors | None = equation.f.learned.get(self.name)
        if known is not None and not known.fits(z):
            known = None
        price = equation.f.jacobian_price
        known = None if known is None else known.carried(number(equation.gamma), price / z.shape[-1])
        due = known is not None and known.spent > price  # as much as a new one costs
        stiff = abs(number(equation.gamma)) * float(equation.f.learned.get("stiffness", 0.0)) > STIFF
        trusted = stiff and known is not None and known.unchecked <= UNCHECKED
        return ChordState(goal, z, r, (z, r), known, due=due, trusted=trusted)

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: ChordState) -> tuple[Tensor, ChordState]:
        ahead = None
        if state.move is not None and state.factors is not None and state.goal.given:
            ahead = state.factors.solve(r)
        if state.here and state.move is not None:
            if state.length > SHORTEST and not self._shrunk(state, r, ahead):
                length = self._shorter(state, ahead)
                return state.z - length * state.move, state._replace(length=length, rate=1.0)
            state = state._replace(ahead=ahead)
        if state.factors is not None and not state.due:
            move = state.factors.solve(r) if ahead is None else ahead
            size = state.goal.measure(move)
            first, price = state.move is None, equation.f.jacobian_price
            slow = max(SLOW, price / (price + DEAR))
            rate = 1.0 if first else self._rate(equation, state, size, z, r)
            soon = state.here or not state.goal.hurried or size * rate ** (self.tries - state.moves) <= state.goal.tol
            if math.isfinite(size) and state.length == 1.0 and (first or (rate < slow and soon)):
                factors = state.factors if first else state.factors.used(rate, state.moves > 1)
                equation.f.learned[self.name] = factors
                return z - move, state._replace(
                    z=z, r=r, factors=factors, move=move, size=size, here=False, ahead=None, taken=state.length,
                    rate=1.0 if first and not state.trusted else factors.rate, moves=state.moves + 1,
                )  # fmt: skip
            if not state.here and not bool((two_norm(r) <= two_norm(state.start[1])).all()):
                z, r = state.start  # the old Jacobian has led away
        return self._with_new_jacobian(equation, z, r, state)

    def is_whole(self, state: ChordState) -> bool:
        return state.taken == 1.0

    def correction(self, state: ChordState, r: Tensor) -> Tensor | None:
        return None if state.factors is None else state.factors.solve(r)

    def limits(self, state: ChordState, *, hurried: bool) -> tuple[int, int]:
        """Damped steps may lead nearer to the root for long before they shrink the residual."""
        most, patience = super().limits(state, hurried=hurried)
        return most, 2 * patience if state.goal.given else patience

    def retreats(self, state: ChordState) -> bool:
        """From a move with a Jacobian of its own by a shorter one, from that with an old one to the start."""
        return state.goal.given and (state.length > SHORTEST if state.here else state.move is not None)

    def _shrunk(self, state: ChordState, r: Tensor, ahead: Tensor | None) -> bool:
        """Has the last move led nearer to the root? By what the same Jacobian would move next: the residual itself says
        little, for in a stiff equation it is that of the fastest components, however small their errors."""
        if ahead is None:
            return bool((two_norm(r) <= (1.0 - 0.1 * state.length) * two_norm(state.r)).all())
        return state.goal.measure(ahead) <= (1.0 - 0.25 * state.length) * state.size

    def _shorter(self, state: ChordState, ahead: Tensor | None) -> float:
        """The length at which the equation, as curved as it was found to be, would halve the distance to the root."""
        length, measure = state.length, state.goal.measure
        half = length * (0.5 if length > 0.2 else 0.1)
        if ahead is None or state.move is None or not math.isfinite(measure(ahead)):
            return half
        curved = measure(ahead - (1.0 - length) * state.move)
        return max(min(0.5 * state.size * length**2 / max(curved, TINY), 0.5 * length), length / LARGEST_CHANGE)

    def _length(self, state: ChordState, move: Tensor, size: float) -> float:
        """Of the first try with a new Jacobian."""
        if state.move is None:
            return 1.0
        if state.ahead is None or state.length == 1.0:
            return min(1.0, 2.0 * state.length)
        measure = state.goal.measure
        curved = measure(state.ahead - move) * size / max(state.size * measure(state.ahead), TINY)
        return min(1.0, LARGEST_CHANGE * state.length, max(state.length / max(curved, TINY), SHORTEST))

    def _rate(self, equation: ImplicitEquation, state: ChordState, size: float, z: Tensor, r: Tensor) -> float:
        """By which the last move has shrunk the error: the next move beside it, but also the residual. With a Jacobian
        from when f was much stiffer a component hardly moves at all, while its residual stays."""
        measure = state.goal.measure
        moves, residual = size / max(state.size * state.length, TINY), measure(r)
        stiff = 1.0 + abs(number(equation.gamma)) * float(equation.f.learned.get("stiffness", 0.0))
        if residual <= NOISE * torch.finfo(z.dtype).eps * stiff * measure(z):
            return moves
        return max(moves, residual / max(measure(state.r), TINY))

    def _with_new_jacobian(
        self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: ChordState
    ) -> tuple[Tensor, ChordState]:
        jacobian = self._jacobian(equation, z)
        if jacobian is None:
            return torch.full_like(z, math.nan), state  # the next residual says so
        if not is_finite(jacobian):
            return self._without_jacobian(equation, z, r, state)
        factors = Factors.of(jacobian, number(equation.gamma), equation.f.layout)
        if factors is not None:
            move = factors.solve(r)
            equation.f.learned[self.name] = factors
            equation.f.learned["stiffness"] = spectral_radius(jacobian)
        elif isinstance(jacobian, Compressed):
            return torch.full_like(z, math.nan), state
        else:  # singular: the least-squares direction still goes downhill
            matrix = torch.eye(len(jacobian), dtype=r.dtype, device=r.device) - number(equation.gamma) * jacobian
            move = torch.linalg.pinv(matrix) @ r
        size = state.goal.measure(move)
        length = self._length(state, move, size)
        return z - length * move, state._replace(
            z=z, r=r, factors=factors, move=move, size=size, length=length, here=True, ahead=None, rate=1.0, due=False,
            moves=1, taken=1.0 if state.move is None else state.length,
        )  # fmt: skip

    def _jacobian(self, equation: ImplicitEquation, z: Tensor) -> Tensor | Compressed | None:
        """By its entries where they make a narrow band of many unknowns, else dense."""
        f = equation.f
        if z.shape[-1] <= BANDED:
            return f.jacobian(equation.t, z)
        matrix = f.jacobian_entries(equation.t, z, full=self.full)
        if not isinstance(matrix, Compressed):
            return f.jacobian(equation.t, z) if matrix is None and self.full else matrix
        if f.layout is not None:
            return matrix
        return matrix.dense() if self.full else None

    def _without_jacobian(
        self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: ChordState
    ) -> tuple[Tensor, ChordState]:
        """f has no derivative at z: an old one is better than none."""
        if state.factors is None:
            return torch.full_like(z, math.nan), state  # the next residual says so
        factors = state.factors._replace(spent=0.0)
        equation.f.learned[self.name] = factors
        move = factors.solve(r)
        size = state.goal.measure(move)
        return z - move, state._replace(
            z=z, r=r, factors=factors, move=move, size=size, length=1.0, here=False, ahead=None, rate=1.0, due=False
        )

    def shortcut(self, state: ChordState) -> Believed | None:
        """Where the moves say that the next one would not matter. After the first move of a stiff equation too, by the
        rate of earlier ones; but with a Jacobian from when f was stiffer that move may be far too short, so what it
        may have missed, the residual, must not be large either."""
        if state.move is None or state.length < 1.0 or not state.rate < 1.0:
            return None
        left = state.rate / (1.0 - state.rate) * state.move.abs()
        if state.moves == 1:
            left = torch.maximum(left, MISSED * state.r.abs())
        return Believed(state.z - state.move, torch.zeros_like(state.r), left)

    def reached(self, equation: ImplicitEquation, r: Tensor, state: ChordState) -> None:
        """A linear f is solved by one move: there is no second to tell the rate, but the residual does."""
        rate = state.goal.measure(r) / max(state.goal.measure(state.r), TINY)
        if state.factors is not None and state.length == 1.0 and rate < 1.0:
            equation.f.learned[self.name] = state.factors.used(max(rate, torch.finfo(r.dtype).eps), spared=False)

    def iterate(self, z: Tensor, state: ChordState) -> Tensor:
        return state.z
