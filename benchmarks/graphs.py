"""Citation and co-author graphs, from the npz files of the gnn-benchmark collection; nothing is downloaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

DATA_VARIABLE = "PROXODE_DATA"
HOME = "https://github.com/shchur/gnn-benchmark"


@dataclass(frozen=True)
class Source:
    """A file, and the counts that its contents must have."""

    title: str
    file: str
    nodes: int
    edges: int  # undirected, without loops
    features: int
    classes: int


SOURCES = {
    "coauthor_cs": Source("Coauthor-CS", "ms_academic_cs.npz", 18_333, 81_894, 6_805, 15),
    "cora": Source("Cora", "cora.npz", 2_708, 5_278, 1_433, 7),
}


@dataclass(frozen=True)
class Graph:
    """`target` and `source` of every directed edge, sorted by target: both directions of each, and all self-loops."""

    name: str
    target: Tensor
    source: Tensor
    features: Tensor  # sparse CSR, ones where a feature is present
    labels: Tensor

    @property
    def nodes(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def edges(self) -> int:
        return (len(self.target) - self.nodes) // 2


def load(name: str, data_dir: Path | None = None) -> Graph:
    """The graph `name` of `SOURCES`, checked against its known counts."""
    source = SOURCES[name]
    with np.load(find(source, data_dir), allow_pickle=False) as arrays:
        shape = tuple(int(size) for size in arrays["attr_shape"])
        indptr = torch.from_numpy(arrays["attr_indptr"].astype(np.int64))
        columns = torch.from_numpy(arrays["attr_indices"].astype(np.int64))
        present = torch.from_numpy(arrays["attr_data"] > 0).to(torch.float32)
        features = torch.sparse_csr_tensor(indptr, columns, present, shape, check_invariants=True)
        target, tail = _symmetric_with_loops(arrays["adj_indptr"], arrays["adj_indices"])
        labels = torch.from_numpy(arrays["labels"].astype(np.int64))
    graph = Graph(name, target, tail, features, labels)
    found = (graph.nodes, graph.edges, shape[1], graph.classes)
    expected = (source.nodes, source.edges, source.features, source.classes)
    if found != expected or shape[0] != graph.nodes:
        raise ValueError(f"{source.file}: nodes, edges, features, classes are {found}, they should be {expected}")
    return graph


def find(source: Source, data_dir: Path | None) -> Path:
    """The file below the data folder, however deep: torch_geometric and gnn-benchmark lay it out differently."""
    if data_dir is None and os.environ.get(DATA_VARIABLE):
        data_dir = Path(os.environ[DATA_VARIABLE])
    found = [] if data_dir is None else sorted(data_dir.rglob(source.file))
    if not found:
        where = "no folder was given" if data_dir is None else f"it is not below {data_dir}"
        raise FileNotFoundError(
            f"{source.title} is in the file {source.file}, and {where}. Get data/npz/{source.file} from {HOME} "
            f"(torch_geometric's Coauthor and CitationFull data sets download the same file), and name its folder "
            f"with --data-dir or in the environment variable {DATA_VARIABLE}"
        )
    return found[0]


def _symmetric_with_loops(indptr: np.ndarray, columns: np.ndarray) -> tuple[Tensor, Tensor]:
    """Both directions of every edge and one loop at every node, sorted by target, none twice."""
    n = len(indptr) - 1
    rows, columns = np.repeat(np.arange(n), np.diff(indptr.astype(np.int64))), columns.astype(np.int64)
    loops = np.arange(n)
    keys = np.unique(np.concatenate([rows * n + columns, columns * n + rows, loops * n + loops]))
    return torch.from_numpy(keys // n), torch.from_numpy(keys % n)
