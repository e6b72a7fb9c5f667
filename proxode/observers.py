"""Who looks on while a solve runs: the line of progress, the log. Without observers a step pays for none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from .solution import Stats
from .status import Status


class Trip(NamedTuple):
    """A solve that begins, in the user's times."""

    method: str
    t0: float
    t1: float | None  # None: it goes on until something happens
    size: int  # of the state
    stats: Stats  # by which its evaluations are counted
    backward: bool = False
    samples: int = 0  # solved side by side, each with steps of its own


class Attempt(NamedTuple):
    """A step that was tried, in the user's times."""

    t0: float
    t1: float
    h: float
    method: str
    order: int
    ratio: float = 0.0  # of its error to what was allowed; infinite where it was no step at all
    failure: Any = None  # the `InnerResult` of an equation that was not solved
    h_next: float | None = None
    part: float | None = None  # of the way that is done, where times do not tell
    note: str = ""


class Observer:
    """Hears of a solve. `begin` and `end` may be nested: a backward pass is several solves, and is looked at as one."""

    def begin(self, trip: Trip) -> None:
        """Nothing was evaluated yet."""

    def tried(self, attempt: Callable[[], Attempt], accepted: bool) -> None:
        """`attempt()` is what is known of the step; who does not need it does not pay for it."""

    def end(self, status: Status | None) -> None:
        """None: an exception ends the solve."""


class Ending:
    """What a solve tells its observers at its end."""

    status: Status | None = None


@contextmanager
def observed(observers: Sequence[Observer], trip: Trip) -> Iterator[Ending]:
    ending = Ending()
    for observer in observers:
        observer.begin(trip)
    try:
        yield ending
    finally:
        for observer in observers:
            observer.end(ending.status)
