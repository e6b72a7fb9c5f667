"""Trainings that can be killed: a checkpoint every few epochs, from which the same history goes on, bit for bit.

A checkpoint holds model, optimiser, states of the random generators, epoch and history. Its first line has the checksum
of the rest, so that no damage goes unnoticed; the rest is read with `weights_only=True`, which runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .files import write_atomically

MAGIC = b"proxode training 1"

History = list[dict[str, float]]
Epoch = Callable[[int], dict[str, float]]  # trains one epoch, says what it measured


class CheckpointError(RuntimeError):
    """A checkpoint that is damaged, or that of another training."""


@dataclass
class Training:
    """All that changes while a model is trained. `generators` are those that the epochs draw from besides the global
    ones of torch and Python; `parts` are further objects with a state_dict, such as a schedule of learning rates."""

    model: torch.nn.Module
    optimiser: torch.optim.Optimizer
    settings: dict[str, Any]  # plain data that tells this training from others
    generators: dict[str, torch.Generator] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=list)

    def run(
        self,
        epoch: Epoch,
        epochs: int,
        checkpoint: Path | None = None,
        *,
        every: int = 1,
        after: Callable[[History], None] = lambda history: None,
    ) -> History:
        """Train up to `epochs`, from the checkpoint if it is there; what was made since it is made again."""
        if checkpoint is not None and checkpoint.exists():
            self.load(checkpoint)
        while len(self.history) < epochs:
            self.history.append(epoch(len(self.history)))
            if checkpoint is not None and (len(self.history) % every == 0 or len(self.history) == epochs):
                self.save(checkpoint)
            after(self.history)
        return self.history

    def save(self, path: Path) -> None:
        content = {
            "settings": _words(self.settings),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "random": _random_states(self.generators),
            "history": self.history,
        }
        file = io.BytesIO()
        torch.save(content, file)
        body = file.getvalue()
        write_atomically(path, MAGIC + b" " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    def load(self, path: Path) -> None:
        """Take over the state of a checkpoint, all of it or nothing."""
        content = _read(path)
        here = _words(self.settings)
        if content["settings"] != here:
            raise CheckpointError(
                f"{path} is of a training with other settings ({content['settings']}; here {here}): "
                "give the same ones, or move it away to begin anew"
            )
        if (
            content["parts"].keys() != self.parts.keys()
            or content["random"].keys() != _random_states(self.generators).keys()
        ):
            raise CheckpointError(f"{path} is of a training with other parts: move it away to begin anew")
        try:
            self.model.load_state_dict(content["model"])
            self.optimiser.load_state_dict(content["optimiser"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{path} is of another model or optimiser ({error}): move it away to begin anew"
            ) from None
        for name, part in self.parts.items():
            part.load_state_dict(content["parts"][name])
        _set_random_states(content["random"], self.generators)
        self.history = content["history"]


def _words(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _read(path: Path) -> dict[str, Any]:
    head, _, body = path.read_bytes().partition(b"\n")
    if not head.startswith(MAGIC + b" "):
        raise CheckpointError(f"{path} is not a checkpoint of a proxode training: move it away to begin anew")
    if head.removeprefix(MAGIC + b" ").decode("ascii", "replace") != hashlib.sha256(body).hexdigest():
        raise CheckpointError(f"{path} is damaged (its checksum is wrong): move it away to begin anew")
    content: dict[str, Any] = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    return content


def _random_states(generators: dict[str, torch.Generator]) -> dict[str, Any]:
    version, inner, gauss = random.getstate()
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(inner), gauss]}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states | {f"generator {name}": generator.get_state() for name, generator in generators.items()}


def _set_random_states(states: dict[str, Any], generators: dict[str, torch.Generator]) -> None:
    torch.set_rng_state(states["torch"])
    version, inner, gauss = states["python"]
    random.setstate((version, tuple(inner), gauss))
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
    for name, generator in generators.items():
        generator.set_state(states[f"generator {name}"])
