"""What the pages of advice say was measured and no other benchmark measures: a function makes the rows of one part."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import proxode
from proxode.nn import NeuralODE

from .auto_problems import auto_problems
from .gradients_memory import in_a_process
from .rows import Row
from .stiff_problems import Field, equal_times, state

D = torch.float64
TIMES = 3  # a duration is the least of so many


def least(work: Callable[[], Any], times: int = TIMES) -> tuple[Any, float]:
    """What it gives, and the seconds of the processor that it takes."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        found = work()
        spent.append(time.process_time() - start)
    return found, min(spent)


# A batch by common and by own steps


def van_der_pol(mu: Tensor) -> Field:
    """A batch of oscillators, one for each mu."""
    return lambda t, y: torch.stack([y[:, 1], mu * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)


BATCHES = (
    (32, 5.0, 5.5, "bdf"), (32, 1.0, 10.0, "bdf"), (32, 1.0, 1000.0, "bdf"),
    (512, 5.0, 5.5, "bdf"), (512, 1.0, 10.0, "bdf"), (512, 1.0, 1000.0, "bdf"),
    (512, 1.0, 10.0, "auto"), (512, 1.0, 1000.0, "auto"),
)  # fmt: skip


def samples(quick: bool) -> Iterator[Row]:
    """Van der Pol oscillators with mu spread over decades, t to 20, in common steps and each in its own."""
    for count, low, high, method in BATCHES[:1] if quick else BATCHES:
        count = 4 if quick else count
        mu = torch.logspace(math.log10(low), math.log10(high), count, dtype=D).requires_grad_()
        starts = torch.tensor([2.0, 0.0], dtype=D).repeat(count, 1)
        row: Row = {"samples": count, "low": low, "high": high, "method": method}
        for name, own in (("common", False), ("own", True)):
            stats, seconds = least(partial(_solve_and_pull, van_der_pol(mu), starts, mu, method, own))
            row[name] = {"nfe_forward": stats.nfe_forward, "nfe_backward": stats.nfe_backward, "seconds": seconds}
        yield row


def _solve_and_pull(f: Field, starts: Tensor, mu: Tensor, method: str, own: bool) -> proxode.Stats:
    solution = proxode.solve(f, starts, 0.0, 20.0, method=method, rtol=1e-4, atol=1e-4, per_sample=own)
    torch.autograd.grad(solution.ys[-1].sum(), mu)
    return solution.stats


# The training of the quickstart


class Relaxation(nn.Module):
    def __init__(self, g: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.g = g

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        x, slow = y.unbind(-1)
        return torch.stack([1000 * (self.g(slow[..., None])[..., 0] - x), x], -1)


def quickstart(quick: bool) -> Iterator[Row]:
    """The training of docs/quickstart.md, by auto and by bdf2 on the grid of the data."""
    starts = torch.stack([torch.zeros(4), torch.linspace(-2, 2, 4)], -1)
    times = torch.linspace(0, 2, 20)
    with torch.no_grad():
        truth = NeuralODE(Relaxation(torch.cos), times=times, rtol=1e-6, atol=1e-6)(starts)
    grid = {"method": "bdf2", "grid_constructor": lambda f, y0, t: t}
    for name, options in (("auto", {}), ("bdf2", grid)):
        losses, seconds = least(partial(_train, starts, times, truth, 2 if quick else 30, options))
        yield {"method": name, "first": losses[0], "last": losses[-1], "seconds": seconds}


def _train(starts: Tensor, times: Tensor, truth: Tensor, iterations: int, options: dict[str, Any]) -> list[float]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    layer = NeuralODE(Relaxation(net), times=times, rtol=1e-3, atol=1e-3, **options)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for _ in range(iterations):
        optimiser.zero_grad()
        loss = (layer(starts)[..., 1] - truth[..., 1]).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


# Gradients


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


# Explicit methods where nothing is stiff


def chain(t: Any, y: Tensor) -> Tensor:
    """32 masses on springs that are not quite linear (Fermi, Pasta, Ulam)."""
    q, p = y[:32], y[32:]
    ends = torch.zeros(1, dtype=y.dtype)
    stretch = torch.cat([q, ends]) - torch.cat([ends, q])
    force = stretch + 0.25 * stretch**2
    return torch.cat([p, force[1:] - force[:-1]])


def chain_start() -> Tensor:
    return torch.cat([torch.sin(math.pi * torch.arange(1, 33, dtype=D) / 33), torch.zeros(32, dtype=D)])


def pendulum(t: Any, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0])])


