"""What a gradient keeps between forward and backward, and that what it does not keep can be had again."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

import proxode
from proxode.configure import configure
from proxode.gradients import GRADIENTS, Checkpoint, Continuous, Gradient, Implicit, shelf
from proxode.gradients.replay import Keeper, Segment, Tape, _segments, taped
from proxode.methods import METHODS
from proxode.problem import make_problem
from proxode.solution import Stats
from proxode.walk import Place

N = 400
WIDTH = 5  # states that a hidden layer of f is worth
END = torch.tensor([0.0, 1.0], dtype=torch.float64)


class Net(nn.Module):
    def __init__(self, n: int = N) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rates = nn.Parameter(torch.rand(WIDTH, n, generator=generator, dtype=torch.float64))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(self.rates * y).mean(0) - 2 * y + torch.sin(t)


def state(n: int = N) -> Tensor:
    return torch.linspace(-1, 1, n, dtype=torch.float64)


class Held:
    """A tensor that autograd saved."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Saved:
    """What autograd has saved and still holds, while the block is open."""

    def __init__(self) -> None:
        self.alive: weakref.WeakSet[Held] = weakref.WeakSet()
        self.most = 0

    def pack(self, tensor: Tensor) -> Held:
        held = Held(tensor.detach())
        self.alive.add(held)
        self.most = max(self.most, len(self.alive))
        return held

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda held: held.tensor)


def numbers(tensors: list[Tensor]) -> int:
    """How many float64 the storages behind these tensors hold, each once."""
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() // 8 for x in tensors}.values())


def living() -> list[Tensor]:
    gc.collect()
    return [x for x in gc.get_objects() if issubclass(type(x), Tensor)]


def kept(gradient: Gradient, steps: int, method: str = "bdf2", n: int = N, **options: Any) -> float:
    """What is alive after a solve and was not before, in states."""
    f, y0 = Net(n), state(n).requires_grad_()
    saved, before = Saved(), {id(x) for x in living()}
    with saved.hooks():
        y = proxode.odeint(f, y0, END, method=method, options={"step_size": 1 / steps, "gradient": gradient, **options})
    found = [x for x in living() if id(x) not in before] + [held.tensor for held in saved.alive]
    assert y.requires_grad
    return numbers([x for x in found if x.data_ptr() != f.rates.data_ptr()]) / n


@pytest.mark.parametrize(("method", "equations"), [("bdf2", 1), ("backward_euler", 1), ("multistage2", 3)])
def test_implicit_keeps_one_state_for_each_equation(method: str, equations: int) -> None:
    few, many = (kept(Implicit(), steps, method) for steps in (20, 60))
    assert 0.95 * equations < (many - few) / 40 < 1.3 * equations


def test_what_implicit_keeps_does_not_grow_with_the_inner_iterations() -> None:
    costs, amounts = [], []
    for tol in (1e-3, 1e-12):
        with proxode.record() as stats:
            amounts.append(kept(Implicit(), 20, inner="gd", inner_tol=tol))
        costs.append(stats.n_inner)
    assert costs[1] > 3 * costs[0]
    assert amounts[1] == pytest.approx(amounts[0], rel=0.02)


def test_only_with_its_graphs_does_implicit_keep_the_activations_of_f() -> None:
    def each_step(gradient: Gradient) -> float:
        return (kept(gradient, 30, n=60) - kept(gradient, 10, n=60)) / 20

    assert each_step(Implicit()) < 1.4
    assert each_step(Implicit(store_graph=True)) > 1 + WIDTH
    assert each_step(GRADIENTS["direct"]) > 2 * each_step(Implicit(store_graph=True))


