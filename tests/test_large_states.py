"""Many unknowns, without matrices: work that grows as the square root of the stiffness, and memory of a few states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import proxode
from proxode.inner import INNER, Goal, ImplicitEquation
from proxode.paper.diffusion import Diffusion, density
from proxode.solution import Stats
from proxode.structure import Structure
from proxode.vector_field import VectorField


@pytest.fixture(autouse=True)
def without_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("DENSE_LIMIT", "GRID_LIMIT"):
        monkeypatch.setattr(proxode.inner, limit, 0)


def diffused(points: int, tol: float) -> tuple[float, Any]:
    problem, h0 = Diffusion(points), density(points)
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    with proxode.record() as stats:
        h = proxode.odeint(problem.f, h0, t, rtol=tol, atol=tol)
    return float((h[-1] - problem.exact(h0, t)[-1]).abs().max()), stats


@pytest.mark.parametrize(("points", "most"), [(256, 230), (1_024, 820), (2_048, 1_460), (4_096, 3_070)])
def test_work_grows_with_the_points_not_with_their_square(points: int, most: int) -> None:
    """The stiffness grows with their square. Solves of hundreds of iterations are not given up: after 100, the last
    one's would go on in another solver, with thousands of products."""
    error, stats = diffused(points, 0.03)
    assert error < 1e-4
    assert most / 2 < stats.nfe_forward <= most and stats.n_jvp == stats.n_jac == stats.n_inner_failed == 0


def test_patience_grows_with_the_stiffness_and_ends_with_the_unknowns() -> None:
    anderson = INNER["anderson"]

    def limits(stiffness: float, n: int, hurried: bool) -> tuple[int, int]:
        z = torch.ones(n, dtype=torch.float64)
        equation = _equation(stiffness, n)
        state = anderson.init(equation, z, equation.residual(z), Goal(0.1, 0.1, lambda x: 1.0))
        return anderson.limits(state, hurried=hurried)

    assert limits(100.0, 10**4, True) == (anderson.tries, anderson.patience)
    assert limits(1e6, 10**4, True) == pytest.approx((10_000, 1_000), rel=0.1)
    assert limits(1e6, 10**4, False) == pytest.approx((10_000, 1_000), rel=0.1)
    assert limits(1e12, 500, True) == (5_000, 500)


def _equation(stiffness: float, n: int) -> Any:
    anchor = torch.zeros(n, dtype=torch.float64)
    f = VectorField(lambda t, y: -stiffness * y, Structure.of(anchor), Stats())
    return ImplicitEquation(f, 0.0, anchor, 1.0)


class States(TorchDispatchMode):
    """The most tensors of the size of the state that were alive at once, in states."""

    def __init__(self, unknowns: int) -> None:
        super().__init__()
        self.unknowns, self.most, self.alive = unknowns, 0.0, {}  # type: ignore[var-annotated]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor) and x.untyped_storage().nbytes() >= 8 * self.unknowns // 2:
                storage = x.untyped_storage()
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: found for key, found in self.alive.items() if not found[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()) / (8 * self.unknowns))
        return out


def test_memory_is_a_few_states() -> None:
    """22 beside y0 and the two that f takes; and no fewer than are held for good: the count counts."""
    n = 110_000
    rates = torch.linspace(0.0, 1e4, n, dtype=torch.float64)
    y0 = torch.ones(n, dtype=torch.float64)
    with torch.no_grad(), States(n) as states, proxode.record() as stats:
        y = proxode.odeint(lambda t, y: -(rates * y), y0, torch.tensor([0.0, 1.0]), rtol=1e-3, atol=1e-3)
    assert float((y[-1] - torch.exp(-rates)).abs().max()) < 1e-2
    assert stats.n_steps > 20 and stats.n_jvp == 0
    assert 15 < states.most <= 22 + 1 + 2
