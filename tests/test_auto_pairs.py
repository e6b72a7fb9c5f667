"""When `auto` changes between its explicit pairs: the rules themselves, each on both sides of its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import proxode
from proxode.methods import METHODS
from proxode.methods.auto import Auto, AutoHistory, _wait
from proxode.methods.base import History
from proxode.methods.pairs import (
    COARSE,
    CRUDE,
    FAR,
    FINE,
    GROWING,
    LOOSE,
    LOW,
    LOWEST,
    MODERATE,
    NEAR,
    PAUSE,
    SHORT,
    first_pair,
)  # fmt: skip

AUTO = METHODS["auto"]
Y = torch.ones(2, dtype=torch.float64)


def history(order: int, since: int = 50, wait: int = 0, last: float = 0.1) -> AutoHistory:
    """Two points, the step between them `last`."""
    return AutoHistory(History((1.0, 1.0 - last), (Y, Y), Y, order, since), 0.0, wait)


def auto(rtol: float = MODERATE) -> Auto:
    assert isinstance(AUTO, Auto)
    return replace(AUTO, rtol=rtol)


@pytest.mark.parametrize("way", [NEAR, FAR])
def test_tolerance_and_length_say_which_pair_is_the_first(way: float) -> None:
    beyond = 1.01 * way
    for rtol, code in ((CRUDE[way], LOWEST), (0.99 * CRUDE[way], LOW), (LOOSE, LOW), (0.99 * LOOSE, FINE)):
        assert first_pair(rtol, beyond) == code
    assert first_pair(0.99 * CRUDE[NEAR], FAR) == LOW and first_pair(1.0, NEAR) == FINE


@pytest.mark.parametrize("rtol, name", [(1e-2, "bosh3"), (1e-3, "ralston4"), (1e-4, "dopri5")])
def test_a_solve_begins_with_that_pair(rtol: float, name: str) -> None:
    run = proxode.solve(lambda t, y: -y, Y, 0.0, 10.0, rtol=rtol, atol=1e-9)
    assert run.stats.switches[0] == (0.0, name)


@pytest.mark.parametrize("code", [FINE, LOW])
@pytest.mark.parametrize("part, expected", [(1.01, LOWEST), (0.99, None)])
def test_the_lowest_order_is_tried_where_stability_holds_another(code: int, part: float, expected: int | None) -> None:
    reach = part * COARSE[code]
    assert auto()._other_pair(reach, 0.1, history(code)) == expected
    assert auto(0.99 * MODERATE)._other_pair(reach, 0.1, history(code)) is None  # at tight tolerances never


def test_the_lowest_order_stays_where_stability_holds_it() -> None:
    assert auto()._other_pair(10.0, 0.1, history(LOWEST)) is None


@pytest.mark.parametrize("code", [LOW, LOWEST])
@pytest.mark.parametrize("reach, expected", [(1.01 * SHORT, None), (0.99 * SHORT, FINE)])
def test_the_high_order_comes_back_where_errors_hold_a_low_one(code: int, reach: float, expected: int | None) -> None:
    assert auto()._other_pair(reach, 0.1, history(code)) == expected


@pytest.mark.parametrize("code", [LOW, LOWEST])
def test_a_step_that_is_still_growing_says_nothing(code: int) -> None:
    assert auto()._other_pair(0.5 * SHORT, 1.01 * GROWING * 0.1, history(code)) is None
    assert auto()._other_pair(0.5 * SHORT, 0.99 * GROWING * 0.1, history(code)) == FINE


def test_a_trial_that_was_soon_over_is_not_repeated_soon() -> None:
    """And the pause doubles with every such trial, until one lasts."""
    brief, long = history(LOWEST, since=PAUSE - 1), history(LOWEST, since=PAUSE)
    assert _wait(brief, FINE) == PAUSE and _wait(brief._replace(wait=PAUSE), FINE) == 2 * PAUSE
    assert _wait(long._replace(wait=PAUSE), FINE) == 0 and _wait(brief, None) == 0
    waiting = history(FINE, since=PAUSE - 1, wait=PAUSE)
    assert auto()._other_pair(2 * COARSE[FINE], 0.1, waiting) is None
    over = waiting._replace(points=waiting.points._replace(since=PAUSE))
    assert auto()._other_pair(2 * COARSE[FINE], 0.1, over) == LOWEST
