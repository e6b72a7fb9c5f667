"""Diffusion on N points to T = 1, as each library is asked to solve it. What prepares a run is called in a process of
its own, so that libraries are imported only where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxode.paper.diffusion import Diffusion, density

from .contest import Answer, Prepare, Run

END = 1.0
Array = NDArray[np.float64]


def setting(points: int, outputs: int) -> tuple[Diffusion, Tensor, Tensor, Array]:
    """The problem, where it starts, the times that are looked at (with the first), and the solution there."""
    problem, h0 = Diffusion(points), density(points)
    times = torch.linspace(0.0, END, outputs + 1, dtype=torch.float64)
    return problem, h0, times, problem.exact(h0, times).numpy()


def error(found: Any, exact: Array) -> float:
    """The largest after the first time. CVODE returns all its steps where there are only two times."""
    count = len(exact) - 1
    return float(np.abs(np.asarray(found)[-count:] - exact[1:]).max())


def ours(points: int, outputs: int = 1, method: str = "auto", matrix_free: bool = False) -> Prepare:
    import proxode

    if matrix_free:  # whatever the size, in this process
        proxode.inner.DENSE_LIMIT = proxode.inner.GRID_LIMIT = 0

    problem, h0, times, exact = setting(points, outputs)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            with proxode.record() as stats:
                hs = proxode.odeint(problem.f, h0, times, rtol=tol, atol=tol, method=method)
            return Answer(error(hs.numpy(), exact), stats.nfe_forward, {"steps": stats.n_steps})

        return run

    return prepare


def torchdiffeq_dopri5(points: int, outputs: int = 1) -> Prepare:
    import torchdiffeq

    problem, h0, times, exact = setting(points, outputs)

    def prepare(tol: float) -> Run:
        @torch.no_grad()
        def run() -> Answer:
            calls = 0

            def f(t: Tensor, h: Tensor) -> Tensor:
                nonlocal calls
                calls += 1
                return problem.f(t, h)

            hs = torchdiffeq.odeint(f, h0, times, rtol=tol, atol=tol, method="dopri5")
            return Answer(error(hs.numpy(), exact), calls)

        return run

    return prepare


def torchode_dopri5(points: int, outputs: int = 1) -> Prepare:
    import torchode

    problem, h0, times, exact = setting(points, outputs)

    def f(t: Tensor, h: Tensor) -> Tensor:
        return (torch.roll(h, 1, -1) + torch.roll(h, -1, -1) - 2 * h) / problem.dx**2

    def prepare(tol: float) -> Run:
        term = torchode.ODETerm(f)
        controller = torchode.IntegralController(atol=tol, rtol=tol, term=term)
        solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term=term), controller)
        start = torchode.InitialValueProblem(y0=h0[None], t_eval=times[None])

        @torch.no_grad()
        def run() -> Answer:
            solution = solver.solve(start)
            return Answer(error(solution.ys[0].numpy(), exact), int(solution.stats["n_f_evals"].max()))

        return run

    return prepare


def diffrax_kvaerno5(points: int, outputs: int = 1) -> Prepare:
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    problem, h0, times, exact = setting(points, outputs)
    start, saved = jnp.asarray(h0.numpy()), diffrax.SaveAt(ts=jnp.asarray(times.numpy()))

    def f(t: Any, h: Any, _: Any) -> Any:
        return (jnp.roll(h, 1) + jnp.roll(h, -1) - 2 * h) / problem.dx**2

    def prepare(tol: float) -> Run:
        @jax.jit
        def solve(h: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(f), diffrax.Kvaerno5(), 0.0, END, None, h, saveat=saved, max_steps=100_000,
                stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol),
            )  # fmt: skip

        def run() -> Answer:
            done = solve(start)
            return Answer(error(done.ys, exact), None, {"steps": int(done.stats["num_steps"])})

        return run

    return prepare


def numpy_diffusion(points: int) -> Any:
    """f for the libraries that want it in numpy, without an array made on the way."""
    scale = 1.0 / Diffusion(points).dx ** 2

    def into(t: float, h: Array, out: Array) -> None:
        np.multiply(h, -2.0, out=out)
        out[1:] += h[:-1]
        out[:-1] += h[1:]
        out[0] += h[-1]
        out[-1] += h[0]
        out *= scale

    return into


class Counted:
    """numpy's f, as CVODE (`into`) and as SciPy want it: with every call counted, those for a Jacobian too."""

    def __init__(self, points: int) -> None:
        self.f, self.calls = numpy_diffusion(points), 0

    def into(self, t: float, h: Array, out: Array) -> None:
        self.calls += 1
        self.f(t, h, out)

    def __call__(self, t: float, h: Array) -> Array:
        out = np.empty_like(h)
        self.into(t, h, out)
        return out


def cvode_gmres(points: int, outputs: int = 1, vectors: int = 5) -> Prepare:
    """GMRES that restarts after so many vectors; five are its default."""
    from sksundae.cvode import CVODE

    _, h0, times, exact = setting(points, outputs)

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            f = Counted(points)
            solver = CVODE(f.into, rtol=tol, atol=tol, method="BDF", linsolver="gmres", krylov_dim=vectors,
                           max_num_steps=10_000_000)  # fmt: skip
            done = solver.solve(times.numpy(), h0.numpy())
            if not done.success:
                raise RuntimeError(str(done.message))
            return Answer(error(done.y, exact), f.calls)

        return run

    return prepare


def scipy_bdf(points: int, outputs: int = 1, told: bool = False) -> Prepare:
    """With its Jacobian by differences, dense; or told where its entries are, and sparse."""
    from scipy.integrate import solve_ivp
    from scipy.sparse import eye

    _, h0, times, exact = setting(points, outputs)
    ring = sum(eye(points, k=k) for k in (-points + 1, -1, 0, 1, points - 1)).tocsc() if told else None

    def prepare(tol: float) -> Run:
        def run() -> Answer:
            f = Counted(points)
            done = solve_ivp(f, (0.0, END), h0.numpy(), method="BDF", rtol=tol, atol=tol, t_eval=times.numpy(),
                             jac_sparsity=ring)  # fmt: skip
            if not done.success:
                raise RuntimeError(str(done.message))
            return Answer(error(done.y.T, exact), f.calls)

        return run

    return prepare
