"""The benchmarks of the gradients, on problems small enough for a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from data_cases import NODES, small_source

from benchmarks import advice, advice_memory, damped_modes, gradient_rows, gradients_memory
from benchmarks.gradient_rows import Problem, Run
from proxode.data import graphs

linux = pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")


# What damping does


def test_damped_modes_show_what_the_docs_say(tmp_path: Path) -> None:
    damped_modes.main(out=tmp_path)
    rows = json.loads((tmp_path / "damped_modes.json").read_text())["rows"]
    for row in rows:
        assert row["bdf2, resolved"] == pytest.approx(row["exact, resolved"], rel=0.04)
        for method in ("backward_euler", "bdf2"):
            assert 0.9 < row[method] / row["exact"] < 5
        if row["kh"] >= 50:
            assert row["crank_nicolson"] / row["exact"] < -300
    assert abs(rows[-1]["bdf2"] / rows[-2]["bdf2"]) == pytest.approx(0.1, rel=0.05)  # as 1/(k h)
    assert (tmp_path / "damped_modes.png").exists()


# What the pages of advice say


def test_the_numbers_behind_the_advice_are_made_part_by_part(tmp_path: Path) -> None:
    advice.main(out=tmp_path, only="quickstart,direct", quick=True)
    advice.main(out=tmp_path, only="oscillatory,plane", quick=True)
    parts = json.loads((tmp_path / "advice.json").read_text())["parts"]
    assert list(parts) == ["quickstart", "direct", "oscillatory", "plane"]
    rows = {name: part["rows"] for name, part in parts.items()}
    assert all(row["last"] < row["first"] for row in rows["quickstart"])
    assert [row["status"] for row in rows["direct"]] == ["SUCCESS"] * 2
    nfe = {row["method"]: row["nfe"] for row in rows["oscillatory"]}
    assert nfe["ralston4"] < nfe["dopri5"]
    assert len(rows["plane"]) == 4 and all(row["error"] <= 1e-2 for row in rows["plane"])


@linux
def test_checkpoint_holds_less_than_implicit_on_a_grid() -> None:
    states = {name: advice_memory.run(name, 200, 3_000)["states"] for name in ("implicit", "checkpoint")}
    assert states["checkpoint"] < 0.6 * states["implicit"]


# GRAND


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(graphs.SOURCES, "small", small_source(tmp_path))
    return tmp_path


@pytest.fixture
def problem() -> Problem:
    return Problem("small", hidden=8, heads=2, end=4.0)


def test_attention_averages_over_neighbours(folder: Path, problem: Problem) -> None:
    f, u0, _, _ = gradient_rows.build(problem, folder, torch.float64)
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64)
    matrix[f.edges.target, f.edges.source] = f.weights(u0.detach()).detach()
    torch.testing.assert_close(matrix.sum(1), torch.ones(NODES, dtype=torch.float64))
    torch.testing.assert_close(f(torch.zeros(()), u0), matrix @ u0 - u0, check_stride=False)
    assert torch.equal(matrix > 0, (matrix > 0).T)  # the graph has no direction
    assert float(f(torch.zeros(()), torch.ones_like(u0)).detach().abs().max()) < 1e-14


def test_attention_has_the_right_derivatives(folder: Path, problem: Problem) -> None:
    f, u0, _, _ = gradient_rows.build(problem, folder, torch.float64)

    def of(u: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(f, {"theta": theta}, (torch.zeros(()), u))

    assert torch.autograd.gradcheck(of, (u0, f.theta), fast_mode=True)


def test_a_row_of_coauthor_is_compared_with_the_reference(folder: Path, problem: Problem) -> None:
    reference = gradient_rows.reference_path(problem, folder)
    gradient_rows.make_reference(problem, folder, reference)
    rows = {
        run.family: gradient_rows.measure(run, problem, folder, reference, max_calls=2_000)
        for run in (
            Run("torchdiffeq", "odeint", "dopri5", 1e-5),
            Run("proxode", "odeint", None, 1e-5),
            Run("proxode", "odeint_adjoint", None, 1e-5),
            Run("proxode", "odeint", "bdf4", 1e-5, 20, "auto"),
            Run("proxode", "odeint", "bdf4", 1e-5, 20, "auto", store_graph=True),
            Run("proxode", "odeint", "crank_nicolson", 1e-5, 20, "auto", power=2.0),
        )
    }
    assert len(rows) == 6
    for family, row in rows.items():
        assert row.error is None, family
        assert max(row.error_u0, row.error_theta) < 0.02, family
        assert row.nfe_forward >= row.calls_forward > 0 and row.nfe_backward > 0
    theirs = rows["torchdiffeq odeint dopri5"]
    assert theirs.nfe_backward in (theirs.nfe_forward, theirs.nfe_forward - 1)  # one product for each evaluation


def test_a_row_that_takes_too_many_calls_says_so(folder: Path, problem: Problem) -> None:
    reference = gradient_rows.reference_path(problem, folder)
    gradient_rows.make_reference(problem, folder, reference)
    row = gradient_rows.measure(Run("torchdiffeq", "odeint", "dopri5", 1e-5), problem, folder, reference, max_calls=9)
    assert row.error == "TooManyCalls: stopped after 9 calls of f"


# Memory


@linux
def test_rows_of_the_memory_benchmark_agree_in_their_gradient() -> None:
    labels = ("implicit", "checkpoint", "continuous", "direct")
    rows = {label: gradients_memory.run(label, steps=30, size=2_000) for label in labels}
    exact = rows["direct"].gradient
    for label, row in rows.items():
        assert row.message == "ok" and row.states is not None and row.states > 0
        # It decays by five orders on the way back: that of the equation is not quite that of the steps.
        assert row.gradient == pytest.approx(exact, rel=0.5 if label == "continuous" else 1e-3)
