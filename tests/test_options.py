"""Options and names at the two doors: `odeint` warns and goes on, `solve` refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import proxode
from proxode.gradients import Continuous
from proxode.inner import INNER
from proxode.methods import METHODS

T = torch.linspace(0, 1, 5, dtype=torch.float64)
Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -y + torch.sin(t)


@pytest.mark.parametrize(
    ("method", "option"),
    [("dopri5", "step_size"), ("rk4", "first_step"), ("rk4", "inner_lr"), ("bdf2", "perturb"), ("rk4", "hyper")],
)
def test_an_option_without_meaning_warns_at_the_callers_line_and_goes_on(method: str, option: str) -> None:
    plain = proxode.odeint(decay, Y0, T, method=method)
    with pytest.warns(UserWarning, match=option) as caught:
        y = proxode.odeint(decay, Y0, T, method=method, options={option: 0.1})
    assert torch.equal(y, plain)
    assert [w.filename for w in caught] == [__file__]


def test_an_unknown_option_of_the_adjoint_warns_at_the_callers_line_and_goes_on() -> None:
    plain = proxode.odeint_adjoint(decay, Y0, T, method="dopri5", adjoint_options={})
    with pytest.warns(UserWarning, match=r"in `adjoint_options` is ignored: 'nrm' \(did you mean 'norm'\?\)") as caught:
        y = proxode.odeint_adjoint(decay, Y0, T, method="dopri5", adjoint_options={"nrm": "seminorm"})
    assert torch.equal(y, plain)
    assert [w.filename for w in caught] == [__file__]


def test_solve_refuses_an_unknown_option_of_the_adjoint() -> None:
    with pytest.raises(TypeError, match=r"Continuous got unknown options: 'nrm' \(did you mean 'norm'\?\)"):
        proxode.solve(decay, Y0, 0.0, 1.0, gradient=Continuous(options={"nrm": "seminorm"}))
    with pytest.raises(TypeError, match="`options` of Continuous must be a dict"):
        proxode.solve(decay, Y0, 0.0, 1.0, gradient=Continuous(options=["norm"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "option"), [("rk4", "first_step"), ("rk4", "inner_lr"), ("bdf2", "perturb")])
def test_solve_refuses_an_option_without_meaning(method: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"`{option}` has no meaning"):
        proxode.solve(decay, Y0, 0.0, 1.0, method=method, step_size=0.5, **{option: 0.1})


def test_solve_lists_what_it_accepts() -> None:
    with pytest.raises(TypeError, match=r"hyper.*accepts.*inner_tol"):
        proxode.solve(decay, Y0, 0.0, 1.0, hyper=3)


NAMES = {
    "inner": "newton_krylov", "gradient": "implicit", "predictor": "extrapolate", "inner_stop": "update",
    "interp": "cubic", "controller": "integral",
}  # fmt: skip


@pytest.mark.parametrize(("name", "known"), NAMES.items())
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name: str, known: str) -> None:
    method = {"interp": "rk4", "controller": "dopri5"}.get(name, "bdf2")
    with pytest.raises(ValueError, match=rf"(`{name}`.*'nonsense'|'nonsense'.*`{name}`).*known are:.*{known}"):
        proxode.odeint(decay, Y0, T, method=method, options={name: "nonsense"})


def test_an_unknown_method_lists_every_method() -> None:
    for call in (lambda m: proxode.odeint(decay, Y0, T, method=m), lambda m: proxode.solve(decay, Y0, 0, 1, method=m)):
        with pytest.raises(ValueError, match="rk5") as caught:
            call("rk5")
        assert all(name in str(caught.value) for name in METHODS)
    with pytest.raises(ValueError, match="magic") as caught:
        proxode.odeint(decay, Y0, T, method="bdf2", options={"inner": "magic"})
    assert all(name in str(caught.value) for name in INNER)


@pytest.mark.parametrize("method", ["rk4", "bdf2"])
def test_step_size_and_grid_constructor_exclude_each_other(method: str) -> None:
    with pytest.raises(ValueError, match=r"`step_size` and `grid_constructor`"):
        options = {"step_size": 0.1, "grid_constructor": lambda f, y, t: t}
        proxode.odeint(decay, Y0, T, method=method, options=options)


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.implicit])
def test_jump_t_is_looked_at_from_inside_the_step(method: str) -> None:
    def jump(t: Tensor, y: Tensor) -> Tensor:
        return torch.where(t < 0.5, torch.ones_like(y), -3 * torch.ones_like(y))

    for t in (T, T.flip(0)):
        for steps in ({} if method == "auto" else {"step_size": 0.125}, {}):
            y = proxode.odeint(jump, Y0, t, method=method, rtol=1e-5, options={"jump_t": T[2:3], **steps})
            kinks = torch.where(T < 0.5, T, 0.5 - 3 * (T - 0.5)).unsqueeze(-1)
            expected = Y0 + (kinks if t is T else kinks.flip(0) - kinks[-1])
            assert_close(y[-1], expected[-1], rtol=1e-6, atol=1e-6)


def test_what_has_no_meaning_says_which_methods_it_is_for() -> None:
    y0, t = torch.ones(2), torch.tensor([0.0, 1.0])
    with pytest.warns(UserWarning, match=r"`step_size` .* 'auto' .* leave it out, or name 'bdf2'"):
        proxode.odeint(lambda t, y: -y, y0, t, options={"step_size": 0.1})
    with pytest.raises(ValueError, match=r"`atol` is a list of 2, .* torch.tensor\(\[1e-06, 1e-08\]\)"):
        proxode.odeint(lambda t, y: -y, y0, t, atol=[1e-6, 1e-8])
