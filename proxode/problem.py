"""Normalise at the door, restore at the exit: one flat state, increasing float64 times, checked arguments."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .calls import check_func
from .events import Event
from .norms import Norm, all_finite, anywhere, rms_norm
from .observers import Observer
from .sharding import is_dtensor, local_part
from .solution import Stats
from .spread import present
from .structure import Structure
from .times import Time, number
from .vector_field import VectorField

State = Tensor | tuple[Tensor, ...]
LEAST_RTOL = 10.0  # ulp: an error of this size can still be told from rounding
SNAP = 1e-6  # part of a step, or of the time between outputs, within which two times are the same
CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")


@dataclass(frozen=True)
class Problem:
    """`dy/dt = f(t, y)` on a flat state, from ts[0] to ts[-1], with outputs at every ts."""

    f: VectorField
    y0: Tensor
    ts: tuple[Time, ...]  # increasing
    user_ts: Tensor  # as the user gave them
    rtol: float | Tensor
    atol: float | Tensor
    norm: Norm
    structure: Structure
    stats: Stats
    stops: tuple[float, ...] = ()  # times that no step crosses
    jumps: tuple[float, ...] = ()  # those of them where f is discontinuous
    callbacks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    observers: tuple[Observer, ...] = ()  # who look on
    asked_rtol: float | Tensor | None = None  # before it was raised to what the dtype carries, if it was
    events: tuple[Event, ...] = ()  # to look for
    endless: bool = False  # does the last time mean nothing?
    limited_by_output: bool = False  # does a limit of steps hold between two outputs, and not for the whole?
    quadrature: Any = None  # parts of the state that f does not read

    @property
    def sign(self) -> float:
        return -1.0 if self.f.reverse else 1.0

    def asks_too_much(self, y: Tensor) -> bool:
        """Was the tolerance at y raised? A small rtol is fine where atol is large enough."""
        if self.asked_rtol is None:
            return False
        size = y.detach().abs()
        carried = LEAST_RTOL * torch.finfo(y.dtype).eps * size
        return anywhere(self.atol + self.asked_rtol * size < carried)

    def notify(self, name: str, t0: Time, y0: Tensor, t1: Time) -> None:
        callback = self.callbacks.get(name)
        if callback is not None:
            where = torch.tensor(self.f.user_time(t0), dtype=torch.float64)
            dt = torch.tensor(number(t1) - number(t0), dtype=torch.float64)
            callback(where, self.structure.restore(y0), dt)


def make_problem(
    func: Callable[..., Any], y0: Any, t: Any, rtol: Any, atol: Any, stats: Stats, *,
    norm: Callable[[Any], Any] | None = None, step_t: Any = None, jump_t: Any = None, implicit: bool = False,
    quadrature: Any = None,
) -> Problem:  # fmt: skip
    """Check what the user gave and bring it into the solver's form."""
    check_func(func)
    structure, flat = check_state(y0, implicit)
    user_ts = _check_times(t, flat)
    reverse = len(user_ts) > 1 and bool(user_ts[0] > user_ts[1])
    ts = -user_ts if reverse else user_ts
    times: tuple[Time, ...]
    times = tuple(ts.to(torch.float64).unbind()) if ts.requires_grad else tuple(ts.to(torch.float64).tolist())
    jumps = _at_outputs(_check_marks("jump_t", jump_t, reverse), times)
    steps = _at_outputs(_check_marks("step_t", step_t, reverse), times)
    if set(jumps) & set(steps):
        raise ValueError("`step_t` and `jump_t` must not share times")
    relative = _check_tolerance("rtol", rtol, structure, flat)
    absolute = _check_tolerance("atol", atol, structure, flat)
    least = LEAST_RTOL * torch.finfo(flat.dtype).eps
    raised = relative.clamp(min=least) if isinstance(relative, Tensor) else max(relative, least)
    return Problem(
        f=VectorField(func, structure, stats, reverse=reverse),
        y0=flat,
        ts=times,
        user_ts=user_ts,
        rtol=raised,
        atol=absolute,
        norm=_make_norm(norm, structure),
        structure=structure,
        stats=stats,
        stops=tuple(sorted((*jumps, *steps))),
        jumps=jumps,
        callbacks={name: getattr(func, name) for name in CALLBACKS if hasattr(func, name)},
        asked_rtol=relative if isinstance(relative, Tensor) or relative < raised else None,
        quadrature=quadrature,
    )


