"""A continuous normalising flow learns a density on the plane from samples of it.

The flow moves samples along dx/dt = net(t, x) to a normal distribution; what that does to volumes gives every sample
its likelihood, and the way back in time gives new samples. Trained with loose solves, whose gradient is nevertheless
exact for the steps that were taken; judged on samples that no training saw, by a tight solve.
"""

import argparse
from pathlib import Path

import torch

from proxode.data import DENSITIES, sample_density
from proxode.nn import vector_flow


def train(flow, name, steps, batch=256):
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-3)
    for step in range(steps):
        loss = -flow.log_prob(sample_density(name, batch, step + 1)).mean()  # nats
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            nfe = flow.stats.nfe_forward, flow.stats.nfe_backward
            print(f"step {step:4d}: {loss.item():.3f} nats, NFE {nfe[0]} + {nfe[1]}", flush=True)


@torch.no_grad()
def held_out(flow, name):
    """Of samples that no training saw. Seed 0 is not among those of the training."""
    return -flow.log_prob(sample_density(name, 2000, 0)).mean().item()


@torch.no_grad()
def draw(flow, name, path):
    from matplotlib import pyplot as plt

    line = torch.linspace(-4, 4, 120)
    grid = torch.cartesian_prod(line, line)
    density = flow.log_prob(grid).exp().reshape(120, 120).T
    panels = {"data": sample_density(name, 4000, 0), "samples of the flow": flow.sample(4000)[0]}
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for axis, (title, points) in zip(axes, panels.items(), strict=False):
        axis.plot(*points.T.numpy(), ",", color="black", alpha=0.6)
        axis.set_title(title)
    axes[2].imshow(density.numpy(), origin="lower", extent=(-4, 4, -4, 4), cmap="magma")
    axes[2].set_title("learned density")
    for axis in axes:
        axis.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", xticks=(), yticks=())
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", choices=DENSITIES, default="pinwheel")
    parser.add_argument("--steps", type=int, default=300, help="of the optimizer")
    parser.add_argument("--out", type=Path, help="folder for a picture (needs matplotlib: pip install 'proxode[plot]')")
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    flow = vector_flow(2, (64, 64), rtol=1e-2, atol=1e-2)
    before = held_out(flow, given.density)
    train(flow, given.density, given.steps)
    for cnf in flow.layers:
        cnf.settings |= {"rtol": 1e-6, "atol": 1e-6}
    after = held_out(flow, given.density)
    print(f"held out: {before:.3f} nats before the training, {after:.3f} after")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        draw(flow, given.density, given.out / "cnf_density.png")
    return before, after


if __name__ == "__main__":
    main()
