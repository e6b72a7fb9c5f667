"""What a solve decides, as messages at DEBUG: `logging.getLogger("proxode").setLevel(logging.DEBUG)`.

Three loggers below that one: "proxode.solve" (begin, end and cost), "proxode.steps" (rejected steps, changes of order
and method), "proxode.inner" (equations that one solver could not solve and another may). Nothing is configured here;
what is printed where is the application's choice. Whether anybody listens is asked once, when a solve is prepared.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from .observers import Attempt, Observer, Trip
from .status import Status
from .steps import Kind

SOLVE, STEPS, INNER = (logging.getLogger(f"proxode.{name}") for name in ("solve", "steps", "inner"))
logging.getLogger("proxode").addHandler(logging.NullHandler())


def listening() -> bool:
    return SOLVE.isEnabledFor(logging.DEBUG) or STEPS.isEnabledFor(logging.DEBUG)


class Log(Observer):
    """Writes down what one solve decides."""

    def __init__(self) -> None:
        self.trips: list[tuple[Trip, float, tuple[int, ...]]] = []
        self.last: Kind | None = None

    def begin(self, trip: Trip) -> None:
        if not self.trips:  # of a backward pass only the whole
            way = "backward pass" if trip.backward else "solve"
            end = "an event" if trip.t1 is None else f"t = {trip.t1:g}"
            SOLVE.debug("%s with %s from t = %g to %s, %d unknowns", way, trip.method, trip.t0, end, trip.size)
            self.last = None
        self.trips.append((trip, time.perf_counter(), _counts(trip)))

    def end(self, status: Status | None) -> None:
        trip, began, before = self.trips.pop()
        if self.trips:
            return
        accepted, rejected, nfe, inner, failed = (now - then for now, then in zip(_counts(trip), before, strict=True))
        outcome = "an exception" if status is None else status.name
        steps = "" if trip.backward else f"{accepted} steps, {rejected} rejected, "
        solves = f", {inner} inner iterations, {failed} inner failures" if inner or failed else ""
        passed = time.perf_counter() - began
        SOLVE.debug("%s with %s: %s%d NFE%s, %.3g s", outcome, trip.method, steps, nfe, solves, passed)

    def tried(self, attempt: Callable[[], Attempt], accepted: bool) -> None:
        if self.trips and self.trips[-1][0].samples:
            return  # every sample decides for itself
        step = attempt()
        if not accepted:
            STEPS.debug("%s", refusal(step))
            return
        kind, before = Kind(step.method, step.order), self.last
        self.last = kind
        if before is None or kind == before:
            return
        if kind.method != before.method:
            STEPS.debug("t = %.8g: from %s to %s, order %d", step.t0, before.method, kind.method, kind.order)
        else:
            STEPS.debug("t = %.8g: %s from order %d to %d", step.t0, kind.method, before.order, kind.order)


def refusal(step: Attempt) -> str:
    """Why a step was rejected, in words."""
    if step.failure is not None:
        why = (
            f"inner solver {step.failure.solver}, {step.failure.status.name} after {step.failure.iterations} "
            f"iterations, residual {step.failure.size:.3g}, tolerance {step.failure.tol:.3g}"
        )
    elif math.isfinite(step.ratio):
        why = f"error {step.ratio:.3g} times what is allowed"
    else:
        why = "its values are not finite"
    following = "" if step.h_next is None else f"; next h = {step.h_next:.3g}"
    return f"t = {step.t0:.8g}: {step.method} of order {step.order} rejected, h = {step.h:.3g}: {why}{following}"


def _counts(trip: Trip) -> tuple[int, ...]:
    stats = trip.stats
    nfe = stats.nfe_backward if trip.backward else stats.nfe_forward
    return stats.n_accepted, stats.n_rejected, nfe, stats.n_inner, stats.n_inner_failed
