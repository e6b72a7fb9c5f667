"""When `auto` changes between its two explicit pairs: the rules themselves, each on both sides of its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from proxode.methods import METHODS
from proxode.methods.auto import Auto, AutoHistory, _wait
from proxode.methods.base import History
from proxode.methods.pairs import COARSE, FINE, GROWING, PAUSE, QUICK, SHORT

AUTO = METHODS["auto"]
Y = torch.ones(2, dtype=torch.float64)


def history(order: int, since: int = 50, wait: int = 0, last: float = 0.1) -> AutoHistory:
    """Two points, the step between them `last`."""
    return AutoHistory(History((1.0, 1.0 - last), (Y, Y), Y, order, since), 0.0, wait)


def auto(changing: bool = True) -> Auto:
    assert isinstance(AUTO, Auto)
    return replace(AUTO, changing=changing)


@pytest.mark.parametrize("reach, expected", [(1.01 * COARSE, QUICK), (0.99 * COARSE, None)])
def test_the_low_order_is_tried_where_stability_holds_the_high_one(reach: float, expected: int | None) -> None:
    assert auto()._other_pair(reach, 0.1, history(FINE)) == expected
    assert auto(changing=False)._other_pair(reach, 0.1, history(FINE)) is None  # at tight tolerances never


@pytest.mark.parametrize("reach, expected", [(1.01 * SHORT, None), (0.99 * SHORT, FINE)])
def test_the_high_order_comes_back_where_errors_hold_the_low_one(reach: float, expected: int | None) -> None:
    assert auto()._other_pair(reach, 0.1, history(QUICK)) == expected


def test_a_step_that_is_still_growing_says_nothing() -> None:
    assert auto()._other_pair(0.5 * SHORT, 1.01 * GROWING * 0.1, history(QUICK)) is None
    assert auto()._other_pair(0.5 * SHORT, 0.99 * GROWING * 0.1, history(QUICK)) == FINE


def test_a_trial_that_was_soon_over_is_not_repeated_soon() -> None:
    """And the pause doubles with every such trial, until one lasts."""
    brief, long = history(QUICK, since=PAUSE - 1), history(QUICK, since=PAUSE)
    assert _wait(brief, FINE) == PAUSE and _wait(brief._replace(wait=PAUSE), FINE) == 2 * PAUSE
    assert _wait(long._replace(wait=PAUSE), FINE) == 0 and _wait(brief, None) == 0
    waiting = history(FINE, since=PAUSE - 1, wait=PAUSE)
    assert auto()._other_pair(2 * COARSE, 0.1, waiting) is None
    over = waiting._replace(points=waiting.points._replace(since=PAUSE))
    assert auto()._other_pair(2 * COARSE, 0.1, over) == QUICK
