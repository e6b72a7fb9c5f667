"""Parts of a tuple state that f does not read: log-densities, regularisers, running costs.

Their rates are known once the rest of the state is, so they follow from its solution by one evaluation, and no equation
is solved for them. They are integrated, and held to the tolerances, like everything else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .inner import ImplicitEquation, InnerResult, Solve
from .norms import Norm, anywhere, count
from .problem import Problem
from .randomness import drawn, has_drawn
from .structure import Structure
from .times import Time
from .vector_field import VectorField

FAR = (1.7e6, -2.3e5)  # values of what is not read: no number of f may depend on them


class Split(NamedTuple):
    """Which components of a flat state are solved for, and which are not."""

    solved: Tensor
    rest: Tensor
    order: Tensor  # that puts the two, one after the other, back in their places
    unknowns: int  # that are solved for, of all processes

    @staticmethod
    def of(problem: Problem) -> Split:
        parts, sizes = _checked(problem.quadrature, problem.structure), problem.structure.sizes
        rest = torch.cat([torch.full((size,), i in parts, device=problem.y0.device) for i, size in enumerate(sizes)])
        solved, others = (~rest).nonzero().squeeze(1), rest.nonzero().squeeze(1)
        return Split(solved, others, torch.cat((solved, others)).argsort(), count(solved))

    def joined(self, solved: Tensor, rest: Tensor) -> Tensor:
        return torch.cat((solved, rest), -1).index_select(-1, self.order)


class Restricted(VectorField):
    """The same f, seen through the components that are solved for. It shares all that is known of f."""

    split: Split
    seen: tuple[Tensor, Tensor] | None  # the last point, and the rates of the rest there

    @classmethod
    def to(cls, split: Split, f: VectorField) -> Restricted:
        made = cls.__new__(cls)
        made.__dict__ = f.__dict__  # what either learns, counts or gives up, both do
        made.split, made.seen = split, None
        return made

    @property
    def size(self) -> int:
        return self.split.unknowns

    def __call__(self, t: Time, y: Tensor) -> Tensor:
        out = super().__call__(t, y)
        rates = self._rates if torch.is_grad_enabled() else self._rates.detach()
        self.seen = (y, rates)
        return out

    def evaluate(self, t: Time, y: Tensor) -> Tensor:
        unread = y.new_full((len(self.split.rest),), torch.nan)
        out = super().evaluate(t, self.split.joined(y, unread))
        self._rates = out.index_select(-1, self.split.rest)
        return out.index_select(-1, self.split.solved)

    def rates_of_rest(self, t: Time, y: Tensor) -> Tensor:
        if self.seen is None or self.seen[0] is not y:
            self(t, y)
        assert self.seen is not None
        return self.seen[1]


def solve_without_rest(split: Split, inner: Solve) -> Solve:
    """Solves equations by solving those of a part of the state."""

    @torch.no_grad()
    def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
        f = Restricted.to(split, equation.f)
        anchor, rest = (equation.anchor.index_select(-1, index) for index in (split.solved, split.rest))
        part = ImplicitEquation(f, equation.t, anchor, equation.gamma)
        result = inner(part, guess.index_select(-1, split.solved))
        if not result.converged:
            return replace(result, z=guess, residual=None)
        moved = rest + equation.gamma * f.rates_of_rest(equation.t, result.z)
        none = torch.zeros_like(rest)
        residual = None if result.residual is None else split.joined(result.residual, none)
        return replace(result, z=split.joined(result.z, moved), residual=residual)

    return solve


def norm_of_solved(split: Split, norm: Norm) -> Norm:
    """The user's norm, of a part of the state."""
    return lambda x: norm(split.joined(x, x.new_zeros(len(split.rest))))


def check_unread(problem: Problem) -> None:
    """Raise if f reads what it is said not to."""
    structure, y0 = problem.structure, problem.y0.detach()
    if not _tells(problem, y0, Split.of(problem).rest) or _differs(problem, y0):
        return
    for part in sorted(_checked(problem.quadrature, structure)):
        first = sum(structure.sizes[:part])
        if _tells(problem, y0, torch.arange(first, first + structure.sizes[part])):
            raise ValueError(
                f"`quadrature` names part {part} of the state, but func reads it: its values change with that, "
                "so the part must be solved for. Leave it out of `quadrature`"
            )


@torch.no_grad()
def _tells(problem: Problem, y0: Tensor, components: Tensor) -> bool:
    """Does f at y0 change with these? They are made large, of either sign: f may only ask on which side of a bound they
    are, and would not tell a number that is none from one on its side."""
    t0, components = problem.ts[0], components.to(y0.device)
    here = problem.f(t0, y0)
    far = (problem.f(t0, y0.index_fill(-1, components, value)) for value in FAR)
    return any(anywhere(torch.nan_to_num(there) != torch.nan_to_num(here)) for there in far)


@torch.no_grad()
def _differs(problem: Problem, y0: Tensor) -> bool:
    """Does f draw random numbers, or has it two values at one place? Then its values do not tell what it reads, and to
    say that f is random is for the solve."""
    t0, before = problem.ts[0], drawn(y0.device)
    here, again = problem.f(t0, y0).clone(), problem.f(t0, y0)  # a copy: f may write all its values into one tensor
    return has_drawn(before, y0.device) or anywhere(torch.nan_to_num(here) != torch.nan_to_num(again))


def _checked(quadrature: Any, structure: Structure) -> set[int]:
    parts = quadrature if isinstance(quadrature, tuple | list) else (quadrature,)
    if not all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        raise TypeError("`quadrature` must be the index of a part of y0, or a tuple of them")
    count = len(structure.shapes)
    if not structure.is_tuple:
        raise ValueError("`quadrature` names parts of a tuple, but `y0` is one tensor: give y0 as (state, quadrature)")
    for part in parts:
        if not -count <= part < count:
            raise ValueError(f"`quadrature` names part {part}, but `y0` has {count} parts, from 0 to {count - 1}")
    found = {part % count for part in parts}
    if len(found) == count:
        raise ValueError("`quadrature` names every part of y0: something must be left for func to read")
    return found

