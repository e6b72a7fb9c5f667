"""An inner solver of your own: one that knows what no general one can.

An implicit step is an equation z = anchor + gamma f(t, z). An inner solver proposes one z after the other, and is told
the residual r = z - anchor - gamma f(t, z) at each. Here f is diffusion on a ring plus a small network: the diffusion,
which is all of the stiffness, is inverted by FFT, so a handful of iterations is enough however fine the grid is.
Gradients need nothing from it: backward solves its own (transposed, linear) equations.
"""

import argparse
from dataclasses import dataclass

import torch
from torch import nn

import proxode
from proxode.inner import InnerSolver


@dataclass(frozen=True)  # settings are fields; what changes during a solve is the state
class SpectralSplitting(InnerSolver):
    """z <- z - (1 - gamma D)^-1 r, where D is the diffusion; `symbol` are its eigenvalues (for rfft)."""

    symbol: torch.Tensor
    name = "spectral"

    def init(self, equation, z, r, goal):
        return None  # the state: nothing to remember from one iteration to the next

    def step(self, equation, z, r, state):
        inverse = 1 / (1 - float(equation.gamma) * self.symbol)
        return z - torch.fft.irfft(inverse * torch.fft.rfft(r), n=len(z)), state


class ReactionDiffusion(nn.Module):
    def __init__(self, points):
        super().__init__()
        wave = torch.arange(points // 2 + 1, dtype=torch.float64)
        self.symbol = 2 * 0.1 * points**2 * (torch.cos(2 * torch.pi * wave / points) - 1)
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).double()

    def forward(self, t, u):
        diffusion = torch.fft.irfft(self.symbol * torch.fft.rfft(u), n=len(u))
        return diffusion + self.net(u[:, None])[:, 0]


def run(f, u0, inner):
    """u(1), the gradient of a loss for the network, and the costs."""
    f.zero_grad()
    solution = proxode.solve(f, u0, 0.0, 1.0, method="bdf", inner=inner, rtol=1e-5, atol=1e-7)
    solution.ys[-1].square().sum().backward()
    return solution.ys[-1].detach(), torch.cat([p.grad.flatten() for p in f.parameters()]), solution.stats


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=512)
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    f = ReactionDiffusion(given.points)
    u0 = torch.randn(given.points, dtype=torch.float64)
    own, built_in = SpectralSplitting(f.symbol), ("anderson", "newton_krylov", "fr")
    runs = {getattr(inner, "name", inner): run(f, u0, inner) for inner in (own, *built_in)}
    print(f"{'inner':>14} {'steps':>6} {'iterations':>11} {'NFE':>7} {'backward':>9}  distance of u(1), of dL/dtheta")
    for name, (u, gradient, stats) in runs.items():
        far = [float((a - b).norm() / b.norm()) for a, b in zip((u, gradient), runs["newton_krylov"], strict=False)]
        counts = f"{stats.n_steps:6,} {stats.n_inner:11,} {stats.nfe_forward:7,} {stats.nfe_backward:9,}"
        print(f"{name:>14} {counts}  {far[0]:.0e}, {far[1]:.0e}")
    return runs


if __name__ == "__main__":
    main()
