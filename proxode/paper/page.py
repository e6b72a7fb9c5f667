"""One page for a folder of reports: each claim of the paper beside what was measured. No network, no script.

All text goes through `html.escape`, and the page forbids itself to load anything from elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .experiment import FAILS, HOLDS, PARTLY, UNKNOWN, Experiment, Report, Verdict
from .experiments import experiment_of, registered
from .files import write_atomically
from .page_style import STYLE
from .report import COMPLETE, ReportError, read_report
from .runner import draw, report_path
from .tables import Table

NAME = "report.html"
TITLE = "Proximal implicit ODE solvers: the paper's claims, measured"
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)  # what rows of another version lead to
CLASS = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNKNOWN: "unknown"}


class Section(NamedTuple):
    """One experiment: its report, or why there is none to show."""

    experiment: Experiment
    report: Report | None
    problem: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        if self.report is None:
            return [Verdict(claim, "", "", UNKNOWN) for claim in self.experiment.claims]
        return self.experiment.verdicts(self.report)


def write_page(folder: Path) -> Path:
    """Write the page of all reports in the folder; their pictures are drawn anew. A damaged report is shown as such."""
    if not folder.is_dir():
        raise ReportError(f"{folder} is not a folder: run `proxode reproduce all --out {folder}` first")
    sections = [_section(experiment_of(name), folder) for name in registered()]
    found = [section for section in sections if section is not None]
    if not found:
        raise ReportError(f"there is no report in {folder}: run `proxode reproduce all --out {folder}` first")
    path = folder / NAME
    write_atomically(path, page(found, folder).encode())
    return path


def _section(experiment: Experiment, folder: Path) -> Section | None:
    path = report_path(folder, experiment)
    if not path.exists():
        return None
    try:
        report = read_report(path)
        if report["experiment"] != experiment.name:
            raise ReportError(f"{path.name} is of the experiment {report['experiment']!r}")
        _try(experiment, report, path)
    except ReportError as error:
        return Section(experiment, None, str(error))
    return Section(experiment, report)


def _try(experiment: Experiment, report: Report, path: Path) -> None:
    """Rows that lack what this version reads are no reason to show nothing at all."""
    try:
        experiment.verdicts(report)
        experiment.tables(report)
    except UNREADABLE as error:
        what = f"{type(error).__name__}: {error}"
        raise ReportError(f"{path.name} has rows of another version ({what}): run `proxode reproduce` again") from None


def page(sections: Sequence[Section], folder: Path) -> str:
    body = "".join(_experiment(section, folder) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(TITLE)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(TITLE)}</h1>\n<p class=lead>{_lead(sections)}</p>\n{_summary(sections)}{body}"
        "</main>\n</body>\n</html>\n"
    )


def _lead(sections: Sequence[Section]) -> str:
    outcomes = [verdict.outcome for section in sections for verdict in section.verdicts]
    counts = [f"{outcomes.count(outcome)} {outcome}" for outcome in CLASS if outcome in outcomes]
    return escape(
        f"{len(outcomes)} claims, of Baker et al., Proximal Implicit ODE Solvers for Learning Neural ODEs, and aims of "
        f"our own: {', '.join(counts)}. Every number is computed from the reports beside this page."
    )


def _summary(sections: Sequence[Section]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{escape(section.experiment.name)}">{escape(section.experiment.name)}</a></td>'
        f"<td>{escape(verdict.claim.text)}</td><td>{_badge(verdict.outcome)}</td></tr>\n"
        for section in sections
        for verdict in section.verdicts
    )
    return _scroll(f"<thead><tr><th>experiment<th>claim<th>verdict</tr></thead><tbody>\n{rows}</tbody>", "summary")


def _experiment(section: Section, folder: Path) -> str:
    experiment, report = section.experiment, section.report
    head = f"<h2>{escape(experiment.name)}: {escape(experiment.title)}</h2>\n"
    claims = "".join(map(_claim, section.verdicts))
    if report is None:
        rest = f"<p class=warning>{escape(section.problem)}</p>\n{claims}"
    else:
        tables = "".join(map(_table, experiment.tables(report))) if report["rows"] else ""
        shown = f"<details><summary>all numbers</summary>\n{tables}</details>\n" if tables else ""
        rest = f"{_state(report)}{claims}{_figures(experiment, report, folder)}{shown}{_origin(report)}"
    return f'<section id="{escape(experiment.name)}">\n{head}{rest}</section>\n'


def _state(report: Report) -> str:
    """What the reader must know before the numbers: a run that is not whole, a setting that is not the paper's."""
    setting = report["setting"]
    words = f"<p>Setting: {escape(str(setting.get('scale')))}, seed {escape(str(setting.get('seed')))}."
    if report.get("cut"):
        words += f" Less than the paper's setting: {escape(report['cut'])}."
    words += "</p>\n"
    if report["status"] == COMPLETE:
        return words
    count = f"{len(report['rows'])} of {report.get('expected', '?')} rows"
    message = f": {report['message']}" if report.get("message") else ""
    return f"{words}<p class=warning>{escape(report['status'])}, {escape(count)}{escape(message)}</p>\n"


