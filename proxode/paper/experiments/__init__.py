"""The experiments by name. A file `<name>.py` here with an object `EXPERIMENT` is one; nothing else registers it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from ..experiment import Experiment

NAMES = ("scalar", "diffusion", "inner", "nonlinear", "stability", "energy", "tolerance", "grand", "cnf", "stiff")


def registered() -> list[str]:
    """The names whose experiment exists, in the order of the paper."""
    return [name for name in NAMES if find_spec(f"{__name__}.{name}") is not None]


def experiment_of(name: str) -> Experiment:
    if name not in registered():
        raise ValueError(f"unknown experiment {name!r}; known are: {', '.join(registered())}")
    found = import_module(f"{__name__}.{name}").EXPERIMENT
    assert isinstance(found, Experiment) and found.name == name
    return found
