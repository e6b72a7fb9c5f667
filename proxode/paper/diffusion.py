"""Experiment 2 of the paper: one-dimensional diffusion, proximal methods beside explicit ones.

`h_t = h_xx` on [0, 1], periodic, 128 points, t in [0, 1]. The stiffest mode decays 1,600 times faster than
the slowest, so an explicit method must take tiny steps long after all that is fast has died out.

The discrete Laplacian is circulant: the discrete Fourier transform gives the exact solution of the system
that the methods solve, so every error reported here is the method's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .. import SolverError, odeint, record

OUTPUTS = 20  # output times after the initial one
REPORT_EVERY = 256  # calls of f between two reports of progress: too few to be seen in the wall time

INNER_TOL = 5e-9  # of the paper's table; its figure has larger ones too
EXPLICIT_TOL = 1e-6
PAPER_SCHEMES = ("backward_euler", "crank_nicolson", "bdf2", "bdf3", "bdf4")
EXPLICIT_SCHEMES = ("dopri5", "adaptive_heun")

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Diffusion:
    """The method of lines on a ring of `points` points, `dx = 1/(points - 1)` as in the paper."""

    points: int = 128

    @property
    def dx(self) -> float:
        return 1.0 / (self.points - 1)

    @property
    def stiffest(self) -> float:
        """The eigenvalue of largest size."""
        return -4.0 / self.dx**2 * math.sin(math.pi * (self.points // 2) / self.points) ** 2

    def f(self, t: Tensor, h: Tensor) -> Tensor:
        return (torch.roll(h, 1) + torch.roll(h, -1) - 2 * h) / self.dx**2

    def exact(self, h0: Tensor, t: Tensor) -> Tensor:
        """The solution at the times t, `(len(t), points)`: each Fourier mode decays at its own rate."""
        k = torch.arange(self.points // 2 + 1, dtype=h0.dtype)
        rate = -4.0 / self.dx**2 * torch.sin(math.pi * k / self.points) ** 2
        modes = torch.fft.rfft(h0) * torch.exp(t[:, None] * rate)
        return torch.fft.irfft(modes, n=self.points)


def density(points: int, seed: int = 0) -> Tensor:
    """The standard Gaussian as a function of x: smooth, but for a jump where the ring closes."""
    x = torch.linspace(0, 1, points, dtype=torch.float64)
    return torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def samples(points: int, seed: int = 0) -> Tensor:
    """The standard Gaussian as noise: every mode is present, also the stiffest."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(points, generator=generator, dtype=torch.float64)


# "We initialize with the standard Gaussian" can be read either way; so both.
INITIAL_DATA: dict[str, Callable[..., Tensor]] = {"density": density, "samples": samples}


@dataclass(frozen=True)
class Run:
    """One method with all that was chosen for it."""

    method: str
    setting: str  # its step or its tolerance, in words
    group: str  # "paper", "proxode" or "explicit"
    options: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-6
    atol: float = 1e-6
    main: bool = True  # in the table of the README; the others vary a tolerance

    @property
    def label(self) -> str:
        return f"{self.method}, {self.setting}"


@dataclass
class Row:
    """What one run on one set of initial data gave; `errors` are max norms against the exact solution."""

    data: str
    label: str
    method: str
    setting: str
    group: str
    options: dict[str, Any]
    rtol: float
    atol: float
    main: bool
    status: str
    message: str
    nfe: int
    n_steps: int
    seconds: float
    final_error: float | None  # none where the run did not reach the last time
    max_error: float | None
    times: list[float]  # those that were reached
    errors: list[float]

    @property
    def ok(self) -> bool:
        return self.status == "SUCCESS"


def paper_run(method: str, steps: int, tol: float = INNER_TOL) -> Run:
    """A proximal scheme with the paper's step, inner solver and stopping test: Fletcher-Reeves until its update is
    small. The inner step length and the first guess are found, as they are when the user says nothing."""
    options = {"step_size": 1 / steps, "inner": "fr", "inner_tol": tol, "inner_stop": "update"}
    if tol == INNER_TOL:
        return Run(method, f"h=1/{steps}", "paper", options)
    return Run(method, f"h=1/{steps}, inner {power(tol)}", "paper", options, main=False)


def printed_run(method: str, steps: int, lr: float = 0.05) -> Run:
    """The same with a constant inner step, as the paper has it, and its first guess `z^0 = h_k`. The 0.1 that the
    paper prints diverges here; 0.05 does not."""
    options = {**paper_run(method, steps).options, "inner_lr": lr, "predictor": "previous"}
    return Run(method, f"h=1/{steps}, lr={lr:g}", "paper", options, main=lr < 0.1)


def large_step_run(method: str, steps: int) -> Run:
    """Larger steps, about as accurate on the way as the explicit methods are, stopped by the residual."""
    options = {"step_size": 1 / steps, "inner": "fr", "inner_tol": 5e-9}
    return Run(method, f"h=1/{steps}", "proxode", options)


