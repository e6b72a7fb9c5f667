"""The modules that f uses, as far as they can be found: a diagnosis evaluates f often, and should leave no trace."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

DEEP = 3  # functions within functions that are looked through


@contextmanager
def buffers_kept(func: Any) -> Iterator[None]:
    """Running statistics (BatchNorm in training) and other buffers are afterwards as they were."""
    modules = {id(m): m for found in _modules(func, DEEP) for m in found.modules()}
    kept = [
        (m, name, b, b.detach().clone()) for m in modules.values() for name, b in m._buffers.items() if b is not None
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, value in kept:
                module._buffers[name] = buffer
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _modules(thing: Any, deep: int) -> Iterator[nn.Module]:
    """A module itself; what a method is bound to, and what a function encloses, reads by name, or was given."""
    if isinstance(thing, nn.Module):
        yield thing
    elif isinstance(thing, functools.partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            yield from _modules(part, deep - 1)
    elif deep > 0 and callable(thing):
        inside = getattr(thing, "__func__", thing)
        code = getattr(inside, "__code__", None)
        seen = getattr(inside, "__globals__", {})
        cells = getattr(inside, "__closure__", None) or ()
        attributes = getattr(thing, "__dict__", {}) if code is None else {}  # of an object that is called
        found = [getattr(thing, "__self__", None), *(seen.get(name) for name in (code.co_names if code else ()))]
        for part in (*found, *map(_content, cells), *attributes.values()):
            if part is not thing:
                yield from _modules(part, deep - 1)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
