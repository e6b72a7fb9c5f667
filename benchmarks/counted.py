"""f as the solvers of every library see it, with one counter and one limit for all of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .stiff_problems import Field

Array = NDArray[np.float64]


class Stopped(RuntimeError):
    """A solve that used up what it was given."""


class Counted:
    """f for torch; `numpy` and `into` are the same f for SciPy and for CVODE.

    `nfe` has every call and the columns of every Jacobian; `calls` only what was called here.
    """

    def __init__(self, f: Field, max_nfe: int | None = None, max_seconds: float | None = None) -> None:
        self.f = f
        self.max_nfe = max_nfe
        self.max_seconds = max_seconds
        self.calls = 0
        self.columns = 0
        self.begin = time.perf_counter()

    @property
    def nfe(self) -> int:
        return self.calls + self.columns

    def __call__(self, t: Any, y: Tensor) -> Tensor:
        self.calls += 1
        if self.max_nfe is not None and self.nfe > self.max_nfe:
            raise Stopped(f"stopped after {self.max_nfe:,} evaluations of f")
        if self.max_seconds is not None and time.perf_counter() - self.begin > self.max_seconds:
            raise Stopped(f"stopped after {self.max_seconds:g} s and {self.nfe:,} evaluations of f")
        return self.f(t, y)

    def numpy(self, t: float, y: Array) -> Array:
        return self(torch.tensor(t, dtype=torch.float64), torch.tensor(y)).numpy()

    def into(self, t: float, y: Array, slope: Array) -> None:
        slope[:] = self.numpy(t, y)

    def jacobian(self, t: float, y: Array) -> Array:
        """df/dy by batched backward passes; it counts as its columns."""
        self.columns += len(y)
        with torch.enable_grad():
            z = torch.tensor(y).requires_grad_()
            out = self.f(torch.tensor(t, dtype=torch.float64), z)
            eye = torch.eye(len(y), dtype=out.dtype)
            return torch.autograd.grad(out, z, eye, is_grads_batched=True)[0].numpy()
