"""A latent ODE: noisy spirals, each seen at irregular times of its own, become curves that can be continued.

An RNN reads a spiral backwards and says where it starts in a latent space, an ODE moves that state through time, a
decoder gives the positions (Chen et al. 2018, section 5; here without their prior). With `per_sample=True` each spiral
has its own times, `save_at[:, i]`: no grid, no masks. Errors are against the true curves of spirals not trained on.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import proxode

SEEN, END, NOISE, POINTS = 3.0, 4.0, 0.1, 20  # observations lie in [0, SEEN]


def spirals(n):
    """n curves that wind inwards, to either side, as a function of times; times `(POINTS, n)`; what is seen then."""
    (angle, radius), turn = torch.rand(2, n), 2.5 * torch.randn(n).sign()
    def curve(t):
        return torch.view_as_real(torch.polar((1 + radius) * torch.exp(-0.3 * t), 6.3 * angle + turn * t))
    times = (SEEN * torch.rand(POINTS, n)).sort(0).values
    return curve, times, curve(times) + NOISE * torch.randn(POINTS, n, 2)


class LatentODE(nn.Module):
    def __init__(self, latent=6, hidden=32):
        super().__init__()
        self.encoder, self.head = nn.GRU(3, hidden), nn.Linear(hidden, latent)
        self.field = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, times, seen, wanted):
        _, last = self.encoder(torch.cat([seen, times[..., None]], -1).flip(0))  # what is read last is nearest to t = 0
        settings = {"save_at": wanted, "per_sample": True, "rtol": 1e-3, "atol": 1e-3}
        return self.decoder(proxode.solve(lambda t, z: self.field(z), self.head(last[0]), 0.0, END, **settings).ys)


def train(model, steps, times, seen):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(steps):
        loss = (model(times, seen, times) - seen).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.1 ** (1 / steps)
        if step % 50 == 0:
            print(f"step {step:4d}: error {loss.item() ** 0.5:.3f}, of which noise {NOISE}", flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description="Noisy spirals become curves that can be continued: a latent ODE.")
    parser.add_argument("--steps", type=int, default=250, help="of the optimizer")
    parser.add_argument("--out", type=Path, help="folder for a picture (needs matplotlib: pip install 'proxode[plot]')")
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    model, (_, *known), (curve, times, seen) = LatentODE(), spirals(256), spirals(100)  # the last are held out
    train(model, given.steps, *known)
    grid = torch.linspace(0.0, END, 81)[:, None].repeat(1, 100)
    truth, found, last = curve(grid), model(times, seen, grid).detach(), int((grid[:, 0] <= SEEN).sum())
    inside, beyond = ((found - truth)[part].square().mean().sqrt().item() for part in (slice(last), slice(last, None)))
    print(f"held out: error {inside:.3f} up to t = {SEEN}, {beyond:.3f} beyond; the curves' size {truth.std():.3f}")
    if given.out:
        from matplotlib import pyplot as plt
        given.out.mkdir(parents=True, exist_ok=True)
        parts = {"truth": truth, "found": found[:last], "continued": found[last - 1 :], "seen": seen}
        figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained", sharex=True, sharey=True)
        for i, axis in enumerate(axes):
            for (name, points), style in zip(parts.items(), ("-", "-", "--", "k."), strict=True):
                axis.plot(*points[:, i].T.numpy(), style, label=name)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.savefig(given.out / "latent_ode.png", dpi=120)
    return inside, beyond, truth.std().item()


if __name__ == "__main__":
    main()
