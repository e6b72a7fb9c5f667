"""What every experiment writes: its rows as JSON, with what is needed to judge and repeat them."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .._version import __version__


def provenance(seed: int | None, *packages: str, threads: int | None = None) -> dict[str, Any]:
    """Which code, beside which packages, on what kind of machine. Times mean nothing without it."""
    return {
        "proxode": __version__,
        "torch": torch.__version__,
        **{name: _version(name) for name in packages},
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads() if threads is None else threads,
        "seed": seed,
        **commit(),
    }


def commit() -> dict[str, Any]:
    """The commit of the package's own sources, and whether they were changed since; None if not a checkout.

    An installed package may lie inside somebody else's repository, so the sources themselves must be tracked.
    """
    here = Path(__file__)
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    head = _git(here.parent, "rev-parse", "--verify", "HEAD") if tracked is not None else None
    if head is None:
        return {"commit": None, "modified": None}
    return {"commit": head, "modified": bool(_git(here.parents[1], "status", "--porcelain", "--", "."))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "--no-optional-locks", *arguments]  # a measurement must not write to the index
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path, experiment: str, problem: dict[str, Any], rows: Sequence[Any], seed: int) -> None:
    rows = [asdict(row) for row in rows]
    write_report(
        path, {"experiment": experiment, "provenance": provenance(seed), "problem": problem, "rows": rows}
    )


def write_report(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_finite(report), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """JSON has no infinity and no nan: a value that is none becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
