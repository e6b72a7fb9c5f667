"""Files that are whole or not there: a run that is killed while it writes leaves what was there before."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, force it to the disk, then take the file's place in one move."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def why_not_written(path: Path) -> str | None:
    """What keeps a file from being written there, in the words of the system. It is tried, for who may write where is
    not told by permissions alone; folders on the way are made."""
    there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        return error.strerror or str(error)
    if not there:
        path.unlink()
    return None


def _sync_folder(folder: Path) -> None:
    """The move itself must reach the disk too, where the system knows folders as files."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
