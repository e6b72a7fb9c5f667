"""The command line, and the numbers that the README takes from what it wrote."""

from __future__ import annotations

import importlib.util
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
from proxode.paper.experiments import registered
from proxode.paper.figures.diffusion import spread

ROOT = Path(__file__).parents[1]
PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(arguments))


@pytest.fixture(scope="module")
def scalar_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, dict[str, Any]]:
    """One experiment by the command, the quickest."""
    out = tmp_path_factory.mktemp("results")
    result = run("reproduce", "scalar", "--out", str(out))
    assert result.exit_code == 0, result.output
    return out, result, json.loads((out / "scalar.json").read_text())


def test_version_is_the_package_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"proxode {proxode.__version__}\n"


def test_reproduce_shows_a_table_and_verdicts_and_writes_everything(
    scalar_run: tuple[Path, Result, dict[str, Any]],
) -> None:
    out, result, report = scalar_run
    assert "backward_euler" in result.output and "holds in part" in result.output
    assert sorted(path.name for path in out.iterdir()) == ["scalar.csv", "scalar.json", "scalar.pdf", "scalar.png"]
    assert (out / "scalar.png").read_bytes().startswith(PNG)
    assert report["status"] == "complete" and len(report["rows"]) == report["expected"]


def test_quick_is_what_happens_when_nothing_is_said(scalar_run: tuple[Path, Result, dict[str, Any]]) -> None:
    assert scalar_run[2]["setting"]["scale"] == "quick"


def test_reports_say_what_they_ran_on(scalar_run: tuple[Path, Result, dict[str, Any]]) -> None:
    report = scalar_run[2]
    assert report["experiment"] == "scalar"
    assert (
        report["provenance"].items()
        >= {
            "proxode": proxode.__version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "seed": 0,
        }.items()
    )
    assert {"python", "system", "machine", "cpus", "commit", "modified"} <= report["provenance"].keys()
    assert str(scalar_run[0]) not in json.dumps(report)  # no folder of the machine


def test_resume_makes_nothing_twice(scalar_run: tuple[Path, Result, dict[str, Any]], monkeypatch: Any) -> None:
    from proxode.paper.experiments import scalar

    monkeypatch.setattr(scalar, "run_one", lambda *_: pytest.fail("a row was made twice"))
    result = run("reproduce", "scalar", "--out", str(scalar_run[0]), "--resume")
    assert result.exit_code == 0, result.output
    other = run("reproduce", "scalar", "--out", str(scalar_run[0]), "--resume", "--seed", "5")
    assert other.exit_code == 2 and "other settings (seed)" in other.output


def test_unknown_experiment_is_refused_with_the_list(tmp_path: Path) -> None:
    result = run("reproduce", "magic", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "magic" in result.output and all(name in result.output for name in (*registered(), "all"))
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("reproduce", "scalar", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2 and "not a folder" in result.output


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("reproduce", "scalar", "--out", str(tmp_path / "file" / "x"))
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert "--out" in result.output and "cannot be written to" in result.output


def test_a_report_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxode import cli

    monkeypatch.setattr(cli, "why_not_written", lambda path: "Read-only file system")
    result = run("report", str(tmp_path))
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert "cannot be written to (Read-only file system)" in " ".join(result.output.split())


def test_a_damaged_report_is_refused_when_it_is_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "scalar.json").write_text("{")
    result = run("reproduce", "scalar", "--out", str(tmp_path), "--resume")
    assert result.exit_code == 2 and "damaged" in result.output
    assert (tmp_path / "scalar.json").read_text() == "{"


def test_ctrl_c_leaves_what_there_is_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxode.paper.experiments import scalar

    whole, made = scalar.run_one, []

    def interrupted(*arguments: Any) -> dict[str, Any]:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(scalar, "run_one", interrupted)
    result = run("reproduce", "all", "--out", str(tmp_path))
    assert result.exit_code == 130 and "--resume" in result.output and "3 of 14" in result.output
    assert json.loads((tmp_path / "scalar.json").read_text())["status"] == "partial"
    assert [path.name for path in tmp_path.glob("*.json")] == ["scalar.json"]  # the others were not begun
    shown = run("report", str(tmp_path))
    assert shown.exit_code == 0 and "partial, 3 of 14 rows" in (tmp_path / "report.html").read_text()
    monkeypatch.undo()
    assert run("reproduce", "scalar", "--out", str(tmp_path), "--resume").exit_code == 0


def test_all_goes_on_after_a_failure_and_after_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proxode import cli
    from proxode.paper.experiments import scalar, stability

    monkeypatch.setattr(cli, "registered", lambda: ["scalar", "stability"])
    monkeypatch.setattr(scalar, "run_one", lambda *_: 1 / 0)
    monkeypatch.setattr(stability.Stability, "missing", lambda *_: "file.npz is missing: give --data-dir")
    result = run("reproduce", "all", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "failed: ZeroDivisionError" in result.output and "skipped: file.npz is missing" in result.output
    single = run("reproduce", "stability", "--out", str(tmp_path))
    assert single.exit_code == 1 and "file.npz" in single.output
    assert run("report", str(tmp_path)).exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "failed, 0 of 14 rows: ZeroDivisionError" in page and "skipped" in page and "file.npz is missing" in page


def test_report_of_nothing_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        result = run("report", str(folder))
        assert result.exit_code == 2 and "proxode reproduce all" in result.output


def test_failed_run_is_kept_as_a_row() -> None:
    hopeless = diffusion.Run("dopri5", "few steps", "explicit", {"max_num_steps": 3})
    row = diffusion.run_one(diffusion.Diffusion(16), "density", hopeless)
    assert row.status == "MAX_STEPS" and row.final_error is None and row.message
    assert 0 < row.nfe < 500 and len(row.times) == len(row.errors) <= diffusion.OUTPUTS


def test_command_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxode.cli", None)
    with pytest.raises(ModuleNotFoundError):  # the module itself missing is a broken installation: no advice
        main()
    monkeypatch.delitem(sys.modules, "proxode.cli")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match="pip install typer rich matplotlib"):
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


def test_readme_counts_the_verdicts_of_the_reports() -> None:
    spec = importlib.util.spec_from_file_location("paste_verdicts", ROOT / "tools/paste_verdicts.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    readme = (ROOT / "README.md").read_text()
    found = tool.outcomes(ROOT / "docs/results")
    page = (ROOT / "docs/reproduction.md").read_text()
    assert sum(map(len, found.values())) == sum(page.count(f"| **{x}** |") for x in {*found[True], *found[False]}) >= 10
    assert tool.pasted(readme, tool.sentence(found)) == readme


def test_readme_names_every_method_and_inner_solvers() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in (*proxode.methods.METHODS, *proxode.inner.INNER):
        assert f"`{name}`" in readme, name
