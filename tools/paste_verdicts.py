"""Put the verdict on each claim of the paper into the README, from the reports in docs/results.

The table stands between `<!-- verdicts -->` and `<!-- end of verdicts -->`; nothing else is touched.
"""

from __future__ import annotations

import re
from pathlib import Path

from proxode.paper.experiments import experiment_of, registered
from proxode.paper.report import ReportError, read_report
from proxode.paper.tables import Table, markdown

ROOT = Path(__file__).resolve().parents[1]
HEADS = ["experiment", "claim", "measured", "verdict"]


def verdicts(folder: Path) -> Table:
    """One row for each claim of the experiments whose report is in the folder."""
    rows = []
    for name in registered():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        try:
            report = read_report(path)
        except ReportError as error:
            print(f"left out: {error}")
            continue
        for verdict in experiment_of(name).verdicts(report):
            setting = f"{report['setting']['scale']}; {verdict.setting}" if verdict.setting else report["status"]
            words = [verdict.claim.text, f"{verdict.measured} ({setting})".strip(), verdict.outcome]
            rows.append([f"`{name}`", *(text.replace("<", "&lt;") for text in words)])
    return Table("", HEADS, rows, words=len(HEADS))


def pasted(readme: str, table: str) -> str:
    pattern = r"(?s)(<!-- verdicts -->\n).*?(<!-- end of verdicts -->)"
    text, count = re.subn(pattern, lambda found: f"{found[1]}\n{table}\n{found[2]}", readme)
    if count != 1:
        raise SystemExit(f"found {count} places for the verdicts in the README, not one")
    return text


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(pasted(path.read_text(), markdown(verdicts(ROOT / "docs/results"))))
    print(f"updated {path.name}")