def oscillatory(quick: bool) -> Iterator[Row]:
    """A chain of masses to t = 100 at 1e-4."""
    exact = _end(chain, chain_start(), 100.0, "dopri8", 1e-11).ys[-1]
    for method in ("dopri5", "ralston4", "dopri8"):
        solution = _end(chain, chain_start(), 100.0, method, 1e-4)
        error = float((solution.ys[-1] - exact).abs().max())
        yield {"method": method, "nfe": solution.stats.nfe_forward, "error": error}


def high_order(quick: bool) -> Iterator[Row]:
    """NFE of `dopri8` for an error no larger than that of `dopri5`, at the loosest tolerance that gives it."""
    known = [p for p in auto_problems() if p.reference == "explicit" or p.name == "decay"]
    works = [(p.title, p.f, p.y0, p.t1) for p in known]
    works += [("pendulum", pendulum, state(1, 0), 20.0), ("32 masses on springs", chain, chain_start(), 100.0)]
    for name, f, y0, end in works[:1] if quick else works:
        exact = _end(f, y0, end, "dopri8", 1e-13).ys
        for rtol in (1e-6,) if quick else (1e-6, 1e-8):
            fifth = _end(f, y0, end, "dopri5", rtol)
            bound = float((fifth.ys - exact).abs().max())
            row: Row = {"problem": name, "rtol": rtol, "error": bound, "dopri5": fifth.stats.nfe_forward}
            yield row | {"dopri8": _loosest(f, y0, end, exact, bound)}


def _loosest(f: Field, y0: Tensor, end: float, exact: Tensor, bound: float) -> int | None:
    """Evaluations of `dopri8` at the loosest tolerance, eight to a decade, with an error of at most `bound`."""
    for power in range(24, 97):
        solution = _end(f, y0, end, "dopri8", 10.0 ** (-power / 8))
        if float((solution.ys - exact).abs().max()) <= bound:
            return solution.stats.nfe_forward
    return None


def _end(f: Field, y0: Tensor, end: float, method: str, rtol: float) -> proxode.Solution:
    with torch.no_grad():
        return proxode.solve(f, y0, 0.0, end, method=method, rtol=rtol, atol=rtol, save_at=equal_times(end))


# Diffusion in two dimensions


def brusselator(points: int) -> tuple[Field, Tensor]:
    """Two reacting substances that spread over a square, with mirrors at its edge."""
    spread = 0.1 * (points - 1) ** 2

    def laplacian(u: Tensor) -> Tensor:
        wide = torch.nn.functional.pad(u[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
        return wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * u

    def f(t: Any, y: Tensor) -> Tensor:
        u, v = y.reshape(2, points, points)
        rise = 1 + u * u * v - 4 * u + spread * laplacian(u)
        return torch.stack([rise, 3 * u - u * u * v + spread * laplacian(v)]).reshape(-1)

    x = torch.linspace(0, 1, points, dtype=D)
    return f, torch.stack([1 + torch.sin(2 * math.pi * x)[:, None].expand(-1, points),
                           (3 + x)[None].expand(points, -1)]).reshape(-1)  # fmt: skip


def plane(quick: bool) -> Iterator[Row]:
    """The Brusselator on a square to t = 1: what each way takes for an error of at most 1e-4 of the state's size."""
    points, bound = (8, 1e-2) if quick else (64, 1e-4)
    f, y0 = brusselator(points)
    exact = _end(f, y0, 1.0, "bdf", 1e-9).ys[-1]
    ways = {"rkc2": {"method": "rkc2"}, "bdf, fr": {"method": "bdf", "inner": "fr"},
            "bdf, anderson": {"method": "bdf", "inner": "anderson"}, "dopri5": {"method": "dopri5"}}  # fmt: skip
    for name, way in ways.items():
        for power in range(8, 29):  # from 1e-2 to 1e-7, four to a decade
            rtol = 10.0 ** (-power / 4)
            with torch.no_grad():
                work = partial(proxode.solve, f, y0, 0.0, 1.0, rtol=rtol, atol=rtol, **way)
                error = float((work().ys[-1] - exact).abs().max())
                if error > bound:
                    continue
                solution, seconds = least(work)
            yield {"way": name, "rtol": rtol, "error": error, "nfe": solution.stats.nfe_forward, "seconds": seconds}
            break


PARTS = {f.__name__: f for f in (
    samples, quickstart, direct, second, sensitivity, resident, explicit, grid, oscillatory, high_order, plane,
)}  # fmt: skip
