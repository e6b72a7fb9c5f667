"""One gradient through GRAND on Coauthor-CS, T = 10, float32: the time is that of a training step, the error that of
dL/dtheta, against backpropagation through dopri5 at 1e-8 in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from .contest import Answer, Prepare, Run
from .gradient_rows import Problem, build, make_reference, reference_path, relative_error
from .references import CACHE

HALF = 0.5  # sigmoid(0), by which the code of GRAND's authors scales the right side before it has learned anything


def gradient(scaled: bool, data_dir: str, library: str, function: str) -> Prepare:
    import torchdiffeq

    import proxode

    problem, folder = Problem(scale=HALF if scaled else 1.0), Path(data_dir)
    path = reference_path(problem, CACHE)
    if not path.exists():
        make_reference(problem, folder, path)
    expected = torch.load(path, weights_only=True)
    f, u0, readout, labels = build(problem, folder, torch.float32)
    odeint = getattr({"torchdiffeq": torchdiffeq, "proxode": proxode}[library], function)
    times = torch.tensor([0.0, problem.end])

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            u0.grad = f.theta.grad = None
            method: dict[str, Any] = {"method": "dopri5"} if library == "torchdiffeq" else {}
            with proxode.record() as stats:
                u = odeint(f, u0, times, rtol=tol, atol=tol, **method)[-1]
                F.cross_entropy(u @ readout, labels).backward()
            assert u0.grad is not None and f.theta.grad is not None
            more = {"error_u0": relative_error(u0.grad, expected["u0"])}
            nfe = stats.nfe_forward + stats.nfe_backward if library == "proxode" else None
            return Answer(relative_error(f.theta.grad, expected["theta"]), nfe, more)

        return run

    return prepare
