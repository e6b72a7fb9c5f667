"""Seconds of the processor that a piece of work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TIMES = 3  # a duration is the least of so many


def least(work: Callable[[], Any], times: int = TIMES) -> tuple[Any, float]:
    """What it gives, and the seconds of the processor that it takes."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        found = work()
        spent.append(time.process_time() - start)
    return found, min(spent)
