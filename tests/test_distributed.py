"""Several processes on this machine: every one with its own samples, or all with one state divided over them.

Two and four processes are started once (torchrun, gloo) and run the cases of tests/distributed_cases.py; each test
looks at what they found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from proxode.distributed import halo, sum_gradients

CASES = Path(__file__).with_name("distributed_cases.py")
ROOT = CASES.parent.parent
LONG = 300  # seconds after which processes are taken to hang

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def launched(processes: int, folder: Path, *cases: str) -> list[dict[str, Any]]:
    """What each rank found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*command, str(CASES), str(folder), *cases], env=environment(), capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    samples = ("data_parallel", "fully_sharded", "func_that_communicates")
    states = ("divided", "other_layouts", "corners", "messages", "robertson_cells", "halos", "refusals", "noise")
    return launched(2, tmp_path_factory.mktemp("two"), *samples, *states)


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return launched(2, tmp_path_factory.mktemp("exchanges"), "wrong_exchanges", "right_exchanges", "losses")


@pytest.fixture(scope="module")
def of_four(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return launched(4, tmp_path_factory.mktemp("four"), "divided_briefly", "halos")


@pytest.mark.parametrize("kind", ["data_parallel", "fully_sharded"])
def test_gradients_over_processes_are_those_of_one(of_two: list[dict[str, Any]], kind: str) -> None:
    """With every gradient; each process takes as many evaluations as its own samples need."""
    first, second = (found[kind] for found in of_two)
    assert len(first) == 11
    for name in first:
        assert first[name]["off"] < 1e-12, name
        assert second[name]["off"] < 1e-12, name
        assert first[name]["nfe"] < second[name]["nfe"], name


def test_a_func_that_waits_for_other_processes_is_refused_unless_all_take_the_same_steps(
    of_two: list[dict[str, Any]],
) -> None:
    for found in (each["func_that_communicates"] for each in of_two):
        parallel, implicit, adaptive = found["messages"]
        assert "DistributedDataParallel(model)" in parallel
        assert "apply fully_shard to the module that calls the solver" in implicit
        assert "'group'" in adaptive
        assert found["fixed"]
    assert of_two[0]["func_that_communicates"]["nfe"] == of_two[1]["func_that_communicates"]["nfe"]


def check_divided(found: list[dict[str, Any]]) -> None:
    assert all(each == found[0] for each in found)  # the same steps, and the same numbers
    for name, row in found[0].items():
        steps, alone = row["steps"]
        assert steps == alone, name
        checks = 13 + 12 * (len(found) - 1).bit_length()  # of what func communicates
        assert row["nfe"][0] - row["nfe"][1] <= checks or "direct" in name, name
        assert row["ys"] < 1e-11, name
        bound = 1e-2 if "direct" in name else 1e-8  # iterations are recorded until rtol is reached
        assert max(row["y0"], row["k"]) < bound, name


def test_a_state_divided_over_two_processes_has_the_solution_and_gradients_of_one(
    of_two: list[dict[str, Any]],
) -> None:
    assert len(of_two[0]["divided"]) == 14
    check_divided([found["divided"] for found in of_two])


def test_a_state_divided_over_four_processes_has_the_solution_and_gradients_of_one(
    of_four: list[dict[str, Any]],
) -> None:
    check_divided([found["divided_briefly"] for found in of_four])


def test_columns_tuples_norms_groups_and_copies(of_two: list[dict[str, Any]]) -> None:
    """The solver's own rough directions differ where a part is not one piece: equal to the tolerance."""
    for found in (each["other_layouts"] for each in of_two):
        assert found["group"] < 1e-11
        assert max(found.values()) < 1e-4, found


def test_processes_whose_parts_differ_decide_together(of_two: list[dict[str, Any]]) -> None:
    assert of_two[0]["corners"]["norm steps"] == of_two[1]["corners"]["norm steps"] < 60
    for found in (each["corners"] for each in of_two):
        assert max(value for name, value in found.items() if "inert" in name) < 1e-3, found
        assert max(found["tolerance"], found["norm"]) < 1e-3 and found["dense"] < 1e-12, found


def test_an_evaluation_costs_few_messages(of_two: list[dict[str, Any]]) -> None:
    """As docs/distributed.md says."""
    for name, (forward, backward) in of_two[0]["messages"].items():
        assert 0.2 < forward < 10 and backward < 10, name


def test_a_difference_that_says_nothing_is_no_reason_to_refuse(of_two: list[dict[str, Any]]) -> None:
    for found in (each["robertson_cells"] for each in of_two):
        assert found["mass"] < 1e-4 and found["gradient"]
        assert abs(found["a"] - 0.8414) < 1e-3  # Robertson at t = 10 (Hairer & Wanner 1996, IV.10)


def test_uneven_parts_in_noise_restart_together(of_two: list[dict[str, Any]]) -> None:
    first, second = (found["noise"] for found in of_two)
    assert first == second and first["status"] == "INNER_STAGNATED" and 400 < first["nfe"] < 2_000


def test_an_exchange_whose_backward_is_wrong_is_refused_at_every_size(exchanges: list[dict[str, Any]]) -> None:
    """Of numbers of rows, kinds of exchange, stiffness beside it, and precision: none is missed."""
    for found in (each["wrong_exchanges"] for each in exchanges):
        assert len(found) == 22
        assert {name: sizes for name, sizes in found.items() if sizes} == {}


def test_an_exchange_whose_backward_is_right_is_never_refused(exchanges: list[dict[str, Any]]) -> None:
    """Nor where f has corners at the start, is stiff or far from linear, and where rounding hides much."""
    for found in (each["right_exchanges"] for each in exchanges):
        assert len(found) == 10
        assert {name: where for name, where in found.items() if where} == {}


def test_each_process_calls_backward_on_its_share_of_the_loss(exchanges: list[dict[str, Any]]) -> None:
    """Or on the sum as a DTensor; a sum that is differentiated itself gives as many times the gradient, as the page
    says."""
    for found in (each["losses"] for each in exchanges):
        assert len(found) == 4 and max(found.values()) < 1e-6, found


@pytest.mark.parametrize("processes", ["of_two", "of_four"])
def test_a_halo_is_what_padding_the_whole_would_give_and_its_backward_the_transpose(
    request: pytest.FixtureRequest, processes: str
) -> None:
    for found in (each["halos"] for each in request.getfixturevalue(processes)):
        assert len(found) == 6
        assert max(max(errors) for errors in found.values()) < 1e-14, found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("newton", "choose 'auto', 'anderson' or 'newton_krylov'"),
        ("event", "`events` is not available"),
        ("per_sample", "`per_sample` is not available"),
        ("compile", "`compile` is not available"),
        ("stepper", "use solve()"),
        ("mixed", "`y0[1]` is no DTensor"),
        ("plain output", "func must return a DTensor like y0"),
        ("group", "`group` is for plain tensors"),
        ("no group", "`group` must be a process group"),
        ("gradient", "the backward of func is not the transpose of its forward"),
        ("hidden", "the backward of func is not the transpose of its forward"),
        ("later", "the backward of func is not the transpose of its forward"),
        ("different", "the processes use different tensors that want a gradient"),
        ("lost", "would get no gradient by this method"),
        ("empty", "`y0` has no elements in one of the processes"),
        ("mean", "the backward of func is not the transpose of its forward"),
        ("nan", "`y0` holds nan"),
        ("halo", "`width` = 3 is more than the 2 rows of this process"),
        ("halo of the whole", "give `halo` the part of this process, x.to_local()"),
        ("forgotten", "Give the solve a DTensor as `y0`, or `group`"),
        ("random", "f is random: two values at the same time and state differ"),
    ],
)
def test_what_cannot_be_is_said_by_every_process(of_two: list[dict[str, Any]], name: str, says: str) -> None:
    for found in of_two:
        assert says in found["refusals"][name]


