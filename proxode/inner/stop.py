"""When the solve of an equation is done, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..norms import Norm, rms_norm
from ..status import Status
from .equation import ImplicitEquation

ULPS = 4.0  # of the state: no tolerance is smaller
LEAST_PART = 1e-4  # of the tolerance: a step that moves less than that may be left out


@dataclass(frozen=True)
class Stop:
    """When an inner solve is done.

    `kind="residual"`: the norm of `residual / scale` is at most `tol`. `kind="update"`: the 2-norm of
    `z^{i+1} - z^i` is at most `tol`, as in the paper.
    """

    tol: float
    kind: str = "residual"
    scale: Tensor | float = 1.0
    norm: Norm = rms_norm
    max_iters: int | None = None
    believing: bool = False  # may a solve end at a point where f was not evaluated?
    of_move: float | None = None  # the residual may also be no more than this part of gamma f, what the step moves
    given: bool = False  # has the step a given length, and no shorter one to fall back to?

    @property
    def by_residual(self) -> bool:
        """Whether the residual is tested, and not the update."""
        return self.kind == "residual"

    def measure(self, x: Tensor) -> float:
        """The size of a residual, in the units of `tol`."""
        return float(self.norm(x / self.scale).max())

    def limit(self, equation: ImplicitEquation, z: Tensor, r: Tensor) -> float:
        """The tolerance for a solve that starts at z: smaller where the step moves little, for a guess that is good
        enough by itself, step after step, would stand still; and no less than a few ulp of the state."""
        if not self.by_residual:
            return self.tol
        tol = self.tol
        if self.of_move is not None:
            move = self.measure(z - equation.anchor - r)
            tol = min(tol, max(self.of_move * move, LEAST_PART * tol))
        return max(tol, ULPS * torch.finfo(z.dtype).eps * self.measure(z))


@dataclass(frozen=True)
class InnerResult:
    """A solved equation, or the best point of a solve that failed."""

    solver: str
    z: Tensor
    status: Status
    iterations: int
    size: float  # of the residual (or of the update), as it was compared with tol
    tol: float
    residual: Tensor | None = None  # at z, where it was evaluated
    seen: bool = True  # False: the residual is what the solver expects there, f was not evaluated

    @property
    def converged(self) -> bool:
        """Whether z meets the stopping test."""
        return self.status.ok
