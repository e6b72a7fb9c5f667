"""What the pages of advice say of gradients and of their memory: a function makes the rows of one part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import proxode

from .gradients_memory import in_a_process
from .least import TIMES, least
from .rows import Row
from .stiff_problems import Field, equal_times, state

D = torch.float64

def heat(points: int) -> Field:
    rate = torch.ones((), dtype=D, requires_grad=True)
    return lambda t, y: rate * points**2 * (torch.roll(y, 1) - 2 * y + torch.roll(y, -1))


def direct(quick: bool) -> Iterator[Row]:
    """Heat on a ring to t = 0.1, by `bdf` at 1e-4: the gradient by `direct`, beside `implicit`."""
    for points in (8,) if quick else (64, 128):
        y0 = torch.exp(-20 * (torch.linspace(0, 1, points + 1, dtype=D)[:-1] - 0.5).square()).requires_grad_()
        for gradient in ("implicit", "direct"):
            status, seconds = least(partial(_pulled, heat(points), y0, gradient), 1)
            yield {"points": points, "gradient": gradient, "status": status, "seconds": seconds}


def _pulled(f: Field, y0: Tensor, gradient: str) -> str:
    try:
        y = proxode.solve(f, y0, 0.0, 0.1, method="bdf", rtol=1e-4, atol=1e-4, gradient=gradient)
        torch.autograd.grad(y.ys[-1].square().sum(), y0)
    except proxode.SolverError as error:
        return error.status.name
    return y.status.name


def second(quick: bool) -> Iterator[Row]:
    """A network beside decay at rates from 1 to 1000, 12 unknowns, `bdf` at 1e-6: solve and derivatives."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 12)).to(D)
    rates, y0 = torch.logspace(0, 3, 12, dtype=D), torch.randn(12, dtype=D, requires_grad=True)

    def solve() -> proxode.Solution:
        return proxode.solve(lambda t, y: net(y) - rates * y, y0, 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-6)

    def slope(more: bool) -> tuple[Tensor, float]:
        loss = solve().ys[-1].square().sum()
        return least(lambda: torch.autograd.grad(loss, y0, create_graph=more)[0], 1)

    solution, solved = least(solve)
    twice = []
    for _ in range(TIMES):
        g, seconds = slope(True)
        twice.append((seconds, least(partial(torch.autograd.grad, g.square().sum(), list(net.parameters())), 1)[1]))
    yield {
        "steps": solution.stats.n_steps, "solve": solved, "gradient": min(slope(False)[1] for _ in range(TIMES)),
        "with_graph": min(first for first, _ in twice), "second": min(last for _, last in twice),
    }  # fmt: skip


def oregonator(rate: Tensor) -> Field:
    """Of Hairer & Wanner IV.10, with a factor on the slow rate."""

    def f(t: Any, y: Tensor) -> Tensor:
        a, b, c = y.unbind()
        rise = 77.27 * (b + a * (1 - 8.375e-6 * a - b))
        return torch.stack([rise, (c - (1 + a) * b) / 77.27, 0.161 * rate * (a - c)])

    return f


def sensitivity(quick: bool) -> Iterator[Row]:
    """Oregonator to t = 360: relative errors of the mean of log10 y1 and of its derivative by a rate."""
    exact = _sensitivity(1e-11, "implicit")
    for gradient in ("implicit",) if quick else ("implicit", "continuous"):
        for rtol in (1e-3,) if quick else (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
            value, slope = _sensitivity(rtol, gradient)
            yield {"gradient": gradient, "rtol": rtol, "value": abs(value - exact[0]) / abs(exact[0]),
                   "slope": abs(slope - exact[1]) / abs(exact[1])}  # fmt: skip


def _sensitivity(rtol: float, gradient: str) -> tuple[float, float]:
    rate = torch.ones((), dtype=D, requires_grad=True)
    settings = {"rtol": rtol, "atol": rtol / 100, "gradient": gradient}
    ys = proxode.solve(oregonator(rate), state(1, 2, 3), 0.0, 360.0, save_at=equal_times(360.0, 30), **settings).ys
    value = ys[:, 0].log10().mean()
    return value.item(), torch.autograd.grad(value, rate)[0].item()


# Memory that a process takes


def resident(quick: bool) -> Iterator[Row]:
    """States by which a process grows for each step of bdf2 with `implicit`, by size of the state and allocator."""
    few, many = (5, 10) if quick else (200, 1_000)
    for size, threshold in ((1_000, None),) if quick else ((14_000, None), (100_000, None), (14_000, 16_384)):
        more = {} if threshold is None else {"MALLOC_MMAP_THRESHOLD_": str(threshold)}
        rows = [in_a_process("implicit", steps, size, more) for steps in (few, many)]
        grown = (rows[1].resident - rows[0].resident) / (many - few)
        yield {"size": size, "threshold": threshold, "states_a_step": grown, "seconds": rows[1].seconds}


def explicit(quick: bool) -> Iterator[Row]:
    """Memory and time of a solve by rk4 and its gradient, on the problem of gradients_memory."""
    for steps in (5,) if quick else (300, 1_000):
        for label in ("implicit (rk4)", "checkpoint (rk4)", "continuous (rk4)"):
            row = in_a_process(label, steps, 1_000 if quick else 100_000)
            yield {"gradient": label.split()[0], "steps": steps, "states": row.states, "seconds": row.seconds}


def grid(quick: bool) -> Iterator[Row]:
    """Peak memory of `implicit` and `checkpoint` for a network in every cell of a ring, with `newton` on its band."""
    for steps in (5,) if quick else (300, 1_000, 3_000):
        for gradient in ("implicit", "checkpoint"):
            size = 1_000 if quick else 20_000
            command = [sys.executable, "-m", "benchmarks.advice_memory", gradient, str(steps), str(size)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            yield {"steps": steps, "gradient": gradient, **json.loads(done.stdout)}
