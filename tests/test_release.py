"""What is released: wheel and sdist hold what they should, and the files around them say the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import proxode

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md")


def load(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built from a copy of the sources, with things beside them that must stay out."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "proxode", copy / "proxode", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("tests", "docs/results", "data", "benchmarks", "site"):
        (copy / folder).mkdir(parents=True)
        (copy / folder / "test_rubbish.py").write_text("")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return copy / "dist"


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"proxode-{proxode.__version__}.dist-info"
    assert {"proxode/py.typed", f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    assert {name.split("/")[0] for name in names} == {"proxode", info}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "proxode").rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    metadata = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, flags=re.MULTILINE)
    assert [line for line in required if "extra ==" not in line] == ["torch>=2.4"]
    assert wheel.stat().st_size < 1_000_000


def test_the_sdist_holds_what_builds_it_and_no_results(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    top = f"proxode-{proxode.__version__}"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    assert {*SOURCES, "proxode/py.typed", "PKG-INFO"} <= names
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders == {"proxode", "proxode.egg-info"}
    assert sdist.stat().st_size < 1_000_000


def test_the_wheel_works_where_it_is_installed(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path), str(wheel)], check=True)
    code = (
        "import torch, proxode; y0 = torch.ones(2, requires_grad=True); "
        "y = proxode.odeint(lambda t, y: -500 * y, y0, torch.tensor([0.0, 1.0]), method='bdf2', rtol=1e-3, atol=1e-3); "
        "y[-1].sum().backward(); print(proxode.__file__)"
    )
    here = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=here, capture_output=True, text=True)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path), done.stderr[-2000:]


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "proxode", "--version"]
    done = subprocess.run(command, env=here, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "the proxode command needs typer: pip install typer rich matplotlib"


# The files around it


def test_the_citation_is_of_this_version() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "MIT"
    assert citation["version"] == proxode.__version__
    assert {"message", "title", "authors"} <= set(citation)


def test_there_are_workflows_for_tests_pages_and_releases() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_the_makefile_has(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] and workflow[True]  # YAML reads `on` as a truth value
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    made = {target for run in runs for target in re.findall(r"\bmake ([\w-]+)", run)}
    assert made and made <= targets
    assert "http" not in path.read_text(encoding="utf-8")  # no address of a registry, nor any other


def test_every_target_that_is_no_file_says_so() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert set(phony.split()) == set(re.findall(r"^([a-z][\w-]*):", makefile, flags=re.MULTILINE))


def test_every_package_of_the_extras_is_pinned() -> None:
    """A build on another day gets the same packages."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([A-Za-z][\w.-]*)(?:\[[^\]]*\])?>=', text)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in pins}
    assert len(pinned) == len(pins) and {name.lower().replace("_", "-") for name in listed} <= pinned


def test_every_page_has_its_place_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"[\w/]+\.md", site)) == pages
    assert "font: false" in site and "http" not in site


def test_formulas_become_mathml(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("latex2mathml", reason="pip install 'proxode[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from site_maths import with_mathml

    page = with_mathml('<span class="arithmatex">\\(|z|^2 &lt; \\gamma\\)</span>')
    assert page.startswith("<math") and "&#x003B3;" in page and page.count("fence") == 2
    with pytest.raises(ValueError, match="frobnicate"):
        with_mathml('<div class="arithmatex">\n\\[\\frobnicate x\\]</div>')
