"""Allen-Cahn's equation whose reaction is a small network, `u_t = D u_xx + R(u)` on a ring of length one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ... import SolverError, odeint
from .model import Model, Theta

D, END, WIDTH = 0.02, 1.0, 16


def true_reaction(u: Tensor) -> Tensor:
    return 5 * (u - u**3)


class AllenCahn(Model):
    """The network sees one number, u at its point, and is the same at every point."""

    name = "allen_cahn"
    lr = 2e-2
    tol = 1e-3

    def __init__(self, points: int, snapshots: int = 10) -> None:
        self.points, self.spread = points, D * points**2
        self.times = torch.linspace(0.0, END, snapshots + 1, dtype=torch.float64)
        self.y0 = self._start()

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"Allen-Cahn, {self.points} points"

    def _start(self) -> Tensor:
        """Waves of several lengths, and a front."""
        x = torch.arange(self.points, dtype=torch.float64) / self.points
        waves = torch.stack([torch.sin(2 * torch.pi * k * x + k) / k for k in (1, 2, 3, 5, 8)]).sum(0)
        return 0.3 * waves + 0.5 * torch.where((x > 0.25) & (x < 0.6), 1.0, -1.0)

    def parameters(self, seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        shapes = ((WIDTH, 1), (WIDTH,), (1, WIDTH))
        return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def rate(self, xp: Any, theta: Theta, t: Any, y: Any, piece: Any = None, hold: Any = 0.0) -> Any:
        return self._diffusion(xp, y) + self.reaction(xp, theta, y)

    def reaction(self, xp: Any, theta: Theta, u: Any) -> Any:
        first, bias, last = theta
        return (xp.tanh(u[..., None] @ first.T + bias) @ last.T)[..., 0]

    def _diffusion(self, xp: Any, u: Any) -> Any:
        return self.spread * (xp.roll(u, 1, -1) + xp.roll(u, -1, -1) - 2 * u)

    @cached_property
    def _targets(self) -> Tensor:
        with torch.no_grad():
            f = lambda t, u: self._diffusion(torch, u) + true_reaction(u)  # noqa: E731
            solution: Tensor = odeint(f, self.y0, self.times, rtol=1e-8, atol=1e-8)
        return solution[1:]

    def targets(self) -> Tensor:
        return self._targets

    @torch.no_grad()
    def curves(self, theta: Theta) -> dict[str, list[float]]:
        """The reaction, and the last state of the model beside the data."""
        u = torch.linspace(-1.2, 1.2, 61, dtype=torch.float64)
        shown = {"u": u, "R": self.reaction(torch, theta, u), "true_R": true_reaction(u)}
        x = torch.arange(self.points, dtype=torch.float64) / self.points
        shown |= {"x": x, "start": self.y0, "true_end": self.targets()[-1]}
        try:
            f = lambda t, y: self.rate(torch, theta, t, y)  # noqa: E731
            shown["end"] = odeint(f, self.y0, self.times[[0, -1]], rtol=1e-5, atol=1e-5)[-1]
        except SolverError:
            pass  # a model without a solution has no last state
        return {name: value.tolist() for name, value in shown.items()}
