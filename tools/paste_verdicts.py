"""Put the number of claims that hold into the README, from the reports in docs/results.

They stand between `<!-- verdicts -->` and `<!-- end of verdicts -->`; nothing else is touched. The verdicts
themselves are in docs/reproduction.md, by `paste_site.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from proxode.paper.experiments import experiment_of, registered
from proxode.paper.report import ReportError, read_report

ROOT = Path(__file__).resolve().parents[1]
OURS = ("an aim of this project", "ours, not the paper's")


def outcomes(folder: Path) -> dict[bool, list[str]]:
    """What became of the paper's claims (True) and of our own aims (False), where there is a report."""
    found: dict[bool, list[str]] = {True: [], False: []}
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
            found[verdict.claim.place not in OURS].append(verdict.outcome)
    return found


def sentence(found: dict[bool, list[str]]) -> str:
    """How many of them hold, in words."""
    parts = []
    for whose, words in ((True, "claims of the paper"), (False, "further aims of our own")):
        held, partly, failed = (found[whose].count(x) for x in ("holds", "holds in part", "does not hold"))
        parts.append(f"of {len(found[whose])} {words} {held} hold, {partly} hold in part and {failed} do not")
    return f"{parts[0][0].upper()}{parts[0][1:]};\n{parts[1]}."


def pasted(readme: str, text: str) -> str:
    pattern = r"(?s)(<!-- verdicts -->\n).*?(<!-- end of verdicts -->)"
    page, count = re.subn(pattern, lambda found: f"{found[1]}{text}\n{found[2]}", readme)
    if count != 1:
        raise SystemExit(f"found {count} places for the verdicts in the README, not one")
    return page


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(pasted(path.read_text(), sentence(outcomes(ROOT / "docs/results"))))
    print(f"updated {path.name}")
