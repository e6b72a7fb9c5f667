"""Anderson acceleration of the fixed-point iteration: `anderson`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ..norms import two_norm
from ..times import number
from ..vector_field import VectorField
from .base import Believed, Goal, InnerSolver
from .equation import ImplicitEquation
from .gradient import first_lr
from .secants import Secants

FORGET = 0.99  # of the stiffness that was met, per iteration: f may become milder
# Unknowns up to which so many pairs of an equation are held, and so many directions of them kept. More of them save
# evaluations of f and cost time: of a few thousand unknowns f is seldom so cheap that this does not pay. Beyond 100,000
# memory asks for few.
ROOMS: tuple[tuple[float, tuple[int, int]], ...] = ((2_000, (14, 20)), (100_000, (20, 32)), (math.inf, (4, 1)))
SLOW = 10  # times that the residual of a slow equation may take to shrink
MISLED = 2.0  # growth of the residual beyond what old pairs promised, at which they are forgotten
LOST = 10.0  # the same where all pairs are of this equation: the older half of them says nothing of where it is now
TINY = 1e-300


class AndersonState(NamedTuple):
    secants: Secants
    lr: float
    goal: float  # |r| to reach
    first: float  # |r| at the start
    bar: tuple[Tensor, Tensor] | None = None  # the point with the least residual by what is known, and that residual;
    # None where nobody will ask for it
    left: float = math.inf  # the size of that residual
    checking: bool = False  # the point proposed last was that one
    surprise: float = 1.0  # how wrong such a prediction was, as part of what it promised
    own: int = 0  # pairs of this equation, the newest ones
    unknowns: int = 0
    row: int | None = None  # of the secants, in which the point before was left; None at the start


def _believable(state: AndersonState) -> bool:
    return state.left + 2.0 * state.surprise * max(state.first - state.left, 0.0) <= state.goal


class Learned(NamedTuple):
    secants: Secants
    stiffness: float
    surprise: float


@dataclass(frozen=True)
class Anderson(InnerSolver):
    """Anderson acceleration (1965; type II of Fang & Saad 2009): the combination of the last `memory` moves
    that leaves the least residual, then a step `lr` along what is left. Needs no symmetry.

    What the moves taught about f serves the next equation too: of the span of them all, the `recycle` directions on
    which I - gamma J is smallest are kept (deflation, as in GCRO-DR of Parks et al. 2006). A pair is two states: how
    many are held and kept follows from the number of unknowns, unless it is given.
    """

    lr: float | None = None
    memory: int | None = None
    recycle: int | None = None

    name: ClassVar[str] = "anderson"
    noise_doubt: ClassVar[int] = 3

    def __post_init__(self) -> None:
        for name, least in (("memory", 1), ("recycle", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"`{name}` of Anderson must be at least {least}, not {value}")

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> AndersonState:
        known: Learned | None = equation.f.recycled.get(self.name)
        room = sum(self._room(equation.f.size))
        if known is None or not known.secants.fits(z, room):
            known = Learned(Secants.none(z, room), 0.0, 1.0)
        size, gamma = float(two_norm(r).max()), number(equation.gamma)
        if self.lr is not None or not known.stiffness:
            lr = float(first_lr(self.lr, equation, z, r).max())
        else:
            lr = 1.0 / (1.0 + abs(gamma) * known.stiffness)
        wanted = goal.part * size if goal.by_residual else 0.0
        secants = known.secants.at(gamma)
        equation.f.recycled[self.name] = known._replace(secants=secants)
        return AndersonState(secants, lr, wanted, size, surprise=known.surprise, unknowns=equation.f.size)

    def step(
        self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: AndersonState
    ) -> tuple[Tensor, AndersonState]:
        secants, surprise, own = state.secants, state.surprise, state.own
        if state.checking and state.bar is not None:
            off, promised = float(two_norm(r - state.bar[1])), max(state.first - state.left, 1e-300)
            surprise = max(off / promised, 0.5 * min(surprise, 1.0))
        grown = float(two_norm(r)) / max(state.left, TINY)
        if grown > MISLED:
            secants = secants.newest(own if own < secants.pairs or grown <= LOST else own // 2)
            own = secants.pairs
        if state.row is not None:
            before = secants.pairs
            secants = secants.add(state.row, z, r)
            own += secants.pairs - before
        bar = secants.least_residual(z, r)
        left = float(two_norm(bar[1]))
        if secants.pairs >= len(secants.s):
            secants, own = secants.compressed(self._room(equation.f.size)[1]), 0
        self._teach(equation.f, secants, surprise)
        row = secants.leave(z, r)
        following = state._replace(
            secants=secants, bar=bar, left=left, checking=False, surprise=surprise, own=own, row=row
        )
        # A point that was believed in and then seen to be no solution is not proposed again at once.
        if left <= 0.5 * state.goal and not state.checking:
            return bar[0], following._replace(checking=True)
        if _believable(following):
            return torch.sub(bar[0], bar[1], alpha=state.lr), following
        return bar[0].sub_(bar[1], alpha=state.lr), following._replace(bar=None)

    def limits(self, state: AndersonState, *, hurried: bool) -> tuple[int, int]:
        """In a linear equation the residual shrinks once in sqrt(1 + gamma |J|) iterations (and at last in as many as
        there are unknowns): one that needs thousands is not lost for that."""
        most, patience = super().limits(state, hurried=hurried)
        slow = int(min(state.lr**-0.5, state.unknowns)) if state.lr > 0.0 else 0  # nan where f has no derivative
        return max(most, SLOW * slow), max(patience, slow)

    def shortcut(self, state: AndersonState) -> Believed | None:
        """The point with the least residual, where that can be believed unseen."""
        return Believed(*state.bar, left=state.bar[1]) if state.bar is not None and _believable(state) else None

    def _room(self, unknowns: int) -> tuple[int, int]:
        """Pairs of an equation that are held, and pairs that are kept of them."""
        memory, recycle = next(room for most, room in ROOMS if unknowns <= most)
        return memory if self.memory is None else self.memory, recycle if self.recycle is None else self.recycle

    def _teach(self, f: VectorField, secants: Secants, surprise: float) -> None:
        before: Learned | None = f.recycled.get(self.name)
        stiffness = max(secants.stiffness, 0.0 if before is None else FORGET * before.stiffness)
        f.recycled[self.name] = Learned(secants, stiffness, surprise)
        f.learned["stiffness"] = stiffness
