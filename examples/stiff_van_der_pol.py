"""Learn a stiff oscillator from one period of its motion: Van der Pol with mu = 100, from random weights.

The truth is x' = mu (w + x - x^3/3), w' = -x/mu; a network learns F and G of x' = a (c w - F(x)), w' = b G(x).
What makes it train: a clock s that goes by one from each measurement to the next, which crowd where x moves; pieces of
the motion, solved as one batch from their measured starts; a spring that pulls x to the data and is let go bit by bit.
"""

import argparse

import torch
from torch import nn

import proxode

MU, PERIOD, LENGTH = 100.0, 162.84, 12
START, X_ONLY = torch.tensor([[2.0, 0.6666], [1.0, 0.0]], dtype=torch.float64)  # stiff: float32 leaves few digits


def truth(t, y):
    x, w = y.unbind(-1)
    return torch.stack([MU * (w + x - x**3 / 3), -x / MU], -1)


def measure():
    """x and w at the times of a loose solve, whose steps follow the motion and change gradually, and dt/ds there."""
    steps = proxode.Stepper(truth, START, 0.0, t1=PERIOD, method="bdf2", rtol=3e-4, atol=3e-4, ifactor=1.3, dfactor=0.7)
    times = torch.tensor([0.0, *(step.t1 for step in steps)], dtype=torch.float64)
    y = proxode.odeint(truth, START, times, rtol=1e-7, atol=1e-7)
    piece = torch.arange(LENGTH + 1)[:, None] + torch.arange(0, len(times) - LENGTH, LENGTH)
    return y[piece], torch.gradient(times)[0][piece, None]


class Oscillator(nn.Module):
    def __init__(self, size, rate):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)).double()
        self.size, self.rate, self.c = size, rate, nn.Parameter(torch.ones(()).double())

    def forward(self, t, y):
        x, w = (y / self.size).split(1, dim=-1)
        return self.rate * (self.net(x) + self.c * w * X_ONLY)


def train(data, dt, steps):
    torch.manual_seed(0)
    size, clock, losses = data.std((0, 1)), torch.arange(LENGTH + 1.0, dtype=torch.float64), []
    model = Oscillator(size, ((data[1:] - data[:-1]) / dt[1:]).abs().amax((0, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=1e-4)
    for i in range(steps):
        spring = max(40.0, 400.0 * 0.1 ** (1.3 * i / steps))
        def on_clock(s, y, spring=spring):
            now = round(float(s))  # bdf2 evaluates f at the ends of its steps, and those are the ticks
            return dt[now] * (model(s, y) + spring * X_ONLY * (data[now] - y))
        y = proxode.odeint(on_clock, data[0], clock, method="bdf2", rtol=1e-5, atol=1e-5, options={"step_size": 1.0})
        loss = ((y - data)[1:] / size).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if i % 50 == 0:
            print(f"step {i:4d}  spring {spring:4.0f}  loss {losses[-1]:.2e}", flush=True)
    return model, losses


def main(argv=None):
    parser = argparse.ArgumentParser(description="A stiff oscillator learned from one period of its motion.")
    parser.add_argument("--steps", type=int, default=400, help="of the optimizer")
    model, losses = train(*measure(), parser.parse_args(argv).steps)
    event = proxode.Event(lambda t, y: y[0], terminal=False)
    for name, f in (("Van der Pol", truth), ("learned", model.requires_grad_(False))):  # followed for two periods
        run = proxode.solve(f, START, 0.0, 2 * PERIOD, event=event, rtol=1e-5, atol=1e-5, max_steps=5_000, throw=False)
        print(f"{name:>11}: x = 0 at t =", ", ".join(f"{t:.1f}" for t in run.event_ts[0].tolist()))
    return losses, run.event_ts[0]


if __name__ == "__main__":
    main()
