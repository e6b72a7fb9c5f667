"""What each process of tests/test_distributed.py runs, under torchrun: named cases, whose findings go into a JSON file
for each rank. `python tests/distributed_cases.py FOLDER CASE ...`"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import proxode
from proxode.distributed import halo, process_group, sum_gradients
from proxode.spread import Spread

GRADIENTS = ("direct", "implicit", "checkpoint", "continuous")
CASES: dict[str, Callable[[], Any]] = {}
WIDE = 6  # columns of the grid
# One process solves small systems of backward exactly, and so must several, to be the same.
EXACT = {"implicit": proxode.gradients.Implicit(rtol=1e-13), "checkpoint": proxode.gradients.Checkpoint(rtol=1e-13)}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def rank() -> int:
    return dist.get_rank()


def off(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


# Every process has its own samples


class Decay(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(3, 8, dtype=torch.float64), nn.Linear(8, 3, dtype=torch.float64)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.outside(torch.tanh(self.inside(y))) - 5 * y**3


class Model(nn.Module):
    def __init__(self, method: str, gradient: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f, self.head = Decay(), nn.Linear(3, 1, dtype=torch.float64)
        self.method, self.options = method, {"gradient": gradient}
        if method == "bdf2":
            self.options["step_size"] = 0.25

    def forward(self, x: Tensor) -> Tensor:
        t = torch.tensor([0.0, 1.0])
        with proxode.record() as self.stats:
            y = proxode.odeint(self.f, x, t, rtol=1e-4, atol=1e-6, method=self.method, options=self.options)
        return self.head(y[-1])


def samples() -> list[Tensor]:
    """Of all ranks. Those of later ones are further from rest and take more steps."""
    generator = torch.Generator().manual_seed(1)
    parts = torch.randn(dist.get_world_size(), 2, 3, generator=generator, dtype=torch.float64)
    return [part * 10.0**i for i, part in enumerate(parts)]


def compared(wrap: Callable[[nn.Module], nn.Module]) -> dict[str, Any]:
    """The gradients of a wrapped model, each process with its own samples, beside those of one process with all."""
    found = {}
    for method in ("bdf", "dopri5", "bdf2"):
        for gradient in GRADIENTS:
            if gradient == "direct" and method == "bdf":
                continue  # thousands of iterations, as bdf2 shows with fewer
            model, alone = Model(method, gradient), Model(method, gradient)
            wrapped = wrap(model)
            wrapped(samples()[rank()]).pow(2).mean().backward()
            (sum(alone(part).pow(2).mean() for part in samples()) / dist.get_world_size()).backward()
            pairs = zip(model.parameters(), alone.parameters(), strict=True)
            errors = [off(p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad, q.grad) for p, q in pairs]
            found[f"{method} {gradient}"] = {"nfe": model.stats.nfe_forward, "off": max(errors)}
    return found


@case
def data_parallel() -> dict[str, Any]:
    return compared(DistributedDataParallel)


@case
def fully_sharded() -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return compared(lambda model: fully_shard(model, mesh=mesh, reshard_after_forward=True))


@case
def func_that_communicates() -> dict[str, Any]:
    """What is said of it, and that with `group` all processes take the same steps."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x, t = samples()[rank()], torch.tensor([0.0, 1.0])
    parallel, sharded = DistributedDataParallel(Decay()), fully_shard(Decay(), mesh=mesh)
    messages = []
    for func, method in ((parallel, "rk4"), (sharded, "bdf"), (sharded, "dopri5")):
        try:
            proxode.odeint(func, x, t, method=method)
            messages.append("")
        except ValueError as error:
            messages.append(str(error))
    with proxode.record() as stats, torch.no_grad():
        proxode.odeint(sharded, x, t, method="bdf", options={"group": dist.group.WORLD}, rtol=1e-4, atol=1e-6)
        fixed = proxode.odeint(sharded, samples()[0], t, method="rk4", options={"step_size": 0.1})
    return {"messages": messages, "nfe": stats.nfe_forward, "fixed": bool(torch.isfinite(fixed).all())}


# One state, divided over the processes


