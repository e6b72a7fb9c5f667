"""Autograd's view of a solved equation `x = anchor + M(x, inputs)`: x as a function of the anchor and the inputs.

    dx = (I - M_x)^{-1} (d anchor + M_inputs d inputs)

so backward solves `u = g + M_x^T u` and returns u for the anchor and `M_inputs^T u` for the inputs. That system has
the form of the equation itself, which makes the second derivative (and the third) the same code again: with
`create_graph` the solution u is such a root too. M is evaluated anew in backward, on tensors cut off from everything
else, so that no gradient finds a second way to where it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from ..autocast import uncasting
from ..eager import eager
from ..solution import Stats
from ..spread import over
from .captured import pull
from .products import Products
from .transposed import Equation, Transposed


class Move(Equation, Protocol):
    """M: what an equation adds to its anchor."""

    @property
    def stats(self) -> Stats: ...

    def isolate(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Copies of x and the inputs without a graph behind them."""
        ...

    def __call__(self, x: Tensor, /, *inputs: Tensor) -> Tensor: ...


class Graph(NamedTuple):
    """M evaluated: its arguments, cut off from everything else, and its value with the graph between them."""

    local: tuple[Tensor, ...]
    moved: Any


def evaluated(move: Any, args: tuple[Tensor, ...]) -> Graph:
    with torch.enable_grad():
        local = move.isolate(args)
        return Graph(local, move(*local))


def root(
    x: Tensor, move: Move, linear: Transposed, anchor: Tensor, inputs: tuple[Tensor, ...], kept: Graph | None = None
) -> Tensor:
    """x, which solves `x = anchor + move(x, *inputs)`, with its derivatives; `kept` is its move, already evaluated."""
    out: Tensor = Root.apply(x.detach(), move, linear, kept, anchor, *inputs)  # type: ignore[no-untyped-call]
    return out


class Root(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, move: Move, linear: Transposed, kept: Graph | None, anchor: Tensor, *inputs: Tensor
    ) -> Tensor:
        out = x.view_as(x)
        ctx.move, ctx.linear, ctx.kept = move, linear, kept
        ctx.save_for_backward(out, *inputs)
        return out

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *grads: Any) -> Any:
        (g,) = grads
        x, *inputs = ctx.saved_tensors
        move, linear = ctx.move, ctx.linear
        _refuse_duals(g, x, *inputs)
        with over(linear.spread), move.stats.counting_backward():
            local, moved = ctx.kept or evaluated(move, (x, *inputs))
            again = torch.is_grad_enabled()
            wanted = [i for i, want in enumerate(ctx.needs_input_grad[5:]) if want and not again]
            products = Products(moved, local[0], tuple(local[1 + i] for i in wanted), move.stats)
            u, found = linear.solve(products, g.detach(), move)
            pulled: list[Tensor | None] = [None] * len(inputs)
            for i, grad in zip(wanted, found, strict=True):
                pulled[i] = grad
            if again:
                u = root(u, Adjoint(move), Transposed(linear.rtol, linear.stats, linear.span), g, (x, *inputs))
                pulled = list(Call.apply(Pull(move, 1), u, x, *inputs))[1:]  # type: ignore[no-untyped-call]
        return None, None, None, None, u, *pulled


@dataclass(frozen=True)
class Adjoint:
    """`M_x^T u` as a function of u, then x and the inputs: the move of the transposed system."""

    move: Move

    @property
    def stats(self) -> Stats:
        return self.move.stats

    @property
    def t(self) -> float:
        return self.move.t

    @property
    def user_t(self) -> float:
        return self.move.user_t

    @property
    def gamma(self) -> float:
        return self.move.gamma

    def isolate(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        u, *others = args
        return u.detach().requires_grad_(), *self.move.isolate(tuple(others))

    def __call__(self, u: Tensor, /, *args: Tensor) -> Tensor:
        moved = self.move(*args)
        self.stats.count("n_vjp")
        if not moved.requires_grad:
            return torch.zeros_like(u)
        (pulled,) = torch.autograd.grad(moved, args[0], u, create_graph=True, allow_unused=True)
        return torch.zeros_like(u) if pulled is None else pulled


@dataclass(frozen=True)
class Pull:
    """The derivative of a function, transposed: from weights of its `outs` values, then its arguments, to a gradient
    for each argument."""

    function: Any
    outs: int

    @property
    def stats(self) -> Stats:
        return self.function.stats

    def isolate(self, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        ws = (w.detach().requires_grad_() for w in args[: self.outs])
        return *ws, *self.function.isolate(args[self.outs :])

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        ws, at = args[: self.outs], args[self.outs :]
        values = self.function(*at)
        values = values if isinstance(values, tuple) else (values,)
        self.stats.count("n_vjp")
        pairs = [(value, w) for value, w in zip(values, ws, strict=True) if value.requires_grad]
        chosen = [arg for arg in at if arg.requires_grad]
        found: Any = iter(())
        if pairs and chosen:
            found = iter(pull([value for value, _ in pairs], chosen, [w for _, w in pairs], create_graph=True))
        grads = [next(found, None) if arg.requires_grad else None for arg in at]
        return tuple(torch.zeros_like(a) if g is None else g for a, g in zip(at, grads, strict=True))


class Call(torch.autograd.Function):
    """A pure function of its arguments, evaluated anew in backward on arguments that are cut off."""

    @staticmethod
    def forward(ctx: Any, function: Any, *args: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        ctx.save_for_backward(*args)
        return tuple(value.detach() for value in evaluated(function, args).moved)

    @staticmethod
    @eager
    @uncasting
    def backward(ctx: Any, *ws: Any) -> Any:
        function, args = ctx.function, ctx.saved_tensors
        with function.stats.counting_backward():
            if torch.is_grad_enabled():
                grads = Call.apply(Pull(function, len(ws)), *ws, *args)  # type: ignore[no-untyped-call]
                return None, *grads
            local, values = evaluated(function, args)
            return None, *_pull(function.stats, values, local, ws)


def _pull(stats: Stats, outs: tuple[Tensor, ...], args: tuple[Tensor, ...], ws: tuple[Any, ...]) -> list[Tensor | None]:
    """The gradients of outs, weighted with ws, for each of args."""
    chosen = [arg for arg in args if arg.requires_grad]
    pairs = [(out, w) for out, w in zip(outs, ws, strict=True) if out.requires_grad]
    if not chosen or not pairs:
        return [None] * len(args)
    stats.count("n_vjp")
    found = iter(pull([out for out, _ in pairs], chosen, [w for _, w in pairs]))
    return [next(found) if arg.requires_grad else None for arg in args]


def _refuse_duals(*tensors: Any) -> None:
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "forward mode over the backward of a proximal step is not available: "
            "use autograd.grad with create_graph=True twice"
        )
