"""The front door: torchdiffeq's calls, and `solve` with objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .eager import eager
from .events import Event, check_function, events_of
from .gradients import Continuous, Gradient
from .gradients.continuous import tensors_of
from .inner import InnerSolver
from .methods import Method, method_of
from .prepare import (
    check_limit,
    check_method,
    check_options,
    observers_of,
    outside_inference_mode,
    refuse_for_spread,
    save_times,
)  # fmt: skip
from .run import Func, at_the_door, known_options, run
from .samples import refuse_for_samples, solve_samples
from .sharding import spread_of
from .solution import Failure, Solution, SolverError
from .status import Status
from .times import number


@eager
def odeint(
    func: Func, y0: Any, t: Tensor, *, rtol: Any = 1e-7, atol: Any = 1e-9, method: str | Method | None = None,
    options: dict[str, Any] | None = None, event_fn: Any = None,
) -> Any:  # fmt: skip
    """Integrate `dy/dt = func(t, y)`, `y(t[0]) = y0`, and return y at every time of `t`.

    The call of torchdiffeq, with proximal methods for stiff problems beside the explicit ones.

    Args:
        func: `func(t, y)` returns dy/dt in the structure of y0; t is 0-dim, in the real dtype of y0.
        y0: a tensor of any shape, or a tuple of tensors.
        t: 1-D floating tensor, strictly increasing or decreasing.
        rtol: relative tolerance: a number, a tensor, or a tuple with one for each tensor of a tuple y0.
        atol: absolute tolerance, in the same forms.
        method: a name of `proxode.methods.METHODS` or a method object. None is "auto".
        options: `step_size` or `grid_constructor` for fixed steps (without them a proximal method is adaptive, and a
            fixed-step one such as rk4 steps from one time of `t` to the next; "auto" and other adaptive explicit
            methods ignore them here, as torchdiffeq does), `max_num_steps` (between two output times), `norm`. For
            proximal methods `inner`, `inner_lr`, `inner_eta`, `inner_tol`, `inner_stop`, `inner_max_iters`,
            `predictor`. For adaptive ones `controller`, `first_step`, `min_step`, `max_step`, `safety`, `ifactor`,
            `dfactor`. For explicit ones `interp`, `perturb`, and `rho` of rkc2. `step_t` and `jump_t` are times that
            no step crosses, at `jump_t` f is discontinuous. `gradient`, `store_graph` and `checkpoints` say how the
            solve is differentiated. `quadrature` names parts of a tuple y0 that func does not read. `compile` runs
            func, and explicit steps, through torch.compile where no gradient is recorded. `progress` shows on stderr
            how far the solve is, if that is a terminal. `group` makes one solve of those of all processes of a
            torch.distributed group, each with its own part of the state (see docs/distributed.md). An unknown option
            warns.
        event_fn: `event_fn(t, y)` returns a tensor; the solve goes on until one of its elements changes its sign
            (see `proxode.Event`). Then `t` has two elements, of which the second only says in which direction time
            runs.

    Returns:
        A tensor `(len(t), *y0.shape)`, or a tuple of them. Gradients flow to y0, t, parameters and every
        other tensor that func captures. With `event_fn`: the time of the event, and the states at t[0] and there.

    Raises:
        SolverError: where the solve could not go on; it holds the partial solution.
    """
    if event_fn is not None:
        return _until_event(func, y0, t, rtol, atol, method, options, event_fn)
    solution = at_the_door(func, y0, t, rtol, atol, method, options)
    return solution.ys


@eager
def odeint_adjoint(
    func: Func, y0: Any, t: Tensor, *, rtol: Any = 1e-7, atol: Any = 1e-9, method: str | Method | None = None,
    options: dict[str, Any] | None = None, event_fn: Any = None, adjoint_rtol: Any = None, adjoint_atol: Any = None,
    adjoint_method: str | None = None, adjoint_options: dict[str, Any] | None = None, adjoint_params: Any = None,
) -> Any:  # fmt: skip
    """`odeint` with the gradient of the adjoint equation, solved backwards (`gradient="continuous"`).

    The state that the adjoint needs is taken from the stored forward solve and never integrated backwards, so the
    gradient is right on dissipative and stiff problems too. Every tensor that func captures gets its gradient.

    Args:
        func: as in `odeint`, like all arguments that are not named here.
        adjoint_rtol: relative tolerance of the adjoint solve; by default that of the forward solve.
        adjoint_atol: absolute tolerance of the adjoint solve, in units of the gradient that comes in.
        adjoint_method: method of the adjoint solve; by default that of the forward solve.
        adjoint_options: options of the adjoint solve. `{"norm": "seminorm"}` leaves the gradients of parameters out of
            the error control; a function there receives `(t, y, adj_y, *adj_params)`. An unknown option warns.
        adjoint_params: the tensors captured by func that get a gradient; by default all of them.
    """
    if adjoint_options is not None and not isinstance(adjoint_options, dict):
        raise TypeError(f"`adjoint_options` must be a dict, not {type(adjoint_options).__name__}")
    if adjoint_options is not None:
        adjoint_options = known_options(adjoint_options, "adjoint_options", level=2)
    if adjoint_method not in (None, method) and options and adjoint_options is None:
        raise ValueError("`adjoint_options` must be given too, for `adjoint_method` is not `method`: {} for none")
    if adjoint_method is not None:
        method_of(adjoint_method)  # an unknown name is an error now, not in backward
    adjoint = Continuous(
        method=adjoint_method, rtol=adjoint_rtol, atol=adjoint_atol, options=adjoint_options,
        params=None if adjoint_params is None else tensors_of("adjoint_params", adjoint_params),
    )  # fmt: skip
    if options and options.get("gradient") not in (None, "continuous"):
        raise ValueError(
            "`odeint_adjoint` is `odeint` with gradient='continuous': for another gradient call `odeint`"
        )
    options = {**(options or {}), "gradient": adjoint}
    return odeint(func, y0, t, rtol=rtol, atol=atol, method=method, options=options, event_fn=event_fn)


@eager
def odeint_dense(
    func: Func, y0: Any, t0: Any, t1: Any, *, rtol: Any = 1e-7, atol: Any = 1e-9,
    method: str | Method | None = None, options: dict[str, Any] | None = None,
) -> Callable[[Any], Any]:  # fmt: skip
    """Integrate from t0 to t1 and return a function of time, good anywhere between them. Arguments as in `odeint`;
    a method with fixed steps needs `options={"step_size": ...}`."""
    given = options or {}
    stepped = any(given.get(name) is not None for name in ("step_size", "grid_constructor"))
    if not method_of(method).adapting().adaptive and not stepped:
        raise ValueError(f"method {method_of(method).name!r} takes fixed steps: give `step_size` in options")
    ends = [torch.as_tensor(end, dtype=torch.float64).reshape(1) for end in (t0, t1)]
    solution = at_the_door(func, y0, torch.cat(ends), rtol, atol, method, options, dense=True)
    return solution.evaluate


@eager
def odeint_event(
    func: Func, y0: Any, t0: Tensor, *, event_fn: Any, reverse_time: bool = False, odeint_interface: Any = odeint,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Integrate from t0 until `event_fn(t, y)` changes its sign.

    Args:
        t0: a floating tensor of one element.
        event_fn: `event_fn(t, y)` returns a tensor of real numbers.
        reverse_time: integrate towards smaller times.
        odeint_interface: `odeint`, `odeint_adjoint` or a function of the same arguments; it gets `kwargs`.

    Returns:
        The time of the event, in the dtype of t0, and the states at t0 and there. Gradients flow through both to
        y0, t0, parameters and whatever else func and event_fn capture.
    """
    if not isinstance(t0, Tensor) or not t0.is_floating_point() or t0.numel() != 1:
        raise TypeError("`t0` must be a floating torch.Tensor of one element: torch.tensor(0.0)")
    t0 = t0.reshape(1)
    ahead = t0.detach().abs().clamp(min=1.0)  # any other time would do
    t = torch.cat([t0, t0.detach() - ahead if reverse_time else t0.detach() + ahead])
    return odeint_interface(func, y0, t, event_fn=event_fn, **kwargs)