def explicit_run(method: str, tol: float = EXPLICIT_TOL) -> Run:
    return Run(method, f"tol={power(tol)}", "explicit", {}, tol, tol, main=tol == EXPLICIT_TOL)


def adaptive_run(method: str, tol: float = EXPLICIT_TOL, **options: Any) -> Run:
    """As long steps as the error allows."""
    run = explicit_run(method, tol)
    return replace(run, setting=", ".join([run.setting, *options.values()]), group="proxode", options=options)


def power(value: float) -> str:
    """1e-3 and not 1e-03."""
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def all_runs(setting: dict[str, Any]) -> list[Run]:
    """The runs of the experiment, as data.

    All steps divide the time between outputs, so that no error of interpolation is mixed in.
    """
    steps, fewer, fewest = setting["steps"]
    runs = [paper_run(method, steps, tol) for method in PAPER_SCHEMES for tol in setting["inner_tols"]]
    runs += [printed_run("bdf2", steps), printed_run("bdf2", steps, 0.1)]
    runs += [large_step_run("bdf4", fewer), large_step_run("multistage3", fewest)]
    for tol in setting["tols"]:
        runs += [adaptive_run("bdf", tol, inner="anderson"), adaptive_run("bdf", tol, inner="newton")]
        runs += [adaptive_run("auto", tol), *(explicit_run(method, tol) for method in EXPLICIT_SCHEMES)]
    return runs


def describe(problem: Diffusion) -> dict[str, Any]:
    """The problem in the words of the report."""
    return {
        "equation": "h_t = h_xx, periodic on [0, 1], second-order central differences",
        "points": problem.points,
        "dx": problem.dx,
        "stiffest_eigenvalue": problem.stiffest,
        "t": [0.0, 1.0],
        "dtype": "float64",
        "error": "max norm of the difference to the exact solution of the discrete system (by Fourier)",
        "initial_data": {name: (make.__doc__ or "").strip() for name, make in INITIAL_DATA.items()},
    }


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of a report as a table, the sets of initial data side by side. The README shows it so."""
    rows = [row for row in rows if row.get("main", True)]
    names = list(dict.fromkeys(row["data"] for row in rows))
    found = {(row["label"], row["data"]): row for row in rows}
    lines = [
        "| method | setting |" + "".join(f" {name}: NFE | final error | largest error |" for name in names),
        "| --- | --- |" + " ---: | ---: | ---: |" * len(names),
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        runs = [found[label, name] for name in names if (label, name) in found]
        start = f"| `{runs[0]['method']}` | {runs[0]['setting']} |"
        lines.append(start + "".join(_cells(row) for row in runs))
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> str:
    if row["status"] != "SUCCESS":
        return f" {row['nfe']:,} | {row['status']} | |"
    return f" {row['nfe']:,} | {row['final_error']:.1e} | {row['max_error']:.1e} |"


class Counted:
    """f with a counter that reports now and then, for a display. The NFE in a row come from the solver."""

    def __init__(self, f: Callable[[Tensor, Tensor], Tensor], report: Progress) -> None:
        self.f = f
        self.report = report
        self.calls = 0

    def __call__(self, t: Tensor, h: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % REPORT_EVERY == 0:
            self.report(self.calls)
        return self.f(t, h)


@torch.no_grad()
def run_one(problem: Diffusion, data: str, run: Run, report: Progress = lambda calls: None, seed: int = 0) -> Row:
    """Solve once and compare with the exact solution. A solve that fails is a row as well."""
    h0 = INITIAL_DATA[data](problem.points, seed)
    t = torch.linspace(0, 1, OUTPUTS + 1, dtype=torch.float64)
    func = Counted(problem.f, report)
    status, message = "SUCCESS", ""
    start = time.perf_counter()
    with record() as stats:
        try:
            options = dict(run.options)
            h = odeint(func, h0, t, rtol=run.rtol, atol=run.atol, method=run.method, options=options)
        except SolverError as error:
            status, message = error.status.name, str(error)
            h = h0[None] if error.solution is None else error.solution.ys
    seconds = time.perf_counter() - start
    reached = t[: len(h)]
    errors = (h - problem.exact(h0, reached)).abs().amax(dim=1).tolist()
    ok = status == "SUCCESS"
    return Row(
        data=data,
        label=run.label,
        method=run.method,
        setting=run.setting,
        group=run.group,
        options=dict(run.options),
        rtol=run.rtol,
        atol=run.atol,
        main=run.main,
        status=status,
        message=message,
        nfe=stats.nfe_forward,
        n_steps=stats.n_accepted,
        seconds=seconds,
        final_error=errors[-1] if ok else None,
        max_error=max(errors) if ok else None,
        times=reached.tolist(),
        errors=errors,
    )
