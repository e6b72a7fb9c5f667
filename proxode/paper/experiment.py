"""What an experiment of the paper is: claims, the rows that test them, and what is read from the rows.

An experiment is one file in `experiments/` with an object `EXPERIMENT`. It makes rows; the runner owns the rest.
Tables, pictures and verdicts are made from the stored report and from nothing else, also from one that was cut short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .tables import Table

Row = dict[str, Any]
Report = dict[str, Any]
Scales = dict[str, dict[str, Any]]

HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "holds in part", "does not hold", "not measured"
QUICK, FULL = "quick", "full"


@dataclass(frozen=True)
class Claim:
    """What the paper says, and where."""

    text: str
    place: str


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was measured. Without numbers there is no verdict."""

    claim: Claim
    setting: str
    measured: str
    outcome: str

    def __post_init__(self) -> None:
        if self.outcome not in (HOLDS, PARTLY, FAILS, UNKNOWN):
            raise ValueError(f"`outcome` must be one of {HOLDS}, {PARTLY}, {FAILS}, {UNKNOWN}, not {self.outcome!r}")


def judged(parts: Sequence[bool]) -> str:
    """The outcome of a claim with several parts."""
    if not parts:
        return UNKNOWN
    return HOLDS if all(parts) else PARTLY if any(parts) else FAILS


class Watch:
    """What a row may tell while it is made, and where it may keep a checkpoint. This one tells nobody."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        self.checkpoint = checkpoint  # exists if an earlier run of this row was stopped

    def nfe(self, calls: int) -> None:
        """Evaluations so far."""

    def loss(self, value: float) -> None:
        """The last loss of a training."""

    def part(self, done: float) -> None:
        """How much of the row is done, 0 to 1, for the time left."""


@dataclass(frozen=True)
class Task:
    """A row to be made. `key` tells it from all others and becomes part of it."""

    key: Row
    make: Callable[[Watch], Row]

    @property
    def label(self) -> str:
        return ", ".join(str(value) for value in self.key.values())


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn: `<stem>.png` and `<stem>.pdf` in the folder."""

    stem: str
    caption: str


class Experiment(ABC):
    """One experiment. `scales` has the settings of `--quick` and `--full` as plain data, which the report keeps."""

    name: ClassVar[str]
    title: ClassVar[str]
    claims: ClassVar[tuple[Claim, ...]]
    scales: ClassVar[Scales]
    cut: ClassVar[str] = ""  # where --full is less than the paper's setting, and why
    growing: ClassVar[tuple[str, ...]] = ()  # lists of the setting that only say which rows are made: they may grow

    def setting(self, scale: str, seed: int = 0) -> dict[str, Any]:
        return {"scale": scale, "seed": seed, **self.scales[scale]}

    def missing(self, setting: dict[str, Any], data_dir: Path | None) -> str | None:
        """What has to be there first, in words that say how to get it; None if nothing is missing."""
        return None

    @abstractmethod
    def problem(self, setting: dict[str, Any]) -> dict[str, Any]:
        """What is solved, in the words of the report."""

    @abstractmethod
    def tasks(self, setting: dict[str, Any], data_dir: Path | None = None) -> list[Task]:
        """The rows to be made, in order."""

    @abstractmethod
    def tables(self, report: Report) -> list[Table]: ...

    @abstractmethod
    def draw(self, report: Report, folder: Path) -> list[Picture]: ...

    @abstractmethod
    def verdicts(self, report: Report) -> list[Verdict]:
        """One for each claim, in their order; `not measured` where the rows are missing."""
