"""Seven oscillators of Van der Pol as independent samples, for the tests of `per_sample`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def doubles(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def van_der_pol(mu: Tensor) -> Any:
    return lambda t, y: torch.stack([y[:, 1], mu * (1 - y[:, 0] ** 2) * y[:, 1] - y[:, 0]], 1)


MU = torch.logspace(0, 3, 7, dtype=torch.float64)
Y0 = doubles([2.0, 0.0]).repeat(7, 1)
