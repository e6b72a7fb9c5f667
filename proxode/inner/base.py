"""The only inner loop: it iterates, counts, watches for non-finite values and decides when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..norms import all_finite, two_norm
from ..randomness import is_random
from ..status import Status
from ..times import number
from .equation import ImplicitEquation
from .noise import Correction, by_products, is_noise, noise_at, noise_is_near, uncovered
from .own import checked_step, is_own
from .stop import InnerResult, Stop

DIVERGED = 1e8  # growth of the residual beyond its first size that no solver here comes back from
PROGRESS = 0.9  # a residual below this part of the best one so far counts as progress


class Goal(NamedTuple):
    """What a solve is to reach: this part of its first residual; or `tol`, in the norm in which errors are measured."""

    part: float
    tol: float
    measure: Callable[[Tensor], float]
    by_residual: bool = True  # False: an update is to become small, whatever the residual
    hurried: bool = False  # a shorter step is the alternative to many iterations
    given: bool = False  # the step has a given length: there is no alternative


class Believed(NamedTuple):
    """A point that a solver believes in without having seen f there."""

    z: Tensor
    r: Tensor  # the residual that is expected there
    left: Tensor  # what may be left of the error


@dataclass(frozen=True)
class InnerSolver:
    """An iteration for `r(z) = 0`, where `r(z) = z - anchor - gamma f(t, z)`.

    `init` makes the state and `step` proposes the next point; the loop in `solve_equation` evaluates the residual
    there. So an iteration costs one evaluation of f, plus the Jacobian products that a step asks for.
    """

    name: ClassVar[str] = "inner"
    max_iters: ClassVar[int] = 5_000
    patience: ClassVar[int] = 200  # iterations without progress that end a solve
    tries: ClassVar[int] = 100  # iterations that are worth it where a shorter step is the alternative
    noise_patience: ClassVar[int] = 20  # iterations without progress after which the residual may be noise
    noise_doubt: ClassVar[int] = 5  # the same where it is as small as one that was noise in an equation before
    local: ClassVar[bool] = False  # is it sure near a root, and only there?

    def init(self, equation: ImplicitEquation, z: Tensor, r: Tensor, goal: Goal) -> Any:
        """The state before the first step. r is the residual at z."""
        raise NotImplementedError(f"{type(self).__name__} must have init(self, equation, z, r, goal) -> state")

    def step(self, equation: ImplicitEquation, z: Tensor, r: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next point, given the residual r at z."""
        raise NotImplementedError(f"{type(self).__name__} must have step(self, equation, z, r, state) -> z, state")

    def iterate(self, z: Tensor, state: Any) -> Tensor:
        """The iterate that belongs to the point z which `step` proposed; they differ where z is a trial."""
        return z

    def is_whole(self, state: Any) -> bool:
        """Whether the last update was a whole one: one that was cut says nothing of how far the root is."""
        return True

    def shortcut(self, state: Any) -> Believed | None:
        """Where a solve may end without another evaluation."""
        return None

    def reached(self, equation: ImplicitEquation, r: Tensor, state: Any) -> None:
        """The last point that `step` proposed has the residual r, and that is small enough: what can be learned."""

    def correction(self, state: Any, r: Tensor) -> Tensor | None:
        """The move that a residual r asks for, by a matrix that the solver has; None: it has none."""
        return None

    def limits(self, state: Any, *, hurried: bool) -> tuple[int, int]:
        """Iterations that a solve may take, and those without progress that end it. Where a shorter step is the
        alternative, it is hurried."""
        return (self.tries if hurried else self.max_iters), self.patience

    def retreats(self, state: Any) -> bool:
        """Whether the next step takes back the last one, should it have led to where f has no finite value."""
        return False

    def verdict(self, state: Any) -> Status | None:
        """A reason to give up at once, or None."""
        return None

    def explain(self, status: Status, state: Any) -> Status:
        """The cause of a failure, where the solver knows it better than the loop."""
        return status


class Best(NamedTuple):
    """Of all points the one with the least residual, and the size of that."""

    z: Tensor
    size: float


class Last(NamedTuple):
    """Where a solver is."""

    z: Tensor
    r: Tensor
    state: Any


@torch.no_grad()
def solve_equation(solver: InnerSolver, equation: ImplicitEquation, guess: Tensor, stop: Stop) -> InnerResult:
    """Iterate until the stopping test holds; the outcome is a value, also where it is a failure."""
    stats = equation.f.stats
    while True:
        products = stats.n_jvp + stats.n_jac
        result = _iterate(solver, equation, guess, stop)
        stats.n_inner += result.iterations
        used_none = stats.n_jvp + stats.n_jac == products
        if result.converged or used_none or not _product_is_wrong(equation, result.z):
            break
        equation.f.degrade()
    stats.n_inner_failed += not result.converged
    return result


def _product_is_wrong(equation: ImplicitEquation, z: Tensor) -> bool:
    """Was the solver misled? Automatic differentiation is blind to what f detached; a difference is not. It is asked
    after the first, second, fourth, eighth ... failure: most steps that fail are too long, and only that."""
    equation.f.failures += 1
    asked = equation.f.failures & (equation.f.failures - 1) == 0
    if not asked or not equation.f.ladder or not all_finite(z):
        return False
    r = equation.residual(z)
    claimed = equation.derivative(z, r, r)
    measured = equation.difference(z, r, r)
    return bool((two_norm(claimed - measured) > 0.05 * two_norm(measured)).any())


