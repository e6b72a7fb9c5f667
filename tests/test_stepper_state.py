"""What a stepper holds: saved states that go on exactly, restarts, and changes that are noticed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from stepper_cases import Y0, assert_same, every_way, rest, settings, through_a_file, van_der_pol
from torch import Tensor

import proxode
from proxode import Stepper
from proxode.inner import Anderson
from proxode.methods import METHODS


def same_bits(a: Any, b: Any) -> bool:
    """Are two snapshots the same, to the last bit?"""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return bool(a == b)


def diffusion(t: Tensor, y: Tensor) -> Tensor:
    """Stiff and not linear, of any size: no dense Jacobian for two hundred of them."""
    left, right = torch.roll(y, 1), torch.roll(y, -1)
    return 400.0 * (left - 2 * y + right) + torch.sin(y) + torch.cos(t)


# Saved states


@torch.no_grad()
@every_way
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_saved_state_goes_on_to_the_last_bit(method: str, step_size: float | None, after: int) -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, **settings(method, step_size))
    rest(stepper, after)
    state = through_a_file(stepper.state)
    assert same_bits(state, stepper.state), "saving is pure, and so is a file"
    one, two = (Stepper.resume(van_der_pol, state) for _ in range(2))
    assert one.t == stepper.t and torch.equal(one.y, stepper.y) and one.h == stepper.h
    ahead = rest(one)  # first: what it does must not reach the others
    assert_same(rest(stepper), ahead)
    assert_same(rest(two), ahead)
    assert stepper.stats == one.stats == two.stats


@torch.no_grad()
@pytest.mark.parametrize("inner", ["anderson", "newton", "newton_krylov", "fr", "lbfgs", "restart"])
@pytest.mark.parametrize(("method", "step_size"), [("bdf", None), ("bdf2", 0.02), ("auto", None)])
def test_what_inner_solvers_have_learned_is_saved_too(inner: str, method: str, step_size: float | None) -> None:
    y0 = torch.linspace(0, 6.283, 20 if inner == "newton" else 200, dtype=torch.float64).sin()
    stepper = Stepper(diffusion, y0, 0.0, t1=10.0, method=method, step_size=step_size, inner=inner)
    rest(stepper, 40 if step_size is None and inner in ("anderson", "newton") else 6)
    state = through_a_file(stepper.state)
    if inner == "anderson":
        assert state["recycled"]["anderson"]["secants"]["pairs"] > 0
    resumed = Stepper.resume(diffusion, state)
    assert_same(rest(stepper, 12), rest(resumed, 12))
    assert stepper.stats == resumed.stats


@torch.no_grad()
def test_the_state_is_needed_in_full() -> None:
    """Without what Anderson recycles the next steps are others: the test above would see it."""
    y0 = torch.linspace(0, 6.283, 200, dtype=torch.float64).sin()
    stepper = Stepper(diffusion, y0, 0.0, t1=10.0, method="bdf", inner="anderson")
    rest(stepper, 40)
    state = {**stepper.state, "recycled": {}}
    resumed = Stepper.resume(diffusion, state)
    rest(stepper, 12), rest(resumed, 12)
    assert stepper.stats != resumed.stats


@torch.no_grad()
def test_another_room_for_pairs_begins_with_none() -> None:
    """The buffers of before would be full when there should be room for more."""
    y0 = torch.linspace(0, 6.283, 200, dtype=torch.float64).sin()
    stepper = Stepper(diffusion, y0, 0.0, t1=10.0, method="bdf", inner=Anderson(memory=2, recycle=3))
    rest(stepper, 20)
    resumed = Stepper.resume(diffusion, through_a_file(stepper.state), inner=Anderson(memory=2, recycle=10))
    rest(resumed, 40)
    assert resumed.state["recycled"]["anderson"]["secants"]["s"].shape == (12, 200)


def test_a_state_holds_no_graph_and_no_class() -> None:
    y0 = Y0.clone().requires_grad_()
    stepper = Stepper(van_der_pol, y0, 0.0, t1=0.3, method="auto")
    rest(stepper, 3)

    def leaves(x: Any) -> Any:
        if isinstance(x, dict):
            assert type(x) is dict
            x = tuple(x.values())
        if isinstance(x, tuple | list):
            assert type(x) in (tuple, list)
            for part in x:
                yield from leaves(part)
        else:
            yield x

    for leaf in leaves(stepper.state):
        assert leaf is None or type(leaf) in (bool, int, float, str, Tensor)
        assert not (isinstance(leaf, Tensor) and leaf.requires_grad)
    assert stepper.y.requires_grad


@pytest.mark.parametrize("name", ["os:system", "proxode.solution:Stats", "proxode.nothing:Here", "proxode.api:odeint"])
def test_a_state_makes_nothing_but_named_tuples_of_the_package(name: str) -> None:
    state = Stepper(van_der_pol, Y0, 0.0, t1=0.3).state
    state["standing"]["history"] = {"named tuple": name}
    with pytest.raises(TypeError, match="does not know"):
        Stepper.resume(van_der_pol, state)


@torch.no_grad()
def test_settings_are_saved_and_objects_asked_for_again() -> None:
    method = METHODS["bdf3"]
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method=method, norm=lambda x: x.abs().max(), max_step=0.01)
    rest(stepper, 5)
    state = through_a_file(stepper.state)
    with pytest.raises(TypeError, match="`method`, `norm` could not be saved"):
        Stepper.resume(van_der_pol, state)
    with pytest.raises(ValueError, match="saved by method 'bdf3'"):
        Stepper.resume(van_der_pol, state, method="bdf4", norm=None)
    with pytest.raises(TypeError, match="unknown options: 't0'"):
        Stepper.resume(van_der_pol, state, method=method, norm=None, t0=1.0)
    with pytest.raises(ValueError, match="not the state of a Stepper"):
        Stepper.resume(van_der_pol, {})
    resumed = Stepper.resume(van_der_pol, state, method=method, norm=lambda x: x.abs().max())
    assert_same(rest(stepper), rest(resumed))


@torch.no_grad()
def test_a_solve_that_is_done_goes_on_to_a_later_time() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
    rest(stepper)
    later = Stepper.resume(van_der_pol, stepper.state, t1=1.0)
    assert rest(later)[-1][0] == 1.0
    assert torch.allclose(later.y, proxode.solve(van_der_pol, Y0, 0.0, 1.0, rtol=1e-8, atol=1e-10).ys[-1], rtol=1e-3)
    fixed = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf2", step_size=0.11)
    fixed.step()
    with pytest.raises(ValueError, match="end elsewhere"):
        rest(fixed, 1)
        Stepper.resume(van_der_pol, fixed.state, t1=0.31)


# Restarts and changes


@torch.no_grad()
@every_way
def test_a_restart_is_a_new_beginning(method: str, step_size: float | None) -> None:
    kwargs = settings(method, step_size)
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.5, **kwargs)
    rest(stepper, 3)
    y, before = torch.tensor([1.5, -0.1], dtype=torch.float64), stepper.stats.nfe_forward
    stepper.restart(y, 0.3)
    fresh = Stepper(van_der_pol, y, 0.3, t1=0.5, **kwargs)
    assert stepper.t == 0.3 and torch.equal(stepper.y, y)
    assert_same(rest(stepper), rest(fresh))
    assert stepper.stats.nfe_forward == before + fresh.stats.nfe_forward


@torch.no_grad()
def test_a_restart_that_raises_changes_nothing() -> None:
    angry = [False]

    def f(t: Tensor, y: Tensor) -> Tensor:
        if angry[0]:
            raise KeyError("mine")
        return -y

    stepper = Stepper(f, Y0, 0.0, t1=1.0, method="bdf")
    rest(stepper, 3)
    state = stepper.state
    angry[0] = True
    with pytest.raises(KeyError, match="mine"):
        stepper.restart()
    with pytest.raises(ValueError, match=r"\(2,\) of torch.float64"):
        stepper.restart(torch.zeros(3))
    with pytest.raises(ValueError, match="nan"):
        stepper.restart(Y0 * math.nan)
    assert stepper.state["standing"]["t"] == state["standing"]["t"]
    with pytest.raises(KeyError, match="mine"):
        stepper.step()
    angry[0] = False
    assert rest(stepper)[-1][0] == 1.0


@torch.no_grad()
def test_a_state_changed_in_place_is_noticed() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
    stepper.step()
    stepper.y[0] += 1.0
    with pytest.raises(RuntimeError, match="restart"):
        stepper.step()
    stepper.restart()
    stepper.step()


@torch.no_grad()
def test_the_users_own_y0_may_change_meanwhile() -> None:
    y0 = Y0.clone()
    stepper = Stepper(van_der_pol, y0, 0.0, t1=0.3, method="bdf")
    y0.zero_()
    for _ in stepper:
        pass
    assert torch.equal(stepper.y, proxode.solve(van_der_pol, Y0, 0.0, 0.3, method="bdf").ys[-1])


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
@pytest.mark.parametrize("call", [20, 50, 171])
def test_a_solve_that_was_interrupted_inside_of_f_goes_on_as_if_it_had_not(method: str, call: int) -> None:
    """Ctrl-C: the state that is saved then is that of the last whole step."""
    calls = [0, call]
    y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)

    def f(t: Tensor, y: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] == calls[1]:
            raise KeyboardInterrupt
        return torch.stack([y[1], 20 * (1 - y[0] ** 2) * y[1] - y[0]])

    with torch.no_grad():
        stepper = proxode.Stepper(f, y0, 0.0, t1=20.0, method=method)
        with pytest.raises(KeyboardInterrupt):
            stepper.advance(20.0)
        state, calls[1] = stepper.state, -1
        ends = [
            proxode.Stepper.resume(f, state).advance(20.0),
            proxode.Stepper(f, y0, 0.0, t1=20.0, method=method).advance(20.0),
        ]
    assert torch.equal(*ends)


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
def test_a_callback_that_raises_leaves_the_books_as_they_were(method: str) -> None:
    calls = [0]

    class Watched(torch.nn.Module):
        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return van_der_pol(t, y)

        def callback_accept_step(self, t: Tensor, y: Tensor, dt: Tensor) -> None:
            calls[0] += 1
            if calls[0] == 20:
                raise KeyboardInterrupt

    with torch.no_grad():
        plain = proxode.Stepper(van_der_pol, Y0, 0.0, t1=20.0, method=method)
        plain.advance(20.0)
        stepper = proxode.Stepper(Watched(), Y0, 0.0, t1=20.0, method=method)
        with pytest.raises(KeyboardInterrupt):
            stepper.advance(20.0)
        stepper.advance(20.0)
    for name in ("n_steps", "n_accepted", "n_rejected", "switches"):
        assert getattr(stepper.stats, name) == getattr(plain.stats, name), name
    assert list(stepper.stats.steps) == list(plain.stats.steps)
