"""Backward of `continuous`: the adjoint equation, solved from the last output to the first.

Between two outputs that the loss depends on it is one solve, by the method and tolerances that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..loop import Plan, travel
from ..norms import anywhere, largest, rms_norm
from ..observers import Trip, observed
from ..problem import Problem, agreed_size
from ..solution import Failure, SolverError, Stats
from ..spread import over
from ..status import Status
from ..structure import Structure
from ..times import number
from .adjoint import AdjointField, Linearised, Path, solving_for_a
from .captured import Captured
from .replay import check_same
from .transposed import non_finite

CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")


class Settings(Protocol):
    """What was asked for the adjoint solve; None is as in the forward solve."""

    @property
    def method(self) -> Any: ...

    @property
    def rtol(self) -> Any: ...

    @property
    def atol(self) -> Any: ...

    @property
    def options(self) -> dict[str, Any] | None: ...


class Sample(NamedTuple):
    """f at one place of the solution."""

    t: float
    y: Tensor
    value: Tensor


def samples_of(problem: Problem, ys: list[Tensor]) -> list[Sample]:
    """At the first output, the last and one between them."""
    chosen = sorted({0, len(ys) // 2, len(ys) - 1})
    places = [(number(problem.ts[i]), ys[i].detach()) for i in chosen]
    return [Sample(t, y, problem.f(t, y)) for t, y in places]


@dataclass(frozen=True)
class AdjointSolve:
    """Backward: from the last output to the first, one adjoint solve for each interval between them."""

    problem: Problem
    plan: Plan
    settings: Settings
    captured: Captured
    trajectory: Path
    times: tuple[int, ...]  # the outputs whose times want a gradient
    samples: list[Sample]  # of f along the way, by which backward knows that it is still the same function
    unit: float = 1.0  # of a and q

    name = "continuous"

    def backward(self, grads: Tensor) -> tuple[Tensor | None, Tensor | None, list[Tensor | None]]:
        """The adjoint equation is linear: it is solved for the gradient over its size, so that an absolute tolerance
        means the same whatever the scale of the loss, and small gradients do not drown in it."""
        with over(self.problem.f.spread), observed(self.problem.observers, self._trip(len(grads))) as ending:
            unit = largest(grads) or 1.0
            if not math.isfinite(unit):
                bad = [i for i, grad in enumerate(grads) if anywhere(~torch.isfinite(grad))]
                raise non_finite(self.problem.f.user_time(self.problem.ts[bad[-1]]))
            size = unit * float(rms_norm(grads / unit).max() or 1.0)  # squares of small numbers underflow
            a, of_times, of_captured = replace(self, unit=size)._backward(grads / size)
            ending.status = Status.SUCCESS
        return a * size, None if of_times is None else of_times * size, [g * size for g in of_captured]

    def _trip(self, outputs: int) -> Trip:
        problem, f = self.problem, self.problem.f
        method = self.plan.method.name if self.settings.method is None else self.settings.method
        last, first = f.user_time(problem.ts[outputs - 1]), f.user_time(problem.ts[0])
        return Trip(str(getattr(method, "name", method)), last, first, problem.y0.shape[-1], f.stats, backward=True)

    def _backward(self, grads: Tensor) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        f, ts = self.problem.f, [number(t) for t in self.problem.ts[: len(grads)]]
        captured = self.captured.isolated()
        along = Linearised(f, self.trajectory, captured)
        a = torch.zeros_like(grads[0])
        q = [torch.zeros(x.shape, dtype=a.dtype, device=a.device) for x in captured.all]
        of_times = torch.zeros(len(self.problem.ts), dtype=torch.float64, device=grads.device)
        with f.stats.counting_backward(), torch.no_grad():
            self._check_same()
            # Only outputs that the loss depends on are stops: a multistep method has to start again at each.
            stops = [0, *(i for i in range(1, len(ts)) if anywhere(grads[i] != 0))]
            for before, i in zip(reversed(stops[:-1]), reversed(stops[1:]), strict=True):
                a = a + grads[i]
                if i in self.times:
                    of_times[i] = _product(grads[i], f(ts[i], self.trajectory(ts[i])))
                if ts[before] < ts[i]:  # an event may be where another output is
                    a, q = self._interval(along, list(dict.fromkeys(ts[before : i + 1])), a, q)
            if 0 in self.times and anywhere(a != 0):
                of_times[0] = -_product(a, f(ts[0], self.problem.y0))
        of_captured = [g.to(x) if x.is_complex() else g.real.to(x) for g, x in zip(q, captured.all, strict=True)]
        return a + grads[0], of_times[list(self.times)] if self.times else None, of_captured

    def _check_same(self) -> None:
        """f at a few places, against what it was there in the solve."""
        f = self.problem.f
        for t, y, value in self.samples:
            check_same(f(t, y), value, f.user_time(t))

    def _interval(
        self, along: Linearised, ts: list[float], a: Tensor, q: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """(a, q) at the first of ts from those at the last; a method without a step size steps along them."""
        whole = self._adjoint_problem(along, ts[-1], ts[0], a, q)
        field = AdjointField(along, Structure.of(a), parameters=False)
        alone = replace(
            whole, f=field, y0=a, structure=field.structure, ts=tuple(-t for t in reversed(ts)),
            rtol=_first(whole.rtol, a), atol=_first(whole.atol, a), norm=rms_norm,
        )  # fmt: skip
        options = self.settings.options
        if options is not None:
            options = {name: value for name, value in options.items() if name != "norm"}
        plan = self.plan.again(alone, self.settings.method, options)
        path, failure = travel(
            whole, plan.method.restarting(), plan.controller, solving_for_a(plan.solve, field),
            # A limit between two outputs: here is one solve over several of them.
            max_steps=min(plan.max_steps, self.plan.max_steps) * (len(ts) - 1 if self.problem.limited_by_output else 1),
        )  # fmt: skip
        if failure is not None:
            raise SolverError(_in_backward(failure), None)
        parts = whole.structure.restore(path.ys[-1])
        return parts[0], list(parts[1:])

    def _adjoint_problem(self, along: Linearised, t1: float, t0: float, a: Tensor, q: list[Tensor]) -> Problem:
        forward, settings = self.problem, self.settings
        structure = Structure.of((a, *q))
        y0 = structure.flatten((a, *q))
        return replace(
            forward,
            f=AdjointField(along, structure, parameters=True),
            y0=y0,
            ts=(-t1, -t0),
            user_ts=torch.tensor([forward.f.user_time(t1), forward.f.user_time(t0)], dtype=torch.float64),
            rtol=_tolerance("adjoint_rtol", settings.rtol, forward.rtol, len(y0)),
            atol=_tolerance("adjoint_atol", settings.atol, forward.atol, len(y0)),
            norm=self._norm(along, structure),
            structure=structure,
            stats=Stats(),
            stops=tuple(sorted(-s for s in forward.stops)),
            jumps=tuple(sorted(-s for s in forward.jumps)),
            callbacks=self._callbacks(along),
            quadrature=None,
        )

    def _norm(self, along: Linearised, structure: Structure) -> Callable[[Tensor], Tensor]:
        norm = (self.settings.options or {}).get("norm")
        if norm is not None and norm != "seminorm" and not callable(norm):
            raise TypeError(f"`norm` in adjoint_options must be 'seminorm' or a function, not {norm!r}")
        if callable(norm):
            zero = torch.zeros_like(self.problem.y0)

            def users(x: Tensor) -> Tensor:
                a, *q = structure.restore(x)
                return agreed_size(norm(self._augmented(zero, a, q)), "`norm` in adjoint_options")

            return users

        def worst(x: Tensor) -> Tensor:
            a, *q = structure.parts(x)
            size = self.problem.norm(a)
            return size if norm == "seminorm" else torch.stack([size, *map(rms_norm, q)]).amax(0)

        return worst

    def _augmented(self, y: Tensor, a: Tensor, q: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The state of torchdiffeq's adjoint: `(t, y, adj_y, *adj_params)`, y and adj_y as tuples if y0 was one."""
        t = torch.zeros((), dtype=a.dtype, device=a.device)
        restore = self.problem.structure.restore
        if self.problem.structure.is_tuple:
            return t, *restore(y), *restore(a), *q
        return t, restore(y), restore(a), *q

    def _callbacks(self, along: Linearised) -> dict[str, Callable[..., Any]]:
        func = along.f.func
        found = {name: getattr(func, f"{name}_adjoint") for name in CALLBACKS if hasattr(func, f"{name}_adjoint")}

        def told(callback: Callable[..., Any]) -> Callable[..., Any]:
            def call(t: Tensor, parts: tuple[Tensor, ...], dt: Tensor) -> None:
                inner = -float(t) if along.f.reverse else float(t)
                a, *q = (part * self.unit for part in parts)
                callback(t, self._augmented(along.path(inner), a, q), dt)

            return call

        return {name: told(callback) for name, callback in found.items()}


