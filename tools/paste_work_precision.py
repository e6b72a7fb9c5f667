"""Put the tables of docs/adaptive.md in place, from the reports that the benchmarks wrote into docs/results.

A table stands between `<!-- table: name -->` and `<!-- end -->`; nothing else is touched. One whose report is not there
stays as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pasting import RESULTS, ROOT, load, markdown, pasted, shown


def work_precision() -> str:
    """The NFE of bdf over those of CVODE, by problem and tolerance: at equal error, and at the same rtol."""
    report = load("work_precision")
    titles = {problem["name"]: problem["title"] for problem in report["problems"]}
    heads = ["problem", "linear algebra", *map(power, report["tolerances"])]
    fair = [[titles[line["problem"]], line["algebra"], *_ratios(line, report["tolerances"], "nfe_at_equal_error"),
             shown(line["nfe_at_equal_error"], "{:.2f}"), shown(line["ours_largest_rms_over_tol"], "{:,.1f}"),
             shown(line["theirs_largest_rms_over_tol"], "{:,.1f}")] for line in report["summary"]]  # fmt: skip
    same = [[titles[line["problem"]], line["algebra"], *_ratios(line, report["tolerances"], "nfe")]
            for line in report["summary"]]  # fmt: skip
    more = ["mean", "error / tol, proxode", "error / tol, CVODE"]
    return (f"At equal error:\n\n{markdown([*heads, *more], fair, words=2).strip()}\n\n"
            f"At the same `rtol`:\n\n{markdown(heads, same, words=2).strip()}")  # fmt: skip


def _ratios(line: dict[str, Any], tolerances: list[float], name: str) -> list[str]:
    found = {entry["tol"]: entry[name] for entry in line["ratios"]}
    return [shown(found.get(tol), "{:.2f}") for tol in tolerances]


def auto_switching() -> str:
    """The NFE of the three methods, and of auto over the better of the others."""
    report = load("auto_switching")
    titles = {problem["name"]: problem["title"] for problem in report["problems"]}
    nfe = {(row["problem"], row["tol"], row["solver"]): _nfe(row) for row in report["rows"]}
    rows = []
    for line in report["compared"]:
        cells = [nfe.get((line["problem"], line["tol"], method), "-") for method in ("dopri5", "bdf", "auto")]
        rows.append([titles[line["problem"]], power(line["tol"]), *cells, shown(line["ratio"], "{:.2f}"),
                     line["did"]])  # fmt: skip
    return markdown(["problem", "tol", "`dopri5`", "`bdf`", "`auto`", "auto / better", "auto took"], rows, words=2)


def _nfe(row: dict[str, Any]) -> str:
    return f"{row['nfe']:,}" if row["status"] == "SUCCESS" else row["status"].lower()


def dense_threshold() -> str:
    """Up to which size dense Newton is the cheaper."""
    rows = [[line["family"], power(line["tol"]), *(shown(line[cost] or "never", "{}") for cost in ("nfe", "seconds"))]
            for line in load("dense_threshold")["crossings"]]  # fmt: skip
    return markdown(["family", "tol", "cheaper in NFE up to n =", "in time up to n ="], rows, words=2)


def power(tol: float) -> str:
    return f"{tol:.0e}".replace("e-0", "e-")


TABLES = {f.__name__: f for f in (work_precision, auto_switching, dense_threshold)}


def available(folder: Path = RESULTS) -> dict[str, Any]:
    return {name: make for name, make in TABLES.items() if (folder / f"{name}.json").exists()}


if __name__ == "__main__":
    path, made = ROOT / "docs/adaptive.md", available()
    path.write_text(pasted(path.read_text(), made))
    print(f"updated {path.name}: {', '.join(made) or 'nothing, for there are no reports'}")