def check_state(y0: Any, implicit: bool) -> tuple[Structure, Tensor]:
    if not isinstance(y0, Tensor | tuple):
        hint = ": torch.tensor([1.0, ...])" if isinstance(y0, list | float | int) else ""
        hint = ": tuple(y0)" if isinstance(y0, list) and y0 and isinstance(y0[0], Tensor) else hint
        hint = ": torch.from_numpy(y0)" if type(y0).__name__ == "ndarray" else hint
        raise TypeError(f"`y0` must be a torch.Tensor or a tuple of them, not {type(y0).__name__}{hint}")
    parts = y0 if isinstance(y0, tuple) else (y0,)
    if not parts:
        raise ValueError("`y0` is an empty tuple: there is nothing to integrate")
    for i, part in enumerate(parts):
        name = f"`y0[{i}]`" if isinstance(y0, tuple) else "`y0`"
        if not isinstance(part, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(part).__name__}")
        if not (part.is_floating_point() or part.is_complex()):
            raise TypeError(f"{name} must have a floating dtype, not {part.dtype}: convert it, e.g. y0.float()")
        if part.device != parts[0].device:
            raise ValueError(f"{name} is on {part.device}, but the first part of `y0` is on {parts[0].device}")
        if not all_finite(local_part(part.detach())):
            raise ValueError(f"{name} holds nan or infinite values")
    structure = Structure.of(y0)
    flat = structure.flatten(y0)
    if flat.numel() == 0:
        raise ValueError("`y0` has no elements")
    if implicit and flat.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"`y0` is {flat.dtype}, but proximal methods work on float32 and float64: convert it "
            "(torch.view_as_real for complex states) or use an explicit method"
        )
    return structure, flat.clone() if flat.is_inference() else flat


def _check_times(t: Any, flat: Tensor) -> Tensor:
    if not isinstance(t, Tensor):
        hint = "torch.from_numpy(t)" if type(t).__name__ == "ndarray" else "torch.tensor([t0, ..., t1])"
        raise TypeError(f"`t` must be a torch.Tensor, not {type(t).__name__}: {hint}")
    if not t.is_floating_point():
        raise TypeError(f"`t` must have a floating dtype, not {t.dtype}: write the times as 0., 1. or use t.double()")
    if t.dim() != 1 or len(t) == 0:
        raise ValueError(f"`t` must be one-dimensional and not empty, but its shape is {tuple(t.shape)}")
    if not bool(torch.isfinite(t.detach()).all()):
        raise ValueError("`t` holds nan or infinite values")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(t).tangent is not None:
        raise NotImplementedError("forward mode with respect to `t` is not available: use backward")
    later = t[1:] - t[:-1]
    if not (bool((later > 0).all()) or bool((later < 0).all())):
        i = int((later.sign() * later[0].sign() <= 0).nonzero()[0])  # where it does not go on as it began
        pair = f"t[{i}] = {float(t[i].detach()):.6g} and t[{i + 1}] = {float(t[i + 1].detach()):.6g}"
        raise ValueError(f"`t` must be strictly increasing or strictly decreasing: look at {pair}")
    if t.device != flat.device:
        warnings.warn(f"`t` is on {t.device} and y0 on {flat.device}: t is moved there", stacklevel=5)
        t = t.to(flat.device)
    return t.clone() if t.is_inference() else t


def _check_marks(name: str, marks: Any, reverse: bool) -> tuple[float, ...]:
    if marks is None:
        return ()
    if not isinstance(marks, Tensor) or not marks.is_floating_point() or marks.dim() != 1:
        raise TypeError(f"`{name}` must be a one-dimensional floating torch.Tensor of times: torch.tensor([...])")
    if not bool(torch.isfinite(marks.detach()).all()):
        raise ValueError(f"`{name}` holds nan or infinite values")
    if marks.requires_grad:
        raise ValueError(f"`{name}` must not require a gradient")
    return tuple(sorted(-mark if reverse else mark for mark in marks.double().tolist()))


def _at_outputs(marks: tuple[float, ...], ts: tuple[Time, ...]) -> tuple[float, ...]:
    """The marks, each once; those that nearly are output times moved there (0.3 in float32 is 0.3)."""
    if not marks or len(ts) < 2:
        return tuple(dict.fromkeys(marks))
    near = SNAP * min(number(b) - number(a) for a, b in itertools.pairwise(ts))
    outputs = [number(t) for t in ts]
    nearest = [min(outputs, key=lambda t, mark=mark: abs(t - mark)) for mark in marks]  # type: ignore[misc]
    moved = (t if abs(t - mark) <= near else mark for mark, t in zip(marks, nearest, strict=True))
    return tuple(dict.fromkeys(moved))


