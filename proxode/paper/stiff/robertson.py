"""Robertson's three reactions (1966), whose rates are nine orders of magnitude apart, as a neural ODE.

The network gives the logarithms of what is made and of what is lost, `y_i' = P_i - L_i y_i`, and sees the logarithms of
the concentrations, as chemistry has them; all are scaled to be near one, the rates by the largest that the data show.
The clock is log10 t, and the data are cut into pieces that are solved side by side from their measured starts.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ... import SolverError, odeint
from .model import Model, Theta, dense, network

SIZE = (1.0, 3.65e-5, 1.0)  # the largest value of each concentration
FIRST, LAST = -5.0, 5.0  # decades
FLOOR = 1e-7  # below which a scaled concentration is none, for the logarithm
DECADES = 2.0  # decades of a rate for one unit of the network's output


def kinetics(t: Any, y: Tensor) -> Tensor:
    a, b, c = y.unbind(-1)
    slow, middle, fast = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return torch.stack([middle - slow, slow - middle - fast, fast], -1)


class Robertson(Model):
    name = "robertson"
    title = "Robertson's kinetics, t from 1e-5 to 1e5"
    lr = 2e-2
    tol = 1e-3

    def __init__(self, pieces: int = 20, length: int = 4, width: int = 16) -> None:
        """`length` data after the start of every piece; the clock s of a piece goes from 0 to 1."""
        self.count, self.length, self.width = pieces, length, width
        self.times = torch.linspace(0.0, 1.0, length + 1, dtype=torch.float64)
        self.decades = (LAST - FIRST) / pieces  # of a piece
        self.pieces = FIRST + self.decades * torch.arange(pieces, dtype=torch.float64)
        seconds = 10.0 ** torch.linspace(FIRST, LAST, len(self.data), dtype=torch.float64)
        self.speed = (self.data.diff(dim=0) / seconds.diff()[:, None]).abs().amax(0).repeat(2)
        self.y0 = self.data[:: self.length][:-1].clone()

    @cached_property
    def data(self) -> Tensor:
        """Scaled concentrations at equal distances of log t."""
        t = 10.0 ** torch.linspace(FIRST, LAST, self.count * self.length + 1, dtype=torch.float64)
        y0, size = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), torch.tensor(SIZE, dtype=torch.float64)
        with torch.no_grad():
            times = torch.cat([torch.zeros(1, dtype=torch.float64), t])
            y: Tensor = odeint(kinetics, y0, times, rtol=1e-8, atol=1e-14, method="bdf")
        return y[1:] / size

    def parameters(self, seed: int) -> list[Tensor]:
        return dense(3, self.width, self.width, 6, seed=seed, last=0.1)

    def rate(self, xp: Any, theta: Theta, t: Any, y: Any, piece: Any, hold: Any = 0.0) -> Any:
        """On the clock of the pieces: `dy/ds = ln(10) decades t dy/dt`."""
        seconds = 10.0 ** (piece + self.decades * t)[..., None]
        return math.log(10.0) * self.decades * seconds * self.kinetics(xp, theta, y)

    def kinetics(self, xp: Any, theta: Theta, y: Any) -> Any:
        x = xp.log10(xp.sqrt(y * y + FLOOR**2)) / 3 + 1
        speed = self.speed if xp is torch else xp.asarray(self.speed.numpy())
        rates = speed * 10.0 ** (DECADES * network(xp, theta, x))
        return rates[..., :3] - rates[..., 3:] * y

    def targets(self) -> Tensor:
        return self.data[1:].unflatten(0, (self.count, self.length)).transpose(0, 1)

    @torch.no_grad()
    def curves(self, theta: Theta) -> dict[str, list[float]]:
        """The learned kinetics on their own from the first datum to the last."""
        decades = torch.linspace(FIRST, LAST, len(self.data), dtype=torch.float64)
        shown = {"log_t": decades, **{f"true_{name}": y for name, y in zip("abc", self.data.T, strict=True)}}

        def f(s: Tensor, y: Tensor) -> Tensor:
            return math.log(10.0) * 10.0**s * self.kinetics(torch, theta, y)

        try:
            y = odeint(f, self.data[0], decades, rtol=1e-5, atol=1e-7, method="bdf", options={"max_num_steps": 5_000})
            shown |= dict(zip("abc", y.T, strict=True))
        except SolverError:
            pass  # kinetics without a solution have no curves
        return {name: value.tolist() for name, value in shown.items()}
