"""Train a stiff model on two processes, each with its own half of every batch.

    torchrun --nproc-per-node 2 examples/distributed_training.py

DistributedDataParallel wraps the module that calls the solver, not f: each process then takes the steps that its own
samples need, and only the gradients are exchanged. Started without torchrun it is one process, with the same losses to
the tolerance.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from proxode.distributed import process_group
from proxode.nn import NeuralODE


class Rate(nn.Module):
    """A network beside fast decay: the equation is stiff."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
        self.register_buffer("rates", torch.logspace(0, 3, 4))

    def forward(self, t, y):
        return self.net(y) - self.rates * y


def train(steps, batch=16):
    """The mean loss over all processes and the NFE of this one, for every step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same weights everywhere
    # Every sample takes its own steps: which others are solved beside it changes its result within the tolerance only.
    layer = NeuralODE(Rate(), 1.0, rtol=1e-3, atol=1e-4, per_sample=True)
    model = DistributedDataParallel(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    # A part of a batch that all processes draw.
    y0 = torch.randn(batch, 4, generator=torch.Generator().manual_seed(1)).chunk(size)[rank]
    losses, costs = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(y0)[:, 0] - y0[:, 0].abs()).square().mean()
        loss.backward()  # here the gradients are averaged over the processes
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        losses.append(total.item() / size)
        costs.append(layer.stats.nfe_forward + layer.stats.nfe_backward)
    return losses, costs


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="of the optimizer")
    given = parser.parse_args(argv)
    with process_group():
        rank, losses, costs = dist.get_rank(), *train(given.steps)
        print(f"process {rank}: {sum(costs) / len(costs):.0f} NFE for a training step")
        if rank == 0:
            print(f"loss {losses[0]:.4f}, after {given.steps} steps {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