def _until_event(
    func: Func, y0: Any, t: Any, rtol: Any, atol: Any, method: Any, options: dict[str, Any] | None, event_fn: Any
) -> tuple[Tensor, Any]:
    check_function(event_fn, "event_fn")
    if isinstance(t, Tensor) and t.dim() == 1 and len(t) != 2:
        raise ValueError(f"`t` must have two elements where `event_fn` is given, but it has {len(t)}")
    solution = at_the_door(func, y0, t, rtol, atol, method, options, until=Event(event_fn))
    failure = solution.failure
    if failure is None and not len(solution.event_ts[0]):
        failure = Failure(Status.NO_EVENT, number(t[0]), 0, 0.0, "from here on, as far as time reaches")
    elif failure is not None and failure.status is Status.MAX_STEPS:
        failure = replace(failure, detail=f"no event was found before: has event_fn a change of sign? {failure.detail}")
    if failure is not None:
        solution.status, solution.failure = failure.status, failure
        raise SolverError(failure, solution)
    return _ending_with_event(solution, 0)


def _ending_with_event(solution: Solution, event: int) -> tuple[Tensor, Any]:
    """The time of a terminal event, and the states at the first time and there."""
    found = solution.event_ys[event]
    if isinstance(found, tuple):
        ys: Any = tuple(torch.cat([y[:1], e[-1:]]) for y, e in zip(solution.ys, found, strict=True))
    else:
        ys = torch.cat([solution.ys[:1], found[-1:]])
    return solution.event_ts[event][-1], ys


