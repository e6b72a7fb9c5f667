"""What must work where nothing but the package and torch is installed: run by `make smoke` in an empty environment.

    python tools/smoke.py [--without-extras]

With the option it also sees to it that no extra is there, and that the command says what to install.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

EXTRAS = ("typer", "rich", "matplotlib", "scipy", "torchdiffeq")


def solves() -> None:
    import torch

    import proxode
    from proxode.nn import NeuralODE

    rates = torch.logspace(0, 3, 8, dtype=torch.float64).requires_grad_()

    def decay(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -rates * y

    for method in ("auto", "bdf2", "dopri5"):
        with proxode.record() as stats:
            y = proxode.odeint(decay, torch.ones(8).double(), torch.tensor([0.0, 0.5, 1.0]), method=method)
        torch.testing.assert_close(y[-1], torch.exp(-rates), rtol=1e-4, atol=1e-5)
        (grad,) = torch.autograd.grad(y[-1].sum(), rates)
        torch.testing.assert_close(grad, -torch.exp(-rates).detach(), rtol=1e-3, atol=1e-4)
        assert stats.nfe_forward > 0 and (method == "dopri5" or stats.nfe_backward > 0)
    layer = NeuralODE(decay, 1.0)
    assert "NeuralODE" in repr(layer)


def command(without_extras: bool) -> None:
    proxode = Path(sys.executable).parent / "proxode"
    done = subprocess.run([proxode, "--version"], capture_output=True, text=True)
    if without_extras:
        assert done.returncode != 0 and "pip install typer rich" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert done.stdout.strip() == f"proxode {importlib.metadata.version('proxode')}", done


def main() -> None:
    without_extras = "--without-extras" in sys.argv[1:]
    if without_extras:
        there = [name for name in EXTRAS if importlib.util.find_spec(name)]
        assert not there, f"the environment is not empty: {there}"
    import proxode

    here = Path(proxode.__file__).parent
    assert "site-packages" in here.parts, f"not the installed package: {here}"
    assert (here / "py.typed").is_file()
    assert importlib.metadata.version("proxode") == proxode.__version__
    solves()
    command(without_extras)
    print(f"proxode {proxode.__version__} works in {sys.prefix}")


if __name__ == "__main__":
    main()
