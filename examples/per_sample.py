"""A batch in which one sample is stiff: with `per_sample=True` every sample takes steps of its own.

One common solve takes, for all samples, the steps of the stiffest; and its error test is a mean over the batch. Here
Van der Pol's oscillator runs with mu from 1 to 1000, a thousand times as stiff at one end of the batch as at the other.
"""

import argparse

import torch

import proxode


def van_der_pol(mu):
    def f(t, y):  # y is (batch, 2); in a per-sample solve t is (batch,), here it is not used
        x, v = y.unbind(-1)
        return torch.stack([v, mu * (1 - x**2) * v - x], -1)

    return f


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--end", type=float, default=20.0, help="of the time")
    given = parser.parse_args(argv)
    mu = torch.logspace(0, 3, 7, dtype=torch.float64).requires_grad_()
    starts = torch.tensor([2.0, 0.0], dtype=torch.float64).repeat(len(mu), 1)
    settings = {"rtol": 1e-5, "atol": 1e-5}

    common = proxode.solve(van_der_pol(mu), starts, 0.0, given.end, **settings)
    own = proxode.solve(van_der_pol(mu), starts, 0.0, given.end, per_sample=True, **settings)
    with torch.no_grad():  # each sample alone, tightly: what is right
        right = torch.stack([
            proxode.odeint(van_der_pol(m), y0, torch.tensor([0.0, given.end]).double(), rtol=1e-9, atol=1e-9)[-1]
            for m, y0 in zip(mu, starts, strict=True)
        ])  # fmt: skip
    errors = {name: (run.ys[-1] - right).detach().norm(dim=1) for name, run in (("common", common), ("own", own))}

    print(f"{'mu':>8} {'steps, common':>14} {'own':>6} {'error, common':>14} {'own':>8}")
    for i, m in enumerate(mu.tolist()):
        steps = common.stats.n_steps, int(own.samples.n_steps[i])
        print(f"{m:8.1f} {steps[0]:14,} {steps[1]:6,} {errors['common'][i]:14.0e} {errors['own'][i]:8.0e}")
    print(f"calls of f with the whole batch: common {common.stats.n_f:,}, own {own.stats.n_f:,}")

    own.ys[-1].sum().backward()  # every sample is differentiated through its own steps
    print("dy/dmu:", " ".join(f"{g:.1e}" for g in mu.grad))
    return common, own, errors


if __name__ == "__main__":
    main()
