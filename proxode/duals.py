"""Dual numbers, without the warnings that torch gives about itself when they are used for the first time."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from functools import cache

import torch
import torch.autograd.forward_ad as forward_ad


def dual_level() -> AbstractContextManager[int]:
    """A block in which there are dual numbers."""
    _load()
    return forward_ad.dual_level()


@cache
def _load() -> None:
    """The first dual number of a process makes torch load derivatives by torch.jit, which it has deprecated: a program
    that takes warnings for errors would end here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.ones(1))
