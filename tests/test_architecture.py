"""The shape of the package: imports point one way, and no room is too large."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import proxode

PACKAGE = Path(proxode.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# What people run, draw, and what reads files: it may use more than torch.
EDGE = ("data", "paper", "diagnose_cli", "cli", "__main__", "solution_plot")
PICTURES = {"analysis/picture.py", "analysis/diagnosis.py", "panels.py"}  # matplotlib, and the type of what it draws

LAYERS = (
    ("eager", "panels", "status", "steps"),
    ("rejections",),
    ("summary",),
    ("solution_plot",),
    ("_version", "autocast", "calls", "counted", "duals", "recording", "roots"),
    ("solution", "spares", "sparse", "spread", "times"),
    ("norms", "observers", "reuse", "rough", "sharding"),
    ("jump", "randomness"),
    ("structure",),
    ("compiled", "logs", "progress"),
    ("function", "jacobian"),
    ("banded",),
    ("vector_field",),
    ("events",),
    ("event_gradients",),
    ("problem", "linear", "interpolation"),
    ("inner",),
    ("methods", "controllers"),
    ("endless", "outcome", "remedies", "standstill"),
    ("failures",),
    ("trajectory", "walk"),
    ("loop",),
    ("gradients",),
    ("grid", "quadrature", "tolerances"),
    ("configure",),
    ("collective", "prepare", "remarks", "samples"),
    ("course", "snapshot", "stepper_settings"),
    ("run", "stepper"),
    ("api",),
    ("__init__",),
    ("data", "distributed", "nn"),
    ("analysis",),
    ("paper", "target"),
    ("diagnose_cli",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
FORBIDDEN = {
    "inner": {"methods", "gradients", "loop", "controllers", "problem", "configure", "api"},
    "methods": {"gradients", "loop", "controllers", "problem", "configure", "api"},
    "gradients": {"methods", "configure", "api"},
    "controllers": {"methods", "inner", "gradients", "loop", "walk", "problem", "configure", "api"},
    "loop": {"gradients", "configure", "api"},
    "linear": {"inner", "methods", "vector_field", "problem"},
    "problem": {"inner", "methods", "gradients", "loop", "controllers", "configure", "api"},
}


def room_of(path: Path) -> str:
    """The module or folder at the top of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything that a file imports, anywhere in it."""
    here = ("proxode", *path.relative_to(PACKAGE).with_suffix("").parts)
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = here[: len(here) - node.level] if node.level else ()
            base = ".".join((*parents, *([node.module] if node.module else ())))
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def imported_rooms(path: Path) -> set[str]:
    parts = [name.split(".") for name in imported_modules(path) if name.split(".")[0] == "proxode"]
    rooms = {part[1] if len(part) > 1 and part[1] in LEVEL else "__init__" for part in parts}
    return rooms - {room_of(path)}


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room_of(path) for path in FILES} <= set(LEVEL)
    assert {"loop", "inner", "methods"} <= set().union(*(imported_rooms(path) for path in FILES))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room_of(path)
    above = {room for room in imported_rooms(path) if LEVEL[room] >= LEVEL[here]}
    assert not above, f"{here} imports {sorted(above)}"


@pytest.mark.parametrize("room", FORBIDDEN)
def test_methods_inner_solvers_and_gradients_do_not_know_each_other(room: str) -> None:
    files = [path for path in FILES if room_of(path) == room]
    assert files
    for path in files:
        assert not imported_rooms(path) & FORBIDDEN[room], path.name


def test_only_the_front_imports_the_api() -> None:
    users = {room_of(path) for path in FILES if "api" in imported_rooms(path)}
    assert users <= {"__init__", "paper", "cli"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_needs_torch_and_nothing_else(path: Path) -> None:
    if room_of(path) in EDGE:
        pytest.skip("not the core")
    tops = {name.split(".")[0] for name in imported_modules(path)}
    tops -= {"matplotlib"} if path.relative_to(PACKAGE).as_posix() in PICTURES else set()
    assert tops <= {"torch", "proxode", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_longer_than_320_lines_and_no_function_than_80(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 320
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 80, node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)) or path.name == "_version.py"


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_import_proxode_brings_in_no_more_than_torch_does() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import proxode; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    brought = set(done.stdout.split())
    assert "proxode" in brought
    assert not brought & {"matplotlib", "typer", "rich", "scipy", "numpy", "torchdiffeq", "hypothesis", "pytest"}


def test_import_proxode_brings_in_no_layers_and_the_layers_bring_in_nothing() -> None:
    code = (
        "import sys, proxode; layers = tuple(f'proxode.{room}' for room in ('nn', 'data', 'analysis')); "
        "print(*[n for n in sys.modules if n.startswith(layers)]); "
        "before = set(sys.modules); import proxode.nn; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert done.stdout.splitlines() == ["", "proxode"]


def test_everything_that_is_public_exists() -> None:
    assert all(hasattr(proxode, name) for name in proxode.__all__)
    promised = {"odeint", "odeint_adjoint", "odeint_event", "odeint_dense", "solve", "record", "SolverError"}
    assert promised <= set(proxode.__all__)
