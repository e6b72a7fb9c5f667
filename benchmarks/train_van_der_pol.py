"""Learn a stiff oscillator from one period of its motion: Van der Pol, x'' = mu (1 - x^2) x' - x, with mu = 100.

The state is Lienard's, x' = mu (w + x - x^3/3), w' = -x/mu: x and w stay near one, while x' runs from 0.01 to 130.
A small network learns F and G of x' = a (c w - F(x)), w' = b G(x), from random weights, through the solver.

Three things make it train, on any stiff oscillator:
- times of the data that crowd where x moves, and a clock s for the solver, with one step from each time to the next;
- the trajectory cut into pieces, solved as one batch from their measured starts (multiple shooting);
- a spring that pulls x to the data, which is let go bit by bit: a model that jumps too early has no solution otherwise.

    python -m benchmarks.train_van_der_pol --gradient implicit continuous --out demo/van_der_pol
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from scipy.integrate import cumulative_trapezoid, solve_ivp
from scipy.interpolate import PchipInterpolator
from torch import nn

import proxode

MU, PERIOD, PIECES, LENGTH = 100.0, 162.84, 32, 12
LATER = 2 * PERIOD  # how far the learned equation is followed
SPRING = (400.0, 40.0)  # 1/time, at the start of the training and at its end
X_ONLY = torch.tensor([1.0, 0.0], dtype=torch.float64)


def simulate(f):
    return solve_ivp(f, (0, LATER), (2.0, 0.65), method="Radau", rtol=1e-8, atol=1e-10, dense_output=True)


def measure(truth, count):
    """Times whose spacing follows the motion and changes gradually, and the states then."""
    t = np.union1d(truth.t[truth.t < PERIOD], np.linspace(0, PERIOD, 2000))
    (x, w), speed = truth.sol(t), np.gradient(truth.sol(t)[0], t)
    motion = np.stack([4 * t / PERIOD, x / 2, w / 0.7, 0.3 * np.arcsinh(speed / np.median(abs(speed)))])
    density = np.linalg.norm(np.gradient(motion, t, axis=1), axis=0)
    spacing = np.trapezoid(density, t) / count / density
    spacing = np.min(spacing + 0.3 * abs(t[:, None] - t), axis=1)
    s = cumulative_trapezoid(1 / spacing, t, initial=0)
    times = np.interp(np.linspace(0, s[-1], count + 1), s, t)
    return times, truth.sol(times).T


class Oscillator(nn.Module):
    def __init__(self, size, rate):
        super().__init__()
        self.size, self.rate = size, rate
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)).double()
        self.c = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, t, y):
        x, w = (y / self.size).split(1, dim=-1)
        return self.rate * (self.net(x) + self.c * w * X_ONLY)


class Pieces:
    """The data in pieces, each on the clock s from 0 to LENGTH."""

    def __init__(self, times, states):
        self.track = PchipInterpolator(np.arange(len(times)), np.c_[times, states])
        self.pace = self.track.derivative()
        self.starts = np.arange(PIECES) * LENGTH
        self.data = torch.tensor(states)[torch.arange(LENGTH + 1)[:, None] + torch.tensor(self.starts)]
        self.size = torch.tensor(states.std(0))
        self.rate = torch.tensor(abs(np.diff(states, axis=0) / np.diff(times)[:, None]).max(0))
        self.s = torch.arange(LENGTH + 1.0, dtype=torch.float64)

    def on_clock(self, model, spring):
        def f(s, y):
            now, pace = (torch.from_numpy(g(self.starts + s.item())) for g in (self.track, self.pace))
            return pace[:, :1] * (model(s, y) + spring * X_ONLY * (now[:, 1:] - y))

        return f

    def loss(self, y):
        return ((y - self.data)[1:] / self.size).square().mean()


def train(pieces, gradient, iterations, stop=None):
    """The model, and what each iteration cost and brought."""
    torch.manual_seed(0)
    model = Oscillator(pieces.size, pieces.rate)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, eta_min=1e-4)
    log, spring, begin = [], SPRING[0], time.perf_counter()
    for i in range(stop or iterations):
        optimizer.zero_grad()
        row = {"spring": spring, "loss": None}
        try:
            with proxode.record() as stats:
                y = proxode.odeint(
                    pieces.on_clock(model, spring), pieces.data[0], pieces.s, method="bdf2", rtol=1e-5, atol=1e-5,
                    options={"gradient": gradient, "step_size": 1.0},
                )  # fmt: skip
                loss = pieces.loss(y)
                loss.backward()
            optimizer.step()
            row |= {"loss": loss.item(), "nfe_forward": stats.nfe_forward, "nfe_backward": stats.nfe_backward}
            spring = max(SPRING[1], spring * (SPRING[1] / SPRING[0]) ** (1.3 / iterations))
        except proxode.SolverError:  # a model without a solution: hold it tighter
            spring *= 2.0
        schedule.step()
        log.append(row | {"seconds": time.perf_counter() - begin})
        if i % 50 == 0 or i == iterations - 1:
            loss = "no solution" if row["loss"] is None else f"{row['loss']:.2e}"
            print(f"{gradient:>10} {i:4d}  spring {row['spring']:4.0f}  loss {loss}", flush=True)
    return model, log


def jumps(run):
    """When x changes its sign: twice in a period."""
    x = run.y[0]
    return run.t[1:][x[1:] * x[:-1] < 0].tolist()


def columns(log):
    costs = {key: sum(row.get(key, 0) for row in log) for key in ("nfe_forward", "nfe_backward")}
    return {"seconds": log[-1]["seconds"], **costs, **{key: [row[key] for row in log] for key in ("spring", "loss")}}


def draw(truth, times, states, learned, logs, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), dpi=150, layout="constrained")
    motion, losses = figure.subplots(1, 2, width_ratios=(1.7, 1))
    t = np.union1d(truth.t, np.linspace(0, LATER, 4000))
    motion.plot(t, truth.sol(t)[0], color="#bbbbbb", lw=4, label="Van der Pol, mu = 100")
    motion.plot(times, states[:, 0], ".", color="#222222", ms=3, label="data")
    for (name, run), colour, style in zip(learned.items(), ("#CC3311", "#4C9FD0"), ("-", "--"), strict=False):
        motion.plot(t, run.sol(t)[0], style, color=colour, lw=1.3, label=f"learned, {name}")
        losses.semilogy([row["loss"] or np.nan for row in logs[name]], style, color=colour, lw=1.3, label=name)
    motion.set(xlabel="t", ylabel="x", title="one period of data; the learned equation on its own for two")
    losses.set(xlabel="iteration of Adam", title="loss")
    for panel, where in ((motion, "lower left"), (losses, "upper right")):
        panel.legend(frameon=False, fontsize=8, loc=where)
        panel.grid(True, color="#e6e6e6", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gradient", nargs="+", choices=("implicit", "continuous", "checkpoint"), default=["implicit"])
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="ten iterations, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("demo/van_der_pol"), help="folder for what it writes")
    given = parser.parse_args()
    truth = simulate(lambda t, y: (MU * (y[1] + y[0] - y[0] ** 3 / 3), -y[0] / MU))
    times, states = measure(truth, PIECES * LENGTH)
    pieces, learned, logs, report = Pieces(times, states), {}, {}, {"true_jumps": jumps(truth)}
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.gradient:
        model, logs[name] = train(pieces, name, given.iterations, stop=10 if given.quick else None)
        learned[name] = simulate(lambda t, y, f=model: f(t, torch.tensor(y)).detach())
        report[name] = {"jumps": jumps(learned[name]), **columns(logs[name])}
        print(f"x = 0 at {report[name]['jumps']}\nin truth {report['true_jumps']}")
        (given.out / "van_der_pol.json").write_text(json.dumps(report) + "\n")
    draw(truth, times, states, learned, logs, given.out / "van_der_pol.png")
    print(f"written: {given.out}/van_der_pol.json and van_der_pol.png")


if __name__ == "__main__":
    main()
