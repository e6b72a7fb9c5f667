"""The exact gradient of the discrete solution, by the implicit function theorem at each equation.

`z = anchor + gamma f(t, z)` is solved without recording anything. Backward evaluates f once more at the solution and
solves one transposed system (root.py). So what a solve keeps for its gradient is one state for each equation,
whatever the number of inner iterations; explicit evaluations of f are recorded by autograd as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..inner import ImplicitEquation, InnerResult, Solve
from ..loop import Plan, travel
from ..norms import dot, rms_norm, two_norm
from ..problem import Problem
from ..solution import Solution, Stats
from ..spread import among_processes, over
from ..times import Time, number
from ..vector_field import VectorField
from .base import Gradient
from .captured import Captured, UnknownTensor, captured_by, check_known, check_none, check_seen
from .root import evaluated, root
from .shelf import Shelf
from .tangent import has_tangents, paused, tangent_of, with_tangent
from .transposed import Transposed

SAME = 0.4  # power of eps: how well two evaluations of one f at one point must agree


@dataclass(frozen=True)
class Implicit(Gradient):
    """The gradient of the discrete solution, exactly: one transposed linear solve for each equation of a step.

    Args:
        rtol: what a transposed solve may leave of the gradient that came in, relative; by default a tenth of the
            rtol of the solve.
        store_graph: evaluate f at each solution in the solve and keep its graph, instead of evaluating it there in
            backward: more memory, a faster backward, and values that f reads may be replaced in between.
    """

    rtol: float | None = None
    store_graph: bool = False

    def solve(self, problem: Problem, plan: Plan) -> Solution:
        path, failure = travel(
            problem, plan.method, plan.controller, self.bind(problem, plan), max_steps=plan.max_steps, dense=plan.dense
        )
        last = path.ys[-1]
        if plan.method.implicit and torch.is_grad_enabled() and not last.requires_grad and len(path.ys) > 1:
            with paused():
                check_none(problem.f, path.problem.ts[len(path.ys) - 1], last.detach())
        check_seen(problem.f)
        return path.solution(failure)

    def bind(
        self, problem: Problem, plan: Plan, captured: Captured | None = None, shelf: Shelf | None = None
    ) -> Solve:
        """How a method's equations are solved, and differentiated where autograd is recording."""
        rtol = plan.backward_rtol if self.rtol is None else self.rtol
        span = math.inf if problem.endless else number(problem.ts[-1]) - number(problem.ts[0])
        linear = Transposed(rtol, problem.f.stats, span, problem.f)
        links = Links(problem.f, linear, self.store_graph, captured, shelf=shelf or Shelf())

        def solve(equation: ImplicitEquation, guess: Tensor) -> InnerResult:
            with paused():
                links.look(equation, guess)
                result = plan.solve(equation.detached(), guess.detach())
                if not result.converged:
                    return result
                z = result.z
                if torch.is_grad_enabled():
                    z = links.attach(equation, z, result.residual if result.seen else None)
            if has_tangents():
                z = with_tangent(z, tangent_of(equation, result.z, rtol))
            return result if z is result.z else replace(result, z=z)

        return solve


