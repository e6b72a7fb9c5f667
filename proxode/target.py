"""What a user means by `module:function` or `file.py:name`, found and loaded, with errors that say what there is."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn


class TargetError(ValueError):
    """What was named is not there, or not what is needed."""


def split(target: str) -> tuple[str, str]:
    """The module (or file) and the name in it."""
    module, colon, name = target.rpartition(":")
    if not colon or not module or not name:
        raise TargetError(f"{target!r} names no function: write module:function or file.py:function")
    return module, name


def load(module: str) -> ModuleType:
    """A module by its name, from the present folder or installed, or by the name of its file."""
    if module.endswith(".py") or os.sep in module:
        return _from_file(Path(module))
    _look_in(os.getcwd())
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a script may end itself
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and (module == absent or module.startswith(absent + ".")):
            near = sorted(path.stem for path in Path().glob("*.py"))
            here = f"; here are: {', '.join(near)}" if near else ""
            raise TargetError(
                f"there is no module {module!r}, neither installed nor in the present folder{here}. "
                "A file elsewhere is given by its path: path/to/file.py:function"
            ) from None
        raise _failed_import(module, error) from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    _look_in(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # as an import would: classes look for their module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        raise _failed_import(path.name, error) from None
    return module


def _failed_import(name: str, error: BaseException) -> TargetError:
    """It is no fault of f: which line of which file, and what it raised."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    machinery = (__file__, importlib.__file__)
    places = [place for place in frames if place[0] not in machinery and not place[0].startswith("<frozen")]
    if isinstance(error, SyntaxError) and error.filename is not None:
        places.append((error.filename, error.lineno))
    if isinstance(error, ModuleNotFoundError):
        said = f"it needs the module {error.name!r}, which is not installed"
    else:
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    if not places:
        return TargetError(f"importing {name} failed: {said}")
    (first, line), (last, deep) = places[0], places[-1]
    within = f" (in {Path(last).name}, line {deep})" if last != first else ""
    return TargetError(f"importing {Path(first).name} failed at line {line}: {said}{within}")


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def attribute(module: ModuleType, name: str) -> Any:
    """`name`, with dots for parts of an object, in the module."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [key for key, value in vars(module).items() if _is_own(module, key, value)]
            raise TargetError(f"{module.__name__} has no {name!r}; there are: {', '.join(own) or 'no functions'}")
        found = getattr(found, part)
    return found


def _is_own(module: ModuleType, key: str, value: Any) -> bool:
    """A function, class, module of torch or tensor that was made there, and not imported."""
    if key.startswith("_") or isinstance(value, ModuleType):
        return False
    return isinstance(value, nn.Module | Tensor) or getattr(value, "__module__", None) == module.__name__


def function(found: Any, name: str) -> Callable[..., Any]:
    """f(t, y): what was named, or what it makes if it can be called with nothing."""
    if not callable(found):
        raise TargetError(f"{name!r} is a {type(found).__name__}, not a function f(t, y), nor a module or maker of one")
    if isinstance(found, nn.Module) or not _needs_nothing(found):
        return found
    made = _made_by(found, name)
    if not callable(made):
        raise TargetError(f"{name}() returned a {type(made).__name__}: it must return f(t, y), or take (t, y) itself")
    return made


def _made_by(maker: Callable[[], Any], name: str) -> Any:
    try:
        return maker()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        raise TargetError(f"{name}() failed: {type(error).__name__}: {error} ({where})") from None


def _needs_nothing(found: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # a builtin: it will tell when it is called
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if inspect.isclass(found):
        return all(p.default is not p.empty or p.kind is p.VAR_POSITIONAL for p in positional)
    return not positional


def state(given: str, module: ModuleType, dtype: torch.dtype) -> Any:
    """The state that `1,0,0`, `[[1, 0], [2, 0]]` or a name in the module means."""
    try:
        numbers = json.loads(given if given.lstrip().startswith("[") else f"[{given}]")
        return torch.tensor(numbers, dtype=dtype)
    except (ValueError, TypeError):
        pass
    if not given.replace(".", "").replace("_", "").isalnum() or given[0].isdigit():
        raise TargetError(f"{given!r} is neither numbers (1,0,0 or [[1, 0], [2, 0]]) nor a name in {module.__name__}")
    found = attribute(module, given)
    if callable(found) and not isinstance(found, Tensor):
        found = _made_by(found, given)
    if isinstance(found, list | float | int):
        found = torch.tensor(found, dtype=dtype)
    parts = found if isinstance(found, tuple) else (found,)
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        raise TargetError(f"{given!r} is a {type(found).__name__}: it must be a tensor, a tuple of tensors or make one")
    return found.detach() if isinstance(found, Tensor) else tuple(part.detach() for part in found)
