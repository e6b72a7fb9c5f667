"""The picture of a solve: what is drawn is what was solved, for every kind of state and outcome."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

import proxode
from proxode.solution_plot import CURVES, curves_of

D = torch.float64
Y0 = torch.tensor([2.0, 0.0], dtype=D)


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([y[..., 1], 30.0 * (1 - y[..., 0] ** 2) * y[..., 1] - y[..., 0]], -1)


def lines(panel: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in panel.get_lines()}


def test_every_step_is_drawn_where_it_starts_with_its_length(tmp_path: Path) -> None:
    run = proxode.solve(van_der_pol, Y0, 0.0, 1.5, save_at=torch.linspace(0, 1.5, 31, dtype=D))
    figure = run.plot(tmp_path / "solve.png")
    assert isinstance(figure, Figure) and (tmp_path / "solve.png").stat().st_size > 10_000
    upper, lower = figure.axes
    state = lines(upper)
    for i in (0, 1):
        assert state[f"y[{i}]"].get_ydata() == pytest.approx(run.ys[:, i].numpy())
    drawn = lines(lower)
    points = sorted((t, h) for name, line in drawn.items() if name != "rejected" for t, h in line.get_xydata())
    assert points == [pytest.approx((step.t0, step.h)) for step in run.stats.steps if step.accepted]
    assert len(drawn["rejected"].get_xdata()) == run.stats.n_rejected > 0
    kinds = {f"{step.method}, order {step.order}" for step in run.stats.steps if step.accepted}
    assert set(drawn) == kinds | {"rejected"} and len(kinds) > 3
    assert lower.get_yscale() == "log" and lower.get_xlim() == upper.get_xlim()


def test_a_dense_solution_is_drawn_between_its_outputs_and_an_event_ends_it() -> None:
    run = proxode.solve(lambda t, y: -y, torch.ones(1, dtype=D), 0.0, 5.0, dense=True, event=lambda t, y: y[0] - 0.5)
    upper, lower = run.plot().axes
    curve = upper.get_lines()[0]
    exact = torch.exp(-torch.as_tensor(curve.get_xdata()))
    assert len(exact) > 500 and curve.get_ydata() == pytest.approx(exact, rel=1e-3)
    assert curve.get_ydata()[-1] == pytest.approx(0.5, rel=1e-3)
    for panel in (upper, lower):
        assert list(lines(panel)["event"].get_xdata()) == pytest.approx([float(run.event_ts[0][0].detach())] * 2)


def test_a_line_between_few_outputs_does_not_pretend_to_be_the_solution() -> None:
    y0 = torch.tensor([0.01], dtype=D)
    few = proxode.solve(lambda t, y: y**2 - y**3, y0, 0.0, 200.0)
    (upper, _), (line,) = few.plot().axes, few.plot().axes[0].get_lines()
    assert "states known at 2 times only: give save_at" in upper.get_title("left")
    assert line.get_linestyle() == ":" and line.get_marker() == "o"
    given = proxode.solve(lambda t, y: y**2 - y**3, y0, 0.0, 200.0, save_at=torch.linspace(0, 200, 3, dtype=D))
    assert "known at 3 times only: give more times to save_at" in given.plot().axes[0].get_title("left")
    for options in ({"save_at": torch.linspace(0, 200, 30, dtype=D)}, {"dense": True}):
        panel = proxode.solve(lambda t, y: y**2 - y**3, y0, 0.0, 200.0, **options).plot().axes[0]
        assert "only" not in panel.get_title("left") and panel.get_lines()[0].get_linestyle() == "-"
    fixed = proxode.solve(lambda t, y: -y, y0, 0.0, 1.0, method="rk4", step_size=1.0)  # nothing lies between
    assert "only" not in fixed.plot().axes[0].get_title("left")


def test_a_solve_that_failed_is_drawn_as_far_as_it_came() -> None:
    for dense in (True, False):
        run = proxode.solve(lambda t, y: y * y, torch.ones(1, dtype=D), 0.0, 2.0, throw=False, dense=dense)
        upper, lower = run.plot().axes
        assert [text.get_text() for text in lower.texts] == ["STEP_UNDERFLOW"]
        assert "STEP_UNDERFLOW" in upper.get_title("left")
        assert max(upper.get_lines()[0].get_xdata()) == (pytest.approx(1.0, rel=1e-3) if dense else 0.0)
    none = proxode.solve(lambda t, y: y / 0.0, torch.ones(1, dtype=D), 0.0, 2.0, throw=False).plot()
    assert "no step was taken" in [text.get_text() for text in none.axes[1].texts]


def test_a_time_of_many_decades_is_logarithmic() -> None:
    run = proxode.solve(lambda t, y: -y / (1 + t), torch.ones(1, dtype=D), 0.0, 1e6)
    assert {panel.get_xscale() for panel in run.plot().axes} == {"log"}
    back = proxode.solve(van_der_pol, Y0, 1.0, 0.7).plot()
    assert {panel.get_xscale() for panel in back.axes} == {"linear"}


def test_curves_come_from_all_over_a_large_state() -> None:
    t = torch.linspace(0, 1, 5, dtype=D)[:, None]
    large = t * (1.0 + torch.arange(400, dtype=D) % 7)
    curves, note = curves_of([large.reshape(5, 20, 20)])
    assert len(curves) == CURVES and note == "10 of 400 components"
    rows = [curve.row for curve in curves]
    assert rows == sorted(rows) and rows[0] <= 2 and rows[-1] >= 17 and len(set(rows)) == CURVES
    assert all(float(curve.values[-1]) == 7.0 for curve in curves)  # each that varies most near it
    assert curves[0].name.startswith("y[") and ", " in curves[0].name


def test_tuples_and_complex_states_have_their_names() -> None:
    parts = [torch.ones(3, dtype=D), torch.ones(3, 2, dtype=torch.complex128) * (1 + 2j)]
    curves, note = curves_of(parts)
    names = ["y[0]", "Re y[1][0]", "Im y[1][0]", "Re y[1][1]", "Im y[1][1]"]
    assert [curve.name for curve in curves] == names and note == "state"
    assert [float(curve.values[0]) for curve in curves] == [1.0, 1.0, 2.0, 1.0, 2.0]
    assert [curve.style for curve in curves] == ["-", "-", "--", "-", "--"]


def test_samples_are_drawn_at_their_own_times() -> None:
    ends = torch.tensor([1.0, 2.0, 3.0], dtype=D)
    run = proxode.solve(lambda t, y: -y, torch.ones(3, 1, dtype=D), 0.0, ends, per_sample=True)
    upper, lower = run.plot().axes
    assert [max(line.get_xdata()) for line in upper.get_lines()] == [1.0, 2.0, 3.0]
    assert run.samples is not None and list(lines(lower)["accepted"].get_ydata()) == run.samples.n_accepted.tolist()


def test_axes_of_the_caller_are_drawn_on() -> None:
    run = proxode.solve(van_der_pol, Y0, 0.0, 0.1)
    figure = Figure()
    assert run.plot(axes=figure.subplots(2)) is figure and figure.axes[1].get_lines()
    for wrong in (figure.axes[0], [1, 2], figure.subplots(3)):
        with pytest.raises(TypeError, match="`axes` must be two matplotlib axes"):
            run.plot(axes=wrong)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        proxode.solve(van_der_pol, Y0, 0.0, 0.1).plot()


def test_a_state_of_many_sizes_is_drawn_by_their_logarithms() -> None:
    for rate, scale in ((12.0, "symlog"), (5.0, "linear")):
        y0 = torch.tensor([1.0], dtype=D)
        panel = proxode.solve(lambda t, y, rate=rate: rate * y, y0, 0.0, 1.0, dense=True).plot().axes[0]
        assert panel.get_yscale() == scale
