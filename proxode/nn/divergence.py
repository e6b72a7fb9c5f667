"""The divergence of a vector field, the trace of its Jacobian, of every sample of a batch: exact or estimated."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

NOISES = ("rademacher", "gaussian")


def exact_divergence(rate: Tensor, x: Tensor, *, create_graph: bool) -> Tensor:
    """`(batch,)`, by one product for each component of a sample; `rate` must have been computed from x with a graph."""
    columns = rate.flatten(1)
    total = x.new_zeros(len(x))
    for i in range(columns.shape[1]):
        row = _product(columns[:, i], torch.ones_like(total), x, create_graph)
        total = total + row.flatten(1)[:, i]
    return total


def hutchinson(rate: Tensor, x: Tensor, noise: Tensor, *, create_graph: bool) -> Tensor:
    """`noise^T J noise`, whose mean over noise of unit covariance is the trace (Hutchinson 1990): one product."""
    return (_product(rate, noise, x, create_graph) * noise).flatten(1).sum(1)


def draw_noise(x: Tensor, kind: str, generator: Generator | None = None) -> Tensor:
    """Of the shape of x. Signs have the least variance, and none where the Jacobian is diagonal."""
    if kind == "rademacher":
        signs = torch.randint(0, 2, x.shape, generator=generator, device=x.device)
        return signs.to(x.dtype) * 2 - 1
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


def _product(value: Tensor, vector: Tensor, x: Tensor, create_graph: bool) -> Tensor:
    """The vector-Jacobian product; zero where value does not depend on x."""
    if not value.requires_grad:
        return torch.zeros_like(x)
    (product,) = torch.autograd.grad(
        value, x, vector, create_graph=create_graph, retain_graph=True, materialize_grads=True
    )
    return product
