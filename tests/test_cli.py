"""The command line, and the numbers that the README takes from what it wrote."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from typer.testing import CliRunner, Result

import proxode
from proxode.__main__ import main
from proxode.cli import app
from proxode.paper import diffusion
from proxode.paper.plots import spread

ROOT = Path(__file__).parents[1]
PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(arguments))


def run_demo(out: Path, *arguments: str) -> tuple[Result, dict[str, Any]]:
    result = run("demo", "--quick", "--out", str(out), *arguments)
    assert result.exit_code == 0, result.output
    return result, json.loads((out / "diffusion.json").read_text())


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo")
    return out, *run_demo(out)


def test_version_is_the_package_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"proxode {proxode.__version__}\n"


def test_every_run_of_the_quick_demo_succeeds(quick: tuple[Path, Result, dict[str, Any]]) -> None:
    _, result, report = quick
    runs = diffusion.all_runs(quick=True)
    expected = [(data, run.label) for data in diffusion.INITIAL_DATA for run in runs]
    assert [(row["data"], row["label"]) for row in report["rows"]] == expected
    assert {row["status"] for row in report["rows"]} == {"SUCCESS"}
    for run in runs:
        assert re.search(rf"{run.method} +{run.setting} .* ok", result.output)


def test_quick_demo_rows_hold_cost_and_error(quick: tuple[Path, Result, dict[str, Any]]) -> None:
    for row in quick[2]["rows"]:
        assert row["nfe"] >= row["n_steps"] > 0, row["label"]
        assert row["seconds"] > 0
        assert row["times"] == pytest.approx([i / diffusion.OUTPUTS for i in range(diffusion.OUTPUTS + 1)])
        assert row["errors"][0] < 1e-14  # the transform there and back
        assert row["final_error"] == row["errors"][-1]
        assert row["max_error"] == max(row["errors"])
        assert row["final_error"] < 1e-6, row["label"]  # the state has decayed to its mean
        assert row["final_error"] < row["max_error"] < 1.0, row["label"]


def test_demo_says_what_it_ran_on(quick: tuple[Path, Result, dict[str, Any]]) -> None:
    report = quick[2]
    assert report["experiment"] == "diffusion"
    assert report["problem"]["points"] == diffusion.QUICK_POINTS
    assert report["provenance"].items() >= {
        "proxode": proxode.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seed": diffusion.SEED,
    }.items()
    assert {"python", "system", "machine", "cpus", "commit", "modified"} <= report["provenance"].keys()


def test_demo_draws_a_picture(quick: tuple[Path, Result, dict[str, Any]]) -> None:
    assert (quick[0] / "diffusion.png").read_bytes().startswith(PNG)


def test_demo_runs_one_method_alone(tmp_path: Path) -> None:
    _, report = run_demo(tmp_path, "--method", "bdf2")
    assert {row["method"] for row in report["rows"]} == {"bdf2"}


def test_unknown_method_is_refused_with_the_list(tmp_path: Path) -> None:
    result = run("demo", "--quick", "--out", str(tmp_path), "--method", "magic")
    assert result.exit_code == 2
    assert "magic" in result.output
    assert "crank_nicolson" in result.output
    assert not list(tmp_path.iterdir())


def test_failed_run_is_kept_as_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hopeless = diffusion.Run("dopri5", "few steps", "explicit", {"max_num_steps": 3})
    fine = diffusion.paper_run("bdf2", 50)
    monkeypatch.setattr(diffusion, "all_runs", lambda quick: [hopeless, fine])
    result, report = run_demo(tmp_path)
    failed = [row for row in report["rows"] if row["method"] == "dopri5"]
    assert [row["status"] for row in failed] == ["MAX_STEPS"] * len(diffusion.INITIAL_DATA)
    for row in failed:
        assert row["final_error"] is None
        assert row["message"]
        assert 0 < row["nfe"] < 500
        assert len(row["times"]) == len(row["errors"]) <= diffusion.OUTPUTS
    assert "MAX_STEPS" in result.output
    assert (tmp_path / "diffusion.png").exists()


def test_command_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxode.cli", None)
    with pytest.raises(ModuleNotFoundError):  # the module itself missing is a broken installation: no advice
        main()
    monkeypatch.delitem(sys.modules, "proxode.cli")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=re.escape("pip install 'proxode[cli,plot]'")):
        main()


# The experiment itself


@pytest.mark.parametrize("points", [8, 9, 128])
@pytest.mark.parametrize("data", diffusion.INITIAL_DATA)
def test_exact_solution_is_that_of_the_matrix_exponential(points: int, data: str) -> None:
    problem = diffusion.Diffusion(points)
    h0 = diffusion.INITIAL_DATA[data](points)
    t = torch.tensor([0.0, 1e-4, 0.01, 0.3], dtype=torch.float64)
    matrix = torch.func.jacrev(lambda h: problem.f(t[0], h))(h0)
    expected = torch.stack([torch.linalg.matrix_exp(time * matrix) @ h0 for time in t])
    torch.testing.assert_close(problem.exact(h0, t), expected, rtol=0, atol=1e-11)
    assert float(torch.linalg.eigvalsh(matrix)[0]) == pytest.approx(problem.stiffest)


def test_the_same_samples_every_time() -> None:
    assert torch.equal(diffusion.samples(16), diffusion.samples(16))


@pytest.mark.parametrize("heights", [[], [0.5], [0.1, 0.1, 0.1], [0.9, 0.0, 0.95, 1.0]])
def test_labels_keep_their_order_and_distance(heights: list[float]) -> None:
    gap = 0.1
    moved = spread(heights, gap)
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    assert all(moved[j] - moved[i] >= gap - 1e-12 for i, j in pairwise(order))
    assert all(-1e-12 <= y <= 1 + 1e-12 for y in moved)


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([0.8, 0.2, 0.5], 0.1) == pytest.approx([0.8, 0.2, 0.5])


# The README


def test_readme_shows_the_numbers_of_the_report() -> None:
    report = json.loads((ROOT / "docs/results/diffusion.json").read_text())
    readme = (ROOT / "README.md").read_text()
    assert report["problem"]["points"] == 128
    assert diffusion.markdown(report["rows"]) in readme
    in_words = set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b", readme))
    assert in_words <= {f"{row['nfe']:,}" for row in report["rows"]}
    assert (ROOT / "docs/images/diffusion.png").read_bytes().startswith(PNG)


def test_readme_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL):
        exec(block, names)
    assert all(float(p.grad.abs().sum()) > 0 for p in names["net"].parameters())
    network, samples, falling, orbit, stepper = capsys.readouterr().out.splitlines()
    assert network.endswith("[(0.0, 'bdf')]") and names["stats"].n_steps < 200
    fewest, most = map(int, re.findall(r"tensor\((\d+)\)", samples))
    assert 5 * fewest < most and bool(torch.isfinite(names["mus"].grad).all())
    assert falling.startswith("0.6385") and " -0.0325" in falling
    assert "EVENT" in orbit and "0.5236" in orbit and "8.0" in orbit
    assert 720 < float(stepper.split()[0]) < 740 and float(names["mu"].grad) > 0
    assert names["stepper"].y.tolist() == [-2.0, 0.0]


def test_readme_names_every_method_and_inner_solvers() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in (*proxode.methods.METHODS, *proxode.inner.INNER):
        assert f"`{name}`" in readme, name
