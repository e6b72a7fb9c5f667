"""Tables as plain data, for the terminal, for Markdown and for the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells are text already. The first `words` columns are words, the others numbers."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def markdown(table: Table) -> str:
    marks = ["---"] * table.words + ["---:"] * (len(table.heads) - table.words)
    lines = [table.heads, marks, *table.rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def scientific(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as comma-separated values: what is one number or word; curves are in the JSON alone."""
    plain = [{k: v for k, v in row.items() if not isinstance(v, list | dict)} for row in rows]
    heads = list(dict.fromkeys(key for row in plain for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue()
