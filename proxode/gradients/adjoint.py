"""The adjoint equation `da/dt = -J^T a` along a known trajectory, as a vector field for the same solvers.

It runs backwards, in tau = -t, and carries the gradient of each captured tensor along: `dq/dtau = (df/dtheta)^T a`.
Nothing depends on q, so an implicit step solves for a alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..inner import ImplicitEquation, InnerResult, Solve
from ..solution import Stats
from ..structure import Structure
from ..times import Time, number
from ..vector_field import VectorField
from .captured import Captured, check_known, pull

Path = Callable[[float], Tensor]  # the state at a time


@dataclass
class Linearised:
    """f along the trajectory: its graph at one time serves every product there."""

    f: VectorField
    path: Path
    captured: Captured
    at: tuple[float, Tensor, Tensor] | None = field(default=None)

    def pull(self, t: float, a: Tensor, *, parameters: bool) -> tuple[Tensor, ...]:
        """`J^T a`, and `(df/dtheta)^T a` for every captured tensor if asked for."""
        here, value = self._graph(t)
        inputs = (here, *(self.captured.all if parameters else ()))
        self.f.stats.count("n_vjp")
        if not value.requires_grad:
            return tuple(_like(a, x, None) for x in inputs)
        found = pull(value, inputs, a)
        return tuple(_like(a, x, g) for x, g in zip(inputs, found, strict=True))

    def _graph(self, t: float) -> tuple[Tensor, Tensor]:
        if self.at is None or self.at[0] != t:
            y = self.path(t).detach().requires_grad_()
            with torch.enable_grad(), self.captured.substituted() as made:
                value = self.f.graph(t, y)
            check_known([value], (y, *self.captured.all, *self.captured.ignored), made, self.f.user_time(t))
            self.at = (t, y, value)
        return self.at[1:]


def _like(a: Tensor, x: Tensor, g: Tensor | None) -> Tensor:
    """A gradient for x as part of the adjoint's state, which has one dtype."""
    return torch.zeros(x.shape, dtype=a.dtype, device=a.device) if g is None else g.to(dtype=a.dtype, device=a.device)


class AdjointField(VectorField):
    """`(a, q) -> (J^T a, (df/dtheta)^T a)` in tau, or without q where `parameters` is False. Linear in a."""

    def __init__(self, along: Linearised, structure: Structure, *, parameters: bool) -> None:
        super().__init__(along.f.func, structure, Stats(), reverse=not along.f.reverse)
        self.along = along
        self.parameters = parameters
        self.n = structure.sizes[0]

    def evaluate(self, t: Time, y: Tensor) -> Tensor:
        parts = self.along.pull(-number(t), y[: self.n], parameters=self.parameters)
        return parts[0] if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])

    def jvp(self, t: Time, y: Tensor, v: Tensor, f0: Tensor | None = None) -> Tensor:
        return self.evaluate(t, v)

    def difference(self, t: Time, y: Tensor, v: Tensor, f0: Tensor | None, part: float = 1.0) -> Tensor:
        return self.evaluate(t, v)

    def jacobian(self, t: Time, y: Tensor) -> Tensor:
        return self.along.f.jacobian(-number(t), self.along.path(-number(t))).mT

    def jacobian_entries(self, t: Time, y: Tensor, *, full: bool = True) -> Tensor | None:
        return self.jacobian(t, y) if full else None

    def has_stencil(self, t: Time, y: Tensor) -> bool:
        return False  # its value has no graph


def solving_for_a(solve: Solve, field: AdjointField) -> Solve:
    """Solve equations of (a, q): the first part by iterations, then q from it."""

    def solve_both(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
        n, anchor, gamma = field.n, equation.anchor, number(equation.gamma)
        result = solve(ImplicitEquation(field, equation.t, anchor[:n], gamma), guess[:n])
        if not result.converged:
            return replace(result, z=torch.cat([result.z, anchor[n:]]))
        moves = field.along.pull(-number(equation.t), result.z, parameters=True)[1:]
        q = anchor[n:]
        if moves:
            q = torch.add(q, torch.cat([move.reshape(-1) for move in moves]), alpha=gamma)
        residual = result.residual
        if residual is not None:
            residual = torch.cat([residual, torch.zeros_like(q)])
        return replace(result, z=torch.cat([result.z, q]), residual=residual)

    return solve_both
