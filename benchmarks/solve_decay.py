"""`dy/dt = -y` by dopri5 in n unknowns: f is nearly free, so the time is that of the library."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .contest import Answer, Prepare, Run

END = 10.0


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -y


def _answer(y: Tensor, nfe: int) -> Answer:
    return Answer(float((y - math.exp(-END)).abs().max()), nfe)


def ours(size: int) -> Prepare:
    import proxode

    y0, times = torch.ones(size, dtype=torch.float64), torch.tensor([0.0, END], dtype=torch.float64)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            with proxode.record() as stats:
                y = proxode.odeint(decay, y0, times, rtol=tol, atol=tol, method="dopri5")[-1]
            return _answer(y, stats.nfe_forward)

        return run

    return prepare


def torchdiffeq_dopri5(size: int) -> Prepare:
    import torchdiffeq

    y0, times = torch.ones(size, dtype=torch.float64), torch.tensor([0.0, END], dtype=torch.float64)

    def prepare(tol: float) -> Run:
        calls = 0

        def counted(t: Tensor, y: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return -y

        with torch.no_grad():
            torchdiffeq.odeint(counted, y0, times, rtol=tol, atol=tol, method="dopri5")

        @torch.no_grad()
        def run() -> Answer:
            return _answer(torchdiffeq.odeint(decay, y0, times, rtol=tol, atol=tol, method="dopri5")[-1], calls)

        return run

    return prepare


def torchode_dopri5(size: int) -> Prepare:
    import torchode

    y0, times = torch.ones(1, size, dtype=torch.float64), torch.tensor([[0.0, END]], dtype=torch.float64)

    def prepare(tol: float) -> Run:
        term = torchode.ODETerm(decay)
        controller = torchode.IntegralController(atol=tol, rtol=tol, term=term)
        solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term=term), controller)
        start = torchode.InitialValueProblem(y0=y0, t_eval=times)

        @torch.no_grad()
        def run() -> Answer:
            done = solver.solve(start)
            return _answer(done.ys[0, -1], int(done.stats["n_f_evals"].max()))

        return run

    return prepare
