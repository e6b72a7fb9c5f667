"""The diagnosis of an equation: one solve, and questions to f at places on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..nn import NeuralODE
from ..norms import rms_norm
from ..prepare import check_ends, check_limit, outside_inference_mode
from ..problem import Problem, make_problem
from ..randomness import SAME, randomness
from ..solution import Stats
from ..status import Status
from ..times import number
from ..vector_field import VectorField
from .clock import Clock, look_at_the_clock, reads_time
from .diagnosis import Diagnosis
from .directions import rough
from .findings import DISAGREES
from .growth import Along, measure
from .independence import samples
from .limits import LEEWAY, step_limit
from .modules import buffers_kept
from .named import name_of, without_method
from .path import Path, Stop, follow
from .places import Place
from .probes import Graph, disagreement, drift, graph
from .spectrum import DENSE, KRYLOV, spectrum

POINTS = 12
OF_F = ("jump_t", "step_t", "max_step", "norm")  # settings of a layer that a solve with another method needs too
MAX_STEPS = 20_000
RANDOM_STEPS = 500  # of a solve whose f is random, and which will not end well
PROBES = 4  # directions: one begins the Krylov space, the others tell symmetry
ASKED = 3  # places at which it is asked what is asked of f as a whole
GRID_LIMIT = 65_536  # unknowns up to which it is asked whether the Jacobian is a narrow band


def diagnose(
    func: Callable[..., Any], y0: Any, t0: Any = None, t1: Any = None, *, rtol: Any = None, atol: Any = None,
    points: int = POINTS, krylov: int = KRYLOV, max_steps: int = MAX_STEPS, **options: Any,
) -> Diagnosis:  # fmt: skip
    """Find out what `dy/dt = func(t, y)` is like between t0 and t1, and which method and gradient fit it.

    The equation is solved once with `auto`; at places on the way the eigenvalues of df/dy are estimated, its symmetry,
    and the step for which dopri5 would be stable; a perturbation is followed, and f is looked at as a function of time.
    `print` the result, or look at `advice`, `plot()`, `to_dict()`.

    Args:
        func: `func(t, y)`, or a `proxode.nn.NeuralODE`, whose times and tolerances then are the default.
        y0: a tensor, of a whole batch if that is what you solve for, or a tuple of tensors; float32 or float64.
        rtol: of the solve, by default 1e-4.
        atol: of the solve, by default 1e-6.
        points: places at which f is probed.
        krylov: products with df/dy at each of them, at most, for states of more than 100 unknowns. (Of smaller ones
            all eigenvalues are computed.)
        max_steps: of the solve. If they do not suffice, or it fails, what it reached is diagnosed. Of less than half of
            the way, or where steps had become short, the diagnosis does not say whether the equation is stiff unless
            it is.
        options: of the solve, as in `proxode.solve`. A `method` among them is not taken, for what an equation is like
            does not depend on it; the diagnosis says what it would cost, where that is known.
    """
    func, (t0, t1), tolerances, layer, settings = _unfold(func, t0, t1)
    options, named = without_method(settings | options)
    given = {"rtol": rtol, "atol": atol}
    tolerances |= {name: value for name, value in given.items() if value is not None}
    points, krylov = check_limit("points", points), check_limit("krylov", krylov)
    max_steps = check_limit("max_steps", max_steps)
    ends = torch.cat(check_ends(t0, t1)).detach()
    with outside_inference_mode(), torch.random.fork_rng(devices=[]), torch.no_grad(), buffers_kept(func):
        problem = make_problem(func, y0, ends, **tolerances, stats=Stats(), implicit=True)
        noise = _noise(problem.f, number(problem.ts[0]), problem.y0.detach())
        limit = max_steps if noise <= SAME else min(max_steps, RANDOM_STEPS)
        path = follow(func, y0, problem, points=points, max_steps=limit, options=options, **tolerances)
        known = torch.as_tensor(options.get("jump_t", ()), dtype=torch.float64).reshape(-1).tolist()
        return replace(_diagnosis(problem, path, tolerances, krylov, noise, known), layer=layer, named=named)


def _unfold(func: Any, t0: Any, t1: Any) -> tuple[Any, tuple[Any, Any], dict[str, Any], str, dict[str, Any]]:
    """A layer's function, times, tolerances, method, and settings that are about f; of a function what was given."""
    tolerances: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}
    layer, settings = "", {}
    if isinstance(func, NeuralODE):
        times = (func.t0, func.t1) if func.times is None else (func.times[0], func.times[-1])
        t0, t1 = (times[0] if t0 is None else t0), (times[1] if t1 is None else t1)
        tolerances = {name: func.settings[name] for name in tolerances}
        settings = {name: func.settings[name] for name in OF_F if name in func.settings}
        layer, func = name_of(func.settings["method"]), func.func
    if t0 is None or t1 is None:
        raise TypeError("`t0` and `t1` must be given: the interval over which func is to be solved")
    return func, (t0, t1), tolerances, layer, settings


