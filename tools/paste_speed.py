"""Put the tables of docs/speed.md in place, from docs/results/speed.json."""

from __future__ import annotations

from paste_gradients import ROOT, load, markdown, pasted, shown

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


if __name__ == "__main__":
    path = ROOT / "docs/speed.md"
    path.write_text(pasted(path.read_text(), {f.__name__: f for f in (speed_bounds, speed_rows)}))
    print(f"updated {path.name}")
