"""Data sets from their public homes, when asked."""

from __future__ import annotations

from pathlib import Path

from . import graphs, mnist
from .files import DATA_VARIABLE, data_folder, download


def fetch(name: str, data_dir: Path | str | None = None) -> list[Path]:
    """Download a data set ("mnist" or a graph) into a folder and check it. Files that are there and sound stay.

    Nothing else in the package uses the network. Where there is none the error says what to put where.
    """
    parts: list[mnist.Part | graphs.Source]
    parts = [item for pair in mnist.PARTS.values() for item in pair] if name == "mnist" else [_graph(name)]
    folder = data_folder(data_dir)
    if folder is None:
        raise ValueError(f"`data_dir` must be given, or the environment variable {DATA_VARIABLE} set")
    return [_sound(part, folder) or download(part.data_file, folder, part.check) for part in parts]


def _graph(name: str) -> graphs.Source:
    if name not in graphs.SOURCES:
        raise ValueError(f"there is no data set {name!r}; known are: mnist, {', '.join(graphs.SOURCES)}")
    return graphs.SOURCES[name]


def _sound(part: mnist.Part | graphs.Source, folder: Path) -> Path | None:
    path = folder / part.file
    try:
        part.check(path)
    except ValueError:  # a damaged one is replaced
        return None
    except FileNotFoundError:
        return None
    return path
