"""Solve a stiff equation, look at what it cost, take its gradient, train through it.

A network beside a linear part whose rates span four orders of magnitude: stiff, so that an explicit method must take
steps of the fastest rate's size all the way. No method is named below: the default sees that and takes implicit steps.
"""

import argparse

import torch
from torch import nn

import proxode


class Model(nn.Module):
    def __init__(self, n=16):
        super().__init__()
        self.rates = torch.logspace(0, 4, n)
        self.net = nn.Sequential(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, n))

    def forward(self, t, y):  # as everywhere: dy/dt = f(t, y)
        return self.net(y) - self.rates * y


def cost(f, y0, t, **settings):
    """A forward and a backward pass, and the evaluations of f (products with its Jacobian included) that they took."""
    with proxode.record() as stats:
        y = proxode.odeint(f, y0, t, rtol=1e-4, atol=1e-4, **settings)
        y[-1].square().sum().backward()
    return stats


def train(f, y0, t, target, steps):
    """Fit the solution to a target at all times but the first; the loss of every step."""
    optimizer, losses = torch.optim.Adam(f.parameters(), lr=1e-2), []
    for _ in range(steps):
        optimizer.zero_grad()
        y = proxode.odeint(f, y0, t, rtol=1e-4, atol=1e-4)
        loss = (y[1:] - target).square().mean()
        loss.backward()  # the exact gradient of the steps that were taken
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="of the optimizer")
    given = parser.parse_args(argv)
    torch.manual_seed(0)
    f, y0, t = Model(), torch.randn(16), torch.linspace(0, 1, 6)

    costs = {"auto": cost(f, y0, t), "dopri5": cost(f, y0, t, method="dopri5")}
    for name, stats in costs.items():
        print(f"{name:>7}: {stats.n_steps:6,} steps, NFE {stats.nfe_forward:6,} + {stats.nfe_backward:6,} backward")
    for since, method in costs["auto"].solves[0].switches:
        print(f"   auto took {method} from t = {since:.2g}")

    with torch.no_grad():  # a target that such a model can reach: the solution of another one
        target = proxode.odeint(Model(), y0, t, rtol=1e-4, atol=1e-4)[1:]
    losses = train(f, y0, t, target, given.steps)
    print(f"trained through the solver: loss {losses[0]:.2e}, after {given.steps} steps {losses[-1]:.2e}")
    return costs, losses


if __name__ == "__main__":
    main()
