"""How functions of time and state are called, `func(t, y)`, and what to write where they cannot be."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

STATES = {"h", "state", "u", "x", "y", "z"}  # names that nobody gives to a time
TIMES = {"t", "time"}
NO_GRAPH = ("does not require grad and does not have a grad_fn", "differentiated Tensors does not require grad")
OWN_DERIVATIVE = (
    "If func takes a derivative of its own (torch.autograd.grad): a solver evaluates it without a graph too. Write it "
    "in `with torch.enable_grad():`, of a y that has asked for it, `y = y.requires_grad_()`"
)


def check_func(func: Any, argument: str = "func") -> None:
    """Whether func is a function, and not one of a state and a time. For every solve: it costs next to nothing."""
    if not callable(func):
        raise TypeError(f"`{argument}` must be callable as {argument}(t, y), but it is a {type(func).__name__}")
    if isinstance(func, type) and issubclass(func, nn.Module):
        name = func.__name__
        raise TypeError(f"`{argument}` is the class {name}, not a module: write {name}(...)")
    called = _called(func)
    code = getattr(called, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: code.co_argcount]
    names = names[1:] if inspect.ismethod(called) else names  # without self
    if len(names) == 2 and names[0] in STATES and names[1] in TIMES:
        raise TypeError(
            f"{_is_called(func, argument)}({', '.join(names)}): exchange its arguments, or write "
            f"lambda t, y: {argument}(y, t)"
        )


def call(func: Any, t: Any, y: Any) -> Any:
    """`func(t, y)`. Its exceptions come out as they are, unless it is the call itself that is wrong."""
    try:
        return func(t, y)
    except TypeError:
        check_call(func)
        raise
    except RuntimeError as error:
        if any(said in str(error) for said in NO_GRAPH):
            raise RuntimeError(f"{error}\n{OWN_DERIVATIVE}") from error
        raise


def check_call(func: Any, argument: str = "func") -> None:
    """Raise if func cannot take two arguments. Slower than a step of some: asked where a call has failed, and once for
    a layer or an event."""
    if isinstance(func, nn.Module) and (type(func).__call__ is not nn.Module.__call__ or func._forward_pre_hooks):
        return  # what forward gets is not what it is called with
    try:
        signature = inspect.signature(_called(func), follow_wrapped=False)
    except (TypeError, ValueError):  # of what is not written in Python
        return
    try:
        signature.bind(None, None)
    except TypeError:
        instead = _instead(func, len(signature.parameters), argument)
        raise TypeError(f"{_is_called(func, argument)}{signature}: {instead}") from None


def _instead(func: Any, arguments: int, argument: str) -> str:
    if arguments != 1:
        return f"give it what else it needs, as in lambda t, y: {argument}(t, y, ...)"
    if isinstance(func, nn.Module):
        return "put it into a module whose forward(self, t, y) returns self.net(y), or write lambda t, y: net(y)"
    return f"write lambda t, y: {argument}(y)"


def _called(func: Any) -> Any:
    return func.forward if isinstance(func, nn.Module) else func


def _is_called(func: Any, argument: str) -> str:
    kind = type(func).__name__
    name = f"{kind}.forward" if isinstance(func, nn.Module) else getattr(func, "__name__", kind)
    return f"`{argument}` is called as {argument}(t, y), but it is {name}"
