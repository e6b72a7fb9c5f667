"""The line of progress: what it says, how often, that it goes away, and that nobody but a terminal sees it."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import proxode
from proxode import progress
from proxode.observers import Attempt, Trip
from proxode.progress import Progress, duration, short
from proxode.solution import Stats

Y0 = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)


def decay(t: Tensor, y: Tensor) -> Tensor:
    return -50.0 * (y - torch.cos(t))


class Screen:
    """What was written on a pseudo-terminal."""

    def __init__(self) -> None:
        self.raw = b""

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def left(self) -> str:
        """What is still to be seen: each return goes back to the start of the line."""
        line: list[str] = []
        for piece in self.text.split("\r"):
            line[: len(piece)] = piece
        return "".join(line).rstrip()


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A pseudo-terminal as stderr; every step is a line."""
    master, slave = os.openpty()
    screen = Screen()

    def read() -> None:
        while not screen.raw.endswith(b"\x04"):
            screen.raw += os.read(master, 4096)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with open(slave, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setattr(progress, "EVERY", 0.0)
        try:
            yield screen
        finally:
            stream.flush()
            os.write(slave, b"\x04")
            reader.join(10.0)
            screen.raw = screen.raw.rstrip(b"\x04")
    os.close(master)


def test_a_terminal_sees_how_far_the_solve_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen, torch.no_grad():
        solution = proxode.solve(decay, Y0, 0.0, 2.0, method="bdf", progress=True)
    lines = screen.text.split("\r")[1:-2]
    assert len(lines) == solution.stats.n_steps
    parts = [int(re.search(r"(\d+)%", line)[1]) for line in lines]  # type: ignore[index]
    assert parts == sorted(parts) and parts[0] < 10 and parts[-1] == 100
    words = r"left  t 2 h [\d.e-]+  bdf \d  [\d.,kM]+ NFE/s  {:,} NFE  {:,} steps"
    assert re.search(words.format(solution.stats.nfe_forward, solution.stats.n_steps), lines[-1])
    assert screen.left == "" and "\n" not in screen.text


def test_a_pipe_sees_nothing(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    proxode.solve(decay, Y0, 0.0, 2.0, progress=True)
    proxode.solve(lambda t, y: decay(t[:, None], y), Y0[:, None], 0.0, 2.0, progress=True, per_sample=True)
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    proxode.solve(decay, Y0, 0.0, 2.0, progress=True)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    proxode.solve(decay, Y0, 0.0, 2.0, progress=True)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_shown_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen:
        proxode.solve(decay, Y0, 0.0, 2.0)
        proxode.odeint(decay, Y0, torch.tensor([0.0, 1.0]))
    assert screen.text == ""


@pytest.mark.parametrize("gradient", ["implicit", "direct", "checkpoint", "continuous"])
def test_odeint_takes_it_as_an_option_and_replays_do_not_show(gradient: str, monkeypatch: pytest.MonkeyPatch) -> None:
    y0 = Y0.clone().requires_grad_()
    options = {"progress": True, "gradient": gradient}
    t = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)
    with terminal(monkeypatch) as screen, proxode.record() as stats:
        y = proxode.odeint(decay, y0, t, method="bdf", rtol=1e-4, options=options)
    assert screen.text.count("%") == stats.n_steps and screen.left == ""
    with terminal(monkeypatch) as screen:
        y.sum().backward()
    if gradient == "continuous":  # a solve of its own, over all outputs as one
        lines = screen.text.split("\r")[1:-2]
        parts = [int(re.search(r"(\d+)%", line)[1]) for line in lines]  # type: ignore[index]
        assert parts == sorted(parts) and parts[-1] == 100 and all("backward" in line for line in lines)
        assert f" {short(stats.nfe_backward)} NFE" in lines[-1] and screen.left == ""
    else:
        assert screen.text == ""


def test_an_event_has_no_end_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen:
        t = torch.tensor([0.0, 1.0], dtype=torch.float64)
        proxode.odeint(decay, Y0, t, event_fn=lambda t, y: t - 3.0, options={"progress": True})
    assert "  t 3" in screen.text and "so far" in screen.text and "%" not in screen.text and screen.left == ""


def test_samples_show_how_many_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)
    with terminal(monkeypatch) as screen:
        run = proxode.solve(lambda t, y: decay(t[:, None], y), Y0[:, None], 0.0, ends, per_sample=True, progress=True)
    lines = screen.text.split("\r")[1:-2]
    assert len(lines) == run.stats.n_steps and "100%" in lines[-1]
    with terminal(monkeypatch) as wide:
        monkeypatch.setattr(progress, "_width", lambda stream: 200)
        proxode.solve(lambda t, y: decay(t[:, None], y), Y0[:, None], 0.0, ends, per_sample=True, progress=True)
    assert "1 of 3 samples done" in wide.text and "[####################] 100%" in wide.text and wide.left == ""


