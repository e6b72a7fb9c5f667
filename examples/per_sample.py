"""A batch in which one sample is stiff: with `per_sample=True` every sample takes steps of its own.

One common solve takes, for all samples, the steps of the stiffest; and its error test is a mean over the batch. Here
Van der Pol's oscillator runs with mu from 1 to 1000, a thousand times as stiff at one end of the batch as at the other.
"""

import argparse
import time

import torch

import proxode

END = 20.0


def van_der_pol(mu):
    def f(t, y):  # y is (batch, 2); in a per-sample solve t is (batch,), here it is not used
        x, v = y.unbind(-1)
        return torch.stack([v, mu * (1 - x**2) * v - x], -1)

    return f


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=193)
    parser.add_argument("--mu", type=float, nargs=2, default=(1.0, 1000.0), help="the least and the most stiff")
    parser.add_argument("--method", default="bdf", help="'bdf', 'auto', or an adaptive explicit one")
    given = parser.parse_args(argv)
    low, high = torch.tensor(given.mu, dtype=torch.float64).log10().tolist()
    mu = torch.logspace(low, high, given.samples, dtype=torch.float64).requires_grad_()
    starts = torch.tensor([2.0, 0.0], dtype=torch.float64).repeat(len(mu), 1)
    settings = {"method": given.method, "rtol": 1e-4, "atol": 1e-4}

    clock = [time.perf_counter()]
    common = proxode.solve(van_der_pol(mu), starts, 0.0, END, **settings)
    clock.append(time.perf_counter())
    own = proxode.solve(van_der_pol(mu), starts, 0.0, END, per_sample=True, **settings)
    clock.append(time.perf_counter())

    print(f"{'mu':>8} {'steps: common':>14} {'own':>6} {'error: common':>14} {'own':>8}")
    shown = range(0, len(mu), max(1, len(mu) // 6))
    for i in shown:
        with torch.no_grad():  # this sample alone, tightly: what is right
            right = proxode.solve(van_der_pol(mu[i]), starts[i], 0.0, END, rtol=1e-9, atol=1e-9).ys[-1]
            errors = [float((run.ys[-1, i] - right).norm()) for run in (common, own)]
        steps = common.stats.n_steps, int(own.samples.n_steps[i])
        print(f"{mu[i].item():8.1f} {steps[0]:14,} {steps[1]:6,} {errors[0]:14.0e} {errors[1]:8.0e}")

    for i, (name, run) in enumerate((("common", common), ("own", own))):  # own: each differentiated by its own steps
        start = time.perf_counter()
        (slope,) = torch.autograd.grad(run.ys[-1].sum(), mu)
        spent = clock[i + 1] - clock[i], time.perf_counter() - start
        # A call of f serves the whole batch and counts one, and so does a product with its Jacobian.
        print(f"{name:>6}: NFE {run.stats.nfe_forward:6,} + {run.stats.nfe_backward:6,} backward; ", end="")
        print(f"{spent[0]:.2f} + {spent[1]:.2f} s; dy/dmu", end="")
        print("".join(f" {slope[k]:.1e}" for k in shown))
    return common, own


if __name__ == "__main__":
    main()
