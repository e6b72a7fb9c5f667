"""Solvers that a flow is trained with: the paper's, its rival DOPRI5 with the adjoint, and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...nn import CNF, Flow

Build = Callable[..., Flow]  # makes the flow; takes the arguments of `CNF`
PAPER, RIVAL, OURS = "paper", "rival", "ours"


@dataclass(frozen=True)
class Solver:
    group: str
    what: str
    settings: dict[str, Any] = field(default_factory=dict)  # of `CNF`
    adjoint: float | None = None  # by torchdiffeq's dopri5 and its adjoint at this tolerance

    def build(self, make: Build) -> tuple[Flow, Counter]:
        flow, counter = make(**self.settings), Counter()
        if self.adjoint is not None:
            for module in flow.modules():
                if isinstance(module, CNF):
                    hand_over(module, self.adjoint, counter)
        return flow, counter


class Counter:
    """Calls of the right side that torchdiffeq makes."""

    def __init__(self) -> None:
        self.calls = 0


def hand_over(cnf: CNF, tol: float, counter: Counter) -> None:
    """Let torchdiffeq solve for a flow; its net, noise and divergence stay the same."""

    def integrate(func: Callable[..., Any], y0: Any, *, reverse: bool = False, **unused: Any) -> Any:
        import torchdiffeq

        def counted(t: Tensor, y: Any) -> Any:
            counter.calls += 1
            return func(t, y)

        t = torch.tensor([float(cnf.t0), float(cnf.t1)])
        weights = tuple(p for p in cnf.parameters() if p.requires_grad)
        ys = torchdiffeq.odeint_adjoint(
            counted, y0, t.flip(0) if reverse else t, rtol=tol, atol=tol, method="dopri5", adjoint_params=weights
        )
        return tuple(y[-1] for y in ys)

    cnf.integrate = integrate  # type: ignore[method-assign]


def _bdf(order: int, **more: Any) -> dict[str, Any]:
    """As the paper has it: Fletcher-Reeves from the last state, until it moves by less than 2e-3; an adjoint."""
    return {
        "method": f"bdf{order}", "inner": "fr", "step_size": 0.2, "inner_tol": 2e-3, "inner_stop": "update",
        "predictor": "previous", "gradient": "continuous", **more,
    }  # fmt: skip


def _loose(method: str, tol: float) -> dict[str, Any]:
    return {"method": method, "rtol": tol, "atol": tol}


SOLVERS: dict[str, Solver] = {
    "dopri5 1e-5, adjoint": Solver(RIVAL, "torchdiffeq", adjoint=1e-5),
    "dopri5 1e-7, adjoint": Solver(RIVAL, "torchdiffeq", adjoint=1e-7),
    "bdf2, eta 0.3": Solver(PAPER, "step 0.2, the printed step of the inner solver", _bdf(2, inner_eta=0.3)),
    "bdf2, lr 0.3": Solver(PAPER, "step 0.2, 0.3 times the residual in place of 0.3 / gamma", _bdf(2, inner_lr=0.3)),
    "bdf2": Solver(PAPER, "step 0.2, step of the inner solver found", _bdf(2)),
    "bdf3": Solver(PAPER, "step 0.2, step of the inner solver found", _bdf(3)),
    "bdf4": Solver(PAPER, "step 0.2, step of the inner solver found", _bdf(4)),
    "auto 1e-2": Solver(OURS, "loose, its exact gradient", _loose("auto", 1e-2)),
    "ralston4 1e-2": Solver(OURS, "loose, its exact gradient", _loose("ralston4", 1e-2)),
    "bosh3 1e-2": Solver(OURS, "loose, its exact gradient", _loose("bosh3", 1e-2)),
    "dopri5 1e-3": Solver(OURS, "loose, its exact gradient", _loose("dopri5", 1e-3)),
    "rk4, h = 1/3": Solver(OURS, "three steps, their exact gradient", {"method": "rk4", "step_size": 1 / 3}),
}
REFERENCE, TIGHTER = "dopri5 1e-5, adjoint", "dopri5 1e-7, adjoint"
BDFS = ("bdf2", "bdf3", "bdf4")
TIGHT: dict[str, Any] = _loose("dopri5", 1e-7)

# Solves of one trained flow, for error against evaluations: name of the curve, settings.
PROFILE: list[tuple[str, dict[str, Any]]] = [
    *(("dopri5", _loose("dopri5", tol)) for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)),
    *(("bosh3", _loose("bosh3", tol)) for tol in (1e-1, 1e-2, 1e-3, 1e-4)),
    *(("ralston4", _loose("ralston4", tol)) for tol in (1e-1, 1e-2, 1e-3, 1e-4)),
    *(("rk4", {"method": "rk4", "step_size": 1 / n}) for n in (2, 3, 5, 10)),
    *((f"bdf{k}", _bdf(k) | {"step_size": h, "inner_tol": tol})
      for k in (2, 3, 4) for h, tol in ((0.2, 2e-3), (0.1, 5e-4), (0.05, 1e-4))),
]  # fmt: skip
