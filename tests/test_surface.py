"""The public surface is typed, documented and light: what `__all__` names, here and in the rooms that users import."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = tuple(
    f"proxode{room}" for room in ("", ".methods", ".inner", ".gradients", ".nn", ".data", ".analysis", ".distributed")
)


def names_of(room: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(room)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{room}.{name}", value


def untyped(function: Any) -> list[str]:
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in given if p.annotation is p.empty]
    return missing if signature.return_annotation is not signature.empty else [*missing, "return"]


def parts_of(name: str, cls: type) -> Iterator[tuple[str, Any, Any]]:
    """Public methods and properties that a class defines: their function, and what holds the docstring."""
    for key, value in vars(cls).items():
        if key.startswith("_") and key != "__init__":
            continue
        if isinstance(value, property):
            yield f"{name}.{key}", value.fget, getattr(cls, key)
        elif isinstance(value, classmethod | staticmethod):
            yield f"{name}.{key}", value.__func__, getattr(cls, key)
        elif inspect.isfunction(value):
            yield f"{name}.{key}", value, cls if key == "__init__" else getattr(cls, key)


def faults_of(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        if not value.__doc__ or value.__doc__.startswith(f"{value.__name__}("):  # what dataclass writes by itself
            yield f"{name}: no docstring"
        for attribute, kind in getattr(value, "__annotations__", {}).items():
            if kind is None or kind == "":
                yield f"{name}.{attribute}: no type"
        for part, function, documented in parts_of(name, value):
            yield from (f"{part}: {missing} has no type" for missing in untyped(function))
            if not inspect.getdoc(documented):
                yield f"{part}: no docstring"
    elif inspect.isfunction(value):
        yield from (f"{name}: {missing} has no type" for missing in untyped(value))
        if not value.__doc__:
            yield f"{name}: no docstring"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_typed_and_documented(room: str) -> None:
    named = dict(names_of(room))
    assert len(named) > 1
    assert not [fault for name, value in named.items() for fault in faults_of(name, value)]


def test_a_fault_is_found() -> None:
    class Bad:
        def method(self, x):  # type: ignore[no-untyped-def]
            return x

        @property
        def part(self) -> int:
            return 1

    found = "\n".join(faults_of("Bad", Bad))
    for fault in ("Bad: no docstring", "method: x has", "method: return has", "method: no doc", "part: no docstring"):
        assert fault in found


def test_public_variables_have_types_in_their_modules() -> None:
    """Registries and the like: a checker sees what they hold."""
    for room in ROOMS:
        for name, value in names_of(room):
            if not inspect.isclass(value) and not inspect.isfunction(value) and not isinstance(value, str | tuple):
                sources = [vars(m).get("__annotations__", {}) for m in list(sys.modules.values())
                           if getattr(m, "__name__", "").startswith("proxode")]  # fmt: skip
                short = name.rsplit(".", 1)[1]
                assert short == "Solve" or any(short in annotations for annotations in sources), name  # Solve is a type


def brought_by(statement: str) -> set[str]:
    code = f"import sys, torch; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_the_import_brings_nothing_slow() -> None:
    """Only modules of the package and of Python beyond what torch has: not torch's compiler, nor its distributed part.
    tools/import_time.py measures the rest."""
    brought = brought_by("import proxode")
    assert "proxode.api" in brought
    assert not {name for name in brought if name.split(".")[0] not in {"proxode", *sys.stdlib_module_names}}
    assert not {name for name in brought if name.split(".")[0] in {"asyncio", "http", "unittest", "multiprocessing"}}
    assert not {name for name in brought if name.startswith(("proxode.paper", "proxode.cli", "proxode.nn"))}
