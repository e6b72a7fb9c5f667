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
from .files import write_atomically

FORMAT = 1  # of the reports of `proxode reproduce`
PARTIAL, COMPLETE, SKIPPED, FAILED = "partial", "complete", "skipped", "failed"


class ReportError(RuntimeError):
    """A report that is damaged, or that of another run."""


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
    write_report(path, {"experiment": experiment, "provenance": provenance(seed), "problem": problem, "rows": rows})


def write_report(path: Path, report: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(finite(report), indent=2, allow_nan=False) + "\n").encode())


def read_report(path: Path) -> dict[str, Any]:
    """A report of `proxode reproduce`, or an error that says what is wrong with the file."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged or cannot be read ({error}): move it away and run again") from None
    shape = {"experiment": str, "setting": dict, "provenance": dict, "problem": dict, "status": str, "rows": list}
    wrong = [
        key for key, kind in shape.items() if not isinstance(report, dict) or not isinstance(report.get(key), kind)
    ]
    if wrong or not all(isinstance(row, dict) for row in report["rows"]):
        what = f"no {', '.join(wrong)}" if wrong else "rows that are none"
        raise ReportError(f"{path} is not a report of `proxode reproduce` ({what}): choose another folder with --out")
    if report.get("format") != FORMAT:
        raise ReportError(
            f"{path} has format {report.get('format')!r}, not {FORMAT}: it is of another version, run again"
        )
    return report


def finite(value: Any) -> Any:
    """JSON has no infinity and no nan: a value that is none becomes null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
