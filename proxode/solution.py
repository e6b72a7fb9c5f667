"""What a solve returns: its values, what they cost, and how it ended."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from .eager import eager
from .status import Status
from .steps import Steps


@dataclass
class Stats:
    """What a solve cost. An evaluation of f, a Jacobian-vector and a vector-Jacobian product count one each,
    and a dense Jacobian counts its columns (in `n_jac`). Hence, always,

        nfe_forward + nfe_backward == n_f + n_jvp + n_vjp + n_jac

    `seconds` is the time of the forward solve, and `seconds_in_f` what of it f and its products took; None where that
    cannot be told apart (on a GPU, with `compile`, with `per_sample`).
    """

    nfe_forward: int = 0
    nfe_backward: int = 0
    n_steps: int = 0
    n_accepted: int = 0
    n_rejected: int = 0
    n_inner: int = 0
    n_inner_failed: int = 0
    n_f: int = 0
    n_jvp: int = 0
    n_vjp: int = 0
    n_jac: int = 0
    switches: list[tuple[float, str]] = field(default_factory=list)  # times from which `auto` took which method
    steps: Steps = field(default_factory=Steps, repr=False, compare=False)  # each with its length, method and order
    seconds: float = field(default=0.0, repr=False, compare=False)
    seconds_in_f: float | None = field(default=None, repr=False, compare=False)
    backward: bool = field(default=False, repr=False, compare=False)  # which of the two nfe is counting

    def count(self, kind: str, number: int = 1) -> None:
        """Book `number` products of one kind ('n_f', 'n_jvp', 'n_vjp', 'n_jac') and the NFE they are."""
        setattr(self, kind, getattr(self, kind) + number)
        if self.backward:
            self.nfe_backward += number
        else:
            self.nfe_forward += number

    def count_f(self) -> None:
        """Book an evaluation of f."""
        self.n_f += 1
        if self.backward:
            self.nfe_backward += 1
        else:
            self.nfe_forward += 1

    @eager
    def count_product(self, grad: Tensor) -> None:
        """Book a product of backward: a hook for tensors."""
        with self.counting_backward():
            self.count("n_vjp")

    @contextmanager
    def counting_backward(self) -> Iterator[None]:
        """What is booked inside of this block is NFE of backward."""
        before, self.backward = self.backward, True
        try:
            yield
        finally:
            self.backward = before


COUNTERS = tuple(f.name for f in fields(Stats) if f.type == "int")


class Recording:
    """The sum of the statistics of every solve made inside `record()`; it goes on counting in backward."""

    def __init__(self) -> None:
        self.solves: list[Stats] = []

    @property
    def seconds(self) -> float:
        """Of all forward solves."""
        return sum(stats.seconds for stats in self.solves)

    def __getattr__(self, name: str) -> int:
        if name in COUNTERS:
            return sum(getattr(stats, name) for stats in self.solves)
        known = ", ".join(COUNTERS)
        raise AttributeError(
            f"a Recording adds up {known}; it has no {name!r}: `.solves` has the statistics of each solve"
        )

    def __repr__(self) -> str:
        return f"Recording({len(self.solves)} solves, " + ", ".join(f"{n}={getattr(self, n)}" for n in COUNTERS) + ")"


_recordings: contextvars.ContextVar[tuple[Recording, ...]] = contextvars.ContextVar("recordings", default=())


@contextmanager
def record() -> Iterator[Recording]:
    """Collect the statistics of every solve made inside the block.

        with proxode.record() as stats:
            y = proxode.odeint(f, y0, t, method="bdf2")
        print(stats.nfe_forward)

    Blocks may be nested. What a backward pass costs is added whenever it runs, also after the block.
    """
    recording = Recording()
    token = _recordings.set((*_recordings.get(), recording))
    try:
        yield recording
    finally:
        _recordings.reset(token)


def new_stats() -> Stats:
    """Statistics of one solve, known to every `record()` block that is open."""
    stats = Stats()
    for recording in _recordings.get():
        recording.solves.append(stats)
    return stats


@dataclass(frozen=True)
class Failure:
    """Where and why a solve could not go on."""

    status: Status
    t: float
    step: int
    step_size: float
    detail: str = ""
    advice: str = ""  # where it is not that of the status

    def __str__(self) -> str:
        where = f"at t = {self.t:.6g}"
        if self.step:  # in backward there is no step that failed, only an equation
            where += f", step {self.step} of size {self.step_size:.3g}"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.status.message}, {where}{detail}. What to try: {self.advice or self.status.advice}."


@dataclass(frozen=True)
class SampleStats:
    """How every sample of a solve with `per_sample=True` fared."""

    status: tuple[Status, ...]
    t: Tensor  # that it reached
    n_steps: Tensor
    n_accepted: Tensor

    @property
    def n_rejected(self) -> Tensor:
        """Steps of every sample that were tried and not taken."""
        return self.n_steps - self.n_accepted


@dataclass
class Solution:
    """The outcome of `solve`. `ys[i]` is the state at `ts[i]`, in the structure of y0 (a tuple if y0 was one).

    With `throw=False` a solve that could not go on returns what it reached: `status` says why it ended and
    `ts`, `ys` hold the output times that were passed.

    `event_ts[k]` are the times at which event k was found, and `event_ys[k]` the states there, stacked in front. If
    one of them was terminal, `status` is `Status.EVENT`.

    With `per_sample=True` `samples` has the status, the time reached and the steps of every sample; `status` is that of
    the first that failed, and ys is nan where a sample did not come.
    """

    ts: Tensor
    ys: Any
    stats: Stats
    status: Status = Status.SUCCESS
    failure: Failure | None = None
    inner_tol: float | None = None
    dense: Callable[[Any], Any] | None = field(default=None, repr=False)
    event_ts: tuple[Tensor, ...] = ()
    event_ys: tuple[Any, ...] = ()
    samples: SampleStats | None = None

    @eager
    def evaluate(self, t: Any) -> Any:
        """The state at a time t between the first and the last, or at each of several, stacked in front."""
        if self.dense is None:
            raise ValueError("this solution kept no steps to evaluate between: solve with dense=True")
        return self.dense(t)

    def keep(self, part: slice) -> Solution:
        """Only the outputs of this part."""
        self.ts = self.ts[part]
        self.ys = tuple(y[part] for y in self.ys) if isinstance(self.ys, tuple) else self.ys[part]
        return self

    def summary(self) -> str:
        """How the solve went, as a table: its outcome, methods, steps, inner solves and costs, and what may help."""
        from .summary import summarise

        return summarise(self)

    def plot(self, path: Any = None, axes: Any = None) -> Any:
        """Draw the state over time and the steps that were taken, with matplotlib. A state that becomes ten thousand
        times as large as it was at first is drawn on a symmetric logarithmic scale.

        Args:
            path: a file to write the figure to, by its suffix (png, pdf, svg).
            axes: two matplotlib axes to draw on, for the state and for the steps; by default those of a new figure.

        Returns:
            The matplotlib figure.
        """
        from .solution_plot import plot

        return plot(self, path, axes)

    @property
    def message(self) -> str:
        """How the solve ended, in words: with place and advice where it failed."""
        return str(self.failure) if self.failure is not None else self.status.message


class SolverError(RuntimeError):
    """A solve that could not go on. `.status` says how it ended, `.t` where, `.solution` holds what was reached
    (None if it happened in backward)."""

    def __init__(self, failure: Failure, solution: Solution | None) -> None:
        super().__init__(str(failure))
        self.status = failure.status
        self.t = failure.t
        self.solution = solution
