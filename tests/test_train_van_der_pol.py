"""The training on a stiff oscillator that docs/gradients.md shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import proxode
from benchmarks import train_van_der_pol as van_der_pol


@pytest.fixture(scope="module")
def pieces() -> van_der_pol.Pieces:
    truth = van_der_pol.simulate(
        lambda t, y: (van_der_pol.MU * (y[1] + y[0] - y[0] ** 3 / 3), -y[0] / van_der_pol.MU)
    )  # fmt: skip
    return van_der_pol.Pieces(*van_der_pol.measure(truth, van_der_pol.PIECES * van_der_pol.LENGTH))


@pytest.mark.parametrize("gradient", ["implicit", "checkpoint", "continuous"])
def test_van_der_pol_learns(pieces: van_der_pol.Pieces, gradient: str) -> None:
    _, log = van_der_pol.train(pieces, gradient, 500, stop=12)
    assert all(row["loss"] is not None for row in log)
    assert log[-1]["loss"] < 0.5 * log[0]["loss"]
    assert all(row["nfe_forward"] < 2_500 for row in log)  # DOPRI5 needs more than 10,000


def test_the_true_equation_fits_the_data_of_van_der_pol(pieces: van_der_pol.Pieces) -> None:
    """So that what is learned could be right: the steps of the data are short enough for bdf2."""
    def true(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, w = y.unbind(-1)
        return torch.stack([van_der_pol.MU * (w + x - x**3 / 3), -x / van_der_pol.MU], -1)

    y = proxode.odeint(pieces.on_clock(true, 0.0), pieces.data[0], pieces.s, method="bdf2", rtol=1e-5, atol=1e-5)
    assert float(pieces.loss(y)) < 1e-5


def test_van_der_pol_writes_a_report_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train_van_der_pol", "--quick", "--out", str(tmp_path)])
    van_der_pol.main()
    report = json.loads((tmp_path / "van_der_pol.json").read_text())
    assert len(report["implicit"]["loss"]) == 10
    assert len(report["true_jumps"]) == 4
    assert (tmp_path / "van_der_pol.png").stat().st_size > 10_000
