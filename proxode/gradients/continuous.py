"""The gradient of the exact solution, approximated: the adjoint equation, solved backwards by any method.

The state that it needs comes from the forward solve, through the interpolants of its steps; it is never integrated
backwards, which would amplify every error by exp(|lambda| T) on a dissipative problem. The steps are kept, or, with
`checkpoints`, replayed a segment at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..interpolation import Pieces
from ..loop import Plan, integrate, travel
from ..problem import Problem
from ..sharding import is_dtensor
from ..solution import Solution
from ..times import number
from .adjoint import Path
from .adjoint_solve import AdjointSolve, samples_of
from .base import Gradient, check_count, outputs_only
from .captured import Captured, captured_by, check_none, edge_of
from .outputs import Outputs
from .replay import Tape, taped
from .tangent import refuse_tangents


@dataclass(frozen=True)
class Continuous(Gradient):
    """The gradient of the differential equation, by an adjoint solve along the stored forward solution.

    Args:
        method: of the adjoint solve; by default that of the forward solve, as are the next three.
        rtol: of the adjoint solve.
        atol: of the adjoint solve, in units of the gradient that comes in.
        options: of the adjoint solve. `options["norm"]` may be "seminorm" (Kidger et al. 2021: the gradients of
            parameters, which nothing depends on, do not steer the steps) or a function of `(t, y, adj_y, *adj_params)`.
        params: the captured tensors that get a gradient; by default all.
        checkpoints: keep this many places of the forward solve and replay it between them, instead of all steps.
    """

    method: Any = None
    rtol: Any = None
    atol: Any = None
    options: dict[str, Any] | None = None
    params: Sequence[Tensor] | None = None
    checkpoints: int | None = None

    def __post_init__(self) -> None:
        check_count(self.checkpoints)
        if self.params is not None:
            object.__setattr__(self, "params", tensors_of("params", self.params))

    def solve(self, problem: Problem, plan: Plan) -> Solution:
        if not torch.is_grad_enabled() or len(problem.ts) == 1:
            return integrate(
                problem, plan.method, plan.controller, plan.solve, max_steps=plan.max_steps, dense=plan.dense
            )
        refuse_tangents("continuous")
        captured = self._wanted(captured_by(problem.f, problem.ts[0], problem.y0))
        if any(map(is_dtensor, captured.all)):
            raise NotImplementedError(
                "gradient='continuous' with parameters that are DTensors is not available: use 'implicit'"
            )
        with torch.no_grad():
            path, failure, trajectory = self._forward(problem, plan)
        times = {row: t for row, t in zip(path.rows, problem.ts, strict=False) if isinstance(t, Tensor)}
        ys: Tensor | None = None
        if any(x.requires_grad for x in (problem.y0, *times.values(), *captured.all)):
            with torch.no_grad():
                samples = samples_of(path.problem, path.ys)
            back = AdjointSolve(path.problem, plan, self, captured, trajectory, tuple(times), samples)
            stacked = torch.stack(list(times.values())) if times else None
            ys = Outputs.apply(back, torch.stack(path.ys), problem.y0, stacked, *captured.all)  # type: ignore[no-untyped-call]
        elif self.params is None:
            check_none(problem.f, path.problem.ts[len(path.ys) - 1], path.ys[-1])
        solution = path.solution(failure, ys)
        solution.dense = outputs_only("continuous", solution.dense if plan.dense else None)
        return solution

    def _forward(self, problem: Problem, plan: Plan) -> tuple[Any, Any, Path]:
        if self.checkpoints is not None:
            path, failure, tape = taped(problem, plan, self.checkpoints)
            return path, failure, Replays(tape)
        flat = replace(problem, y0=problem.y0.detach(), ts=tuple(map(number, problem.ts)))
        plan = replace(plan, controller=plan.controller.plain())
        path, failure = travel(
            flat, plan.method, plan.controller, plan.solve, max_steps=plan.max_steps, dense=True
        )
        return path, failure, path.pieces.evaluate

    def _wanted(self, captured: Captured) -> Captured:
        """Those that were asked for; what is left out is the user's choice, and said."""
        if self.params is None:
            return captured
        chosen = [p for p in self.params if p.requires_grad]
        kept = Captured(tuple(p for p in chosen if p.is_leaf), tuple(p for p in chosen if not p.is_leaf))
        names = {id(p) for p in chosen} | {edge_of(p) for p in chosen if not p.is_leaf}
        left = [x for x in captured.all if id(x) not in names and edge_of(x) not in names]
        if left:
            warnings.warn(
                f"func uses {len(left)} tensors that want a gradient and are not among `adjoint_params`: they get none",
                stacklevel=7,
            )
        return kept._replace(ignored=tuple(left), own_leaves=captured.own_leaves)


def tensors_of(argument: str, given: Any) -> tuple[Tensor, ...]:
    """Those that the user has listed; of one alone the rows would be taken for them."""
    if isinstance(given, Tensor | str) or not isinstance(given, Iterable):
        hint = ": (tensor,)" if isinstance(given, Tensor) else ""
        hint = ": tuple(module.parameters())" if isinstance(given, torch.nn.Module) else hint
        raise TypeError(f"`{argument}` must be a tuple of tensors, not a {type(given).__name__}{hint}")
    parts = tuple(given)
    for i, part in enumerate(parts):
        if not isinstance(part, Tensor):
            hint = ": *module.parameters()" if isinstance(part, torch.nn.Module) else ""
            raise TypeError(f"`{argument}[{i}]` must be a torch.Tensor, not a {type(part).__name__}{hint}")
    return parts


class Replays:
    """The trajectory of a taped solve: segments are replayed when a time in them is asked for; the last two are kept,
    for a step of the adjoint may span both."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.kept: dict[int, Pieces] = {}

    def __call__(self, t: float) -> Tensor:
        segments = self.tape.segments
        i = next((i for i, s in enumerate(segments) if t <= number(s.times[-1])), len(segments) - 1)
        if i not in self.kept:
            if len(self.kept) == 2:
                self.kept.pop(max(self.kept, key=lambda k: abs(k - i)))
            segment = segments[i]
            states = () if segment.start is None else segment.start.history.states
            f = self.tape.problem.f
            memory = f.memory
            with torch.no_grad():
                replayed = self.tape.replay(
                    segment, self.tape.plan.solve, self.tape.problem.y0, states, lambda time: time, dense=True
                )
            f.recall(memory)
            self.kept[i] = replayed.path.pieces
        return self.kept[i].evaluate(t)
