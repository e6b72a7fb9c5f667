"""Flows of images: what is closed is checked in closed form, and the way back is the way."""

from __future__ import annotations

import math

import pytest
import torch

from proxode.nn import CNF, Flow, Logit, Multiscale, Squeeze, bits_per_dim, dequantise, image_flow

IMAGES = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TIGHT = {"method": "dopri5", "rtol": 1e-7, "atol": 1e-9}


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.05])
def test_the_determinant_of_the_logit(alpha: float) -> None:
    logit = Logit(alpha)
    y, log_det = logit(IMAGES)
    for i, image in enumerate(IMAGES):
        jacobian = torch.autograd.functional.jacobian(lambda x: logit(x[None])[0].flatten(), image).flatten(1)
        assert float(log_det[i]) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), rel=1e-9)
    back, inverse = logit(y, reverse=True)
    torch.testing.assert_close(back, IMAGES)
    torch.testing.assert_close(inverse, -log_det)


def test_the_logit_is_finite_at_the_ends() -> None:
    y, log_det = Logit(1e-6)(torch.tensor([[0.0, 1.0]]))
    assert bool(torch.isfinite(y).all()) and bool(torch.isfinite(log_det).all())
    with pytest.raises(ValueError, match="`alpha`"):
        Logit(0.5)


def test_squeeze_moves_the_pixels_of_squares_into_channels() -> None:
    x = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    y, log_det = Squeeze()(x)
    assert y.shape == (2, 12, 2, 3) and float(log_det.abs().sum()) == 0.0
    assert y[0, :4, 0, 0].tolist() == [x[0, 0, 0, 0], x[0, 0, 0, 1], x[0, 0, 1, 0], x[0, 0, 1, 1]]
    assert torch.equal(Squeeze()(y, reverse=True)[0], x)
    with pytest.raises(ValueError, match="sides must be even"):
        Squeeze()(x[..., :5])


def test_pixels_are_spread_over_their_cells() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).repeat(200, 1)
    x = dequantise(pixels, torch.Generator().manual_seed(0))
    assert x.dtype == torch.float32 and torch.equal((x * 256).floor().clamp(max=255), pixels.float())
    assert float((x * 256 - pixels).mean()) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(x, dequantise(pixels, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("pixels", [torch.rand(2, 1, 4, 4), torch.tensor([256]), torch.tensor([-1.0])])
def test_pixels_that_are_no_whole_numbers_are_refused(pixels: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 255.*\(pixels \* 255\).round\(\)"):
        dequantise(pixels)


def test_pixels_that_were_not_scaled_are_refused_by_the_flow() -> None:
    made = image_flow((1, 4, 4), hidden=(8,))
    for pixels in (torch.randint(0, 256, (2, 1, 4, 4)), torch.full((2, 1, 4, 4), 2.0)):
        with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\].*dequantise"):
            made.log_prob(pixels)


def test_bits_of_a_uniform_density() -> None:
    """8 bits, and one less on half of the cube."""
    assert float(bits_per_dim(torch.zeros(()), 784)) == pytest.approx(8.0)
    assert float(bits_per_dim(torch.tensor(784 * math.log(2.0)), 784)) == pytest.approx(7.0, abs=1e-5)
    assert float(bits_per_dim(torch.zeros(()), 10, levels=32)) == pytest.approx(5.0)


def flow(**options: object) -> Multiscale:
    torch.manual_seed(0)
    made = Multiscale((1, 4, 4), hidden=(4, 4), **(TIGHT | options)).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2.0)
    return made


@torch.no_grad()
@pytest.mark.parametrize("scales", [1, 2, 3])
def test_the_multiscale_flow_has_its_determinant_and_its_inverse(scales: int) -> None:
    layers = flow(scales=scales, divergence="exact")
    cnfs = [module for module in layers.modules() if isinstance(module, CNF)]
    assert len(cnfs) == 2 * scales - 1
    x = IMAGES[:1]
    z, log_det = layers(x)
    assert z.shape == (1, 16)
    back, inverse = layers(z, reverse=True)
    torch.testing.assert_close(back, x, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(inverse, -log_det, rtol=1e-5, atol=1e-6)

    for cnf in cnfs:  # only where the images come to counts now
        cnf.divergence = "hutchinson"
    shift = 1e-4 * torch.eye(16, dtype=torch.float64).view(16, 1, 4, 4)
    ahead, behind = layers(torch.cat([x + shift, x - shift]))[0].chunk(2)
    jacobian = (ahead - behind).T / 2e-4
    assert float(log_det) == pytest.approx(float(torch.linalg.slogdet(jacobian)[1]), abs=1e-5)
    assert abs(float(log_det)) > 0.01


def test_the_flow_of_the_paper_has_three_flows_of_five_convolutions() -> None:
    made = image_flow()
    cnfs = [module for module in made.modules() if isinstance(module, CNF)]
    shapes = [[tuple(p.shape[:2]) for name, p in cnf.named_parameters() if name.endswith("weight")] for cnf in cnfs]
    inner = [(64, 65)] * 3
    assert shapes == [[(64, c + 1), *inner, (c, 65)] for c in (1, 4, 2)]
    with pytest.raises(ValueError, match="does not admit 4 scales"):
        image_flow((1, 28, 28), scales=4)


def test_images_are_learned_and_drawn() -> None:
    """Images that are dark on their left half need fewer bits than those of an even density."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (32, 1, 4, 4), generator=generator)
    pixels[..., :2] //= 16
    made: Flow = image_flow((1, 4, 4), alpha=1e-3, hidden=(8,), rtol=1e-3, atol=1e-3)
    optimiser = torch.optim.Adam(made.parameters(), lr=0.06)
    bits = []
    for _ in range(12):
        optimiser.zero_grad()
        loss = bits_per_dim(made.log_prob(dequantise(pixels)), 16).mean()
        loss.backward()
        optimiser.step()
        bits.append(float(loss.detach()))
        assert 0 < made.stats.nfe_forward < 200 and len(made.stats.solves) == 3
    assert bits[-1] < bits[0] - 0.3
    with torch.no_grad():
        x, log_prob = made.sample(20, generator=generator)
    assert x.shape == (20, 1, 4, 4) and float(x.min()) + 2e-3 >= 0 and float(x.max()) <= 1 + 2e-3
    assert float(x[..., :2].mean()) < float(x[..., 2:].mean()) and bool(torch.isfinite(log_prob).all())
