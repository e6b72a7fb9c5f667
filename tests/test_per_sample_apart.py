"""`per_sample=True` where it does not fit: samples that know of each other, and an f that is random."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxode
from proxode import Status

Y0 = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NORM = nn.BatchNorm1d(3, dtype=torch.float64)

COUPLED: dict[str, Any] = {
    "batch norm": lambda t, y: NORM(y) - 10 * y,
    "mean": lambda t, y: y.mean(0) - y,
    "graph": lambda t, y: torch.roll(y, 1, 0) - y,
    "one pair": lambda t, y: torch.cat([-y[:1], y[1:2] * y[4:5], -y[2:]]),
    "times": lambda t, y: t.sum() - y,
    "first time": lambda t, y: t[0] - y,
    "last time": lambda t, y: t[-1] - y,
    "first sample": lambda t, y: y[:1] - 2 * y,
}


def solve(f: Any, y0: Tensor = Y0, **options: Any) -> proxode.Solution:
    torch.manual_seed(0)
    return proxode.solve(f, y0, 0.0, 1.0, per_sample=True, **options)


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
@pytest.mark.parametrize("name", COUPLED)
def test_samples_that_know_of_each_other_are_refused(name: str, method: str) -> None:
    """Each takes its own steps, at which the others are not."""
    with pytest.raises(ValueError, match=r"`per_sample` takes dimension 0 .* f of sample [135] changes"):
        solve(COUPLED[name], method=method)


@pytest.mark.parametrize("y0", [Y0[:1].expand(6, 3), torch.zeros(6, 3, dtype=torch.float64)], ids=["alike", "zero"])
def test_samples_that_begin_alike_are_refused_too(y0: Tensor) -> None:
    with pytest.raises(ValueError, match="`per_sample`"):
        solve(lambda t, y: y.mean(0) - 2 * y, y0)


def test_a_time_that_is_laid_over_the_components_is_seen() -> None:
    with pytest.raises(ValueError, match=r"t\[:, None\]"):
        solve(lambda t, y: -t * y, Y0[:3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_samples_that_stand_alone_are_not(dtype: torch.dtype, scale: float) -> None:
    """Whatever their sizes, with a network and with numbers of their own, for one more evaluation."""
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3)).to(dtype)
    rates = torch.logspace(0, 4, 6, dtype=dtype)[:, None]

    def f(t: Tensor, y: Tensor) -> Tensor:
        return scale * net(y / scale) * torch.cos(t)[:, None] - rates * y

    solution = solve(f, scale * Y0.to(dtype), method="bdf", atol=1e-6 * scale)
    assert solution.status is Status.SUCCESS


def test_what_has_no_value_elsewhere_is_no_witness() -> None:
    solution = solve(lambda t, y: 1.0 - torch.exp(-torch.log(1.0001 - y)) - 2e4 * y, torch.ones(4, 1), method="bdf")
    assert solution.status is Status.SUCCESS


def chosen(t: Tensor, y: Tensor) -> Tensor:
    """By a number in the state, which is a place in a table."""
    table = torch.linspace(1.0, 2.0, 6, dtype=y.dtype)
    return torch.stack([0 * y[:, 0], -(y[:, 1] - 1e4) * table[y[:, 0].round().long()]], 1)


def likely(t: Tensor, y: Tensor) -> Tensor:
    if bool((y > 1).any()):
        raise ValueError("no probability")
    return -y


@pytest.mark.parametrize(
    ("f", "y0"),
    [(chosen, torch.stack([torch.arange(6.0), 1e4 + torch.arange(6.0)], 1).double()), (likely, torch.ones(4, 2))],
    ids=["index", "probability"],
)
def test_an_f_that_has_values_in_some_places_only_is_no_reason(f: Any, y0: Tensor) -> None:
    assert solve(f, y0, method="bdf").status is Status.SUCCESS


@pytest.mark.parametrize("batch", [4, 16])
def test_rounding_that_depends_on_who_goes_where_is_no_coupling(batch: int) -> None:
    """Beside an equilibrium, f is what is left of large terms; and rows are multiplied in another order."""
    first, second = (torch.rand(64, 64, generator=torch.Generator().manual_seed(i)) / 64 for i in (1, 2))

    def experts(y: Tensor) -> Tensor:
        mask, out = y[:, 0] > 0.5, torch.empty_like(y)
        out[mask], out[~mask] = y[mask] @ first, y[~mask] @ second
        return out - 2 * y

    y0 = torch.rand(batch, 64, generator=torch.Generator().manual_seed(0))
    rest = experts(y0)
    assert solve(lambda t, y: 1e3 * (experts(y) - rest), y0, method="bdf").status.ok


@pytest.mark.parametrize("method", ["auto", "bdf"])
def test_a_random_f_ends_a_batch_soon(method: str) -> None:
    """And not after thousands of steps that noise makes short."""
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3)).double()
    solution = solve(lambda t, y: net(y) - 100 * y, method=method, throw=False)
    assert solution.status is Status.RANDOM and solution.samples is not None
    assert set(solution.samples.status) == {Status.RANDOM}
    assert solution.stats.nfe_forward < 2_000 and "eval()" in solution.message
    net.eval()
    assert solve(lambda t, y: net(y) - 100 * y, method=method).status is Status.SUCCESS