def _diagnosis(
    problem: Problem, path: Path, tolerances: dict[str, Any], krylov: int, noise: float, known: list[float]
) -> Diagnosis:
    f, y0, t0 = problem.f, problem.y0.detach(), number(problem.ts[0])
    finite = bool(torch.isfinite(f(t0, y0)).all())
    some = [(problem.sign * stop.t, stop.y) for stop in _some(path.stops)] if finite else []
    noise = max([noise, *(randomness(f, t, y) for t, y in some)])
    if path.failure is not None and path.failure.status is Status.RANDOM:
        noise = max(noise, 10 * SAME)  # the solve has seen it
    apart = max((disagreement(f, t, y, rough(y, k)) for k, (t, y) in enumerate(some)), default=0.0)
    found = graph(f, t0, y0) if finite else Graph(0, False, False)
    if apart > DISAGREES and noise <= SAME:
        f.ladder.clear()  # what autograd says of f is wrong: differences tell what f is like
    banded = finite and DENSE < y0.numel() <= GRID_LIMIT and f.has_stencil(t0, y0) and f.layout is not None
    batch = samples(problem, some) if finite else None
    places = [_place(problem, path, stop, krylov) for stop in path.stops] if finite else []
    along = measure(f, path.bits, len(path.strides), path.stats.nfe_forward) if finite and noise <= SAME else Along()
    path.bits.clear()  # which may be large
    drifts = any(place is not None and place.drift > SAME for place in places)
    timed = bool(path.strides) and noise <= SAME and (drifts or any(reads_time(f, t, y) for t, y in some))
    rtol, atol = _largest(tolerances["rtol"]), _largest(tolerances["atol"])
    allowed = atol * y0.numel() ** 0.5 + rtol * float(torch.linalg.vector_norm(path.largest.double()))
    clock = look_at_the_clock(f, path, problem.sign, known, allowed) if timed else Clock(varies=bool(known))
    return Diagnosis(
        n=y0.numel(), dtype=str(y0.dtype).removeprefix("torch."), t0=f.user_time(problem.ts[0]),
        t1=f.user_time(problem.ts[-1]), rtol=rtol, atol=atol, path=path,
        places=tuple(place for place in places if place is not None), randomness=noise, disagreement=apart,
        products=f.ladder[0] if f.ladder else "difference", jacobian_products=f.jacobian_price,
        banded=banded, graph=found, samples=batch, along=along, clock=clock,
        nfe_probes=f.stats.nfe_forward + f.stats.nfe_backward,
    )  # fmt: skip


def _noise(f: VectorField, t: float, y: Tensor) -> float:
    """Whether f is random: at the first state, where noise may be multiplied by nothing, and beside it."""
    beside = y + 1e-2 * (1.0 + rms_norm(y)) * rough(y, 7)
    return max(randomness(f, t, y), randomness(f, t, beside))


def _some(stops: list[Stop]) -> list[Stop]:
    """A few, with the first and the last."""
    return [stops[i] for i in sorted({round(k * (len(stops) - 1) / (ASKED - 1)) for k in range(ASKED)})]


def _place(problem: Problem, path: Path, stop: Stop, krylov: int) -> Place | None:
    """What f is like at a stop; None where it or its derivative is not finite."""
    f, t, y = problem.f, problem.sign * stop.t, stop.y
    f0 = f(t, y)
    probes = torch.stack([rough(y, PROBES * stop.step + k) for k in range(1, PROBES + 1)])
    found = spectrum(f, t, y, krylov, probes) if bool(torch.isfinite(f0).all()) else None
    if found is None:
        return None
    stride = path.strides[min(stop.step, len(path.strides) - 1)] if path.strides else None
    largest = float(torch.linalg.vector_norm(path.largest.double()))
    return Place(
        index=stop.step, t=stop.t, h=0.0 if stride is None else stride.h, by="" if stride is None else stride.method,
        spectrum=found, limit=step_limit(found.values, leeway=LEEWAY),
        speed=float(torch.linalg.vector_norm(f0.double())) / largest if largest > 0 else 0.0,
        drift=drift(f, t, _elsewhere(problem, f, t), y, f0),
    )  # fmt: skip


def _elsewhere(problem: Problem, f: VectorField, t: float) -> float:
    """Another time of the interval, at no round part of it."""
    t0, t1 = number(problem.ts[0]), number(problem.ts[-1])
    return t0 + 0.6180339887 * (t1 - t0) if t < t0 + 0.5 * (t1 - t0) else t0 + 0.3819660113 * (t1 - t0)


def _largest(tolerance: Any) -> float:
    if isinstance(tolerance, tuple | list):
        return max(map(_largest, tolerance))
    return float(tolerance.max()) if isinstance(tolerance, Tensor) else float(tolerance)
