"""A contest: each solver in a process of its own, brought to the same error, then timed in turns.

A solver that fails, gets lost or takes too long loses its process, not the contest: it stays as a row.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from .rows import Row

TOLERANCES = tuple(m * 10.0**-k for k in range(1, 10) for m in (1.0, 0.3))  # from which the loosest is taken
T = TypeVar("T")
AGAIN, SHORT = 10, 0.2  # a turn is up to so many runs, until they have taken so many seconds
STARTING = 60.0  # seconds that imports may take beside what a solver is given


@dataclass(frozen=True)
class Answer:
    """What a run found: its error, and its evaluations of f where the library tells them."""

    error: float
    nfe: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


Run = Callable[[], Answer]  # the whole solve, everything prepared and compiled
Prepare = Callable[[float], Run]  # for a tolerance


@dataclass(frozen=True)
class Entry:
    """A solver in a contest. `where` names a function `module:name`, which is called with `arguments` in a process of
    its own and returns what prepares a run."""

    solver: str
    library: str
    where: str
    arguments: dict[str, Any] = field(default_factory=dict)
    threads: int = 2
    environment: dict[str, str] = field(default_factory=dict)  # of its process
    tolerances: tuple[float, ...] | None = None  # in place of the rules': without those that are known to be too loose
    follows: bool = False  # to no larger an error than the least of the entries before it

    def load(self) -> Prepare:
        module, name = self.where.split(":")
        return getattr(import_module(module), name)(**self.arguments)


@dataclass(frozen=True)
class Rules:
    error: float | None  # that a run may have; None: the first tolerance is taken as it is
    seconds: float = 120.0  # that one run may take
    turns: int = 5
    tolerances: tuple[float, ...] = TOLERANCES


class TooSlow(RuntimeError):
    """A solver that used up its time."""


class Contestant:
    """An entry at work in its process."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, entry), daemon=True)
        before = dict(os.environ)
        os.environ.update(entry.environment)
        try:
            self.process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def ask(self, what: str, *arguments: Any, seconds: float) -> Any:
        self.pipe.send((what, *arguments))
        if not self.pipe.poll(seconds):
            raise TooSlow(f"stopped after {seconds:g} s")
        kind, value = self.pipe.recv()
        if kind == "error":
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def contest(entries: Sequence[Entry], rules: Rules, say: Callable[[str], None] = lambda text: None) -> list[Row]:
    """A row for each entry, in their order. Times are the best of several turns, with the others between them."""
    rows: list[Row] = []
    running: list[tuple[Contestant, Row]] = []
    try:
        for entry in entries:
            say(f"{entry.solver}: to the error")
            row: Row = {"solver": entry.solver, "library": entry.library, "status": "SUCCESS", "message": ""}
            rows.append(row)
            contestant = Contestant(entry)
            running.append((contestant, row))
            tolerances = entry.tolerances or rules.tolerances
            error = _least(rows[:-1], rules.error) if entry.follows else rules.error
            _attempt(contestant, row, rules.seconds + STARTING, "reach", error, tolerances)
        for turn in range(rules.turns):
            for contestant, row in running:
                if row["status"] == "SUCCESS":
                    say(f"{row['solver']}: turn {turn + 1} of {rules.turns}")
                    _attempt(contestant, row, rules.seconds, "time")
    finally:
        for contestant, _ in running:
            contestant.close()
    return [_summed(row) for row in rows]


def _least(rows: list[Row], otherwise: float | None) -> float | None:
    """The least error so far."""
    return min((row["error"] for row in rows if row["status"] == "SUCCESS"), default=otherwise)


def _attempt(contestant: Contestant, row: Row, seconds: float, what: str, *arguments: Any) -> None:
    try:
        found = contestant.ask(what, *arguments, seconds=seconds)
    except TooSlow as stop:
        row |= {"status": "STOPPED", "message": str(stop)}
        contestant.close()
    except (RuntimeError, EOFError, OSError) as error:
        row |= {"status": "FAILED", "message": str(error) or "its process died"}
        contestant.close()
    else:
        if what == "time":
            row.setdefault("times", []).append(found)
        else:
            row |= found


def _summed(row: Row) -> Row:
    times = row.pop("times", [])
    return row | {"seconds": min(times) if times else None, "repeats": len(times)}


# In the process of a contestant


def _serve(pipe: Connection, entry: Entry) -> None:
    run: Run | None = None
    prepare: Prepare | None = None
    while True:
        try:
            what, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            if what == "reach":
                _limit_threads(entry.threads)
                prepare = prepare or entry.load()
                run, found = _reach(prepare, *arguments)
                pipe.send(("ok", found))
            else:
                assert run is not None
                pipe.send(("ok", _timed(run)))
        except BaseException as error:
            first = (str(error).splitlines() or [""])[0]
            pipe.send(("error", f"{type(error).__name__}: {first[:200]}"))


def _limit_threads(count: int) -> None:
    """Of every library: those that have threads of their own find no more cores than that."""
    import torch

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    torch.set_num_threads(count)


def _reach(prepare: Prepare, error: float | None, tolerances: tuple[float, ...]) -> tuple[Run, Row]:
    """The run at the loosest tolerance whose error is small enough, and its memory. Its second call is warm."""
    smallest = math.inf
    for tol in tolerances:
        run = prepare(tol)
        peak, answer = peak_growth(run)
        smallest = min(smallest, answer.error)
        if error is None or answer.error <= error:
            peak_mib = None if peak is None else peak / 2**20
            found = {"tol": tol, "error": answer.error, "nfe": answer.nfe, "peak_mib": peak_mib, **answer.more}
            return run, found
    wanted = f"an error of {error:g}: the best was {smallest:.2g}"
    raise RuntimeError(f"no tolerance down to {tolerances[-1]:g} has {wanted}")


def _timed(run: Run) -> float:
    """The best of a few where one is over in no time: others have had the caches in between."""
    best, spent = math.inf, 0.0
    for _ in range(AGAIN):
        begin = time.perf_counter()
        run()
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
        if spent > SHORT:
            break
    return best


def peak_growth(call: Callable[[], T]) -> tuple[int | None, T]:
    """By how many bytes the resident set grew at most during a call, and what it returned."""
    held = _reset_peak()
    value = call()
    peak = _status("VmHWM")
    return (None if peak is None or held is None else peak - held), value


def _reset_peak() -> int | None:
    """The memory in use, from where the highest is counted anew; None where the system does not tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
