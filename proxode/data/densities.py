"""Densities on the plane, by their samples: what normalising flows are tried on first."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor


def checkerboard(n: int, generator: Generator) -> Tensor:
    """Uniform on the black squares of side 2 in [-4, 4]^2: its entropy is log 32."""
    column = torch.randint(0, 4, (n,), generator=generator)
    row = 2 * torch.randint(0, 2, (n,), generator=generator) + column % 2
    corner = 2.0 * torch.stack([column, row], 1) - 4.0
    return corner + 2.0 * torch.rand(n, 2, generator=generator)


def eight_gaussians(n: int, generator: Generator) -> Tensor:
    """Eight round ones of standard deviation 0.35 on a circle of radius 2.8."""
    angle = math.pi / 4 * torch.randint(0, 8, (n,), generator=generator)
    return 2.8 * _on_circle(angle) + 0.35 * torch.randn(n, 2, generator=generator)


def moons(n: int, generator: Generator) -> Tensor:
    """Two half circles that reach into each other."""
    angle = math.pi * torch.rand(n, generator=generator)
    second = torch.randint(0, 2, (n, 1), generator=generator).bool()
    upper = _on_circle(angle)
    lower = torch.tensor([1.0, 0.5]) - upper
    noise = 0.1 * torch.randn(n, 2, generator=generator)
    return 2.0 * (torch.where(second, lower, upper) + noise) - torch.tensor([1.0, 0.5])


def pinwheel(n: int, generator: Generator) -> Tensor:
    """Five arms, turned the more the further out."""
    arm = torch.randint(0, 5, (n,), generator=generator)
    radial, tangential = (torch.tensor([0.3, 0.1]) * torch.randn(n, 2, generator=generator)).unbind(1)
    radial = radial + 1.0
    angle = 2 * math.pi / 5 * arm + 0.25 * radial.exp()
    across = torch.stack([-angle.sin(), angle.cos()], 1)
    return 2.0 * (radial.unsqueeze(1) * _on_circle(angle) + tangential.unsqueeze(1) * across)


def rings(n: int, generator: Generator) -> Tensor:
    """Four circles of radius 0.75, 1.5, 2.25 and 3."""
    radius = 0.75 * torch.randint(1, 5, (n, 1), generator=generator)
    angle = 2 * math.pi * torch.rand(n, generator=generator)
    return radius * _on_circle(angle) + 0.08 * torch.randn(n, 2, generator=generator)


def spirals(n: int, generator: Generator) -> Tensor:
    """Two spirals of one and a half turns."""
    angle = 3 * math.pi * torch.rand(n, generator=generator).sqrt()
    sign = 2.0 * torch.randint(0, 2, (n, 1), generator=generator) - 1.0
    arm = angle.unsqueeze(1) / 3 * torch.stack([-angle.cos(), angle.sin()], 1)
    return sign * arm + 0.1 * torch.randn(n, 2, generator=generator)


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], 1)


DENSITIES: dict[str, Callable[[int, Generator], Tensor]] = {
    f.__name__: f for f in (checkerboard, eight_gaussians, moons, pinwheel, rings, spirals)
}


def sample_density(name: str, n: int, generator: Generator | int = 0) -> Tensor:
    """n points of a density of `DENSITIES`, `(n, 2)` in float32; `generator` may be a seed."""
    if name not in DENSITIES:
        raise ValueError(f"there is no density {name!r}; known are: {', '.join(DENSITIES)}")
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    return DENSITIES[name](n, generator).float()
