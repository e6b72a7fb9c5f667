"""The same calls to torchdiffeq and to proxode."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor
from torch.testing import assert_close

import proxode

FIXED = ("euler", "midpoint", "heun2", "rk4")
ADAPTIVE = {"adaptive_heun": 1e-5, "bosh3": 1e-7, "dopri5": 1e-7, "dopri8": 1e-7}  # with the rtol of their tests

fixed = pytest.mark.parametrize("method", FIXED)
adaptive = pytest.mark.parametrize(("method", "rtol"), ADAPTIVE.items())
ROUNDING: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}


def times(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def pendulum(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], -torch.sin(y[0]) - 0.1 * y[1] + 0.3 * torch.cos(2 * t)])


def closed(t: Tensor, y: Tensor) -> Tensor:
    """Nonlinear, not autonomous, and solved by `exact`."""
    return torch.stack([y[0] * torch.cos(t), -y[1] * y[1]])


def exact(t: Tensor) -> Tensor:
    return torch.stack([torch.exp(torch.sin(t)), 1 / (1 + t)], -1)


def mixed(t: Tensor, y: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    a, b, c = y
    return torch.sin(t) - a, c.sum(-1) * a - b, -c * torch.cos(b).unsqueeze(-1)


def mixed_start() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(0.5 * torch.randn(shape, dtype=torch.float64) for shape in ((), (3,), (3, 2)))


def both(func: Any, y0: Any, t: Tensor, **kwargs: Any) -> tuple[Any, Any]:
    return proxode.odeint(func, y0, t, **kwargs), torchdiffeq.odeint(func, y0, t, **kwargs)


Y0 = torch.tensor([1.2, -0.4], dtype=torch.float64)
UP, DOWN = times(0.0, 0.3, 0.5, 1.1, 2.0), times(2.0, 1.1, 0.5, 0.3, 0.0)


@fixed
@pytest.mark.parametrize("t", [UP, DOWN], ids=["increasing", "decreasing"])
def test_fixed_steps_on_the_grid_of_t_agree_to_rounding(method: str, t: Tensor) -> None:
    ours, theirs = both(pendulum, Y0, t, method=method)
    assert_close(ours, theirs, **ROUNDING)


@fixed
@pytest.mark.parametrize("t", [UP, DOWN], ids=["increasing", "decreasing"])
@pytest.mark.parametrize("interp", ["linear", "cubic"])
@pytest.mark.parametrize("step_size", [0.25, 0.3, 0.7, 5.0])
def test_fixed_steps_of_a_size_agree_to_rounding_on_and_off_the_grid(
    method: str, t: Tensor, interp: str, step_size: float
) -> None:
    ours, theirs = both(pendulum, Y0, t, method=method, options={"step_size": step_size, "interp": interp})
    assert_close(ours, theirs, **ROUNDING)


@fixed
@pytest.mark.parametrize("t", [UP, DOWN], ids=["increasing", "decreasing"])
def test_a_grid_constructor_is_called_in_the_same_way(method: str, t: Tensor) -> None:
    calls = []

    def grid(func: Any, y0: Tensor, t: Tensor) -> Tensor:
        calls.append(t)
        return t[0] + (t[-1] - t[0]) * torch.linspace(0, 1, 8, dtype=t.dtype) ** 2

    ours, theirs = both(pendulum, Y0, t, method=method, options={"grid_constructor": grid, "interp": "cubic"})
    assert_close(ours, theirs, **ROUNDING)
    assert_close(calls[0], t)
    assert_close(calls[1], t)


@fixed
def test_float32_agrees_to_its_own_rounding(method: str) -> None:
    t, options = UP.float(), {"step_size": 0.1, "interp": "linear"}
    ours, theirs = both(pendulum, Y0.float(), t, method=method, options=options)
    assert ours.dtype == theirs.dtype == torch.float32
    assert_close(ours, theirs, rtol=2e-6, atol=2e-6)


@fixed
def test_tuples_of_mixed_shapes_agree_to_rounding(method: str) -> None:
    ours, theirs = both(mixed, mixed_start(), UP, method=method, options={"step_size": 0.25, "interp": "cubic"})
    assert isinstance(ours, tuple)
    assert [y.shape for y in ours] == [(5,), (5, 3), (5, 3, 2)]
    assert_close(ours, theirs, **ROUNDING)


@fixed
@pytest.mark.parametrize("t", [times(0.0, 1.0), times(1.0, 0.0)], ids=["increasing", "decreasing"])
def test_perturb_looks_at_a_jump_from_inside_the_step_as_theirs_does(method: str, t: Tensor) -> None:
    def jump(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t < 0.5, y, torch.where(t > 0.5, -2 * y, 100 * y))

    options = {"step_size": 0.25, "perturb": True}
    ours, theirs = both(jump, Y0, t, method=method, options=options)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    plain = proxode.odeint(jump, Y0, t, method=method, options={"step_size": 0.25})
    assert float((plain - ours).abs().max()) > 1.0


@adaptive
@pytest.mark.parametrize("backwards", [False, True])
def test_adaptive_methods_keep_the_tolerance_at_every_output(method: str, rtol: float, backwards: bool) -> None:
    t = torch.linspace(0, 3, 17, dtype=torch.float64)
    t = t.flip(0) if backwards else t
    ours, theirs = both(closed, exact(t)[0], t, method=method, rtol=rtol, atol=rtol)
    assert_close(ours, exact(t), rtol=50 * rtol, atol=50 * rtol)
    assert_close(ours[-1], theirs[-1], rtol=1e3 * rtol, atol=1e3 * rtol)  # theirs interpolates there, less exactly


@adaptive
def test_adaptive_methods_work_on_tuples_in_float32(method: str, rtol: float) -> None:
    y0 = tuple(y.float() for y in mixed_start())
    ours, theirs = both(mixed, y0, times(0.0, 1.0, dtype=torch.float32), method=method, rtol=1e-5, atol=1e-5)
    assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


TOLERANCES = {
    "float": (1e-6, 1e-8),
    "0-dim tensors": (torch.tensor(1e-6), torch.tensor(1e-8, dtype=torch.float64)),
    "one number for each part": ((1e-6, 1e-5, 1e-7), (1e-8, 1e-8, 1e-8)),
    "one tensor for each part": ((torch.tensor(1e-6),) * 3, (torch.full((1,), 1e-8),) * 3),
    "a vector of one number for each part": (torch.tensor([1e-6, 1e-5, 1e-7]), 1e-8),
}


@pytest.mark.parametrize(("rtol", "atol"), TOLERANCES.values(), ids=TOLERANCES)
def test_tolerances_come_in_every_form_that_theirs_do(rtol: Any, atol: Any) -> None:
    ours, theirs = both(mixed, mixed_start(), times(0.0, 1.0), method="dopri5", rtol=rtol, atol=atol)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_tolerance_for_each_component_is_kept_by_each() -> None:
    t, rtol = times(0.0, 3.0), torch.tensor([1e-10, 1e-3], dtype=torch.float64)
    ours, theirs = both(closed, exact(t)[0], t, rtol=rtol, atol=1e-3 * rtol)
    assert float((ours[-1, 0] - exact(t)[-1, 0]).abs()) < 1e-8
    assert_close(ours[-1], theirs[-1], rtol=1e-2, atol=0.0)


class Watched:
    """`closed`, with the attempts (t0, dt) that each solver announces."""

    def __init__(self, func: Any = closed) -> None:
        self.func = func
        self.tried: list[tuple[float, float]] = []
        self.accepted: list[tuple[float, float]] = []

    def __call__(self, t: Tensor, y: Tensor) -> Tensor:
        return self.func(t, y)

    def callback_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        self.tried.append((float(t0), float(dt)))

    def callback_accept_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        self.accepted.append((float(t0), float(dt)))


def steps_of_both(options: dict[str, Any], func: Any = closed, rtol: float = 1e-6) -> list[Watched]:
    t, watched = times(0.0, 3.0), [Watched(func), Watched(func)]
    for odeint, f in zip((proxode.odeint, torchdiffeq.odeint), watched, strict=True):
        odeint(f, exact(t)[0], t, method="dopri5", options=options, rtol=rtol, atol=rtol)
    return watched


def test_first_step_safety_ifactor_and_dfactor_mean_what_theirs_mean() -> None:
    for f in steps_of_both({"first_step": 2.5, "dfactor": 0.45, "ifactor": 1.25, "safety": 0.8}):
        sizes = [dt for _, dt in f.tried]
        assert sizes[0] == 2.5
        assert sizes[1] == pytest.approx(0.45 * 2.5)  # so far off that only dfactor holds it
        growth = [after / before for before, after in pairwise(sizes)]
        assert max(growth) <= 1.25 * (1 + 1e-9)
        assert len(sizes) > 5


def test_safety_changes_the_steps() -> None:
    careful, bold = (len(steps_of_both({"safety": s})[0].tried) for s in (0.4, 0.9))
    assert careful > 1.5 * bold


def test_max_step_and_min_step_bound_the_steps() -> None:
    for f in steps_of_both({"max_step": 0.1}):
        assert max(dt for _, dt in f.tried) <= 0.1 * (1 + 1e-9)
    for f in steps_of_both({"min_step": 0.4, "max_num_steps": 100}, rtol=1e-12):
        assert min(dt for t0, dt in f.tried if t0 + dt < 3.0 - 1e-9) >= 0.4 * (1 - 1e-9)
        assert len(f.accepted) == len(f.tried)  # a step of the least size is accepted whatever its error


@pytest.mark.parametrize("name", ["step_t", "jump_t"])
def test_steps_end_at_step_t_and_jump_t(name: str) -> None:
    for f in steps_of_both({name: times(0.7, 1.9)}):
        ends = {round(t0 + dt, 12) for t0, dt in f.accepted}
        assert {0.7, 1.9} <= ends


def test_jump_t_spares_the_search_for_a_jump() -> None:
    def jump(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t < 1.0, y, -y)

    t = times(0.0, 1.5, 3.0)
    rejected = []
    for options in ({"jump_t": times(1.0)}, None):
        with proxode.record() as stats:
            y = proxode.odeint(jump, Y0, t, method="dopri5", options=options)
        assert_close(y[-1], Y0 * math.exp(-1.0), rtol=1e-5, atol=1e-6)
        rejected.append(stats.n_rejected)
    assert rejected[0] <= 1 and rejected[1] > rejected[0]
    exactly = proxode.odeint(jump, Y0, t, options={"jump_t": times(1.0)})
    assert_close(exactly[-1], Y0 * math.exp(-1.0), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("func", "y0"), [(closed, exact(UP)[0]), (mixed, mixed_start())], ids=["tensor", "tuple"])
def test_the_norm_receives_the_users_structure(func: Any, y0: Any) -> None:
    seen = []

    def norm(x: Any) -> Tensor:
        seen.append(x)
        return max((part.abs().max() for part in (x if isinstance(x, tuple) else (x,))), key=float)

    ours, theirs = both(func, y0, UP, method="dopri5", options={"norm": norm})
    assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    shapes = [tuple(p.shape for p in (x if isinstance(x, tuple) else (x,))) for x in seen]
    assert {type(x) for x in seen} == {type(y0)}
    assert len(set(shapes)) == 1


def test_the_dtype_option_is_accepted() -> None:
    ours, theirs = both(closed, exact(UP)[0].float(), UP, method="dopri5", options={"dtype": torch.float64}, rtol=1e-5)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