@dataclass
class Links:
    """Ties the solutions of one solve to what they depend on."""

    f: VectorField
    linear: Transposed
    store_graph: bool
    captured: Captured | None = None  # found at the first equation
    weights: Tensor | None = None
    shelf: Shelf = field(default_factory=Shelf)

    def look(self, equation: ImplicitEquation, y: Tensor) -> None:
        """See what f captures, before anything else is asked of f: it may keep what its first call computes."""
        if self.captured is None and torch.is_grad_enabled():
            self.captured = captured_by(self.f, equation.t, y)

    def attach(self, equation: ImplicitEquation, z: Tensor, residual: Tensor | None) -> Tensor:
        """z with the graph of the equation that it solves."""
        self.look(equation, z)
        if self.store_graph and not (self.captured or Captured()).all:
            self.captured = captured_by(self.f, equation.t, z)  # there may be something by now
        if not any(x.requires_grad for x in (equation.anchor, *self._inputs(equation))):
            return z
        move = self._move(equation, z, residual)
        kept = None
        if self.store_graph:
            try:
                kept = evaluated(move, (z, *self._inputs(equation)))
            except UnknownTensor:  # f captures other tensors at other times
                self.captured = captured_by(self.f, equation.t, z)
                move = self._move(equation, z, residual)
                kept = evaluated(move, (z, *self._inputs(equation)))
        return root(self.shelf.put(z), move, self.linear, equation.anchor, self._inputs(equation), kept)

    def _inputs(self, equation: ImplicitEquation) -> tuple[Tensor, ...]:
        times = tuple(x for x in (equation.gamma, equation.t) if isinstance(x, Tensor))
        return (*times, *(self.captured or Captured()).all)

    def _move(self, equation: ImplicitEquation, z: Tensor, residual: Tensor | None) -> EquationMove:
        gamma, t = equation.gamma, equation.t
        return EquationMove(
            equation.f, number(t), number(gamma), isinstance(gamma, Tensor), isinstance(t, Tensor),
            self.captured or Captured(), self._print(equation, z, residual),
        )  # fmt: skip

    def _print(self, equation: ImplicitEquation, z: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """A projection of gamma f at z, by which backward will know that f is still the same function."""
        if residual is None:
            return None
        if self.weights is None:
            self.weights = _weights(z)
        with torch.no_grad():
            return self.weights, dot(_in_units_of(z, self.weights), z - equation.anchor - residual)


def _weights(z: Tensor) -> Tensor:
    """Numbers in which no plain vector is lost, the same at every call."""
    generator = torch.Generator(device="cpu").manual_seed(5)
    return torch.randn(z.shape[-1:], generator=generator, device="cpu").to(z)


def _in_units_of(z: Tensor, weights: Tensor) -> Tensor:
    """Weights for components of f in units of those of z: large components must not hide the others."""
    size = z.abs()
    return weights / (size + 1e-3 * rms_norm(z) + torch.finfo(z.dtype).tiny ** 0.5)


@dataclass(frozen=True)
class EquationMove:
    """`gamma f(t, z)` as a function of z, then gamma and t where they want a gradient, then what f captures."""

    f: VectorField
    t: float
    gamma: float
    gamma_given: bool
    t_given: bool
    captured: Captured
    print: tuple[Tensor, Tensor] | None = None

    @property
    def stats(self) -> Stats:
        return self.f.stats

    @property
    def user_t(self) -> float:
        return self.f.user_time(self.t)

    def isolate(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first = len(args) - len(self.captured.inner)
        cut = 1 + self.gamma_given + self.t_given
        # Leaves have nothing behind them, and f can only be given the tensors that it captured.
        return (
            *(x.detach().requires_grad_() for x in args[:cut]),
            *self.captured.leaves,
            *(x.detach().requires_grad_() for x in args[first:]),
        )

    def __call__(self, z: Tensor, /, *inputs: Tensor) -> Tensor:
        times = iter(inputs)
        gamma: Time = next(times) if self.gamma_given else self.gamma
        t: Time = next(times) if self.t_given else self.t
        inner = inputs[len(inputs) - len(self.captured.inner) :]
        with self.captured._replace(given=inner).substituted() as made:
            value = self.f.graph(t, z)
        self._check_same(z, value)  # first: what was replaced is not known, and its value says so better
        check_known([value], (z, *inputs), made, self.user_t)
        return gamma.to(value.dtype) * value if isinstance(gamma, Tensor) else gamma * value

    def _check_same(self, z: Tensor, value: Tensor) -> None:
        """Raise if f is not the function that was solved for: its gradient would be that of something else."""
        if self.print is None:
            return
        weights, before = self.print
        with torch.no_grad(), over(self.f.spread):
            eps = torch.finfo(z.dtype).eps
            units = _in_units_of(z, weights)
            off = (self.gamma * dot(units, value) - before).abs()
            size, rounding = abs(self.gamma) * two_norm(units * value), two_norm(units * z)
            same = bool((off <= eps**SAME * size + 100.0 * eps * (rounding + size)).all())
        if not same:
            raise RuntimeError(
                f"func gave another value in backward than in the solve, at t = {self.user_t:.6g} and the same state: "
                "something that it reads has changed since, or it is random (dropout: put modules to eval(), or draw "
                "noise once for a solve). Keep what it reads until backward is done, or solve with store_graph=True"
                + among_processes()
            )
