"""What one gradient of the stiff Van der Pol training costs, by implicit steps and by DOPRI5 of torchdiffeq.

    python -m benchmarks.gradients_van_der_pol --out benchmarks/results

The model is that of `benchmarks.train_van_der_pol` in the middle of its training, where the gradient has work to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import torchdiffeq
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

import proxode
from proxode.paper.report import provenance, write_report

from . import shown
from . import train_van_der_pol as training
from .gradient_rows import Counted, TooManyCalls

MAX_CALLS = 100_000
WHOLE = 500  # iterations of that training
REFERENCE_TOL = 1e-8
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "torchdiffeq odeint, dopri5": (torchdiffeq.odeint, {"method": "dopri5"}),
    "torchdiffeq odeint_adjoint, dopri5": (torchdiffeq.odeint_adjoint, {"method": "dopri5"}),
    **{f"proxode {method}, {gradient}":
       (proxode.odeint, {"method": method, "options": {"gradient": gradient, "step_size": 1.0}})
       for method, gradient in (("bdf2", "implicit"), ("bdf2", "checkpoint"), ("bdf2", "continuous"),
                                ("crank_nicolson", "implicit"), ("multistage3", "implicit"))},
}  # fmt: skip


class Loss:
    """The loss of a model, through any odeint, and its gradient."""

    def __init__(self, pieces: Any, model: torch.nn.Module, spring: float) -> None:
        self.pieces, self.model = pieces, model
        self.f = OnClock(model, pieces.on_clock(model, spring))

    def gradient(self, odeint: Callable[..., Any], tol: float, max_calls: int | None, **kwargs: Any) -> dict[str, Any]:
        counted = Counted(self.f, max_calls)
        row: dict[str, Any] = {"error": None}
        try:
            with proxode.record() as stats:
                begin = time.perf_counter()
                y = odeint(counted, self.pieces.data[0], self.pieces.s, rtol=tol, atol=tol, **kwargs)
                loss = self.pieces.loss(y)
                row |= {"loss": loss.item(), "seconds_forward": time.perf_counter() - begin}
                row["nfe_forward"] = stats.nfe_forward if odeint is proxode.odeint else counted.calls
                calls, begin = counted.calls, time.perf_counter()
                found = torch.autograd.grad(loss, list(self.model.parameters()))
                row["seconds_backward"] = time.perf_counter() - begin
            ours = odeint is proxode.odeint
            row["calls"] = counted.calls
            row["nfe_backward"] = stats.nfe_backward if ours else counted.calls - calls + counted.products
            row["gradient"] = torch.cat([g.reshape(-1) for g in found])
        except (TooManyCalls, proxode.SolverError, AssertionError, RuntimeError) as error:
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
        return row


class OnClock(torch.nn.Module):
    """odeint_adjoint of torchdiffeq asks f for its parameters."""

    def __init__(self, model: torch.nn.Module, f: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.f = model, f

    def forward(self, s: Tensor, y: Tensor) -> Tensor:
        return self.f(s, y)


def trained(iterations: int) -> Loss:
    truth = training.simulate(lambda t, y: (training.MU * (y[1] + y[0] - y[0] ** 3 / 3), -y[0] / training.MU))
    pieces = training.Pieces(*training.measure(truth, training.PIECES * training.LENGTH))
    model, log = training.train(pieces, "implicit", WHOLE, stop=iterations)
    return Loss(pieces, model, log[-1]["spring"])


def table(rows: list[dict[str, Any]]) -> Table:
    made = Table(title="One gradient of the stiff Van der Pol training", box=SIMPLE_HEAD)
    made.add_column("solver", no_wrap=True)
    for name in ("NFE fwd", "NFE bwd", "calls of f", "loss", "err dL/dθ", "s fwd", "s bwd"):
        made.add_column(name, justify="right")
    forms = {
        "nfe_forward": "{:,}", "nfe_backward": "{:,}", "calls": "{:,}", "loss": "{:.2e}", "error_theta": "{:.1e}",
        "seconds_forward": "{:.2f}", "seconds_backward": "{:.2f}",
    }  # fmt: skip
    for row in rows:
        made.add_row(row["label"], *shown.cells(row, forms))
    return made


def main(
    iterations: Annotated[int, typer.Option(help="How far the model is trained, of 500.")] = WHOLE // 2,
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path("benchmarks/results"),
    tol: Annotated[float, typer.Option(help="rtol and atol of every row.")] = 1e-5,
) -> None:
    """Errors and cost of dL/dtheta, torchdiffeq beside proxode."""
    torch.set_num_threads(1)
    console = shown.console()
    loss = trained(iterations)
    with console.status(f"the reference: DOPRI5 at {REFERENCE_TOL:.0e}"):
        reference = loss.gradient(torchdiffeq.odeint, REFERENCE_TOL, None, method="dopri5")
    exact, rows = reference.pop("gradient"), []
    for label, (odeint, kwargs) in RUNS.items():
        with console.status(label):
            row = {"label": label} | loss.gradient(odeint, tol, MAX_CALLS, **kwargs)
        found = row.pop("gradient", None)
        rows.append(row | {"error_theta": None if found is None else float((found - exact).norm() / exact.norm())})
    console.print(table(rows))
    for row in rows:
        if row["error"]:
            console.print(f"{row['label']}: {row['error']}", style="red", highlight=False)
    path = out / "gradients_van_der_pol.json"
    write_report(path, {
        "experiment": "gradients_van_der_pol",
        "provenance": provenance(0, "torchdiffeq", "scipy"),
        "tol": tol,
        "reference": reference,
        "iterations": iterations,
        "max_calls": MAX_CALLS,
        "rows": rows,
    })  # fmt: skip
    console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
