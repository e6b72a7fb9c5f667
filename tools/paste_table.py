"""Put the table of the stored diffusion experiment into the README, in place of the one there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from proxode.paper.diffusion import markdown

ROOT = Path(__file__).resolve().parents[1]


def pasted(readme: str, table: str) -> str:
    """The README with its table of methods against initial data (the one that begins like `table`) replaced."""
    heading = re.escape(table.splitlines()[0].split("|")[1].strip())
    pattern = rf"(?m)^\| {heading} \| setting \|.*\n(?:\|.*\n)+"
    text, count = re.subn(pattern, lambda _: table, readme)
    if count != 1:
        raise SystemExit(f"found {count} tables to replace in the README, not one")
    return text


if __name__ == "__main__":
    path = ROOT / "README.md"
    rows = json.loads((ROOT / "docs/results/diffusion.json").read_text())["rows"]
    path.write_text(pasted(path.read_text(), markdown(rows)))
    print(f"updated {path.name}")
