"""The benchmarks of the gradients, on problems small enough for a test."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import damped_modes, gradient_rows, gradients_memory, graphs
from benchmarks.gradient_rows import Problem, Run

NODES, FEATURES, CLASSES = 30, 12, 3
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


# GRAND


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small random graph, in a file of the collection's form."""
    random = np.random.default_rng(0)
    upper = np.triu(random.random((NODES, NODES)) < 0.2, 1)
    present = random.random((NODES, FEATURES)) < 0.4
    adjacency, attributes = ([np.flatnonzero(row) for row in matrix] for matrix in (upper, present))
    np.savez(
        tmp_path / "small.npz",
        adj_indptr=np.cumsum([0, *map(len, adjacency)]), adj_indices=np.concatenate(adjacency),
        attr_indptr=np.cumsum([0, *map(len, attributes)]), attr_indices=np.concatenate(attributes),
        attr_data=np.ones(int(present.sum())), attr_shape=np.array(present.shape),
        labels=np.arange(NODES) % CLASSES,
    )  # fmt: skip
    source = graphs.Source("small", "small.npz", NODES, int(upper.sum()), FEATURES, CLASSES)
    monkeypatch.setitem(graphs.SOURCES, "small", source)
    return tmp_path


@pytest.fixture
def problem() -> Problem:
    return Problem("small", hidden=8, heads=2, end=4.0)


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.filterwarnings("ignore", message=".*Sparse.*")  # torch's notice that CSR tensors are in beta


def test_attention_averages_over_neighbours(folder: Path, problem: Problem) -> None:
    f, u0, _, _ = gradient_rows.build(problem, folder, torch.float64)
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64)
    matrix[f.target, f.from_source.end] = f.weights(u0.detach()).squeeze(1).detach()
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


def test_missing_data_is_said_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ms_academic_cs.npz.*--data-dir"):
        graphs.find(graphs.SOURCES["coauthor_cs"], tmp_path)


def test_another_graph_under_the_name_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graphs.SOURCES, "small", graphs.Source("small", "small.npz", NODES, 1, FEATURES, CLASSES))
    with pytest.raises(ValueError, match="they should be"):
        graphs.load("small", folder)


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
