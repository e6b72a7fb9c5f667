"""One row of `benchmarks.advice`: the memory of a solve and its gradient, in a process of its own.

    python -m benchmarks.advice_memory checkpoint 1000 20000
"""

from __future__ import annotations

import json
import sys

import torch
from torch import Tensor, nn

import proxode

from .gradients_memory import bytes_in_use, reset_peak, status


class Ring(nn.Module):
    """`u' = D u_xx + net(u)` on a ring, a network in every cell; it looks at the memory whenever it is called."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.spread = 1e-3 * size**2
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        self.most = 0

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        self.most = max(self.most, bytes_in_use())
        return self.spread * (torch.roll(u, 1) - 2 * u + torch.roll(u, -1)) + self.net(u[:, None])[:, 0]


def run(gradient: str, steps: int, size: int) -> dict[str, float]:
    """Bytes at the peak and growth of the process, both in states."""
    torch.manual_seed(0)
    f = Ring(size).double()
    y0 = torch.sin(torch.linspace(0, 6.28, size, dtype=torch.float64)).requires_grad_()
    settings = {"method": "bdf2", "rtol": 1e-4, "atol": 1e-4, "gradient": gradient}
    proxode.solve(f, y0, 0.0, 1.0, step_size=0.25, **settings).ys[-1].sum().backward()  # what is loaded once
    f.zero_grad()
    reset_peak()
    held, before = status("VmRSS"), bytes_in_use()
    f.most = before
    y = proxode.solve(f, y0, 0.0, 1.0, step_size=1 / steps, **settings).ys[-1]
    y.square().sum().backward()
    return {"states": (f.most - before) / (8 * size), "resident": (status("VmHWM") - held) / (8 * size)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:4]))))
