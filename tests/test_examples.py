"""Every example is short, says what it is, runs, and shows what it claims to show."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.testing import assert_close

from proxode.data import SOURCES
from proxode.data.files import data_folder

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "__init__.py")
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def example(name: str) -> ModuleType:
    return importlib.import_module(f"examples.{name}")


@every_file
def test_it_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    assert ast.get_docstring(ast.parse(text))


@every_file
def test_the_table_has_it_once(path: Path) -> None:
    table = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert len(re.findall(rf"^\| \[`{path.stem}`\]\({path.name}\) \|", table, flags=re.MULTILINE)) == 1


@pytest.mark.parametrize("command", [["-m", "examples.event_gradients"], ["examples/event_gradients.py"]])
def test_both_ways_of_starting_one_work(command: list[str]) -> None:
    run = [sys.executable, *command, "--steps", "1"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert "learned: g" in done.stdout


def test_quickstart() -> None:
    costs, losses = example("quickstart").main(["--steps", "12"])
    assert losses[-1] < 0.2 * losses[0]
    assert costs["auto"].nfe_forward < 0.05 * costs["dopri5"].nfe_forward
    assert costs["auto"].nfe_backward < 0.5 * costs["dopri5"].nfe_backward


def test_stiff_van_der_pol() -> None:
    losses, crossings = example("stiff_van_der_pol").main(["--steps", "100"])
    assert losses[-1] < 0.2 * losses[0]
    assert bool(torch.isfinite(crossings).all())


def test_the_truth_fits_the_data_of_stiff_van_der_pol() -> None:
    """So that what is learned could be right: the clock is smooth enough for one step of bdf2 per tick."""
    module = example("stiff_van_der_pol")
    data, dt = module.measure()
    assert data.shape[0] == module.LENGTH + 1 and data.shape[1] > 20

    def on_clock(s: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return dt[round(float(s))] * module.truth(s, y)

    clock = torch.arange(module.LENGTH + 1.0, dtype=torch.float64)
    y = module.proxode.odeint(on_clock, data[0], clock, method="bdf2", rtol=1e-6, options={"step_size": 1.0})
    assert float(((y - data) / data.std((0, 1))).square().mean()) < 1e-4


def test_drop_in() -> None:
    pytest.importorskip("torchdiffeq")
    rows = example("drop_in").main([])
    assert rows["proxode"]["error"] < 1e-3
    assert rows["torchdiffeq"]["error"] > 0.05  # the state that it integrates backwards is noise
    assert rows["proxode"]["nfe"] < 0.2 * rows["torchdiffeq"]["nfe"]


def test_drop_in_without_torchdiffeq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    rows = example("drop_in").main(["--stiffness", "30"])
    assert set(rows) == {"proxode"} and rows["proxode"]["error"] < 1e-3
    assert "torchdiffeq is not installed" in capsys.readouterr().out


def test_cnf_density(tmp_path: Path) -> None:
    before, after = example("cnf_density").main(["--steps", "25", "--out", str(tmp_path)])
    assert after < before - 0.3  # nats, held out
    assert (tmp_path / "cnf_density.png").stat().st_size > 10_000


def test_latent_ode(tmp_path: Path) -> None:
    inside, beyond, size = example("latent_ode").main(["--steps", "60", "--out", str(tmp_path)])
    assert inside < 0.8 * size and beyond < 0.8 * size
    assert (tmp_path / "latent_ode.png").stat().st_size > 10_000


def test_event_gradients() -> None:
    slopes, learned, losses = example("event_gradients").main(["--steps", "6"])
    assert_close(slopes[0], slopes[1], rtol=1e-8, atol=1e-8)
    assert_close(learned, torch.tensor([9.81, 0.8], dtype=torch.float64), rtol=1e-6, atol=0.0)
    assert losses[-1] < 1e-10 * losses[0]


def test_per_sample() -> None:
    common, own = example("per_sample").main(["--samples", "13"])
    steps = own.samples.n_steps
    assert int(steps.max()) < common.stats.n_steps
    assert int(steps.max()) > 5 * int(steps.min())
    assert_close(own.ys, common.ys, rtol=0.0, atol=5e-3)


def test_custom_inner_solver() -> None:
    runs = example("custom_inner_solver").main(["--points", "128"])
    u, gradient, stats = runs.pop("spectral")
    for found, slope, others in runs.values():
        assert_close(u, found, rtol=0.0, atol=1e-5)
        assert_close(gradient, slope, rtol=1e-4, atol=1e-6)
        assert 1.5 * stats.nfe_forward < others.nfe_forward


def graphs() -> Path | None:
    """The folder with Cora, where there is one."""
    folder = data_folder(None)
    return folder if folder is not None and any(folder.rglob(SOURCES["cora"].file)) else None


@pytest.mark.skipif(graphs() is None, reason="Cora is not there: PROXODE_DATA does not name its folder")
def test_grand_cora() -> None:
    losses, tested = example("grand_cora").main(["--epochs", "10"])
    assert losses[-1] < 0.9 * losses[0]
    assert tested > 0.6  # one of seven classes, by chance 0.3 at most


def test_grand_cora_says_how_to_get_its_data(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"cora\.npz.*https://.*--data-dir"):
        example("grand_cora").main(["--data-dir", str(tmp_path)])


def two_processes(name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(ROOT / f"examples/{name}.py"), *arguments], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_distributed_training() -> None:
    losses = example("distributed_training").main(["--steps", "4"])
    out = two_processes("distributed_training", "--steps", "4")
    assert f"loss {losses[0]:.4f}, after 4 steps {losses[-1]:.4f}" in out  # the same as of one process
    assert "process 0: " in out and "process 1: " in out


def test_distributed_state() -> None:
    out = two_processes("distributed_state", "--points", "8")
    decays = re.findall(r"(-?\d+\.\d+), exact (-?\d+\.\d+)", out)
    assert len(decays) == 2
    assert all(abs(float(found) / float(exact) - 1) < 1e-4 for found, exact in decays)
    counts = re.findall(r"process \d: 4 rows, (\d+) steps, (\d+) NFE", out)
    assert len(counts) == 2 and counts[0] == counts[1]
    assert int(counts[0][0]) < 100 and int(counts[0][1]) < 500
