"""Functions that record nothing for autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Made = TypeVar("Made")


def without_graph(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """As `torch.no_grad()`, for what is called at every step: where nothing is recorded anyway, it costs nothing."""

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return call
