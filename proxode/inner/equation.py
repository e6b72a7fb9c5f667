"""The one equation behind every implicit scheme: `z = anchor + gamma f(t, z)`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..times import Time, number
from ..vector_field import VectorField


@dataclass(frozen=True)
class ImplicitEquation:
    """`z = anchor + gamma f(t, z)`.

    Its residual over gamma is the gradient of the proximal functional `|z - anchor|^2 / (2 gamma) + F(z)`
    where `f = -grad F`; where there is no F the same iterations look for the root.
    """

    f: VectorField
    t: Time
    anchor: Tensor
    gamma: Time

    def image(self, z: Tensor) -> Tensor:
        """anchor + gamma f(t, z)."""
        value = self.f(self.t, z)
        if isinstance(self.gamma, Tensor):
            return self.anchor + self.gamma.to(value.dtype) * value
        return torch.add(self.anchor, value, alpha=self.gamma)

    def residual(self, z: Tensor) -> Tensor:
        """z - anchor - gamma f(t, z): zero at the solution, and gamma times the gradient of the functional."""
        value, moved = self.f(self.t, z), z - self.anchor
        if isinstance(self.gamma, Tensor):
            return moved - self.gamma.to(value.dtype) * value
        if torch.is_grad_enabled():
            return torch.sub(moved, value, alpha=self.gamma)
        return moved.sub_(value, alpha=self.gamma)

    def velocity(self, z: Tensor, residual: Tensor | None) -> Tensor:
        """f(t, z), recovered from the residual that was computed with it; None stands for a residual of zero.
        The residual is a constant to autograd: f follows z and the anchor, as at the exact solution."""
        moved = z - self.anchor if residual is None else z - self.anchor - residual
        return moved / self.gamma

    def derivative(self, z: Tensor, v: Tensor, residual: Tensor) -> Tensor:
        """(I - gamma J) v at z, where `residual` is the residual at z."""
        if not self.f.ladder:
            return self.difference(z, v, residual)
        return torch.sub(v, self.f.jvp(self.t, z, v), alpha=number(self.gamma))

    def difference(self, z: Tensor, v: Tensor, residual: Tensor) -> Tensor:
        """The same by a finite difference."""
        f0 = self.velocity(z, residual)
        self.f.stats.count("n_jvp")
        return torch.sub(v, self.f.difference(self.t, z, v, f0), alpha=number(self.gamma))

    def jacobian(self, z: Tensor) -> Tensor:
        """I - gamma J, dense."""
        matrix = self.f.jacobian(self.t, z) * -number(self.gamma)
        matrix.diagonal().add_(1.0)
        return matrix

    def lipschitz(self, z: Tensor, residual: Tensor, *, fresh: bool = False) -> float:
        """About the norm of I - gamma J, at the price of one evaluation; or of none, from one not long ago."""
        return 1.0 + abs(number(self.gamma)) * self.f.gain(self.t, z, self.velocity(z, residual), fresh=fresh)

    def detached(self) -> ImplicitEquation:
        """The same equation for the iterations, which autograd does not follow."""
        return ImplicitEquation(self.f, number(self.t), self.anchor.detach(), number(self.gamma))
