"""Trainings that are killed and go on: the history is the same to the last bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from proxode.paper.training import CheckpointError, Training

EPOCHS = 5
BATCHES = 3


class Killed(RuntimeError):
    pass


def made(settings: dict[str, float] | None = None) -> Training:
    """A small network with dropout: every epoch draws from all generators and the optimiser has a memory."""
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    generator = torch.Generator().manual_seed(1)
    return Training(model, optimiser, settings or {"lr": 1e-2}, {"data": generator}, {"schedule": schedule})


def train(training: Training, path: Path | None, every: int = 1, kill_at: tuple[int, int] | None = None):
    def epoch(k: int) -> dict[str, float]:
        loss = torch.zeros(())
        for batch in range(BATCHES):
            if kill_at == (k, batch):
                raise Killed
            x = torch.randn(16, 3, generator=training.generators["data"]) * random.random()
            training.optimiser.zero_grad()
            loss = (training.model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            training.optimiser.step()
        training.parts["schedule"].step()
        return {"loss": float(loss.detach()), "noise": float(torch.rand(()))}

    return training.run(epoch, EPOCHS, path, every=every)


@pytest.fixture(scope="module")
def whole():
    training = made()
    return train(training, None), training


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("epoch", range(EPOCHS))
def test_a_training_killed_anywhere_goes_on_to_the_same_history(tmp_path: Path, whole, epoch, batch, every) -> None:
    history, finished = whole
    path = tmp_path / "training.checkpoint"
    with pytest.raises(Killed):
        train(made(), path, every, (epoch, batch))
    assert path.exists() == (epoch >= every)
    torch.manual_seed(99)  # what another process would have drawn before
    random.seed(99)
    again = made()
    assert train(again, path, every) == history
    for name, value in finished.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_a_finished_training_is_not_repeated(tmp_path: Path, whole) -> None:
    path = tmp_path / "training.checkpoint"
    train(made(), path)
    again = made()
    assert again.run(lambda k: pytest.fail("no epoch is left"), EPOCHS, path) == whole[0]


@pytest.mark.parametrize("place", [0, 5, 30, 90, 200, -1])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, place: int) -> None:
    path = tmp_path / "training.checkpoint"
    train(made(), path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r"training\.checkpoint.*move it away"):
        train(made(), path)


@pytest.mark.parametrize("length", [0, 10, 83, 84, 500])
def test_a_checkpoint_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "training.checkpoint"
    train(made(), path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError):
        train(made(), path)


def test_a_checkpoint_of_another_training_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "training.checkpoint"
    train(made(), path)
    with pytest.raises(CheckpointError, match="other settings"):
        made({"lr": 1.0}).load(path)
    fewer = made()
    fewer.generators = {}
    with pytest.raises(CheckpointError, match="other parts"):
        fewer.load(path)
    wider = made()
    wider.model[0] = torch.nn.Linear(4, 8)
    with pytest.raises(CheckpointError, match="another model"):
        wider.load(path)
    assert wider.history == [] and fewer.history == []


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "training.checkpoint"
    torch.save(made().model, path)  # a whole module, as torch.save has it
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        made().load(path)
