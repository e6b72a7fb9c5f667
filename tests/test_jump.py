"""Jumps of f in y: told where they stop a solve, told from fronts and from stiffness, and mended by what is advised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import Status
from proxode.jump import jump_near

D = torch.float64
Y0 = torch.tensor([1.0, 0.5], dtype=D)
F = Callable[[Tensor, Tensor], Tensor]


def friction(sign: Callable[[Tensor], Tensor]) -> F:
    return lambda t, y: torch.stack([y[1], -y[0] - 5 * sign(y[1]) + 3 * torch.sin(2 * t)])


def solved(f: F, y0: Tensor, t1: float, **options: Any) -> proxode.Solution:
    with torch.no_grad():
        return proxode.solve(f, y0, 0.0, t1, throw=False, **options)


def test_dry_friction_is_called_a_jump_and_what_is_advised_solves_it() -> None:
    for method, explicit in (("auto", False), ("bdf", False), ("dopri5", True)):
        stuck = solved(friction(torch.sign), Y0, 10.0, method=method, max_steps=2_000)
        said, advice = stuck.message.split("What to try: ")
        assert stuck.status is Status.MAX_STEPS and "f jumps by 10 in component 1" in said
        assert advice.startswith("make it continuous (`tanh(y / e)` for `sign(y)`), or find the crossing by an event")
        assert "loosen rtol" not in advice and "'bdf'" not in advice, explicit
        words = " ".join(stuck.summary().split())
        assert "leave out `inner`" not in words and "give the time as `jump_t`" not in words
    smooth = [solved(friction(lambda v, e=e: torch.tanh(v / e)), Y0, 10.0) for e in (1e-2, 1e-3)]  # type: ignore[misc]
    assert all(solution.status is Status.SUCCESS for solution in smooth)
    assert torch.allclose(smooth[0].ys[-1], smooth[1].ys[-1], atol=0.05)


def test_a_summary_says_what_to_do_about_a_jump_in_y() -> None:
    loose = solved(friction(torch.sign), Y0, 10.0, method="dopri5", rtol=1e-3, atol=1e-3)
    words = " ".join(loose.summary().split())
    assert loose.status.ok and "steps were rejected" in words
    assert "in t: give the times as `jump_t`; in y, as sign and round do: make it continuous" in words


def test_where_none_is_seen_many_rejected_steps_are_reason_for_a_guess() -> None:
    pulses: F = lambda t, y: torch.where(torch.sin(40 * t) > 0, 1.0, -1.0) + 0 * y  # noqa: E731
    stuck = solved(pulses, torch.ones(1, dtype=D), 5.0, method="dopri5", max_steps=300)
    advice = stuck.message.split("What to try: ")[1]
    assert advice.startswith("f may jump in y (sign, round") and "in t: give `jump_t`" in advice
    assert "loosen" not in advice and "'auto' or 'bdf'" in advice
    told = torch.arange(1, 64, dtype=D) * torch.pi / 40
    assert solved(pulses, torch.ones(1, dtype=D), 5.0, method="dopri5", max_steps=300, jump_t=told).status.ok


VAN_DER_POL: F = lambda t, y: torch.stack([y[1], 1e4 * (1 - y[0] ** 2) * y[1] - y[0]])  # noqa: E731
EXCHANGE: F = lambda t, y: torch.stack([1e8 * (y[1] - y[0]), 1e8 * (y[0] - y[1]) - y[1]])  # noqa: E731
HEAT: F = lambda t, y: 2e5 * (torch.roll(y, 1) + torch.roll(y, -1) - 2 * y) + torch.sin(t)  # noqa: E731


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize(("f", "n"), [(VAN_DER_POL, 2), (EXCHANGE, 2), (HEAT, 16)], ids=["pol", "exchange", "heat"])
@pytest.mark.parametrize("method", ["auto", "dopri5"])
def test_what_is_stiff_is_not_called_a_jump(f: F, n: int, dtype: torch.dtype, method: str) -> None:
    stiff = solved(f, torch.linspace(2, 0, n, dtype=dtype), 1e4, method=method, max_steps=60)
    assert stiff.status is Status.MAX_STEPS and "jump" not in stiff.message
    assert ("use 'auto' or 'bdf' if the problem is stiff" in stiff.message) == (method == "dopri5")


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("h", [1e-6, 1e-4, 1e-3])
def test_a_jump_is_told_from_a_front_and_from_a_root(dtype: torch.dtype, h: float) -> None:
    y = torch.tensor([1.0, 1.7e-4], dtype=dtype)

    def near(g: Callable[[Tensor], Tensor]) -> Any:
        return jump_near(lambda t, y: torch.stack([0 * y[0], -1.0 - g(y[1])]), 0.0, y, h)

    found = near(torch.sign)
    assert found is not None and found.component == 1 and found.size == pytest.approx(2.0) and found.apart < 1e-7
    assert near(lambda v: torch.tanh(v / 1e-5)) is None and near(lambda v: v.abs() ** 0.5) is None
    assert near(lambda v: v.abs()) is None and near(lambda v: 1e3 * v) is None


ENDS: dict[str, F] = {
    "root": lambda t, y: -torch.sqrt(y),
    "power": lambda t, y: -0.7 * y**0.5,
    "two tanks": lambda t, y: torch.stack([-torch.sqrt(y[0]), torch.sqrt(y[0]) - torch.sqrt(y[1]) - 1]),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["auto", "dopri5", "tsit5", "bdf"])
def test_a_solution_that_leaves_where_f_has_values_is_no_jump(method: str, dtype: torch.dtype, name: str) -> None:
    """A tank that is empty: explicit stages meet nan, and steps shrink."""
    y0 = torch.tensor([0.5, 0.4], dtype=dtype) if name == "two tanks" else torch.tensor([0.5], dtype=dtype)
    stuck = solved(ENDS[name], y0, 3.0, method=method, max_steps=5_000)
    said, advice = stuck.message.split("What to try: ")
    assert not stuck.status.ok and "f is nan or infinite" in said
    assert advice.startswith("look at f near there (a root") and "jump" not in advice and "'auto'" not in advice
    kept = solved(lambda t, y: ENDS[name](t, y.clamp(min=1e-6)), y0, 3.0, method=method)
    assert kept.status.ok
