"""512 Van der Pol oscillators with mu from 1 to 1,000, to T = 10: as independent samples, or as one problem."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from .contest import Answer, Prepare, Run

END = 10.0


class Oscillators:
    def __init__(self, count: int) -> None:
        self.mu = torch.logspace(0, 3, count, dtype=torch.float64)
        self.y0 = torch.tensor([2.0, 0.0], dtype=torch.float64).repeat(count, 1)

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[:, 1], self.mu * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)


@cache
def reference(count: int) -> Tensor:
    """At a tolerance of 1e-10, sample by sample."""
    import proxode

    f = Oscillators(count)
    with torch.no_grad():
        return proxode.solve(f, f.y0, 0.0, END, per_sample=True, rtol=1e-10, atol=1e-10).ys[-1]


def answer(y: Tensor, count: int, tol: float, nfe: int) -> Answer:
    """The error of the worst sample, of the median one, and how many are beyond ten tolerances."""
    exact = reference(count)
    off = ((y - exact) / (tol + tol * exact.abs())).square().mean(1).sqrt()
    more = {"median_over_tol": float(off.median()), "worst_over_tol": float(off.max()),
            "beyond_ten_tol": int((off > 10).sum())}  # fmt: skip
    return Answer(float((y - exact).abs().max()), nfe, more)


def per_sample(count: int) -> Prepare:
    import proxode

    f = Oscillators(count)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            done = proxode.solve(f, f.y0, 0.0, END, per_sample=True, rtol=tol, atol=tol)
            return answer(done.ys[-1], count, tol, done.stats.nfe_forward)

        return run

    return prepare


def joint(count: int) -> Prepare:
    import proxode

    f = Oscillators(count)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            done = proxode.solve(f, f.y0, 0.0, END, rtol=tol, atol=tol)
            return answer(done.ys[-1], count, tol, done.stats.nfe_forward)

        return run

    return prepare


def torchode_dopri5(count: int) -> Prepare:
    """Per sample too, but explicit."""
    import torchode

    f = Oscillators(count)
    times = torch.tensor([0.0, END], dtype=torch.float64).repeat(count, 1)

    def prepare(tol: float) -> Run:
        term = torchode.ODETerm(f)
        controller = torchode.IntegralController(atol=tol, rtol=tol, term=term)
        solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term=term), controller)
        start = torchode.InitialValueProblem(y0=f.y0, t_eval=times)

        @torch.no_grad()
        def run() -> Answer:
            done = solver.solve(start)
            return answer(done.ys[:, -1], count, tol, int(done.stats["n_f_evals"].max()))

        return run

    return prepare
