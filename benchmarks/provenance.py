"""Which code, on what kind of machine: what is needed to judge a measurement and to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import proxode


def provenance(seed: int | None, threads: int) -> dict[str, Any]:
    return {
        "proxode": proxode.__version__,
        **{name: _version(name) for name in ("torch", "torchdiffeq", "numpy")},
        "mkl": torch.backends.mkl.is_available(),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "seed": seed,
        **commit(),
    }


def commit() -> dict[str, Any]:
    """The commit of the proxode that is measured, and whether its sources differ from it; None if not a checkout."""
    folder = Path(proxode.__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    head = None if tracked is None else _git(folder, "rev-parse", "--verify", "HEAD")
    changes = None if head is None else _git(folder, "status", "--porcelain", "--", ".")
    return {"commit": head, "modified": None if changes is None else bool(changes)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:  # without optional locks, for a measurement must not write to the index
        command = ["git", "--no-optional-locks", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
