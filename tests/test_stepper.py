"""Stepping by hand: the same steps as `solve`, states that go on exactly, and changes in between."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import SolverError, Status, Stepper
from proxode.methods import METHODS

Y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)
WAYS = [
    pytest.param(name, step, id=f"{name}-{'adaptive' if step is None else 'fixed'}")
    for name, method in METHODS.items()
    for step in (None, 0.02)
    if step is not None or method.adapting().adaptive
]
every_way = pytest.mark.parametrize(("method", "step_size"), WAYS)


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


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 20 * (1 - y[0] ** 2) * y[1] - y[0]])


def diffusion(t: Tensor, y: Tensor) -> Tensor:
    """Stiff and not linear, of any size: no dense Jacobian for two hundred of them."""
    left, right = torch.roll(y, 1), torch.roll(y, -1)
    return 400.0 * (left - 2 * y + right) + torch.sin(y) + torch.cos(t)


def settings(method: str, step_size: float | None) -> dict[str, Any]:
    loose = step_size is None and METHODS[method].order == 1
    return {"method": method, "step_size": step_size, "rtol": 1e-2 if loose else 1e-4, "atol": 1e-3 if loose else 1e-6}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def rest(stepper: Stepper, most: int = 100) -> list[tuple[float, Tensor]]:
    steps = []
    while not stepper.done and len(steps) < most:
        step = stepper.step()
        steps.append((step.t1, step.y1))
    return steps


def assert_same(a: list[tuple[float, Tensor]], b: list[tuple[float, Tensor]]) -> None:
    assert len(a) == len(b) > 0
    assert all(s == t and torch.equal(x, y) for (s, x), (t, y) in zip(a, b, strict=True))


@torch.no_grad()
@every_way
@pytest.mark.parametrize("t1", [0.3, -0.02], ids=["forwards", "backwards"])
def test_stepping_is_solving(method: str, step_size: float | None, t1: float) -> None:
    kwargs = settings(method, step_size)
    solution = proxode.solve(van_der_pol, Y0, 0.0, t1, **kwargs)
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=t1, **kwargs)
    assert stepper.status is None and not stepper.done
    ends = [0.0]
    for step in stepper:
        assert step.t0 == ends[-1] and step.failure is None
        ends.append(step.t1)
    assert stepper.t == ends[-1] == t1 and stepper.done and stepper.h == 0.0
    assert torch.equal(stepper.y, solution.ys[-1])
    assert stepper.stats == solution.stats and stepper.status is solution.status
    with pytest.raises(ValueError, match="last time t1"):
        stepper.step()


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
    with pytest.raises(TypeError, match="unknown options t0"):
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


@torch.no_grad()
@every_way
def test_advance_ends_at_the_very_time(method: str, step_size: float | None) -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, **settings(method, step_size))
    exact = proxode.solve(van_der_pol, Y0, 0.0, 0.3, rtol=1e-9, atol=1e-11, save_at=torch.tensor([0.05, 0.123, 0.3]))
    for t, y in zip((0.05, 0.123, 0.3), exact.ys, strict=True):
        assert torch.allclose(stepper.advance(t), y, rtol=5e-2, atol=5e-3)
        assert stepper.t == t
    assert stepper.done
    if step_size is not None:  # fifteen on the grid, and two that were cut in two
        assert stepper.stats.n_accepted == 17


@torch.no_grad()
def test_advance_to_the_present_and_elsewhere() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
    assert torch.equal(stepper.advance(0.1), stepper.y)
    cost = stepper.stats.nfe_forward
    assert torch.equal(stepper.advance(0.1), stepper.y) and stepper.stats.nfe_forward == cost
    with pytest.raises(ValueError, match=r"`t` = 0.05 is behind the present time 0.1"):
        stepper.advance(0.05)
    with pytest.raises(ValueError, match=r"beyond the last time, t1 = 0.3"):
        stepper.advance(0.4)
    with pytest.raises(TypeError, match="`t` must be a number"):
        stepper.advance("later")


@torch.no_grad()
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(("method", "step_size"), [("auto", None), ("bdf", None), ("rk4", 0.25), ("bdf2", 0.25)])
def test_without_a_last_time(method: str, step_size: float | None, reverse: bool) -> None:
    sign = -1.0 if reverse else 1.0

    def decay(t: Tensor, y: Tensor) -> Tensor:
        return -sign * y

    stepper = Stepper(decay, Y0[:1], 1.0, method=method, step_size=step_size, reverse=reverse)
    y = stepper.advance(1.0 + sign * 2.0)
    assert float(y) == pytest.approx(2 * math.exp(-2.0), rel=0.1 if method == "bdf2" else 1e-2)
    assert stepper.t == 1.0 + sign * 2.0 and not stepper.done
    with pytest.raises(ValueError, match="no end"):
        next(iter(stepper))
    resumed = Stepper.resume(decay, through_a_file(stepper.state))
    assert_same(rest(stepper, 5), rest(resumed, 5))


@torch.no_grad()
@every_way
def test_interpolation_inside_of_the_last_step(method: str, step_size: float | None) -> None:
    def decay(t: Tensor, y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return -y[0], -2 * y[1]

    y0 = (torch.ones(2, 3, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    stepper = Stepper(decay, y0, 0.0, t1=-1.0 if method == "bdf" else 1.0, **settings(method, step_size))
    with pytest.raises(ValueError, match="call step"):
        stepper.interpolate(0.0)
    stepper.step()
    step = stepper.step()
    t = torch.linspace(step.t0, step.t1, 4, dtype=torch.float64).reshape(2, 2)
    first, second = stepper.interpolate(t)
    assert first.shape == (2, 2, 2, 3) and second.shape == (2, 2)
    assert torch.equal(first[0, 0], step.y0[0]) and torch.equal(first[1, 1], step.y1[0])
    assert torch.allclose(first[..., 0, 0], torch.exp(-t), rtol=0.02)
    assert torch.allclose(second, torch.exp(-2 * t), rtol=0.02)
    one, _ = stepper.interpolate(0.5 * (step.t0 + step.t1))
    assert one.shape == (2, 3)
    with pytest.raises(ValueError, match="outside of the last step, from"):
        stepper.interpolate(step.t1 + (step.t1 - step.t0))


@every_way
@pytest.mark.parametrize("gradient", ["implicit", "direct"])
def test_the_gradient_is_that_of_solve(method: str, step_size: float | None, gradient: str) -> None:
    k = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    y0 = Y0.clone().requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y[1], k * (1 - y[0] ** 2) * y[1] - y[0]])

    kwargs = {**settings(method, step_size), "gradient": gradient}
    solution = proxode.solve(f, y0, 0.0, 0.05, **kwargs)
    expected = torch.autograd.grad(solution.ys[-1].square().sum(), (y0, k))
    stepper = Stepper(f, y0, 0.0, t1=0.05, **kwargs)
    for _ in stepper:
        pass
    assert torch.equal(stepper.y, solution.ys[-1])
    found = torch.autograd.grad(stepper.y.square().sum(), (y0, k))
    assert all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("method", ["dopri5", "bdf", "auto", "crank_nicolson"])
def test_gradients_through_interpolation_and_the_time_of_advance(method: str) -> None:
    rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    t = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    stepper = Stepper(lambda t, y: -rate * y, Y0[:1], 0.0, method=method, rtol=1e-7, atol=1e-9)
    y = stepper.advance(t)
    by_rate, by_time = torch.autograd.grad(y, (rate, t), retain_graph=True)
    assert float(by_rate) == pytest.approx(-0.7 * float(y.detach()), rel=1e-3)
    assert float(by_time) == pytest.approx(-1.5 * float(y.detach()), rel=1e-3)
    step = stepper.step()
    middle = torch.tensor(0.5 * (step.t0 + step.t1), dtype=torch.float64, requires_grad=True)
    by_rate, by_middle = torch.autograd.grad(stepper.interpolate(middle), (rate, middle))
    exact = 2 * math.exp(-1.5 * float(middle.detach()))
    assert float(by_middle) == pytest.approx(-1.5 * exact, rel=1e-2)
    assert float(by_rate) == pytest.approx(-float(middle.detach()) * exact, rel=1e-2)


@pytest.mark.parametrize("method", ["dopri5", "auto", "crank_nicolson", "multistage3"])  # one-step methods
@pytest.mark.parametrize("how", ["no_grad before", "resumed", "detached"])
def test_where_recording_begins_later_the_first_slope_is_part_of_it(method: str, how: str) -> None:
    """The slope at the start of a step is known from the step before, which was not recorded."""

    def end(rate: Tensor) -> Tensor:
        def f(t: Tensor, y: Tensor) -> Tensor:
            return -rate * y

        with torch.set_grad_enabled(how == "detached"):
            stepper = Stepper(f, Y0[:1], 0.0, method=method, rtol=1e-5, atol=1e-7, first_step=0.01)
            stepper.advance(0.1)
            if how == "resumed":
                stepper = Stepper.resume(f, stepper.state)
            stepper.detach()
        with torch.enable_grad():
            return stepper.advance(0.3)

    rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y = end(rate)
    (found,) = torch.autograd.grad(y, rate)
    assert float(found) == pytest.approx(-0.2 * float(y.detach()), rel=1e-3)


def test_nothing_is_recorded_under_no_grad_and_in_inference_mode() -> None:
    y0 = Y0.clone().requires_grad_()
    with torch.no_grad():
        stepper = Stepper(van_der_pol, y0, 0.0, t1=0.3, method="bdf")
        plain = [step.y1 for step in stepper]
        assert not any(y.requires_grad for y in plain)
    with torch.inference_mode():
        stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf")
        assert all(torch.equal(step.y1, y) for step, y in zip(stepper, plain, strict=True))
        assert stepper.interpolate(0.3).shape == (2,)


def test_controls_that_change_between_steps_get_their_gradients() -> None:
    """Recorded where each step was taken; without `store_graph` backward says that func has changed."""
    controls = [torch.tensor(float(u), dtype=torch.float64, requires_grad=True) for u in (1, 2, 3)]
    now: list[Tensor] = [torch.zeros((), dtype=torch.float64)]

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -10 * y + now[0]

    def run(**kwargs: Any) -> Tensor:
        now[0] = torch.zeros((), dtype=torch.float64)
        stepper = Stepper(f, Y0, 0.0, method="bdf2", step_size=0.1, **kwargs)
        stepper.step()  # nothing wants a gradient so far
        for u in controls:
            now[0] = u
            stepper.step()
        return stepper.y

    direct = torch.autograd.grad(run(gradient="direct").sum(), controls)
    stored = torch.autograd.grad(run(store_graph=True).sum(), controls)
    assert all(float(g) > 0.01 for g in direct)
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(direct, stored, strict=True))
    with pytest.raises(RuntimeError, match=r"has changed since|wants a gradient"):
        torch.autograd.grad(run().sum(), controls)


def test_a_control_that_appears_later_is_seen() -> None:
    now = [torch.zeros((), dtype=torch.float64)]
    stepper = Stepper(lambda t, y: -10 * y + now[0], Y0, 0.0, method="bdf2", step_size=0.1)
    stepper.step()
    now[0] = torch.ones((), dtype=torch.float64, requires_grad=True)
    stepper.step()
    assert stepper.y.requires_grad


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


def test_a_bouncing_ball_and_its_gradient() -> None:
    """Restarts carry the graph: each bounce halves the speed."""
    v0 = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    start = torch.stack([torch.zeros_like(v0), v0])
    ball = Stepper(lambda t, y: torch.stack([y[1], torch.full_like(y[1], -8.0)]), start, 0.0, method="dopri5")
    t = 0.0
    for bounce in range(3):
        t += 0.5**bounce
        y = ball.advance(t)
        ball.restart(torch.stack([y[0], -0.5 * y[1]]))
    speed = ball.y[1]
    assert float(speed.detach()) == pytest.approx(0.5, rel=1e-9)
    (gradient,) = torch.autograd.grad(speed, v0)
    assert float(gradient) == pytest.approx(-0.125)  # at given times a faster ball is slower, thrice


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


def nan_after(when: float) -> Any:
    return lambda t, y: -y if float(t) <= when else math.nan * y


@torch.no_grad()
def test_a_step_that_fails_raises_or_says_so() -> None:
    stepper = Stepper(nan_after(0.5), Y0, 0.0, t1=1.0, method="rk4", step_size=0.1)
    with pytest.raises(SolverError) as caught:
        rest(stepper)
    assert caught.value.status is stepper.status is Status.NON_FINITE
    assert caught.value.t == pytest.approx(0.5) and torch.equal(caught.value.solution.ys[0], stepper.y)
    quiet = Stepper(nan_after(0.5), Y0, 0.0, t1=1.0, method="rk4", step_size=0.1, throw=False)
    assert len(list(quiet)) == 5
    cost = quiet.stats.nfe_forward
    failed = quiet.step()
    assert failed.failure is quiet.failure is not None and failed.t0 == failed.t1 == quiet.t
    assert quiet.done and quiet.status is Status.NON_FINITE and quiet.stats.nfe_forward == cost
    assert torch.equal(quiet.advance(1.0), quiet.y)
    quiet.restart(t=0.0)
    assert not quiet.done and quiet.step().failure is None


@torch.no_grad()
def test_a_nan_where_it_begins() -> None:
    with pytest.raises(SolverError):
        Stepper(nan_after(-1.0), Y0, 0.0, t1=1.0, method="bdf")
    stepper = Stepper(nan_after(-1.0), Y0, 0.0, t1=1.0, method="bdf", throw=False)
    assert stepper.done and stepper.status is Status.NON_FINITE and stepper.h == 0.0 and list(stepper) == []
    with pytest.raises(ValueError, match="failed where it began"):
        _ = stepper.state


@torch.no_grad()
def test_limits_and_raised_tolerances() -> None:
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf", max_steps=5, throw=False)
    assert len(list(stepper)) <= 5 and stepper.status is Status.MAX_STEPS
    rough = Stepper(lambda t, y: -y, Y0.float() + 1, 0.0, t1=0.1, rtol=1e-12, atol=0.0)
    assert len(list(rough)) > 0 and rough.status is Status.TOLERANCE_RAISED
    grown = Stepper(lambda t, y: 1 - y, torch.zeros(2), 0.0, t1=1.0, rtol=1e-12, atol=1e-12)
    assert len(list(grown)) > 0 and grown.status is Status.TOLERANCE_RAISED  # at first there is nothing to be off


@torch.no_grad()
def test_stops_are_obeyed_and_the_next_step_is_known() -> None:
    stop = torch.tensor([0.1, 0.25], dtype=torch.float64)
    stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3, method="bdf", step_t=stop, max_step=0.03)
    ends = []
    while not stepper.done:
        h, before = stepper.h, stepper.stats.n_rejected
        step = stepper.step()
        if stepper.stats.n_rejected == before:
            assert step.t1 - step.t0 == pytest.approx(h, rel=1e-12)
        ends.append(step.t1)
    assert {0.1, 0.25, 0.3} <= set(ends)


def test_record_counts_steps() -> None:
    with torch.no_grad(), proxode.record() as total:
        stepper = Stepper(van_der_pol, Y0, 0.0, t1=0.3)
        rest(stepper, 4)
    assert total.nfe_forward == stepper.stats.nfe_forward > 0


BAD = {
    "unknown option": ({"speed": 3}, TypeError, "unknown options speed"),
    "unknown method": ({"method": "rk5"}, ValueError, "unknown `method`"),
    "no steps": ({"method": "rk4"}, ValueError, "give `step_size`"),
    "checkpoint": ({"gradient": "checkpoint"}, ValueError, "never has"),
    "continuous": ({"gradient": "continuous"}, ValueError, "'implicit' or 'direct'"),
    "unknown gradient": ({"gradient": "none"}, ValueError, "unknown `gradient`"),
    "no time to go": ({"t1": 0.0}, ValueError, "equal"),
    "a direction twice": ({"reverse": True}, ValueError, "tells the direction"),
    "a grid without an end": ({"t1": None, "grid_constructor": list, "method": "rk4"}, ValueError, "give `t1`"),
    "no limit": ({"max_steps": 0}, ValueError, "`max_steps` must be a positive integer"),
    "useless": ({"interp": "cubic", "method": "bdf"}, ValueError, "has no meaning"),
    "tolerance": ({"rtol": -1.0}, ValueError, "`rtol`"),
    "inner": ({"inner": "magic", "method": "bdf"}, ValueError, "unknown inner solver"),
}


@pytest.mark.parametrize(("kwargs", "error", "says"), BAD.values(), ids=BAD)
def test_arguments_are_checked_as_in_solve(kwargs: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Stepper(van_der_pol, Y0, 0.0, **{"t1": 1.0, **kwargs})
