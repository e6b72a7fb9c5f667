"""Graphs of very many steps come apart without a deep recursion, which would end the process."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import pytest

SMALL = 512 * 1024  # bytes of stack: a sixteenth of what is usual
STEPS = """
import torch, proxode
y0 = torch.full((2, 2), 2.0, requires_grad=True)
s = proxode.solve(lambda t, y: -{rate} * torch.tanh(y), y0, 0.0, 1.0, throw=False, {arguments})
assert s.stats.n_steps >= {least} and s.ys.requires_grad, s.message
{use}
del s
print("done")
"""


def run(arguments: str, least: int, use: str = "", rate: float = 1.0) -> str:
    def with_a_small_stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (SMALL, SMALL))

    code = STEPS.format(arguments=arguments, least=least, use=use, rate=rate)
    done: Any = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=with_a_small_stack, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [
        ("method='euler', step_size=1e-4", 1.0),
        ("method='dopri5', max_step=4e-4", 1.0),
        ("method='bdf2', step_size=4e-4, inner='newton'", 1.0),
        ("method='dopri5', per_sample=True", 1e4),
    ],
)
def test_a_long_solve_is_freed(arguments: str, rate: float) -> None:
    assert run(arguments, 2_500, rate=rate) == "done\n"


def test_a_long_solve_is_gone_through_and_freed() -> None:
    """And its products are counted."""
    use = "s.ys[-1].sum().backward(); assert s.stats.n_vjp >= 10_000, s.stats.n_vjp"
    assert run("method='euler', step_size=1e-4", 10_000, use) == "done\n"
