"""Solvers for a contest that need no library: they are imported by name in processes of their own."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contest import Answer


def quick(order: float = 1.0) -> Any:
    """With an error of tol^order, which takes tol^-1 evaluations."""
    return lambda tol: lambda: Answer(tol**order, round(1 / tol), {"steps": 3})


def broken() -> Any:
    def run() -> Answer:
        raise ArithmeticError("no such luck\nwith details")

    return lambda tol: run


def asleep() -> Any:
    def run() -> Answer:
        time.sleep(600)
        return Answer(0.0)

    return lambda tol: run


def missing() -> Any:
    import a_library_that_nobody_has  # noqa: F401
