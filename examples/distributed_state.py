"""One equation whose state is divided over processes: heat on a plane, each process with a few rows of the grid.

    torchrun --nproc-per-node 2 examples/distributed_state.py

The state is a DTensor. The solver's norms and decisions are those of the whole state, so all processes take the same
steps, and the result is that of one process; `halo` brings the rows of the neighbours, and autograd takes them back.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import proxode
from proxode.distributed import halo, sum_gradients


def laplacian(above_and_below, x, h):
    """Of rows x with one more on each side; beside the first and last column the plane is cold."""
    beside = torch.nn.functional.pad(x, (1, 1))
    around = above_and_below[:-2] + above_and_below[2:] + beside[:, :-2] + beside[:, 2:]
    return (around - 4 * x) / h**2


def heat(k, mesh, n):
    def f(t, u):
        x = u.to_local()  # the rows of this process
        rate = k * laplacian(halo(x, mesh), x, 1 / (n + 1))
        return DTensor.from_local(rate, mesh, u.placements, shape=u.shape, stride=u.stride())

    return f


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=64, help="of the grid, in each direction")
    n = parser.parse_args(argv).points
    if "WORLD_SIZE" not in os.environ:  # started without torchrun: alone
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")  # "nccl" on GPUs
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    # A wave of the plane, which decays at a rate that is known: exp(-2 pi^2 k t), as far as the grid is fine enough.
    x = torch.linspace(0, 1, n + 2, dtype=torch.float64)[1:-1]
    wave = torch.sin(torch.pi * x)[:, None] * torch.sin(torch.pi * x)
    y0 = distribute_tensor(wave, mesh, [Shard(0)])
    k = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)  # every process has its own copy

    with proxode.record() as stats:
        y = proxode.solve(heat(k, mesh, n), y0, 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-8).ys[-1]
    size = (y.to_local() * y0.to_local()).sum()  # the share of this process in <y, y0>
    size.backward()
    sum_gradients([k], mesh)  # each process has the gradient of its share
    total = size.detach()
    dist.all_reduce(total)

    decay = float(total) / float(wave.square().sum())
    rate = 8 * (n + 1) ** 2 * torch.sin(torch.tensor(torch.pi / 2 / (n + 1), dtype=torch.float64)) ** 2  # of the grid
    print(f"process {dist.get_rank()}: {y.to_local().shape[0]} rows, {stats.n_steps} steps, {stats.nfe_forward} NFE")
    if dist.get_rank() == 0:
        slope = -float(rate) * float(torch.exp(-0.1 * rate))
        print(f"decay {decay:.6f}, exact {float(torch.exp(-0.1 * rate)):.6f}")
        print(f"its derivative by k {float(k.grad) / float(wave.square().sum()):.5f}, exact {slope:.5f}")
    dist.barrier()
    dist.destroy_process_group()
    return decay, stats


if __name__ == "__main__":
    main()
