"""The arguments of `odeint_adjoint`, which are torchdiffeq's: what each of them does, and errors where one is wrong."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torchdiffeq
from adjoint_cases import TIGHT, UP, Net, as_tuple, both_ways, exact, gap, gradients, initial, loss_of
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode.gradients import Checkpoint, Continuous

# A method of its own for the adjoint


def test_the_adjoint_of_a_proximal_solve_by_an_explicit_method() -> None:
    found = gradients(
        proxode.odeint_adjoint, method="bdf3", options={"step_size": 0.01}, adjoint_method="dopri5", adjoint_options={},
        adjoint_rtol=1e-8,
    )  # fmt: skip
    assert gap(found, exact()) < 1e-3


def test_the_adjoint_of_an_explicit_solve_by_a_proximal_method() -> None:
    rough, fine = (
        gap(gradients(proxode.odeint_adjoint, method="dopri5", adjoint_method="bdf3", **TIGHT,
                      adjoint_options={"step_size": h, "inner_tol": 1e-12}), exact())
        for h in (0.04, 0.02)
    )  # fmt: skip
    assert fine < 1e-3
    assert rough / fine > 5  # it was bdf3 that made the error


def adjoint_cost(**kwargs: Any) -> int:
    with proxode.record() as stats:
        gradients(proxode.odeint_adjoint, torch.tensor([0.0, 4.0], dtype=torch.float64), method="dopri5", **kwargs)
    return stats.nfe_backward


def test_a_looser_tolerance_of_the_adjoint_costs_less() -> None:
    costs = [adjoint_cost(**TIGHT, adjoint_rtol=tol, adjoint_atol=tol) for tol in (1e-9, 1e-7, 1e-5, 1e-3)]
    assert all(more > less for more, less in pairwise(costs))
    assert costs[0] > 3 * costs[-1]


def test_the_seminorm_costs_no_more_than_the_norm_with_the_parameters() -> None:
    default, semi = (adjoint_cost(rtol=1e-6, atol=1e-8, adjoint_options=o) for o in ({}, {"norm": "seminorm"}))
    assert semi < default
    found = gradients(proxode.odeint_adjoint, method="dopri5", **TIGHT, adjoint_options={"norm": "seminorm"})
    assert gap(found, exact()) < 1e-6


@as_tuple
def test_a_norm_function_of_the_adjoint_sees_what_torchdiffeqs_does(split: bool) -> None:
    def shapes_with(odeint: Any) -> set[Any]:
        shapes = set()

        def norm(state: tuple[Tensor, ...]) -> Tensor:
            shapes.add(tuple(tuple(part.shape) for part in state))
            return max(part.abs().max() for part in state)

        gradients(odeint, split=split, method="dopri5", rtol=1e-5, atol=1e-6, adjoint_options={"norm": norm})
        return shapes

    ours, theirs = shapes_with(proxode.odeint_adjoint), shapes_with(torchdiffeq.odeint_adjoint)
    y = [(3,), (1, 3)] if split else [(2, 3)]
    assert ours == theirs == {((), *y, *y, (6, 3), (6,), (3, 6), (3,))}


def test_a_norm_function_steers_the_steps_of_the_adjoint() -> None:
    def louder(state: tuple[Tensor, ...]) -> Tensor:
        return 1e3 * max(part.square().mean().sqrt() for part in state)

    assert adjoint_cost(adjoint_options={"norm": louder}) > 2 * adjoint_cost()


def test_adjoint_params_gives_those_their_gradient_and_warns_for_the_others() -> None:
    f, y0 = Net(), initial()
    first, *others = f.parameters()
    with pytest.warns(UserWarning, match=r"func uses 3 tensors .* not among `adjoint_params`"):
        y = proxode.odeint_adjoint(f, y0, UP, adjoint_params=[first], **TIGHT)
    found = torch.autograd.grad(loss_of(y), [y0, first, *others], allow_unused=True)
    assert found[2:] == (None, None, None)
    assert gap(list(found[:2]), exact()[:1] + exact()[2:3]) < 1e-6


def test_adjoint_params_may_name_a_tensor_that_f_uses_only_later() -> None:
    rate = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(1, dtype=torch.float64, requires_grad=True)
    jump = {"jump_t": torch.tensor([0.5], dtype=torch.float64)}
    y = proxode.odeint_adjoint(lambda t, y: -y if t < 0.5 else -rate * y, y0, torch.tensor([0.0, 1.0]).double(),
                               options=jump, adjoint_params=(rate,))  # fmt: skip
    found = torch.autograd.grad(y[-1].sum(), rate)[0]
    assert_close(found, -0.5 * torch.exp(-0.5 * (1 + rate.detach())), rtol=1e-5, atol=0.0)


class Told(Net):
    """What the callbacks of the adjoint were told."""

    def __init__(self, split: bool) -> None:
        super().__init__(split)
        self.told: dict[str, list[Any]] = {"step": [], "accept": [], "reject": []}

    def callback_step_adjoint(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["step"].append((float(t0), y0, float(dt)))

    def callback_accept_step_adjoint(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["accept"].append((float(t0), y0, float(dt)))

    def callback_reject_step_adjoint(self, t0: Tensor, y0: Any, dt: Tensor) -> None:
        self.told["reject"].append((float(t0), y0, float(dt)))


@both_ways
@as_tuple
def test_the_callbacks_of_the_adjoint_hear_of_every_step_in_the_users_time(split: bool, t: Tensor) -> None:
    f, sign = Told(split), -1.0 if t[0] < t[-1] else 1.0  # of the way back
    options = {"first_step": 0.3}
    gradients(proxode.odeint_adjoint, t, split, f, method="dopri5", rtol=1e-7, atol=1e-9, adjoint_options=options)
    tried, accepted, rejected = f.told.values()
    assert len(tried) == len(accepted) + len(rejected) and rejected
    assert accepted[0][0] == float(t[-1])
    for (t0, _, dt), (t1, _, _) in pairwise(accepted):
        assert dt > 0 and t1 == pytest.approx(t0 + sign * dt)
    assert accepted[-1][0] + sign * accepted[-1][2] == pytest.approx(float(t[0]))
    y = [(3,), (1, 3)] if split else [(2, 3)]
    shapes = [(), *y, *y]
    assert all([tuple(part.shape) for part in state[: len(shapes)]] == shapes for _, state, _ in tried)
    assert all(len(state) == len(shapes) + len(list(f.parameters())) for _, state, _ in tried)
    ys = proxode.odeint(f, initial(split), t, method="dopri5", rtol=1e-7, atol=1e-9)
    expected = [part[-1].detach() for part in (ys if split else (ys,))]
    assert_close(list(accepted[0][1][1 : 1 + len(y)]), expected, rtol=1e-9, atol=1e-9)
    weights = [torch.linspace(0.5, 1.5, len(t) * x.numel(), dtype=x.dtype)[-x.numel() :].view_as(x) for x in expected]
    of_end = [2 * w * x for w, x in zip(weights, expected, strict=True)]  # how loss_of depends on the last output
    assert_close(list(accepted[0][1][1 + len(y) : 1 + 2 * len(y)]), of_end, rtol=1e-7, atol=1e-9, check_stride=False)


# Errors


def test_wrong_arguments_of_the_adjoint_are_errors_at_the_call() -> None:
    f, y0 = Net(), initial()
    with pytest.raises(ValueError, match="unknown `method` 'dopri55'"):
        proxode.odeint_adjoint(f, y0, UP, adjoint_method="dopri55")
    with pytest.raises(TypeError, match="`adjoint_options` must be a dict"):
        proxode.odeint_adjoint(f, y0, UP, adjoint_options=[("norm", "seminorm")])
    with pytest.raises(ValueError, match="`adjoint_options` must be given too"):
        proxode.odeint_adjoint(f, y0, UP, method="rk4", options={"step_size": 0.1}, adjoint_method="dopri5")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("k", r"` must be a tuple of tensors, not a str$"),
        (3, r"` must be a tuple of tensors, not a int$"),
        (Net(), r"` must be a tuple of tensors, not a Net: tuple\(module.parameters\(\)\)$"),
        (torch.ones(2, requires_grad=True), r"` must be a tuple of tensors, not a Tensor: \(tensor,\)$"),
        ((torch.ones(2), Net()), r"\[1\]` must be a torch.Tensor, not a Net: \*module.parameters\(\)$"),
        (["k"], r"\[0\]` must be a torch.Tensor, not a str$"),
    ],
    ids=["a name", "a number", "a module", "one tensor", "a module among tensors", "a name in a list"],
)  # fmt: skip
def test_what_is_no_tuple_of_tensors_is_refused_at_the_call(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^`adjoint_params{message}"):
        proxode.odeint_adjoint(Net(), initial(), UP, adjoint_params=given)
    with pytest.raises(TypeError, match=f"^`params{message}"):
        Continuous(params=given)


def test_parameters_may_be_given_as_the_module_gives_them_and_serve_every_solve() -> None:
    f = Net()
    gradient = Continuous(params=f.parameters())  # type: ignore[arg-type]
    for _ in range(2):
        f.zero_grad()
        proxode.solve(f, initial(), 0.0, 1.0, gradient=gradient).ys.sum().backward()
        assert all(p.grad is not None for p in f.parameters())


@pytest.mark.parametrize("bad", [-1e-3, "small", float("nan")])
def test_a_wrong_tolerance_of_the_adjoint_is_an_error(bad: Any) -> None:
    with pytest.raises(ValueError, match="`adjoint_rtol` must be a number"):
        gradients(proxode.odeint_adjoint, adjoint_rtol=bad)


def test_a_norm_of_the_adjoint_that_is_none_is_an_error() -> None:
    with pytest.raises(TypeError, match="`norm` in adjoint_options must be 'seminorm' or a function"):
        gradients(proxode.odeint_adjoint, adjoint_options={"norm": "halfnorm"})
    with pytest.raises(TypeError, match="`norm` in adjoint_options must return one number"):
        gradients(proxode.odeint_adjoint, adjoint_options={"norm": lambda parts: parts[1].abs()})


@pytest.mark.parametrize("kind", [Checkpoint, Continuous])
@pytest.mark.parametrize("bad", [0, -1, True, 2.0])
def test_a_number_of_checkpoints_that_is_none_is_an_error(kind: Any, bad: Any) -> None:
    with pytest.raises(ValueError, match="`checkpoints` must be a positive integer"):
        kind(checkpoints=bad)


def test_the_limit_of_steps_holds_for_the_adjoint_too() -> None:
    """As in torchdiffeq, whose adjoint has the options of the forward solve."""
    limit = {"max_num_steps": 40}
    with pytest.raises(proxode.SolverError, match=r"number of steps reached its limit.*in the adjoint solve"):
        gradients(proxode.odeint_adjoint, method="bosh3", rtol=1e-3, adjoint_rtol=1e-10, adjoint_atol=1e-12,
                  options=limit)  # fmt: skip


@pytest.mark.parametrize("gradient", [Checkpoint(), Continuous(), Continuous(checkpoints=3)])
def test_a_dense_solution_without_a_gradient_says_so(gradient: Any) -> None:
    f = Net()
    options = {"step_size": 0.1, "gradient": gradient}
    dense = proxode.odeint_dense(f, initial(), 0.0, 1.2, method="rk4", options=options)
    with pytest.raises(RuntimeError, match=r"not a dense solution: .* gradient='implicit'"):
        dense(0.5)
    with torch.no_grad():
        expected = proxode.odeint(f, initial(), UP, method="rk4", options={"step_size": 0.1})
        assert_close(dense(UP), expected, rtol=1e-12, atol=1e-12)


def test_a_limit_between_outputs_does_not_stop_a_backward_over_many_of_them() -> None:
    p = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    y0 = torch.tensor([1.0, 0.0], dtype=torch.float64)
    ys = proxode.odeint_adjoint(
        lambda t, y: torch.stack([y[1], -p * y[0]]), y0, torch.linspace(0, 50, 101, dtype=torch.float64),
        rtol=1e-5, atol=1e-7, method="dopri5", options={"max_num_steps": 20}, adjoint_params=(p,),
    )  # fmt: skip
    ys[-1].sum().backward()
    assert p.grad is not None and bool(torch.isfinite(p.grad))
