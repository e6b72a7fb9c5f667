"""Where steps end, asserted exactly with a stub method: its solution is exact and its error is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

import proxode
from proxode.controllers import Adaptive, AdaptiveState, FixedGrid, Outcome, first_length
from proxode.loop import integrate
from proxode.methods import Method, Step
from proxode.problem import make_problem
from proxode.solution import Stats
from proxode.status import Status


@dataclass(frozen=True)
class Asked:
    """An interpolant that is exact and notes what it was asked."""

    times: list[float]

    def evaluate(self, t: Any) -> Tensor:
        self.times.append(float(t))
        return exact(float(t))


@dataclass(frozen=True)
class Stub(Method):
    """y = t^2, with the error that `error(t0, h)` gives."""

    error: Callable[[float, float], float]
    power: int = 2  # of the step that the error follows
    tried: list[tuple[float, float]] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "stub"

    @property
    def order(self) -> int:
        return self.power - 1

    def init(self, f: Any, t0: Any, y0: Tensor, span: float = 0.0, side: int = 0) -> None:
        return None

    def step(self, f: Any, t0: Any, t1: Any, history: None, solve: Any, side: int = 0) -> Step:
        self.tried.append((float(t0), float(t1)))
        error = torch.tensor([self.error(float(t0), float(t1) - float(t0))], dtype=torch.float64)
        return Step(exact(float(t1)), None, Asked(self.asked), error=error)


def exact(t: float) -> Tensor:
    return torch.tensor([t * t], dtype=torch.float64)


def run(stub: Stub, controller: Any, t: list[float], tol: float = 1.0, max_steps: int = 200, **marks: Any) -> Any:
    times = torch.tensor(t, dtype=torch.float64)
    problem = make_problem(lambda t, y: 2 * t + 0 * y, exact(t[0]), times, 0.0, tol, Stats(), **marks)
    solution = integrate(problem, stub, controller, lambda equation, guess: None, max_steps=max_steps)
    if solution.status.ok:
        assert torch.equal(solution.ys[:, 0], times**2)
    return solution


def ends(stub: Stub) -> list[float]:
    return [t1 for _, t1 in stub.tried]


def test_a_fixed_grid_is_followed_whatever_the_error() -> None:
    stub = Stub(lambda t0, h: 1e6)
    solution = run(stub, FixedGrid((0.0, 0.5, 0.75, 2.0)), [0.0, 0.75, 1.0, 2.0])
    assert stub.tried == [(0.0, 0.5), (0.5, 0.75), (0.75, 2.0)]
    assert stub.asked == [1.0]  # 0.75 and 2 are steps themselves
    assert solution.stats.n_steps == solution.stats.n_accepted == 3


def test_the_integral_controller_goes_where_the_last_error_says() -> None:
    stub = Stub(lambda t0, h: 100 * h * h)
    run(stub, Adaptive("integral", first_step=0.1), [0.0, 0.4])
    assert ends(stub) == pytest.approx([0.1, 0.19, 0.28, 0.37, 0.4])


@pytest.mark.parametrize("end, steps", [(0.309, [0.1, 0.2, 0.309]), (0.311, [0.1, 0.2, 0.3, 0.311])])
def test_a_step_that_nearly_reaches_the_end_does_reach_it(end: float, steps: list[float]) -> None:
    """Within a tenth of it, unless it may not be as long; a grid that is given stays as it is."""
    error = 0.9**2  # what keeps the step
    stub = Stub(lambda t0, h: error)
    run(stub, Adaptive("integral", first_step=0.1), [0.0, end])
    assert ends(stub) == pytest.approx(steps)
    limited = Stub(lambda t0, h: error)
    run(limited, Adaptive("integral", first_step=0.1, max_step=0.1), [0.0, end])
    assert ends(limited) == pytest.approx([0.1, 0.2, 0.3, end])
    on_grid = Stub(lambda t0, h: error)
    run(on_grid, FixedGrid((0.0, 0.1, 0.2, 0.3, end)), [0.0, end])
    assert ends(on_grid) == pytest.approx([0.1, 0.2, 0.3, end])


@pytest.mark.parametrize("end", [0.305, 0.311])
def test_a_step_that_was_made_longer_and_rejected_is_not_made_longer_again(end: float) -> None:
    """With a least step it would be the same step again and again."""
    stub = Stub(lambda t0, h: 4.0)
    solution = run(stub, Adaptive("integral", first_step=0.1, min_step=0.1), [0.0, end])
    assert solution.status.ok and solution.stats.n_rejected <= 1
    assert ends(stub)[-1] == end and ends(stub)[-2] == pytest.approx(0.3)


def test_a_step_that_nearly_reaches_a_mark_does_reach_it() -> None:
    stub = Stub(lambda t0, h: 0.9**2)
    run(stub, Adaptive("integral", first_step=0.1), [0.0, 0.405], step_t=torch.tensor([0.205], dtype=torch.float64))
    assert ends(stub) == pytest.approx([0.1, 0.205, 0.31, 0.405])


def test_a_rejected_step_is_tried_again_shorter_and_the_next_does_not_grow() -> None:
    stub = Stub(lambda t0, h: 9.0 if t0 == 0 and h > 0.2 else 1e-6)
    solution = run(stub, Adaptive("integral", first_step=0.3), [0.0, 10.0])
    assert stub.tried[:2] == [(0.0, 0.3), (0.0, pytest.approx(0.09))]
    assert ends(stub)[2] == pytest.approx(0.18)
    assert ends(stub)[3] == pytest.approx(0.18 + 0.9)  # ifactor
    assert solution.stats.n_rejected == 1
    assert solution.stats.n_steps == len(stub.tried) == solution.stats.n_accepted + 1


def test_factors_bound_the_change_of_a_step() -> None:
    stub = Stub(lambda t0, h: 1e4 * h * h if t0 == 0 else 0.0)
    run(stub, Adaptive("integral", first_step=4.0, dfactor=0.25, ifactor=3.0, safety=0.5), [0.0, 5.0])
    sizes = [t1 - t0 for t0, t1 in stub.tried]
    assert sizes[:4] == pytest.approx([4.0, 1.0, 0.25, 0.0625])
    first = next(i for i, (t0, _) in enumerate(stub.tried) if t0 > 0)
    assert sizes[first] == pytest.approx(sizes[first - 1])
    assert sizes[first + 1 : first + 4] == pytest.approx([3.0**i * sizes[first] for i in (1, 2, 3)])


def test_the_pi_controller_follows_gustafssons_formula() -> None:
    def error(t0: float, h: float) -> float:
        return (40 + 10 * math.sin(2 * t0)) * h**5

    stub = Stub(error, power=5)
    run(stub, Adaptive("pi", first_step=0.2), [0.0, 3.0])
    t, h, before, expected = 0.0, 0.2, 1.0, []
    while t < 3.0:
        expected.append((t, min(t + h, 3.0)))
        now = error(t, h)
        assert now <= 1  # nothing is rejected in this run
        t, h = t + h, h * 0.9 * now ** (-0.85 / 5) * before ** (0.2 / 5)
        before = max(now, 1e-4)
    assert len(stub.tried) == len(expected) > 5
    assert [x for pair in stub.tried for x in pair] == pytest.approx([x for pair in expected for x in pair])


def test_the_pi_controller_remembers_the_last_error_and_the_integral_one_does_not() -> None:
    """A ratio that rose tenfold is a warning: the next step is shorter than after one that stayed."""

    def following(kind: str, before: float) -> float:
        controller = Adaptive(kind)
        return controller.next(0.0, 1.0, Outcome(0.5, 5), AdaptiveState(1.0, before)).t_next - 1.0

    assert following("integral", 0.05) == following("integral", 0.5) == pytest.approx(0.9 * 0.5**-0.2)
    assert following("pi", 0.05) == pytest.approx(following("pi", 0.5) * 0.1 ** (0.2 / 5))


@pytest.mark.parametrize("power", [2, 5])
def test_the_papers_controller_follows_its_formula(power: int) -> None:
    tol, err = 0.1, 0.02
    stub = Stub(lambda t0, h: err, power=power)
    run(stub, Adaptive("paper", first_step=1.0), [0.0, 40.0], tol=tol)
    sizes = [1.0]
    while sum(sizes) < 40.0:
        h = sizes[-1]
        sizes.append(h * min((tol * h / (2 * err)) ** (1 / power), 10.0))
    expected = [*accumulate(sizes[:-1]), 40.0]
    assert ends(stub) == pytest.approx(expected)


def test_the_papers_controller_measures_the_error_per_unit_step() -> None:
    """err <= tol h is accepted."""
    for err, accepted in ((0.049, True), (0.051, False)):
        stub = Stub(lambda t0, h, err=err: err * h / 0.5)
        run(stub, Adaptive("paper", first_step=0.5), [0.0, 0.5], tol=0.1, max_steps=50)
        assert (len(stub.tried) == 1) == accepted


def test_no_step_is_longer_than_max_step_or_crosses_the_end() -> None:
    stub = Stub(lambda t0, h: 0.0)
    run(stub, Adaptive(first_step=0.1, max_step=0.4), [0.0, 1.5])
    assert ends(stub) == pytest.approx([0.1, 0.5, 0.9, 1.3, 1.5])


def test_outputs_do_not_cut_steps_short() -> None:
    stub = Stub(lambda t0, h: 0.0)
    run(stub, Adaptive(first_step=1.0, max_step=1.0), [0.0, 0.5, 1.0, 1.25, 1.75, 3.0])
    assert ends(stub) == [1.0, 2.0, 3.0]
    assert stub.asked == [0.5, 1.25, 1.75]


@pytest.mark.parametrize("name", ["step_t", "jump_t"])
def test_a_stop_cuts_one_step_and_the_one_proposed_before_still_stands(name: str) -> None:
    stub = Stub(lambda t0, h: 0.0)
    marks = {name: torch.tensor([-1.0, 1.25, 9.0], dtype=torch.float64)}
    run(stub, Adaptive(first_step=1.0, max_step=1.0), [0.0, 4.0], **marks)
    assert ends(stub) == pytest.approx([1.0, 1.25, 2.25, 3.25, 4.0])


def test_a_step_that_all_but_reaches_the_end_reaches_it() -> None:
    stub = Stub(lambda t0, h: 0.0)
    run(stub, Adaptive(first_step=1.0, max_step=1.0), [0.0, 2.0 + 1e-10])
    assert ends(stub) == [1.0, 2.0 + 1e-10]


def test_a_step_of_the_least_size_is_accepted_whatever_its_error() -> None:
    stub = Stub(lambda t0, h: 100.0)
    solution = run(stub, Adaptive(first_step=0.5, min_step=0.1), [0.0, 1.0])
    assert solution.status is Status.SUCCESS
    assert stub.tried[0] == (0.0, 0.5)
    assert [t0 for t0, _ in stub.tried[-3:]] == pytest.approx([0.7, 0.8, 0.9])
    assert solution.stats.n_accepted == 10


@pytest.mark.parametrize("error", [math.nan, math.inf, 1e9, 1.5], ids=str)
@pytest.mark.parametrize("start", [0.0, 1.0, -3.0])
def test_an_error_that_no_step_can_mend_ends_as_an_underflow(error: float, start: float) -> None:
    stub = Stub(lambda t0, h: error)
    solution = run(stub, Adaptive(first_step=0.5), [start, start + 1], max_steps=4000)
    assert solution.status is Status.STEP_UNDERFLOW
    assert solution.failure.t == start
    assert len(solution.ts) == len(solution.ys) == 1


def test_an_error_that_is_not_finite_shrinks_the_step_by_dfactor() -> None:
    stub = Stub(lambda t0, h: math.nan if h > 0.1 else 0.0)
    run(stub, Adaptive(first_step=1.0, dfactor=0.5), [0.0, 0.2])
    assert stub.tried[:3] == [(0.0, 0.2), (0.0, 0.1), (0.1, 0.2)]


def test_the_limit_of_steps_counts_rejected_ones() -> None:
    stub = Stub(lambda t0, h: 100 * h * h)
    solution = run(stub, Adaptive("integral", first_step=0.5), [0.0, 10.0], max_steps=7)
    assert solution.status is Status.MAX_STEPS
    assert solution.stats.n_steps == 7 == len(stub.tried)
    assert solution.stats.n_rejected == 1


@pytest.mark.parametrize("method", ["bosh3", "ralston4", "dopri5", "tsit5"])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e4])
def test_the_first_step_is_neither_rejected_nor_far_too_short(method: str, tol: float, rate: float) -> None:
    """On any scale of time: a first step that is a tenth of the second costs as much as one that is rejected."""
    lengths: list[float] = []

    class Decay(torch.nn.Module):
        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return -rate * y

        def callback_step(self, t: Tensor, y: Tensor, dt: Tensor) -> None:
            lengths.append(float(dt))

    y0 = torch.ones(3, dtype=torch.float64)
    stats = proxode.solve(Decay(), y0, 0.0, 5.0 / rate, method=method, rtol=tol, atol=tol).stats
    assert stats.n_rejected == 0 and 0.2 * lengths[1] < lengths[0] < 2.0 * lengths[1]


@given(
    h0=st.floats(1e-300, 1e300), d1=st.floats(0.0, math.inf), d2=st.floats(0.0, math.inf), order=st.integers(2, 8),
    span=st.floats(1e-300, 1e300),
)  # fmt: skip
@example(h0=1.0, d1=1e-200, d2=1e200, order=6, span=1.0)
@example(h0=1.0, d1=1e200, d2=1e-120, order=3, span=1.0)
def test_a_first_step_is_a_step_whatever_f_is_like(h0: float, d1: float, d2: float, order: int, span: float) -> None:
    h = first_length(h0, d1, d2, order, span)
    assert 0.0 < h <= span