def _iterate(solver: InnerSolver, equation: ImplicitEquation, z: Tensor, stop: Stop) -> InnerResult:
    r = equation.residual(z)
    first = size = stop.measure(r)
    tol = stop.limit(equation, z, r)
    if size == 0.0 or (stop.by_residual and size <= tol):
        return InnerResult(solver.name, z, Status.SUCCESS, 0, size, tol, r)
    if not math.isfinite(size):
        equation.f.meet_undefined(equation.t, z, r)
        return InnerResult(solver.name, z, Status.INNER_NON_FINITE, 0, size, tol)
    best, best_size, best_at, at = z, size, 0, z  # without its residual, a state more: who wants it evaluates again
    status, i = Status.INNER_MAX_ITERATIONS, 0
    goal = Goal(min(tol / size, 1.0), tol, stop.measure, stop.by_residual, stop.believing, stop.given)
    state = solver.init(equation, z, r, goal)
    most, patience = solver.limits(state, hurried=stop.believing)
    step = partial(checked_step, solver) if is_own(solver) else solver.step
    for i in range(1, (stop.max_iters or most) + 1):
        z, state = step(equation, z, r, state)
        if not stop.by_residual:
            before, at = at, solver.iterate(z, state)
            if at is not before and solver.is_whole(state) and _settled(at, before, tol):
                return InnerResult(solver.name, at, Status.SUCCESS, i, float(two_norm(at - before).max()), tol)
        elif stop.believing and (end := solver.shortcut(state)) is not None and (left := stop.measure(end.left)) <= tol:
            return InnerResult(solver.name, end.z, Status.SUCCESS, i, left, tol, end.r, seen=False)
        del r  # not to be held while f works
        r = equation.residual(z)
        size = stop.measure(r)
        if stop.by_residual and size <= tol:
            solver.reached(equation, r, state)
            return InnerResult(solver.name, z, Status.SUCCESS, i, size, tol, r)
        if not math.isfinite(size):
            equation.f.meet_undefined(equation.t, z, r)
        ended = solver.verdict(state) or (None if solver.retreats(state) else _blown_up(size, first))
        if ended is not None:
            status = ended
            break
        if size < PROGRESS * best_size:
            best, best_size, best_at = z, size, i
        elif _is_suspect(solver, equation, i - best_at, best_size, patience):
            asked = Best(best, best_size), Last(z, r, state)
            heard = _heard(solver, equation, *asked, stop, tol, i) if stop.by_residual else None
            if heard is not None:
                return heard
            if i - best_at >= patience:
                status = Status.INNER_STAGNATED
                break
    reported = best_size if stop.by_residual else size
    return InnerResult(solver.name, best, solver.explain(status, state), i, reported, tol)


def _heard(
    solver: InnerSolver, equation: ImplicitEquation, best: Best, last: Last, stop: Stop, tol: float, i: int
) -> InnerResult | None:
    """The end of a solve whose residual is noise; None where it is not. A solver with a matrix goes on from where it
    is, whichever residual is the least, for its moves leave nothing slow behind; of others the best point counts. A
    residual that is another one when it is asked for again may be that of an f which is random."""
    known = solver.correction(last.state, last.r)
    z, r = last.z, last.r
    if known is None:
        z, r = best.z, equation.residual(best.z)
        if stop.measure(r) != best.size and is_random(equation.f, number(equation.t), z):
            return InnerResult(solver.name, z, Status.RANDOM, i, best.size, tol, r)
    noise = noise_at(equation, z, r)
    if not is_noise(r, noise, stop.measure, tol):
        return None

    def own(at: Tensor, of: Tensor, part: float) -> tuple[Tensor, bool]:
        move = solver.correction(last.state, of)
        assert move is not None
        return move, True

    moves: tuple[Correction, ...] = (partial(by_products, equation),)
    for correction in moves if known is None else (own, *moves):
        z, r, sure = uncovered(equation, z, r, stop.measure(noise), stop.measure, tol, correction)
        if sure:
            equation.f.learned["noise"] = best.size / abs(number(equation.gamma))
            return InnerResult(solver.name, z, Status.SUCCESS, i, stop.measure(r), tol, r)
    return InnerResult(solver.name, z, Status.INNER_STAGNATED, i, stop.measure(r), tol, r)


def _is_suspect(solver: InnerSolver, equation: ImplicitEquation, idle: int, size: float, patience: int) -> bool:
    """Is it time to ask whether the best residual is noise? Soon, if it has the size that noise had before: in float32,
    where that is so in step after step, most iterations would be spent on waiting."""
    if (idle == solver.noise_doubt or solver.noise_doubt == 1) and noise_is_near(equation, size):
        return True
    return idle % min(solver.noise_patience, patience) == 0


def _blown_up(size: float, first: float) -> Status | None:
    if size < DIVERGED * first:
        return None
    return Status.INNER_DIVERGED if math.isfinite(size) else Status.INNER_NON_FINITE


def _settled(z_next: Tensor, z: Tensor, tol: float) -> bool:
    """The paper's test |z^{i+1} - z^i| <= tol, with a floor at an ulp of the state."""
    floor = torch.finfo(z.dtype).eps * two_norm(z_next)
    return bool((two_norm(z_next - z) <= torch.clamp(floor, min=tol)).all())
