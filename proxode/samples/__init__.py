"""Independent problems in one batch (`per_sample=True`): every sample with its own step, order, end and status."""

from .door import solve_samples

__all__ = ["solve_samples"]
