"""`compile=True`: func, and whole steps of explicit methods, through torch.compile.

What autograd records stays as it is, so that gradients are the same, of any order; compiled code runs where nothing is
recorded. A compiled step is where it pays most: all its evaluations and sums are a few loops over memory.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .structure import Structure

BACKEND = "inductor"
ADVICE = (
    "func must be one graph of torch operations, without side effects (a counter on a module changes at every call), "
    "and the default backend needs a C++ compiler; leave `compile` out to run it as it is"
)

Entry = Callable[..., Any]
_entries: weakref.WeakKeyDictionary[Any, dict[Any, Entry]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Compiled:
    """func compiled. The same code is compiled once for each dtype and shape, however many functions are made of it."""

    func: Callable[..., Any]
    backend: Any = field(default_factory=lambda: BACKEND)

    def call(self, t: Tensor, y: Any) -> Any:
        return self._run((), lambda: _call, t, y)

    def step(
        self, tableau: Any, structure: Structure, reverse: bool, t0: float, t1: float, y0: Tensor, k0: Tensor
    ) -> tuple[Tensor, list[Tensor], Tensor | None, Tensor | None]:
        """y1, the stages after the first (k0) and both error estimates of an explicit step."""
        ends = torch.tensor([t0, t1], dtype=torch.float64, device=y0.device)
        real = y0.dtype.to_real()
        key = (id(tableau), structure.shapes, structure.is_tuple, reverse, real)  # what is cached holds the tableau
        made: tuple[Tensor, list[Tensor], Tensor | None, Tensor | None]
        made = self._run(key, lambda: _step_of(tableau, structure, reverse, real), ends, y0, k0)
        return made

    def _run(self, key: tuple[Any, ...], make: Callable[[], Callable[..., Any]], *args: Any) -> Any:
        try:
            return _entry(self.func, (*key, self.backend), make, self.backend)(self.func, *args)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise RuntimeError(f"`compile`: func could not be compiled ({_first_lines(error)}). {ADVICE}") from error


def serves() -> bool:
    """Whether compiled code may run: nothing is recorded or replaced on the way, and no transform looks on."""
    return not (
        torch.is_grad_enabled()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def check_compile(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"`compile` must be True or False, not {type(value).__name__}")
    return bool(value)


def _entry(func: Callable[..., Any], key: tuple[Any, ...], make: Callable[[], Any], backend: Any) -> Entry:
    """What torch.compile made for the code of func. Each has a code object of its own, for torch limits how often one
    is compiled; none holds func, which is an argument."""
    held = getattr(func, "__func__", func)
    held = getattr(held, "__code__", held)
    known = _entries.setdefault(held, {})
    if key not in known:
        plain = make()
        own = types.FunctionType(
            plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
        )
        known[key] = torch.compile(own, dynamic=False, fullgraph=True, backend=backend)
    return known[key]


def _call(func: Callable[..., Any], t: Tensor, y: Any) -> Any:
    return func(t, y)


def _step_of(tableau: Any, structure: Structure, reverse: bool, real: torch.dtype) -> Callable[..., Any]:
    sign = -1.0 if reverse else 1.0

    def step(func: Callable[..., Any], ends: Tensor, y0: Tensor, k0: Tensor) -> Any:
        h = ends[1] - ends[0]
        length = h.to(real)
        stages, y = [k0], y0
        for c, row in zip(tableau.c[1:], tableau.a[1:], strict=True):
            y = y0 + length * _sum(row, stages)
            t = ends[1] if c == 1.0 else ends[0] + c * h
            slope = structure.flatten(func(sign * t.to(real), structure.restore(y)))
            stages.append(sign * slope.to(y0.dtype))
        y1 = y if tableau.fsal else y0 + length * _sum(tableau.b, stages)
        errors = [None if w is None else length * _sum(w, stages) for w in (tableau.b_error, tableau.b_error_low)]
        return y1, stages[1:], *errors

    return step


def _sum(weights: tuple[float, ...], stages: list[Tensor]) -> Tensor:
    terms = [weight * k for weight, k in zip(weights, stages, strict=False) if weight != 0.0]
    total = terms[0] if terms else 0.0 * stages[0]
    for term in terms[1:]:
        total = total + term
    return total


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error).__name__