def _claim(verdict: Verdict) -> str:
    setting = f"<dt>setting<dd>{escape(verdict.setting)}" if verdict.setting else ""
    measured = f"<dt>measured<dd>{escape(verdict.measured)}" if verdict.measured else ""
    return (
        f'<article class="{CLASS[verdict.outcome]}"><h3>{escape(verdict.claim.text)} '
        f"<small>{escape(verdict.claim.place)}</small></h3>\n"
        f"<dl>{setting}{measured}<dt>verdict<dd>{_badge(verdict.outcome)}</dl></article>\n"
    )


def _badge(outcome: str) -> str:
    return f'<span class="badge {CLASS[outcome]}">{escape(outcome)}</span>'


def _figures(experiment: Experiment, report: Report, folder: Path) -> str:
    try:
        pictures = draw(experiment, report, folder)
    except ModuleNotFoundError as error:
        return f"<p class=warning>no picture without {escape(str(error.name))}: pip install matplotlib</p>\n"
    except UNREADABLE as error:
        return f"<p class=warning>no picture of these rows ({escape(f'{type(error).__name__}: {error}')})</p>\n"
    return "".join(
        f'<figure><img alt="{escape(picture.caption)}" src="data:image/png;base64,'
        f'{base64.b64encode((folder / f"{picture.stem}.png").read_bytes()).decode()}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>\n"
        for picture in pictures
    )


def _table(table: Table) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        marked = (f"<{tag}{'' if i < table.words else ' class=number'}>{escape(cell)}" for i, cell in enumerate(cells))
        return f"<tr>{''.join(marked)}</tr>\n"

    rows = "".join(line(row, "td") for row in table.rows)
    inside = f"<caption>{escape(table.title)}</caption><thead>{line(table.heads, 'th')}</thead><tbody>{rows}</tbody>"
    return _scroll(inside, "numbers")


def _scroll(inside: str, kind: str) -> str:
    return f'<div class=scroll tabindex=0><table class="{kind}">{inside}</table></div>\n'


def _origin(report: Report) -> str:
    facts = {**report["problem"], **{f"setting: {k}": v for k, v in report["setting"].items()}}
    runs = [report["provenance"], *report.get("resumed", [])]
    tables = [_facts("what was run", facts), *(_facts("with what", run) for run in runs)]
    return f"<details><summary>where the numbers come from</summary>\n{''.join(tables)}</details>\n"


def _facts(title: str, facts: dict[str, Any]) -> str:
    rows = "".join(f"<tr><th>{escape(str(k))}<td>{escape(str(v))}</tr>\n" for k, v in facts.items())
    return _scroll(f"<caption>{escape(title)}</caption><tbody>{rows}</tbody>", "facts")
