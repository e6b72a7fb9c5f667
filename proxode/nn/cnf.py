"""A continuous normalising flow: FFJORD (Grathwohl et al., https://arxiv.org/abs/1810.01367)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from ..eager import eager
from ..methods import method_of
from .divergence import NOISES, draw_noise, exact_divergence, hutchinson
from .neural_ode import NeuralODE

SMALL = 4  # components of a sample up to which its divergence is exact unless something else is said
DIVERGENCES = ("auto", "exact", "hutchinson")


class CNF(NeuralODE):
    """`cnf(x)` moves every sample along `dx/dt = net(t, x)` to t1, and gives where it came and `log |det dz/dx|`.

    The logarithm is the integral of the divergence of net along the way. Nothing depends on it, so it is a quadrature
    (`proxode.solve`): no equation is solved for it. With `reverse=True` time runs backwards, from z to x and
    `log |det dx/dz|`.

    Args:
        net: `net(t, x)`, for a batch of independent samples.
        divergence: "exact", by one product for each component; "hutchinson", an estimate by one product; "auto" is the
            first for samples of up to 4 components. The products are part of an evaluation, not counted by themselves.
        noise: of the estimate, "rademacher" or "gaussian". It is drawn once for a solve, which sees a fixed function,
            and again for the next one.
        t1: as in `NeuralODE`, like `t0` and all of `solver`.
    """

    def __init__(
        self, net: Callable[..., Any], t1: float | Tensor = 1.0, *, t0: float | Tensor = 0.0, divergence: str = "auto",
        noise: str = "rademacher", **solver: Any,
    ) -> None:  # fmt: skip
        if divergence not in DIVERGENCES:
            raise ValueError(f"`divergence` must be one of {', '.join(DIVERGENCES)}, not {divergence!r}")
        if noise not in NOISES:
            raise ValueError(f"`noise` must be one of {', '.join(NOISES)}, not {noise!r}")
        if "times" in solver or "quadrature" in solver:
            raise TypeError("a flow goes from t0 to t1 and has its own quadrature: leave `times` and `quadrature` out")
        super().__init__(net, t1, t0=t0, **solver)
        self.divergence, self.noise = divergence, noise

    @eager
    def forward(
        self, x: Tensor, *, reverse: bool = False, generator: Generator | None = None, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The moved samples and the logarithms `(batch,)`. The noise is drawn with `generator`, else with torch's own,
        which torch.manual_seed seeds; or it is given."""
        if noise is None and not self._is_exact(x):
            noise = draw_noise(x, self.noise, generator)
        field = Augmented(self.func, noise)  # of this pass alone: backward may come after the next one
        # An explicit method solves no equations, and is spared the evaluation that checks what is not read.
        quadrature = 1 if method_of(self.settings["method"]).implicit else None
        z, log_det = self.integrate(field, (x, x.new_zeros(len(x))), reverse=reverse, quadrature=quadrature)
        return z, log_det

    @eager
    def transport(self, x: Tensor, *, reverse: bool = False) -> Tensor:
        """Only the samples, without the price of the divergence."""
        moved: Tensor = self.integrate(self.func, x, reverse=reverse)
        return moved

    def _is_exact(self, x: Tensor) -> bool:
        return self.divergence == "exact" or (self.divergence == "auto" and x[0].numel() <= SMALL)


class Augmented:
    """net beside its divergence: the exact one where there is no noise."""

    def __init__(self, net: Callable[..., Any], noise: Tensor | None) -> None:
        self.net, self.noise = net, noise

    def __call__(self, t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, keep = y[0], torch.is_grad_enabled()
        with torch.enable_grad():
            x = x if x.requires_grad else x.requires_grad_()
            rate = self.net(t, x)
            if self.noise is None:
                return rate, exact_divergence(rate, x, create_graph=keep)
            return rate, hutchinson(rate, x, self.noise, create_graph=keep)
