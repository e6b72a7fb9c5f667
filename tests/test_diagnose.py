"""The diagnosis as a whole: what it says of known equations, whether its advice holds, and the command."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diagnosis_cases import D, Network, heat, noise, pendulum, robertson, van_der_pol
from torch import Tensor

from proxode import solve
from proxode.analysis import Diagnosis, diagnose
from proxode.nn import NeuralODE

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def diffusion() -> Diagnosis:
    return diagnose(heat, noise(128), 0.0, 0.1)


def test_diffusion_is_stiff_symmetric_and_dissipative(diffusion: Diagnosis) -> None:
    d, rim = diffusion, 4.0 * 127**2
    assert d.ok and d.advice.stiffness == "stiff"
    assert d.left == pytest.approx(-rim, rel=0.01) and d.imaginary == 0.0
    assert d.gradient_field and d.autonomous and d.banded and not d.exact
    assert d.stability_steps == pytest.approx(0.1 * rim / 3.3066, rel=0.02)
    assert d.backward_orders == pytest.approx(0.1 * rim / math.log(10), rel=0.02)
    assert d.way == pytest.approx(0.1 * rim, rel=0.01) and d.motion < 20
    assert d.nfe == d.nfe_solve + d.nfe_probes < 1_500


def test_the_advice_for_diffusion_holds(diffusion: Diagnosis) -> None:
    advice = diffusion.advice
    solution = solve(heat, noise(128), 0.0, 0.1, method=advice.method, inner=advice.inner)
    explicit = solve(heat, noise(128), 0.0, 0.1, method="dopri5")
    dopri5 = next(cost for cost in advice.costs if cost.method == "dopri5")
    assert explicit.stats.nfe_forward == pytest.approx(dopri5.nfe_forward, rel=0.2)
    assert solution.stats.nfe_forward == pytest.approx(advice.costs[0].nfe_forward, rel=0.2)
    assert solution.stats.nfe_forward < explicit.stats.nfe_forward / 10


@pytest.mark.parametrize(
    ("func", "y0", "t1"),
    [(van_der_pol, [2.0, 0.0], 10.0), (robertson, [1.0, 0.0, 0.0], 1e3), (pendulum, [1.0, 0.0], 10.0)],
)
def test_costs_are_those_of_a_solve_and_its_gradient(func: Any, y0: list[float], t1: float) -> None:
    d = diagnose(func, torch.tensor(y0, dtype=D), 0.0, t1)
    start = torch.tensor(y0, dtype=D, requires_grad=True)
    solution = solve(func, start, 0.0, t1)
    forward = solution.stats.nfe_forward
    solution.ys[-1].sum().backward()
    assert d.advice.costs[0].nfe_forward == pytest.approx(forward, abs=3)
    assert d.advice.costs[0].nfe_backward == pytest.approx(solution.stats.nfe_backward, rel=0.1)


def test_van_der_pol_and_robertson_are_stiff_and_small() -> None:
    for func, y0, t1 in ((van_der_pol, [2.0, 0.0], 100.0), (robertson, [1.0, 0.0, 0.0], 1e6)):
        d = diagnose(func, torch.tensor(y0, dtype=D), 0.0, t1)
        assert d.ok and d.exact and d.advice.stiffness == "stiff" and not d.gradient_field
        assert d.advice.method in ("auto", "bdf") and d.advice.inner == "newton" and d.advice.gradient == "implicit"
        assert 6 * d.stability_steps > 50 * d.nfe_solve
    assert d.stiffness_ratio is not None and d.stiffness_ratio > 1e6


def test_places_are_spread_over_the_steps_and_over_time() -> None:
    d = diagnose(robertson, torch.tensor([1.0, 0.0, 0.0], dtype=D), 0.0, 1e6)
    assert len(d.places) == 12 and (d.places[0].t, d.places[-1].t) == (0.0, 1e6)
    assert sum(0.05 < place.t / d.t1 < 0.99 for place in d.places) >= 3
    assert sum(0 < place.t / d.t1 < 1e-3 for place in d.places) >= 2


def test_a_pendulum_is_not_stiff_and_explicit_steps_are_advised() -> None:
    d = diagnose(pendulum, torch.tensor([1.0, 0.0], dtype=D), 0.0, 20.0)
    assert d.advice.stiffness == "not stiff" and d.advice.method == "dopri5" and d.advice.inner == ""
    y0 = torch.tensor([1.0, 0.0], dtype=D)
    explicit, implicit = (solve(pendulum, y0, 0.0, 20.0, method=method) for method in ("dopri5", "bdf"))
    assert explicit.stats.nfe_forward < implicit.stats.nfe_forward
    assert d.backward_orders < 1 and "neither grow nor decay" in str(d)


def ripple(t: Tensor, y: Tensor) -> Tensor:
    """cos t, sin t and a fast rotation about them."""
    x, v = y[0] - torch.cos(t), y[1] - torch.sin(t)
    return torch.stack([300 * v - torch.sin(t), -300 * x + torch.cos(t)])


def test_a_fast_ripple_is_not_for_bdf() -> None:
    y0 = torch.tensor([1.0003, 0.0], dtype=D)
    d = diagnose(ripple, y0, 0.0, 2.0)
    assert d.path.by_bdf > d.steps / 2 and d.advice.method == "ralston4" and not d.autonomous
    nfe = {method: solve(ripple, y0, 0.0, 2.0, method=method).stats.nfe_forward for method in ("ralston4", "dopri5")}
    assert nfe["ralston4"] < 0.6 * min(nfe["dopri5"], d.nfe_solve)


def test_a_fast_mode_that_rests_is_no_trouble_for_bdf() -> None:
    y0 = torch.tensor([1.0, 0.0], dtype=D)
    d = diagnose(ripple, y0, 0.0, 10.0)
    assert d.advice.stiffness == "stiff" and d.advice.method == "bdf" and "above order 2" in d.advice.choices[0].reason
    assert solve(ripple, y0, 0.0, 10.0, method="bdf").stats.nfe_forward < 6 * d.stability_steps / 5


def test_a_layer_brings_its_times_and_tolerances() -> None:
    layer = NeuralODE(Network(), 2.0, rtol=1e-3, atol=1e-5, method="dopri8")
    d = diagnose(layer, torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))
    assert (d.t0, d.t1, d.rtol, d.atol, d.n, d.dtype) == (0.0, 2.0, 1e-3, 1e-5, 160, "float32")
    assert d.samples is not None and d.samples.independent and d.graph.of_others
    assert d.advice.stiffness == "not stiff" and any("dopri8" in finding for finding in d.findings)


def test_samples_of_different_stiffness_are_told() -> None:
    rates = torch.logspace(0, 3, 16, dtype=D)[:, None]
    d = diagnose(lambda t, y: -rates * y, torch.ones(16, 2, dtype=D), 0.0, 1.0)
    assert any("per_sample=True" in finding for finding in d.findings)


def test_nothing_of_the_global_random_state_is_used_up() -> None:
    before = torch.get_rng_state()
    first, second = (diagnose(Network(0.5), torch.ones(4, 8), 0.0, 1.0) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.to_dict() == second.to_dict()


def test_a_random_f_is_told() -> None:
    d = diagnose(Network(0.5), torch.ones(4, 8), 0.0, 1.0)
    assert d.randomness > 0.01 and any("eval()" in finding for finding in d.findings)
    assert not any("random" in finding for finding in diagnose(Network(), torch.ones(4, 8), 0.0, 1.0).findings)


def test_a_solve_that_fails_is_diagnosed_as_far_as_it_came() -> None:
    d = diagnose(lambda t, y: y * y, torch.ones(1), 0.0, 2.0)
    assert not d.ok and d.reached == pytest.approx(1.0, abs=1e-3) and d.places
    assert "failed at t = 1" in d.findings[0] and "as far as it came" in str(d)
    assert json.loads(json.dumps(d.to_dict()))["failure"]["status"] == d.path.failure.status.name  # type: ignore[union-attr]


def test_an_f_of_nan_leaves_nothing_to_say_and_says_so() -> None:
    d = diagnose(lambda t, y: y * math.nan, torch.ones(3), 0.0, 1.0)
    assert not d.ok and not d.places and d.advice.choices == ()
    assert "nothing could be probed" in str(d)
    assert json.loads(json.dumps(d.to_dict()))["radius"] is None


def test_an_f_that_detaches_is_told_and_its_spectrum_found_by_differences() -> None:
    d = diagnose(lambda t, y: -40.0 * y.detach(), torch.ones(3, dtype=D), 0.0, 1.0)
    assert d.products == "difference" and d.left == pytest.approx(-40.0, rel=1e-5)
    assert d.advice.gradient == "none" and any("detaches y" in finding for finding in d.findings)


def test_an_f_without_forward_mode_costs_no_accuracy() -> None:
    class Decay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: Tensor) -> Tensor:
            return -7.0 * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            return -7.0 * grad

    d = diagnose(lambda t, y: Decay.apply(y), torch.ones(120, dtype=D), 0.0, 1.0)
    assert d.products == "double_backward" and d.left == pytest.approx(-7.0, rel=1e-9)
    assert any("forward mode" in finding for finding in d.findings)


def test_tuples_one_unknown_time_and_backward_time() -> None:
    d = diagnose(lambda t, y: (-y[0] * t, -3.0 * y[1]), (torch.ones(2), torch.ones(1, 2)), 0.0, 1.0)
    assert d.n == 4 and not d.autonomous and d.left == pytest.approx(-3.0, rel=1e-5)
    single = diagnose(lambda t, y: -2.0 * y, torch.ones(1), 0.0, 1.0)
    assert single.left == single.right == pytest.approx(-2.0) and "one unknown" in str(single)
    reverse = diagnose(lambda t, y: -2.0 * y, torch.ones(1), 1.0, 0.0)
    assert reverse.right == pytest.approx(2.0) and any("before t0" in finding for finding in reverse.findings)
    timed = diagnose(lambda t, y: -t * y, torch.ones(1), 2.0, 1.0)
    assert [place.spectrum.right for place in timed.places] == pytest.approx([place.t for place in timed.places])
    assert (timed.right, timed.places[-1].t) == (pytest.approx(2.0), pytest.approx(1.0))


def test_growth_of_the_solution_itself_is_no_loss_of_it() -> None:
    d = diagnose(lambda t, y: y, torch.ones(1, dtype=D), 0.0, 30.0)
    assert d.forward_orders == pytest.approx(30 / math.log(10), rel=1e-3)
    assert d.sustained_orders < 0.1 and not any("no solver" in finding for finding in d.findings)


def test_growth_is_told_where_it_lasts_and_not_in_a_jump() -> None:
    jump = diagnose(van_der_pol, torch.tensor([1.2, 0.0], dtype=D), 0.0, 500.0)
    assert jump.right > 10 and jump.forward_orders > 3 * jump.sustained_orders
    assert not any("no solver" in finding for finding in jump.findings) and "in short parts of the way" in str(jump)


def test_components_below_atol_are_told() -> None:
    d = diagnose(lambda t, y: -y, torch.tensor([1.0, 1e-9], dtype=D), 0.0, 1.0)
    assert any("1 of 2 components never exceed atol" in finding for finding in d.findings)


def test_large_graphs_are_for_checkpoints() -> None:
    d = diagnose(pendulum, torch.tensor([1.0, 0.0], dtype=D), 0.0, 3.0)
    assert d.advice.gradient == "implicit"
    large = replace(d, graph=d.graph._replace(bytes=2**30 // (6 * d.steps)))
    assert large.advice.gradient == "checkpoint"


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="`t0` and `t1` must be given"):
        diagnose(pendulum, torch.ones(2))
    with pytest.raises(ValueError, match="points"):
        diagnose(pendulum, torch.ones(2), 0.0, 1.0, points=0)
    with pytest.raises(ValueError, match="func returned shape"):
        diagnose(lambda t, y: y[:1], torch.ones(2), 0.0, 1.0)


def test_pictures_are_drawn_of_anything(tmp_path: Path, diffusion: Diagnosis) -> None:
    pytest.importorskip("matplotlib")
    nothing = diagnose(lambda t, y: y * math.nan, torch.ones(3), 0.0, 1.0)
    wide = diagnose(robertson, torch.tensor([1.0, 0.0, 0.0], dtype=D), 0.0, 1e6)
    for i, d in enumerate((diffusion, nothing, wide, diagnose(pendulum, torch.ones(2), 0.0, 3.0, points=1))):
        figure = d.plot(tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").read_bytes().startswith(PNG) and len(figure.axes) == 2


def test_the_picture_shows_rejected_steps_its_scales_and_when_a_place_was() -> None:
    pytest.importorskip("matplotlib")
    d = diagnose(van_der_pol, torch.tensor([2.0, 0.0], dtype=D), 0.0, 900.0)
    left, right = d.plot().axes
    drawn = {line.get_label(): line for line in right.get_lines()}
    assert len(drawn["rejected"].get_xdata()) == d.path.stats.n_rejected > 0
    assert left.get_xscale() == "symlog" and "by decades beyond 4" in left.get_xlabel()
    (scale,) = left.child_axes
    assert [label.get_text() for label in scale.get_xticklabels()][::2] == ["0", "900"]
    plain = diagnose(pendulum, torch.ones(2), 0.0, 3.0).plot().axes[0]
    assert plain.get_xscale() == plain.get_yscale() == "linear" and plain.get_xlabel() == "Re h λ"


# The command

SCRIPT = """
import torch
from proxode.nn import NeuralODE

