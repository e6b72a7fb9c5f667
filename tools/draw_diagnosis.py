"""Draw the pictures of docs/diagnose.md: a solve of Van der Pol's equation, and a diagnosis of it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import proxode
from proxode.analysis import diagnose

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])


def main() -> None:
    y0 = torch.tensor([2.0, 0.0], dtype=torch.float64)
    times = torch.linspace(0, 2000, 200, dtype=torch.float64)
    proxode.solve(van_der_pol, y0, 0.0, 2000.0, save_at=times).plot(IMAGES / "solution.png")
    diagnose(van_der_pol, y0, 0.0, 2000.0).plot(IMAGES / "diagnosis.png")


if __name__ == "__main__":
    main()
