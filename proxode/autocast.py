"""The state of autocast, to be taken up again where f is called later: backward may run outside of the block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

AUTOCAST = ("cpu", "cuda")


def autocast_state() -> tuple[tuple[bool, torch.dtype], ...]:
    """Is autocast on, and with which dtype, for each type of device."""
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in AUTOCAST)


@contextmanager
def as_before(state: tuple[tuple[bool, torch.dtype], ...]) -> Iterator[None]:
    """A block with the given state of autocast."""
    with ExitStack() as stack:
        for kind, (enabled, dtype) in zip(AUTOCAST, state, strict=True):
            if kind == "cpu" or torch.cuda.is_available():
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield
