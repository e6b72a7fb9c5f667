"""What puts generated text into a page: it stands between `<!-- table: name -->` and `<!-- end -->`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def markdown(heads: list[str], rows: list[list[str]], words: int = 1) -> str:
    """The first `words` columns are text, the others numbers."""
    lines = [heads, ["---"] * words + ["---:"] * (len(heads) - words), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)


def pasted(page: str, tables: dict[str, Callable[[], str]]) -> str:
    for name, make in tables.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        table = make()
        page, count = re.subn(pattern, lambda m, table=table: f"{m[1]}{table}\n{m[2]}", page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"found {count} places for the table {name!r}, not one")
    return page