def _check_tolerance(name: str, tol: Any, structure: Structure, flat: Tensor) -> float | Tensor:
    """A number, or a flat tensor with one for each component."""
    if structure.is_tuple and (isinstance(tol, tuple | list) or (isinstance(tol, Tensor) and tol.dim() > 0)):
        parts = tuple(tol)
        if len(parts) != len(structure.shapes):
            raise ValueError(f"`{name}` has {len(parts)} parts, but y0 is a tuple of {len(structure.shapes)} tensors")
        return torch.cat([
            _spread(f"{name}[{i}]", part, shape, flat, structure, i)
            for i, (part, shape) in enumerate(zip(parts, structure.shapes, strict=True))
        ])  # fmt: skip
    if isinstance(tol, tuple | list):
        raise ValueError(
            f"`{name}` is a {type(tol).__name__} of {len(tol)}, one for each tensor of a tuple y0, which this is not: "
            f"for one value for each component give a tensor, torch.tensor({list(tol)})"
        )
    if isinstance(tol, Tensor) and (tol.numel() != 1 or (present() is not None and tol.dim() > 0)):
        return _spread(name, tol, structure.shapes[0], flat, structure, 0)
    return _number(name, tol)


def _spread(name: str, tol: Any, shape: torch.Size, flat: Tensor, structure: Structure, part: int) -> Tensor:
    """A tolerance for each component of one tensor."""
    if is_dtensor(tol) and structure.shardings is not None:
        tol = structure.shardings[part].local(tol)
    if not isinstance(tol, Tensor) or tol.numel() == 1:
        tol = torch.tensor(_number(name, tol))
    if tol.requires_grad:
        raise ValueError(f"`{name}` must not require a gradient")
    if not bool(torch.isfinite(tol).all()) or bool((tol < 0).any()):
        raise ValueError(f"`{name}` must be finite and not negative")
    try:
        return tol.to(dtype=flat.dtype.to_real(), device=flat.device).expand(shape).reshape(-1)
    except RuntimeError:
        raise ValueError(f"`{name}` of shape {tuple(tol.shape)} does not fit a state of {tuple(shape)}") from None


def _number(name: str, tol: Any) -> float:
    if isinstance(tol, Tensor) and tol.numel() == 1:
        if tol.requires_grad:
            raise ValueError(f"`{name}` must not require a gradient")
        tol = tol.item()
    if isinstance(tol, bool) or not isinstance(tol, int | float):
        raise TypeError(f"`{name}` must be a number, a tensor or a tuple of them, not {type(tol).__name__}")
    if not (math.isfinite(tol) and tol >= 0):
        raise ValueError(f"`{name}` must be finite and not negative, not {tol}")
    return float(tol)


def agreed_size(size: Any, argument: str = "`norm`") -> Tensor:
    """What the user's norm has given, as the solver wants it: the largest of all processes, so that they agree."""
    size = size.full_tensor() if is_dtensor(size) else size
    own = torch.as_tensor(size).detach().abs() if isinstance(size, Tensor | SupportsFloat) else None
    if own is None or own.numel() != 1:
        got = type(size).__name__ if own is None else f"a tensor of shape {tuple(own.shape)}"
        raise TypeError(
            f"{argument} must return one number, the size of a whole state, but it returned {got}: reduce it, as in "
            "lambda y: y.abs().max()"
        )
    own = own.reshape(1)
    spread = present()
    return own if spread is None else spread.most(torch.nan_to_num(own, nan=torch.inf))


def _make_norm(norm: Callable[[Any], Any] | None, structure: Structure) -> Norm:
    """The user's norm on the user's structure; by default the RMS, of the worst part if the state is a tuple."""
    if norm is not None:
        if not callable(norm):
            raise TypeError(f"`norm` must be a function of the state, not {type(norm).__name__}")

        def users(x: Tensor) -> Tensor:
            alias = x.view_as(x)  # by which `Spares` knows that the norm has kept it
            return agreed_size(norm(structure.restore(alias)))

        return users
    if not structure.is_tuple:
        return rms_norm

    def worst_part(x: Tensor) -> Tensor:
        sizes: Sequence[Tensor] = [rms_norm(part) for part in structure.parts(x)]
        return torch.stack(list(sizes)).amax(0)

    return worst_part
