"""A solve as a layer: a module that moves a state along `dy/dt = func(t, y)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .. import Solution, SolverError, Stats, solve
from ..calls import check_call, check_func
from ..configure import SOLVE_OPTIONS
from ..eager import eager
from ..gradients import Gradient
from ..inner import InnerSolver
from ..methods import Method, method_of
from ..prepare import unknown_names

LAYER_OPTIONS = (*SOLVE_OPTIONS, "max_steps", "per_sample", "progress", "step_size")
SETTINGS = ("method", "inner", "gradient", "rtol", "atol", *LAYER_OPTIONS)
OWN = ("func", "t0", "t1", "times")  # of a layer, the same in every solve


class NeuralODE(nn.Module):
    """`forward(y0)` is the state at t1 of the solve that starts with y0 at t0, or its states at `times`.

    Args:
        func: `func(t, y)` returns dy/dt in the structure of y, a tensor or a tuple of tensors. If it is a module its
            parameters are those of the layer.
        t1: where the solve ends, by default at 1; a tensor or a parameter may be given, and gets its gradient.
        t0: where it begins, likewise.
        times: instead of the two, a 1-D tensor: y0 belongs to the first of them, and the states at all of them come
            back, stacked in front.
        method: as in `proxode.solve`, like all that follow; `step_size` and `quadrature` are among the options.

    `stats` is what the last solve has cost; a backward pass through it goes on counting there. A module as func: the
    parameters of a network that a plain function captures are trained too, but they are not among the layer's.
    """

    times: Tensor | None
    stats: Stats | None

    def __init__(
        self, func: Callable[..., Any], t1: float | Tensor | None = None, *, t0: float | Tensor = 0.0,
        times: Tensor | None = None, method: str | Method = "auto", inner: str | InnerSolver = "auto",
        gradient: str | Gradient = "implicit", rtol: Any = 1e-4, atol: Any = 1e-6, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        check_func(func)
        check_call(func)
        unknown = sorted(set(options) - set(LAYER_OPTIONS))
        if unknown:
            names = unknown_names(unknown, ("t1", "t0", "times", *SETTINGS))
            raise TypeError(f"NeuralODE got unknown options: {names}")
        is_row = isinstance(times, Tensor) and times.dim() == 1 and len(times) > 1 and times.is_floating_point()
        if times is not None and not is_row:
            raise TypeError(
                "`times` must be a one-dimensional floating torch.Tensor of at least two: torch.tensor([0.0, 1.0]). "
                "Times of its own for each sample: proxode.solve(..., per_sample=True, save_at=times)"
            )
        if isinstance(t1, Tensor) and t1.numel() > 1 and not options.get("per_sample"):
            raise TypeError(f"`t1` is one time, not {t1.numel()}: give several as NeuralODE(func, times=...)")
        if t1 is not None and times is not None:
            raise TypeError("`t1` and `times` exclude each other: the last of `times` is where the solve ends")
        method_of(method)  # an unknown name is an error now, not in the first forward pass
        self.func = func
        if times is None:
            self.t0, self.t1 = t0, 1.0 if t1 is None else t1
        else:  # to be read; a solve takes them from `times`, which may move or be trained
            self.t0, self.t1 = _shown(times[0], times[-1])
        if isinstance(times, nn.Parameter):
            self.times = times
        else:  # it moves with the layer from device to device
            self.register_buffer("times", times, persistent=False)
        self.settings = {
            "method": method, "inner": inner, "gradient": gradient, "rtol": rtol, "atol": atol, **options,
        }  # fmt: skip
        self.stats = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Names that would be an attribute and change no solve are refused."""
        if name in SETTINGS:
            raise AttributeError(f"a NeuralODE has no attribute {name!r}: write layer.settings[{name!r}] = ..., or "
                                 f"give it to one solve, layer.solve(y0, {name}=...)")  # fmt: skip
        if name in ("t0", "t1") and getattr(self, "times", None) is not None:
            raise AttributeError(f"`{name}` of this NeuralODE is that of its `times`: assign those")
        super().__setattr__(name, value)

    @eager
    def forward(self, y0: Any, *, reverse: bool = False) -> Any:
        """The state at the end. With `reverse` y0 is the state at the last time, and that at the first comes back."""
        return self.integrate(self.func, y0, reverse=reverse)

    @eager
    def integrate(self, func: Callable[..., Any], y0: Any, *, reverse: bool = False, **options: Any) -> Any:
        """`forward` with another function in the place of `func`, one that belongs to this pass alone, and options."""
        solution = self._solution(func, y0, reverse, options)
        return _at_end(solution) if self.times is None else solution.ys

    @eager
    def solve(self, y0: Any, *, reverse: bool = False, **options: Any) -> Solution:
        """The whole `Solution` of what `forward` does: its states, costs and status, for `summary()` and `plot()`.
        Options stand for those of the layer in this solve: `layer.solve(y0, rtol=1e-7, atol=1e-9)`."""
        return self._solution(self.func, y0, reverse, options)

    def _solution(self, func: Callable[..., Any], y0: Any, reverse: bool, options: dict[str, Any]) -> Solution:
        if own := [f"`{name}`" for name in OWN if name in options]:
            raise TypeError(
                f"one solve of a NeuralODE does not take {', '.join(own)}, which the layer has: make another, "
                "NeuralODE(layer.func, t1=...), or call proxode.solve(layer.func, y0, t0, t1)"
            )
        t0, t1, save_at = self.t0, self.t1, self.times
        if save_at is not None:
            t0, t1 = save_at[0], save_at[-1]
        if reverse:
            t0, t1 = t1, t0
            save_at = None if save_at is None else save_at.flip(0)
        try:
            solution = solve(func, y0, t0, t1, **({"save_at": save_at} | self.settings | options))
        except SolverError as error:
            self.stats = None if error.solution is None else error.solution.stats
            raise
        self.stats = solution.stats
        return solution

    def extra_repr(self) -> str:
        ends = _shown(self.t0, self.t1) if self.times is None else self.times.tolist()
        short = [str(float(f"{t:.6g}")) for t in ends]  # the digits of float32; of many the ends
        short = short if len(short) <= 8 else [*short[:3], "...", short[-1]]
        times = f"t0={short[0]}, t1={short[1]}" if self.times is None else f"times=[{', '.join(short)}]"
        return ", ".join([times, *(f"{name}={value!r}" for name, value in self.settings.items())])


def _at_end(solution: Solution) -> Any:
    ys = solution.ys
    return tuple(y[-1] for y in ys) if isinstance(ys, tuple) else ys[-1]


def _shown(*times: float | Tensor) -> list[float]:
    """As numbers; of one for each sample the last."""
    return [float(torch.as_tensor(t).detach().reshape(-1)[-1]) for t in times]
