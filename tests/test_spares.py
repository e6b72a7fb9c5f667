"""Memory that is written again: nothing that f has kept or returned is ever overwritten, and no number changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import proxode
from proxode.spares import LARGE, Spares
from proxode.vector_field import VectorField

SIZE = LARGE // 8 + 7  # float64: large enough to be written again
TIMES = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
METHODS = ("dopri5", "bosh3", "tsit5", "dopri8", "rk4", "auto")


def start(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(0.5, 1.5, SIZE, dtype=dtype)


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -y * y


def run(f, method: str, y0: Tensor) -> Tensor:
    with torch.no_grad():
        return proxode.odeint(f, y0, TIMES, rtol=1e-6, atol=1e-6, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_states_that_f_keeps_stay_as_they_were(method: str) -> None:
    kept, copies = [], []

    def keeping(t: Tensor, y: Tensor) -> Tensor:
        kept.append(y if len(kept) % 2 else y[3:])
        copies.append(kept[-1].clone())
        return decay(t, y)

    y = run(keeping, method, start())
    assert len(kept) > 4 and all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))
    assert torch.equal(y, run(decay, method, start()))


@pytest.mark.parametrize("method", METHODS)
def test_f_may_return_the_state_itself(method: str) -> None:
    for growth in (lambda t, y: y, lambda t, y: y.view(-1)):
        y = run(growth, method, start())
        assert torch.allclose(y[-1], start() * torch.e, rtol=1e-4 if method != "rk4" else 1e-2)
        assert torch.equal(y, run(lambda t, y: y.clone(), method, start()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_recorded_solve_has_the_same_numbers(method: str, dtype: torch.dtype) -> None:
    y0 = start(dtype).requires_grad_()
    recorded = proxode.odeint(decay, y0, TIMES, rtol=1e-6, atol=1e-6, method=method)
    assert recorded.requires_grad
    assert torch.equal(recorded.detach(), run(decay, method, y0.detach()))


def test_a_norm_may_keep_what_it_is_given() -> None:
    kept, copies = [], []

    def norm(x: Tensor) -> Tensor:
        kept.append(x)
        copies.append(x.clone())
        return x.abs().max()

    with torch.no_grad():
        proxode.odeint(decay, start(), TIMES, rtol=1e-6, atol=1e-6, method="dopri5", options={"norm": norm})
    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))


def test_dense_output_and_gradients_by_replay_are_not_touched() -> None:
    with torch.no_grad():
        solution = proxode.solve(decay, start(), 0.0, 1.0, method="dopri5", rtol=1e-8, atol=1e-8, dense=True)
    for t in (0.0, 0.13, 0.5, 0.91, 1.0):
        assert torch.allclose(solution.evaluate(t), start() / (1.0 + start() * t), rtol=1e-6)
    grads = []
    for gradient in ("implicit", "checkpoint"):
        y0 = start().requires_grad_()
        solution = proxode.solve(decay, y0, 0.0, 1.0, method="dopri5", gradient=gradient)
        grads.append(torch.autograd.grad(solution.ys[-1].sum(), y0)[0])
    assert torch.equal(*grads)


def test_memory_is_written_again_and_let_go_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, seen = [], set()
    made = VectorField.__init__

    def noting(self: VectorField, *args, **kwargs) -> None:
        made(self, *args, **kwargs)
        fields.append(self)

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.add(y.data_ptr())
        return -y

    monkeypatch.setattr(VectorField, "__init__", noting)
    with proxode.record() as stats:
        run(f, "dopri5", start())
    assert len(seen) < stats.n_f / 2
    assert all(not field.spares.pieces for field in fields)


def test_a_piece_that_somebody_holds_is_not_taken_again() -> None:
    spares = Spares()
    with torch.no_grad():
        piece = spares.take(start())
        view = piece[:3]
        spares.put(piece)
        assert not spares.pieces
        del view
        spares.put(piece)
        assert spares.take(start()) is piece
        assert spares.take(torch.zeros(3)) is None
    assert spares.take(start()) is None  # autograd records: nothing may be written
