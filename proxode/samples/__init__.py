"""Independent problems in one batch (`per_sample=True`): every sample with its own step, order, end and status."""

from .door import refuse_for_samples, solve_samples

__all__ = ["refuse_for_samples", "solve_samples"]
