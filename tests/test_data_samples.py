"""Splits of nodes and densities on the plane: seeded, and what they say they are."""

from __future__ import annotations

import math

import pytest
import torch

from proxode.data import DENSITIES, random_split, sample_density

LABELS = torch.arange(3_000) % 5


def test_a_split_has_its_numbers_and_no_node_twice() -> None:
    split = random_split(LABELS, 0, per_class=20, development=600)
    assert LABELS[split.train].bincount().tolist() == [20] * 5
    assert [len(part) for part in split] == [100, 500, 2_400]
    assert torch.equal(torch.cat(split).sort().values, torch.arange(3_000))


def test_a_split_is_that_of_its_seed() -> None:
    first, again, other = (random_split(LABELS, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.train, other.train)


def test_a_split_that_cannot_be_says_why() -> None:
    with pytest.raises(ValueError, match=r"class 0 has \d+ nodes among 50.*raise `development`"):
        random_split(LABELS, 0, development=50)
    with pytest.raises(ValueError, match="`development` must be from 1 to 3000"):
        random_split(LABELS, 0, development=5_000)


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_is_that_of_its_seed(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (sample_density(name, 4_000, seed) for seed in (3, 3, 4))
    assert first.shape == (4_000, 2) and first.dtype == torch.float32
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
    generator = torch.Generator().manual_seed(3)
    assert torch.equal(sample_density(name, 4_000, generator), first)
    assert not torch.equal(sample_density(name, 4_000, generator), first)  # it goes on
    assert float(first.abs().max()) < 5.0 and float(first.mean(0).abs().max()) < 0.25
    assert 0.5 < float(first.std()) < 3.0


def test_the_checkerboard_is_black_and_even() -> None:
    x = sample_density("checkerboard", 80_000)
    cell = ((x + 4) / 2).floor().long()
    assert bool(((cell.sum(1) % 2) == 0).all())
    counts = torch.bincount(cell[:, 0] * 4 + cell[:, 1], minlength=16)
    assert int((counts > 0).sum()) == 8
    assert float((counts[counts > 0] - 10_000).abs().max()) < 5 * math.sqrt(80_000 / 8)


def test_eight_gaussians_have_their_radius_and_width() -> None:
    x = sample_density("eight_gaussians", 80_000)
    assert float(x.square().sum(1).mean()) == pytest.approx(2.8**2 + 2 * 0.35**2, rel=0.01)


def test_rings_have_their_radii() -> None:
    radius = sample_density("rings", 10_000).norm(dim=1)
    nearest = (radius / 0.75).round().clamp(1, 4) * 0.75
    assert float((radius - nearest).square().mean().sqrt()) == pytest.approx(0.08, rel=0.1)


def test_an_unknown_density_is_named() -> None:
    with pytest.raises(ValueError, match="known are: checkerboard"):
        sample_density("torus", 3)