@eager
def solve(
    func: Func, y0: Any, t0: Any, t1: Any, *, method: str | Method = "auto", inner: str | InnerSolver = "auto",
    gradient: str | Gradient = "implicit", save_at: Any = None, event: Any = None, rtol: Any = 1e-4, atol: Any = 1e-6,
    step_size: float | None = None, per_sample: bool = False, max_steps: int = 100_000, progress: bool = False,
    throw: bool = True, dense: bool = False, **options: Any,
) -> Solution:  # fmt: skip
    """Integrate from t0 to t1 with methods, inner solvers and gradients given as objects or by name.

    Args:
        func: `func(t, y)` returns dy/dt in the structure of y0.
        y0: a tensor of any shape, or a tuple of tensors.
        t0: where the solve begins, a number or a tensor.
        t1: where it ends; before t0 for a solve backwards in time.
        method: a name of `proxode.methods.METHODS`, or a method object.
        inner: a name of `proxode.inner.INNER`, "auto" or an inner solver: what solves the equations of implicit steps.
        gradient: a name of `proxode.gradients.GRADIENTS`, or a gradient object.
        rtol: relative tolerance, in the forms that `odeint` takes.
        atol: absolute tolerance, likewise.
        save_at: times for which the state is returned, a 1-D tensor of some between t0 and t1; by default these two.
        step_size: fixed steps of this size ("auto" then takes those of bdf5). Methods such as rk4 need it; the others
            take as long steps as rtol and atol allow without it.
        max_steps: the solve ends with `Status.MAX_STEPS` beyond it.
        throw: raise `SolverError` where the solve could not go on; else return what was reached, with its status.
        event: a `proxode.Event`, a function `event(t, y)` or several of them. A terminal one (a plain function is)
            ends the solve with `Status.EVENT`; ys then holds the times of save_at before it, or t0 and the event.
            `Solution.event_ts` and `Solution.event_ys` have all that were found.
        per_sample: dimension 0 of y0 holds independent problems. func gets t of shape `(batch,)` (beside a y of shape
            `(batch, n)` write `t[:, None]`); t0, t1, rtol and atol may have one value for each sample, and save_at a
            column. Every sample takes its own steps at its own order, and one that fails leaves the others alone
            (`Solution.samples`). For 'auto', 'bdf' and the adaptive explicit methods but 'rkc2'.
        progress: show on stderr how far the solve is, at which step and cost, if that is a terminal.
        dense: keep every step, so that `Solution.evaluate(t)` answers for any time between t0 and t1.
        options: as in `odeint`; an unknown one raises.

    Returns:
        A `Solution`: `ts`, `ys`, what they cost (`stats`) and how the solve ended (`status`).
    """
    check_options("solve", options)
    max_steps = check_limit("max_steps", max_steps)
    if per_sample:
        refuse_for_spread(per_sample=spread_of(y0, options.get("group")))
        given = {"inner": inner, "gradient": gradient, "event": event, "step_size": step_size, "dense": dense}
        refuse_for_samples(given | options)
        with outside_inference_mode():
            return solve_samples(func, y0, t0, t1, method=method, save_at=save_at, rtol=rtol, atol=atol,
                                 max_steps=max_steps, throw=throw, observers=observers_of(progress))  # fmt: skip
    events = events_of(event)
    chosen = check_method(method, step_size, options)
    times, saved = save_times(t0, t1, save_at)
    options = {**options, "step_size": step_size, "inner": inner, "gradient": gradient, "progress": progress}
    try:
        solution = run(
            func, y0, times, rtol, atol, chosen, options, max_steps, throw, dense, strict=True, events=events
        )
    except SolverError as error:
        if error.solution is not None:
            error.solution.keep(saved)
        raise
    if save_at is None and solution.status is Status.EVENT:
        last = next(i for i, event in enumerate(events) if event.terminal and len(solution.event_ts[i]))
        end, solution.ys = _ending_with_event(solution, last)
        solution.ts = torch.stack([solution.ts[0], end])
        return solution
    return solution.keep(saved)
