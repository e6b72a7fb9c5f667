"""The tensors that f uses and was not given: parameters, and whatever else it closes over.

They are found by evaluating f once. Leaves show in the graph of the value. A tensor that was computed outside of f (an
attention matrix, say) shows as an argument of some torch function whose own graph is older than the evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..norms import somewhere
from ..times import Time, number
from ..vector_field import VectorField

Made = WeakValueDictionary[int, Tensor]
Edge = tuple[Any, int]  # a node of the graph, and which of its outputs


class Captured(NamedTuple):
    """Tensors that want a gradient. `leaves` have no graph behind them; `inner` were computed outside of f."""

    leaves: tuple[Tensor, ...] = ()
    inner: tuple[Tensor, ...] = ()
    given: tuple[Tensor, ...] = ()  # what stands in for `inner`
    ignored: tuple[Tensor, ...] = ()  # known, and left without a gradient by the user's choice
    own_leaves: bool = False  # f makes leaves itself (`t.requires_grad_()`), which are new each time

    @property
    def all(self) -> tuple[Tensor, ...]:
        return (*self.leaves, *(self.given or self.inner))

    def isolated(self) -> Captured:
        """With copies for those that have a graph behind them. A gradient that went on through that graph could reach
        a captured leaf by a second way, and would be counted twice."""
        return self._replace(given=tuple(x.detach().requires_grad_() for x in self.inner))

    @contextmanager
    def substituted(self) -> Iterator[Made]:
        """A block in which f gets what is given. Yields what it makes, where that matters."""
        with ExitStack() as stack:
            if self.given:
                stack.enter_context(Substitute(self.inner, self.given))
            yield stack.enter_context(Watch()).made if self.own_leaves else WeakValueDictionary()


def captured_by(f: VectorField, t: Time, y: Tensor) -> Captured:
    """What f captures, by one evaluation at (t, y). Raises if autograd does not see how f depends on y."""
    time = number(t)
    with torch.enable_grad():
        here = y.detach().requires_grad_()
        born = here.view_as(here).grad_fn._sequence_nr()  # type: ignore[union-attr]
        with Watch(born) as watch:
            value = f.graph(time, here)
        inner = _replaceable(f, time, here, tuple(watch.outside.values()))
        reached = leaves_of([value], edges(inner))
    if f.spread is None and id(here) not in {id(leaf) for leaf in reached}:  # else `check_transposed` tells
        _check_constant(f, time, y)
    own = [leaf for leaf in reached if id(leaf) in watch.made]
    leaves: dict[int, Tensor] = {}
    if isinstance(f.func, torch.nn.Module):  # also those that only other times will use
        leaves = {id(p): p for p in f.func.parameters() if p.requires_grad}
    leaves.update({id(leaf): leaf for leaf in reached if leaf is not here and id(leaf) not in watch.made})
    return Captured(tuple(leaves.values()), inner, own_leaves=bool(own))


def _replaceable(f: VectorField, t: float, y: Tensor, inner: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Those of `inner` that f takes a substitute for. Some it hands on where no mode sees it, to an autograd.Function
    say: their gradient goes to the leaves behind them."""
    if not somewhere(bool(inner)):
        return ()
    captured = Captured((), inner).isolated()
    with captured.substituted():
        value = f.graph(t, y)
    seen = nodes_of([value])
    return tuple(x for x in inner if x.grad_fn not in seen)


def check_seen(f: VectorField) -> None:
    """Raise if f was evaluated where autograd was recording, gave a value without a graph, and depends on y."""
    if f.spread is None and f.unseen is not None and torch.is_grad_enabled():
        _check_constant(f, *f.unseen)


def _check_constant(f: VectorField, t: float, y: Tensor) -> None:
    if f.depends_on_state(t, y):
        raise RuntimeError(
            "autograd does not see how func depends on y, so the gradient would be wrong: func detaches its input, "
            "leaves torch, or calls autograd.grad without create_graph=True. Mend that, or solve under no_grad"
        )


def check_none(f: VectorField, t: Time, y: Tensor) -> None:
    """Raise if f, from which nothing wanted a gradient where the solve began, now uses something that does."""
    if not isinstance(f.func, torch.nn.Module):  # of a module all is known from the start
        check_known(captured_by(f, t, y).all, (), WeakValueDictionary(), f.user_time(t))


