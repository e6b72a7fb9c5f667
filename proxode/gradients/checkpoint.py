"""The gradient of `implicit` from a few kept places: memory for the square root of the steps, each step taken twice.

With a place for every step (`checkpoints` as large as the number of steps) it keeps the states and the graph of one
step: what the adaptive checkpoint adjoint (Zhuang et al. 2020) and the symplectic adjoint (Matsubara et al. 2021)
promise, the exact gradient of the discrete solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..inner import Solve
from ..loop import Plan
from ..problem import Problem
from ..solution import Solution
from ..spread import over
from ..times import Time, number
from .base import Gradient, check_count, outputs_only
from .captured import Captured, captured_by, check_known, pull
from .implicit import Implicit
from .outputs import Outputs
from .replay import Segment, Tape, taped
from .shelf import Shelf
from .tangent import refuse_tangents
from .transposed import added


@dataclass(frozen=True)
class Checkpoint(Gradient):
    """The gradient of `Implicit` from a few kept places, between which the solve is made again in backward.

    Args:
        checkpoints: how many places to keep at the most; by default about the square root of twice the steps.
        rtol: of the transposed solves, as for `Implicit`.
    """

    checkpoints: int | None = None
    rtol: float | None = None

    def __post_init__(self) -> None:
        check_count(self.checkpoints)

    def solve(self, problem: Problem, plan: Plan) -> Solution:
        implicit = Implicit(self.rtol)
        if not torch.is_grad_enabled() or len(problem.ts) == 1:
            return implicit.solve(problem, plan)
        refuse_tangents("checkpoint")
        captured = captured_by(problem.f, problem.ts[0], problem.y0)
        times = [t for t in problem.ts if isinstance(t, Tensor)]
        if not any(x.requires_grad for x in (problem.y0, *times, *captured.all)):
            return implicit.solve(problem, plan)
        path, failure, tape = taped(problem, plan, self.checkpoints)
        replayer = Replayer(tape, implicit, captured)
        ys: Tensor = Outputs.apply(  # type: ignore[no-untyped-call]
            replayer, torch.stack(path.ys), problem.y0, _stacked(tape), *captured.all
        )
        solution = path.solution(failure, ys)
        solution.dense = outputs_only("checkpoint", solution.dense)
        return solution


def _stacked(tape: Tape) -> Tensor | None:
    return torch.stack([linked for _, linked in tape.linked]) if tape.linked else None


@dataclass(frozen=True)
class Replayer:
    """Backward, segment by segment from the last: replay it with a graph, pull the gradient through, forget it."""

    tape: Tape
    implicit: Implicit
    captured: Captured

    name = "checkpoint"

    def backward(self, grads: Tensor) -> tuple[Tensor | None, Tensor | None, list[Tensor | None]]:
        tape = self.tape
        leaves = {id(t): t.detach().clone().requires_grad_() for t, _ in tape.linked}
        sums: list[Tensor | None] = [None] * (len(leaves) + len(self.captured.all))

        def time(t: Time) -> Time:
            return leaves[id(t)] if isinstance(t, Tensor) else t

        carried: list[Tensor | None] = []
        f = tape.problem.f
        memory = f.memory
        captured = self.captured.isolated()
        shelf = Shelf()
        solve = self.implicit.bind(tape.problem, tape.plan, captured, shelf)
        with over(f.spread), f.stats.counting_backward(), torch.enable_grad():
            for segment in reversed(tape.segments):
                shelf.clear(len(segment.times))  # else the states of segments that are done would fill its block
                carried, found = self._pull(segment, solve, captured, tuple(leaves.values()), time, grads, carried)
                sums = [added(a, b) for a, b in zip(sums, found, strict=True)]
        f.recall(memory)
        y0 = added(carried[0] if carried else None, grads[0])
        of_times = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves.values(), sums, strict=False)]
        return y0, torch.stack(of_times) if of_times else None, sums[len(leaves) :]

    def _pull(
        self, segment: Segment, solve: Solve, captured: Captured, times: tuple[Tensor, ...],
        time: Callable[[Time], Time], grads: Tensor, carried: list[Tensor | None],
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """From gradients at the end of a segment and at its outputs to those at its start, of times, and captured."""
        start = segment.start
        kept = (self.tape.problem.y0,) if start is None else start.history.states
        states = tuple(state.detach().requires_grad_() for state in kept)
        with captured.substituted() as made:
            replayed = self.tape.replay(segment, solve, states[0], states, time)
        outs = [*replayed.ys, *(replayed.end.history.states if carried else ())]
        weights = [*(grads[i] for i in segment.outputs), *carried]
        others = (*times, *captured.all)
        known = (*states, *others)
        check_known(outs, known, made, self.tape.problem.f.user_time(number(segment.times[0])))
        pairs = [(out, w) for out, w in zip(outs, weights, strict=True) if w is not None and out.requires_grad]
        if not pairs:
            return [None] * len(states), [None] * len(others)
        found = pull([out for out, _ in pairs], known, [w for _, w in pairs])
        return list(found[: len(states)]), list(found[len(states) :])

