"""What the pages of advice say of methods and of their cost: a function makes the rows of one part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import proxode
from proxode.nn import NeuralODE

from .auto_problems import auto_problems, springs, springs_start
from .least import least
from .rows import Row
from .stiff_problems import Field, equal_times, state

D = torch.float64


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


# Explicit methods where nothing is stiff


def pendulum(t: Any, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0])])


def oscillatory(quick: bool) -> Iterator[Row]:
    """A chain of masses to t = 100 at 1e-4."""
    exact = _end(springs, springs_start(), 100.0, "dopri8", 1e-11).ys[-1]
    for method in ("dopri5", "ralston4", "dopri8"):
        solution = _end(springs, springs_start(), 100.0, method, 1e-4)
        error = float((solution.ys[-1] - exact).abs().max())
        yield {"method": method, "nfe": solution.stats.nfe_forward, "error": error}


def high_order(quick: bool) -> Iterator[Row]:
    """NFE of `dopri8` for an error no larger than that of `dopri5`, at the loosest tolerance that gives it."""
    known = [p for p in auto_problems() if p.reference == "explicit" or p.name == "decay"]
    works = [(p.title, p.f, p.y0, p.t1) for p in known]
    works += [("pendulum", pendulum, state(1, 0), 20.0), ("32 masses on springs", springs, springs_start(), 100.0)]
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
