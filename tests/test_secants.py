"""Pairs of moves and changes of the residual: what must hold of them for a linear f."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from proxode.inner.secants import Secants

N = 12


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(secants: Secants, s: Tensor, q: Tensor) -> Secants:
    """With a move by s, from somewhere."""
    here, there = normal(2, N, seed=99).to(s.dtype)
    return secants.add(secants.leave(here, there), here + s, there + q)


def taught(jacobian: Tensor, gamma: float, count: int, seed: int, room: int = 10) -> Secants:
    """By `count` moves of a linear f."""
    secants = Secants.none(jacobian[0], room).at(gamma)
    for s in normal(count, N, seed=seed):
        secants = moved(secants, s, s - gamma * jacobian @ s)
    return secants


def assert_right(secants: Secants, jacobian: Tensor) -> None:
    s, q = secants.s[: secants.pairs], secants.q[: secants.pairs]
    assert torch.allclose(q @ q.mT, torch.eye(secants.pairs, dtype=q.dtype), atol=1e-10)
    assert torch.allclose(q, s - secants.gamma * s @ jacobian.mT, atol=1e-9)


@given(st.integers(0, 50), st.integers(1, 10), st.floats(0.01, 10.0), st.floats(0.01, 10.0))
@settings(max_examples=50, deadline=None)
def test_pairs_stay_pairs_and_orthonormal(seed: int, count: int, gamma: float, then: float) -> None:
    jacobian = -normal(N, N, seed=seed).mul(0.1).matrix_exp()
    secants = taught(jacobian, gamma, count, seed + 1)
    assert secants.pairs == count
    assert_right(secants, jacobian)
    for change in (lambda x: x.at(then), lambda x: x.newest(max(1, count // 2)), lambda x: x.compressed(count // 2)):
        assert_right(change(taught(jacobian, gamma, count, seed + 1)), jacobian)
    assert secants.stiffness <= float(torch.linalg.matrix_norm(jacobian, 2)) * (1 + 1e-9)


def test_the_least_residual_is_that_of_least_squares() -> None:
    jacobian, gamma = -normal(N, N, seed=0).mul(0.1).matrix_exp(), 0.7
    matrix, z, b = torch.eye(N, dtype=torch.float64) - gamma * jacobian, normal(N, seed=1), normal(N, seed=2)
    moves = normal(5, N, seed=4)
    secants = Secants.none(z, 8).at(gamma)
    for s in moves:
        secants = moved(secants, s, matrix @ s)
    at, left = secants.least_residual(z, matrix @ z - b)
    best = torch.linalg.lstsq(matrix @ moves.mT, (matrix @ z - b)[:, None]).solution[:, 0]
    assert torch.allclose(at, z - moves.mT @ best, atol=1e-9)
    assert torch.allclose(left, matrix @ at - b, atol=1e-9)


def test_the_newest_span_what_the_last_moves_spanned_and_the_slow_are_kept() -> None:
    rates = torch.logspace(0, 4, N, dtype=torch.float64)

    def of_units() -> Secants:
        secants = Secants.none(rates, 16).at(1.0)
        for s in torch.eye(N, dtype=torch.float64):
            secants = moved(secants, s, s * (1 + rates))
        return secants

    newest, slow = of_units().newest(3), of_units().compressed(3)
    assert float(newest.q[:3, : N - 3].abs().max()) < 1e-12
    assert float(slow.q[:3, 3:].abs().max()) < 1e-12


@pytest.mark.parametrize("again", [True, False])
def test_a_move_that_tells_nothing_new_changes_nothing(again: bool) -> None:
    jacobian = -normal(N, N, seed=0).mul(0.1).matrix_exp()
    secants = taught(jacobian, 0.5, 3, seed=1)
    s = normal(3, N, seed=1)[0] if again else torch.zeros(N, dtype=torch.float64)
    same = moved(secants, s, s - 0.5 * jacobian @ s)
    assert same.pairs == 3 and same.stiffness == secants.stiffness > 0
    assert_right(same, jacobian)


def test_pairs_that_are_almost_dependent_stay_orthogonal() -> None:
    """After one orthogonalisation alone, by 1e-9: rounding, over the part that is new."""
    base, others = normal(N, seed=0), normal(5, N, seed=1)
    secants = Secants.none(base, 8).at(1.0)
    for other in others:
        s = base + 1e-6 * other
        secants = moved(secants, s, 2 * s)
    q = secants.q[:5]
    assert secants.pairs == 5
    assert float((q @ q.mT - torch.eye(5, dtype=q.dtype)).abs().max()) < 1e-14


@pytest.mark.parametrize("columns", [5, N])
def test_pairs_that_have_become_dependent_are_fewer_and_buffers_are_used_again(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At another gamma, two moves may change the residual in the same way; large states are worked on in parts."""
    monkeypatch.setattr("proxode.inner.secants.COLUMNS", columns)
    base, other = normal(2, N, seed=0)
    secants = moved(Secants.none(base, 8).at(1.0), base, base)
    secants = moved(secants, other, other - base)  # J other = base
    both = secants.at(0.5)
    assert both.pairs == 2 and both.s.data_ptr() == secants.s.data_ptr() and both.q.data_ptr() == secants.q.data_ptr()
    q = torch.stack([base, base * (1 + 1e-9)])
    once = Secants(q.clone(), q.clone(), torch.zeros(2, 2, dtype=q.dtype), 2, 1.0).at(2.0)
    assert once.pairs == 1
    assert torch.allclose(once.q[0].abs(), (base / base.norm()).abs(), atol=1e-9)


def test_pairs_that_are_nearly_dependent_at_another_gamma_become_orthonormal() -> None:
    """Products of the q alone leave the square root of the precision."""
    base, other = normal(2, N, seed=3)
    q = torch.stack([base, base + 1e-4 * other])
    made = Secants(q.clone(), q.clone(), torch.zeros(2, 2, dtype=q.dtype), 2, 1.0).at(2.0)
    assert made.pairs == 2
    assert float((made.q @ made.q.mT - torch.eye(2, dtype=q.dtype)).abs().max()) < 1e-14
