"""Put the tables of docs/speed.md in place, from docs/results/speed.json."""

from __future__ import annotations

from typing import Any

from pasting import ROOT, load, markdown, pasted, shown

WHAT = {"seconds": "time", "seconds_per_nfe": "time per evaluation", "nfe": "NFE", "slope": "slope",
        "states": "peak memory, states"}  # fmt: skip


def speed_bounds() -> str:
    """Ours over theirs beside the bound."""
    rows = [[line["title"], line["against"] or "-", WHAT[line["what"]],
             line["status"].lower() if line["ratio"] is None else f"{line['ratio']:.3g}", f"{line['at_most']:.3g}",
             {True: "met", False: "not met", None: "-"}[line["met"]]] for line in load("speed")["bounds"]]  # fmt: skip
    return markdown(["work", "against", "of", "proxode / other", "at most", ""], rows, words=3)


def speed_rows() -> str:
    """All rows, failures among them."""
    rows = [[row["title"], row["solver"], shown(row.get("tol"), "{:.0e}"), shown(row.get("error"), "{:.1e}"),
             shown(row.get("nfe"), "{:,}"), shown(row.get("seconds"), "{:.4g}"), shown(row.get("peak_mib"), "{:,.0f}"),
             "" if row["status"] == "SUCCESS" else row["message"]] for row in load("speed")["rows"]]  # fmt: skip
    return markdown(["work", "solver", "tol", "error", "NFE", "seconds", "peak, MiB", ""], rows, words=2)


def compiled_rows() -> str:
    """What `compile=True` gains, and what torch.compile would do to products."""
    rows = [[row["what"], row["problem"], f"{row['size']:,}", shown(_ms(row.get("plain")), "{:.4g}"),
             shown(_ms(row.get("compiled")), "{:.4g}"), shown(row.get("ratio"), "{:.2f}"),
             shown(row.get("first"), "{:.0f}"), _break_even(row)] for row in load("compiled")["rows"]]  # fmt: skip
    heads = ["what", "problem", "unknowns", "plain, ms", "compiled, ms", "ratio", "first call, s", "break-even, calls"]
    return markdown(heads, rows, words=2)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _break_even(row: dict[str, Any]) -> str:
    if row["status"] != "SUCCESS":
        return "cannot be compiled"
    return "never" if row["break_even"] is None else f"{row['break_even']:,.0f}"


if __name__ == "__main__":
    path = ROOT / "docs/speed.md"
    path.write_text(pasted(path.read_text(), {f.__name__: f for f in (speed_bounds, speed_rows, compiled_rows)}))
    print(f"updated {path.name}")