@pytest.mark.parametrize("block", [2**17, 2**30])
def test_large_states_on_a_shelf_have_the_same_gradient(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of one state each, and all in one."""
    found = []
    for worth in (2**16, 2**60):
        monkeypatch.setattr(shelf, "BLOCK", block)
        monkeypatch.setattr(shelf, "WORTH", worth)
        f, y0 = Net(10_000), state(10_000).requires_grad_()
        y = proxode.odeint(f, y0, END, method="bdf2", options={"step_size": 0.25})
        found.append([y.detach(), *torch.autograd.grad(y[-1].square().sum(), (y0, f.rates))])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("method", ["euler", "bdf2"])
def test_checkpoint_keeps_states_for_the_square_root_of_the_steps(method: str) -> None:
    # What does not grow is of no interest: the factors of a band, for every formula that a start takes.
    amounts = [kept(Checkpoint(), steps, method, n=4 * N) for steps in (64, 256, 1024)]
    more = [after - before for before, after in pairwise(amounts)]
    assert all(1.7 < after / before < 2.3 for before, after in pairwise(more)), amounts


@pytest.mark.parametrize("places", [1, 2, 5, 8])
def test_with_a_number_of_checkpoints_no_more_is_kept(places: int) -> None:
    """A place of euler is one state, and the start is a place too; beside them: two outputs, the end, a value of f."""
    for steps in (30, 100):
        assert kept(Checkpoint(checkpoints=places), steps, "euler") < places + 4.5
    assert kept(Checkpoint(checkpoints=102), 100, "euler") > 95


def test_continuous_keeps_places_instead_of_steps_where_it_is_told_to() -> None:
    stored, places = (kept(Continuous(checkpoints=count), 64, "rk4") for count in (None, 4))
    assert stored > 64
    assert places < 24


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
def test_backward_of_checkpoint_holds_the_graph_of_one_segment(method: str) -> None:
    most = []
    for steps in (16, 256):
        f = Net(8)
        options = {"step_size": 1 / steps, "gradient": "checkpoint"}
        y = proxode.odeint(f, state(8), END, method=method, options=options)
        saved = Saved()
        with saved.hooks():
            y[-1].sum().backward()
        most.append(saved.most)
    assert most[1] < 6 * most[0]  # four times for the square root, sixteen for all


def test_the_shelf_of_checkpoint_is_that_of_one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block lives as long as one of its states, so states that are done with must not stand beside those in use."""
    monkeypatch.setattr(shelf, "WORTH", 0)
    put, rows, most, blocks = shelf.Shelf.put, [], 0, 0

    def watched(self: shelf.Shelf, z: Tensor) -> Tensor:
        nonlocal most, blocks
        row = put(self, z)
        blocks += self.used == 1  # the first of a new one
        rows.append((weakref.ref(row), blocks))
        standing = {block for there, block in rows if there() is not None}
        rows[:] = [(there, block) for there, block in rows if block in standing]
        most = max(most, len(rows))
        return row

    y = proxode.odeint(Net(8), state(8), END, method="bdf2", options={"step_size": 1 / 256, "gradient": "checkpoint"})
    monkeypatch.setattr(shelf.Shelf, "put", watched)
    y[-1].sum().backward()
    assert 8 <= most <= 64  # segments of 16 steps, or 32; all of them are 256


@pytest.mark.parametrize("back", [False, True], ids=["no backward", "after backward"])
@pytest.mark.parametrize("method", ["rk4", "bdf2"])
@pytest.mark.parametrize("gradient", [*GRADIENTS.values(), Implicit(store_graph=True), Continuous(checkpoints=3)])
def test_nothing_is_kept_alive_when_the_loss_is_gone(gradient: Gradient, method: str, back: bool) -> None:
    f, y0 = Net(3), state(3).requires_grad_()
    seen = weakref.ref(f)
    loss = proxode.odeint(f, y0, END, method=method, options={"step_size": 0.2, "gradient": gradient})[-1].sum()
    if back:
        loss.backward()
    del loss, f
    gc.collect()
    assert seen() is None


# The keeper of places


def went(steps: int, limit: int | None) -> tuple[Keeper, int]:
    """A keeper that saw this many steps, and the most places that it had at any time, the start among them."""
    keeper, most = Keeper(limit, times=[0.0]), 1
    for k in range(1, steps + 1):
        keeper(Place(float(k), torch.tensor(float(k)), None))
        most = max(most, 1 + len(keeper.places))
    return keeper, most


def segments(keeper: Keeper, outputs: list[float]) -> list[Any]:
    return list(_segments(SimpleNamespace(ts=tuple(outputs)), keeper))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.none() | st.integers(1, 60))
def test_the_keeper_has_no_more_places_than_it_may_and_covers_every_step_once(steps: int, limit: int | None) -> None:
    keeper, most = went(steps, limit)
    assert most <= (limit if limit is not None else 3 * steps**0.5 + 3)
    assert keeper.stride & (keeper.stride - 1) == 0
    assert all(k % keeper.stride == 0 and float(place.y) == place.t == k for k, place in keeper.places)
    parts = segments(keeper, [0.0, float(steps)])
    assert [t for part in parts for t in part.times[1:]] == [float(k) for k in range(1, steps + 1)]
    assert all(a.times[-1] == b.times[0] == b.start.t for a, b in pairwise(parts))
    assert parts[0].start is None and parts[0].times[0] == 0.0
    longest = max(len(part.times) - 1 for part in parts)
    assert longest <= (2 * keeper.stride if limit is not None else 3 * steps**0.5 + 3)
    if limit is not None and limit > 1:
        assert longest <= 4 * steps / limit + 1  # places are used, not only counted


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 200), st.none() | st.integers(1, 9), st.sets(st.floats(0.1, 199.0), max_size=20))
def test_every_output_belongs_to_the_segment_that_reaches_it(steps: int, limit: int | None, inside: set[float]) -> None:
    outputs = [0.0, *sorted(t for t in inside if t < steps), float(steps)]
    parts = segments(went(steps, limit)[0], outputs)
    assert [i for part in parts for i in part.outputs] == list(range(1, len(outputs)))
    assert all(part.times[0] < outputs[i] <= part.times[-1] for part in parts for i in part.outputs)


