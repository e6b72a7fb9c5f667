"""The examples of docs/nn.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import proxode.data
import proxode.nn

PAGE = (Path(__file__).resolve().parents[1] / "docs/nn.md").read_text(encoding="utf-8")


def test_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(block, names)
    layer, flow, grand = capsys.readouterr().out.splitlines()
    forward, backward = map(int, layer.split())
    assert 0 < forward < 400 and 0 < backward < 400
    assert all(float(p.grad.abs().sum()) > 0 for p in names["layer"].parameters())
    assert 0 < int(flow) < 100 and names["x"].shape == (100, 2) and names["log_prob"].shape == (100,)
    assert bool(torch.isfinite(names["bits"]).all())
    assert all(0 < int(count) < 300 for count in grand.split())
    assert all(p.grad is not None for p in names["grand"].parameters())


def test_everything_that_is_public_exists_and_is_shown() -> None:
    for room in (proxode.nn, proxode.data):
        assert all(hasattr(room, name) for name in room.__all__)
    for name in ("NeuralODE", "CNF", "Flow", "GRAND", "Edges", "load_graph", "load_mnist", "fetch", "random_split"):
        assert re.search(rf"\b{name}\b", PAGE), name
