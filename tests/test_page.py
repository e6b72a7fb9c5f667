"""The page of `proxode report`: what it says, that nothing gets into it unescaped, and that a browser shows it."""

from __future__ import annotations

import functools
import html.parser
import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")


from proxode.paper.experiments import experiment_of
from proxode.paper.page import write_page
from proxode.paper.report import ReportError
from proxode.paper.runner import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    run(
        experiment_of("scalar"), {"scale": "quick", "seed": 0, "step": 0.1, "end": 1.0, "tolerances": [1e-2, 1e-6]}, out
    )
    run(experiment_of("stability"), {"scale": "quick", "seed": 0, "points": 51, "grid": 5}, out)
    write_page(out)
    return out


class Reader(html.parser.HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(folder: Path) -> Reader:
    reader = Reader()
    reader.feed((folder / "report.html").read_text())
    return reader


def test_the_page_has_every_claim_with_its_verdict_and_numbers(folder: Path) -> None:
    text = read(folder).text
    for name in ("scalar", "stability"):
        experiment = experiment_of(name)
        for verdict in experiment.verdicts(json.loads((folder / f"{name}.json").read_text())):
            assert text.count(verdict.claim.text) == 2  # above and in its place
            assert verdict.measured in text and verdict.setting in text and verdict.outcome in text


def test_the_page_needs_nothing_but_itself(folder: Path) -> None:
    content = (folder / "report.html").read_text()
    reader = read(folder)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in reader.tags}
    sources = [value for _, attrs in reader.tags for key, value in attrs.items() if key in ("src", "href", "srcset")]
    assert sources and all(value is not None and value.startswith(("data:image/png;base64,", "#")) for value in sources)
    assert "default-src 'none'" in content and not re.search(r"url\(|@import|https?://", content)


def test_everything_is_escaped(folder: Path, tmp_path: Path) -> None:
    report = json.loads((folder / "scalar.json").read_text())
    report |= {"status": f"partial{EVIL}", "message": EVIL, "cut": EVIL, "resumed": [{EVIL: EVIL}], "expected": EVIL}
    report["problem"] = {EVIL: EVIL}
    report["provenance"][EVIL] = EVIL
    report["setting"] |= {"scale": EVIL, EVIL: EVIL}
    report["rows"][5]["method"] = EVIL  # of the table alone
    (tmp_path / "scalar.json").write_text(json.dumps(report))
    (tmp_path / "stability.json").write_text(json.dumps({EVIL: 1}))
    write_page(tmp_path)
    reader = read(tmp_path)
    assert not [tag for tag, attrs in reader.tags if tag == "script" or any("alert" in key for key in attrs)]
    assert "<script>" not in (tmp_path / "report.html").read_text()
    assert reader.text.count(EVIL) > 8


def test_reports_that_are_partial_damaged_or_foreign_are_shown_as_such(folder: Path, tmp_path: Path) -> None:
    whole = json.loads((folder / "scalar.json").read_text())
    (tmp_path / "scalar.json").write_text(json.dumps(whole | {"status": "partial", "rows": whole["rows"][:2]}))
    (tmp_path / "inner.json").write_text("{")
    (tmp_path / "energy.json").write_text(json.dumps(whole))
    write_page(tmp_path)
    text = read(tmp_path).text
    assert "partial, 2 of 8 rows" in text and "is damaged" in text and "is of the experiment 'scalar'" in text
    assert "not measured" in text and "verdictholds" not in text


def test_a_report_whose_rows_are_of_another_version_does_not_spoil_the_page(folder: Path, tmp_path: Path) -> None:
    report = json.loads((folder / "scalar.json").read_text())
    for row in report["rows"]:
        del row["final_error"]
    (tmp_path / "scalar.json").write_text(json.dumps(report))
    write_page(tmp_path)
    assert "rows of another version" in read(tmp_path).text


def test_a_folder_without_reports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="proxode reproduce all"):
        write_page(tmp_path)


# In a browser. The page reports on itself to a frame around it, as it has no script of its own.

FRAME = """<!doctype html><meta charset=utf-8><body style="margin:0"><iframe id=f src="report.html"
style="border:0;width:%dpx;height:900px"></iframe><pre id=o></pre><script>
f.onload = () => setTimeout(() => { const d = f.contentDocument;
 d.querySelectorAll("details").forEach(e => e.open = true);
 const w = d.documentElement;
o.textContent = JSON.stringify(
 {width: w.scrollWidth, seen: w.clientWidth, sections: d.querySelectorAll("section").length,
 broken: [...d.images].filter(i => !i.naturalWidth).length, images: d.images.length,
 wide: [...d.querySelectorAll("main > *, article, figure, p, h1, h2, h3")]
  .filter(e => e.getBoundingClientRect().right > w.clientWidth + 1).length,
 ground: getComputedStyle(d.body).backgroundColor, ink: getComputedStyle(d.body).color,
 resources: f.contentWindow.performance.getEntriesByType("resource").map(e => e.name)
  .filter(n => !n.startsWith("data:")) }); }, 300);
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()


def looked_at(folder: Path, tmp_path: Path, width: int, dark: bool) -> tuple[dict[str, Any], str, list[str]]:
    assert CHROMIUM is not None
    (folder / "frame.html").write_text(FRAME % width)
    Quiet.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000", "--enable-logging=stderr", "--v=0",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=10000", "--dump-dom",
            f"http://127.0.0.1:{server.server_address[1]}/frame.html",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        (folder / "frame.html").unlink()
    found = re.search(r"<pre id=\"o\">(.*?)</pre>", done.stdout, re.DOTALL)
    assert found and found[1], done.stdout[-500:] + done.stderr[-500:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), "\n".join(console), Quiet.asked


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_the_page(folder: Path, tmp_path: Path, width: int, dark: bool) -> None:
    seen, console, asked = looked_at(folder, tmp_path, width, dark)
    assert seen["sections"] == 2 and seen["images"] == 2 and seen["broken"] == 0
    assert seen["width"] <= seen["seen"] <= width and seen["wide"] == 0  # nothing sticks out
    assert console == "" and seen["resources"] == []
    assert set(asked) <= {"/frame.html", "/report.html", "/favicon.ico"}
    light = [sum(map(int, re.findall(r"\d+", seen[key])[:3])) for key in ("ground", "ink")]
    assert (light[0] < light[1]) == dark
