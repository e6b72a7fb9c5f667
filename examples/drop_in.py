"""A script for torchdiffeq, and what becomes of it with one changed import.

`script` is written for torchdiffeq, down to its adjoint; the module that it imports is its argument. It runs with both
(with torchdiffeq where that is installed), and its gradient is compared with a tight one. The equation damps what it
starts from, quickly in some directions: there torchdiffeq's adjoint, which integrates the state backwards, goes wrong.
"""

import argparse
import importlib
import math

import torch
from torch import nn

import proxode


class ODEFunc(nn.Module):
    def __init__(self, stiffness, n=8):
        super().__init__()
        self.rates = torch.logspace(0, math.log10(stiffness), n, dtype=torch.float64)
        self.net = nn.Sequential(nn.Linear(n, 32), nn.Tanh(), nn.Linear(32, n)).double()
        self.evaluations = 0

    def forward(self, t, y):
        self.evaluations += 1
        return self.net(y) - self.rates * y


def script(library, stiffness, tol):
    odeint_adjoint = importlib.import_module(library).odeint_adjoint  # from torchdiffeq import odeint_adjoint

    torch.manual_seed(0)
    func, y0 = ODEFunc(stiffness), torch.randn(4, 8, dtype=torch.float64)
    t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    y = odeint_adjoint(func, y0, t, rtol=tol, atol=tol)
    forward = func.evaluations
    y[-1].square().sum().backward()
    gradient = torch.cat([p.grad.flatten() for p in func.parameters()])
    return gradient, forward, func.evaluations - forward


def reference(stiffness):
    """The gradient through the tight steps of an explicit method."""
    torch.manual_seed(0)
    func, y0 = ODEFunc(stiffness), torch.randn(4, 8, dtype=torch.float64)
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    proxode.odeint(func, y0, t, method="dopri8", rtol=1e-9, atol=1e-11)[-1].square().sum().backward()
    return torch.cat([p.grad.flatten() for p in func.parameters()])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stiffness", type=float, default=300.0, help="the fastest rate")
    parser.add_argument("--tol", type=float, default=1e-5)
    given = parser.parse_args(argv)
    exact, rows = reference(given.stiffness), {}
    print(f"{'library':>12} {'calls of f: forward':>20} {'backward':>9} {'all NFE':>8} {'error of gradient':>18}")
    for library in ("torchdiffeq", "proxode"):
        try:
            with proxode.record() as stats:  # of proxode: products with Jacobians too
                gradient, forward, backward = script(library, given.stiffness, given.tol)
        except ModuleNotFoundError:
            print(f"{library:>12} is not installed")
            continue
        error = float((gradient - exact).norm() / exact.norm())
        # Each call of f in the backward pass of torchdiffeq comes with a product.
        nfe = stats.nfe_forward + stats.nfe_backward if stats.solves else forward + 2 * backward
        print(f"{library:>12} {forward:20,} {backward:9,} {nfe:8,} {error:18.1e}", flush=True)
        rows[library] = {"nfe": nfe, "error": error}
    return rows


if __name__ == "__main__":
    main()
