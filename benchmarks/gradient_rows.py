"""One gradient through the GRAND equation, measured in a process of its own: reads a task as JSON, writes a result.

`python -m benchmarks.gradient_rows < task.json`; the benchmark `gradients_coauthor` makes the tasks.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from proxode.data import graphs
from proxode.nn import attention, edges

REFERENCE_TOL = 1e-8
SAMPLE_EVERY = 0.005  # seconds between two looks at the memory


@dataclass(frozen=True)
class Problem:
    """`du/dt = A(u) u - u` up to `end`; the loss is the cross entropy of a linear read-out of u(end)."""

    graph: str = "coauthor_cs"
    hidden: int = 16
    heads: int = 4
    attention_std: float = 0.7
    embedding_std: float | None = None  # None: that of nn.Linear's default, 1/sqrt(3 fan-in)
    end: float = 10.0
    seed: int = 0
    scale: float = 1.0  # of the right side; the code of GRAND's authors has sigmoid(0) at the start


@dataclass(frozen=True)
class Run:
    """One solver with all that was chosen for it."""

    library: str  # "torchdiffeq" or "proxode"
    function: str  # "odeint" or "odeint_adjoint"
    method: str | None
    tol: float
    steps: int | None = None  # fixed steps, for the proximal methods
    inner: str | None = None
    gradient: str | None = None
    store_graph: bool = False
    power: float = 1.0  # the steps end at T (i / n)^power: longer and longer ones follow a solution that calms down

    def options(self, end: float) -> dict[str, Any]:
        chosen: dict[str, Any] = {name: getattr(self, name) for name in ("inner", "gradient") if getattr(self, name)}
        if self.store_graph:
            chosen["store_graph"] = True
        if self.steps is not None:
            grid = end * (torch.arange(self.steps + 1, dtype=torch.float64) / self.steps) ** self.power
            chosen["grid_constructor"] = lambda f, y0, t: grid
        return chosen

    @property
    def family(self) -> str:
        """What a curve of the picture is made of: the same solver with other steps or another tolerance."""
        inner = "" if self.inner in (None, "auto") else f", {self.inner}"
        kind = "" if self.gradient is None else f", {self.gradient}"
        kept = ", store_graph" if self.store_graph else ""
        grid = "" if self.power == 1.0 else f", steps ~ i^{self.power - 1.0:g}"
        return f"{self.library} {self.function} {self.method or 'default'}{inner}{kind}{kept}{grid}"

    @property
    def setting(self) -> str:
        return f"tol={self.tol:.0e}".replace("e-0", "e-") if self.steps is None else f"n={self.steps}"


@dataclass
class Row:
    """What one run gave. Errors are relative, in the 2-norm, against the reference.

    NFE count evaluations of f and vector-Jacobian products alike. `calls_*` are calls of f as f itself saw them.
    """

    run: Run
    error: str | None = None
    error_state: float | None = None
    error_u0: float | None = None
    error_theta: float | None = None
    nfe_forward: int | None = None
    nfe_backward: int | None = None
    calls_forward: int | None = None
    calls_backward: int | None = None
    seconds_forward: float | None = None
    seconds_backward: float | None = None
    peak_mib: float | None = None  # growth of the resident set over what it was before the solve
    details: dict[str, int] = field(default_factory=dict)


class TooManyCalls(RuntimeError):
    pass


class Counted(nn.Module):
    """f, which counts its calls and the vector-Jacobian products made with it."""

    def __init__(self, f: nn.Module, max_calls: int | None = None, recompute: bool = False) -> None:
        super().__init__()
        self.f = f
        self.max_calls = max_calls
        self.recompute = recompute  # keep only the states, and evaluate f again in backward
        self.calls = 0
        self.products = 0

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        self.calls += 1
        if self.max_calls is not None and self.calls > self.max_calls:
            raise TooManyCalls(f"stopped after {self.max_calls:,} calls of f")
        out = checkpoint(self.f, t, u, use_reentrant=False) if self.recompute else self.f(t, u)
        if out.requires_grad and not self.recompute:
            out.register_hook(self._count_product)
        return out

    def _count_product(self, grad: Tensor) -> None:
        self.products += 1


def build(
    problem: Problem, data_dir: Path | None, dtype: torch.dtype
) -> tuple[attention.Attention, Tensor, Tensor, Tensor]:
    """f, u0, the read-out matrix and the labels. Numbers are drawn in float32, so that every dtype sees the same."""
    graph = graphs.load_graph(problem.graph, data_dir)
    fan_in = graph.features.shape[1]
    std = 1 / math.sqrt(3 * fan_in) if problem.embedding_std is None else problem.embedding_std
    generator = torch.Generator().manual_seed(problem.seed)
    embedding = std * torch.randn(fan_in, problem.hidden, generator=generator)
    query, key = problem.attention_std * torch.randn(2, problem.hidden, problem.hidden, generator=generator)
    readout = torch.randn(problem.hidden, graph.classes, generator=generator) / math.sqrt(problem.hidden)
    u0 = (graph.features @ embedding).to(dtype).requires_grad_()
    links = edges.Edges(graph.target, graph.source, graph.nodes)
    f = attention.Attention(links, query.to(dtype), key.to(dtype), problem.heads, problem.scale)
    return f, u0, readout.to(dtype), graph.labels


def reference_path(problem: Problem, cache: Path) -> Path:
    """Named after all that the reference depends on, the sources of f among it."""
    sources = [Path(str(module.__file__)).read_text() for module in (attention, edges, graphs)]
    text = json.dumps([asdict(problem), REFERENCE_TOL, *sources])
    return cache / f"reference-{problem.graph}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.pt"


def make_reference(problem: Problem, data_dir: Path | None, path: Path) -> dict[str, Any]:
    """Backpropagation through DOPRI5 in float64. f is evaluated again in backward, for its graph is 90 MB a call."""
    import torchdiffeq

    f, u0, readout, labels = build(problem, data_dir, torch.float64)
    counted = Counted(f, recompute=True)
    times = torch.tensor([0.0, problem.end], dtype=torch.float64)
    u = torchdiffeq.odeint(counted, u0, times, rtol=REFERENCE_TOL, atol=REFERENCE_TOL, method="dopri5")[-1]
    loss = F.cross_entropy(u @ readout, labels)
    loss.backward()
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"state": u.detach(), "u0": u0.grad, "theta": f.theta.grad, "loss": loss.detach(), "nfe": counted.calls}
    torch.save(values, path)
    return describe_reference(path)


def describe_reference(path: Path) -> dict[str, Any]:
    values = torch.load(path, weights_only=True)
    sizes = {f"norm_{name}": float(values[name].norm()) for name in ("state", "u0", "theta")}
    return {"tol": REFERENCE_TOL, "nfe_forward": values["nfe"], "loss": float(values["loss"]), **sizes}


def measure(run: Run, problem: Problem, data_dir: Path | None, reference: Path, max_calls: int) -> Row:
    f, u0, readout, labels = build(problem, data_dir, torch.float32)
    torch.autograd.grad(f(torch.zeros(()), u0).sum(), u0)  # the first call makes the threads
    counted = Counted(f, max_calls)
    row = Row(run)
    with PeakMemory() as memory:
        try:
            gradients = _solve_and_differentiate(row, run, problem, counted, u0, readout, labels)
        except Exception as error:  # a row that fails is a result too
            row.error = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            gradients = None
    row.peak_mib = memory.growth / 2**20
    if gradients is not None:
        expected = torch.load(reference, weights_only=True)
        row.error_state, row.error_u0, row.error_theta = (
            relative_error(value, expected[name]) for name, value in gradients.items()
        )
    return row


def _solve_and_differentiate(
    row: Row, run: Run, problem: Problem, f: Counted, u0: Tensor, readout: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    import proxode

    times = torch.tensor([0.0, problem.end])
    options = run.options(problem.end)
    with proxode.record() as stats:
        start = time.perf_counter()
        u = _odeint(run)(f, u0, times, rtol=run.tol, atol=run.tol, method=run.method, options=options or None)[-1]
        row.seconds_forward = time.perf_counter() - start
        row.calls_forward = f.calls
        row.nfe_forward = stats.nfe_forward if run.library == "proxode" else f.calls
        start = time.perf_counter()
        F.cross_entropy(u @ readout, labels).backward()
        row.seconds_backward = time.perf_counter() - start
    row.calls_backward = f.calls - row.calls_forward
    if run.library == "proxode":
        row.nfe_backward = stats.nfe_backward
        names = ("n_steps", "n_rejected", "n_inner", "n_f", "n_jvp", "n_vjp")
        row.details = {name: getattr(stats, name) for name in names}
    else:  # each evaluation in the graph is one product; a call of the adjoint is an evaluation and a product
        row.nfe_backward = row.calls_backward + f.products
    return {"state": u.detach(), "u0": u0.grad, "theta": f.f.theta.grad}


def _odeint(run: Run) -> Any:
    import torchdiffeq

    import proxode

    return getattr({"torchdiffeq": torchdiffeq, "proxode": proxode}[run.library], run.function)


def relative_error(value: Tensor, expected: Tensor) -> float:
    return float((value.double() - expected).norm() / expected.norm())


class PeakMemory:
    """The growth of the resident set, sampled by a thread: the process's own maximum includes the loading of data."""

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = resident_bytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_EVERY):
            self.peak = max(self.peak, resident_bytes())

    @property
    def growth(self) -> int:
        return self.peak - self.before


def resident_bytes() -> int:
    """Linux tells the present size; elsewhere there is only the largest one so far."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    task = json.load(sys.stdin)
    torch.set_num_threads(task["threads"])
    problem, data_dir, reference = Problem(**task["problem"]), task["data_dir"], Path(task["reference"])
    folder = None if data_dir is None else Path(data_dir)
    result: dict[str, Any]
    if task["run"] is None:
        result = describe_reference(reference) if reference.exists() else make_reference(problem, folder, reference)
    else:
        result = asdict(measure(Run(**task["run"]), problem, folder, reference, task["max_calls"]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