def test_with_as_many_places_as_steps_every_segment_is_one_step() -> None:
    keeper, _ = went(20, 20)
    assert [len(part.times) - 1 for part in segments(keeper, [0.0, 20.0])] == [1] * 20


# Replaying


CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    **{name: (name, 3, {} if method.adaptive else {"step_size": 0.07}) for name, method in METHODS.items()},
    "bdf2, anderson": ("bdf2", 200, {"step_size": 0.07}),
    "bdf4, anderson": ("bdf4", 200, {"step_size": 0.07}),
    "multistage3, anderson": ("multistage3", 200, {"step_size": 0.2}),
    **{f"bdf3, {name}": ("bdf3", 20, {"step_size": 0.07, "inner": name}) for name in ("fr", "lbfgs", "newton_krylov")},
    "crank_nicolson, a jump": ("crank_nicolson", 3, {"step_size": 0.07, "jump_t": torch.tensor([0.4])}),
    "dopri5, a rejected step": ("dopri5", 3, {"first_step": 0.9}),
}


@pytest.mark.parametrize("limit", [None, 3, 1000])
@pytest.mark.parametrize("case", CASES)
def test_a_replayed_segment_is_what_it_was(case: str, limit: int | None) -> None:
    """To the last bit, or where inner solvers had learned what a replay does not know, as well as they solve."""
    method, n, options = CASES[case]
    options = dict(options)
    marks = {"jump_t": options.pop("jump_t")} if "jump_t" in options else {}
    t = torch.tensor([0.0, 0.3, 0.33, 0.9, 1.0], dtype=torch.float64)
    problem = make_problem(Net(n), 3 * state(n), t, 1e-5, 1e-7, Stats(), **marks)
    path, failure, tape = taped(problem, configure(problem, METHODS[method], options), limit)
    assert failure is None and (len(tape.segments) > 1 or problem.stats.n_accepted < 3)
    assert "rejected" not in case or problem.stats.n_rejected > 0
    for i, segment in reversed(list(enumerate(tape.segments))):
        states = () if segment.start is None else segment.start.history.states
        with torch.no_grad():
            again = tape.replay(segment, tape.plan.solve, tape.problem.y0, states, lambda time: time)
        assert segment.exact or (METHODS[method].implicit and ("anderson" in case or problem.stats.n_rejected))

        def same(a: Tensor, b: Tensor, exact: bool = segment.exact) -> bool:
            return torch.equal(a, b) if exact else bool(((a - b).abs() <= 30 * tape.plan.accuracy(b)).all())

        assert all(same(y, path.ys[j]) for y, j in zip(again.ys, segment.outputs, strict=True))
        if i + 1 < len(tape.segments):
            then = tape.segments[i + 1].start
            assert same(again.end.y, then.y) and again.end.t == then.t
            assert not segment.exact or all(map(torch.equal, again.end.history.states, then.history.states))


@pytest.mark.parametrize("n", [3, 200])
@pytest.mark.parametrize("method", ["dopri5", "rk4", "bdf3", "multistage2"])
def test_with_a_place_for_every_step_the_gradient_is_that_of_implicit(method: str, n: int) -> None:
    found = []
    for gradient in (Implicit(), Checkpoint(checkpoints=1000)):
        f, y0 = Net(n), state(n).requires_grad_()
        options = {} if METHODS[method].adaptive else {"step_size": 0.1}
        y = proxode.odeint(f, y0, END, method=method, rtol=1e-5, options={"gradient": gradient, **options})
        found.append([y.detach(), *torch.autograd.grad(y[-1].square().sum(), (y0, f.rates))])
    assert torch.equal(found[0][0], found[1][0])
    replayed_exactly = n == 3 or not METHODS[method].implicit
    assert_close(found[1], found[0], rtol=1e-9 if replayed_exactly else 1e-5, atol=1e-12 if replayed_exactly else 1e-7)


def test_the_adjoint_replays_each_segment_once_in_every_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[int] = []
    replay = Tape.replay

    def noted(self: Tape, segment: Segment, *args: Any, **kwargs: Any) -> Any:
        replayed.append(id(segment))
        return replay(self, segment, *args, **kwargs)

    monkeypatch.setattr(Tape, "replay", noted)
    k = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y0, t = torch.ones(3, dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    steps = {"first_step": 0.45}  # too long: a step that is rejected asks for the segment behind it again
    adjoint = Continuous("dopri5", 1e-12, 1e-12, steps, checkpoints=6)
    options = {"gradient": adjoint, "step_size": 0.05}
    y = proxode.odeint(lambda t, y: -k * torch.sin(y), y0, t, method="rk4", options=options)
    for _ in range(2):
        replayed.clear()
        torch.autograd.grad(y[-1].sum(), k, retain_graph=True)
        assert len(replayed) == len(set(replayed)) > 2
