"""Learn from when something happens: gravity and restitution of a ball from the times of its bounces.

The ball falls until its height is zero; that time is an event, found to the accuracy of the solve. Time and state of an
event carry gradients, here through four bounces, each of which starts where and when the one before ended. There is a
closed formula for this ball, t_k = sqrt(2 h / g) (1 + 2 e + ... + 2 e^k), with which they are compared.
"""

import argparse

import torch

import proxode

HEIGHT, BOUNCES = 10.0, 4


def simulate(g, e):
    """Times of the bounces of a ball that is let go at HEIGHT: g is gravity, e the part of the speed that it keeps."""
    t, y, times = g.new_zeros(()), g.new_tensor([HEIGHT, 0.0]), []

    def fall(t, y):  # y is height and velocity
        return torch.stack([y[1], -g])

    for _ in range(BOUNCES):
        # At the start of a bounce the height is zero too. That is no event: only a change of sign is.
        t, states = proxode.odeint_event(fall, y, t, event_fn=lambda t, y: y[0])
        y = torch.stack([torch.zeros_like(e), -e * states[-1][1]])
        times.append(t)
    return torch.stack(times)


def formula(g, e):
    halves = torch.cumsum(e ** torch.arange(BOUNCES), 0)
    return (2 * HEIGHT / g).sqrt() * (2 * halves - 1)


def learn(measured, steps):
    """Gauss-Newton on two unknowns: the derivative of every time with respect to both comes from the solver."""
    unknown = torch.tensor([5.0, 0.5], dtype=torch.float64)
    losses = []
    for step in range(steps):
        times = simulate(*unknown)
        losses.append((times - measured).square().mean().item())
        print(f"step {step}: g = {unknown[0]:.4f}, e = {unknown[1]:.4f}, loss {losses[-1]:.2e}")
        slopes = torch.autograd.functional.jacobian(lambda u: simulate(*u), unknown)
        unknown = unknown - torch.linalg.lstsq(slopes, (times - measured)[:, None]).solution[:, 0]
    return unknown, losses


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="of Gauss-Newton")
    given = parser.parse_args(argv)
    truth = torch.tensor([9.81, 0.8], dtype=torch.float64)
    slopes = [torch.autograd.functional.jacobian(lambda u, f=f: f(*u), truth) for f in (simulate, formula)]
    error = (slopes[0] - slopes[1]).abs().max() / slopes[1].abs().max()
    print(f"d(times of bounces)/d(g, e), largest error against the formula: {error:.1e}")
    learned, losses = learn(formula(*truth), given.steps)
    print(f"learned: g = {learned[0]:.6f}, e = {learned[1]:.6f}; in truth {truth[0]}, {truth[1]}")
    return slopes, learned, losses


if __name__ == "__main__":
    main()
