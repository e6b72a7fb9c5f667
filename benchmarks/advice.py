"""The numbers behind the advice of the docs that no other benchmark makes: docs/results/advice.json.

    python -m benchmarks.advice --out docs/results

On one thread of an idle machine, ten minutes. `--only samples,plane` makes these parts and leaves the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from proxode.paper.report import provenance, write_report

from . import advice_gradients as gradients
from . import advice_methods as methods
from . import shown
from .rows import chosen

PARTS = {f.__name__: f for f in (
    methods.samples, methods.quickstart, gradients.direct, gradients.second, gradients.sensitivity, gradients.resident,
    gradients.explicit, gradients.grid, methods.oscillatory, methods.high_order, methods.plane,
)}  # fmt: skip


def main(
    out: Annotated[Path, typer.Option(help="Folder for the JSON.")] = Path("benchmarks/results"),
    only: Annotated[str, typer.Option(help=f"Parts, with commas: {', '.join(PARTS)}.")] = "",
    quick: Annotated[bool, typer.Option(help="Small problems, to see that it works.")] = False,
) -> None:
    """Measure what the pages of advice say."""
    torch.set_num_threads(1)
    console, path = shown.console(), out / "advice.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else {}
    for name in chosen(only, PARTS):
        made = {"about": PARTS[name].__doc__, "provenance": provenance(0), "quick": quick, "rows": []}
        for row in PARTS[name](quick):
            console.print(f"{name}: {row}", highlight=False)
            made["rows"].append(row)
        parts[name] = made
        write_report(path, {"experiment": "advice", "parts": parts})
    console.print(f"written: {path}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