def _tolerance(name: str, given: Any, forward: float | Tensor, size: int) -> float | Tensor:
    """One for each component of (a, q): as the forward solve has it for y, the smallest for the rest."""
    if given is not None:
        if isinstance(given, Tensor) and given.numel() == 1:
            given = float(given)
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0.0:
            raise ValueError(f"`{name}` must be a number that is not negative, not {given!r}")
        return float(given)
    if not isinstance(forward, Tensor):
        return forward
    return torch.cat([forward, forward.min().expand(size - len(forward))])


def _in_backward(failure: Failure) -> Failure:
    """What is nan there may be f or a derivative of it."""
    where, bad = "in the adjoint solve of backward", failure.status in (Status.NON_FINITE, Status.INNER_NON_FINITE)
    where += ", whose f is made of the derivatives of yours" if bad else ""
    advice = Status.BACKWARD_NO_DERIVATIVE.advice if bad else failure.advice
    return replace(failure, detail=f"{where}; {failure.detail}", advice=advice)


def _product(g: Tensor, slope: Tensor) -> Tensor:
    """The change of the loss when the state moves along a slope."""
    return torch.vdot(g, slope).real if g.is_complex() else torch.dot(g, slope)


def _first(tol: float | Tensor, a: Tensor) -> float | Tensor:
    return tol[: len(a)] if isinstance(tol, Tensor) else tol
