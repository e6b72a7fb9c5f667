"""The state of autocast, to be taken up again where f is called later: backward may run outside of the block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch

KINDS = ("cpu", "cuda")
OFF: tuple[tuple[bool, torch.dtype], ...] = ()
ANY_ENABLED: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def autocast_state() -> tuple[tuple[bool, torch.dtype], ...]:
    """Is autocast on, and with which dtype, for each type of device; `OFF` where it is on for none."""
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return OFF
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in KINDS)


def autocast_changed(state: tuple[tuple[bool, torch.dtype], ...]) -> bool:
    """Whether the state of autocast is another one now. It is asked at every call of f, and mostly off."""
    return (state is not OFF or ANY_ENABLED()) and state != autocast_state()


@contextmanager
def uncast() -> Iterator[None]:
    """A block in which nothing is cast: f has the state of its own, and what solves for it needs all digits."""
    if not ANY_ENABLED() or autocast_state() is OFF:
        yield
        return
    with as_before(OFF):
        yield


def uncasting(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, in such a block. (`uncast` as a decorator has code of contextlib's around it, which `eager`
    could not mark.)"""

    @wraps(backward)
    def inner(*args: Any) -> Any:
        with uncast():
            return backward(*args)

    return inner


@contextmanager
def as_before(state: tuple[tuple[bool, torch.dtype], ...]) -> Iterator[None]:
    """A block with the given state of autocast."""
    states = state or tuple((False, torch.get_autocast_dtype(kind)) for kind in KINDS)
    with ExitStack() as stack:
        for kind, (enabled, dtype) in zip(KINDS, states, strict=True):
            if kind == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield
