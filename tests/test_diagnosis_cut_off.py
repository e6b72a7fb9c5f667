"""A diagnosis whose solve was cut off by its number of steps: it has seen a part of the way, and says so."""

from __future__ import annotations

import pytest
import torch
from diagnosis_cases import D, heat, noise, pendulum, robertson, van_der_pol
from torch import Tensor

from proxode.analysis import diagnose


def T(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=D)


@pytest.mark.parametrize(
    ("func", "y0", "t1", "max_steps"),
    [
        (van_der_pol, T(2, 0), 2000.0, 1),
        (van_der_pol, T(2, 0), 2000.0, 10),
        (van_der_pol, T(2, 0), 2000.0, 40),
        (robertson, T(1, 0, 0), 1e5, 5),
        (heat, noise(32), 1.0, 20),
        (lambda t, y: -torch.where(t > 6, 1e5, 1.0) * (y - torch.cos(t)), T(0), 10.0, 25),  # stiff from there
    ],
    ids=["first step", "ten steps", "forty steps", "Robertson", "heat", "at a jump"],
)
def test_a_start_is_not_called_easy_for_its_short_steps(func, y0: Tensor, t1: float, max_steps: int) -> None:  # type: ignore[no-untyped-def]
    d = diagnose(func, y0, 0.0, t1, max_steps=max_steps)
    assert not d.ok and d.advice.stiffness == "unknown" and d.advice.method == "auto"
    said = " ".join(str(d).split())
    assert "It is not known whether this is stiff" in said and "not stiff" not in said
    assert f"only the way up to t = {d.reached:g} was seen" in said and "raise `max_steps`" in said


def test_what_stability_would_ask_of_the_rest_is_told() -> None:
    d = diagnose(van_der_pol, T(2, 0), 0.0, 2000.0, max_steps=10)
    assert "if it is like what was seen, stability alone asks dopri5 for 1,8" in d.advice.choices[0].reason


def test_what_is_stiff_already_is_called_that() -> None:
    d = diagnose(van_der_pol, T(2, 0), 0.0, 2000.0, max_steps=200)
    assert not d.ok and d.advice.stiffness == "stiff" and "Stiff, seen up to t =" in str(d)


def test_after_half_of_the_way_the_verdict_is_of_that_part() -> None:
    d = diagnose(pendulum, T(1, 0), 0.0, 100.0, max_steps=100)
    assert 0.5 < d.part < 0.6 and d.advice.stiffness == "not stiff"
    assert d.advice.choices[0].reason.startswith(f"not stiff up to t = {d.reached:g}")
    assert "Not stiff, seen up to t = 50" in str(d)


def test_what_oscillates_is_judged_by_the_part_that_was_seen() -> None:
    whole = diagnose(pendulum, T(1, 0), 0.0, 100.0, rtol=5e-3)
    part = diagnose(pendulum, T(1, 0), 0.0, 100.0, rtol=5e-3, max_steps=int(0.55 * whole.path.stats.n_steps))
    assert not part.ok and part.way > 1.6 * part.steps  # of the whole way, and of the part
    assert whole.advice.stiffness == part.advice.stiffness == "not stiff"


def test_a_solve_that_takes_no_step_says_nothing_of_stiffness() -> None:
    d = diagnose(van_der_pol, T(2, 0), 0.0, 2000.0, max_steps=1, first_step=1e3)
    assert not d.steps and d.advice.stiffness == "unknown" and not d.advice.choices
    assert "no step could be taken" in str(d)
