"""The state of a solve as plain data: dicts, lists, tuples, numbers, strings and tensors, which `torch.save` writes and
`torch.load(..., weights_only=True)` reads.

Histories, controllers and what inner solvers have learned are named tuples of this package; one becomes a dict with the
name of its class, and only such classes are made again from a dict.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor

PACKAGE = __name__.partition(".")[0]
KIND = "named tuple"  # the key that holds the name of a class


class NotPlain(TypeError):
    """Something that a snapshot cannot hold."""


def freeze(x: Any) -> Any:
    """A copy of x as plain data, without graphs. A tensor that occurs twice is one tensor in the copy too."""
    return _frozen(x, {})


def thaw(x: Any) -> Any:
    """What was frozen, in tensors of its own: several may be made from one snapshot."""
    return _thawed(x, {})


def is_plain(x: Any) -> bool:
    try:
        freeze(x)
    except NotPlain:
        return False
    return True


def _frozen(x: Any, done: dict[int, Tensor]) -> Any:
    if isinstance(x, Tensor):
        return _copied(x, done)
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        name = f"{type(x).__module__}:{type(x).__qualname__}"
        _class_of(name)
        return {KIND: name, **{field: _frozen(getattr(x, field), done) for field in x._fields}}
    if type(x) in (tuple, list):
        return type(x)(_frozen(part, done) for part in x)
    if type(x) is dict and all(isinstance(key, str) and key != KIND for key in x):
        return {key: _frozen(part, done) for key, part in x.items()}
    raise NotPlain(f"a {type(x).__name__} cannot be part of a saved state")


def _thawed(x: Any, done: dict[int, Tensor]) -> Any:
    if isinstance(x, Tensor):
        return _copied(x, done)
    if type(x) in (tuple, list):
        return type(x)(_thawed(part, done) for part in x)
    if isinstance(x, dict):
        parts = {key: _thawed(part, done) for key, part in x.items() if key != KIND}
        return _class_of(x[KIND])(**parts) if KIND in x else parts
    return x


def _copied(x: Tensor, done: dict[int, Tensor]) -> Tensor:
    if id(x) not in done:
        done[id(x)] = x.detach().clone()
    return done[id(x)]


def _class_of(name: str) -> Any:
    """A named tuple of this package, and nothing else: a saved state must not be able to run code."""
    module, _, qualname = name.partition(":")
    if module.partition(".")[0] == PACKAGE:
        try:
            kind = getattr(importlib.import_module(module), qualname, None)
        except ImportError:
            kind = None
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return kind
    raise NotPlain(f"the state holds a {name}, which this version of {PACKAGE} does not know")
