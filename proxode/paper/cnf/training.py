"""The training of a flow by one solver, with the likelihood of data that it never saw by a tight one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Generator, Tensor

from ... import SolverError, record
from ...nn import CNF, Flow
from ..experiment import Row, Watch
from ..training import CheckpointError, History, Training
from .solvers import PROFILE, REFERENCE, SOLVERS, TIGHT, Counter
from .sources import Source

CHECKPOINTS = 20  # of a training
PROBE = 64  # samples whose way is compared with that of a tight solve


def train(source: Source, label: str, given: dict[str, Any], seed: int, watch: Watch) -> Row:
    """A row with the history of the training, whatever became of it."""
    solver = SOLVERS[label]
    row: Row = {"group": solver.group, "what": solver.what, "unit": source.unit}
    if solver.adjoint is not None and find_spec("torchdiffeq") is None:
        return row | _summary([], "MISSING", "torchdiffeq is not installed: pip install torchdiffeq")
    torch.manual_seed(seed)
    flow, counter = solver.build(source.flow)
    judge = Judge(source, given["held_out"], seed)
    generator = Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(flow.parameters(), lr=source.lr)
    settings = {"label": label, "seed": seed, "unit": source.unit, **given}
    last = 0.01 * source.lr if source.cooling else source.lr
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, given["planned"], eta_min=last)
    training = Training(flow, optimiser, settings, {"data": generator}, {"schedule": schedule})
    total = given["iterations"]

    def told(history: History) -> None:
        watch.loss(history[-1]["loss"])
        watch.nfe(int(sum(entry["nfe_forward"] + entry["nfe_backward"] for entry in history)))
        watch.part(len(history) / total)

    status, message = "SUCCESS", ""
    try:
        step = _step(source, training, counter, judge, given)
        training.run(step, total, watch.checkpoint, every=max(total // CHECKPOINTS, 1), after=told)
    except CheckpointError:
        raise
    except SolverError as error:
        status, message = error.status.name, str(error).splitlines()[0][:200]
    except (RuntimeError, AssertionError, ArithmeticError) as error:  # what a training dies of is its result here
        status, message = "FAILED", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    found = row | _summary(training.history, status, message)
    if status == "SUCCESS":
        found |= judge.shown(flow) | ({"profile": judge.profile(flow)} if label == REFERENCE else {})
    return found


def _step(
    source: Source, training: Training, counter: Counter, judge: Judge, given: dict[str, Any]
) -> Callable[[int], dict[str, float]]:
    """One iteration; time and evaluations of the judge are not its own."""
    flow: Any = training.model

    def step(i: int) -> dict[str, float]:
        begin, counter.calls = time.perf_counter(), 0
        x = source.batch(given["batch"], training.generators["data"])
        training.optimiser.zero_grad()
        with record() as stats:
            loss = source.cost(flow.log_prob(x, generator=training.generators["data"]))
            forward = counter.calls
            loss.backward()
        if not math.isfinite(float(loss.detach())):
            raise ArithmeticError(f"the loss of iteration {i} is {float(loss.detach())}")
        torch.nn.utils.clip_grad_norm_(flow.parameters(), given["clip"])
        training.optimiser.step()
        training.parts["schedule"].step()
        products = 2 * (counter.calls - forward)  # in torchdiffeq's backward a product follows every call
        entry = {
            "loss": float(loss.detach()), "seconds": time.perf_counter() - begin,
            "nfe_forward": stats.nfe_forward + forward, "nfe_backward": stats.nfe_backward + products,
        }  # fmt: skip
        if (i + 1) % given["judge_every"] == 0 or i + 1 == given["iterations"]:
            entry |= judge(flow)
        return entry

    return step


class Judge:
    """The same flow in float64, solved at 1e-7: likelihood of held-out data, and the error of the training's solver."""

    def __init__(self, source: Source, held_out: int, seed: int) -> None:
        self.source, self.seed = source, seed
        self.data = source.held_out(held_out)
        self.flow = source.flow(**TIGHT).double()

    @torch.no_grad()
    def __call__(self, flow: Flow) -> dict[str, float]:
        self.flow.load_state_dict(flow.state_dict())
        log_prob = self.flow.log_prob(self.data.double(), generator=self._generator())
        return {"held_out": float(self.source.cost(log_prob)), "error": self._error(flow, self._exact())}

    def _exact(self) -> Tensor:
        z, _ = self.flow(self.data[:PROBE].double(), generator=self._generator())
        return z

    def _error(self, flow: Flow, exact: Tensor) -> float:
        """Relative, of z, in the 2-norm. The noise of the divergence has no part in it."""
        z, _ = flow(self.data[:PROBE], generator=self._generator())
        return float((z.double() - exact).norm() / exact.norm())

    def _generator(self) -> Generator:
        return Generator().manual_seed(self.seed)

    def shown(self, flow: Flow) -> dict[str, Any]:
        self.flow.load_state_dict(flow.state_dict())
        return self.source.shown(self.flow)

    @torch.no_grad()
    def profile(self, flow: Flow) -> list[dict[str, Any]]:
        """Error against forward evaluations, of many solvers on this one flow."""
        self.flow.load_state_dict(flow.state_dict())
        rows, exact = [], self._exact()
        for name, settings in PROFILE:
            other = self.source.flow(**settings)
            other.load_state_dict(flow.state_dict())
            try:
                with record() as stats:
                    error: float | None = self._error(other, exact)
                own = sum(m.stats.nfe_forward for m in other.modules() if isinstance(m, CNF) and m.stats is not None)
            except SolverError:
                error, own = None, stats.nfe_forward
            rows.append({"curve": name, "nfe": own, "error": error})
        return rows


def _summary(history: History, status: str, message: str) -> Row:
    """Columns of the history, and their sums."""
    names = ("loss", "seconds", "nfe_forward", "nfe_backward")
    columns: Row = {name: [entry[name] for entry in history] for name in names}
    judged = [(i, entry) for i, entry in enumerate(history) if "held_out" in entry]
    columns |= {"judged_at": [i + 1 for i, _ in judged]}
    columns |= {name: [entry[name] for _, entry in judged] for name in ("held_out", "error")}
    done = len(history)
    return {
        "status": status, "message": message, "iterations": done,
        "held_out": columns["held_out"][-1] if judged else None, "error": columns["error"][-1] if judged else None,
        **{name: sum(columns[name]) / done if done else None for name in ("nfe_forward", "nfe_backward")},
        "seconds": sum(columns["seconds"]), "history": columns,
    }  # fmt: skip

