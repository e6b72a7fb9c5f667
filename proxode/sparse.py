"""Sparse matrices, without torch's notice that they are in beta."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor


def csr(offsets: Tensor, columns: Tensor, values: Tensor, shape: Any, *, check: bool = True) -> Tensor:
    """The matrix whose row i has `values[k]` at `columns[k]`, for k from `offsets[i]` up to `offsets[i + 1]`."""
    return torch.sparse_csr_tensor(offsets, columns, values, shape, check_invariants=check)


with warnings.catch_warnings():  # torch says it once in a process, when the first is made
    warnings.filterwarnings("ignore", message=".*Sparse CSR tensor support is in beta.*")
    csr(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), (1, 1))
