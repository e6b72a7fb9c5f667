"""Heat in the plane: a ring of N x N points, T = 0.1, from a bump and a square of height one. The discrete Laplacian is
circulant in both directions, so the solution is known; memory is counted in states."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .contest import Answer, Prepare, Run, peak_growth

END = 0.1
SMALL = 320  # points a side that a solve of large states may have: to load its code, which is no memory of states


class Heat:
    def __init__(self, side: int) -> None:
        self.side = side
        x = torch.arange(side, dtype=torch.float64) / side
        bump = torch.exp(-50 * ((x[:, None] - 0.3) ** 2 + (x - 0.6) ** 2))
        square = ((x[:, None] >= 0.5) & (x[:, None] < 0.75) & (x >= 0.25) & (x < 0.5)).double()
        self.u0 = (bump + square).reshape(-1)

    def __call__(self, t: Any, u: Tensor) -> Tensor:
        """Its own memory: the result, and one neighbour at a time."""
        u = u.view(self.side, self.side)
        out = -4.0 * u
        for shift in (1, -1):
            for axis in (0, 1):
                out += torch.roll(u, shift, axis)
        return out.mul_(self.side**2).view(-1)

    def exact(self, t: float) -> Tensor:
        k = torch.arange(self.side, dtype=torch.float64)
        rate = -4.0 * self.side**2 * torch.sin(math.pi * k / self.side) ** 2
        shape = self.side, self.side
        modes = torch.fft.rfft2(self.u0.view(shape))
        decay = torch.exp(t * (rate[:, None] + rate[: self.side // 2 + 1]))
        return torch.fft.irfft2(modes * decay, s=shape).reshape(-1)


def ours(side: int, method: str = "auto") -> Prepare:
    import proxode

    heat = Heat(side)
    exact, times = heat.exact(END), torch.tensor([0.0, END], dtype=torch.float64)
    own, _ = peak_growth(lambda: heat(0.0, heat.u0))
    if side > SMALL:
        small = Heat(SMALL)
        proxode.odeint(small, small.u0, times, rtol=1e-2, atol=1e-2, method=method)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            with proxode.record() as stats:
                peak, us = peak_growth(partial(proxode.odeint, heat, heat.u0, times, rtol=tol, atol=tol, method=method))
            states = None if peak is None or own is None else (peak - own) / (8 * side**2)
            more = {"states": states, "steps": stats.n_steps, "n_jvp": stats.n_jvp}
            return Answer(float((us[-1] - exact).abs().max()), stats.nfe_forward, more)

        return run

    return prepare


def cvode_gmres(side: int) -> Prepare:
    import numpy as np
    from sksundae.cvode import CVODE

    heat = Heat(side)
    exact, start = heat.exact(END).numpy(), heat.u0.numpy()

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            calls = 0

            def into(t: float, u: Any, out: Any) -> None:
                nonlocal calls
                calls += 1
                out[:] = heat(t, torch.from_numpy(u)).numpy()

            solver = CVODE(into, rtol=tol, atol=tol, method="BDF", linsolver="gmres", max_num_steps=10_000_000)
            done = solver.solve(np.array([0.0, END]), start)
            if not done.success:
                raise RuntimeError(str(done.message))
            return Answer(float(np.abs(done.y[-1] - exact).max()), calls)

        return run

    return prepare
