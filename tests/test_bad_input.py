"""Bad input: each a clear error, of the right kind, that names the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import proxode
import proxode.nn

T = torch.linspace(0, 1, 3, dtype=torch.float64)
Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)
PAIR = (Y0, Y0[0])
METHODS = pytest.mark.parametrize("method", ["rk4", "dopri5", "bdf2"])
nan, inf = math.nan, math.inf


def f(t: Tensor, y: Any) -> Any:
    return tuple(-part for part in y) if isinstance(y, tuple) else -y


def table(**cases: Any) -> Any:
    """Cases by a sentence with underscores."""
    return pytest.mark.parametrize("case", cases.values(), ids=[name.replace("_", " ") for name in cases])


@METHODS
@table(
    integers=(torch.tensor([1, 2]), TypeError, r"`y0` must have a floating dtype"),
    booleans=(torch.tensor([True]), TypeError, r"`y0` must have a floating dtype"),
    a_list=([1.0], TypeError, r"`y0` must be a torch.Tensor or a tuple"),
    a_list_of_tensors=([Y0], TypeError, r"`y0` must be a torch.Tensor or a tuple"),
    a_number=(1.0, TypeError, r"`y0` must be a torch.Tensor"),
    a_numpy_array=(np.ones(2), TypeError, r"`y0` must be a torch.Tensor"),
    nan=(torch.tensor([1.0, nan]), ValueError, r"`y0` holds nan"),
    infinity=(torch.tensor([1.0, inf]), ValueError, r"`y0` holds nan or inf"),
    no_elements=(torch.empty(0), ValueError, r"`y0` has no elements"),
    an_empty_tuple=((), ValueError, r"`y0` is an empty tuple"),
    a_number_in_a_tuple=((Y0, 1.0), TypeError, r"`y0\[1\]` must be a torch.Tensor"),
    integers_in_a_tuple=((Y0, torch.tensor(1)), TypeError, r"`y0\[1\]` must have a floating"),
    nan_in_a_tuple=((Y0, torch.tensor(nan)), ValueError, r"`y0\[1\]` holds nan"),
    parts_on_two_devices=((Y0, torch.empty(2, device="meta")), ValueError, r"`y0\[1\]` is on meta"),
)
def test_a_bad_y0_is_named(method: str, case: Any) -> None:
    y0, kind, message = case
    with pytest.raises(kind, match=message):
        proxode.odeint(f, y0, T, method=method)


@METHODS
@table(
    integers=(torch.tensor([0, 1]), TypeError, r"`t` must have a floating dtype"),
    a_list=([0.0, 1.0], TypeError, r"`t` must be a torch.Tensor"),
    a_number=(1.0, TypeError, r"`t` must be a torch.Tensor"),
    two_dimensions=(T[None], ValueError, r"`t` must be one-dimensional"),
    no_dimension=(T[0], ValueError, r"`t` must be one-dimensional"),
    empty=(T[:0], ValueError, r"`t` must be one-dimensional and not empty"),
    nan=(torch.tensor([0.0, nan]), ValueError, r"`t` holds nan"),
    infinite=(torch.tensor([0.0, inf]), ValueError, r"`t` holds nan or inf"),
    unsorted=(torch.tensor([0.0, 2.0, 1.0]), ValueError, r"`t` must be strictly"),
    constant=(torch.tensor([1.0, 1.0]), ValueError, r"`t` must be strictly"),
    repeated=(torch.tensor([0.0, 1.0, 1.0]), ValueError, r"`t` must be strictly"),
)
def test_bad_times_are_named(method: str, case: Any) -> None:
    t, kind, message = case
    with pytest.raises(kind, match=message):
        proxode.odeint(f, Y0, t, method=method)


@METHODS
@pytest.mark.parametrize("name", ["rtol", "atol"])
@table(
    negative=(Y0, -1e-3, ValueError),
    nan=(Y0, nan, ValueError),
    infinite=(Y0, inf, ValueError),
    a_string=(Y0, "1e-3", TypeError),
    none=(Y0, None, TypeError),
    a_bool=(Y0, True, TypeError),
    with_gradient=(Y0, torch.tensor(1e-3, requires_grad=True), ValueError),
    a_negative_tensor=(Y0, torch.tensor([-1.0, 1.0]), ValueError),
    a_nan_tensor=(Y0, torch.tensor([nan, 1.0]), ValueError),
    a_tuple_for_a_tensor=(Y0, (1e-3, 1e-3), ValueError),
    too_long_a_tuple=(PAIR, (1e-3, 1e-3, 1e-3), ValueError),
    a_string_in_a_tuple=(PAIR, (1e-3, "x"), TypeError),
    a_wrong_shape=(Y0, torch.full((3,), 1e-3), ValueError),
    a_wrong_shape_for_a_tuple=(PAIR, torch.full((7,), 1e-3), ValueError),
    a_wrong_shape_in_a_tuple=(PAIR, (torch.full((7,), 1e-3), 1e-3), ValueError),
)
def test_a_bad_tolerance_is_named(method: str, name: str, case: Any) -> None:
    y0, tol, kind = case
    with pytest.raises(kind, match=rf"`{name}(\[\d\])?`"):
        proxode.odeint(f, y0, T, method=method, **{name: tol})


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@pytest.mark.parametrize(
    ("size", "kind"),
    [(0, ValueError), (0.0, ValueError), (-0.1, ValueError), (nan, ValueError), (inf, ValueError), ("0.1", TypeError),
     (True, TypeError), (Y0, TypeError)],
)  # fmt: skip
def test_a_bad_step_size_is_named(method: str, size: Any, kind: Any) -> None:
    with pytest.raises(kind, match="`step_size` must be"):
        proxode.odeint(f, Y0, T, method=method, options={"step_size": size})
    with pytest.raises(kind, match="`step_size` must be"):
        proxode.solve(f, Y0, 0.0, 1.0, method=method, step_size=size)


@pytest.mark.parametrize(("size", "count"), [(1e-9, "1,000,000,000"), (1e-320, "inf")])
def test_a_step_size_whose_grid_would_fill_the_memory_is_refused(size: float, count: str) -> None:
    message = f"`step_size` {size:g} makes {count} steps of a time of 1, more than 10,000,000: give a larger one"
    with pytest.raises(ValueError, match=message):
        proxode.odeint(f, Y0, T.flip(0), method="bdf2", options={"step_size": size})
    with pytest.raises(ValueError, match=message):
        proxode.solve(f, Y0, 0.0, 1.0, method="rk4", step_size=size)
    with pytest.raises(ValueError, match=message):
        proxode.Stepper(f, Y0, 0.0, t1=1.0, method="rk4", step_size=size)
    with pytest.raises(ValueError, match=message):
        proxode.nn.NeuralODE(f, 1.0, method="rk4", step_size=size)(Y0)


def test_a_step_size_below_the_rounding_of_the_time_is_named() -> None:
    late = {"method": "rk4", "options": {"step_size": 1e-8}}
    with pytest.raises(ValueError, match=r"`step_size` 1e-08 is less than the rounding of the times there, 1\.2e"):
        proxode.odeint(f, Y0, 1e9 + 1e-3 * T, **late)
    with pytest.raises(ValueError, match="`step_size` 1e-08 is less than the rounding"):
        proxode.odeint_event(f, Y0, torch.tensor(1e9, dtype=T.dtype), event_fn=lambda t, y: y[0] - 0.5, **late)


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
def test_a_step_size_beyond_the_interval_is_one_step(method: str) -> None:
    with proxode.record() as stats:
        y = proxode.odeint(f, Y0, T[[0, 2]], method=method, options={"step_size": 10})
    assert stats.n_steps == 1
    along = {"grid_constructor": lambda f, y0, t: t}
    assert_close(y, proxode.odeint(f, Y0, T[[0, 2]], method=method, options=along))


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@table(
    a_list=([0.0, 1.0], TypeError),
    none=(None, TypeError),
    integers=(torch.tensor([0, 1]), TypeError),
    one_time=(T[:1], TypeError),
    two_dimensions=(T[None], TypeError),
    another_start=(torch.tensor([0.5, 1.0]), ValueError),
    another_end=(torch.tensor([0.0, 0.5]), ValueError),
    not_monotone=(torch.tensor([0.0, 0.7, 0.3, 1.0]), ValueError),
    the_wrong_direction=(T.flip(0), ValueError),
    nan=(torch.tensor([0.0, nan, 1.0]), ValueError),
)
def test_a_bad_grid_is_named(method: str, case: Any) -> None:
    grid, kind = case
    with pytest.raises(kind, match="`grid_constructor` must return"):
        proxode.odeint(f, Y0, T, method=method, options={"grid_constructor": lambda f, y, t: grid})


@table(
    a_grid_that_is_no_function=("rk4", {"grid_constructor": 3}, TypeError, "grid_constructor"),
    a_negative_lr=("bdf2", {"inner": "gd", "inner_lr": -1.0}, ValueError, "`inner_lr` must be positive"),
    a_text_as_lr=("bdf2", {"inner": "gd", "inner_lr": "x"}, TypeError, "`inner_lr` must be a number"),
    an_lr_for_newton=("bdf2", {"inner": "newton", "inner_lr": 0.1}, ValueError, "`inner_lr`"),
    an_eta_for_newton=("bdf2", {"inner": "newton", "inner_eta": 0.1}, ValueError, "`inner_eta`"),
    lr_and_eta=("bdf2", {"inner": "gd", "inner_lr": 1.0, "inner_eta": 1.0}, ValueError, "`inner_lr` and `inner_eta`"),
    no_inner_tol=("bdf2", {"inner_tol": 0}, ValueError, "`inner_tol` must be positive"),
    a_negative_inner_tol=("bdf2", {"inner_tol": -1e-6}, ValueError, "`inner_tol` must be positive"),
    no_iterations=("bdf2", {"inner_max_iters": 0}, ValueError, "`inner_max_iters` must be a positive integer"),
    half_an_iteration=("bdf2", {"inner_max_iters": 1.5}, (TypeError, ValueError), "`inner_max_iters`"),
    a_number_as_inner=("bdf2", {"inner": 3}, TypeError, "`inner` must be a name or an InnerSolver"),
    a_number_as_gradient=("bdf2", {"gradient": 3}, TypeError, "`gradient` must be a name"),
    no_first_step=("dopri5", {"first_step": 0}, ValueError, "`first_step` must be positive"),
    a_nan_first_step=("dopri5", {"first_step": nan}, ValueError, "`first_step`"),
    a_text_as_first_step=("dopri5", {"first_step": "x"}, (TypeError, ValueError), "`first_step`"),
    min_above_max=("dopri5", {"min_step": 1.0, "max_step": 0.1}, ValueError, "`min_step`"),
    a_negative_min=("dopri5", {"min_step": -1.0}, ValueError, "`min_step`"),
    no_max_step=("dopri5", {"max_step": 0.0}, ValueError, "`max_step`"),
    no_safety=("dopri5", {"safety": 0.0}, ValueError, "`safety`"),
    no_growth=("dopri5", {"ifactor": 0.5}, ValueError, "`ifactor`"),
    no_shrinking=("dopri5", {"dfactor": 1.5}, ValueError, "`dfactor`"),
    a_list_as_jump_t=("dopri5", {"jump_t": [0.5]}, TypeError, "`jump_t`"),
    a_gradient_of_step_t=("dopri5", {"step_t": T.clone().requires_grad_()}, ValueError, "`step_t`"),
    nan_as_step_t=("dopri5", {"step_t": torch.tensor([nan])}, ValueError, "`step_t`"),
    step_and_jump=("dopri5", {"step_t": T[1:2], "jump_t": T[1:2]}, ValueError, "`step_t` and `jump_t`"),
    a_norm_that_is_no_function=("dopri5", {"norm": 2}, TypeError, "`norm`"),
    a_norm_of_each_component=("dopri5", {"norm": torch.abs}, TypeError, r"`norm` must return one number.*shape \(2,\)"),
    a_norm_without_a_value=("bdf2", {"norm": lambda y: None}, TypeError, "`norm` must return one number.*NoneType"),
    zero_steps=("dopri5", {"max_num_steps": 0}, ValueError, "`max_num_steps` must be a positive integer"),
    negative_steps=("rk4", {"max_num_steps": -5}, ValueError, "`max_num_steps` must be a positive integer"),
    half_a_step=("bdf2", {"max_num_steps": 1.5}, (TypeError, ValueError), "`max_num_steps`"),
    a_text_as_steps=("dopri5", {"max_num_steps": "9"}, (TypeError, ValueError), "`max_num_steps`"),
    options_that_are_no_dict=("rk4", [("step_size", 0.1)], TypeError, "`options` must be a dict"),
    a_number_as_method=(3, {}, TypeError, "`method` must be a name"),
)
def test_a_bad_option_is_named(case: Any) -> None:
    method, options, kind, message = case
    with pytest.raises(kind, match=message):
        proxode.odeint(f, Y0, T, method=method, options=options)


@METHODS
@table(
    another_shape=(Y0, lambda t, y: y[:1], ValueError, r"func returned shape \(1,\)"),
    times_as_y0=(torch.linspace(0, 1, 11), lambda t, y: y[:2], ValueError, r"odeint\(func, y0, t\)"),
    a_scalar=(Y0, lambda t, y: y.sum(), ValueError, r"func returned shape \(\)"),
    a_broadcastable_shape=(Y0, lambda t, y: y[None], ValueError, r"func returned shape \(1, 2\)"),
    a_tuple_for_a_tensor=(Y0, lambda t, y: (y,), TypeError, "func must return a tensor.*tuple"),
    a_float=(Y0, lambda t, y: 1.0, TypeError, "func must return a tensor.*float"),
    none=(Y0, lambda t, y: None, TypeError, "func must return a tensor.*NoneType"),
    integers=(Y0, lambda t, y: y.long(), TypeError, "func returned torch.int64"),
    complex_numbers=(Y0, lambda t, y: y * 1j, TypeError, "func returned torch.complex128"),
    a_tensor_for_a_tuple=(PAIR, lambda t, y: y[0], TypeError, "func must return a tuple of 2"),
    too_few_parts=(PAIR, lambda t, y: y[:1], TypeError, "func must return a tuple of 2.*1 parts"),
    too_many_parts=(PAIR, lambda t, y: (*y, y[0]), TypeError, "func must return a tuple of 2.*3 parts"),
    a_wrong_shape_in_a_part=(PAIR, lambda t, y: (y[0], y[0]), ValueError, "in part 1"),
    none_in_a_part=(PAIR, lambda t, y: (y[0], None), TypeError, "in part 1.*NoneType"),
)
def test_what_f_may_not_return_is_named(method: str, case: Any) -> None:
    y0, func, kind, message = case
    with pytest.raises(kind, match=message):
        proxode.odeint(func, y0, T, method=method)


def test_func_must_be_callable() -> None:
    with pytest.raises(TypeError, match="`func` must be callable"):
        proxode.odeint(Y0, Y0, T)


class Decay(torch.nn.Module):
    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return -y


@pytest.mark.parametrize(
    "call",
    [
        lambda: proxode.odeint(Decay, Y0, T),
        lambda: proxode.solve(Decay, Y0, 0.0, 1.0, per_sample=True),
        lambda: proxode.odeint_event(Decay(), Y0, T[0], event_fn=Decay),
        lambda: proxode.Event(Decay),
    ],
)
def test_a_class_in_the_place_of_its_module_is_told(call: Any) -> None:
    with pytest.raises(TypeError, match=r"`\w+` is the class Decay, not a module: write Decay\(...\)"):
        call()


@METHODS
def test_float64_from_f_is_cast_to_a_float32_state(method: str) -> None:
    y = proxode.odeint(lambda t, y: -y.double(), Y0.float(), T, method=method, rtol=1e-4)
    assert y.dtype == torch.float32
    assert_close(y, proxode.odeint(f, Y0.float(), T, method=method, rtol=1e-4), rtol=1e-5, atol=1e-5)
