"""Problems for a solver that has to find out by itself whether they are stiff: some are, some not, one now and then."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from . import stiff_problems as stiff
from .stiff_problems import Field, Problem, equal_times, problem, state


def kepler(t: Any, y: Tensor) -> Tensor:
    """A planet round a fixed sun: place, then velocity."""
    place, velocity = y[:2], y[2:]
    return torch.cat([velocity, -place / place.square().sum() ** 1.5])


def kepler_start(eccentricity: float) -> Tensor:
    """At the point next to the sun; a period is 2 pi."""
    return state(1 - eccentricity, 0, 0, math.sqrt((1 + eccentricity) / (1 - eccentricity)))


def lorenz(t: Any, y: Tensor) -> Tensor:
    return torch.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def pleiades(t: Any, y: Tensor) -> Tensor:
    """Seven stars of masses 1 to 7 in a plane (Hairer, Norsett & Wanner II.10): places x, y, then velocities."""
    places, velocities = y[:14].reshape(2, 7), y[14:]
    apart = places[:, None, :] - places[:, :, None]  # from each star (row) to the others
    cubed = (apart.square().sum(0) + torch.eye(7, dtype=y.dtype)) ** 1.5  # the diagonal divides zero by one
    masses = torch.arange(1, 8, dtype=y.dtype)
    return torch.cat([velocities, (masses * apart / cubed).sum(2).reshape(-1)])


def pleiades_start() -> Tensor:
    return state(3, 3, -1, -3, 2, -2, 2, 3, -3, 2, 0, 0, -4, 4, 0, 0, 0, 0, 0, 1.75, -1.5, 0, 0, 0, -1.25, 1, 0, 0)


def springs(t: Any, y: Tensor) -> Tensor:
    """32 masses on springs that are not quite linear (Fermi, Pasta, Ulam)."""
    q, p = y[:32], y[32:]
    ends = torch.zeros(1, dtype=y.dtype)
    stretch = torch.cat([q, ends]) - torch.cat([ends, q])
    force = stretch + 0.25 * stretch**2
    return torch.cat([p, force[1:] - force[:-1]])


def springs_start() -> Tensor:
    q = torch.sin(math.pi * torch.arange(1, 33, dtype=torch.float64) / 33)
    return torch.cat([q, torch.zeros_like(q)])


def network(size: int) -> Field:
    """A layer with random weights and a slow decay: what an untrained neural ODE looks like."""
    generator = torch.Generator().manual_seed(stiff.SEED)
    weights = torch.randn(size, size, generator=generator, dtype=torch.float64) / math.sqrt(size)
    return lambda t, y: torch.tanh(weights @ y) - 0.1 * y


def sometimes_stiff(t: Tensor, y: Tensor) -> Tensor:
    """Drawn towards cos t: gently, between 10/3 and 20/3 ten thousand times as hard, then gently again."""
    strength = 1 + 1e4 * (torch.sigmoid(20 * (t - 10 / 3)) - torch.sigmoid(20 * (t - 20 / 3)))
    return -strength * (y - torch.cos(t))


def auto_problems() -> tuple[Problem, ...]:
    known = {p.name: p for p in stiff.all_problems()}
    easy: dict[str, Any] = {"reference": "explicit"}
    return (
        known["robertson"],
        known["van_der_pol"],
        problem("van_der_pol_100", "Van der Pol, μ = 100", stiff.van_der_pol(1e2), state(2, 0), equal_times(200.0)),
        problem("van_der_pol_1", "Van der Pol, μ = 1", stiff.van_der_pol(1.0), state(2, 0), equal_times(20.0), **easy),
        known["brusselator"],
        problem("brusselator_40", "Brusselator, 40 unknowns", stiff.brusselator(20), stiff.brusselator_start(20),
                equal_times(10.0)),
        known["allen_cahn"],
        known["diffusion"],
        problem("kepler", "Kepler, e = 0.6", kepler, kepler_start(0.6), equal_times(20.0), **easy),
        problem("lorenz", "Lorenz", lorenz, state(1, 1, 1), equal_times(5.0), **easy),
        problem("pleiades", "Pleiades", pleiades, pleiades_start(), equal_times(2.0), **easy),
        problem("decay", "linear decay", lambda t, y: -y, state(1, 1, 1, 1), equal_times(10.0),
                exact=lambda t: torch.exp(-t)[:, None].expand(-1, 4)),
        problem("network", "tanh network, 50 units", network(50), torch.linspace(-1, 1, 50, dtype=torch.float64),
                equal_times(5.0), **easy),
        problem("sometimes_stiff", "stiff in the middle", sometimes_stiff, state(1, 1, 1), equal_times(10.0),
                reference="fair"),
    )  # fmt: skip