start = torch.tensor([2.0, 0.0], dtype=torch.float64)
rate = 3.0

def oscillator(t, y):
    return torch.stack([y[1], 50 * (1 - y[0] ** 2) * y[1] - y[0]])

def made():
    return oscillator

def begin():
    return start

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, t, y):
        return self.layer(y)

layer = NeuralODE(Net(), 2.0)
through_net = lambda t, y: layer.func(t, y)
y0 = start
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_model.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from proxode.cli import app

    result = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1"}).invoke(app, ["diagnose", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("my_model:oscillator", "--y0", "2,0", "--t1", "5"),
        ("my_model.py:oscillator", "--y0", "start", "--t1", "5"),
        ("my_model:made", "--y0", "begin", "--t1", "5"),
        ("my_model:oscillator", "--t1", "5"),  # y0 of the module
        ("my_model:Net", "--y0", "[[1, 0], [2, 0]]", "--t1", "1"),
        ("my_model:layer", "--y0", "1,0"),  # with times of its own, in float32
        ("my_model:layer.func", "--y0", "1,0", "--t0", "1", "--t1", "2"),
    ],
    ids=" ".join,
)
def test_the_command_finds_what_is_meant(folder: Path, arguments: tuple[str, ...]) -> None:
    code, output = run(*arguments, "--json", "found.json")
    assert code == 0, output
    found = json.loads((folder / "found.json").read_text())
    assert found["ok"] and found["advice"]["choices"][0]["name"] in output
    assert found["dtype"] == ("float32" if "layer" in arguments[0] or "Net" in arguments[0] else "float64")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("my_model", "--t1", "1"), "module:function"),
        (("my_modle:oscillator", "--t1", "1"), "there is no module 'my_modle'"),
        (("elsewhere/model.py:f", "--t1", "1"), "there is no file"),
        (("my_model:oscilator", "--t1", "1"), "there are: start, oscillator, made, begin, Net, layer, through_net, y0"),
        (("my_model:rate", "--t1", "1"), "'rate' is a float, not a function"),
        (("my_model:oscillator",), "--t1 is missing"),
        (("my_model:oscillator", "--y0", "rate", "--t1", "1"), "f(t, y) failed for y of shape () float64"),
        (("my_model:oscillator", "--y0", "nothing", "--t1", "1"), "--y0: my_model has no 'nothing'"),
        (("my_model:oscillator", "--y0", "2;0", "--t1", "1"), "is neither numbers"),
        (("my_model:Net", "--y0", "1,2,3", "--t1", "1"), "f(t, y) failed for y of shape (3,) float32"),
        (("my_model:through_net", "--y0", "2,0", "--t1", "1"), "--dtype float32 makes the numbers in --y0 so"),
        (("my_model:oscillator", "--y0", "2,0,0", "--t1", "1"), "func returned shape (2,)"),
        (("my_model:oscillator", "--dtype", "half", "--t1", "1"), "none of float32, float64"),
        (("my_model:oscillator", "--jump-t", "a,b", "--t1", "1"), "--jump-t 'a,b' are no times"),
        (("my_model:oscillator", "--method", "dopri6", "--t1", "1"), "unknown `method` 'dopri6'"),
        (("no_such:f", "--plot", "nodir/x.png", "--t1", "1"), "--plot nodir/x.png: there is no folder nodir"),
        (("no_such:f", "--plot", "x.gif", "--t1", "1"), "--plot x.gif: the ending of a picture is one of .png"),
        (("no_such:f", "--json", "nodir/x.json", "--t1", "1"), "--json nodir/x.json: there is no folder nodir"),
        (("no_such:f", "--json", ".", "--t1", "1"), "--json . cannot be written (Is a directory): choose another"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, tuple) else "",
)  # fmt: skip
def test_the_command_teaches(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    code, output = run(*arguments)
    assert code == 2 and message in output, output
    assert "Traceback" not in output


def test_the_command_takes_pulses_limits_and_the_method_of_a_slow_call(folder: Path) -> None:
    pulse = "def pulse(t, y):\n    return 10.0 * ((t > 5) & (t < 5.02)) - 0.1 * y"
    (folder / "pulses.py").write_text(pulse)

    def strides(*arguments: str) -> list[tuple[float, float, str]]:
        code, output = run("pulses:pulse", "--y0", "1", "--t1", "24", "--json", "found.json", *arguments)
        assert code == 0, output
        found: list[tuple[float, float, str]] = json.loads((folder / "found.json").read_text())["strides"]
        return found

    ends = [end for _, end, _ in strides("--jump-t", "5,5.02")]
    assert all(min(abs(t - end) for end in ends) < 1e-9 for t in (5.0, 5.02))
    longest = [max(end - start for start, end, _ in strides(*given)) for given in (("--max-step", "0.5"), ())]
    assert longest[0] <= 0.5 < longest[1]
    code, output = run("my_model:oscillator", "--t1", "5", "--max-steps", "5", "--method", "dopri5")
    assert code == 0 and "you have named method 'dopri5'" in output and "cut the solve off after 5 steps" in output


def test_a_layer_brings_its_jumps() -> None:
    jump_t = torch.tensor([0.3])
    layer = NeuralODE(lambda t, y: torch.where(t < 0.3, 1.0, -1.0) * y, 1.0, jump_t=jump_t, method="dopri5")
    d = diagnose(layer, torch.ones(1))
    assert min(abs(stride.t1 - 0.3) for stride in d.path.strides) < 1e-6 and d.path.stats.n_rejected == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import torch\n\nscale = 1 / 0", "importing broken.py failed at line 3: ZeroDivisionError: division by zero"),
        ("def f(t, y):\n    return -y +", "importing broken.py failed at line 2: SyntaxError: invalid syntax"),
        ("from torch import not_there", "importing broken.py failed at line 1: ImportError: cannot import name"),
        ("\nimport not_there_at_all", "importing broken.py failed at line 2: it needs the module 'not_there_at_all'"),
        ("import json\nkeys = json.loads('{')", "importing broken.py failed at line 2: JSONDecodeError: Expecting"),
        ("\nimport faulty", "importing broken.py failed at line 2: KeyError: 'rate' (in faulty.py, line 1)"),
        ("import sys\nsys.exit('no data')", "importing broken.py failed at line 2: SystemExit: no data"),
    ],
    ids=["error", "syntax", "name", "module", "in a library", "in another file", "exit"],
)  # fmt: skip
@pytest.mark.parametrize("target", ["broken:f", "broken.py:f"])
def test_a_file_that_cannot_be_imported_is_told_with_its_line(folder: Path, target: str, text: str, says: str) -> None:
    (folder / "broken.py").write_text(text)
    (folder / "faulty.py").write_text("{}['rate']")
    code, output = run(target, "--y0", "1", "--t1", "1")
    assert code == 2 and output.startswith(f"error: {says}"), output
    assert "f(t, y)" not in output and "broken" not in sys.modules


@pytest.mark.parametrize(("name", "y0"), [("make", "1"), ("f", "make")])
def test_a_maker_that_fails_is_told_with_its_line(folder: Path, name: str, y0: str) -> None:
    (folder / "makers.py").write_text("def f(t, y):\n    return -y\n\ndef make():\n    return 1 / 0")
    code, output = run(f"makers.py:{name}", "--y0", y0, "--t1", "1")
    assert code == 2 and "make() failed: ZeroDivisionError: division by zero (makers.py, line 5)" in output, output


def test_the_command_in_a_process_of_its_own(folder: Path) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("matplotlib")
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "proxode", "diagnose", "my_model:oscillator", "--t1", "5", "--plot", "p.png"],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(root)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "wrote p.png" in done.stdout and (folder / "p.png").read_bytes().startswith(PNG)
    assert "dopri5 is stable up to steps of" in " ".join(done.stdout.split())
