"""A stiff oscillator from one period of its motion: Van der Pol, x'' = mu (1 - x^2) x' - x.

The state is Lienard's, `x' = mu (w + x - x^3/3)`, `w' = -x/mu`; a network learns F and G of `x' = a (c w - F(x))`,
`w' = b G(x)`. As in `benchmarks/train_van_der_pol.py` the data crowd where x moves, a clock s goes by one from each to
the next, the trajectory is cut into pieces that are solved side by side, and a spring to the data is let go.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ... import SolverError, odeint, odeint_dense
from .grids import crowded, cubics
from .model import Model, Theta, dense, network

START = (2.0, 0.65)
SPRING = (4.0, 0.4)  # times mu, 1/time: at the start of the training, and from four fifths of it on


class VanDerPol(Model):
    name = "van_der_pol"
    lr = 1e-2
    tol = 1e-3

    def __init__(self, mu: float = 1000.0, count: int = 32, length: int = 12) -> None:
        self.mu, self.count, self.length = mu, count, length
        self.period = (3 - 2 * 0.6931472) * mu + 7.0143 * mu ** (-1 / 3)  # Dorodnicyn's first two terms
        self.times = torch.arange(length + 1, dtype=torch.float64)
        when, states = self.data
        self.size = states.std(0)
        self.speed = (states.diff(dim=0) / when.diff()[:, None]).abs().amax(0)
        self.y0 = states[:: length][:-1].clone()
        track = cubics(torch.cat([when[:, None], states], 1))  # time and state as functions of the clock
        self.pieces = track.unflatten(0, (count, length))

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"Van der Pol, mu = {self.mu:g}"

    def truth(self, t: Any, y: Tensor) -> Tensor:
        x, w = y.unbind(-1)
        return torch.stack([self.mu * (w + x - x**3 / 3), -x / self.mu], -1)

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """Times and states of one period."""
        with torch.no_grad():
            start = torch.tensor(START, dtype=torch.float64)
            motion = odeint_dense(self.truth, start, 0.0, self.period, rtol=1e-7, atol=1e-9, method="bdf")
            when = crowded(motion, self.truth, self.period, self.count * self.length)
            return when, torch.stack([motion(t) for t in when])

    def parameters(self, seed: int) -> list[Tensor]:
        return [*dense(1, 16, 16, 2, seed=seed), torch.ones(1, dtype=torch.float64)]

    def oscillator(self, xp: Any, theta: Theta, y: Any) -> Any:
        size, speed = (value if xp is torch else xp.asarray(value.numpy()) for value in (self.size, self.speed))
        scaled = y / size
        drift = network(xp, theta[:-1], scaled[..., :1])
        return speed * (drift + theta[-1] * scaled[..., 1:] * _first(xp, y))

    def rate(self, xp: Any, theta: Theta, t: Any, y: Any, piece: Any, hold: Any = 0.0) -> Any:
        index = t.long() if xp is torch else t.astype(int)
        index = xp.clip(index, 0, self.length - 1)
        cubic, x = piece[..., index, :, :], t - index
        a, b, c, d = (cubic[..., i, :] for i in range(4))
        now, pace = a + x * (b + x * (c + x * d)), b + x * (2 * c + x * 3 * d)
        pull = hold * self.mu * _first(xp, y) * (now[..., 1:] - y)
        return pace[..., :1] * (self.oscillator(xp, theta, y) + pull)

    def hold(self, part: float) -> float:
        strong, weak = SPRING
        return strong * (weak / strong) ** min(part / 0.8, 1.0)

    def targets(self) -> Tensor:
        return self.data[1][1:].unflatten(0, (self.count, self.length)).transpose(0, 1)

    @torch.no_grad()
    def curves(self, theta: Theta) -> dict[str, list[float]]:
        """The data, and x of the learned oscillator on its own for two periods."""
        when, states = self.data
        t = torch.unique(torch.cat([when, when + self.period]))
        start = torch.tensor(START, dtype=torch.float64)
        true = odeint(self.truth, start, t, rtol=1e-6, atol=1e-8, method="bdf")
        shown = {"data_t": when, "data_x": states[:, 0], "t": t, "true_x": true[:, 0]}
        try:
            f = lambda t, y: self.oscillator(torch, theta, y)  # noqa: E731
            y = odeint(f, start, t, rtol=1e-5, atol=1e-7, method="bdf", options={"max_num_steps": 5_000})
            shown["x"] = y[:, 0]
        except SolverError:
            pass  # a model without a solution has no curve
        return {name: value.tolist() for name, value in shown.items()}


def _first(xp: Any, y: Any) -> Any:
    """(1, 0): x alone."""
    return y.new_tensor([1.0, 0.0]) if xp is torch else xp.asarray([1.0, 0.0])
