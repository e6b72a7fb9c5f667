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
        key = (id(tableau), structure.shapes, structure.is_tuple, reverse, real)
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
        own = types.FunctionType(plain.__code__.replace(), plain.__globals__)
        known[key] = torch.compile(own, dynamic=False, fullgraph=True, backend=backend)
    return known[key]


def _call(func: Callable[..., Any], t: Tensor, y: Any) -> Any:
    return func(t, y)


def _step_of(tableau: Any, structure: Structure, reverse: bool, real: torch.dtype) -> Callable[..., Any]:
    """The step as code with all numbers in it: torch looks at every call whether those kept elsewhere have changed."""
    sign = "-" if reverse else ""
    lines = ["h = ends[1] - ends[0]", f"s = h.to({real})", "y1 = y0"]
    for i, (c, row) in enumerate(zip(tableau.c[1:], tableau.a[1:], strict=True), 1):
        t = "ends[1]" if c == 1.0 else f"(ends[0] + {c!r} * h)"
        value = _flat(structure, f"{sign}{t}.to({real})")
        lines += [f"y1 = y0 + s * {_sum(row)}", f"k{i} = {sign}{value}.to(y0.dtype)"]
    if not tableau.fsal:
        lines.append(f"y1 = y0 + s * {_sum(tableau.b)}")
    errors = ("None" if w is None else f"s * {_sum(w)}" for w in (tableau.b_error, tableau.b_error_low))
    stages = ", ".join(f"k{i}" for i in range(1, len(tableau.c)))
    lines.append(f"return y1, [{stages}], {', '.join(errors)}")
    made: dict[str, Any] = {"torch": torch, "tableau": tableau}  # by whose identity the step is known: it must live
    exec("def step(func, ends, y0, k0):\n    " + "\n    ".join(lines), made)
    step: Callable[..., Any] = made["step"]
    return step


def _sum(weights: tuple[float, ...]) -> str:
    terms = [f"{weight!r} * k{i}" for i, weight in enumerate(weights) if weight != 0.0]
    return f"({' + '.join(terms) or '0.0 * k0'})"


def _flat(structure: Structure, t: str) -> str:
    """func at t and y1, as one vector."""
    shapes = [tuple(shape) for shape in structure.shapes]
    if not structure.is_tuple:
        return f"func({t}, y1.view({shapes[0]})).reshape(-1)"
    pieces, first = [], 0
    for shape, size in zip(shapes, structure.sizes, strict=True):
        pieces.append(f"y1[{first}:{first + size}].reshape({shape})")
        first += size
    return f"torch.cat([part.reshape(-1) for part in func({t}, ({', '.join(pieces)},))])"


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error).__name__
