"""Data files: where they are, how they come from their public home, and what is said when they do not."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DATA_VARIABLE = "PROXODE_DATA"
LARGEST = 2**28  # bytes that a download may have: none of the files has a tenth of it
TIMEOUT = 60.0  # seconds without an answer


class DataError(ValueError):
    """A file whose contents are not those of the data set."""


@dataclass(frozen=True)
class DataFile:
    """A file, and where the public finds it."""

    title: str
    file: str
    url: str

    @property
    def advice(self) -> str:
        return (
            f"Get it from {self.url} and put it, as {self.file}, into a folder that you name with --data-dir or in "
            f"the environment variable {DATA_VARIABLE}"
        )


def data_folder(data_dir: Path | str | None) -> Path | None:
    """The folder that was given, else that of the environment."""
    given = os.environ.get(DATA_VARIABLE) if data_dir is None else data_dir
    return Path(given) if given else None


def find(wanted: DataFile, data_dir: Path | str | None = None) -> Path:
    """The file below the data folder, however deep: those who share such files lay them out differently."""
    folder = data_folder(data_dir)
    found = [] if folder is None else sorted(folder.rglob(wanted.file))
    if not found:
        where = "no folder was given" if folder is None else f"it is not below {folder}"
        raise FileNotFoundError(
            f"{wanted.title} is in the file {wanted.file}, and {where}. {wanted.advice}; or let proxode.data.fetch "
            "do it"
        )
    return found[0]


def download(wanted: DataFile, folder: Path, check: Callable[[Path], object]) -> Path:
    """Fetch the file into a folder, where it appears only after `check` of its contents has raised nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / wanted.file
    handle, name = tempfile.mkstemp(prefix=f".{wanted.file}.", dir=folder)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _copy(wanted, file.write)
        check(part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _copy(wanted: DataFile, write: Callable[[bytes], object]) -> None:
    size = 0
    try:
        with urllib.request.urlopen(wanted.url, timeout=TIMEOUT) as answer:
            while block := answer.read(2**20):
                size += len(block)
                if size > LARGEST:
                    raise DataError(f"{wanted.url} is larger than {LARGEST:,} bytes: that cannot be {wanted.title}")
                write(block)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ConnectionError(
            f"{wanted.title} could not be fetched from {wanted.url} ({reason}). {wanted.advice}"
        ) from error