def test_a_width_in_the_place_of_the_group_is_told() -> None:
    with pytest.raises(TypeError, match=r"`group` must be a torch process group, not 2: write halo\(x, width=2\)"):
        halo(torch.ones(4), 2)
    for call in (lambda: halo(torch.ones(4), "rows"), lambda: sum_gradients([torch.ones(4)], "rows")):
        with pytest.raises(TypeError, match=r"`group` must be a process group .* not str"):
            call()


DYING = """
import os, sys, torch, torch.distributed as dist
import proxode
from proxode.distributed import process_group

calls = 0

def f(t, y):
    global calls
    calls += 1
    if dist.get_rank() == 1 and calls == 5:
        os._exit(3)
    return -y

def main():
    if sys.argv[1] == "divided":
        proxode.solve(f, torch.ones(4), 0.0, 10.0, method="bdf", group=dist.group.WORLD)
    else:
        model = torch.nn.Linear(4, 4)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        proxode.odeint(f, parallel(torch.ones(1, 4)), torch.tensor([0.0, 10.0]))[-1].sum().backward()

with process_group("gloo"):
    main()
"""


@pytest.mark.parametrize("kind", ["divided", "data_parallel"])
def test_a_process_that_dies_ends_the_others_with_an_error(tmp_path: Path, kind: str) -> None:
    """Without a launcher that would end them."""
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, str(script), kind], stderr=subprocess.PIPE, text=True,
            env=environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2", RANK=str(rank)),
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=LONG)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [1, 3], errors
    assert ("another process of this solve has ended" if kind == "divided" else "RuntimeError") in errors[0]
