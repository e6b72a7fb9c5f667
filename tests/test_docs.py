"""The pages say what is so: their code runs, their links lead somewhere, their tables are those of the reports."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import proxode
from proxode.configure import DOOR_OPTIONS
from proxode.methods import METHODS

Names = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?P<before>[^\n]*)\n(?:[ \t]*\n)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: .{8,} -->")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s[^)]*)?\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[str]:
    """The code of a page that is to run: all but what an HTML comment before it excuses, with its reason."""
    text = "\n\n" + page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    assert len(found) == text.count("```python"), f"{name_of(page)}: a block that was not understood"
    return [
        "\n" * (text[: block.start("code")].count("\n") - 2) + block["code"]  # so that errors name the line of the page
        for block in found
        if not NOT_RUN.fullmatch(block["before"].strip())
    ]


WITH_CODE = [page for page in PAGES if page.exists() and blocks_of(page)]


def ran(page: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Names:
    """The names that the blocks of a page leave, run in order in one module in a folder of its own."""
    monkeypatch.chdir(folder)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look their module up
    logger, root = logging.getLogger("proxode"), logging.getLogger()
    before = logger.level, list(root.handlers)
    try:
        for code in blocks_of(page):
            exec(compile(code, name_of(page), "exec"), module.__dict__)
    finally:  # what a page says to the log is not for other tests
        logger.setLevel(before[0])
        root.handlers[:] = before[1]
    return module.__dict__


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ran(page, monkeypatch, tmp_path)
    check = CHECKS.get(name_of(page))
    if check is not None:
        check(names, capsys.readouterr().out.splitlines())


# What the code of a page must come to


def check_readme(names: Names, out: list[str]) -> None:
    assert all(float(p.grad.abs().sum()) > 0 for p in names["net"].parameters())
    network, samples, falling, orbit, stepper = out
    assert network.endswith("[(0.0, 'bdf')]") and names["stats"].n_steps < 200
    fewest, most = map(int, re.findall(r"tensor\((\d+)\)", samples))
    assert 5 * fewest < most and bool(torch.isfinite(names["mus"].grad).all())
    assert falling.startswith("0.6385") and " -0.0325" in falling
    assert "EVENT" in orbit and "0.5236" in orbit and "8.0" in orbit
    assert 720 < float(stepper.split()[0]) < 740 and float(names["mu"].grad) > 0
    assert names["stepper"].y.tolist() == [-2.0, 0.0]


def check_nn(names: Names, out: list[str]) -> None:
    forward, backward = map(int, out[0].split())
    assert 0 < forward < 400 and 0 < backward < 400
    assert names["solution"].status.ok and names["layer"].stats.n_steps > 100  # the tight one
    assert all(float(p.grad.abs().sum()) > 0 for p in names["layer"].parameters())
    assert 0 < names["flow"].stats.nfe_forward < 100
    assert names["x"].shape == (100, 2) and names["log_prob"].shape == (100,)
    assert bool(torch.isfinite(names["bits"]).all())
    assert 0 < names["grand"].ode.stats.nfe_forward < 300 and 0 < names["grand"].ode.stats.nfe_backward < 300
    assert all(p.grad is not None for p in names["grand"].parameters())


def check_quickstart(names: Names, out: list[str]) -> None:
    assert names["solution"].stats.switches[0] == (0.0, "bdf")
    assert names["losses"][-1] < 0.1 * names["losses"][0]
    stats = names["layer"].stats
    assert stats.nfe_forward < 300 and stats.nfe_backward < 1_500
    assert names["explicit"].nfe_forward > 10 * stats.nfe_forward  # held back by the fast variable
    assert names["on_data"].stats.n_steps == 19 and float(names["apart"]) < 0.02


def check_errors(names: Names, out: list[str]) -> None:
    assert names["reached"].status is proxode.Status.STEP_UNDERFLOW
    assert 0.8 < float(names["reached"].ts[-1]) < 0.9  # the last time before t = 1
    assert len(names["solution"].ts) == len(names["reached"].ts)


def check_extending(names: Names, out: list[str]) -> None:
    first, second = names["errors"]
    assert 3.8 < first / second < 4.2
    assert names["adaptive"].status.ok and names["adaptive"].stats.n_steps < 2_000
    y0 = names["y0"].detach().clone().requires_grad_()
    y = proxode.solve(names["pendulum"], y0, 0.0, 4.0, method="dopri8", rtol=1e-10, atol=1e-10).ys[-1, 0]
    (exact,) = torch.autograd.grad(y, y0)
    torch.testing.assert_close(names["y0"].grad, exact, rtol=1e-3, atol=1e-4)
    check_method_of_the_page(names, exact)
    coarse, fine = names["errors_theta"]
    assert 7.0 < names["errors_kutta"][0] / names["errors_kutta"][1] < 9.0
    assert names["free"].status.ok and (names["free"].ys[-1] - names["exact"]).norm() < 1e-4
    assert 1.9 < coarse / fine < 2.1 and names["fixed"].stats.n_inner_failed == 0
    solved = proxode.solve(names["heat"], names["u0"], 0.0, 0.1, method="bdf", inner=names["BarzilaiBorwein"]())
    plain = proxode.solve(names["heat"], names["u0"], 0.0, 0.1, method="bdf", inner="gd")
    torch.testing.assert_close(solved.ys, plain.ys, rtol=1e-3, atol=1e-5)
    assert solved.stats.n_inner < plain.stats.n_inner


def check_method_of_the_page(names: Names, exact: torch.Tensor) -> None:
    """All gradients, an event and single steps, as the page says."""
    tight = {"method": names["midpoint"], "rtol": 1e-5, "atol": 1e-5}
    for gradient in ("checkpoint", "continuous", "direct"):
        y0 = names["y0"].detach().clone().requires_grad_()
        y = proxode.solve(names["pendulum"], y0, 0.0, 4.0, gradient=gradient, **tight).ys[-1, 0]
        torch.testing.assert_close(torch.autograd.grad(y, y0)[0], exact, rtol=1e-3, atol=1e-4)
    y0 = names["y0"].detach()
    low = proxode.solve(names["pendulum"], y0, 0.0, 4.0, event=lambda t, y: y[0], **tight)
    assert low.status is proxode.Status.EVENT and abs(float(low.event_ts[0]) - 1.674994) < 1e-3  # K(sin 1/2)
    with torch.no_grad():
        stepper = proxode.Stepper(names["pendulum"], y0, 0.0, t1=4.0, **tight)
        stepper.advance(4.0)
    assert stepper.stats.n_steps == names["adaptive"].stats.n_steps


def check_torchdiffeq(names: Names, out: list[str]) -> None:
    t, g = names["t_event"], names["g"]
    torch.testing.assert_close(g.grad, -t.detach() / (2 * g.detach()), rtol=1e-3, atol=1e-5)


def check_theory(names: Names, out: list[str]) -> None:
    assert float(names["back"][1]) > 1e3  # the state integrated backwards is not what it was
    errors = [float(line.split()[1]) for line in out if line.startswith("odeint")]
    assert len(errors) == 2 and max(errors) < 1e-4


def check_stability(names: Names, out: list[str]) -> None:
    ends = {line.split()[0]: abs(float(line.split()[1])) for line in out}
    assert ends["euler"] > 1e10 and max(end for name, end in ends.items() if name != "euler") < 1e-3


def check_diagnose(names: Names, out: list[str]) -> None:
    assert any(line.startswith("outcome") for line in out) and any("stability" in line for line in out)
    assert names["diagnosis"].advice.method == "auto" and names["diagnosis"].radius > 2_000
    assert names["diagnosis"].stability_steps > 1e6 and names["diagnosis"].steps < 600  # as the page says
    assert Path("van_der_pol.png").stat().st_size > 10_000 and Path("diagnosis.png").stat().st_size > 10_000


CHECKS = {
    "README.md": check_readme,
    "docs/nn.md": check_nn, "docs/quickstart.md": check_quickstart, "docs/errors.md": check_errors,
    "docs/diagnose.md": check_diagnose, "docs/extending.md": check_extending, "docs/torchdiffeq.md": check_torchdiffeq,
    "docs/theory/gradients.md": check_theory, "docs/theory/stability.md": check_stability,
}  # fmt: skip


def test_a_block_is_left_out_only_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    page = tmp_path / "page.md"
    excused, other = ("```python\n1 / 0\n```\n", "```python\nx = 1\n```\n")
    page.write_text(f"<!-- not run: needs two processes -->\n\n{excused}\n<!-- no -->\n{other}")
    (code,) = blocks_of(page)
    assert code.strip() == "x = 1" and code.index("x") == 8


# What is said about names, and what is pasted


def test_every_option_and_method_of_torchdiffeq_has_its_place() -> None:
    page = (ROOT / "docs/torchdiffeq.md").read_text(encoding="utf-8")
    for name in (*DOOR_OPTIONS, *(set(METHODS) - {"bdf2", "bdf3", "bdf4"})):
        assert f"`{name}`" in page, name


def test_every_public_name_is_in_the_reference() -> None:
    for room in ("", ".methods", ".inner", ".gradients", ".nn", ".data", ".analysis", ".distributed"):
        module = importlib.import_module(f"proxode{room}")
        page = (ROOT / f"docs/api/{room[1:] or 'proxode'}.md").read_text(encoding="utf-8")
        shown = set(re.findall(r"^::: (\S+)$", page, flags=re.MULTILINE))
        modules = {name for name in module.__all__ if isinstance(getattr(module, name), ModuleType)}
        assert shown == {f"proxode{room}.{name}" for name in {*module.__all__} - modules - {"__version__"}}


def test_pasted_tables_are_what_their_tools_give_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import paste_gradients
    import paste_site
    import paste_speed
    import paste_work_precision
    import pasting

    speed = (paste_speed.speed_bounds, paste_speed.speed_rows, paste_speed.compiled_rows)
    pages = {
        "docs/gradients.md": paste_gradients.TABLES,
        "docs/speed.md": {make.__name__: make for make in speed},
        "docs/adaptive.md": paste_work_precision.available(),
        **paste_site.PAGES,
    }
    for name, tables in pages.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert len(tables) == text.count("<!-- table: "), name
        assert pasting.pasted(text, tables) == text, f"{name}: `make pages` mends it"


# Links


def anchors_of(page: Path) -> set[str]:
    """The anchors of headings, as mkdocs makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", head.replace("`", "")).strip().lower() for head in heads)
    return {re.sub(r"[-\s]+", "-", head) for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_and_pictures_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)}: {target}"
        assert not anchor or anchor in anchors_of(file), f"{name_of(page)}: {target}"


def test_every_picture_is_shown_somewhere() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(path.name in shown for path in (ROOT / "docs/images").glob("*.png"))