def start(rows: int) -> Tensor:
    return torch.randn(rows, WIDE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def laplacian(x: Tensor, rows_padded: Tensor) -> Tensor:
    beside = nn.functional.pad(x, (1, 1))
    return rows_padded[:-2] + rows_padded[2:] + beside[:, :-2] + beside[:, 2:] - 4 * x


def heat(mesh: Any, k: Tensor) -> Callable[[Tensor, Any], Any]:
    def f(t: Tensor, u: Any) -> Any:
        x = u.to_local()
        rate = k * laplacian(x, halo(x, mesh)) - x**3
        return DTensor.from_local(rate, mesh, u.placements, run_check=False, shape=u.shape, stride=u.stride())

    return f


def heat_alone(k: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda t, x: k * laplacian(x, nn.functional.pad(x, (0, 0, 1, 1))) - x**3


RUNS: tuple[dict[str, Any], ...] = (
    {"method": "bdf"}, {"method": "dopri5"}, {"method": "auto"}, {"method": "rkc2"},
    {"method": "bdf2", "step_size": 0.02}, {"method": "bdf2", "step_size": 0.02, "inner": "lbfgs"},
    {"method": "bdf2", "step_size": 0.02, "inner": "nag"}, {"method": "bdf", "inner": "newton_krylov"},
    {"method": "bdf", "inner": "cg"}, {"method": "crank_nicolson", "step_size": 0.02, "inner": "fr"},
    {"method": "multistage2", "step_size": 0.05},
)  # fmt: skip


def solved(func: Any, y0: Any, k: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    save_at = torch.tensor([0.05, 0.1], dtype=torch.float64)
    exact = EXACT.get(options.get("gradient", "implicit"))
    options = options if exact is None else {**options, "gradient": exact}
    with proxode.record() as stats:
        found = proxode.solve(func, y0, 0.0, 0.1, save_at=save_at, rtol=1e-3, atol=1e-5, **options)
    (found.ys.to_local() if isinstance(found.ys, DTensor) else found.ys).pow(2).sum().backward()
    return {"ys": found.ys, "y0": y0.grad, "k": k.grad, "steps": stats.n_steps, "nfe": stats.nfe_forward}


def beside_one_process(rows: int, options: dict[str, Any]) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    k, k_alone = (torch.tensor(20.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found = solved(heat(mesh, k), distribute_tensor(start(rows), mesh, [Shard(0)]).requires_grad_(), k, options)
    sum_gradients([k], mesh)
    inner = {"inner": "anderson"} if options["method"] not in ("dopri5", "rkc2") else {}
    alone = solved(heat_alone(k_alone), start(rows).requires_grad_(), k_alone, {**inner, **options})
    return {
        "ys": off(found["ys"].full_tensor(), alone["ys"]), "y0": off(found["y0"].full_tensor(), alone["y0"]),
        "k": off(k.grad, k_alone.grad), "steps": [found["steps"], alone["steps"]],
        "nfe": [found["nfe"], alone["nfe"]],
    }  # fmt: skip


@case
def divided() -> dict[str, Any]:
    """Nine rows: no number of processes but one and three divides them evenly."""
    found = {str(options): beside_one_process(9, options) for options in RUNS}
    for gradient in ("direct", "checkpoint", "continuous"):
        options = {"method": "bdf2", "step_size": 0.02, "gradient": gradient}
        found[str(options)] = beside_one_process(9, options)
    return found


@case
def divided_briefly() -> dict[str, Any]:
    return {str(options): beside_one_process(10, options) for options in (RUNS[0], RUNS[4])}


@case
def other_layouts() -> dict[str, Any]:
    """Columns divided; two tensors; a norm of the user's; plain tensors and a group."""
    mesh, found = init_device_mesh("cpu", (dist.get_world_size(),)), {}
    whole = start(6)
    expected = proxode.solve(heat_alone(torch.tensor(2.0)), whole, 0.0, 0.1, method="bdf", inner="anderson").ys[-1]

    def by_columns(t: Tensor, u: Any) -> Any:
        x = u.to_local()
        rows, beside = nn.functional.pad(x, (0, 0, 1, 1)), halo(x, mesh, dim=1)
        rate = 2.0 * (rows[:-2] + rows[2:] + beside[:, :-2] + beside[:, 2:] - 4 * x) - x**3
        return DTensor.from_local(rate, mesh, u.placements)

    y0 = distribute_tensor(whole, mesh, [Shard(1)])
    found["columns"] = off(proxode.solve(by_columns, y0, 0.0, 0.1, method="bdf").ys[-1].full_tensor(), expected)

    f, y0 = heat(mesh, torch.tensor(2.0)), distribute_tensor(whole, mesh, [Shard(0)])
    pair = proxode.solve(lambda t, uv: (f(t, uv[0]), -uv[1]), (y0, y0), 0.0, 0.1, method="bdf").ys
    found["tuple"] = max(off(pair[0][-1].full_tensor(), expected), off(pair[1][-1].full_tensor(), whole * 0.904837418))

    normed = proxode.solve(f, y0, 0.0, 0.1, method="bdf", norm=lambda u: u.abs().max())
    found["norm"] = off(normed.ys[-1].full_tensor(), expected)

    def on_parts(t: Tensor, x: Tensor) -> Tensor:
        return 2.0 * laplacian(x, halo(x)) - x**3

    own = whole.chunk(dist.get_world_size())[rank()]
    part = proxode.solve(on_parts, own, 0.0, 0.1, method="bdf", group=dist.group.WORLD).ys[-1]
    found["group"] = off(part, expected.chunk(dist.get_world_size())[rank()])
    copies = distribute_tensor(whole, mesh, [Replicate()])
    same = proxode.solve(lambda t, u: -u, copies, 0.0, 0.1, method="dopri5").ys[-1]
    found["copies"] = off(same.full_tensor(), whole * 0.904837418)
    return found


@case
def corners() -> dict[str, Any]:
    """Where a process could decide by itself: parts that differ in what they depend on, in size, in the user's norm."""
    found: dict[str, Any] = {}
    alone = rank() == 0
    y = torch.linspace(0.5, 1.0, 3 if alone else 1, dtype=torch.float64)
    options: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-7, "group": dist.group.WORLD}

    def inert(t: Tensor, x: Tensor) -> Tensor:
        """Only the first process's part moves by itself."""
        return -x * x if alone else torch.ones_like(x)

    for method, inner in (("bdf", "auto"), ("dopri5", "auto"), ("bdf", "newton_krylov")):
        y0 = y.clone().requires_grad_()
        out = proxode.solve(inert, y0, 0.0, 1.0, method=method, inner=inner, **options).ys[-1]
        out.sum().backward()
        exact, slope = (y / (1 + y), (1 + y) ** -2) if alone else (y + 1, torch.ones_like(y))
        found[f"inert {method} {inner}"] = max(off(out, exact), off(y0.grad, slope))
    tolerance = torch.full_like(y, 1e-7)
    exact = y * torch.exp(-torch.ones_like(y))
    found["tolerance"] = off(
        proxode.solve(lambda t, x: -x, y, 0.0, 1.0, method="bdf", **{**options, "atol": tolerance}).ys[-1], exact
    )
    with proxode.record() as stats:
        worst = {**options, "norm": lambda x: x.abs().max()}
        out = proxode.solve(lambda t, x: -x, y, 0.0, 1.0, method="dopri5", **worst).ys[-1]
    found["norm"], found["norm steps"] = off(out, exact), stats.n_steps
    stiff = proxode.solve(
        lambda t, x: -(1.0 if alone else 1e4) * x, y, 0.0, 1.0, method="crank_nicolson", step_size=0.1, dense=True,
        save_at=torch.tensor([0.05, 1.0], dtype=torch.float64), **options,
    )  # fmt: skip
    found["dense"] = float((stiff.evaluate(0.05) - stiff.ys[0]).abs().max())
    return found


@case
def messages() -> dict[str, Any]:
    """Sums over the processes for each evaluation of f, in a solve and in its backward pass."""
    found, sent, reduced = {}, [0], Spread._reduced

    def counted(self: Spread, x: Tensor, by: Any) -> Tensor:
        sent[0] += 1
        return reduced(self, x, by)

    Spread._reduced = counted  # type: ignore[method-assign]
    try:
        for options in (RUNS[0], RUNS[1], RUNS[4]):
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            k = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
            y0 = distribute_tensor(start(9), mesh, [Shard(0)]).requires_grad_()
            sent[0] = 0
            with proxode.record() as stats:
                out = proxode.solve(heat(mesh, k), y0, 0.0, 0.1, rtol=1e-3, atol=1e-5, **options).ys[-1]
            forward = sent[0]
            out.to_local().sum().backward()
            found[str(options)] = [forward / stats.nfe_forward, (sent[0] - forward) / stats.nfe_backward]
    finally:
        Spread._reduced = reduced  # type: ignore[method-assign]
    return found


@case
def robertson_cells() -> dict[str, Any]:
    """Strongly nonlinear at the start, where a difference says little: not to be refused."""
    y0 = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).repeat(2, 1).requires_grad_()

    def f(t: Tensor, y: Tensor) -> Tensor:
        a, b, c = y.unbind(-1)
        first, third = -0.04 * a + 1e4 * b * c, 3e7 * b * b
        return torch.stack([first, -first - third, third], -1)

    settings: dict[str, Any] = {"method": "bdf", "inner": "newton_krylov", "rtol": 1e-4, "atol": 1e-8}
    out = proxode.solve(f, y0, 0.0, 10.0, group=dist.group.WORLD, **settings).ys[-1]
    out[:, 0].sum().backward()
    mass = float((out.sum(-1) - 1).abs().max())
    return {"mass": mass, "a": float(out[0, 0]), "gradient": bool(torch.isfinite(y0.grad).all())}


@case
def noise() -> dict[str, Any]:
    """Uneven parts in float32, whose residual is rounding: GMRES restarts at the same product everywhere."""
    rows = (6_000, 12_000)[rank()]
    y0 = torch.rand(rows, generator=torch.Generator().manual_seed(rank()))

    def ring(t: Tensor, y: Tensor) -> Tensor:
        x = halo(y, ends="wrap")
        return 1e6 * (x[2:] - 2 * y + x[:-2])

    options: dict[str, Any] = {"method": "bdf2", "step_size": 0.05, "inner": "anderson", "throw": False}
    solution = proxode.solve(ring, y0, 0.0, 0.1, rtol=1e-5, atol=1e-6, group=dist.group.WORLD, **options)
    return {"status": solution.status.name, "nfe": solution.stats.nfe_forward}


@case
def halos() -> dict[str, Any]:
    """The rows around a part, and `<H x, w> = <x, H^T w>` over all processes, for every kind of end."""
    found, size = {}, dist.get_world_size()
    whole = torch.arange(1.0, 3 * size + 1, dtype=torch.float64)[:, None].expand(-1, 2).contiguous()
    own = whole.chunk(size)[rank()]
    for ends, mode in (("zero", "constant"), ("edge", "replicate"), ("wrap", "circular")):
        for width in (1, 2):
            padded = nn.functional.pad(whole.mT[None], (width, width), mode=mode)[0].mT
            expected = padded[3 * rank() : 3 * rank() + 3 + 2 * width]
            x = own.clone().requires_grad_()
            y = halo(x, width=width, ends=ends)
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(rank()), dtype=y.dtype)
            (pulled,) = torch.autograd.grad(y, x, weights, create_graph=True)
            products = torch.stack([(y * weights).sum(), (x * pulled).sum()]).detach()
            dist.all_reduce(products)
            with torch.autograd.forward_ad.dual_level():
                pushed = halo(torch.autograd.forward_ad.make_dual(own, own), width=width, ends=ends)
                tangent = torch.autograd.forward_ad.unpack_dual(pushed).tangent
            found[f"{ends} {width}"] = [
                float((y - expected).detach().abs().max()), float((tangent - expected).abs().max()),
                float((products[0] - products[1]).abs() / products[0].abs()),
            ]  # fmt: skip
    return found


# Exchanges in f: with one row of each neighbour around this process's own, zeros beyond the ends


def around(x: Tensor, edges: Any) -> Tensor:
    """Of the first and the last row of every process."""
    none, last = torch.zeros_like(x[:1]), dist.get_world_size() - 1
    above = edges[rank() - 1][1:] if rank() > 0 else none
    below = edges[rank() + 1][:1] if rank() < last else none
    return torch.cat([above, x, below])


def edges_of(x: Tensor) -> Tensor:
    return torch.stack([x[0], x[-1]])


def gathered(x: Tensor) -> Tensor:
    """Wrong: autograd does not know what others have sent."""
    parts = [torch.empty_like(edges_of(x)) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, edges_of(x).detach())
    parts[rank()] = edges_of(x)
    return around(x, parts)


def sent(x: Tensor) -> Tensor:
    """Wrong likewise."""
    edges = torch.zeros(dist.get_world_size(), 2, dtype=x.dtype)
    own = edges_of(x).detach()
    beside = [other for other in (rank() - 1, rank() + 1) if 0 <= other < dist.get_world_size()]
    operations = [dist.P2POp(dist.isend, own, other) for other in beside]
    operations += [dist.P2POp(dist.irecv, edges[other], other) for other in beside]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return around(x, edges)


def half_sent(x: Tensor) -> Tensor:
    """Wrong in one direction only."""
    rows = halo(x)
    return torch.cat([rows[:-1], rows[-1:].detach()])


def gathered_whole(x: Tensor) -> Tensor:
    """Wrong: every process takes of the gradient of the whole what its own use of it gave."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    total = torch.tensor(len(x))
    dist.all_reduce(total)
    whole = DTensor.from_local(x, mesh, [Shard(0)], shape=(int(total),), stride=(1,)).full_tensor()
    first = 0 if rank() == 0 else int(total) - len(x)
    return nn.functional.pad(whole, (1, 1))[first : first + len(x) + 2]


def redistributed(x: Tensor) -> Tensor:
    """Right: the same rows, but their gradients are summed."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    edges = DTensor.from_local(edges_of(x)[None], mesh, [Shard(0)]).redistribute(placements=[Replicate()])
    return around(x, edges.to_local(grad_placements=[Partial()]))


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "halo": halo, "all_gather": lambda x: around(x, differentiable.all_gather(edges_of(x))), "DTensor": redistributed,
}  # fmt: skip
WRONG = {"all_gather": gathered, "isend": sent, "one way": half_sent, "full_tensor": gathered_whole}


def along(rows: Tensor) -> Tensor:
    return rows[2:] - 2 * rows[1:-1] + rows[:-2]


def mean_of_all(x: Tensor, summed: Callable[[Tensor], Tensor]) -> Tensor:
    return summed(x.sum()) / summed(torch.ones_like(x).sum())


def sum_of_own(x: Tensor) -> Tensor:
    """Wrong: of what the sum is made of, autograd knows this process's part."""
    total = x.detach().clone()
    dist.all_reduce(total)
    return total + x - x.detach()


def flows(rows: Callable[[Tensor], Tensor]) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Of t and x: linear, stiff, with corners (at which states begin), and with what is not linear in what is sent."""
    return {
        "mild": lambda t, x: along(rows(x)), "stiff": lambda t, x: 1e6 * along(rows(x)),
        "stiff cells": lambda t, x: along(rows(x)) - 1e4 * x**3,
        "upwind": lambda t, x: torch.relu(x) * (rows(x)[:-2] - x) + rows(x)[2:].abs() - x,
        "porous": lambda t, x: 1e3 * along(rows(x).abs() ** 3),
        "roots": lambda t, x: rows(x)[2:].clamp(min=0).sqrt() - x,
    }  # fmt: skip


def means(right: bool) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """A sum over all beside a stiff part: a part of each process, or right exchanges with neighbours."""
    summed = differentiable.all_reduce if right else sum_of_own
    return {
        "cells": lambda t, x: mean_of_all(x, summed) - x - 100.0 * x**3,
        "neighbours": lambda t, x: mean_of_all(x, summed) - x + 1e4 * along(halo(x)),
    }


def is_refused(f: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> bool:
    """With a parameter that wants a gradient."""
    k = torch.tensor(1.0, dtype=x.dtype, requires_grad=True)
    try:
        proxode.solve(
            lambda t, x: k * f(t, x), x, 0.0, 1e-9, method="euler", step_size=1e-9, group=dist.group.WORLD
        )
    except RuntimeError as error:
        if "the backward of func is not the transpose of its forward" not in str(error):
            raise
        return True
    return False


def own_rows(whole: Tensor) -> Tensor:
    return whole.tensor_split(dist.get_world_size())[rank()].clone()


@case
def wrong_exchanges() -> dict[str, list[Any]]:
    """Sizes at which they are not refused; for two processes."""
    found: dict[str, list[Any]] = {}
    for name, rows in WRONG.items():
        fields = flows(rows)
        sizes = [*range(2, 42, 1 if name == "all_gather" else 3), 72, 74, 400, 10_000]
        found[name] = [n for n in sizes if not is_refused(fields["mild"], own_rows(torch.arange(n).double().sin()))]
        for flow in ("stiff", "stiff cells"):
            for dtype in (torch.float64, torch.float32):
                starts = {n: own_rows(torch.arange(n).sin().to(dtype)) for n in (2, 18, 40, 400)}
                found[f"{name} {flow} {dtype}"] = [n for n, x in starts.items() if not is_refused(fields[flow], x)]
    for name, f in means(right=False).items():
        starts = {n: own_rows(torch.arange(n).double().sin()) for n in (4, 18, 40, 400, 10_000)}
        found[f"mean beside {name}"] = [n for n, x in starts.items() if not is_refused(f, x)]
    return found


@case
def right_exchanges() -> dict[str, list[Any]]:
    """Sizes at which they are refused; for two processes."""
    found: dict[str, list[Any]] = {}
    fields = {f"halo {flow}": f for flow, f in flows(halo).items()}
    fields |= {f"{name} upwind": flows(rows)["upwind"] for name, rows in RIGHT.items() if name != "halo"}
    for name, f in {**fields, **{f"mean {name}": f for name, f in means(right=True).items()}}.items():
        for dtype in (torch.float64, torch.float32):
            for n in (2, 3, 18, 401):
                waves, zeros = own_rows(torch.arange(n).sin().to(dtype)), own_rows(torch.zeros(n, dtype=dtype))
                small, far = 1e-6 * waves, 1e3 + waves
                states = {"waves": waves, "zeros": zeros, "small": small, "far": far}
                found.setdefault(name, []).extend([n, str(dtype), at] for at, x in states.items() if is_refused(f, x))
    return found


@case
def losses() -> dict[str, float]:
    """How far the gradients of docs/distributed.md's losses of a divided state are from those of one process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    options = {"method": "bdf2", "step_size": 0.02, "inner": "anderson", "gradient": EXACT["implicit"], "rtol": 1e-9}

    def gradients(func: Any, y0: Any, k: Tensor, loss: Callable[[Any], Any]) -> list[Tensor]:
        loss(proxode.solve(func, y0, 0.0, 0.1, **options).ys[-1]).backward()
        sum_gradients([k], mesh)
        return [y0.grad.full_tensor() if isinstance(y0.grad, DTensor) else y0.grad, k.grad]

    def copied() -> Tensor:
        return torch.tensor(20.0, dtype=torch.float64, requires_grad=True)

    k = copied()
    y0 = start(9).requires_grad_()
    proxode.solve(heat_alone(k), y0, 0.0, 0.1, **options).ys[-1].square().sum().backward()
    found = {}
    ways: dict[str, Callable[[Any], Any]] = {
        "share": lambda y: y.to_local().square().sum(), "DTensor": lambda y: y.square().sum(),
        "whole": lambda y: y.full_tensor().square().sum(),
        "times": lambda y: differentiable.all_reduce(y.to_local().square().sum()),
    }  # fmt: skip
    for name, loss in ways.items():
        own, divided_y0 = copied(), distribute_tensor(start(9), mesh, [Shard(0)]).requires_grad_()
        of_y0, of_k = gradients(heat(mesh, own), divided_y0, own, loss)
        number = dist.get_world_size() if name == "times" else 1
        found[name] = max(off(of_y0, number * y0.grad), off(of_k, number * k.grad))
    return found


@case
def refusals() -> dict[str, str]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    y0 = distribute_tensor(start(6), mesh, [Shard(0)])
    f = heat(mesh, torch.tensor(2.0, dtype=torch.float64, requires_grad=True))

    def gathers(t: Tensor, u: Any) -> Any:
        """Its collective gives no gradient to the others."""
        parts = [torch.empty_like(u.to_local()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, u.to_local().detach())
        parts[rank()] = u.to_local()
        return DTensor.from_local(-3.0 * torch.stack(parts).sum(0), mesh, u.placements)

    own = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def mean(t: Tensor, u: Tensor) -> Tensor:
        """What is lost is a small part of the products with most directions."""
        parts = [torch.empty_like(u) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, u.detach())
        return -u + torch.stack(parts).mean(0)

    def hidden(t: Tensor, u: Tensor) -> Tensor:
        """A small sum over all, beside a stiff part of each."""
        total = u.sum().detach().clone()
        dist.all_reduce(total)
        return -1e4 * u**3 + 0.1 * (total + u.sum() - u.sum().detach())

    def summed_later(t: Tensor, u: Tensor) -> Tensor:
        """Its collective has no weight at the first time."""
        total = u.sum().detach().clone()
        dist.all_reduce(total)
        return -u + t * (total + u.sum() - u.sum().detach())

    def noisy(t: Tensor, u: Any) -> Any:
        """Random in one process, which all must hear of."""
        return -u if rank() else -u + 0.1 * DTensor.from_local(torch.randn_like(u.to_local()), mesh, u.placements)

    attempts: dict[str, Callable[[], Any]] = {
        "newton": lambda: proxode.solve(f, y0, 0.0, 1.0, method="bdf", inner="newton"),
        "event": lambda: proxode.solve(f, y0, 0.0, 1.0, event=lambda t, u: t - 0.5),
        "per_sample": lambda: proxode.solve(f, y0, 0.0, 1.0, per_sample=True),
        "compile": lambda: proxode.solve(f, y0, 0.0, 1.0, compile=True),
        "stepper": lambda: proxode.Stepper(f, y0, 0.0),
        "mixed": lambda: proxode.solve(f, (y0, start(6)), 0.0, 1.0),
        "plain output": lambda: proxode.solve(lambda t, u: -u.to_local(), y0, 0.0, 1.0),
        "group": lambda: proxode.solve(f, y0, 0.0, 1.0, group=dist.group.WORLD),
        "no group": lambda: proxode.solve(lambda t, u: -u, start(6), 0.0, 1.0, group="all"),
        "gradient": lambda: proxode.solve(gathers, y0.clone().requires_grad_(), 0.0, 1.0, method="bdf"),
        "nan": lambda: proxode.solve(f, y0 * (torch.nan if rank() else 1.0), 0.0, 1.0),
        "mean": lambda: proxode.solve(mean, start(60).requires_grad_(), 0.0, 1.0, group=dist.group.WORLD),
        "hidden": lambda: proxode.solve(hidden, start(6).requires_grad_(), 0.0, 1.0, group=dist.group.WORLD),
        "later": lambda: proxode.solve(summed_later, start(6).requires_grad_(), 0.0, 1.0, group=dist.group.WORLD),
        "different": lambda: proxode.solve(
            lambda t, u: -u * (own if rank() else 1.0), start(6), 0.0, 1.0, method="bdf", group=dist.group.WORLD
        ),
        "lost": lambda: proxode.solve(
            fully_shard(Decay(), mesh=mesh), samples()[0], 0.0, 1.0, method="bdf", group=dist.group.WORLD
        ),
        "empty": lambda: proxode.solve(lambda t, u: -u, start(6)[rank() * 6 :], 0.0, 1.0, group=dist.group.WORLD),
        "halo": lambda: halo(start(2), width=3),
        "halo of the whole": lambda: halo(y0, mesh),
        "forgotten": lambda: proxode.solve(lambda t, u: laplacian(u, halo(u)), start(6), 0.0, 0.1),
        "random": lambda: proxode.solve(noisy, y0, 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-6),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = ""
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    with process_group("gloo"):
        found = {name: CASES[name]() for name in names}
        (folder / f"{rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