def failing(t: Tensor, y: Tensor) -> Tensor:
    if float(t) > 0.5:
        raise KeyboardInterrupt
    return decay(t, y)


@pytest.mark.parametrize(
    ("f", "error", "samples"),
    [(failing, KeyboardInterrupt, False), (lambda t, y: y * y, proxode.SolverError, False),
     (lambda t, y: 0 * failing(t.max(), y) + decay(t[:, None], y), KeyboardInterrupt, True)],
)  # fmt: skip
def test_the_line_is_gone_after_a_failure(
    f: Callable[..., Any], error: type[BaseException], samples: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as screen, pytest.raises(error):
        proxode.solve(f, Y0[:, None], 0.0, 2.0, method="bdf", progress=True, per_sample=samples)
    assert "%" in screen.text and screen.left == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = [100.0], [0]
    stream = Terminal()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", stream)
    bar, stats = Progress(), Stats()
    bar.begin(Trip("dopri5", 0.0, 10.0, 3, stats))

    def attempt() -> Attempt:
        asked[0] += 1
        return Attempt(0.0, clock[0] - 100.0, 0.001, "dopri5", 5)

    for _ in range(5_000):  # five seconds of ten, a step each millisecond
        clock[0] += 0.001
        stats.nfe_forward += 6
        bar.tried(attempt, True)
    assert 45 <= asked[0] <= 50 and stream.getvalue().count("\r") == asked[0]
    last = stream.getvalue().split("\r")[-1]
    assert last.startswith((" 49% 0:05 left", " 50% 0:0"))
    assert re.search(r"h 0.001  dopri5  6,0\d\d NFE/s  30k NFE  [45],\d{3} steps", last) and len(last) < 80
    bar.end(None)
    assert stream.getvalue().endswith(" \r")


def test_a_terminal_that_goes_away_does_not_end_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError

    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", Gone())
    assert proxode.solve(decay, Y0, 0.0, 2.0, progress=True).status is proxode.Status.SUCCESS


def test_a_line_of_80_columns_holds_all_of_a_long_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], Terminal()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sys, "stderr", stream)
    bar, stats = Progress(), Stats()
    bar.begin(Trip("bdf", 0.0, 1e7, 3, stats))
    clock[0], stats.nfe_forward, bar.tries = 3_000.0, 123_456_789, 34_567_890
    bar.tried(lambda: Attempt(0.0, 5.123456e6, 1.234e-5, "bdf", 5), True)
    last = stream.getvalue().split("\r")[-1]
    assert last == " 51% 47:35 left  t 5.123e+06 h 1.2e-05  bdf 5  41k NFE/s  123M NFE  35M steps" and len(last) < 80
    monkeypatch.setattr(progress, "_width", lambda stream: 60)
    bar.due = 0.0
    bar.tried(lambda: Attempt(0.0, 5.123456e6, 1.234e-5, "bdf", 5), True)
    assert stream.getvalue().split("\r")[-1].rstrip().endswith("  bdf 5  41k NFE/s")  # no word is cut in two


def test_numbers_are_short() -> None:
    numbers = (0, 999, 9_999, 10_000, 12_345, 999_499, 999_600, 1_234_567, 12_345_678, 3e9)
    assert [*map(short, numbers)] == ["0", "999", "9,999", "10k", "12k", "999k", "1.0M", "1.2M", "12M", "3.0G"]


def test_times_left_are_read_easily() -> None:
    seconds = (5.2, 65.0, 3_700.0, 90_000.0, float("inf"))
    assert [*map(duration, seconds)] == ["0:05", "1:05", "1:01:40", "1 d 01 h", "?"]