class Watch(TorchFunctionMode):
    """Notes the arguments that want a gradient and whose graph is older than `born`, and all that is made."""

    def __init__(self, born: int = 0) -> None:
        super().__init__()
        self.born = born
        self.outside: dict[Edge, Tensor] = {}
        self.made: Made = WeakValueDictionary()  # by id, for as long as they live

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(tensors_in((args, kwargs)))
        for x in given:
            if x.requires_grad and x.grad_fn is not None and x.grad_fn._sequence_nr() < self.born:
                self.outside.setdefault((x.grad_fn, x.output_nr), x)
        out = func(*args, **(kwargs or {}))
        known = {id(x) for x in given}
        self.made.update({id(x): x for x in tensors_in(out) if id(x) not in known})
        return out


class Substitute(TorchFunctionMode):
    """Puts other tensors in the place of those that f captures, so that its graph ends there."""

    def __init__(self, captured: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        super().__init__()
        self.given = {edge_of(old): new for old, new in zip(captured, given, strict=True)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*self._replace(args), **self._replace(kwargs or {}))

    def _replace(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return x if x.grad_fn is None else self.given.get(edge_of(x), x)
        if type(x) in (tuple, list):
            return type(x)(self._replace(part) for part in x)
        if type(x) is dict:
            return {key: self._replace(part) for key, part in x.items()}
        return x


def edge_of(x: Tensor) -> Edge:
    return (x.grad_fn, x.output_nr)


def edges(tensors: Iterable[Tensor]) -> set[Edge]:
    return {edge_of(x) for x in tensors if x.grad_fn is not None}


def nodes_of(values: Iterable[Tensor]) -> set[Any]:
    """All nodes of the graphs of `values`."""
    ahead, seen = [value.grad_fn for value in values], set()
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            ahead.extend(parent for parent, _ in node.next_functions)
    return seen


def leaves_of(values: Iterable[Tensor], ends: set[Edge]) -> list[Tensor]:
    """The leaves that the graphs of `values` reach without passing through one of `ends`."""
    values = list(values)
    ahead = [edge_of(value) for value in values if value.grad_fn is not None]
    seen: set[Any] = set()
    leaves = [value for value in values if value.grad_fn is None and value.requires_grad]
    while ahead:
        edge = ahead.pop()
        node = edge[0]
        if node is None or node in seen or edge in ends:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        ahead.extend(node.next_functions)
    return leaves


def pull(outs: Any, inputs: Sequence[Tensor], weights: Any, *, create_graph: bool = False) -> tuple[Any, ...]:
    """`autograd.grad` without the hooks that users put on leaves: those run when the gradient gets there at last."""
    hooks = [(x._backward_hooks, dict(x._backward_hooks)) for x in inputs if x.is_leaf and x._backward_hooks]
    for live, _ in hooks:
        live.clear()
    try:
        return torch.autograd.grad(
            outs, inputs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    finally:
        for live, kept in hooks:
            live.update(kept)


class UnknownTensor(RuntimeError):
    """f used a tensor of which nothing was known when the gradient was prepared."""


def check_known(values: Iterable[Tensor], known: Iterable[Tensor], made: Made, t: float) -> None:
    """Raise if the graphs of `values` reach a leaf that is not among the known tensors, nor was made by f itself: its
    gradient would be lost."""
    known = list(known)
    names = {*map(id, known), *made}
    for leaf in leaves_of(values, edges(known)):
        if id(leaf) not in names:
            raise UnknownTensor(
                f"func used a tensor of shape {tuple(leaf.shape)} at t = {t:.6g} that wants a gradient and that it did "
                "not use where the solve began, so its gradient would be lost. If it has replaced another since, keep "
                "that until backward is done; else make it a parameter of func (an nn.Module), or solve with "
                "gradient='implicit' and store_graph=True"
            )


def tensors_in(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, tuple | list):
        for part in x:
            yield from tensors_in(part)
    elif isinstance(x, dict):
        yield from tensors_in(tuple(x.values()))
