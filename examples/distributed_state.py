"""One equation whose state is divided over processes: heat on a plane, each process with a few rows of the grid.

    torchrun --nproc-per-node 2 examples/distributed_state.py

The state is a DTensor. The solver's norms and decisions are those of the whole state, so all processes take the same
steps, and the result is that of one process; `halo` brings the rows of the neighbours, and autograd takes them back.
"""

import argparse
import math

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import proxode
from proxode.distributed import halo, process_group, sum_gradients


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


def run(n):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    # A wave of the plane, which decays at a rate that is known: that of the grid, nearly 2 pi^2 k.
    x = torch.linspace(0, 1, n + 2, dtype=torch.float64)[1:-1]
    wave = torch.sin(torch.pi * x)[:, None] * torch.sin(torch.pi * x)
    y0 = distribute_tensor(wave, mesh, [Shard(0)])
    k = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)  # every process has its own copy

    with proxode.record() as stats:
        y = proxode.solve(heat(k, mesh, n), y0, 0.0, 1.0, method="bdf", rtol=1e-6, atol=1e-8).ys[-1]
    share = (y.to_local() * y0.to_local()).sum() / wave.square().sum()  # of this process, in <y, y0> / <y0, y0>
    share.backward()
    sum_gradients([k], mesh)  # each process has the gradient of its share
    decay = share.detach()
    dist.all_reduce(decay)

    print(f"process {dist.get_rank()}: {len(y.to_local())} rows, {stats.n_steps} steps, {stats.nfe_forward} NFE")
    if dist.get_rank() == 0:
        rate = 8 * (n + 1) ** 2 * math.sin(math.pi / 2 / (n + 1)) ** 2
        print(f"decay {float(decay):.6f}, exact {math.exp(-0.1 * rate):.6f}")
        print(f"its derivative by k {float(k.grad):.5f}, exact {-rate * math.exp(-0.1 * rate):.5f}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=64, help="of the grid, in each direction")
    given = parser.parse_args(argv)
    with process_group():
        run(given.points)


if __name__ == "__main__":
    main()
