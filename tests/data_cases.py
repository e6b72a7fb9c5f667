"""A small random graph in a file of the collection's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from proxode.data import graphs

NODES, FEATURES, CLASSES = 30, 12, 3


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    upper = np.triu(random.random((NODES, NODES)) < 0.2, 1)
    present = random.random((NODES, FEATURES)) < 0.4
    adjacency, attributes = ([np.flatnonzero(row) for row in matrix] for matrix in (upper, present))
    return {
        "adj_indptr": np.cumsum([0, *map(len, adjacency)]), "adj_indices": np.concatenate(adjacency),
        "adj_shape": np.array([NODES, NODES]),
        "attr_indptr": np.cumsum([0, *map(len, attributes)]), "attr_indices": np.concatenate(attributes),
        "attr_data": np.ones(int(present.sum())), "attr_shape": np.array(present.shape),
        "labels": np.arange(NODES) % CLASSES,
    }  # fmt: skip


def small_source(folder: Path, home: str = graphs.HOME) -> graphs.Source:
    """Writes small.npz, and says what it must hold."""
    np.savez(folder / "small.npz", **arrays())
    graph = graphs.read(folder / "small.npz")
    return graphs.Source("small", "small.npz", NODES, graph.edges, FEATURES, CLASSES, graphs.digest(graph), home)
