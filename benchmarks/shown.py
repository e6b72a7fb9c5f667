"""What benchmarks print."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console


def console() -> Console:
    """A file has no width: room for the tables."""
    return Console() if sys.stdout.isatty() else Console(width=140)


def cells(row: dict[str, Any], forms: dict[str, str]) -> list[str]:
    """The values of a row, each in its form; a dash where there is none."""
    return ["-" if row.get(name) is None else form.format(row[name]) for name, form in forms.items()]


def power(tol: float) -> str:
    """1e-3, not 1e-03."""
    return f"{tol:.0e}".replace("e-0", "e-")
