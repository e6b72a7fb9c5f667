"""Solves inside of models that torch.compile compiles: they are stepped out of, the rest of the model is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import convert_frame
from torch._dynamo.utils import counters

import proxode
import proxode.compiled
from proxode.nn import CNF, NeuralODE

# Where a trace goes on behind what it steps out of, torch looks at .grad of what it finds.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")

PACKAGE = Path(proxode.__file__).parent
TIMES = torch.linspace(0.0, 1.0, 3)
X = torch.tensor([[1.0, 0.5], [-0.3, 0.8], [0.2, -1.0]])


class Rate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.net(y) - 50 * y


@pytest.fixture(autouse=True)
def untraced():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="eager")


def traced() -> set[str]:
    """Files of the package whose code was looked at, to be compiled."""
    files = {Path(code.co_filename) for code in (seen() for seen in convert_frame.input_codes.seen) if code is not None}
    return {file.relative_to(PACKAGE).as_posix() for file in files if file.is_relative_to(PACKAGE)}


F = Rate()


def stepped(x: Tensor) -> Tensor:
    stepper = proxode.Stepper(F, 2 * x, 0.0, t1=1.0)
    stepper.advance(0.5)
    stepper.restart()
    for _ in stepper:
        pass
    return x + stepper.interpolate(1.0)


def crossing(t: Tensor, y: Tensor) -> Tensor:
    return y[0, 0] - 0.5


DOORS = {
    "odeint": lambda x: x + proxode.odeint(F, 2 * x, TIMES),
    "odeint_adjoint": lambda x: x + proxode.odeint_adjoint(F, 2 * x, TIMES),
    "odeint_event": lambda x: x + proxode.odeint_event(F, 2 * x, torch.tensor(0.0), event_fn=crossing)[1],
    "odeint_dense": lambda x: x + proxode.odeint_dense(F, 2 * x, 0.0, 1.0)(0.3),
    "solve": lambda x: x + proxode.solve(F, 2 * x, 0.0, 1.0, method="bdf").ys[-1],
    "evaluate": lambda x: x + proxode.solve(F, 2 * x, 0.0, 1.0, dense=True).evaluate(0.3),
    "per_sample": lambda x: x + proxode.solve(F, 2 * x, 0.0, 1.0, per_sample=True).ys[-1],
    "Stepper": stepped,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_function_that_solves_is_compiled_around_the_solve(door: str) -> None:
    expected = DOORS[door](X)
    assert torch.equal(compiled(DOORS[door])(X), expected)
    assert traced() <= ({"stepper.py", "walk.py"} if door == "Stepper" else set())  # that reads where it stands
    assert counters["stats"]["unique_graphs"] == (1 if door == "Stepper" else 2)  # before the solve, and after it
    assert torch.equal(compiled(DOORS[door])(X), expected)


@pytest.mark.parametrize("method", ["auto", "bdf", "dopri5"])
def test_a_layer_takes_the_steps_that_it_takes_alone(method: str) -> None:
    layer = NeuralODE(F, 1.0, method=method)
    expected, steps = layer(X), layer.stats.n_steps
    assert torch.equal(compiled(layer)(X), expected)
    assert layer.stats.n_steps == steps and not traced()


def test_a_flow_is_stepped_out_of() -> None:
    flow = CNF(F, rtol=1e-3, atol=1e-3)
    for one, other in zip(flow(X), compiled(flow)(X), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(compiled(flow.transport)(X), flow.transport(X))
    assert not traced()


OPTIONS = [
    {}, {"method": "bdf"}, {"method": "dopri5"}, {"gradient": "checkpoint"}, {"gradient": "direct"},
    {"gradient": "continuous"}, {"store_graph": True}, {"per_sample": True, "method": "bdf"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_are_the_same_also_where_backward_is_compiled_too(options: dict) -> None:
    model = nn.Sequential(nn.Linear(2, 2), NeuralODE(F, 1.0, **options), nn.Linear(2, 1))

    def step(x: Tensor) -> None:
        model(x).square().mean().backward()

    def gradients() -> list[Tensor]:
        found = [p.grad for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        return found

    step(X)
    expected = gradients()
    compiled(model)(X).square().mean().backward()
    outside = gradients()
    compiled(step)(X)
    for one, two, three in zip(expected, outside, gradients(), strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)
    assert not traced()


def test_the_option_compile_still_compiles_f(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxode.compiled, "BACKEND", "eager")
    layer = NeuralODE(F, 1.0, method="dopri5", compile=True)
    with torch.no_grad():
        expected = NeuralODE(F, 1.0, method="dopri5")(X)
        torch.testing.assert_close(compiled(layer)(X), expected)
    assert traced() == {"compiled.py"}


def test_one_graph_is_refused_with_the_reason() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a solve by proxode decides its steps by numbers"):
        torch.compile(DOORS["odeint"], backend="eager", fullgraph=True)(X)


def test_importing_the_layers_brings_in_no_compiler() -> None:
    code = "import sys, proxode.nn; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "False"
