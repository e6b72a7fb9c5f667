"""One line on stderr that follows a solve: how far, which step, what it costs, how long it will take.

The line is written again in its place a few times a second, and taken away at the end, however the solve ends. Where
stderr is no terminal nothing is written.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .observers import Attempt, Observer, Trip
from .status import Status

EVERY = 0.1  # seconds between two lines; a solve that is over before the first shows none
BAR = 20  # characters
MEMORY = 3.0  # seconds over which the speed is averaged


class Progress(Observer):
    def __init__(self) -> None:
        self.depth = 0
        self.stream: Any = None

    def begin(self, trip: Trip) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        self.stream = sys.stderr if is_terminal(sys.stderr) else None
        self.trip, self.tries, self.shown = trip, 0, ""
        self.began = self.seen = time.monotonic()
        self.due = self.began + EVERY if self.stream is not None else float("inf")
        self.first_nfe = _nfe(trip)
        self.part = self.speed = 0.0

    def tried(self, attempt: Callable[[], Attempt], accepted: bool) -> None:
        self.tries += 1
        if (now := time.monotonic()) < self.due:
            return
        self.due = now + EVERY
        step = attempt()
        if accepted:
            self._measure(step, now)
        self._show(self._line(step, now))

    def end(self, status: Status | None) -> None:
        self.depth -= 1
        if self.depth == 0 and self.stream is not None:
            self._show("")
            self.stream = None

    def _measure(self, step: Attempt, now: float) -> None:
        """How much of the way is done, and how fast that grows by now."""
        trip, before = self.trip, self.part
        if step.part is not None:
            self.part = step.part
        elif trip.t1 is not None and trip.t1 != trip.t0:
            self.part = min(max((step.t1 - trip.t0) / (trip.t1 - trip.t0), 0.0), 1.0)
        passed = max(now - self.seen, 1e-9)
        weight = min(1.0, passed / min(MEMORY, now - self.began))
        self.speed += weight * ((self.part - before) / passed - self.speed)
        self.seen = now

    def _line(self, step: Attempt, now: float) -> str:
        """What matters most comes first: where the terminal is too narrow the last words are left out."""
        trip, passed = self.trip, now - self.began
        nfe = _nfe(trip) - self.first_nfe
        by = f"{step.method} {step.order}" if step.method == "bdf" else step.method  # the order of others is their own
        here = f"h {step.h:.2g}" if step.part is not None else f"t {step.t1:.4g} h {step.h:.2g}"
        words = ["backward"] if trip.backward else []
        words += [here, by, f"{short(nfe / max(passed, 1e-9))} NFE/s"]
        words += [step.note] if step.note else []
        words += [f"{short(nfe)} NFE", f"{short(self.tries)} steps"]
        if trip.t1 is None:
            return self._fitting([f"{duration(passed)} so far", *words])
        left = (1.0 - self.part) / self.speed if self.speed > 0.0 else float("inf")
        line = self._fitting([f"{self.part:4.0%} {duration(left)} left", *words])
        full = int(BAR * self.part)
        bar = f"[{'#' * full}{'.' * (BAR - full)}] "
        return bar + line if len(bar) + len(line) < _width(self.stream) else line  # the first to go where it is narrow

    def _fitting(self, words: list[str]) -> str:
        room = _width(self.stream) - 1
        while len(words) > 1 and len("  ".join(words)) > room:
            words = words[:-1]
        return "  ".join(words)

    def _show(self, line: str) -> None:
        """Over what is there: with spaces after it where that was longer."""
        line = line[: _width(self.stream) - 1]
        blank = " " * (len(self.shown) - len(line))
        if line or self.shown:
            try:
                self.stream.write(f"\r{line}{blank}" + ("" if line else "\r"))
                self.stream.flush()
            except (OSError, ValueError):  # the terminal is gone: that is no reason to lose the solve
                self.due = float("inf")
        self.shown = line


def is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # there is none, or it was closed
        return False


def short(number: float) -> str:
    """In five characters, six with a comma: 999, 9,999, 12k, 1.2M."""
    if number < 9_999.5:
        return f"{number:,.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if number < 999.5 * size:
            return f"{number / size:.1f}{unit}" if number < 9.95 * size else f"{number / size:.0f}{unit}"
    return f"{number:.0e}"


def duration(seconds: float) -> str:
    if not seconds < 100 * 86_400:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _nfe(trip: Trip) -> int:
    return trip.stats.nfe_backward if trip.backward else trip.stats.nfe_forward


def _width(stream: Any) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80
